"""Fetch over topics in memory, on a clock that stands still."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.support.fetch_client import Ask, FetchRig, on_loop
from tests.support.manual_timers import settle
from tierlog.broker.fetching.fetch_handler import FetchLimits
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.errors import CorruptDataError, StoreError

VERSIONS: Final = range(4, 19)
#: Names; log start offsets; sessions; leader epochs; compact lengths; topic ids; replica states; addresses of leaders.
SOME_VERSIONS: Final = (4, 7, 11, 12, 13, 18)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_as_they_lie_in_the_log(version: int) -> None:
    """Otherwise a client of that version reads nothing, or something else."""

    async def test(rig: FetchRig) -> None:
        first, second = rig.catalog.add("orders", 2)
        batches = [first.append(100, records=10) for _ in range(3)]
        second.append(50)
        other = rig.catalog.add("payments")[0].append(70)
        answer = await rig.fetch(
            version, [Ask("orders", 0, 12), Ask("orders", 1, 1), Ask("payments", 0, 0)], max_wait_ms=500
        )
        assert answer.records == {("orders", 0): batches[1].data + batches[2].data, ("payments", 0): other.data}
        assert [(told.topic, told.partition, told.error) for told in answer.partitions] == [
            ("orders", 0, "none"),
            ("orders", 1, "none"),
            ("payments", 0, "none"),
        ]
        assert [told.high_watermark for told in answer.partitions] == [30, 1, 1]
        assert all(told.aborted is None for told in answer.partitions)

    on_loop(test)


def test_an_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A client that fetches a damaged partition without a pause, as some do, would fill the log."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(100)
        for text in ("one", "one", "another"):
            partition.error = CorruptDataError(f"{text} fault of a log")
            for _ in range(3):
                assert (await rig.fetch(12, [Ask("orders", 0, 0)])).errors == {("orders", 0): "corrupt_message"}

    on_loop(test)
    told = [record.message for record in caplog.records]
    assert told == [f"orders-0: CorruptDataError: {text} fault of a log" for text in ("one", "another")]


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_read_committed_ends_at_the_last_stable_offset(version: int) -> None:
    """Otherwise consumers see records of transactions that are open or were aborted."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        batches = [partition.append(100, records=10) for _ in range(3)]
        partition.last_stable_offset = 20
        partition.aborted = [(7, 3)]
        answer = await rig.fetch(version, [Ask("orders", 0, 0)], isolation_level=1)
        assert answer.records["orders", 0] == batches[0].data + batches[1].data
        assert answer.partitions[0].aborted == [(7, 3)]
        assert (answer.partitions[0].high_watermark, answer.partitions[0].last_stable_offset) == (30, 20)
        for offset in (20, 25, 30):
            answer = await rig.fetch(version, [Ask("orders", 0, offset)], isolation_level=1)
            assert answer.partitions[0].records == b""
            assert answer.partitions[0].error == "none"
            assert answer.partitions[0].aborted == []

    on_loop(test)


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_errors_are_of_their_partition_alone(version: int) -> None:
    """Otherwise one bad partition keeps a consumer from all the others."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 6)
        for partition in partitions:
            partition.append(10)
        partitions[1].error = StoreError("the store is away")
        partitions[2].error = CorruptDataError("bytes are wrong")
        partitions[3].error = ApiError(ErrorCode.offset_out_of_range)
        partitions[4].error = RuntimeError("a bug")
        asks = [Ask("orders", number, 0) for number in range(6)] + [Ask("orders", 9, 0), Ask("nobody", 0, 0)]
        answer = await rig.fetch(version, [*asks, Ask("orders", 5, 2)], max_wait_ms=60_000)
        assert answer.errors == {
            ("orders", 1): "not_leader_or_follower" if version < 6 else "kafka_storage_error",
            ("orders", 2): "corrupt_message",
            ("orders", 3): "offset_out_of_range",
            ("orders", 4): "unknown_server_error",
            ("orders", 5): "offset_out_of_range",
            ("orders", 9): "unknown_topic_or_partition",
            ("nobody", 0): "unknown_topic_or_partition" if version < 13 else "unknown_topic_id",
        }
        assert list(answer.records) == [("orders", 0)]
        failed = answer.partitions[1]
        assert (failed.high_watermark, failed.last_stable_offset, failed.log_start_offset) == (-1, -1, -1)

    on_loop(test)


@pytest.mark.parametrize("version", [9, 12, 15, 16, 18])
def test_leader_epochs_are_checked(version: int) -> None:
    """Otherwise a consumer with old metadata reads a log that it takes for another one."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(10, leader_epoch=5)
        for epoch, error in ((4, "fenced_leader_epoch"), (5, "none"), (6, "unknown_leader_epoch"), (-1, "none")):
            answer = await rig.fetch(version, [Ask("orders", 0, 0, current_leader_epoch=epoch)], max_wait_ms=500)
            assert answer.partitions[0].error == error
            is_told = version >= 16 and error == "fenced_leader_epoch"
            assert answer.partitions[0].current_leader == ((3, 5) if is_told else None)
            assert answer.node_endpoints == ([(3, "replica.example", 9092)] if is_told else [])
        answer = await rig.fetch(version, [Ask("orders", 0, 99, current_leader_epoch=4)])
        assert answer.partitions[0].error == "fenced_leader_epoch", "the epoch comes before the offset"

    on_loop(test)


