"""What is checked of a segment before it may count as copied."""

from __future__ import annotations

import os
import pathlib
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.support.closed_segments import ClosedSegment, golden_segments
from tests.support.segments import make_segment, sound_log
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError, ObjectNotFoundError
from tierlog.remote.api import IndexType
from tierlog.remote.storage.copy.copy_checks import (
    LogCheck,
    SourceFiles,
    check_index_parts,
    check_size,
    is_mostly_compressed,
)
from tierlog.runtime.machine.files import ReadableFile
from tierlog.runtime.machine.posix_files import PosixFiles

FILES = PosixFiles()


def parts_of(segment: ClosedSegment) -> tuple[dict[IndexType, bytes], dict[IndexType, str]]:
    data = segment.data
    paths = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
    }
    if data.transaction_index is not None:
        paths[IndexType.TRANSACTION] = data.transaction_index
    parts = {kind: pathlib.Path(path).read_bytes() for kind, path in paths.items()}
    return parts | {IndexType.LEADER_EPOCH: data.leader_epoch_index}, paths


def check(segment: ClosedSegment, *, window_bytes: int = 4096) -> None:
    """All of it, as a copy does it."""
    parts, paths = parts_of(segment)
    log = segment.log
    windows: Iterator[memoryview] = (memoryview(log)[at : at + window_bytes] for at in range(0, len(log), window_bytes))
    with FILES.open_read(segment.data.log_segment) as file:
        check_size(file, segment.data.log_segment, segment.metadata)
    check_index_parts(parts, segment.metadata, paths)
    LogCheck(segment.metadata, parts, paths, segment.data.log_segment).follow(windows)


@pytest.mark.parametrize(
    "run", ["main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta", "local-tiered"]
)
def test_every_closed_segment_of_a_real_broker_passes(run: str, fixtures: pathlib.Path) -> None:
    """A check that refuses what a sound broker wrote would stop its tiering, and fill its disk."""
    segments = list(golden_segments(fixtures / run))
    assert len(segments) > 5
    for segment in segments:
        check(segment)


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


@pytest.mark.parametrize("window_bytes", [100, 4096, 1 << 20])
def test_a_sound_segment_passes_however_it_is_read(segment: ClosedSegment, window_bytes: int) -> None:
    """Batches that straddle two windows are checked too, and are not mistaken for damage."""
    check(segment, window_bytes=window_bytes)


