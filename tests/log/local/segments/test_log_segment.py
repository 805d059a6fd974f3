"""A segment on disk: what is appended is what is read, and its files are those that Kafka writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.checks.test_index_builder import closed_segments, interval_of
from tests.support.batches import Batch, encode
from tests.support.open_files import count_open_files
from tierlog._native.batches import scan_batches
from tierlog._native.indexes import read_offset_index, read_time_index
from tierlog.errors import CorruptIndexError, CorruptRecordError, ObjectNotFoundError, StoreError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.log.local.log_folder import LazyFile
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.runtime.simulated.memory_files import MemoryFiles

BASE = 1000
NOW = 1_700_000_000_000


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Machine, str]:
    """A machine and a folder: the disk's, and one in memory."""
    if request.param == "disk":
        return Machine(), str(tmp_path)
    files = MemoryFiles()
    files.make_directories("/log")
    return Machine(files=files), "/log"


def batches(count: int, *, base_offset: int = BASE, records: int = 2, size: int = 40) -> list[Batch]:
    """Batches in a row, 10 s apart."""
    return [
        Batch(base_offset + records * i, values=(b"v" * size,) * records, timestamp_ms=NOW + 10_000 * i, epoch=i // 50)
        for i in range(count)
    ]


def append(segment: LogSegment, batch: Batch) -> None:
    segment.append(encode(batch), last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp_ms)


def filled(place: tuple[Machine, str], appended: list[Batch], *, interval: int = 256) -> LogSegment:
    segment = LogSegment.create(*place, BASE, config=LogConfig(index_interval_bytes=interval))
    for batch in appended:
        append(segment, batch)
    return segment


def pieces(log: Path, step: int) -> Iterator[tuple[bytes, dict[str, object]]]:
    """The batches of a log, so many at a time."""
    data, columns = log.read_bytes(), scan_batches(log.read_bytes())[0]
    for start in range(0, len(columns["position"]), step):
        piece = {name: column[start : start + step] for name, column in columns.items()}
        first, last = int(piece["position"][0]), int(piece["position"][-1]) + int(piece["size_bytes"][-1])
        yield data[first:last], piece


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
@pytest.mark.parametrize("step", [1, 7])
def test_files_equal_to_the_brokers_own(data: Path, tmp_path: Path, run: str, step: int) -> None:
    """Else a broker that takes over the folder finds other indexes than it would have written."""
    for number, log in enumerate(closed_segments(data / run)):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = LogConfig(index_interval_bytes=interval_of(data / run, log))
        segment = LogSegment.create(Machine(), str(folder), int(log.stem), config=config)
        for piece, columns in pieces(log, step):
            if step == 1:
                last, timestamp = (int(columns[name][0]) for name in ("last_offset", "max_timestamp"))  # type: ignore[index]
                segment.append(piece, last_offset=last, max_timestamp_ms=timestamp)
            else:
                segment.append_run(piece, columns)  # type: ignore[arg-type]
        segment.on_become_inactive()
        for suffix in (".log", ".index", ".timeindex"):
            assert (folder / log.name).with_suffix(suffix).read_bytes() == log.with_suffix(suffix).read_bytes(), log


def test_every_offset_is_found(place: tuple[Machine, str]) -> None:
    """Else a consumer is told of other records than it asked for, whether the segment is written or was closed."""
    appended = batches(60)
    segment = filled(place, appended)
    for each in (segment, reopened(place, segment), segment):
        position = 0
        for batch in appended:
            size = len(encode(batch))
            for offset in (batch.base_offset, batch.last_offset):
                found = each.find_batch(offset)
                assert found == (position, size, batch.base_offset, batch.last_offset, batch.max_timestamp_ms)
            position += size
        assert each.find_batch(0) == each.find_batch(BASE)
        assert each.find_batch(appended[-1].last_offset + 1) is None
        assert each.read_next_offset() == appended[-1].last_offset + 1


def reopened(place: tuple[Machine, str], segment: LogSegment, config: LogConfig | None = None) -> LogSegment:
    segment.on_become_inactive()
    segment.flush()
    return LogSegment.open(*place, BASE, config=config or LogConfig(index_interval_bytes=256))


def test_read(place: tuple[Machine, str]) -> None:
    """Else a fetch has too few bytes to go on, or bytes that nobody may see yet."""
    appended = batches(5)
    sizes = [len(encode(batch)) for batch in appended]
    whole = b"".join(map(encode, appended))
    segment = filled(place, appended)
    end = segment.size_bytes
    found = segment.read(BASE + 3, max_bytes=1 << 20, end_position=end, min_one_message=False)
    assert found is not None
    assert bytes(found.records[0].read()) == whole[sizes[0] :]
    assert (found.first_offset, found.first_entry_incomplete) == (BASE + 2, False)
    found = segment.read(BASE, max_bytes=sizes[0] - 1, end_position=end, min_one_message=True)
    assert found is not None
    assert (found.size_bytes, found.first_entry_incomplete) == (sizes[0], False)
    found = segment.read(BASE, max_bytes=sizes[0] - 1, end_position=end, min_one_message=False)
    assert found is not None
    assert (found.size_bytes, found.first_entry_incomplete) == (sizes[0] - 1, True)
    found = segment.read(BASE + 2, max_bytes=1 << 20, end_position=sizes[0] + 7, min_one_message=True)
    assert found is not None
    assert found.size_bytes == 7
    assert segment.read(BASE + 10, max_bytes=1 << 20, end_position=end, min_one_message=True) is None


def test_a_timestamp_is_found(place: tuple[Machine, str]) -> None:
    """Else a consumer that begins at a time misses records or reads from the start."""
    appended = batches(60)
    segment = filled(place, appended)
    for each in (segment, reopened(place, segment), segment):
        for batch in appended:
            for record in (0, 1):
                found = each.find_offset_by_timestamp(batch.timestamp_ms + record, BASE)
                assert found == TimestampAndOffset(batch.timestamp_ms + record, batch.base_offset + record, batch.epoch)
        assert each.find_offset_by_timestamp(NOW, BASE + 5) == TimestampAndOffset(NOW + 20_001, BASE + 5, 0)
        assert each.find_offset_by_timestamp(appended[-1].max_timestamp_ms + 1, BASE) is None
        assert each.largest_timestamp_ms == appended[-1].max_timestamp_ms
        assert each.largest_record_timestamp == (appended[-1].max_timestamp_ms, appended[-1].last_offset)


def test_truncation(place: tuple[Machine, str]) -> None:
    """Else a follower that changes its leader keeps records that no other replica has."""
    appended = batches(60)
    for kept in (0, 1, 17, 59, 60):
        segment = filled(place, appended)
        segment.append_aborted([AbortedTransaction(7, BASE, b.last_offset, b.last_offset + 1) for b in appended[::10]])
        slice_of_all = segment.read(BASE, max_bytes=1 << 20, end_position=1 << 30, min_one_message=True)
        before = segment.size_bytes
        left = appended[:kept]
        cut = segment.truncate_to(appended[kept].base_offset + 1 if kept < 60 else appended[-1].last_offset + 1)
        size = sum(len(encode(batch)) for batch in left)
        assert (segment.size_bytes, cut) == (size, before - size)
        assert segment.read_next_offset() == BASE + 2 * kept
        assert segment.largest_record_timestamp == ((left[-1].max_timestamp_ms, left[-1].last_offset) if left else None)
        assert len(segment.collect_aborted(fetch_offset=0, upper_bound_offset=1 << 40)[0]) == len(left[::10])
        assert slice_of_all is not None
        if kept < 60:
            with pytest.raises(LogTruncatedError):
                slice_of_all.records[0].read()
        for batch in appended[kept:]:
            append(segment, batch)
        if kept < 60:  # others may stand there now: nobody compares them
            with pytest.raises(LogTruncatedError):
                slice_of_all.records[0].read()
        slice_of_all = segment.read(BASE, max_bytes=1 << 20, end_position=1 << 30, min_one_message=True)
        assert slice_of_all is not None
        assert bytes(slice_of_all.records[0].read()) == b"".join(map(encode, appended))
        assert all(segment.find_batch(batch.last_offset) is not None for batch in appended)
        segment.on_become_inactive()
        segment.close()
        segment.delete_files()


def test_renamed_and_removed_while_it_is_read(place: tuple[Machine, str]) -> None:
    """Else a retention run takes the bytes away from a consumer's fetch."""
    machine, folder = place
    appended = batches(5)
    segment = reopened(place, filled(place, appended))
    found = segment.read(BASE, max_bytes=1 << 20, end_position=1 << 30, min_one_message=True)
    assert found is not None
    segment.change_suffix(".deleted")
    names = [info.name for info in machine.files.iter_directory(folder)]
    assert names == [f"{BASE:020d}.{kind}.deleted" for kind in ("index", "log", "timeindex")]
    assert segment.find_batch(BASE + 9) is not None
    segment.delete_files()
    segment.close()
    assert not list(machine.files.iter_directory(folder))
    assert bytes(found.records[0].read()) == b"".join(map(encode, appended))


def test_what_cannot_be_opened_or_appended(place: tuple[Machine, str]) -> None:
    """Else a segment's file is made by whoever looks for it, or an offset comes twice."""
    machine, folder = place
    with pytest.raises(ObjectNotFoundError):
        LogSegment.open(machine, folder, BASE, config=LogConfig())
    assert not list(machine.files.iter_directory(folder))
    segment = filled(place, batches(60))
    for offset in (BASE - 1, BASE + 50, BASE + (1 << 31)):
        before = segment.size_bytes
        with pytest.raises(CorruptRecordError):
            segment.append(b"x" * 100, last_offset=offset, max_timestamp_ms=0)
        assert segment.size_bytes == before
    with pytest.raises(StoreError):
        LogSegment.create(machine, folder, BASE, config=LogConfig())


def test_time_since_the_first_batch(place: tuple[Machine, str]) -> None:
    """Else segments are rolled too early or never."""
    segment = LogSegment.create(*place, BASE, config=LogConfig())
    assert segment.waited_ms(segment.created_ms + 5, NOW) == 5
    for batch in batches(2):
        append(segment, batch)
    assert segment.waited_ms(0, NOW + 77) == 76
    assert reopened(place, segment).waited_ms(0, NOW + 77) == 76


def test_a_thousand_segments_are_opened_at_no_cost(tmp_path: Path) -> None:
    """Else a broker with many segments runs out of descriptors, or takes minutes to start."""
    filled((Machine(), str(tmp_path)), batches(60)).on_become_inactive()
    opened = [LogSegment.open(Machine(), str(tmp_path), BASE, config=LogConfig()) for _ in range(1000)]
    assert {segment.largest_timestamp_ms for segment in opened} == {batches(60)[-1].max_timestamp_ms}
    assert count_open_files(tmp_path) == 0


def test_a_closed_segment_keeps_no_file_open(tmp_path: Path) -> None:
    """Else a broker that runs for long has three files open for each segment that it ever wrote."""
    segment = filled((Machine(), str(tmp_path)), batches(60))
    assert count_open_files(tmp_path) == 3
    segment.flush()
    assert count_open_files(tmp_path) == 3
    segment.on_become_inactive()
    segment.fsync()
    assert count_open_files(tmp_path) == 0
    assert segment.find_batch(BASE + 7) is not None
    segment.truncate_to(BASE + 4)
    for batch in batches(60)[2:]:
        append(segment, batch)
    segment.fsync()
    found = segment.read(BASE, max_bytes=1 << 20, end_position=1 << 30, min_one_message=True)
    assert found is not None
    assert bytes(found.records[0].read()) == b"".join(map(encode, batches(60)))


def test_a_segment_without_timestamps(place: tuple[Machine, str]) -> None:
    """Else retention removes or keeps segments of magic 0 by no time at all."""
    segment = LogSegment.create(*place, BASE, config=LogConfig())
    segment.append(b"x" * 100, last_offset=BASE, max_timestamp_ms=-1)
    assert segment.largest_record_timestamp is None
    assert segment.largest_timestamp_ms == place[0].files.stat(segment.log_path).modified_ms
    segment.delete_files()
    with pytest.raises(LogTruncatedError):
        segment.largest_timestamp_ms  # noqa: B018 - a property that reads


def is_full(segment: LogSegment) -> bool:
    """Whether an append that nothing else is in the way of has to go into a new segment."""
    return segment.must_roll(1, BASE + 100, 0, 0, limit_bytes=1 << 30, limit_ms=1 << 60)


def test_a_full_index(place: tuple[Machine, str]) -> None:
    """Else an index grows beyond what Kafka maps, or a segment is never rolled."""
    segment = LogSegment.create(*place, BASE, config=LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for number, batch in enumerate(batches(9)):
        # Room for 7 offset entries and 5 time entries, the last one for the roll; the first batch gets none.
        assert is_full(segment) == (number > 4)
        append(segment, batch)
    segment.on_become_inactive()
    sizes = [place[0].files.stat(p).size_bytes for p in (segment.offset_index_path, segment.time_index_path)]
    assert sizes == [7 * 8, 5 * 12]
    opened = LogSegment.open(*place, BASE, config=LogConfig(segment_index_bytes=60))
    assert is_full(opened)


def test_a_segment_that_is_opened_goes_on(place: tuple[Machine, str]) -> None:
    """Else a broker's segment gets entries twice, or none, after a restart; zeros that it allocated stay in between."""
    appended = batches(60)
    segment = filled(place, appended[:30])
    segment.on_become_inactive()
    for path in (segment.offset_index_path, segment.time_index_path):
        index = place[0].files.open_update(path)
        index.truncate(index.size_bytes + 12 * 8000)
    opened = LogSegment.open(*place, BASE, config=LogConfig(index_interval_bytes=256))
    for batch in appended[30:]:
        append(opened, batch)
    opened.on_become_inactive()
    offsets = read_offset_index(place[0].files.read_whole(opened.offset_index_path), BASE)[0].tolist()
    times = read_time_index(place[0].files.read_whole(opened.time_index_path), BASE)[0].tolist()
    assert offsets == sorted(set(offsets))
    assert times == sorted(set(times))
    assert {appended[29].max_timestamp_ms, appended[-1].max_timestamp_ms} <= set(times)
    assert all(opened.find_batch(batch.last_offset) is not None for batch in appended)


def test_transaction_index(place: tuple[Machine, str]) -> None:
    """Else readers of committed records see what was aborted, or a torn entry hides all behind it."""
    segment = filled(place, batches(3))
    assert segment.collect_aborted(fetch_offset=0, upper_bound_offset=1 << 40) == ([], False)
    entries = [AbortedTransaction(i, BASE + 2 * i, BASE + 2 * i + 1, BASE + 2 * i + 2) for i in range(5000)]
    segment.append_aborted(entries[:4000])
    index = place[0].files.open_update(segment.transaction_index_path)
    index.append(b"torn")
    opened = LogSegment.open(*place, BASE, config=LogConfig())
    opened.append_aborted(entries[4000:])
    opened.check_transaction_index()
    for each in (opened, LogSegment.open(*place, BASE, config=LogConfig())):
        found, complete = each.collect_aborted(fetch_offset=BASE + 7000, upper_bound_offset=BASE + 7004)
        assert (found, complete) == ([(i, BASE + 2 * i, BASE + 2 * i + 1) for i in (3500, 3501)], True)
        assert len(each.collect_aborted(fetch_offset=0, upper_bound_offset=1 << 40)[0]) == 5000
    with pytest.raises(CorruptIndexError):
        opened.append_aborted(entries[4999:])
    index.write_at(b"\0\1", position=34 * 4500)
    with pytest.raises(CorruptIndexError, match="txnindex @ 153000"):
        LogSegment.open(*place, BASE, config=LogConfig()).check_transaction_index()


def test_a_flush_while_the_transaction_index_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a power cut takes the name of a transaction index that was flushed, and readers of committed
    records get what was aborted.
    """
    files = MemoryFiles()
    files.make_directories("/log")
    filled((Machine(files=files), "/log"), batches(3)).flush()
    files.fsync_directory("/log")
    segment = LogSegment.open(
        Machine(files=files), "/log", BASE, config=LogConfig()
    )  # a new one has synced nothing yet
    made = LazyFile.made

    def flushed_first(file: LazyFile) -> UpdatableFile:
        """Another thread flushes in front of it."""
        if file.path == segment.transaction_index_path:
            segment.flush()
        return made(file)

    monkeypatch.setattr(LazyFile, "made", flushed_first)
    segment.append_aborted([AbortedTransaction(7, BASE, BASE + 1, BASE + 2)])
    segment.flush()
    left = LogSegment.open(Machine(files=files.crash()), "/log", BASE, config=LogConfig())
    assert left.collect_aborted(fetch_offset=0, upper_bound_offset=1 << 40)[0] == [(7, BASE, BASE + 1)]


def test_a_segment_takes_what_just_fits(place: tuple[Machine, str]) -> None:
    """Else it is rolled a batch before Kafka's: followers and the tier have other segments than the leader."""
    machine, _ = place
    first, second = batches(2)
    segment = filled(place, [first])
    held, more = segment.size_bytes, len(encode(second))
    passed_ms = second.max_timestamp_ms - first.max_timestamp_ms

    def rolls(
        *, size: int = more, last_offset: int = BASE + 3, limit_bytes: int = held + more, limit_ms: int = passed_ms
    ) -> bool:
        return segment.must_roll(
            size,
            last_offset,
            second.max_timestamp_ms,
            machine.clock.time_ms(),
            limit_bytes=limit_bytes,
            limit_ms=limit_ms,
        )

    assert not rolls()
    assert rolls(size=more + 1)
    assert rolls(limit_bytes=held + more - 1)
    assert rolls(limit_ms=passed_ms - 1)
    assert not rolls(last_offset=BASE + 2**31 - 1)
    assert rolls(last_offset=BASE + 2**31)
