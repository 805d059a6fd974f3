"""UnifiedLog: offsets, listeners, syncs, the end. Random runs are in test_log_machine, crashes in the scenarios."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.support.living_logs import FOLDER, NOW_MS, batch_of, machine_of
from tests.support.message_set_builder import MessageSetBuilder
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import (
    AppendRefusedError,
    InconsistentTopicIdError,
    KafkaError,
    LogClosedError,
    LogOfflineError,
    OffsetOutOfRangeError,
)
from tierlog.log.local.log_reads import MAX_TIMESTAMP, FetchIsolation, LogOffsets
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import scan
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

END, HW, COMMITTED = FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED


class Later:
    """BackgroundTasks that a test runs by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[], None]]] = []

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        self.waiting.append((delay_ms, function))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, function in waiting:
            function()


@pytest.fixture
def machine() -> Machine:
    return machine_of()


def read_offsets(log: UnifiedLog, start: int, isolation: FetchIsolation, max_bytes: int = 1 << 20) -> list[int]:
    """Base offsets of the whole batches that one read gives."""
    found = log.read(start, max_bytes=max_bytes, isolation=isolation)
    return [] if not found.records else scan(found.records[0].read()).base_offset.tolist()


def test_an_append_is_read_back_as_far_as_the_high_watermark(machine: Machine) -> None:
    """A consumer would see records that a failover takes back, or a follower would get none."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        first = log.append_as_leader(batch_of(b"a", b"b"), leader_epoch=3)
        second = log.append_as_leader(batch_of(b"c"), leader_epoch=3)
        assert (first.first_offset, first.last_offset, second.first_offset) == (0, 1, 2)
        assert read_offsets(log, 0, END) == [0, 2]
        assert read_offsets(log, 1, END) == [0, 2]
        assert read_offsets(log, 0, HW) == []
        assert log.update_high_watermark(2) == 2
        assert read_offsets(log, 0, HW) == [0]
        assert read_offsets(log, 2, HW) == []
        assert log.leader_epoch_cache.latest_epoch == 3
        assert log.end_offset_for_epoch(3) == (3, 3)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(4, max_bytes=10, isolation=END)


def test_a_sole_replica_needs_no_high_watermark(machine: Machine) -> None:
    """An embedder without replication would read nothing."""
    with UnifiedLog.open(FOLDER, machine=machine, is_sole_replica=True) as log:
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        assert read_offsets(log, 0, HW) == [0]


def test_a_small_read_has_one_whole_batch_or_says_that_it_has_not(machine: Machine) -> None:
    """A consumer with a small fetch size would never get past a large batch, or take a piece of it for the whole."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        size = log.append_as_leader(batch_of(b"a" * 500), leader_epoch=0).size_bytes
        log.append_as_leader(batch_of(b"b" * 500), leader_epoch=0)
        whole = log.read(0, max_bytes=10, isolation=END)
        assert whole.records
        assert (whole.size_bytes, whole.first_entry_incomplete) == (size, False)
        part = log.read(0, max_bytes=10, isolation=END, min_one_message=False)
        assert part.records
        assert (part.size_bytes, part.first_entry_incomplete) == (10, True)


@pytest.mark.parametrize("isolation", FetchIsolation)
def test_a_read_of_no_bytes_hands_out_nothing_in_part(machine: Machine, isolation: FetchIsolation) -> None:
    """A fetch whose limit other partitions used up is no batch that is too large."""
    log = UnifiedLog.open(FOLDER, machine=machine, is_sole_replica=True)
    log.append_as_leader(batch_of(b"x"), leader_epoch=0)
    found = log.read(0, max_bytes=0, isolation=isolation, min_one_message=False)
    assert (found.records, found.first_entry_incomplete) == ((), False)
    assert log.read(0, max_bytes=1, isolation=isolation, min_one_message=False).first_entry_incomplete
    assert not log.read(0, max_bytes=0, isolation=isolation).first_entry_incomplete


