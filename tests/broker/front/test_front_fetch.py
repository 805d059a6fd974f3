"""Fetch in front of a broker, both in memory, on a clock that stands still."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from tests.support.fetch_client import Ask
from tests.support.front_rig import WRITE, FrontRig, LocalFrontRig, on_front
from tests.support.manual_timers import settle
from tests.support.memory_topics import MemoryPartition
from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import entities_of
from tierlog.errors import StoreError
from tierlog.remote.api import Uuid

VERSIONS: Final = range(4, 19)
SOME_VERSIONS: Final = (4, 7, 11, 12, 13, 18)


def data_of(partition: MemoryPartition, first: int = 0, last: int | None = None) -> bytes:
    """The batches from one to another, exclusive."""
    return b"".join(batch.data for batch in partition.batches[first:last])


@pytest.mark.parametrize("version", VERSIONS)
def test_history_is_the_tiers_and_the_live_end_the_brokers(version: int) -> None:
    """Otherwise a backfill is the brokers' work, or the live end is never reached."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        answer = await rig.fetch_of("orders", 0, version)
        assert answer.records == {("orders", 0): data_of(live, 0, 4)}
        told = answer.partitions[0]
        assert (told.high_watermark, told.last_stable_offset) == (60, 60)
        assert rig.upstream.asked_of(1) == []
        answer = await rig.fetch_of("orders", 40, version)
        assert answer.records == {("orders", 0): data_of(live, 4)}
        assert len(rig.upstream.asked_of(1)) == 1
        assert (rig.counts.tier_bytes, rig.counts.upstream_bytes) == (400, 200)
        assert tier.reads_count == 1

    on_front(test)


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_a_request_with_both_waits_for_neither(version: int) -> None:
    """Otherwise a backfill starves the live partitions, or waits with them for records that do not come."""

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        _, live, _ = rig.add("payments", batches=2, tiered=0)
        asks = [Ask("orders", 0, 0), Ask("payments", 0, 20)]
        answer = await rig.fetch(version, asks, max_wait_ms=60_000)
        assert answer.records == {("orders", 0): data_of(tier)}
        assert [(told.topic, told.high_watermark) for told in answer.partitions] == [("orders", 60), ("payments", 20)]
        request = rig.upstream.asked_of(1)[-1]
        assert (request.max_wait.total_seconds(), request.min_bytes) == (0, 0)
        live.append(300)
        answer = await rig.fetch(version, asks, max_bytes=500)
        assert answer.records == {("orders", 0): data_of(tier, 0, 2), ("payments", 0): live.batches[-1].data}
        assert rig.upstream.asked_of(1)[-1].max_bytes == 250, "its share of the bytes"

    on_front(test)


def test_pauses_and_nearer_replicas_are_the_brokers() -> None:
    """Otherwise a quota ends at the front, and a consumer reads across zones what its rack has."""

    def answered(request: Any, api_version: int) -> Any:
        entities = entities_of(1, api_version)
        assert request.rack_id == ""
        partitions = (
            entities.make(
                "PartitionData",
                partition_index=0,
                error_code=ErrorCode.none,
                high_watermark=20,
                last_stable_offset=20,
                log_start_offset=0,
                aborted_transactions=None,
                preferred_read_replica=2,
                records=None,
            ),
        )
        return entities.response(
            throttle_time=datetime.timedelta(milliseconds=250),
            error_code=ErrorCode.none,
            session_id=0,
            responses=(entities.make("FetchableTopicResponse", topic="payments", partitions=partitions),),
        )

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        rig.add("payments", batches=2, tiered=0)
        rig.upstream.answers[1] = answered
        for asks in ([Ask("payments", 0, 0)], [Ask("orders", 0, 0), Ask("payments", 0, 0)]):
            answer = await rig.fetch(12, asks)
            assert answer.throttle_time_ms == 250
            assert answer.partitions[-1].preferred_read_replica == 2
        assert answer.records == {("orders", 0): data_of(tier)}
        assert answer.partitions[0].preferred_read_replica == -1

    on_front(test)


