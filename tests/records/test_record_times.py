"""The least timestamp of each batch, which readers prune by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import DecodeOptions, decode
from tests.support.oracle import scan as oracle_scan
from tierlog._native.batches import scan_batches
from tierlog.records.batch_runs import BatchRun
from tierlog.records.builder import RecordBatchBuilder
from tierlog.records.record_times import least_timestamps

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMES = st.one_of(st.integers(-1, 1000), st.integers(0, 2**50))
#: (codec, append time, control, timestamps, greatest of the header if it is another)
BATCHES = st.tuples(
    st.sampled_from(CODECS),
    st.sampled_from((None, None, None, 700)),
    st.sampled_from((False, False, False, True)),
    st.lists(TIMES, max_size=5),
    st.sampled_from((None, None, 2**51)),
)


def log_of(batches: list[tuple[str, int | None, bool, list[int], int | None]], offset: int = 0) -> bytes:
    data = b""
    for codec, append_time, control, times, greatest in batches:
        builder = RecordBatchBuilder(
            offset, codec="none" if control else codec, log_append_time_ms=append_time, control=control
        )
        for time in times:
            builder.append(b"\0\0\0\1", b"\0\0\0\0\0\0", timestamp_ms=time)
        data += builder.build(last_offset=max(builder.next_offset - 1, offset), max_timestamp_ms=greatest)
        offset = max(builder.next_offset, offset + 1)
    return data


def run_of(data: bytes) -> BatchRun:
    columns, _, _, fault = scan_batches(data)
    assert fault is None
    return BatchRun(columns, 0, memoryview(data))


@given(st.lists(BATCHES, min_size=1, max_size=12))
def test_it_is_the_least_of_the_records(
    batches: list[tuple[str, int | None, bool, list[int], int | None]],
) -> None:
    """If this fails, a query with an upper bound of time leaves records out."""
    data = log_of(batches)
    least, known = least_timestamps(run_of(data))
    times: dict[int, list[int]] = {}
    for record in decode(data, DecodeOptions(control_records=True))[0]:
        times.setdefault(record.batch_position, []).append(record.timestamp)
    for number, header in enumerate(oracle_scan(data).headers):
        found = times.get(header.position, [])
        append_time, control = batches[number][1], batches[number][2]
        assert known[number] == (append_time is not None or control or not found or max(found) == header.max_timestamp)
        if known[number] and not control:
            assert least[number] == min(found, default=header.max_timestamp)


def test_a_batch_that_cannot_be_read_is_not_known() -> None:
    """If this fails, one rotten batch makes the times of all behind it unknown, or ends a copy."""
    parts = [log_of([("zstd", None, False, [10 * n, 10 * n + 3], None)], 2 * n) for n in range(300)]
    bad = bytearray(parts[1])
    bad[70:80] = bytes(10)
    behind = log_of([("lz4", None, False, [7, 5, 8], None)], 4)
    least, known = least_timestamps(run_of(parts[0] + bytes(bad) + behind))
    assert known.tolist() == [True, False, True]
    assert (least[0], least[2]) == (0, 5)
    for part in range(1, 300):
        parts[part] = parts[part][:61] + bytes(len(parts[part]) - 61)
    _, known = least_timestamps(run_of(b"".join(parts)))
    assert known.tolist() == [True] + [False] * 299


def test_a_batch_that_is_too_large_is_not_looked_at() -> None:
    """If this fails, one batch that decompresses to gigabytes takes them from the broker that copies it."""
    builder = RecordBatchBuilder(0, codec="zstd")
    builder.append(None, bytes(1 << 20), timestamp_ms=5)
    data = builder.build() + log_of([("zstd", None, False, [9], None)], 1)
    assert least_timestamps(run_of(data))[1].tolist() == [True, True]
    least, known = least_timestamps(run_of(data), decompressed_bytes_max=1 << 16)
    assert (known.tolist(), least[1]) == ([False, True], 9)


def test_a_batch_of_many_records_is_one() -> None:
    """If this fails, the least of a large batch is that of its last piece."""
    builder = RecordBatchBuilder(0)
    for number in range(300_000):
        builder.append(None, b"", timestamp_ms=abs(150_000 - number))
    least, known = least_timestamps(run_of(builder.build()))
    assert (least.tolist(), known.tolist()) == ([0], [True])
