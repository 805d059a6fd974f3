"""Fetches from the tier: real logs, a metadata topic, a store in memory, and the manager, from a seed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.support.tiered_log import MIB, NONE, tiered_broker, values
from tierlog.errors import CorruptDataError
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.manager.pending_reads import RemoteRead
from tierlog.runtime.machine.scheduling import CancelledError


class TestAnswers:
    def test_a_fetch_is_what_was_copied(self) -> None:
        """If this fails, consumers get other records than producers wrote once they are in the tier alone."""
        with tiered_broker() as tier:
            partition, got = tier.consumed(), []
            while len(got) < 30:
                found = tier.one(partition, len(got), of_partition=400)
                assert (found.error, found.high_watermark, found.log_start_offset) == (None, 31, 0)
                got += values(found, len(got))[: found.data.last_offset + 1 - len(got)]
            assert got == list(range(30))
            assert tier.settles()

    @pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED])
    def test_nothing_lies_behind_the_end_that_is_answered(self, isolation: FetchIsolation) -> None:
        """If this fails, a consumer sees a negative lag: a follower catches up as it reads (simulation, seed 10372)."""
        with tiered_broker(reader_threads=1) as tier:
            busy, grows = tier.consumed(0), tier.consumed(1)
            log = tier.logs[grows]
            tier.store.hook = lambda: 5.0
            tier.ask(RemoteRead(busy, 0, MIB), max_wait_ms=60_000)
            pending = tier.ask(RemoteRead(grows, 25, MIB, isolation), max_wait_ms=60_000)
            tier.produce(grows, 2)
            tier.until(lambda: log.highest_offset_in_remote_storage > 40)
            tier.drop_local(log)
            tier.store.hook = lambda: 0.0
            (found,) = pending.result()
            end = found.high_watermark if isolation is FetchIsolation.HIGH_WATERMARK else found.last_stable_offset
            assert (end, found.data.last_offset) == (31, 30)

    def test_segments_are_crossed_within_one_answer(self) -> None:
        """If this fails, a consumer of small segments waits for a round trip each."""
        with tiered_broker() as tier:
            found = tier.one(tier.consumed(), 5)
            assert values(found, 5) == list(range(5, 30))
            assert found.data.last_offset == 29
            assert [start for start, _ in tier.store.fetched] == [0, 10, 20]

    def test_an_answer_that_is_full_takes_no_other_segment(self) -> None:
        """If this fails, an answer that ends with its segment asks the store for the next one, for nothing."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            segment = tier.metadata.remote_log_segment_metadata(partition, 0, 0)
            assert segment is not None
            size = segment.segment_size_in_bytes
            tier.store.fetched.clear()
            assert tier.one(partition, 0, of_partition=size).data.size_bytes == size
            assert {start for start, _ in tier.store.fetched} == {0}

    def test_kafka_reads_one_segment(self) -> None:
        """If this fails, the compatible mode differs from Kafka in what one fetch returns."""
        with tiered_broker(kafka_semantics=True) as tier:
            assert values(tier.one(tier.consumed(), 5), 5) == list(range(5, 10))

    def test_the_storage_manager_knows_what_follows(self) -> None:
        """If this fails, prefetch ends at each segment's border."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            reads = tier.manager._reads._reads
            at, starts = tier.metadata.remote_log_segment_metadata(partition, 0, 0), [0]
            while at is not None and (at := reads.find_next(at)) is not None:
                starts.append(at.start_offset)
            assert starts == [0, 10, 20]

    def test_several_partitions_are_read_side_by_side(self) -> None:
        """If this fails, a fetch of ten partitions takes ten times as long as one."""
        with tiered_broker() as tier:
            partitions = [tier.consumed(number) for number in range(5)]
            tier.store.hook = lambda: 0.2
            began = tier.now
            found = tier.fetch(*(RemoteRead(each, 25, MIB) for each in partitions))
            assert [values(each, 25) for each in found] == [list(range(25, 30))] * 5
            assert tier.now - began < 0.45

    def test_nothing_is_waited_for_where_nothing_is_read(self) -> None:
        """If this fails, a fetch without a remote partition waits for its deadline."""
        with tiered_broker() as tier:
            pending = tier.ask()
            assert pending.done()
            assert list(pending.result()) == []


class TestBytes:
    def test_only_the_first_partition_gets_a_batch_beyond_its_bytes(self) -> None:
        """If this fails, an answer exceeds the client's limit by a batch for each partition; or the first one stops for
        ever at a batch that is larger than its limit.
        """
        with tiered_broker() as tier:
            first, second = tier.consumed(0), tier.consumed(1)
            found = tier.fetch(RemoteRead(first, 0, 10), RemoteRead(second, 0, 10))
            assert [values(each) if each.data.size_bytes else [] for each in found] == [[0], []]
            assert found[1].data.first_entry_incomplete
            (found_small,) = tier.fetch(RemoteRead(first, 0, 10), min_one_message=False)
            assert (found_small.data.size_bytes, found_small.error) == (0, None)

    def test_each_read_is_taken_to_use_all_that_it_may(self) -> None:
        """If this fails, an answer is larger than ``fetch.max.bytes``."""
        with tiered_broker() as tier:
            partitions = [tier.consumed(number) for number in range(3)]
            found = tier.fetch(*(RemoteRead(each, 0, 600) for each in partitions), max_bytes=1000)
            assert [each.data.size_bytes for each in found] == [600, 400, 0]
            assert sorted(start for start, _ in tier.store.fetched) == [0, 0]


class TestDeadlines:
    def test_at_the_deadline_the_answer_is_empty_without_an_error(self) -> None:
        """If this fails, a slow store becomes an error of consumers, or holds their requests for ever (the planted
        fault: a pending read that is not released).
        """
        with tiered_broker() as tier:
            slow, fast = tier.consumed(0), tier.consumed(1)
            tier.fetch(RemoteRead(fast, 29, MIB))
            hangs = [3600.0]
            tier.store.hook, began = lambda: hangs.pop() if hangs else None, tier.now
            pending = tier.ask(RemoteRead(slow, 0, MIB))
            tier.machine.clock.sleep(0.1)
            both = tier.ask(RemoteRead(fast, 29, MIB), max_wait_ms=300)
            assert [values(each, 29) for each in both.result()] == [[29]]
            (found,) = pending.result()
            assert tier.now - began == pytest.approx(0.5, abs=0.05)
            assert (found.error, found.data.size_bytes, found.high_watermark) == (None, 0, 31)
            assert tier.value("fetch_expired") == 1
            assert (tier.store.open_streams, len(tier.manager._reads)) == (0, 0), "its stream is closed at once"

    def test_kafka_leaves_reads_that_have_begun(self) -> None:
        """If this fails, the compatible mode cancels what Kafka lets go on."""
        with tiered_broker(kafka_semantics=True) as tier:
            partition = tier.consumed()
            tier.hang(2.0)
            assert tier.one(partition, 0).data.size_bytes == 0
            assert tier.store.open_streams == 1
            tier.until(tier.is_idle)

    def test_what_is_there_is_answered(self) -> None:
        """If this fails, a segment that hangs hides the records in front of it."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.store.hook = lambda: 3600 if len(tier.store.fetched) > 1 else 0
            assert values(tier.one(partition, 5), 5) == list(range(5, 10))

    @pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED])
    def test_what_the_first_segments_gave_is_answered(self, isolation: FetchIsolation) -> None:
        """If this fails, a slow store is read for all of each fetch's wait, and a consumer of small segments gets one
        of them for it (simulation, seed 175557).
        """
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.fetch(RemoteRead(partition, 29, MIB))
            tier.store.hook, began = lambda: 0.2, tier.now
            (found,) = tier.fetch(RemoteRead(partition, 5, MIB, isolation))
            assert (values(found, 5), tier.value("fetch_expired")) == (list(range(5, 20)), 0)
            assert tier.now - began == pytest.approx(0.4, abs=0.05)

    def test_a_read_that_fails_is_tried_again(self) -> None:
        """If this fails, a store that is away for a moment is an error of every consumer."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.store.unavailable = True
            pending = tier.ask(RemoteRead(partition, 25, MIB), max_wait_ms=10_000)
            tier.machine.clock.sleep(3.0)
            assert not pending.done()
            tier.store.unavailable = False
            (found,) = pending.result()
            assert values(found, 25) == list(range(25, 30))
            assert tier.value("fetch_errors") >= 3

    def test_a_store_that_stays_away_gives_an_empty_answer(self) -> None:
        """If this fails, consumers see an error, or wait beyond their deadline, for as long as the store is away."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.store.unavailable = True
            began = tier.now
            found = tier.one(partition, 0)
            assert (found.error, found.data.size_bytes) == (None, 0)
            assert isinstance(found.cause, RetriableRemoteStorageException)
            assert tier.now - began == pytest.approx(0.5, abs=0.05)
            assert tier.settles()

    def test_kafka_answers_the_first_failure(self) -> None:
        """If this fails, the compatible mode waits where Kafka answers."""
        with tiered_broker(kafka_semantics=True) as tier:
            partition = tier.consumed()
            tier.store.unavailable, began = True, tier.now
            assert tier.one(partition, 0).error is KafkaError.UNKNOWN_SERVER_ERROR
            assert tier.now - began < 0.1