def test_the_greatest_timestamp_of_records_that_have_none(machine: Machine) -> None:
    """Kafka answers with the first of them; else a tool that asks for the newest record is told that there is none."""
    log = UnifiedLog.open(FOLDER, machine=machine)
    assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) is None
    for _ in range(2):
        log.append_as_leader(batch_of(b"x", b"y", timestamp_ms=-1), leader_epoch=0)
    found = log.fetch_offset_by_timestamp(MAX_TIMESTAMP)
    assert found is not None
    assert (found.timestamp_ms, found.offset, found.leader_epoch) == (-1, 0, 0)
    assert log.fetch_offset_by_timestamp(-7) == found  # no special one: any time


def test_listeners_learn_of_every_change(machine: Machine) -> None:
    """A long poll would wait for its timeout with records there."""
    seen: list[LogOffsets] = []
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.add_listener(seen.append)
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        log.update_high_watermark(1)
        log.maybe_increment_log_start_offset(1, "deleted by a user")
        assert [(o.log_start_offset, o.high_watermark, o.log_end_offset) for o in seen] == [
            (0, 0, 1),
            (0, 1, 1),
            (1, 1, 1),
        ]
        log.remove_listener(seen.append)
        log.flush()
        assert seen[-1].recovery_point <= 1


def test_a_listener_may_ask_the_log(machine: Machine) -> None:
    """A server that reads in its listener would wait for itself."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        got: list[list[int]] = []
        log.add_listener(lambda _: got.append(read_offsets(log, 0, END)))
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        assert got == [[0]]


def test_rolled_segments_are_synced_in_the_background(machine: Machine) -> None:
    """Recovery after a crash would read the whole log, or an append would wait for the disk."""
    later = Later()
    config = LogConfig(segment_bytes=1 << 20)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, tasks=later) as log:
        log.append_as_leader(batch_of(b"a" * 700_000), leader_epoch=0)
        log.append_as_leader(batch_of(b"b" * 700_000), leader_epoch=0)
        assert [segment.base_offset for segment in log.log_segments()] == [0, 1]
        assert log.recovery_point == 0
        later.run()
        assert log.recovery_point == 1
        assert log.snapshot_at(1) is not None


def test_flush_messages_makes_each_append_durable(machine: Machine) -> None:
    """A topic with flush.messages=1 would lose what it acknowledged in a power cut."""
    log = UnifiedLog.open(FOLDER, machine=machine, config=LogConfig(flush_messages=1))
    for value in (b"a", b"b"):
        assert log.append_as_leader(batch_of(value), leader_epoch=0).last_offset == log.recovery_point - 1
    assert isinstance(machine.files, MemoryFiles)
    left = Machine(clock=machine.clock, files=machine.files.crash())
    with UnifiedLog.open(FOLDER, machine=left) as recovered:
        assert recovered.log_end_offset == 2


def test_a_duplicate_is_answered_with_what_is_there(machine: Machine) -> None:
    """A producer that asks again would double its records."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        sent = batch_of(b"a", b"b", producer_id=7, base_sequence=0)
        first = log.append_as_leader(bytearray(sent), leader_epoch=0)
        again = log.append_as_leader(bytearray(sent), leader_epoch=0)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
        with pytest.raises(AppendRefusedError) as refused:
            log.append_as_leader(batch_of(b"z", producer_id=7, base_sequence=9), leader_epoch=0)
        assert refused.value.error is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == 2


def test_a_topic_made_anew_is_not_mistaken_for_the_old_one(machine: Machine) -> None:
    """A deleted topic's records would be served as the new one's."""
    UnifiedLog.open(FOLDER, machine=machine, topic_id=Uuid(bytes(15) + b"\x01")).close()
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        assert log.topic_id == Uuid(bytes(15) + b"\x01")
    with pytest.raises(InconsistentTopicIdError):
        UnifiedLog.open(FOLDER, machine=machine, topic_id=Uuid(bytes(15) + b"\x02"))


