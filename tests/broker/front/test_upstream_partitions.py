"""The state of upstream's partitions, over brokers of a model, on a clock that stands still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from tests.support.loops import run_on
from tests.support.manual_timers import ManualTimers, settle
from tests.support.model_brokers import ModelBrokers
from tierlog.broker.front.source_choice import EpochEnds, TierEnd, UpstreamState
from tierlog.broker.front.upstream_partitions import UpstreamPartitions
from tierlog.broker.partitions import EpochEndOffset
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng

ORDERS: Final = ("orders", 0)
SEAM: Final = TierEnd(Uuid(b"id of orders...."), 500, 500, 3)


class Rig:
    """The states of a model's partitions."""

    def __init__(self, *, asks_local: bool = False) -> None:
        self.timers = ManualTimers()
        self.brokers = ModelBrokers()
        self.states = UpstreamPartitions(
            self.brokers,
            timers=self.timers,
            machine=Machine(rng=SeededRng(3)),
            refresh_seconds=1.0,
            asks_local=asks_local,
        )

    async def fresh(
        self, *names: tuple[str, int], seam: TierEnd = SEAM, seconds: float = 2.0
    ) -> list[UpstreamState | None]:
        """States that are not older than the refresh, if there are any in time."""
        since = self.timers.monotonic_seconds() - 1.0
        await self.states.refresh(dict.fromkeys(names, seam), since_seconds=since, seconds=seconds)
        return [self.states.find(name, seam) for name in names]


def on_loop(test: Callable[[Rig], Coroutine[Any, Any, None]], *, asks_local: bool = False) -> None:
    async def main() -> None:
        rig = Rig(asks_local=asks_local)
        await asyncio.wait_for(test(rig), 20)
        await rig.states.close()
        assert rig.timers.waiting_count == 0

    run_on("asyncio", main)


@pytest.mark.parametrize("asks_local", [True, False])
def test_a_state_is_what_the_leader_says(asks_local: bool) -> None:
    """Otherwise clients get other watermarks than from the broker, or another log than its."""

    async def test(rig: Rig) -> None:
        rig.brokers.add(
            "orders",
            leader=2,
            leader_epoch=9,
            log_start_offset=5,
            high_watermark=990,
            last_stable_offset=800,
            epochs=[(1, 0), (3, 300), (7, 600)],
        )
        assert await rig.fresh(ORDERS) == [
            UpstreamState(
                Uuid(b"id of orders...."),
                9,
                5,
                990,
                800,
                500 if asks_local else -1,
                EpochEnds(3, EpochEndOffset(3, 600), EpochEndOffset(1, 300)),
                0.0,
            )
        ]
        assert {(node, api) for node, api, _ in rig.brokers.asked} == {(None, 3), (2, 2), (2, 23)}

    on_loop(test, asks_local=asks_local)


def test_fetches_at_once_ask_together() -> None:
    """Otherwise a thousand clients are a thousand questions a second."""

    async def test(rig: Rig) -> None:
        names = [("orders", number) for number in range(50)]
        for name in names:
            rig.brokers.add(*name)
        found = await asyncio.gather(*(rig.fresh(name) for name in names))
        assert all(state is not None for (state,) in found)
        assert sorted({count for _, api, count in rig.brokers.asked if api != 3}) == [50]
        assert len(rig.brokers.asked) == 6
        await asyncio.gather(*(rig.fresh(name) for name in names))
        assert len(rig.brokers.asked) == 6, "a young state is not asked for again"

    on_loop(test)


def test_nobody_asks_where_nobody_fetches() -> None:
    """Otherwise an idle front is a load on the brokers, one more for each front."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders")
        await rig.fresh(ORDERS)
        asked = len(rig.brokers.asked)
        await rig.timers.advance(600)
        assert len(rig.brokers.asked) == asked
        assert rig.timers.waiting_count == 0
        rig.brokers.add("others")
        await rig.fresh(("others", 0))
        assert len(rig.states) == 1, "what nobody asks for is forgotten"

    on_loop(test)


def test_a_state_that_grows_old_is_renewed_while_it_serves() -> None:
    """Otherwise each fetch that is the first of a second waits for the brokers."""

    async def test(rig: Rig) -> None:
        partition = rig.brokers.add("orders")
        await rig.fresh(ORDERS)
        partition.high_watermark = 2000
        await rig.timers.advance(0.6)
        state = rig.states.find(ORDERS, SEAM)
        assert state is not None
        assert (state.high_watermark, state.asked_at_seconds) == (1000, 0.0)
        await settle()
        state = rig.states.find(ORDERS, SEAM)
        assert state is not None
        assert (state.high_watermark, state.asked_at_seconds) == (2000, 0.6)

    on_loop(test)


def test_a_leader_that_stalls_holds_up_its_own_partitions() -> None:
    """Otherwise one broker that hangs makes the whole cluster's history the brokers' work."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders", leader=1)
        rig.brokers.add("others", leader=2)
        rig.brokers.stalled = {1}
        slow = asyncio.create_task(rig.fresh(ORDERS, seconds=3.0))
        await settle()
        (state,) = await rig.fresh(("others", 0))
        assert state is not None
        for _ in range(2):
            await rig.timers.advance(1.2)
            (state,) = await rig.fresh(("others", 0))
            assert state is not None
            assert state.asked_at_seconds == rig.timers.monotonic_seconds()
        assert not slow.done()
        await rig.timers.advance(1.0)
        assert await slow == [None], "a fetch waits no longer than it may"
        rig.brokers.go_on()
        (state,) = await rig.fresh(ORDERS)
        assert state is not None

    on_loop(test)


