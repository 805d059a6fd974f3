"""Coroutines that are begun at once, and go on beside their caller only if they have to wait."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.runtime.waiting.loops import Alarm, Begun

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def test_what_does_not_wait_is_done_at_once(loop: str) -> None:
    """Otherwise each partition of a fetch out of a cache costs a task."""

    async def answers() -> int:
        return 5

    async def main() -> None:
        before = asyncio.all_tasks()
        begun = Begun(answers())
        assert begun.is_done
        assert begun.result() == 5
        assert asyncio.all_tasks() == before
        told: list[int] = []
        begun.add_done_callback(lambda: told.append(1))
        assert told == [1]
        await begun.cancel()
        assert begun.result() == 5

    run_on(loop, main)


def test_errors_are_told_when_the_result_is_asked_for(loop: str) -> None:
    """Otherwise one bad partition ends the reading of all."""

    async def fails(waits: bool) -> int:
        if waits:
            await asyncio.sleep(0.001)
        raise ValueError("bad")

    async def main() -> None:
        for waits in (False, True):
            begun = Begun(fails(waits))
            alarm = Alarm()
            begun.add_done_callback(alarm.ring)
            await alarm.wait()
            with pytest.raises(ValueError, match="bad"):
                begun.result()

    run_on(loop, main)


def test_what_waits_goes_on_beside_its_caller(loop: str) -> None:
    """Otherwise slow partitions are read one after another, or never."""
    gate: list[asyncio.Event] = []
    steps: list[str] = []

    async def waits(name: str) -> str:
        steps.append(f"{name} begins")
        await gate[0].wait()
        await asyncio.sleep(0)
        steps.append(f"{name} ends")
        return name

    async def main() -> None:
        gate.append(asyncio.Event())
        begun = [Begun(waits("a")), Begun(waits("b"))]
        assert steps == ["a begins", "b begins"]
        assert not any(one.is_done for one in begun)
        gate[0].set()
        for one in begun:
            alarm = Alarm()
            one.add_done_callback(alarm.ring)
            await alarm.wait()
        assert [one.result() for one in begun] == ["a", "b"]

    run_on(loop, main)


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_cancelling_runs_what_cleans_up(loop: str, turns: int) -> None:
    """Otherwise a client that goes away in the wrong moment leaves memory or a request behind."""
    cleaned: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as giving something back may
            cleaned.append("yes")

    async def main() -> None:
        begun = Begun(waits())
        for _ in range(turns):
            await asyncio.sleep(0)
        await begun.cancel()
        assert begun.is_done
        assert cleaned == ["yes"]
        await begun.cancel()

    run_on(loop, main)


def test_cancelling_hears_an_error(loop: str) -> None:
    """Otherwise the loop logs an error that nobody waits for any more."""

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the end")

    async def main() -> None:
        begun = Begun(fails())
        await begun.cancel()
        assert begun.is_done

    run_on(loop, main)