def test_retention_by_size_keeps_the_newest(machine: Machine) -> None:
    """The disk would fill, or records would go before their time."""
    later = Later()
    config = LogConfig(segment_bytes=1 << 20, retention_bytes=1 << 20)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, is_sole_replica=True, tasks=later) as log:
        for _ in range(4):
            log.append_as_leader(batch_of(b"a" * 700_000), leader_epoch=0)
        assert log.delete_old_segments() == 2
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 2, 4)
        names = {info.name for info in machine.files.iter_directory(FOLDER)}
        assert "00000000000000000000.log.deleted" in names
        later.run()
        names = {info.name for info in machine.files.iter_directory(FOLDER)}
        assert not [name for name in names if name.endswith(".deleted")]
        with pytest.raises(OffsetOutOfRangeError):
            log.read(1, max_bytes=10, isolation=END)


def test_a_slice_outlives_its_segment(machine: Machine) -> None:
    """A response under way would be cut off when retention runs."""
    config = LogConfig(segment_bytes=1 << 20, retention_bytes=0)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, is_sole_replica=True) as log:
        log.append_as_leader(batch_of(b"a" * 700_000), leader_epoch=0)
        found = log.read(0, max_bytes=1 << 20, isolation=END)
        assert log.delete_old_segments() == 1
        assert log.log_start_offset == log.log_end_offset == 1
        assert found.records
        assert scan(found.records[0].read()).base_offset.tolist() == [0]