@pytest.mark.parametrize("version", [12, 13, 18])
def test_another_history_is_told_at_once(version: int) -> None:
    """Otherwise a client that read what was lost in a failover goes on behind records that it never saw."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(10, records=10, leader_epoch=3)
        partition.append(10, records=10, leader_epoch=5)
        asked = {"max_wait_ms": 60_000, "min_bytes": 10_000}
        for offset, epoch, diverging in ((15, 4, (3, 10)), (15, 3, (3, 10))):
            answer = await rig.fetch(version, [Ask("orders", 0, offset, last_fetched_epoch=epoch)], **asked)
            assert answer.partitions[0].diverging_epoch == diverging
            assert answer.partitions[0].records == b""
            assert answer.partitions[0].error == "none"
        answer = await rig.fetch(version, [Ask("orders", 0, 15, last_fetched_epoch=5)])
        assert len(answer.partitions[0].records) == 10
        answer = await rig.fetch(version, [Ask("orders", 0, 15, last_fetched_epoch=2)], **asked)
        assert answer.partitions[0].error == "offset_out_of_range"
        partition.log_start_offset = 16
        answer = await rig.fetch(version, [Ask("orders", 0, 15, last_fetched_epoch=3)], **asked)
        assert answer.partitions[0].error == "offset_out_of_range"

    on_loop(test)


def test_limits_are_kafkas() -> None:
    """Otherwise a client gets more than it has room for, or never gets past a large batch."""

    async def test(rig: FetchRig) -> None:
        first, second, third = rig.catalog.add("orders", 3)
        for partition in (first, second, third):
            for _ in range(4):
                partition.append(100)

        async def sizes(*max_bytes: int, most: int) -> list[int]:
            asks = [Ask("orders", number, 0, max_bytes=size) for number, size in enumerate(max_bytes)]
            answer = await rig.fetch(12, asks, max_bytes=most)
            return [len(told.records) for told in answer.partitions]

        assert await sizes(1000, 1000, 1000, most=10_000) == [400, 400, 400]
        assert await sizes(250, 1000, 100, most=10_000) == [250, 400, 100], "a last batch may be cut"
        assert await sizes(10, 1000, 10, most=10_000) == [100, 400, 0], "the first batch of all is whole"
        assert await sizes(1000, 1000, 1000, most=550) == [400, 150, 0]
        assert await sizes(1000, 1000, 1000, most=450) == [400, 0, 0], "only the first batch of all is whole"
        assert await sizes(1000, 1000, 1000, most=0) == [100, 0, 0]
        assert await sizes(0, 0, 0, most=0) == [100, 0, 0]
        first.batches.clear()
        assert await sizes(10, 10, 10, most=10) == [0, 100, 0], "of the first partition that has records"
        first.append(50)
        first.error = StoreError("away")
        assert await sizes(10, 10, 10, most=10) == [0, 100, 0], "one that fails gave nothing"
        answer = await rig.fetch(12, [Ask("orders", 1, 0, max_bytes=-5), Ask("orders", 2, 0)])
        assert answer.errors == {("orders", 1): "unknown_server_error"}
        assert len(answer.records["orders", 2]) == 400

    on_loop(test)


def test_the_end_of_a_segment_is_not_waited_at() -> None:
    """A client that asks for more bytes than a segment has left would wait at the end of each, for records that are
    there.
    """

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        for _ in range(5):
            partition.append(100)
        partition.segment_ends = {1, 3}
        asked = {"max_wait_ms": 60_000, "min_bytes": 1000}
        for offset, size in ((0, 200), (2, 200)):
            answer = await rig.fetch(12, [Ask("orders", 0, offset)], **asked)
            assert len(answer.partitions[0].records) == size
        asking = asyncio.ensure_future(rig.fetch(12, [Ask("orders", 0, 4)], **asked))
        await rig.timers.advance(59.0)
        assert not asking.done(), "that is all there is"
        await rig.timers.advance(1.0)
        assert len((await asking).partitions[0].records) == 100

    on_loop(test)


def test_server_limits_answers() -> None:
    """Otherwise one client's request takes all memory."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 3)
        for partition in partitions:
            for _ in range(10):
                partition.append(1000)
        answer = await rig.fetch(12, [Ask("orders", number, 0) for number in range(3)], max_bytes=2**31 - 1)
        assert [len(told.records) for told in answer.partitions] == [10_000, 2_000, 0]

    on_loop(test, FetchLimits(fetch_max_bytes=12_000))


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_waits_for_a_change_and_no_longer_than_told(version: int) -> None:
    """Otherwise consumers at the end ask in circles, or learn of new records too late."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(10)
        asking = asyncio.ensure_future(rig.fetch(version, [Ask("orders", 0, 1)], max_wait_ms=500))
        await rig.timers.advance(0.499)
        assert not asking.done()
        rig.catalog.change()
        await settle()
        assert not asking.done(), "what has changed is something else"
        await rig.timers.advance(0.001)
        answer = await asking
        assert [(told.high_watermark, told.records) for told in answer.partitions] == [(1, b"")]
        asking = asyncio.ensure_future(rig.fetch(version, [Ask("orders", 0, 1)], max_wait_ms=500))
        await settle()
        batch = partition.append(20)
        rig.catalog.change()
        await settle()
        assert (await asking).records == {("orders", 0): batch.data}
        assert partition.reads_count == 1

    on_loop(test)


def test_a_change_wakes_the_polls_of_its_partition_alone() -> None:
    """Otherwise each record of one partition makes every poll of the server look at all that it asks for."""

    async def test(rig: FetchRig) -> None:
        orders, payments = rig.catalog.add("orders")[0], rig.catalog.add("payments")[0]
        for partition in (orders, payments):
            partition.append(10)
        asks = [Ask("orders", 0, 1)], [Ask("payments", 0, 1)]
        first, second = (asyncio.ensure_future(rig.fetch(13, each, max_wait_ms=500)) for each in asks)
        await settle()
        lookups = rig.catalog.lookups_count
        batch = orders.append(20)
        rig.catalog.change_partition("orders")
        await settle()
        assert (await first).records == {("orders", 0): batch.data}
        assert rig.catalog.lookups_count == lookups + 1
        assert not second.done()
        await rig.timers.advance(0.5)
        assert not (await second).records
        assert rig.catalog.watches_count == 0

    on_loop(test)


def test_waits_for_enough_bytes_and_reads_nothing_meanwhile() -> None:
    """Otherwise ``fetch.min.bytes`` does nothing, or costs reads without end."""

    async def test(rig: FetchRig) -> None:
        first, second = rig.catalog.add("orders", 2)
        first.append(300)
        asks = [Ask("orders", 0, 0), Ask("orders", 1, 0)]
        asking = asyncio.ensure_future(rig.fetch(12, asks, max_wait_ms=500, min_bytes=1000))
        await rig.timers.advance(0.4)
        assert not asking.done()
        assert first.reads_count == 1
        assert rig.handler.memory.held_bytes == 300
        second.append(700)
        rig.catalog.change()
        await settle()
        assert sorted(map(len, (await asking).records.values())) == [300, 700]
        asking = asyncio.ensure_future(rig.fetch(12, asks, max_wait_ms=500, min_bytes=2000))
        await rig.timers.advance(0.5)
        assert sorted(map(len, (await asking).records.values())) == [300, 700], "what there is when the time is over"
        answer = await rig.fetch(12, [Ask("orders", 0, 0, max_bytes=300)], max_wait_ms=500, min_bytes=301)
        assert len(answer.records["orders", 0]) == 300, "waiting brings nothing past a limit"
        answer = await rig.fetch(12, asks, max_wait_ms=500, min_bytes=2**31 - 1, max_bytes=1000)
        assert len(answer.records) == 2, "min_bytes is at most max_bytes"

    on_loop(test)


def test_unknown_partitions_alone_do_not_wait() -> None:
    """Otherwise a client learns of a deleted topic only after its longest wait."""

    async def test(rig: FetchRig) -> None:
        rig.catalog.add("orders")
        answer = await rig.fetch(12, [Ask("nobody", 0, 0)], max_wait_ms=60_000)
        assert answer.errors == {("nobody", 0): "unknown_topic_or_partition"}
        answer = await rig.fetch(12, [], max_wait_ms=60_000)
        assert answer.partitions == []
        asking = asyncio.ensure_future(rig.fetch(12, [Ask("nobody", 0, 0), Ask("orders", 0, 0)], max_wait_ms=100))
        await rig.timers.advance(0.09)
        assert not asking.done(), "beside others they wait, as in Kafka, so that nobody asks in circles"
        await rig.timers.advance(0.02)
        assert [told.topic for told in (await asking).partitions] == ["orders", "nobody"]

    on_loop(test)


def test_shares_that_were_not_used_go_to_others() -> None:
    """Otherwise answers of cold partitions stay far below what the client asked for."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 4)
        gate = asyncio.Event()
        gate.set()
        for partition in partitions:
            partition.append(100)
            partition.gate = gate
            partition.gate_waits = True
        answer = await rig.fetch(12, [Ask("orders", number, 0, max_bytes=1000) for number in range(4)], max_bytes=350)
        assert [len(told.records) for told in answer.partitions] == [100, 100, 100, 0]

    on_loop(test)


