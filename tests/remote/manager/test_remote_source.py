"""Batches of the tier through storage managers: ours, one in memory, a third party's, and managers that break the
contract.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from tests.contract.folder_manager import FolderStorageManager
from tests.support.batches import Batch, encode
from tests.support.manager_configs import local_keys
from tests.support.segments import Segment, make_segment, sound_log
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.records import scan
from tierlog.remote import TieredStorageManager
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteStorageException,
    RemoteStorageManager,
    RetriableRemoteStorageException,
)
from tierlog.remote.manager.batch_reads import BatchChecks, BatchReads, FoundBatches, WantedBatches
from tierlog.remote.manager.remote_source import RemoteLog, RemoteSource
from tierlog.remote.storage.fetch.segment_stream import bytes_stream, same_error
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.waiting.waits import WaitingThreads
from tierlog.testing.memory_storage_manager import MemoryStorageManager

MIB = 1 << 20
MACHINE = Machine()
Reads = BatchReads[RemoteLogSegmentMetadata, RemoteLog]


def made_reads(storage: RemoteStorageManager) -> Reads:
    return BatchReads(RemoteSource(storage), MACHINE, checks=BatchChecks())


def read(reads: Reads, segment: RemoteLogSegmentMetadata, offset: int, max_bytes: int, **more: Any) -> FoundBatches:
    end = more.pop("end", segment.end_offset + 1)
    wanted = WantedBatches(offset, end, max_bytes, more.pop("whole", True))
    found = WaitingThreads(Machine()).run(reads.read_waits(segment, wanted))
    assert found is not None
    return found


def joined(found: FoundBatches) -> bytes:
    assert all(len(part) for part in found.records), "a part of no bytes"
    return b"".join(bytes(cast("memoryview", part)) for part in found.records)


def in_memory(*segments: Segment) -> MemoryStorageManager:
    storage = MemoryStorageManager()
    storage.configure({})
    for each in segments:
        storage.segments[each.metadata.remote_log_segment_id] = {None: each.log, **each.parts}
    return storage


def ours(folder: pathlib.Path, made: Segment) -> tuple[RemoteStorageManager, RemoteLogSegmentMetadata]:
    manager = TieredStorageManager()
    cached = {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(8 * MIB)}
    manager.configure(local_keys(folder / "bucket") | {"compression.enabled": "true"} | cached)
    closed = made.closed_in(folder / "log")
    return manager, closed.finished(manager.copy_log_segment_data(closed.metadata, closed.data))


def a_third_partys(folder: pathlib.Path, made: Segment) -> tuple[RemoteStorageManager, RemoteLogSegmentMetadata]:
    manager = FolderStorageManager()
    (folder / "their").mkdir()
    manager.configure({"folder": str(folder / "their")})
    closed = made.closed_in(folder / "log")
    return manager, closed.finished(manager.copy_log_segment_data(closed.metadata, closed.data))


def one_in_memory(_folder: pathlib.Path, made: Segment) -> tuple[RemoteStorageManager, RemoteLogSegmentMetadata]:
    return in_memory(made), made.metadata


Opened = Callable[[pathlib.Path, Segment], tuple[RemoteStorageManager, RemoteLogSegmentMetadata]]


@pytest.mark.parametrize("opened", [ours, a_third_partys, one_in_memory])
@pytest.mark.parametrize("max_bytes", [1, 50_000, 3 * MIB])
def test_consumers_get_what_was_copied(opened: Opened, max_bytes: int, tmp_path: pathlib.Path) -> None:
    """If this fails, a consumer behind a broker's local retention gets other bytes than were copied, or none."""
    log = sound_log(200, batch_bytes=4096)
    manager, metadata = opened(tmp_path, make_segment(log))
    with manager:
        reads, got, offset = made_reads(manager), b"", 0
        while offset <= metadata.end_offset:
            found = read(reads, metadata, offset, max_bytes)
            table = scan(joined(found))
            assert (table.base_offset[0], table.last_offset[-1]) == (found.first_offset, found.last_offset)
            assert log[found.position :].startswith(joined(found))
            got += joined(found)[: int(table.position[-1] + table.size_bytes[-1])]
            offset = found.last_offset + 1
        assert got == log


@pytest.mark.parametrize("opened", [ours, a_third_partys, one_in_memory])
def test_a_batch_that_is_larger_than_what_is_read_comes_whole(opened: Opened, tmp_path: pathlib.Path) -> None:
    """If this fails, a consumer that wants little stops for good at the first large batch."""
    log = sound_log(3, batch_bytes=200_000)
    manager, metadata = opened(tmp_path, make_segment(log))
    table = scan(log)
    with manager:
        reads = made_reads(manager)
        for offset, position, size in zip(table.base_offset, table.position, table.size_bytes, strict=True):
            found = read(reads, metadata, int(offset), 1)
            assert joined(found) == log[position : position + size]
            assert (found.first_offset, found.size_bytes) == (offset, size)