def test_a_live_request_waits_as_the_client_does() -> None:
    """Otherwise a tail consumer asks without a pause, or gets records late."""

    async def test(rig: FrontRig) -> None:
        _, live, _ = rig.add("orders", batches=2, tiered=1)
        waiting = asyncio.create_task(rig.fetch_of("orders", 20, max_wait_ms=500, min_bytes=7))
        await settle()
        request = rig.upstream.asked_of(1)[-1]
        assert (request.max_wait.total_seconds(), request.min_bytes) == (0.5, 7)
        live.append(100)
        rig.live.change_partition("orders")
        await settle()
        assert (await waiting).records == {("orders", 0): data_of(live, 2)}

    on_front(test)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_sessions_end_at_the_front(version: int) -> None:
    """Otherwise a broker has sessions of partitions that it never sees asked for, or a client learns nothing new."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        _, other, _ = rig.add("payments", batches=2, tiered=0)
        asks = [Ask("orders", 0, 0), Ask("payments", 0, 0)]
        first = await rig.fetch(version, asks, session_epoch=0)
        assert first.session_id > 0
        assert first.records == {("orders", 0): data_of(tier), ("payments", 0): data_of(other)}
        same = {"session_id": first.session_id, "session_epoch": 1}
        second = await rig.fetch(version, [Ask("orders", 0, 40), Ask("payments", 0, 20)], **same)
        assert second.records == {("orders", 0): data_of(live, 4)}
        assert [told.topic for told in second.partitions] == ["orders"], "nothing is new of the other"
        third = await rig.fetch(version, [Ask("orders", 0, 60)], **(same | {"session_epoch": 2}))
        assert third.partitions == []
        for request in rig.upstream.asked_of(1):
            assert (request.session_id, request.session_epoch) == (0, -1)
        stranger = await rig.fetch(version, principal="User:other", **(same | {"session_epoch": 3}))
        assert stranger.error == "fetch_session_id_not_found"

    on_front(test)


def test_errors_are_the_brokers_own() -> None:
    """Otherwise a client of the front is told something else than a client of the broker."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        live.log_start_offset = model.log_start_offset = 20
        del tier
        for offset, error in ((10, "offset_out_of_range"), (61, "offset_out_of_range"), (20, None), (60, None)):
            answer = await rig.fetch_of("orders", offset)
            assert answer.errors == ({} if error is None else {("orders", 0): error})
        answer = await rig.fetch(12, [Ask("orders", 0, 30, current_leader_epoch=2)])
        assert answer.errors == {("orders", 0): "fenced_leader_epoch"}
        answer = await rig.fetch(16, [Ask("orders", 0, 30, current_leader_epoch=2)])
        assert answer.node_endpoints == [(1, "front.example", 9001)], "the broker's address is not told"
        assert answer.partitions[0].current_leader == (1, 3)
        answer = await rig.fetch_of("nobody", 0)
        assert answer.errors == {("nobody", 0): "unknown_topic_or_partition"}

    on_front(test)


def test_the_epoch_of_the_record_before_is_compared() -> None:
    """Otherwise a client that names it, as kafka-python does, reads nothing of the bucket; or is not told that its log
    is another one.
    """

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        await rig.fetch_of("orders", 0)
        asked = len(rig.upstream.asked_of(1))
        answer = await rig.fetch(12, [Ask("orders", 0, 30, last_fetched_epoch=3)])
        assert answer.records == {("orders", 0): data_of(tier, 3)}
        assert len(rig.upstream.asked_of(1)) == asked
        answer = await rig.fetch(12, [Ask("orders", 0, 30, last_fetched_epoch=2)])
        assert not answer.records
        assert len(rig.upstream.asked_of(1)) == asked + 1, "the broker says it"
        answer = await rig.fetch(12, [Ask("orders", 0, 30, last_fetched_epoch=3)])
        assert len(rig.upstream.asked_of(1)) == asked + 1, "its tier is not avoided for it"

    on_front(test)


def test_a_newer_leader_epoch_is_asked_about() -> None:
    """Otherwise every leader change sends all backfills to the brokers until the state is old."""

    async def test(rig: FrontRig) -> None:
        _, live, model = rig.add("orders", batches=6, tiered=4)
        await rig.fetch_of("orders", 0)
        live.append(10, leader_epoch=4)
        model.leader_epoch, model.high_watermark, model.last_stable_offset = 4, 61, 61
        model.epochs.append((4, 60))
        await rig.timers.advance(0.2)
        answer = await rig.fetch(12, [Ask("orders", 0, 0, current_leader_epoch=4)])
        assert answer.records == {("orders", 0): data_of(live, 0, 4)}
        assert answer.partitions[0].high_watermark == 61
        answer = await rig.fetch(12, [Ask("orders", 0, 0, current_leader_epoch=5)])
        assert answer.errors == {("orders", 0): "unknown_leader_epoch"}

    on_front(test)