def test_a_large_batch_is_not_held(tmp_path: pathlib.Path) -> None:
    """Ten copies of segments of one batch each must fit their budget too."""
    large = make_segment(sound_log(1, base_offset=100, batch_bytes=(24 << 20) + 100), index_interval_bytes=0).closed_in(
        tmp_path / "large"
    )
    log = memoryview(large.log)
    assert len(log) > 24 << 20
    windows = iter([log[at : at + (1 << 20)] for at in range(0, len(log), 1 << 20)])
    parts, paths = parts_of(large)
    tracemalloc.start()
    try:
        LogCheck(large.metadata, parts, paths, large.data.log_segment).follow(windows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def flip(path: str, position: int) -> None:
    data = bytearray(pathlib.Path(path).read_bytes())
    data[position] ^= 0x10
    pathlib.Path(path).write_bytes(data)


def test_a_flipped_bit_anywhere_in_the_log_is_found(segment: ClosedSegment) -> None:
    """What is tiered is soon gone from the disk: a rotten batch must not become the only copy."""
    size = len(segment.log)
    for position in range(3, size, size // 23):
        flip(segment.data.log_segment, position)
        with pytest.raises(CorruptDataError):
            check(segment)
        flip(segment.data.log_segment, position)
    check(segment)


def rewritten(path: str, change: Callable[[bytes], bytes]) -> None:
    file = pathlib.Path(path)
    file.write_bytes(change(file.read_bytes()))


def test_a_log_that_ends_inside_a_batch_is_refused(segment: ClosedSegment) -> None:
    """A torn tail is what an active segment looks like: it was not closed."""
    rewritten(segment.data.log_segment, lambda log: log[:-10])
    with pytest.raises(CorruptDataError, match="bytes"):
        check(segment)
    shorter = replace(segment, metadata=replace(segment.metadata, segment_size_in_bytes=len(segment.log)))
    with pytest.raises(CorruptRecordError, match="ends inside a batch"):
        check(shorter)


def test_offsets_above_the_given_end_are_refused(segment: ClosedSegment) -> None:
    """Records above what is committed may still be truncated: they must not be in the tier for ever."""
    early = replace(segment, metadata=replace(segment.metadata, end_offset=segment.metadata.end_offset - 1))
    with pytest.raises(CorruptRecordError, match="can stand"):
        check(early)


def test_batches_that_go_back_are_refused(segment: ClosedSegment) -> None:
    """A log whose offsets fall would be read twice, or not at all."""
    rewritten(segment.data.log_segment, lambda log: log + log)
    doubled = replace(segment, metadata=replace(segment.metadata, segment_size_in_bytes=len(segment.log)))
    with pytest.raises(CorruptRecordError, match="can stand"):
        check(doubled)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("offset_index", lambda data: data[:-3]),
        ("offset_index", lambda data: data[:4] + struct.pack(">i", 17) + data[8:]),
        ("offset_index", lambda data: data + struct.pack(">ii", 2000, 1 << 30)),
        ("offset_index", lambda data: data[8:16] + data[:8] + data[16:]),
        ("time_index", lambda data: data[:-5]),
        ("time_index", lambda data: struct.pack(">q", 1) + data[8:]),
        ("producer_snapshot", lambda data: data[:-1]),
        ("producer_snapshot", lambda data: b"\0\1\0\0\0\0" + data[6:]),
    ],
)
def test_an_index_that_does_not_fit_its_log_is_refused(
    segment: ClosedSegment, name: str, change: Callable[[bytes], bytes]
) -> None:
    """A consumer that seeks through a wrong index reads the wrong records, for ever."""
    rewritten(getattr(segment.data, name), change)
    with pytest.raises(CorruptIndexError) as caught:
        check(segment)
    assert pathlib.Path(getattr(segment.data, name)).name in str(caught.value)