def test_first_batch_is_whole_though_the_first_partition_had_to_be_waited_for() -> None:
    """Otherwise a fetch whose first partition turns out empty brings nothing, again and again."""

    async def test(rig: FetchRig) -> None:
        first, second, third = rig.catalog.add("orders", 3)
        first.is_loaded = False
        first.gate = asyncio.Event()
        second.append(500)
        third.append(500)
        asks = [Ask("orders", number, 0, max_bytes=100) for number in range(3)]
        asking = asyncio.ensure_future(rig.fetch(12, asks, max_wait_ms=500))
        await settle()
        assert not asking.done()
        first.gate.set()
        await settle()
        assert [len(told.records) for told in (await asking).partitions] == [0, 500, 0]

    on_loop(test)


@pytest.mark.parametrize("where", ["reading", "loading", "waiting", "memory"])
def test_what_a_client_that_goes_away_held_is_given_back(where: str) -> None:
    """Otherwise each client that dies takes memory or a waiter with it, until there is none."""

    async def test(rig: FetchRig) -> None:
        first, second = rig.catalog.add("orders", 2)
        first.append(100)
        second.append(100)
        taken = None
        if where == "reading":
            second.gate = asyncio.Event()
        elif where == "loading":
            second.gate = asyncio.Event()
            second.is_loaded = False
        elif where == "memory":
            taken = await rig.handler.memory.take("h", least_bytes=1, wanted_bytes=3 << 20, seconds=0)
            assert taken is not None
        asks = [Ask("orders", number, 0) for number in range(2)]
        asking = asyncio.ensure_future(rig.fetch(12, asks, max_wait_ms=500, min_bytes=1000))
        await settle()
        assert not asking.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert rig.catalog.watches_count == 0
        assert second.waiting_count == 0
        assert second.cancelled_count == (where in ("reading", "loading"))
        if taken is not None:
            taken.release()

    on_loop(test, FetchLimits(answers_max_bytes=3 << 20))


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_are_refused(version: int) -> None:
    """Otherwise a broker replicates from a copy of the tier and believes it to be the leader."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(10)
        answer = await rig.fetch(version, [Ask("orders", 0, 0)], replica_id=1, max_wait_ms=500)
        assert answer.error == ("cluster_authorization_failed" if version >= 7 else "none")
        assert answer.errors == ({("orders", 0): "cluster_authorization_failed"} if version < 13 else {})
        answer = await rig.fetch(version, [Ask("orders", 0, 0)], replica_id=-2)
        assert len(answer.records) == 1, "a negative one is a consumer"

    on_loop(test)


def test_isolation_levels_that_nobody_knows_are_refused() -> None:
    """Otherwise a client that asks for something stricter gets records that it must not see."""

    async def test(rig: FetchRig) -> None:
        rig.catalog.add("orders")
        answer = await rig.fetch(12, [Ask("orders", 0, 0)], isolation_level=2, max_wait_ms=500)
        assert answer.error == "unknown_server_error"

    on_loop(test)


def test_an_id_of_another_topic_of_the_name_is_an_error() -> None:
    """Otherwise a consumer of a topic that was made anew goes on in the new one as if it were the old one."""

    async def test(rig: FetchRig) -> None:
        (partition,) = rig.catalog.add("orders")
        partition.append(10)
        answer = await rig.fetch(13, [Ask("orders", 0, 1)], session_epoch=0)
        session = {"session_id": answer.session_id}
        (partition,) = rig.catalog.add("orders", generation=1)
        answer = await rig.fetch(13, session_epoch=1, **session, max_wait_ms=500)
        assert answer.errors == {("orders", 0): "inconsistent_topic_id"}
        rig.catalog.remove("orders")
        answer = await rig.fetch(13, session_epoch=2, **session, max_wait_ms=500)
        assert answer.errors == {("orders", 0): "unknown_topic_or_partition"}
        answer = await rig.fetch(13, [Ask("orders", 0, 0)], topic_ids={"orders": uuid.UUID(int=0)})
        assert [told.error for told in answer.partitions] == ["unknown_topic_id"]

    on_loop(test)


def test_empty_polls_of_a_session_look_at_nothing() -> None:
    """Otherwise a thousand idle consumers of many partitions take the whole processor."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 200)
        for partition in partitions:
            partition.append(10)
        answer = await rig.fetch(12, [Ask("orders", number, 1) for number in range(200)], session_epoch=0)
        assert len(answer.partitions) == 200
        session = {"session_id": answer.session_id, "max_wait_ms": 500}
        for epoch in range(1, 4):
            before = rig.catalog.lookups_count
            asking = asyncio.ensure_future(rig.fetch(12, session_epoch=epoch, **session))
            await rig.timers.advance(0.5)
            answer = await asking
            assert (answer.error, answer.session_id, answer.partitions) == ("none", session["session_id"], [])
            assert rig.catalog.lookups_count - before == (200 if epoch == 1 else 0)
        asking = asyncio.ensure_future(rig.fetch(12, session_epoch=4, **session))
        await settle()
        batch = partitions[150].append(30)
        rig.catalog.change()
        await settle()
        answer = await asking
        assert [(told.partition, told.records) for told in answer.partitions] == [(150, batch.data)]

    on_loop(test)