def test_what_is_deleted_is_not_served() -> None:
    """Otherwise records that were deleted beside the front are served for longer than the refresh, or those that were
    deleted through it at all.
    """

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        assert (await rig.fetch_of("orders", 0)).records
        live.log_start_offset = model.log_start_offset = 10
        await rig.timers.advance(1.01)
        assert (await rig.fetch_of("orders", 0)).errors == {("orders", 0): "offset_out_of_range"}
        assert (await rig.fetch_of("orders", 10)).records == {("orders", 0): data_of(tier, 1)}
        live.log_start_offset = 20
        rig.states.move_log_start(("orders", 0), 20)
        assert (await rig.fetch_of("orders", 10)).errors == {("orders", 0): "offset_out_of_range"}

    on_front(test)


def test_a_topic_that_was_made_anew_is_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise records of a topic that is gone are served under the name of another one."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        rig.brokers.ids["orders"] = Uuid(b"another topic...")
        live.batches = [live.append(77, records=10) for _ in range(6)]
        for _ in range(3):
            answer = await rig.fetch_of("orders", 0)
            assert answer.records == {("orders", 0): data_of(live)}
            await rig.timers.advance(1.5)
        assert tier.reads_count == 0
        assert rig.choices.faults == {("orders", 0)}
        rig.brokers.ids["orders"] = tier.topic_id_partition.topic_id
        await rig.timers.advance(1.5)
        assert (await rig.fetch_of("orders", 0)).records == {("orders", 0): data_of(tier)}
        assert rig.choices.faults == set()
        del model

    on_front(test)
    assert len([one for one in caplog.records if "another_lineage" in one.getMessage()]) == 1


def test_a_bucket_of_another_cluster_is_told_whoever_asks(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise nobody learns why the brokers serve all: clients that name topics by ids never ask for the bucket's."""
    other = Uuid(b"another topic...")

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        rig.add("payments", batches=6, tiered=4)
        rig.brokers.ids["orders"] = other
        comparing = asyncio.create_task(rig.choices.keep_comparing(rig.brokers))
        for _ in range(3):
            await rig.timers.advance(30.0)
            assert rig.choices.other_topics == {"orders": other}
        rig.brokers.away.add(None)
        await rig.timers.advance(30.0)
        assert rig.choices.other_topics == {"orders": other}, "nobody knows better"
        rig.brokers.away.clear()
        rig.brokers.ids["orders"] = tier.topic_id_partition.topic_id
        await rig.timers.advance(30.0)
        assert rig.choices.other_topics == {}
        comparing.cancel()
        await settle()

    on_front(test)
    (told,) = [record.getMessage() for record in caplog.records if "another_topic" in record.getMessage()]
    assert "topic=orders" in told


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": [(3, 0), (5, 35)], "leader_epoch": 5},
        {"epochs": [(2, 0), (5, 45)], "leader_epoch": 5},
        {"epochs": [(2, 0), (3, 40)], "leader_epoch": 3},
    ],
)
def test_a_diverged_tier_is_not_served(change: dict[str, Any]) -> None:
    """Otherwise records that an unclean election took back are served."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        for name, value in change.items():
            setattr(model, name, value)
        answer = await rig.fetch_of("orders", 0)
        assert answer.records == {("orders", 0): data_of(live)}
        assert tier.reads_count == 0
        assert rig.choices.faults == {("orders", 0)}

    on_front(test)


def test_a_tier_that_grows_is_served_at_once() -> None:
    """Otherwise each new segment sends its readers to the brokers for a refresh."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        await rig.fetch_of("orders", 0)
        await rig.timers.advance(0.2)
        for _ in range(4):
            batch = live.append(100, records=10, leader_epoch=3)
            tier.batches = list(live.batches)
            model.high_watermark = model.last_stable_offset = live.end_offset
            answer = await rig.fetch_of("orders", batch.base_offset)
            assert answer.records == {("orders", 0): batch.data}
            assert answer.partitions[0].high_watermark == live.end_offset
            await rig.timers.advance(0.2)
        assert rig.upstream.asked_of(1) == []

    on_front(test)