@pytest.mark.parametrize("start", [None, 3])
def test_truncated_fully_a_log_begins_anew(machine: Machine, start: int | None) -> None:
    """A follower whose leader deleted what it has could not go on, or would keep old epochs and producers."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch_of(b"a", producer_id=7, base_sequence=0), leader_epoch=2)
        log.truncate_fully_and_start_at(10, start)
        assert log.log_start_offset == (10 if start is None else start)
        assert (log.local_log_start_offset, log.high_watermark, log.log_end_offset) == (10, 10, 10)
        assert log.leader_epoch_cache.latest_entry is None
        assert log.append_as_leader(batch_of(b"b"), leader_epoch=4).first_offset == 10


def test_truncation_takes_producers_epochs_and_later_segments_along(machine: Machine) -> None:
    """A follower that diverged would refuse its leader's batches as duplicates, or keep a dead branch's epochs."""
    config = LogConfig(segment_bytes=1 << 20)
    with UnifiedLog.open(FOLDER, machine=machine, config=config) as log:
        log.append_as_leader(batch_of(b"a" * 600_000, producer_id=7, base_sequence=0), leader_epoch=1)
        log.append_as_leader(batch_of(b"b" * 600_000, producer_id=7, base_sequence=1), leader_epoch=2)
        log.append_as_leader(batch_of(b"c", producer_id=7, base_sequence=2), leader_epoch=3)
        assert log.truncate_to(1)
        assert (log.log_end_offset, log.leader_epoch_cache.latest_epoch) == (1, 1)
        assert [(segment.base_offset, bool(segment.size_bytes)) for segment in log.log_segments()] == [
            (0, True),
            (1, False),
        ]
        again = log.append_as_leader(batch_of(b"B", producer_id=7, base_sequence=1), leader_epoch=4)
        assert (again.first_offset, again.is_duplicate) == (1, False)
        assert not log.truncate_to(2)


def test_a_closed_log_refuses_and_keeps_what_it_has(machine: Machine) -> None:
    """A late request would write into files that somebody else has opened."""
    log = UnifiedLog.open(FOLDER, machine=machine)
    log.append_as_leader(batch_of(b"a"), leader_epoch=0)
    found = log.read(0, max_bytes=100, isolation=END)
    log.close()
    log.close()
    for call in (
        lambda: log.append_as_leader(batch_of(b"b"), leader_epoch=0),
        lambda: log.read(0, max_bytes=10, isolation=END),
        log.flush,
        log.roll,
        log.delete_old_segments,
    ):
        with pytest.raises(LogClosedError):
            call()
    assert found.records
    assert scan(found.records[0].read()).base_offset.tolist() == [0]
    with UnifiedLog.open(FOLDER, machine=machine, had_clean_shutdown=True) as again:
        assert again.log_end_offset == 1
        assert not again.recovery_report.batches_checked


def test_a_full_disk_takes_the_log_offline_for_good() -> None:
    """Half a batch would be followed by others, or the log would serve what it cannot promise."""
    clock = ManualClock(time_ms=NOW_MS)
    machine = Machine(clock=clock, files=MemoryFiles(clock, capacity_bytes=20_000))
    log = UnifiedLog.open(FOLDER, machine=machine)
    log.append_as_leader(batch_of(b"a" * 9000), leader_epoch=0)
    with pytest.raises(LogOfflineError) as failed:
        log.append_as_leader(batch_of(b"b" * 19_000), leader_epoch=0)
    assert isinstance(failed.value.__cause__, StoreError)
    for call in (
        lambda: log.append_as_leader(batch_of(b"c"), leader_epoch=0),
        lambda: log.read(0, max_bytes=9, isolation=END),
    ):
        with pytest.raises(LogOfflineError) as again:
            call()
        assert str(again.value) == str(failed.value)
    log.close()
    with UnifiedLog.open(FOLDER, machine=machine) as recovered:
        assert recovered.log_end_offset == 1


def test_who_flushes_at_once_shares_a_sync(machine: Machine) -> None:
    """A thousand producers that want durability would wait for a thousand syncs one after the other."""
    started, go = threading.Event(), threading.Event()

    class Slow:
        syncs = 0

    assert isinstance(machine.files, MemoryFiles)
    threaded = Machine(clock=machine.clock, files=machine.files, scheduler=ThreadScheduler())
    log = UnifiedLog.open(FOLDER, machine=threaded)
    log.append_as_leader(batch_of(b"a"), leader_epoch=0)
    segment = log.active_segment
    fsync = segment.fsync

    def slow() -> None:
        Slow.syncs += 1
        started.set()
        assert go.wait(LIMIT_SECONDS)
        fsync()

    segment.fsync = slow  # type: ignore[method-assign]
    first = threading.Thread(target=log.flush)
    first.start()
    assert started.wait(LIMIT_SECONDS)
    log.append_as_leader(batch_of(b"b"), leader_epoch=0)  # goes on beside the sync
    assert log.log_end_offset == 2
    others = [threading.Thread(target=log.flush) for _ in range(5)]
    for thread in others:
        thread.start()
    go.set()
    for thread in (first, *others):
        thread.join(LIMIT_SECONDS)
    assert log.recovery_point == 2
    assert Slow.syncs == 2
    log.close()


def test_a_raised_local_start_promises_no_sync(machine: Machine) -> None:
    """A restart would open the segments below it, which a power cut tore, as if they had been flushed."""
    tiered = LogConfig(remote_storage_enable=True)
    with UnifiedLog.open(FOLDER, config=tiered, machine=machine, tasks=Later()) as log:
        for value in (b"a", b"b", b"c"):
            log.append_as_leader(batch_of(value), leader_epoch=0)
            log.roll()
        assert log.maybe_increment_local_log_start_offset(2, "copied")
        assert (log.local_log_start_offset, log.recovery_point) == (2, 0)
        log.flush()
        assert log.recovery_point == 3


def test_a_log_goes_on_under_another_folder(machine: Machine) -> None:
    """A topic that is deleted would lose its records at once, or write into a folder that is not there."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        log.rename_folder("/logs/orders-0.0123456789abcdef0123456789abcdef-delete")
        log.append_as_leader(batch_of(b"b"), leader_epoch=1)
        log.roll()
        assert read_offsets(log, 0, END) == [0, 1]
        assert machine.files.find(FOLDER) is None
        log.delete()
        assert [info.name for info in machine.files.iter_directory("/logs")] == []