def test_parts_are_the_cached_chunks_themselves(tmp_path: pathlib.Path) -> None:
    """If this fails, every answer copies what the cache has: a second consumer costs as much memory as the first."""
    manager, metadata = ours(tmp_path, make_segment(sound_log(60, batch_bytes=4096)))
    with manager:
        reads = made_reads(manager)
        first, second = (read(reads, metadata, 0, MIB) for _ in range(2))
        assert len(first.records) > 5
        for one, other in zip(first.records, second.records, strict=True):
            assert cast("memoryview", one).obj is cast("memoryview", other).obj


class Broken(MemoryStorageManager):
    """A storage manager whose streams of logs go through a function of a test's."""

    def __init__(self, made: Segment, bend: Callable[[bytes], Iterator[memoryview] | bytes]) -> None:
        super().__init__()
        self.configure({})
        self.segments[made.metadata.remote_log_segment_id] = {None: made.log, **made.parts}
        self._bend = bend
        self.asked: list[tuple[int, int | None]] = []
        self.is_broken = True

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Any:
        self.asked.append((start_position, end_position))
        stream = super().fetch_log_segment(metadata, start_position, end_position)
        if not self.is_broken:
            return stream
        bent = self._bend(stream.read())
        return bytes_stream(bent, translate=same_error) if isinstance(bent, bytes) else GivenViews(bent)


class GivenViews:
    """A stream of any views, which ignores how much is wanted."""

    def __init__(self, views: Iterator[memoryview]) -> None:
        self._views = views
        self.closed = 0

    def buffers(self, _max_bytes: int | None = None) -> Iterator[memoryview]:
        return self._views

    def close(self) -> None:
        self.closed += 1


MADE = make_segment(sound_log(40, batch_bytes=4096))


def test_too_little_is_an_error_and_no_early_end() -> None:
    """If this fails, a store that cuts its answers looks like the end of a segment, and records are skipped."""
    storage = Broken(MADE, lambda data: data[:40])
    with pytest.raises(RemoteStorageException, match="the storage manager's stream ends at 40"):
        read(made_reads(storage), MADE.metadata, 0, MIB)


def test_a_part_of_what_was_asked_is_answered() -> None:
    """If this fails, one damaged chunk hides the sound ones in front of it from consumers."""
    storage = Broken(MADE, lambda data: data[:50_000])
    found = read(made_reads(storage), MADE.metadata, 0, MIB)
    assert joined(found) == MADE.log[: found.size_bytes]
    assert 45_000 < found.size_bytes <= 50_000


def test_what_is_too_much_is_left() -> None:
    """If this fails, a storage manager that answers to the end of its file makes an answer of a gigabyte."""

    def more(data: bytes) -> Iterator[memoryview]:
        for at in range(0, len(data), 1000):
            yield memoryview(data[at : at + 1000])
        yield from (memoryview(bytes(1000)) for _ in range(1000))

    found = read(made_reads(Broken(MADE, more)), MADE.metadata, 0, 20_000)
    assert joined(found) == MADE.log[: found.size_bytes]
    assert found.size_bytes == 20_000