def test_nothing_of_the_tier_without_the_right_to_read() -> None:
    """Otherwise the bucket is a way past the brokers' ACLs; a right that is withdrawn counts after the refresh."""

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        rig.upstream.operations["orders"] = WRITE
        await rig.fetch_of("orders", 0)
        assert tier.reads_count == 0
        await rig.fetch_of("orders", 0)
        assert len(rig.upstream.asked_of(3)) == 1, "an answer counts for a while"
        reader, writer = rig.connect(), rig.upstream
        rig.upstream = reader
        await rig.fetch_of("orders", 0)
        assert tier.reads_count == 1, "the right is another connection's"
        reader.operations["orders"] = WRITE
        await rig.timers.advance(9.9)
        await rig.fetch_of("orders", 0)
        assert tier.reads_count == 2
        await rig.timers.advance(0.2)
        await rig.fetch_of("orders", 0)
        assert tier.reads_count == 2
        assert reader.held_bytes == writer.held_bytes == 0

    on_front(test)


def test_a_broker_that_cannot_tell_rights_serves_all() -> None:
    """Otherwise an old broker's clients read past its ACLs."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        rig.upstream.versions = rig.upstream.versions | {3: range(8)}
        assert (await rig.fetch_of("orders", 0)).records == {("orders", 0): data_of(live)}
        assert tier.reads_count == 0

    on_front(test)


def test_a_tier_that_fails_is_left_to_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a broken object keeps clients from records that the brokers have."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        tier.error = StoreError("the store is away")
        for _ in range(3):
            answer = await rig.fetch_of("orders", 0)
            assert answer.records == {("orders", 0): data_of(live)}
        assert tier.reads_count == 1, "it is not tried again at once"
        tier.error = None
        await rig.timers.advance(5.1)
        assert (await rig.fetch_of("orders", 0)).records == {("orders", 0): data_of(tier)}

    on_front(test)
    assert [one.getMessage() for one in caplog.records] == ["orders-0: StoreError: the store is away"]


def test_a_tier_that_fails_again_is_left_for_longer() -> None:
    """Otherwise a store that stays away costs its time limit each five seconds."""

    async def test(rig: FrontRig) -> None:
        rig.add("orders", batches=6, tiered=4)
        for seconds in (5, 10, 20, 40, 60, 60):
            await rig.fetch_of("orders", 0)
            rig.choices.avoid(("orders", 0))
            before = rig.counts.tier_bytes
            await rig.timers.advance(seconds - 0.5)
            await rig.fetch_of("orders", 0)
            assert rig.counts.tier_bytes == before, seconds
            await rig.timers.advance(1.0)
            await rig.fetch_of("orders", 0)
            assert rig.counts.tier_bytes > before, seconds

    on_front(test)


def test_a_hole_in_the_tier_is_the_brokers() -> None:
    """Otherwise a segment that is missing in the bucket is a loss that no client notices."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        del tier.batches[1]
        answer = await rig.fetch_of("orders", 10)
        assert answer.records == {("orders", 0): data_of(live, 1)}

    on_front(test)


def test_a_history_that_changes_between_choice_and_read() -> None:
    """Otherwise another lineage than the one that was compared is served."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        await rig.fetch_of("orders", 0)
        tier.gate = asyncio.Event()
        fetching = asyncio.create_task(rig.fetch_of("orders", 0))
        await settle()
        tier.batches = [*tier.batches[:3], tier.append(55, records=10, leader_epoch=9)]
        tier.gate.set()
        assert (await fetching).records == {("orders", 0): data_of(live)}

    on_front(test)


def test_read_committed_reads_what_the_tier_knows_decided() -> None:
    """Otherwise records of a transaction whose abort is not tiered yet are returned."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        tier.last_stable_offset, tier.aborted = 20, [(7, 3)]
        live.last_stable_offset, live.aborted = 50, [(7, 3), (8, 25)]
        model.last_stable_offset = 50
        answer = await rig.fetch_of("orders", 0, isolation_level=1)
        assert answer.records == {("orders", 0): data_of(live, 0, 2)}
        assert answer.partitions[0].aborted == [(7, 3)]
        assert (answer.partitions[0].high_watermark, answer.partitions[0].last_stable_offset) == (60, 50)
        answer = await rig.fetch_of("orders", 20, isolation_level=1)
        assert answer.records == {("orders", 0): data_of(live, 2, 5)}
        assert answer.partitions[0].aborted == [(7, 3), (8, 25)]
        answer = await rig.fetch_of("orders", 20)
        assert answer.records == {("orders", 0): data_of(tier, 2)}
        assert answer.partitions[0].aborted is None

    on_front(test)