def test_an_empty_segment_that_is_rolled_becomes_a_new_one(machine: Machine) -> None:
    """Else an empty transaction index goes to the tier where Kafka's segment has none, and a changed configuration does
    not count before the next roll.
    """
    log = UnifiedLog.open(FOLDER, machine=machine, config=LogConfig(index_interval_bytes=1 << 20))
    segment = log.active_segment
    segment.append_aborted([AbortedTransaction(7, 0, 1, 2)])
    segment.truncate_to(0)
    assert machine.files.find(segment.transaction_index_path) is not None
    log.update_config(LogConfig(index_interval_bytes=0))
    log.roll()
    assert machine.files.find(segment.transaction_index_path) is None
    assert log.collect_aborted_transactions(0, 9) == ()
    for _ in range(3):
        log.append_as_leader(batch_of(b"value"), leader_epoch=0)
    log.flush()
    assert machine.files.stat(log.active_segment.offset_index_path).size_bytes == 2 * 8
    log.active_segment.append_aborted([AbortedTransaction(7, 0, 1, 2)])
    assert log.collect_aborted_transactions(0, 9) == ((7, 0, 1),)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_message_set_begins_a_segment_at_the_end_of_the_log(machine: Machine, codec: str) -> None:
    """A compressed one has its last offset in its header: a segment of that name would hold records in front of it."""
    log = UnifiedLog.open(FOLDER, machine=machine)
    for base_offset in (0, 3, 9):
        builder = MessageSetBuilder(1, base_offset, codec=codec)
        for number in range(3):
            builder.append(b"key", b"%d" % number, timestamp_ms=NOW_MS)
        data = builder.build()
        log.update_config(LogConfig(segment_bytes=len(data)))
        log.append_as_follower(data, leader_epoch=0)
    assert [segment.base_offset for segment in log.log_segments()] == [0, 3, 6]
    assert log.log_end_offset == 12


