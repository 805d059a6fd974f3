"""What a segment finds, against a walk over all its batches; damaged logs; readers while the segment changes."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import Batch, encode
from tierlog._native.batches import BatchSearch, scan_batches
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.records.decoding import decode
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles

BASE = 500
FOLDER = "/log"


def new_machine() -> Machine:
    files = MemoryFiles()
    files.make_directories(FOLDER)
    return Machine(files=files)


#: Gap in front of a batch, records, timestamp, bytes of a value.
shapes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 60), st.sampled_from([1, 90, 4000])), max_size=25
)


def batches_of(given_shapes: list[tuple[int, int, int, int]]) -> list[Batch]:
    """Batches as a log has them that was compacted: with gaps between their offsets."""
    found, offset = [], BASE
    for gap, records, timestamp_ms, size in given_shapes:
        offset += gap
        found.append(Batch(offset, (b"v" * size,) * records, timestamp_ms=timestamp_ms, epoch=len(found)))
        offset += records
    return found


def filled(machine: Machine, folder: str, batches: list[Batch], interval: int = 200) -> LogSegment:
    segment = LogSegment.create(machine, folder, BASE, config=LogConfig(index_interval_bytes=interval))
    for batch in batches:
        segment.append(encode(batch), last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp_ms)
    return segment


def records_of(batches: list[Batch]) -> list[tuple[int, int, int]]:
    """(timestamp, offset, epoch) of every record."""
    return [(b.timestamp_ms + i, b.base_offset + i, b.epoch) for b in batches for i in range(len(b.values))]


@given(shapes, st.integers(0, 300), st.booleans())
def test_equal_to_a_walk(given_shapes: list[tuple[int, int, int, int]], interval: int, opened: bool) -> None:
    """Else a record that is in the log is not found, by its offset or its time."""
    machine, batches = new_machine(), batches_of(given_shapes)
    segment = filled(machine, FOLDER, batches, interval)
    if opened:
        segment.on_become_inactive()
        segment = LogSegment.open(machine, FOLDER, BASE, config=LogConfig())
    end = batches[-1].last_offset + 1 if batches else BASE
    for offset in range(BASE - 1, end + 2):
        expected = next((batch for batch in batches if batch.last_offset >= offset), None)
        found = segment.find_batch(offset)
        assert (None if found is None else found.base_offset) == (None if expected is None else expected.base_offset)
    records = records_of(batches)
    for timestamp_ms in range(-1, 66, 3):
        for starting_offset in (BASE, BASE + 7, end):
            wanted = [row for row in records if row[0] >= timestamp_ms and row[1] >= starting_offset]
            assert segment.find_offset_by_timestamp(timestamp_ms, starting_offset) == (wanted[0] if wanted else None)
    assert segment.read_next_offset() == end
    greatest = max((batch.max_timestamp_ms for batch in batches), default=None)
    assert (segment.largest_record_timestamp or (None,))[0] == greatest


@given(shapes, st.integers(0, 110), st.booleans())
def test_truncation_equal_to_a_list(given_shapes: list[tuple[int, int, int, int]], cut: int, opened: bool) -> None:
    """Else a truncated replica keeps records, loses more, or finds them at places that they no longer have."""
    machine, batches = new_machine(), batches_of(given_shapes)
    segment = filled(machine, FOLDER, batches)
    if opened:
        segment.on_become_inactive()
        segment = LogSegment.open(machine, FOLDER, BASE, config=LogConfig(index_interval_bytes=200))
    segment.truncate_to(BASE + cut)
    kept = [batch for batch in batches if batch.last_offset < BASE + cut]
    again = [
        Batch(BASE + cut + 2 * i, (b"w" * 90,) * 2, timestamp_ms=100 + i, epoch=99)
        for i in range(5)
        if BASE + cut > (kept[-1].last_offset if kept else -1)
    ]
    for batch in again:
        segment.append(encode(batch), last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp_ms)
    segment.on_become_inactive()
    left = kept + again
    read = segment.read(0, max_bytes=1 << 30, end_position=1 << 30, min_one_message=True)
    assert (b"" if read is None else bytes(read.records[0].read())) == b"".join(map(encode, left))
    reopened = LogSegment.open(machine, FOLDER, BASE, config=LogConfig())
    for each in (segment, reopened):
        for batch in left:
            found = each.find_batch(batch.last_offset)
            assert found is not None
            assert found.base_offset == batch.base_offset
            assert each.find_offset_by_timestamp(101, BASE) == next(
                (row for row in records_of(left) if row[0] >= 101), None
            )


def test_old_formats(data: Path, tmp_path: Path) -> None:
    """Else a log of before 2017 cannot be read by offset or by time."""
    logs = sorted((data / "record-v0-v1").glob("*.log"))
    assert logs
    for log in logs:
        content = log.read_bytes()
        (tmp_path / f"{0:020d}.log").write_bytes(content)
        segment = LogSegment.open(Machine(), str(tmp_path), 0, config=LogConfig())
        columns = scan_batches(content)[0]
        for position, last_offset in zip(columns["position"].tolist(), columns["last_offset"].tolist(), strict=True):
            found = segment.find_batch(last_offset)
            assert found is not None
            assert found.position == position
        rows = decode(content, columns=("offset", "timestamp", "leaderEpoch"), control_records=True)
        times, offsets = (rows.column(name).cast("int64").to_pylist() for name in ("timestamp", "offset"))
        for wanted in sorted(set(times)):
            first = next(at for at, time in enumerate(times) if time >= wanted)
            record = segment.find_offset_by_timestamp(wanted, 0)
            assert record is not None
            assert record[:2] == (times[first], offsets[first]), log


@given(shapes, st.randoms(use_true_random=False), st.integers(0, 3))
def test_damaged_logs(given_shapes: list[tuple[int, int, int, int]], rng: random.Random, kind: int) -> None:
    """Else a damaged file ends the process, hangs it, or gives an error of no type of ours."""
    machine = new_machine()
    segment = filled(machine, FOLDER, batches_of(given_shapes))
    segment.on_become_inactive()
    for path in (segment.log_path, segment.offset_index_path, segment.time_index_path):
        content = bytearray(machine.files.read_whole(path))
        if kind == 0 and content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del content[rng.randrange(len(content) + 1) :]
        elif kind == 2:
            content = bytearray(rng.randbytes(len(content)))
        elif content:
            at = rng.randrange(len(content))
            content[at : at + 8] = b"\x7f\xff\xff\xff\xff\xff\xff\xff"
        machine.files.write_whole(path, bytes(content))
    for target in (0, BASE, BASE + 5, BASE + 40, 2**62):
        damaged = LogSegment.open(machine, FOLDER, BASE, config=LogConfig())
        for call in (
            lambda each=damaged, offset=target: each.find_batch(offset),
            lambda each=damaged, offset=target: each.find_offset_by_timestamp(offset % 64, offset),
            lambda each=damaged: each.read_next_offset(),
            lambda each=damaged: each.largest_timestamp_ms,
            lambda each=damaged, offset=target: each.fetch_upper_bound_offset(position=offset, size_bytes=100),
            lambda each=damaged, offset=target: each.read(
                offset, max_bytes=100, end_position=2**40, min_one_message=True
            ),
            lambda each=damaged, offset=target: each.truncate_to(offset),
        ):
            with contextlib.suppress(CorruptDataError):
                call()


def test_a_batch_that_is_cut_off_is_none() -> None:
    """Else a log that a crash tore ends a read with an error, although all its whole batches can be read."""
    machine, batches = new_machine(), batches_of([(0, 2, 5, 90)] * 10)
    segment = filled(machine, FOLDER, batches)
    segment.on_become_inactive()
    content, size = machine.files.read_whole(segment.log_path), segment.size_bytes // 10
    for torn in (1, 16, 17, 60, 61, size - 1):
        machine.files.write_whole(segment.log_path, content[: 9 * size + torn])
        opened = LogSegment.open(machine, FOLDER, BASE, config=LogConfig())
        assert opened.find_batch(BASE + 17) is not None
        assert opened.find_batch(BASE + 18) is None
        assert opened.read_next_offset() == BASE + 18
        assert opened.find_offset_by_timestamp(7, BASE) is None


def test_a_wrong_header_is_told(tmp_path: Path) -> None:
    """Else the user does not learn which file to look at."""
    segment = filled(Machine(), str(tmp_path), batches_of([(0, 2, 5, 90)] * 3))
    size = segment.size_bytes // 3
    with Path(segment.log_path).open("r+b") as file:
        file.seek(size + 16)
        file.write(b"\x07")
    with pytest.raises(CorruptRecordError, match=f"{BASE:020d}.log @ {size}"):
        segment.find_batch(BASE + 3)


def test_search_needs_a_position() -> None:
    """Else a negative position of a damaged index reads in front of the file."""
    with pytest.raises(ValueError, match="negative"):
        BatchSearch(position=-1, end_position=10, least_last_offset=0)


def read_at_random(segment: LogSegment, rng: random.Random, *, cuts: bool) -> None:
    """One read of each kind; where the segment is not cut, it must find what it asks for."""
    size = segment.size_bytes
    offset = rng.randrange(BASE, BASE + max(1, size // 300))
    found = segment.read(offset, max_bytes=500, end_position=size, min_one_message=True)
    if found is None:
        assert cuts
        return
    assert found.first_offset == offset or cuts
    with contextlib.suppress(LogTruncatedError):
        columns, _, _, fault = scan_batches(found.records[0].read(), verify_crc=not cuts)
        assert cuts or (fault is None and bool(columns["crc_ok"].all()))
    segment.find_offset_by_timestamp(rng.randrange(0, 4000), BASE)
    segment.fetch_upper_bound_offset(position=rng.randrange(size), size_bytes=100)


@pytest.mark.parametrize(("cuts", "closes"), [(False, False), (True, False), (True, True)])
def test_readers_while_the_segment_changes(tmp_path: Path, cuts: bool, closes: bool) -> None:
    """Else a consumer of a partition that is written to gets an error, or another record than it asked for."""
    segment = filled(Machine(), str(tmp_path), batches_of([(0, 1, 5, 90)]), interval=0)
    stop = threading.Event()
    errors: list[BaseException] = []

    def repeat(call: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                call()
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            errors.append(error)

    calls: list[Callable[[], object]] = [
        functools.partial(read_at_random, segment, random.Random(seed), cuts=cuts) for seed in range(3)
    ]
    others = [threading.Thread(target=repeat, args=(call,)) for call in (*calls, segment.fsync)[: 4 if closes else 3]]
    for other in others:
        other.start()
    rng, offset = random.Random(99), BASE + 1
    for step in range(3000):
        if cuts and step % 50 == 49:
            offset = rng.randrange(max(BASE, offset - 40), offset + 1)
            segment.truncate_to(offset)
        if closes and step % 50 == 20:
            segment.on_become_inactive()
        batch = Batch(offset, (b"v" * rng.choice([80, 90, 200]),), timestamp_ms=step)
        segment.append(encode(batch), last_offset=offset, max_timestamp_ms=step)
        offset += 1
    stop.set()
    for other in others:
        other.join()
    if errors:
        raise errors[0]
    whole = segment.read(BASE, max_bytes=1 << 30, end_position=1 << 30, min_one_message=True)
    assert whole is not None
    columns, _, partial, fault = scan_batches(whole.records[0].read())
    assert fault is None
    assert not partial
    assert columns["crc_ok"].all()
    assert columns["base_offset"].tolist() == list(range(BASE, offset))