class TestEnds:
    def test_a_client_that_goes_gives_everything_back(self) -> None:
        """If this fails, clients that reconnect use up the reader threads and their queue."""
        with tiered_broker(reader_threads=2, reader_max_pending_tasks=3) as tier:
            partition = tier.consumed()
            tier.hang()
            pending = [tier.ask(RemoteRead(partition, 0, MIB), max_wait_ms=60_000) for _ in range(5)]
            tier.machine.clock.sleep(0.1)
            pool = tier.manager._reads.pool
            assert (pool.running, pool.waiting, len(tier.manager._reads)) == (2, 3, 5)
            assert tier.value("waiting_requests", operation="RemoteFetch") == 5
            assert all(each.cancel() for each in pending)
            assert (pool.waiting, len(tier.manager._reads)) == (0, 0)
            assert tier.settles()
            with pytest.raises(CancelledError):
                pending[0].result()
            assert all(each.cancelled() and each.done() for each in pending)

    def test_a_term_that_ends_answers_at_once(self) -> None:
        """If this fails, clients of a moved partition wait for their deadline before they look for its leader."""
        with tiered_broker() as tier:
            moved, stays = tier.consumed(0), tier.consumed(1)
            tier.hang()
            pending = tier.ask(RemoteRead(stays, 0, MIB), RemoteRead(moved, 0, MIB), max_wait_ms=60_000)
            tier.machine.clock.sleep(0.1)
            began = tier.now
            tier.manager.on_leadership_change(NONE, {moved})
            found = pending.result()
            assert tier.now - began < 0.1
            assert [each.error for each in found] == [None, KafkaError.NOT_LEADER_OR_FOLLOWER]
            assert (tier.store.open_streams, len(tier.manager._reads)) == (0, 0)

    def test_a_follower_reads_too(self) -> None:
        """If this fails, consumers that fetch from the nearest replica cannot read history."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.manager.on_leadership_change(NONE, {partition})
            assert values(tier.one(partition, 25), 25) == list(range(25, 30))

    def test_a_partition_of_others(self) -> None:
        """If this fails, a client of a partition that is not here is given another answer than "look elsewhere"."""
        with tiered_broker() as tier:
            other = TopicIdPartition(tier.consumed().topic_id, "orders", 99)
            assert tier.one(other, 0).error is KafkaError.NOT_LEADER_OR_FOLLOWER

    def test_a_close_ends_all(self) -> None:
        """If this fails, a broker that stops leaves threads and streams."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.hang(5.0)
            pending = tier.ask(RemoteRead(partition, 0, MIB), max_wait_ms=60_000)
            tier.machine.clock.sleep(0.1)
            tier.manager.close()
            assert [each.error for each in pending.result()] == [KafkaError.NOT_LEADER_OR_FOLLOWER]
            assert tier.store.open_streams == 0
            with pytest.raises(RemoteStorageException):
                tier.ask(RemoteRead(partition, 0, MIB))

    def test_a_manager_that_hears_nothing_takes_its_threads_alone(self) -> None:
        """If this fails, a storage manager that hangs holds consumers' requests, or the broker's close."""
        with tiered_broker(reader_threads=2, reader_max_pending_tasks=2) as tier:
            partition = tier.consumed()
            late: list[float] = []

            def deaf() -> None:
                tier.machine.clock.sleep(30)
                late.append(tier.now)

            tier.store.hook = deaf
            pending = [tier.ask(RemoteRead(partition, 25, MIB)) for _ in range(5)]
            found = [each.result()[0] for each in pending]
            assert [each.error for each in found] == [None] * 4 + [KafkaError.UNKNOWN_SERVER_ERROR]
            assert (tier.value("reader_idle_ratio"), tier.value("fetch_expired")) == (0, 4)
            assert (tier.store.open_streams, tier.manager._reads.pool.waiting) == (0, 0)
            tier.until(tier.is_idle)
            assert (len(late), tier.value("fetch_bytes")) == (2, 0), "what comes late is dropped"
            tier.store.hook = lambda: None
            assert values(tier.one(partition, 25), 25) == list(range(25, 30))


