"""Index entries of a growing segment, against those that Kafka 4.3 wrote while it appended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.checks.test_index_builder import closed_segments, interval_of
from tests.support.sparse_indexes import indexes_of
from tierlog._native.appends import IndexTail
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptRecordError

BASE = 5000


def tail_of(base_offset: int, interval: int, entries: int = 10_000) -> IndexTail:
    return IndexTail(base_offset, interval_bytes=interval, offset_entries_max=entries, time_entries_max=entries)


def grown(log: Path, interval: int, step: int) -> tuple[bytes, bytes]:
    """The index files of a segment that grew by so many batches at a time, and was closed."""
    tail = tail_of(int(log.stem), interval)
    columns = scan_batches(log.read_bytes())[0]
    offsets, times = b"", b""
    for start in range(0, len(columns["position"]), step):
        piece = {name: column[start : start + step] for name, column in columns.items()}
        new_offsets, new_times = tail.add(piece, position=int(piece["position"][0]))
        offsets += new_offsets
        times += new_times
    return offsets, times + tail.close()


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_equal_to_the_brokers_own(data: Path, run: str, step: int) -> None:
    """Else a segment of ours has other indexes than Kafka's."""
    for log in closed_segments(data / run):
        offsets, times = grown(log, interval_of(data / run, log), step)
        assert offsets == log.with_suffix(".index").read_bytes(), log
        assert times == log.with_suffix(".timeindex").read_bytes(), log


batches = st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 20), st.integers(61, 200)), max_size=30)


@given(batches, st.integers(0, 500))
def test_one_by_one_and_together(given_batches: list[tuple[int, int, int]], interval: int) -> None:
    """Else the indexes depend on how batches came in."""
    steps = np.array(given_batches, np.int64).reshape(-1, 3)
    last_offsets = BASE - 1 + np.cumsum(steps[:, 0])
    sizes = steps[:, 2]
    positions = np.cumsum(sizes) - sizes
    columns = {"last_offset": last_offsets, "max_timestamp": steps[:, 1], "size_bytes": sizes, "position": positions}
    tail, single = tail_of(BASE, interval), tail_of(BASE, interval)
    together = tail.add(columns, position=0)
    parts = [
        single.add_batch(last_offset=last, max_timestamp=time, position=position, size_bytes=size)
        for last, time, position, size in zip(
            last_offsets.tolist(), steps[:, 1].tolist(), positions.tolist(), sizes.tolist(), strict=True
        )
    ]
    assert together == (b"".join(p[0] for p in parts), b"".join(p[1] for p in parts))
    assert tail.max_timestamp == single.max_timestamp == max([-1, *steps[:, 1].tolist()])
    closing = tail.close()
    assert closing == single.close()
    rows = zip(last_offsets.tolist(), steps[:, 1].tolist(), sizes.tolist(), strict=True)
    assert indexes_of(BASE, rows, interval_bytes=interval) == (together[0], together[1] + closing)
    assert tail.close() == b""


def test_a_segment_that_is_opened_again_goes_on() -> None:
    """Else after a restart entries come twice, or none ever again."""
    tail = tail_of(BASE, 100, entries=3)
    tail.resume(offset_entries=2, last_offset=BASE + 9, time_entries=1, last_time=70, last_time_offset=BASE + 5)
    assert not tail.is_full
    assert (tail.max_timestamp, tail.max_timestamp_offset, tail.bytes_since_entry) == (70, BASE + 5, 0)
    assert tail.add_batch(last_offset=BASE + 10, max_timestamp=60, position=500, size_bytes=101) == (b"", b"")
    offsets, times = tail.add_batch(last_offset=BASE + 11, max_timestamp=80, position=601, size_bytes=101)
    assert (offsets, times) == (b"\0\0\0\x0b\0\0\x02\x59", (80).to_bytes(8, "big") + b"\0\0\0\x0b")
    assert tail.is_full
    assert tail.add_batch(last_offset=BASE + 12, max_timestamp=90, position=702, size_bytes=101) == (b"", b"")
    assert tail.close() == (90).to_bytes(8, "big") + b"\0\0\0\x0c"


def test_offsets_that_do_not_fit_are_refused() -> None:
    """Else a lookup in the index goes to another record."""
    tail = tail_of(BASE, 0)
    tail.add_batch(last_offset=BASE + 1, max_timestamp=1, position=0, size_bytes=100)
    tail.add_batch(last_offset=BASE + 3, max_timestamp=1, position=100, size_bytes=100)
    for last_offset, position in [(BASE + 3, 200), (BASE + 2**31, 200), (BASE + 4, 2**31)]:
        with pytest.raises(CorruptRecordError):
            tail.add_batch(last_offset=last_offset, max_timestamp=1, position=position, size_bytes=100)
    assert tail.add_batch(last_offset=BASE + 4, max_timestamp=1, position=200, size_bytes=100)[0]
    with pytest.raises(ValueError, match="length"):
        tail.add(
            {"last_offset": np.array([9]), "max_timestamp": np.array([]), "size_bytes": np.array([1])}, position=300
        )