def test_bad_leader_epochs_and_transactions_are_refused(segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """A lineage that cannot be read would make the whole partition unreadable from the tier."""
    with pytest.raises(CorruptIndexError):
        check(replace(segment, data=replace(segment.data, leader_epoch_index=b"0\n2\n0 0\n")))
    bad = tmp_path / "bad.txnindex"
    bad.write_bytes(b"\0" * 33)
    with pytest.raises(CorruptIndexError, match="txnindex"):
        check(replace(segment, data=replace(segment.data, transaction_index=str(bad))))


def test_empty_parts_are_legal(segment: ClosedSegment) -> None:
    """Short segments have empty indexes; refusing them would stop the tiering of quiet topics."""
    for name in ("offset_index", "time_index", "producer_snapshot"):
        rewritten(getattr(segment.data, name), lambda _: b"")
    check(replace(segment, data=replace(segment.data, leader_epoch_index=b"")))


def test_files_that_change_or_vanish_are_noticed(segment: ClosedSegment) -> None:
    """A file that is replaced while it is read gives a segment that never was."""
    before = SourceFiles.of(FILES, segment.data)
    before.check_unchanged()
    path = pathlib.Path(segment.data.log_segment)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(CorruptDataError, match="changed while"):
        before.check_unchanged()
    before = SourceFiles.of(FILES, segment.data)
    content = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(content)
    os.utime(path, ns=(path.with_suffix(".old").stat().st_mtime_ns,) * 2)
    with pytest.raises(CorruptDataError, match="changed while"):
        before.check_unchanged()
    path.unlink()
    with pytest.raises(ObjectNotFoundError):
        before.check_unchanged()
    with pytest.raises(ObjectNotFoundError):
        SourceFiles.of(FILES, segment.data)


@pytest.mark.parametrize(
    ("codecs", "mostly"),
    [
        (("none",), False),
        (("zstd",), True),
        (("none", "lz4", "lz4", "lz4"), True),
        (("lz4", "none", "none", "none"), False),
    ],
)
@pytest.mark.parametrize("index_interval_bytes", [4096, 1 << 20])
def test_compression_is_decided_by_most_bytes(
    tmp_path: pathlib.Path, codecs: tuple[str, ...], mostly: bool, index_interval_bytes: int
) -> None:
    """The plugin goes by the first batch: a segment that changes its codec after it is stored the wrong way round."""
    made = make_segment(
        sound_log(80, base_offset=100, codecs=codecs), index_interval_bytes=index_interval_bytes
    ).closed_in(tmp_path / "log")
    with FILES.open_read(made.data.log_segment) as log:
        index = pathlib.Path(made.data.offset_index).read_bytes()
        assert is_mostly_compressed(log, index, base_offset=made.metadata.start_offset) is mostly


@pytest.mark.parametrize(
    ("codecs", "mostly"), [(("zstd",), True), (("none",) * 3 + ("zstd",) * 2, False), (("none", "zstd"), None)]
)
def test_of_many_batches_some_stand_for_all(
    tmp_path: pathlib.Path, codecs: tuple[str, ...], mostly: bool | None
) -> None:
    """A segment of a hundred thousand batches must be judged by a few of them, from its first to its last byte."""
    made = make_segment(
        sound_log(1300, base_offset=100, batch_bytes=200, codecs=codecs), index_interval_bytes=0
    ).closed_in(tmp_path / "log")

    class Counting:
        """The log, and how often it was read."""

        reads = 0

        def __init__(self, log: ReadableFile) -> None:
            self.log = log
            self.size_bytes = log.size_bytes

        def read_into(self, buffer: bytearray, *, position: int) -> int:
            self.reads += 1
            return self.log.read_into(buffer, position=position)

    with FILES.open_read(made.data.log_segment) as file:
        log = Counting(file)
        index = pathlib.Path(made.data.offset_index).read_bytes()
        answer = is_mostly_compressed(log, index, base_offset=made.metadata.start_offset)  # type: ignore[arg-type]
        assert mostly is None or answer is mostly
        assert log.reads == 512


def test_bytes_that_are_no_log_are_compressed(tmp_path: pathlib.Path) -> None:
    """The decision must not fail in place of the check that says what is wrong."""
    made = make_segment(sound_log(base_offset=100, codecs=("zstd",))).closed_in(tmp_path / "log")
    with FILES.open_read(made.data.log_segment) as log:
        assert is_mostly_compressed(log, b"\0" * 7, base_offset=made.metadata.start_offset), "by a walk"
    path = tmp_path / "noise.log"
    path.write_bytes(b"\xff" * 1000)
    with FILES.open_read(str(path)) as log:
        assert not is_mostly_compressed(log, b"\0" * 7, base_offset=0)
    path.write_bytes(b"")
    with FILES.open_read(str(path)) as log:
        assert not is_mostly_compressed(log, b"", base_offset=0)


def test_the_fixture_of_the_heuristic_is_decided_as_the_plugin_did(fixtures: pathlib.Path) -> None:
    """Where producers keep to one codec, ours and the plugin's answer are the same."""
    decided: dict[str, set[bool]] = {}
    for segment in golden_segments(fixtures / "heuristic"):
        with FILES.open_read(segment.data.log_segment) as log:
            index = pathlib.Path(segment.data.offset_index).read_bytes()
            answer = is_mostly_compressed(log, index, base_offset=segment.metadata.start_offset)
        decided.setdefault(segment.metadata.topic_id_partition.topic, set()).add(answer)
    assert decided == {"fx-heuris-json": {False}, "fx-heuris-txn": {False}, "fx-heuris-zs": {True}}
