"""Which polls a change wakes."""

from __future__ import annotations

import asyncio

from tests.support.loops import run_on
from tests.support.manual_timers import ManualTimers
from tests.support.waiting import LIMIT_SECONDS
from tierlog.broker.partition_watches import PartitionWatches
from tierlog.remote.api import TopicIdPartition, Uuid

ID = Uuid(bytes(range(16)))
ORDERS = TopicIdPartition(ID, "orders", 1)


def test_a_change_rings_the_watches_of_its_partition() -> None:
    """A consumer would sleep on beside new records, by whichever name it asks, or wake for those of others."""

    async def main() -> None:
        watches = PartitionWatches(ManualTimers())
        by_name, by_id, both = (
            watches.add(keys) for keys in ([("orders", 1)], [(ID.raw, 1)], [("orders", 0), ("orders", 1)])
        )
        other, closed = watches.add([("orders", 0), ("payments", 1)]), watches.add([("orders", 1)])
        closed.close()
        closed.close()
        watches.ring([ORDERS])
        assert [each.has_rung for each in (by_name, by_id, both, other, closed)] == [True, True, True, False, False]
        by_name.reset()
        watches.ring_all()
        assert by_name.has_rung
        assert other.has_rung
        for each in (by_name, by_id, both, other):
            each.close()
        assert not len(watches)
        assert not watches._by_partition

    run_on("asyncio", main)


def test_waits_end_with_a_change_in_time_and_with_the_server() -> None:
    """A poll would wait on beside a change, or hold up the end of the server."""

    async def main() -> None:
        timers = ManualTimers()
        watches = PartitionWatches(timers)
        watch = watches.add([("orders", 1)])
        waiting = asyncio.ensure_future(watch.wait(1.0))
        await timers.advance(0.9)
        assert not waiting.done()
        await timers.advance(0.2)
        assert not await waiting
        waiting = asyncio.ensure_future(watch.wait(1.0))
        await timers.advance(0.1)
        watches.ring([ORDERS])
        assert await asyncio.wait_for(waiting, LIMIT_SECONDS)
        assert await watch.wait(1.0), "a change between two waits is not missed"
        assert not await watch.wait(0.0), "the time is over"
        watch.reset()
        waiting = asyncio.ensure_future(watch.wait(1.0))
        await asyncio.sleep(0)
        watches.end()
        assert not await asyncio.wait_for(waiting, LIMIT_SECONDS)
        assert not await watch.wait(1.0)

    run_on("asyncio", main)