def test_an_empty_segment_answers_for_the_times_before_its_change(machine: Machine) -> None:
    """As in Kafka: whoever replaces a broker's log by this one gets the same answer to ListOffsets after compaction."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch_of(b"value", timestamp_ms=NOW_MS), leader_epoch=0)
        log.roll()
        log.append_as_leader(batch_of(b"value", timestamp_ms=NOW_MS + 2000), leader_epoch=0)
        first = log.log_segments()[0]
        log.flush()
    machine.files.open_update(first.log_path).truncate(0)  # what the cleaner may leave, changed at NOW_MS
    for path in (first.offset_index_path, first.time_index_path):
        machine.files.open_update(path).truncate(0)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, had_clean_shutdown=True) as log:
        assert log.fetch_offset_by_timestamp(NOW_MS) is None
        found = log.fetch_offset_by_timestamp(NOW_MS + 1)
        assert found is not None
        assert found.offset == 1


def test_a_cut_leaves_no_ended_transaction_open_whose_producer_expired(machine: Machine) -> None:
    """Consumers of committed records would stand still for ever in front of a transaction that ended."""
    clock = machine.clock
    assert isinstance(clock, ManualClock)
    with UnifiedLog.open(FOLDER, machine=machine, is_sole_replica=True) as log:
        log.append_as_leader(batch_of(b"a", producer_id=7, base_sequence=0, transactional=True), leader_epoch=0)
        log.roll()  # with a snapshot that has the open transaction
        marker = build_end_transaction_marker(
            0, ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        log.append_as_leader(bytearray(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
        log.append_as_leader(batch_of(b"b"), leader_epoch=0)
        log.append_as_leader(batch_of(b"c"), leader_epoch=0)
        clock.sleep(2 * 86_400)
        assert log.remove_expired_producers() == 1
        assert log.truncate_to(3)
        assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_a_follower_from_the_tier_knows_the_producers(machine: Machine) -> None:
    """If this fails, a replica that was built from the tier shows aborted records, and appends resends again."""
    config = LogConfig(remote_storage_enable=True)

    def opened(partition: int) -> UnifiedLog:
        return UnifiedLog.open(f"/logs/orders-{partition}", machine=machine, config=config, remote_log_enabled=True)

    resent = batch_of(b"b", producer_id=6, base_sequence=0)
    with opened(0) as leader, opened(1) as follower:
        leader.append_as_leader(batch_of(b"a", producer_id=5, base_sequence=0, transactional=True), leader_epoch=0)
        leader.append_as_leader(bytearray(resent), leader_epoch=0)
        leader.roll()
        snapshot = leader.snapshot_at(2)
        assert snapshot is not None

        follower.start_from_tier(2, log_start_offset=0, epochs=[(0, 0)], producer_snapshot=snapshot)
        assert follower.last_stable_offset == 0
        leader.append_as_leader(
            bytearray(
                build_end_transaction_marker(
                    0,
                    ControlRecordType.ABORT,
                    producer_id=5,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=NOW_MS,
                )
            ),
            leader_epoch=0,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=1,
        )
        (found,) = leader.read(2, max_bytes=1 << 20, isolation=END).records
        follower.append_as_follower(found.read(), leader_epoch=0)
        assert follower.collect_aborted_transactions(0, 3) == ((5, 0, 2),)
        assert follower.collect_aborted_transactions(0, 3) == leader.collect_aborted_transactions(0, 3)
        assert follower.append_as_leader(bytearray(resent), leader_epoch=1).is_duplicate


def test_open_transactions_are_told_in_order(machine: Machine) -> None:
    """If this fails, a coordinator that takes over leaves transactions open for ever."""
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        for producer in (9, 4, 7):
            log.append_as_leader(
                batch_of(b"a", producer_id=producer, base_sequence=0, transactional=True), leader_epoch=0
            )
        marker = build_end_transaction_marker(
            0, ControlRecordType.COMMIT, producer_id=4, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        log.append_as_leader(bytearray(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
        told = [
            (each.producer_id, each.producer_epoch, each.transaction_first_offset) for each in log.open_transactions()
        ]
        assert told == [(9, 0, 0), (7, 0, 2)]


def test_a_lease_outlives_its_segment(tmp_path: pathlib.Path) -> None:
    """Another process of the same user, a broker's plugin among them, opens what is leased; nothing is left behind."""
    folder = tmp_path / "orders-0"
    with UnifiedLog.open(str(folder)) as log:
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        log.roll()
        log.update_high_watermark(1)
        segment, _ = log.closed_segments()[0]
        names = set(folder.iterdir())
        before = (folder / f"{0:020}.log").read_bytes()
        lease = log.lease(segment)
        assert set(folder.iterdir()) == names, "a lease makes no file"
        log.rename_folder(str(tmp_path / "orders-0.0123456789abcdef0123456789abcdef-delete"))
        log.truncate_fully_and_start_at(7)
        path = lease.data.log_segment
        read = subprocess.run(["cat", path], capture_output=True, check=True).stdout
        assert read == pathlib.Path(path).read_bytes() == before
        assert descriptors_of(f"{1:020}.snapshot") == 1
        lease.close()
        lease.close()
        assert descriptors_of(f"{1:020}.snapshot") == 0
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        log.roll()
        log.update_high_watermark(8)
        log.lease(log.closed_segments()[0][0])  # dropped
        gc.collect()
        assert descriptors_of(f"{8:020}.snapshot") == 0


def descriptors_of(name: str) -> int:
    """How many of this process's descriptors are of a file of this name, removed or not."""
    found = 0
    for link in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += name in str(link.readlink())
    return found