def test_brokers_that_are_away_are_asked_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a front keeps a cluster that comes back from coming back, or never asks it again."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders")
        rig.brokers.away = {None}
        for _ in range(200):
            assert await rig.fresh(ORDERS) == [None]
            await rig.timers.advance(0.1)
        assert 5 <= len(rig.brokers.asked) <= 20
        assert rig.states.failures_count == len(rig.brokers.asked)
        rig.brokers.away = {1}
        await rig.timers.advance(5)
        assert await rig.fresh(ORDERS) == [None]
        rig.brokers.away = set()
        await rig.timers.advance(5)
        (state,) = await rig.fresh(ORDERS)
        assert state is not None

    with caplog.at_level(logging.WARNING):
        on_loop(test)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the state of upstream's partitions: any broker: broker None is away",
        "the state of upstream's partitions: broker 1: broker 1 is away",
    ], "a line for each outage"


def test_a_deletion_that_passed_counts_at_once_and_stays() -> None:
    """Otherwise records that a client has deleted are served until the next question, or again by an older answer."""

    async def test(rig: Rig) -> None:
        partition = rig.brokers.add("orders")
        await rig.fresh(ORDERS)
        await rig.timers.advance(1.5)
        rig.brokers.stalled = {None}
        late = asyncio.create_task(rig.fresh(ORDERS))
        await settle()
        rig.states.move_log_start(ORDERS, 300)
        state = rig.states.find(ORDERS, SEAM)
        assert state is not None
        assert state.log_start_offset == 300
        rig.brokers.go_on()  # with an answer that was made before
        (state,) = await late
        assert state is not None
        assert (state.log_start_offset, state.asked_at_seconds) == (300, 1.5)
        rig.brokers.ids["orders"] = Uuid(b"a topic anew....")
        partition.high_watermark = 10
        await rig.timers.advance(1.5)
        (state,) = await rig.fresh(ORDERS)
        assert state is not None
        assert state.log_start_offset == 0, "of another topic"
        rig.states.move_log_start(("nobody's", 0), 5)

    on_loop(test)


def test_a_deletion_during_the_first_question_counts() -> None:
    """Otherwise an answer that was made before it lets deleted records be served until the next question."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders")
        rig.brokers.stalled = {1}  # who leads is known, and the leader is asked
        first = asyncio.create_task(rig.fresh(ORDERS))
        await settle()
        rig.states.move_log_start(ORDERS, 300)
        rig.brokers.go_on()
        (state,) = await first
        assert state is not None
        assert state.log_start_offset == 300

    on_loop(test)


def test_partitions_with_an_error_have_no_state() -> None:
    """Otherwise a partition whose leader moves, or that is not there, holds up or falsifies the others."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders")
        rig.brokers.add("orders", 1)
        moved = rig.brokers.partitions["orders", 1]
        ask = rig.brokers.ask

        async def ask_and_move(node_id: int | None, api_key: int, *args: Any, **options: Any) -> Any:
            answer = await ask(node_id, api_key, *args, **options)
            moved.leader = 2
            return answer

        rig.brokers.ask = ask_and_move  # type: ignore[method-assign]
        first, second, third = await rig.fresh(ORDERS, ("orders", 1), ("nobody", 0))
        assert first is not None
        assert (second, third) == (None, None)
        await rig.timers.advance(1.5)
        (second,) = await rig.fresh(("orders", 1))
        assert second is not None

    on_loop(test)


def test_a_missing_right_of_the_front_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise nobody learns why the brokers serve all of a topic."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders")
        rig.brokers.secret = {"orders"}
        for _ in range(5):
            assert await rig.fresh(ORDERS) == [None]
            await rig.timers.advance(1.5)
        rig.brokers.secret = set()
        (state,) = await rig.fresh(ORDERS)
        assert state is not None

    on_loop(test)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "orders-0" in told
    assert "topic_authorization_failed" in told


def test_a_newer_seam_is_asked_about() -> None:
    """Otherwise a segment of a new leader makes the tier useless until the state grows old."""

    async def test(rig: Rig) -> None:
        rig.brokers.add("orders", epochs=[(3, 0), (4, 600)])
        await rig.fresh(ORDERS)
        newer = SEAM._replace(end_offset=700, leader_epoch=4)
        await rig.timers.advance(0.2)
        await rig.states.refresh({ORDERS: newer}, since_seconds=0.2, seconds=1)
        state = rig.states.find(ORDERS, newer)
        assert state is not None
        assert state.ends == EpochEnds(4, EpochEndOffset(4, 1000), EpochEndOffset(3, 600))

    on_loop(test)