def test_a_broker_that_stalls_holds_up_its_own_partitions() -> None:
    """Otherwise history waits for a broker that hangs."""

    async def test(rig: FrontRig) -> None:
        tier, _, _ = rig.add("orders", batches=6, tiered=4)
        _, live, _ = rig.add("payments", batches=2, tiered=0)
        await rig.fetch_of("orders", 0)
        rig.upstream.gate.clear()
        asks = [Ask("orders", 0, 0), Ask("payments", 0, 0)]
        fetching = asyncio.create_task(rig.fetch(12, asks, session_epoch=0))
        await rig.timers.advance(0.6)
        answer = await fetching
        assert answer.records == {("orders", 0): data_of(tier)}
        assert answer.errors == {("payments", 0): "kafka_storage_error"}
        rig.upstream.gate.set()
        same = {"session_id": answer.session_id, "session_epoch": 1}
        answer = await rig.fetch(12, [Ask("orders", 0, 60)], **same)
        assert answer.records == {("payments", 0): data_of(live)}

    on_front(test)


def test_a_store_that_stalls_holds_up_its_own_partitions() -> None:
    """Otherwise the live end waits for a bucket."""

    async def test(rig: FrontRig) -> None:
        tier, orders, _ = rig.add("orders", batches=6, tiered=4)
        _, live, _ = rig.add("payments", batches=2, tiered=0)
        tier.gate = asyncio.Event()
        fetching = asyncio.create_task(rig.fetch(12, [Ask("orders", 0, 0), Ask("payments", 0, 0)]))
        await rig.timers.advance(0.6)
        answer = await fetching
        assert answer.records == {("payments", 0): data_of(live)}
        assert answer.errors == {}
        answer = await rig.fetch_of("orders", 50)  # at the live end: it waits no time
        assert answer.records == {("orders", 0): data_of(orders, 5)}
        tier.gate.set()
        await settle()
        assert (await rig.fetch_of("orders", 0)).records == {("orders", 0): data_of(tier)}

    on_front(test)


def test_a_tier_that_brokers_have_deleted_is_no_other_log(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise each client that asks for a deleted offset tells an operator that the bucket is of another log."""

    async def test(rig: FrontRig) -> None:
        _, _, model = rig.add("orders", batches=6, tiered=4)
        model.log_start_offset, model.epochs = 50, [(3, 50)]
        await rig.fetch_of("orders", 0)
        assert not rig.choices.faults

    on_front(test)
    assert not [record for record in caplog.records if "another_lineage" in record.getMessage()]


def test_a_connection_that_ends_ends_the_clients() -> None:
    """Otherwise a client waits for a broker that is gone."""

    async def test(rig: FrontRig) -> None:
        rig.add("orders", batches=6, tiered=4)
        rig.add("payments", batches=2, tiered=0)
        rig.upstream.error = UpstreamError("gone")
        with pytest.raises(UpstreamError):
            await rig.fetch_of("payments", 0)
        rig.upstream.error = None
        await rig.fetch_of("orders", 0)
        rig.upstream.error = UpstreamError("gone")
        with pytest.raises(UpstreamError):
            await rig.fetch(12, [Ask("orders", 0, 0), Ask("payments", 0, 0)])

    on_front(test)


def test_no_state_no_tier() -> None:
    """Otherwise a tier is served of which nobody knows whether it is the cluster's."""

    async def test(rig: FrontRig) -> None:
        tier, live, _ = rig.add("orders", batches=6, tiered=4)
        rig.brokers.stalled = {None}
        fetching = asyncio.create_task(rig.fetch_of("orders", 0))
        await rig.timers.advance(1.1)
        assert (await fetching).records == {("orders", 0): data_of(live)}
        assert tier.reads_count == 0
        rig.brokers.go_on()

    on_front(test)


def test_the_local_preference() -> None:
    """Otherwise the preference says nothing."""

    async def test(rig: FrontRig) -> None:
        tier, live, model = rig.add("orders", batches=6, tiered=4)
        model.earliest_local_offset = 20
        assert (await rig.fetch_of("orders", 10)).records == {("orders", 0): data_of(tier, 1)}
        assert (await rig.fetch_of("orders", 20)).records == {("orders", 0): data_of(live, 2)}

    on_front(test, LocalFrontRig)