@pytest.mark.parametrize(
    ("count", "filled", "size_bytes", "least_turns"),
    [(3000, 1000, 10, 1000 // 50 + 3000 // 500 - 2), (12, 12, 4 << 20, 12 // 2 - 2)],
    ids=["many", "large"],
)
def test_many_partitions_leave_turns_to_others(count: int, filled: int, size_bytes: int, least_turns: int) -> None:
    """Otherwise one request for ten thousand partitions, or for a lot of bytes, holds up every other client."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", count)
        for partition in partitions[:filled]:
            partition.append(size_bytes)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        request = rig.request(12, [Ask("orders", number, 0, max_bytes=8 << 20) for number in range(count)])
        body = await rig.ask(12, request)
        assert turns >= least_turns
        assert len(rig.read(12, body).records) == filled
        body.release()
        beside.cancel()

    on_loop(test)


numbers = st.sampled_from([-(2**31), -2, -1, 0, 1, 5, 2**31 - 1])
offsets = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**63 - 1])


@settings(max_examples=60)
@given(data=st.data())
def test_any_numbers_get_an_answer(data: st.DataObject) -> None:
    """Otherwise a broken client ends its connection with an error of ours, or holds memory for ever."""

    async def test(rig: FetchRig) -> None:
        for partition in rig.catalog.add("orders", 2):
            for epoch in (1, 3):
                partition.append(10, records=2, leader_epoch=epoch)
        version = data.draw(st.sampled_from(VERSIONS))
        session_id = 0
        for _ in range(3):
            asks = data.draw(
                st.lists(
                    st.builds(
                        Ask, st.sampled_from(["orders", "", "nobody"]), numbers, offsets, numbers, numbers, numbers
                    ),
                    max_size=5,
                )
            )
            asking = asyncio.ensure_future(
                rig.fetch(
                    version,
                    asks,
                    max_wait_ms=data.draw(numbers),
                    min_bytes=data.draw(numbers),
                    max_bytes=data.draw(numbers),
                    isolation_level=data.draw(st.sampled_from([-1, 0, 1, 2, 127])),
                    session_id=data.draw(st.sampled_from([session_id, -(2**31), 2**31 - 1])),
                    session_epoch=data.draw(numbers),
                    forgotten=data.draw(
                        st.lists(st.tuples(st.sampled_from(["orders", "nobody"]), numbers), max_size=2)
                    ),
                    replica_id=data.draw(st.sampled_from([-1, -1, -3, 7])),
                )
            )
            await rig.timers.advance(301.0)
            session_id = (await asking).session_id

    on_loop(test)