class TestFailures:
    def test_a_full_queue_fails_that_partition_alone(self) -> None:
        """If this fails, a burst blocks the caller, or one partition too many fails the whole fetch."""
        with tiered_broker(reader_threads=1, reader_max_pending_tasks=1) as tier:
            partitions = [tier.consumed(number) for number in range(3)]
            tier.store.hook = lambda: 0.1
            found = tier.fetch(*(RemoteRead(each, 25, MIB) for each in partitions))
            assert [each.error for each in found] == [None, None, KafkaError.UNKNOWN_SERVER_ERROR]
            assert [each.data.size_bytes > 0 for each in found] == [True, True, False]
            assert tier.settles()

    def test_threads_change_while_they_read(self) -> None:
        """If this fails, an operator restarts brokers to have more readers."""
        with tiered_broker(reader_threads=1) as tier:
            partitions = [tier.consumed(number) for number in range(4)]
            tier.store.hook = lambda: 0.2
            pending = tier.ask(RemoteRead(partitions[0], 25, MIB))
            tier.machine.clock.sleep(0.1)
            tier.manager.update_config({"remote.log.reader.threads": "2"})
            began = tier.now
            found = tier.fetch(*(RemoteRead(each, 25, MIB) for each in partitions[1:]), max_wait_ms=2000)
            assert tier.now - began == pytest.approx(0.4, abs=0.05)
            assert all(each.data.size_bytes for each in [*found, *pending.result()])

    def test_what_no_segment_has(self) -> None:
        """If this fails, a consumer waits for records that have been deleted."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            log = tier.logs[partition]
            log.maybe_increment_log_start_offset(12, "records were deleted")
            assert tier.one(partition, 3).error is KafkaError.OFFSET_OUT_OF_RANGE
            assert values(tier.one(partition, 12), 12) == list(range(12, 30))
            assert tier.value("fetch_errors") == 0

    def test_a_segment_that_was_deleted_meanwhile(self) -> None:
        """If this fails, a consumer of an expiring topic waits, or gets an error that no reset heals."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            metadata = tier.metadata
            segment = metadata.remote_log_segment_metadata(partition, 0, 0)
            assert segment is not None
            lookup, answers = metadata.remote_log_segment_metadata, [segment]

            def stale(*args: Any) -> RemoteLogSegmentMetadata | None:
                return answers.pop() if answers else None if args[2] < 10 else lookup(*args)

            metadata.remote_log_segment_metadata = stale  # type: ignore[method-assign,assignment]
            tier.store.delete_log_segment_data(segment)
            began = tier.now
            found = tier.one(partition, 3)
            assert (found.error, tier.now - began < 0.1) == (KafkaError.OFFSET_OUT_OF_RANGE, True)
            # The metadata still has it: the store has lost it.
            metadata.remote_log_segment_metadata = lookup  # type: ignore[method-assign]
            found = tier.one(partition, 3)
            assert found.error is KafkaError.UNKNOWN_SERVER_ERROR
            assert isinstance(found.cause, RemoteResourceNotFoundException)

    def test_a_segment_that_ends_in_a_gap(self) -> None:
        """If this fails, a topic that was compacted before it was tiered cannot be read over its segments' ends."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            metadata = tier.metadata
            lookup = metadata.remote_log_segment_metadata
            first = lookup(partition, 0, 0)
            assert first is not None
            gap = replace(first, end_offset=14)  # its last record is that of offset 9
            metadata.remote_log_segment_metadata = (  # type: ignore[method-assign]
                lambda *args: gap if args[2] < 15 else lookup(*args)  # type: ignore[assignment]
            )
            found = tier.one(partition, 12)
            assert (found.error, found.data.last_offset) == (None, 29)
            assert values(found, 15) == list(range(15, 30))

    def test_segments_that_are_gone_whenever_they_are_looked_for(self) -> None:
        """If this fails, one read of a metadata manager that is wrong holds a thread for ever."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            metadata, machine = tier.metadata, tier.machine
            lookup, asked = metadata.remote_log_segment_metadata, list[int]()

            def wrong(*args: Any) -> RemoteLogSegmentMetadata | None:
                found = lookup(*args)
                assert found is not None
                asked.append(args[2])
                assert len(asked) < 20
                return replace(found, remote_log_segment_id=RemoteLogSegmentId.generate_new(partition, rng=machine.rng))

            metadata.remote_log_segment_metadata = wrong  # type: ignore[method-assign]
            found = tier.one(partition, 3)
            assert found.error is KafkaError.UNKNOWN_SERVER_ERROR
            assert isinstance(found.cause, RemoteResourceNotFoundException)
            assert asked == [3] * 4

    @pytest.mark.parametrize("as_kafka", [False, True])
    @pytest.mark.parametrize(
        ("raised", "error"),
        [
            (RemoteStorageException("for good"), KafkaError.UNKNOWN_SERVER_ERROR),
            (RuntimeError("a bug of a third party's"), KafkaError.UNKNOWN_SERVER_ERROR),
            (MemoryError(), KafkaError.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_kafkas_errors(self, raised: Exception, error: KafkaError, as_kafka: bool) -> None:
        """If this fails, an error below has no answer, or costs a thread."""
        with tiered_broker(kafka_semantics=as_kafka) as tier:
            partition, other = tier.consumed(0), tier.consumed(1)
            errors = iter([raised])

            def hook() -> None:
                for each in errors:
                    raise each

            tier.store.hook = hook
            found, sound = tier.fetch(RemoteRead(partition, 25, MIB), RemoteRead(other, 25, MIB))
            assert {found.error, sound.error} == {error, None}
            assert tier.value("fetch_errors") == 1
            assert tier.settles()

    def test_wrong_bytes_are_kafkas_error(self) -> None:
        """If this fails, damage in the store looks like a fault of the broker."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            for parts in tier.store.segments.values():
                parts[None] = bytes(len(parts[None]))
            found = tier.one(partition, 0)
            assert found.error is KafkaError.CORRUPT_MESSAGE
            assert isinstance(found.cause, CorruptDataError)

    def test_a_damaged_later_segment_hides_nothing_in_front(self) -> None:
        """If this fails, consumers stop a segment too early."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            segment = tier.metadata.remote_log_segment_metadata(partition, 0, 15)
            assert segment is not None
            tier.store.segments[segment.remote_log_segment_id][None] = bytes(segment.segment_size_in_bytes)
            assert values(tier.one(partition, 5), 5) == list(range(5, 10))
            assert tier.one(partition, 10).error is KafkaError.CORRUPT_MESSAGE
            assert tier.store.segments[segment.remote_log_segment_id][IndexType.OFFSET] is not None


class TestQuota:
    def test_beyond_the_quota_the_answer_is_empty(self) -> None:
        """If this fails, remote reads starve local ones of a broker's network, whatever the operator sets."""
        with tiered_broker(fetch_max_bytes_per_second=100) as tier:
            partition = tier.consumed()
            assert tier.manager.fetch_throttle_time_ms() == 0
            assert tier.one(partition, 0).data.size_bytes > 1000
            assert tier.manager.fetch_throttle_time_ms() > 0
            found = tier.one(partition, 0)
            assert (found.error, found.data.size_bytes, found.high_watermark) == (None, 0, 31)
            assert tier.value("manager_fetch_throttle_seconds".removeprefix("manager_")) == 1
            assert tier.value("fetch_quota_bytes_per_second") > 100
            tier.manager.update_config({"remote.log.manager.fetch.max.bytes.per.second": str(MIB)})
            assert tier.one(partition, 0).data.size_bytes > 1000

    def test_a_failure_uses_nothing_up(self) -> None:
        """If this fails, a store that fails throttles those that it would serve again."""
        with tiered_broker(fetch_max_bytes_per_second=100) as tier:
            partition = tier.consumed()
            tier.store.unavailable = True
            assert tier.one(partition, 0).cause is not None
            assert tier.manager.fetch_throttle_time_ms() == 0


class TestMetrics:
    def test_what_is_read_is_counted(self) -> None:
        """If this fails, an operator does not see what the tier costs."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            size = tier.one(partition, 0).data.size_bytes
            for labels in ({}, {"topic": "orders"}):
                assert tier.value("fetch_bytes", **labels) == size
                assert tier.value("fetch_requests", **labels) == 1
                assert tier.value("fetch_errors", **labels) == 0 if not labels else True
            assert tier.value("reader_fetch_seconds") == 1
            assert tier.value("reader_idle_ratio") == 1
            assert tier.value("reader_queue_tasks") == 0


class TestReadiness:
    def test_metadata_that_is_loaded_is_waited_for(self) -> None:
        """If this fails, consumers get errors for the minutes after a broker's start, or are not served in their order,
        and a simulation's seed gives another run each time (seed 100322).
        """
        with tiered_broker() as tier:
            partition = tier.consumed()
            metadata, pool = tier.metadata, tier.manager._reads.pool
            pool.resize(1)
            submit, began = pool.submit, list[int]()
            pool.submit = lambda read: (began.append(read.request.max_bytes), submit(read))[1]  # type: ignore[method-assign]
            ready = tier.machine.scheduler.future()
            is_ready, when_ready = metadata.is_ready, metadata.when_ready
            metadata.is_ready = lambda _: False  # type: ignore[method-assign,assignment]
            metadata.when_ready = lambda _: ready  # type: ignore[method-assign,assignment,return-value]
            late = tier.ask(RemoteRead(partition, 25, MIB), max_wait_ms=200)
            pending = [tier.ask(RemoteRead(partition, 25, MIB + each), max_wait_ms=5000) for each in range(20)]
            assert [each.error for each in late.result()] == [None]
            assert pool.running == 0
            began.clear()
            metadata.is_ready, metadata.when_ready = is_ready, when_ready  # type: ignore[method-assign]
            ready.set_result(None)
            assert all(values(each.result()[0], 25) == list(range(25, 30)) for each in pending)
            assert began == [MIB + each for each in range(20)]
            assert tier.settles()

    def test_a_wait_for_metadata_that_is_given_up(self) -> None:
        """If this fails, a third party's future that ends without a result leaves fetches to their deadline."""
        with tiered_broker() as tier:
            partition, ready = tier.consumed(), Future[None]()
            tier.metadata.is_ready = lambda _: False  # type: ignore[method-assign,assignment]
            tier.metadata.when_ready = lambda _: ready  # type: ignore[method-assign,assignment,return-value]
            pending = tier.ask(RemoteRead(partition, 25, MIB))
            tier.machine.clock.sleep(0.1)
            ready.cancel()
            ready.set_running_or_notify_cancel()
            began = tier.now
            assert [each.error for each in pending.result()] == [KafkaError.UNKNOWN_SERVER_ERROR]
            assert tier.now == began

    def test_a_metadata_manager_that_hangs(self) -> None:
        """If this fails, a third party's metadata manager stops a broker's request threads."""
        with tiered_broker() as tier:
            partition = tier.consumed()
            tier.metadata.is_ready = lambda _: tier.machine.clock.sleep(30) or True  # type: ignore[method-assign,assignment]
            began = tier.now
            pending = tier.ask(RemoteRead(partition, 25, MIB))
            assert tier.now == began, "the caller does not wait"
            assert [each.error for each in pending.result()] == [None]
            assert tier.now - began == pytest.approx(0.5, abs=0.05)
            tier.until(tier.is_idle)

    def test_a_manager_that_cannot_say(self) -> None:
        """If this fails, a third party's metadata manager that is not ready is an error of every consumer."""
        from tierlog.remote.api import RemoteStorageNotReadyException

        with tiered_broker() as tier:
            partition = tier.consumed()
            metadata = tier.metadata
            lookup, until = metadata.remote_log_segment_metadata, tier.now + 1.0

            def not_ready(*args: Any) -> RemoteLogSegmentMetadata | None:
                if tier.now < until:
                    raise RemoteStorageNotReadyException("still loaded")
                return lookup(*args)

            metadata.is_ready = lambda _: False  # type: ignore[method-assign,assignment]
            metadata.when_ready = lambda _: None  # type: ignore[method-assign,assignment,return-value]
            metadata.remote_log_segment_metadata = not_ready  # type: ignore[method-assign,assignment]
            assert values(tier.one(partition, 25, max_wait_ms=5000), 25) == list(range(25, 30))

    def test_a_partition_that_the_metadata_manager_does_not_know(self) -> None:
        """If this fails, clients stay at a broker that is no replica any more."""
        with tiered_broker() as tier:
            partition = tier.consumed()

            def unknown(*_: Any) -> None:
                raise RemoteResourceNotFoundException("neither led nor followed")

            tier.metadata.remote_log_segment_metadata = unknown  # type: ignore[method-assign,assignment]
            assert tier.one(partition, 0).error is KafkaError.NOT_LEADER_OR_FOLLOWER
