"""What a log that was loaded after a crash has, against what it has to have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.support.expected_log import ExpectedBatch, ExpectedLog, replayed, taken_apart
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.tier_start import TIER_START_FILE
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine.files import Files
from tierlog.runtime.simulated.memory_files import MemoryFiles

#: What a log's folder holds after loading; nothing is set aside, half written or half swapped any more.
SUFFIXES = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
    *("leader-epoch-checkpoint", "partition.metadata", TIER_START_FILE),
)


@dataclass(frozen=True)
class Found:
    """What a log has: to be compared, and to go on from."""

    batches: tuple[tuple[int, bytes], ...]
    bases: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]
    """Those of the offsets that the log has."""


def copy_of(files: MemoryFiles) -> MemoryFiles:
    """A disk with the same files, all of it durable."""
    copied = MemoryFiles(files.clock)
    folders = ["/"]
    while folders:
        for entry in files.iter_directory(folders.pop()):
            if entry.is_directory:
                copied.make_directories(entry.path)
                folders.append(entry.path)
            else:
                copied.put(entry.path, files.read_whole(entry.path))
    return copied


def found_in(log: UnifiedLog, files: Files) -> Found:
    """All that a log has, read from its files."""
    segments = log.log_segments()
    batches = [batch for each in segments for batch in taken_apart(files.read_whole(each.log_path))]
    return Found(
        tuple(batches),
        tuple(each.base_offset for each in segments),
        log.log_start_offset,
        log.log_end_offset,
        tuple(log.leader_epoch_cache.epoch_entries_in_range(log.log_start_offset, log.log_end_offset)),
    )


def check_log(log: UnifiedLog, files: Files, expected: ExpectedLog) -> Found:
    """Raises AssertionError where the log has what it must not have, or lacks what it must have."""
    found = found_in(log, files)
    have = check_batches(found, expected)
    check_reads(log, have)
    check_timestamps(log, found, have)
    check_indexes(log, files, have, expected)
    check_lineage(log, found, [batch for batch in have if batch.base_offset >= expected.start_offset])
    check_transactions(log, found, have, expected)
    return found


def check_names(folder: str, files: Files) -> None:
    """Loading leaves no file that was set aside, half written or half swapped."""
    strange = [entry.name for entry in files.iter_directory(folder) if not entry.name.endswith(SUFFIXES)]
    assert not strange, f"{strange} were left by the crash"


def check_batches(found: Found, expected: ExpectedLog) -> list[ExpectedBatch]:
    """The batches are those that were appended, in their order, and none is missing that must be there."""
    known = {batch.base_offset: batch for batch in expected.batches}
    have = []
    for base_offset, data in found.batches:
        batch = known.get(base_offset)
        assert batch is not None, f"a batch at offset {base_offset} that was never appended, or was truncated"
        assert data == batch.data, f"another batch at offset {base_offset}"
        have.append(batch)
    for first, second in pairwise(have):
        assert first.last_offset < second.base_offset, f"offset {second.base_offset} is there twice, or out of order"
    end = found.log_end_offset
    loose = expected.loose_from is not None
    assert end == (have[-1].last_offset + 1 if have else found.bases[-1]) or loose
    assert end >= expected.flushed_offset, f"the log ends at {end}, flushed up to {expected.flushed_offset}"
    there = {batch.base_offset for batch in have}
    for batch in expected.batches:
        may_lack = batch.last_offset < expected.start_offset or (
            expected.loose_from is not None and batch.base_offset >= expected.loose_from
        )
        if batch.last_offset < end and batch.base_offset not in there:
            assert may_lack, f"offset {batch.base_offset} is gone, and the log ends at {end}"
    assert found.log_start_offset <= max(expected.start_offset, end)
    return have


def check_reads(log: UnifiedLog, have: list[ExpectedBatch]) -> None:
    """Each offset leads to its batch."""
    for batch in have:
        if batch.base_offset < log.local_log_start_offset:
            continue
        for offset in {batch.base_offset, batch.last_offset}:
            read = log.read(offset, max_bytes=1, isolation=FetchIsolation.LOG_END)
            assert read.records, f"nothing at offset {offset}"
            assert read.records[0].read() == batch.data, f"not its batch at offset {offset}"
    read = log.read(log.log_end_offset, max_bytes=1, isolation=FetchIsolation.LOG_END)
    assert not read.records


def check_timestamps(log: UnifiedLog, found: Found, have: list[ExpectedBatch]) -> None:
    """A search by time finds what a search through all records finds: in the first segment that has one so late."""
    start = log.local_log_start_offset
    segments: list[list[tuple[int, int]]] = []
    for first, behind in pairwise([*found.bases, 1 << 62]):
        batches = [batch for batch in have if first <= batch.base_offset < behind]
        segments.append([(at, each.base_offset + i) for each in batches for i, at in enumerate(each.timestamps_ms)])
    for batch in have[:: max(1, len(have) // 10)]:
        wanted = batch.timestamps_ms[0]
        answer = log.fetch_offset_by_timestamp(wanted)
        late = next((records for records in segments if max(records, default=(-1, 0))[0] >= wanted), [])
        expected = next(((at, offset) for at, offset in late if at >= wanted and offset >= start), None)
        assert (answer and (answer.timestamp_ms, answer.offset)) == expected


def check_indexes(log: UnifiedLog, files: Files, have: list[ExpectedBatch], expected: ExpectedLog) -> None:
    """Every entry on the disk points at what it says."""
    aborted = {(producer_id, last) for producer_id, _, last in replayed(expected.batches).aborted}
    for segment in log.log_segments():
        base, position = segment.base_offset, 0
        at, newest, newest_at = {}, {}, -1
        data = files.read_whole(segment.log_path)
        known = {batch.base_offset: batch for batch in have}
        for offset, batch in taken_apart(data):
            at[position] = known[offset].last_offset
            newest_at = max(newest_at, *known[offset].timestamps_ms)
            newest[known[offset].last_offset] = newest_at
            position += len(batch)
        for offset, where in zip(
            *OffsetIndex(files.read_whole(segment.offset_index_path), base).columns(), strict=True
        ):
            assert at.get(int(where)) == int(offset), f"{segment.offset_index_path}: {offset} → {where}"
        for timestamp, offset in zip(
            *TimeIndex(files.read_whole(segment.time_index_path), base).columns(), strict=True
        ):
            # An entry of a batch says that none up to it is newer; where it closes an empty segment it is (-1, base).
            assert newest.get(int(offset), timestamp) <= int(timestamp), f"{segment.time_index_path}: {timestamp}"
        if files.find(segment.transaction_index_path) is not None:
            entries = TransactionIndex(files.read_whole(segment.transaction_index_path), base).entries()
            for entry in entries:
                assert (int(entry["producer_id"]), int(entry["last_offset"])) in aborted


def check_lineage(log: UnifiedLog, found: Found, have: list[ExpectedBatch]) -> None:
    """Each batch's epoch is the lineage's at its offset."""
    for batch in have:
        if batch.base_offset >= found.log_start_offset:
            known = log.leader_epoch_cache.epoch_for_offset(batch.base_offset)
            assert known == batch.leader_epoch, f"offset {batch.base_offset}: {known}, not {batch.leader_epoch}"
    for (epoch, start), (next_epoch, next_start) in pairwise(found.epochs):
        assert epoch < next_epoch
        assert start < next_start
    assert not found.epochs or found.epochs[-1][1] <= found.log_end_offset


def check_transactions(log: UnifiedLog, found: Found, have: list[ExpectedBatch], expected: ExpectedLog) -> None:
    """What is aborted and what is open is what a replay of the batches says.

    A transaction is known by those of its batches that a reader gets: a log that has to replay its producers from its
    start on, as Kafka's does, knows none in front of it, and says that it begins there.
    """
    if not have:
        return
    first = max(have[0].base_offset, found.log_start_offset)
    replay = replayed([batch for batch in expected.batches if batch.base_offset < found.log_end_offset])

    def told(aborted: Iterable[tuple[int, int, int]]) -> list[tuple[int, list[int], int]]:
        readable = [batch for batch in have if batch.base_offset >= first and batch.producer.marker is None]
        ranges = []
        for producer_id, from_offset, last_offset in aborted:
            sent = [batch.base_offset for batch in readable if batch.producer.producer_id == producer_id]
            inside = [offset for offset in sent if from_offset <= offset < last_offset]
            if inside:
                ranges.append((producer_id, inside, last_offset))
        return ranges

    assert told(log.collect_aborted_transactions(first, found.log_end_offset)) == told(replay.aborted)
    open_from = replay.first_open_offset
    if open_from is None:
        assert log.last_stable_offset == found.log_end_offset
    elif open_from >= first:
        assert log.last_stable_offset == open_from


def check_closed_log(folder: str, files: Files, found: Found, expected: ExpectedLog) -> None:
    """The snapshot that a clean stop wrote has the producers of a replay: of all batches that are there, and of those
    that the tier alone has.
    """
    known = [batch for batch in expected.batches if batch.base_offset < found.log_end_offset]
    have = {base_offset for base_offset, _ in found.batches if base_offset >= found.log_start_offset}
    loose_from = found.log_end_offset if expected.loose_from is None else expected.loose_from
    moved = range(max(found.log_start_offset, expected.deleted_below), min(found.bases[0], loose_from))
    senders = [batch for batch in known if batch.base_offset in have or batch.base_offset in moved]
    certain = {batch.producer.producer_id for batch in senders if not batch.producer.marker}
    path = f"{folder}/{found.log_end_offset:020}.snapshot"
    stored = parse_producer_snapshot(files.read_whole(path)).entries if files.find(path) is not None else ()
    replay = replayed(known)
    entries = {entry.producer_id: entry for entry in stored}
    assert certain - {-1} <= entries.keys() <= replay.producers.keys()
    for producer_id, entry in entries.items():
        wanted = replay.producers[producer_id]
        if producer_id in certain:
            assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (
                wanted.epoch,
                wanted.last_sequence,
                wanted.last_offset,
            )
            if wanted.transaction_first_offset < 0 or wanted.transaction_first_offset in have:
                assert entry.transaction_first_offset == wanted.transaction_first_offset