def test_wrong_bytes_are_never_sent() -> None:
    """If this fails, a consumer gets a damaged batch, and its client stops for good at that offset."""
    at = 10_000

    def damaged(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    found = read(made_reads(Broken(MADE, damaged)), MADE.metadata, 0, MIB)
    assert joined(found) == MADE.log[: found.size_bytes]
    assert found.size_bytes <= at
    with pytest.raises(CorruptDataError):
        read(made_reads(Broken(MADE, lambda data: bytes(len(data)))), MADE.metadata, 0, MIB)


def test_a_damaged_batch_hides_none_behind_it() -> None:
    """If this fails, a consumer that goes past a damaged batch finds no sound one in the rest of the segment."""
    table = scan(MADE.log)
    at, sound = int(table.position[1]) + 100, int(table.position[2])
    storage = in_memory(MADE)
    parts = storage.segments[MADE.metadata.remote_log_segment_id]
    parts[None] = MADE.log[:at] + bytes([MADE.log[at] ^ 1]) + MADE.log[at + 1 :]
    parts[IndexType.OFFSET] = b""  # so that it is walked over
    found = read(made_reads(storage), MADE.metadata, int(table.base_offset[2]), MIB)
    assert found.first_offset == table.base_offset[2]
    assert joined(found) == MADE.log[sound : sound + found.size_bytes]
    with pytest.raises(CorruptDataError):
        read(made_reads(storage), MADE.metadata, int(table.base_offset[1]), MIB)


def test_no_bytes_at_all_are_an_error_of_the_manager() -> None:
    """If this fails, an error of a third party's code has no name, and nobody finds whose it is."""
    storage = Broken(MADE, lambda _: cast("Any", iter([None])))
    with pytest.raises(RemoteStorageException, match="gave NoneType, no bytes"):
        read(made_reads(storage), MADE.metadata, 0, MIB)


def test_a_damaged_index_costs_time_alone() -> None:
    """If this fails, a segment whose small index is damaged cannot be read from its midst on."""
    indexes = dict(MADE.parts)
    for wrong in (b"\xff" * 64, b"\x00\x00\x00\x05\x00\x00\x00\x07" * 4, b"123"):
        storage = in_memory(MADE)
        storage.segments[MADE.metadata.remote_log_segment_id][IndexType.OFFSET] = wrong
        found = read(made_reads(storage), MADE.metadata, 41, 20_000)
        assert (found.first_offset, joined(found)) == (40, MADE.log[found.position :][: found.size_bytes])
    assert indexes[IndexType.OFFSET]


def test_a_position_of_another_copy_is_not_used() -> None:
    """If this fails, records are skipped: the copy of a new leader has other batches at the same positions.

    The planted fault: hints by partition and offset, without the copy's id.
    """

    first_log = b"".join(encode(Batch(offset, (b"v" * 100,))) for offset in range(3))
    behind = 2 * len(first_log) // 3
    room = next(size for size in range(behind) if len(encode(Batch(0, (b"a", b"b", b"c" * size)))) == behind)
    other_log = encode(Batch(0, (b"a", b"b", b"c" * room))) + encode(Batch(3, (b"d",)))
    first, other = make_segment(first_log, name="first"), make_segment(other_log, name="other")
    reads = made_reads(in_memory(first, other))
    assert read(reads, first.metadata, 1, 1).last_offset == 1
    assert reads.hints.find(RemoteLog(first.metadata).version, 2) == behind
    found = read(reads, other.metadata, 2, 1)
    assert (found.first_offset, found.position) == (0, 0), "offset 2 is in the first batch there"


def test_the_next_read_goes_on_where_the_last_one_ended() -> None:
    """If this fails, each fetch of a consumer asks for the index and for 64 KiB more than it needs."""
    storage = Broken(MADE, lambda data: data)
    reads = made_reads(storage)
    found = read(reads, MADE.metadata, 0, 20_000)
    storage.asked.clear()
    read(reads, MADE.metadata, found.last_offset + 1, 20_000)
    ((start, end),) = storage.asked
    assert end is not None
    assert found.size_bytes - 4096 < start <= found.size_bytes
    assert end - start <= 20_000 + 61


def test_errors_of_the_store_are_passed_on_and_streams_closed() -> None:
    """If this fails, a store that is away for a minute looks like damage, or each error leaves a stream open."""
    storage = in_memory(MADE)
    storage.unavailable = True
    with pytest.raises(RetriableRemoteStorageException):
        read(made_reads(storage), MADE.metadata, 0, MIB)

    streams = []

    def failing(data: bytes) -> Iterator[memoryview]:
        yield memoryview(data[:10])
        raise RetriableRemoteStorageException("reset")

    class Noting(Broken):
        def fetch_log_segment(self, *args: Any) -> Any:
            streams.append(super().fetch_log_segment(*args))
            return streams[-1]

    with pytest.raises(RetriableRemoteStorageException, match="reset"):
        read(made_reads(Noting(MADE, failing)), MADE.metadata, 0, MIB)
    assert [stream.closed for stream in streams] == [1]


def test_a_cancelled_read_closes_its_stream() -> None:
    """If this fails, a consumer that has gone holds a thread and a connection for as long as the store hangs."""
    machine = Machine()
    scope = CancelScope(machine.scheduler)
    streams = []

    def hanging(data: bytes) -> Iterator[memoryview]:
        yield memoryview(data[:100])
        scope.cancel()
        assert streams[0].closed, "the stream is closed while it hangs"
        raise ValueError("the stream is closed")

    class Noting(Broken):
        def fetch_log_segment(self, *args: Any) -> Any:
            streams.append(super().fetch_log_segment(*args))
            return streams[-1]

    reads = made_reads(Noting(MADE, hanging))
    with cancelled_by(scope), pytest.raises(ValueError, match="closed"):
        read(reads, MADE.metadata, 0, MIB)
    with cancelled_by(scope), pytest.raises(CancelledReadError):
        read(reads, MADE.metadata, 0, MIB)
    assert len(streams) == 1


def test_a_stream_that_refuses_its_close_is_closed_again() -> None:
    """If this fails, a third party's stream stays open when its read was cancelled as it began."""
    scope = CancelScope(Machine().scheduler)

    class Refusing(GivenViews):
        def close(self) -> None:
            super().close()
            if self.closed == 1:
                raise OSError("busy")

    stream = Refusing(iter(()))

    class Cancelling(Broken):
        def fetch_log_segment(self, *_: Any) -> Any:
            scope.cancel()
            return stream

    with cancelled_by(scope), pytest.raises(OSError, match="busy"):
        read(made_reads(Cancelling(MADE, bytes)), MADE.metadata, 0, MIB)
    assert stream.closed == 2


def test_no_batch_from_an_end_on_is_sent_not_even_in_part() -> None:
    """If this fails, consumers get records of a branch that was given up (the planted fault: no cut)."""
    reads = made_reads(in_memory(MADE))
    found = read(reads, MADE.metadata, 0, MIB, end=20)
    assert (found.last_offset, joined(found)) == (19, MADE.log[: found.size_bytes])
    assert scan(joined(found)).last_offset[-1] == 19
    with pytest.raises(CorruptRecordError):
        read(made_reads(Broken(MADE, lambda data: data[:-8] + bytes(8))), MADE.metadata, 79, 1, whole=True)
