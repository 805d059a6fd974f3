"""Ranges side by side: order, memory, errors and cancelling, with scripted ranges instead of logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS, ends
from tierlog.scan.reading.parallel_scan import BUFFERED_BATCHES, ParallelScan


def ranges(count: int) -> list[Any]:
    return [SimpleNamespace(number=number) for number in range(count)]


def row(number: int, at: int) -> pa.RecordBatch:
    return pa.record_batch({"range": [number], "at": [at]})


def read_five(scan_range: Any) -> Iterator[pa.RecordBatch]:
    for at in range(5):
        yield row(scan_range.number, at)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_in_the_order_of_the_ranges(threads: int) -> None:
    """Offsets of a partition would come out of order."""
    got = [(b["range"][0].as_py(), b["at"][0].as_py()) for b in ParallelScan(ranges(20), read_five, threads=threads)]
    assert got == [(number, at) for number in range(20) for at in range(5)]


def test_ranges_are_worked_on_side_by_side() -> None:
    """Only one core would decode."""
    together = threading.Barrier(3, timeout=LIMIT_SECONDS)

    def read(scan_range: Any) -> Iterator[pa.RecordBatch]:
        together.wait()
        yield row(scan_range.number, 0)

    assert len(list(ParallelScan(ranges(3), read, threads=3))) == 3


def test_what_waits_is_bounded() -> None:
    """A slow consumer would fill the memory with decoded records."""
    made: list[int] = []

    def read(scan_range: Any) -> Iterator[pa.RecordBatch]:
        for at in range(100):
            made.append(scan_range.number)
            yield row(scan_range.number, at)

    scan = ParallelScan(ranges(50), read, threads=2)
    for taken in range(1, 151):
        next(scan)
        assert len(made) - taken <= 3 * (BUFFERED_BATCHES + 1)
    scan.close()


def test_an_error_comes_at_its_place_and_ends_the_scan() -> None:
    """Good rows before the damage would be lost, or rows after it given as if nothing had been."""
    closed: list[str] = []

    def read(scan_range: Any) -> Iterator[pa.RecordBatch]:
        yield row(scan_range.number, 0)
        if scan_range.number == 3:
            raise ValueError("broken")

    scan = ParallelScan(ranges(10), read, threads=4, on_close=lambda: closed.append("closed"))
    got: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        got.extend(batch["range"][0].as_py() for batch in scan)
    assert got == [0, 1, 2, 3]
    assert closed == ["closed"]
    for _ in range(2):  # who asks on must not take what came for all there is
        with pytest.raises(ValueError, match="broken"):
            next(scan)


def test_the_end_stays_the_end() -> None:
    """An iterator that raises behind its end breaks whoever looks twice, as chains of iterators do."""
    scan = ParallelScan(ranges(2), read_five)
    assert len(list(scan)) == 10
    assert next(scan, None) is None
    scan.close()
    assert next(scan, None) is None


def test_what_is_closed_gives_no_more_and_says_so() -> None:
    """A consumer would take the part that it got for the whole topic."""
    scan = ParallelScan(ranges(100), read_five, threads=2)
    next(scan)
    scan.close()
    with pytest.raises(ValueError, match="the reader is closed"):
        next(scan)


def test_closing_wakes_who_waits_for_a_store_that_hangs() -> None:
    """A disk that hangs holds its thread, which nobody can end; neither closing nor the consumer may wait for it."""
    closed, reading, go = threading.Event(), threading.Event(), threading.Event()
    said: list[BaseException] = []

    def read(scan_range: Any) -> Iterator[pa.RecordBatch]:
        reading.set()
        go.wait(ENDLESS_SECONDS)
        yield row(scan_range.number, 0)

    scan = ParallelScan(ranges(2), read, threads=1, on_close=closed.set)

    def consume() -> None:
        try:
            next(scan)
        except ValueError as error:
            said.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert reading.wait(LIMIT_SECONDS)
    with ends():
        scan.close()
        consumer.join()
    assert [str(error) for error in said] == ["the reader is closed"]
    assert not closed.is_set()  # what the stuck read reads from must not be closed under it
    go.set()
    assert closed.wait(LIMIT_SECONDS)


def test_dropping_it_closes_the_ranges_under_way() -> None:
    """Windows that are read, files and threads of an abandoned read would stay."""
    ended: list[int] = []
    closed: list[str] = []

    def read(scan_range: Any) -> Iterator[pa.RecordBatch]:
        try:
            for at in range(1000):
                yield row(scan_range.number, at)
        finally:
            ended.append(scan_range.number)

    scan = ParallelScan(ranges(10), read, threads=2, on_close=lambda: closed.append("closed"))
    next(scan)
    del scan
    assert sorted(ended) == list(range(len(ended)))
    assert ended
    assert closed == ["closed"]


def test_a_scan_that_is_never_used_only_closes() -> None:
    """A reader that is made and dropped would leak its tier."""
    closed: list[str] = []
    scan = ParallelScan(ranges(3), read_five, on_close=lambda: closed.append("closed"))
    scan.close()
    scan.close()
    assert closed == ["closed"]
    with pytest.raises(ValueError, match="the reader is closed"):
        next(scan)
