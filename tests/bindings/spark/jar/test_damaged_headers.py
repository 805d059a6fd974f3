"""One bit of a log flipped, wherever: an aggregate is that of the rows, or an error as theirs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.segments import Aborted
from tests.support.task_reader import Store, TaskReaderProcess, plan_of, rows_as_text
from tierlog import open_tier
from tierlog.errors import TierlogError
from tierlog.records import scan
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range, summarise_range
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_request import IsolationLevel, RecordFilter, ScanRequest, TopicSelection

HEADER_BYTES = 61
LISTED = ("offset", "timestamp")
WANTED: frozenset[SummaryField] = frozenset({"count", "min_offset", "max_offset", "min_timestamp", "max_timestamp"})
#: What headers alone can say of CreateTime.
OF_HEADERS: frozenset[SummaryField] = WANTED - {"min_timestamp"}

#: (count, least offset, greatest, least timestamp, greatest), or (class, message) of an error.
Answer = tuple[Any, ...]


def batches() -> list[Batch]:
    """Plain ones, a transaction that is aborted, and one that is not."""
    of_producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    return [
        Batch(0, (b"plain",) * 5),
        Batch(5, (b"plain",) * 7, timestamp_ms=1_700_000_001_000),
        Batch(12, (b"aborted",) * 4, producer_id=7, producer_epoch=0, transactional=True),
        Batch(16, producer_id=7, producer_epoch=0, marker="abort"),
        replace(Batch(17, (b"committed",) * 3), **of_producer),
        Batch(20, producer_id=7, producer_epoch=0, marker="commit"),
        Batch(21, (b"last",) * 2, timestamp_ms=1_700_000_002_000),
    ]


class Damaged:
    """A bucket of one segment, and the answers of both engines to whatever its log is made to hold."""

    def __init__(self, root: pathlib.Path, jvm: TaskReaderProcess, tier: Tier, request: ScanRequest) -> None:
        self._jvm, self._tier, self._store = jvm, tier, Store(str(root.resolve()))
        (self._log,) = root.rglob("*.log")
        self._sound = self._log.read_bytes()
        self._ranges = {
            fail: plan_scan(tier, replace(request, fail_on_data_loss=fail)).ranges for fail in (True, False)
        }
        table = scan(self._sound)
        self.positions: list[int] = table.position.tolist()
        self.sizes: list[int] = table.size_bytes.tolist()

    def restore(self) -> None:
        self._log.write_bytes(self._sound)

    def flip(self, bit: int) -> None:
        data = bytearray(self._sound)
        data[bit // 8] ^= 1 << bit % 8
        self._log.write_bytes(data)

    def listed_by_jar(self) -> list[str]:
        """Offsets and times, or the error in place of them."""
        answer = self._jvm.read(self._ranges[True], self._store, LISTED)
        return list(answer.error) if answer.error else answer.rows

    def listed_by_python(self) -> list[str]:
        found = []
        try:
            for each in self._ranges[True]:
                found += rows_as_text(read_scan_range(self._tier, each, columns=LISTED, timestamp_unit="us"))
        except TierlogError as error:
            return [type(error).__name__, str(error)]
        return found

    def by_rows(self, *, fail: bool) -> Answer:
        parts = []
        try:
            for each in self._ranges[fail]:
                parts += [
                    [np.asarray(rows[name].cast("int64")) for name in LISTED]
                    for rows in read_scan_range(self._tier, each, columns=LISTED)
                ]
        except TierlogError as error:
            return type(error).__name__, str(error)
        if not parts:
            return (0,)
        offsets, times = np.concatenate(parts, axis=1)
        return len(offsets), *(int(end) for column in (offsets, times) for end in (column.min(), column.max()))

    def by_python(self, wanted: frozenset[SummaryField]) -> Answer:
        """As the planner answers it."""
        found = RecordSummary()
        try:
            for each in self._ranges[True]:
                found.add(summarise_range(self._tier, each, wanted))
        except TierlogError as error:
            return type(error).__name__, str(error)
        if not found.count:
            return (0,)
        return found.count, found.min_offset, found.max_offset, found.min_timestamp, found.max_timestamp

    def by_jar(self, wanted: frozenset[SummaryField], *, fail: bool, trust: bool = False) -> Answer:
        words = {name for name in wanted if name.endswith("timestamp")}
        words |= {"offsets"} if "min_offset" in wanted else set()
        request = plan_of(self._ranges[fail], self._store)
        told = self._jvm.ask(request | {"summary": sorted(words), "verifyChecksums": True, "trustHeaders": trust})
        assert (told["nativeBytes"], told["files"], told["readers"]) == (0, 0, 0)
        if "error" in told:
            return told["kind"], told["error"]
        if not told["count"]:
            return (0,)
        times = [told[f"{end}TimestampUs"] // 1000 for end in ("least", "greatest")]
        return told["count"], told["leastOffset"], told["greatestOffset"], *times


@pytest.fixture
def damaged(jvm: TaskReaderProcess, tmp_path: pathlib.Path, isolation: IsolationLevel) -> Iterator[Damaged]:
    bucket = Bucket(tmp_path)
    bucket.segment("s0", batches(), lineage={0: 0}, aborted=[Aborted(7, 12, 16, 17)])
    with open_tier(str(tmp_path)) as tier:
        yield Damaged(tmp_path, jvm, tier, ScanRequest(TopicSelection.of_names(["orders"]), isolation_level=isolation))


def some(answer: Answer, wanted: frozenset[SummaryField]) -> Answer:
    """Without what was not asked for."""
    order = ("count", "min_offset", "max_offset", "min_timestamp", "max_timestamp")
    if len(answer) < len(order):
        return answer
    return tuple(value for value, name in zip(answer, order, strict=True) if name in wanted)


def bits_of(damaged: Damaged, number: int) -> Sequence[int]:
    """Every bit of a batch's header, and some of its records."""
    start, size = 8 * damaged.positions[number], 8 * damaged.sizes[number]
    return [*range(start, start + 8 * HEADER_BYTES), *range(start + 8 * HEADER_BYTES, start + size, 13)]


def of(isolation: IsolationLevel, *numbers: int, marks: Sequence[pytest.MarkDecorator] = ()) -> list[Any]:
    """Batches to damage, and how they are read."""
    return [pytest.param(isolation, number, marks=marks) for number in numbers]


#: What another case has by halves: a second plain batch, a marker that is read by the other isolation.
BY_HALVES = of("read_uncommitted", 1, 3, marks=[pytest.mark.more])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("isolation", "number"), [*of("read_uncommitted", 0, 6), *of("read_committed", 2, 3), *BY_HALVES]
)
def test_checked_headers(damaged: Damaged, number: int) -> None:
    """A report would count other records than the query that lists them, and nobody would know that the disk rots."""
    wrong = 0
    for bit in bits_of(damaged, number):
        damaged.flip(bit)
        for fail in (True, False):
            rows = damaged.by_rows(fail=fail)
            for wanted in (OF_HEADERS, WANTED):
                assert some(damaged.by_jar(wanted, fail=fail), wanted) == some(rows, wanted), (bit, fail, wanted)
                if fail:
                    assert some(damaged.by_python(wanted), wanted) == some(rows, wanted), (bit, wanted)
            wrong += fail and len(rows) == 2
    assert wrong > 300


#: Byte of a header to the case in which it alone cannot tell: the producer of a transaction that was aborted, and the
#: lowest bits of the greatest time of all.
UNTOLD: dict[tuple[IsolationLevel, int], set[int]] = {
    ("read_committed", 2): {*range(43, 51)},
    ("read_uncommitted", 6): {42},
}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("isolation", "number"), [*of("read_uncommitted", 2, 6), *of("read_committed", 2, 4), *BY_HALVES]
)
def test_trusted_headers(damaged: Damaged, isolation: IsolationLevel, number: int) -> None:
    """Trusting saves the checksums, not the look: what a header contradicts in itself or beside it counts nothing."""
    damaged.restore()
    sound = some(damaged.by_rows(fail=True), OF_HEADERS)
    assert some(damaged.by_jar(OF_HEADERS, fail=True, trust=True), OF_HEADERS) == sound
    start = 8 * damaged.positions[number]
    untold = UNTOLD.get((isolation, number), set())
    for bit in range(8 * HEADER_BYTES):
        damaged.flip(start + bit)
        rows = some(damaged.by_rows(fail=True), OF_HEADERS)
        found = some(damaged.by_jar(OF_HEADERS, fail=True, trust=True), OF_HEADERS)
        assert found in (rows, sound) or bit // 8 in untold, bit


def test_a_bound_in_time_hides_no_record(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """The batches behind an end in time are left out by their headers, which nobody checks: one flipped bit would take
    a wanted batch out of the middle of a report, or its last one.
    """
    times = [1_700_000_000_000 + 1000 * number for number in range(10)]
    log = [Batch(3 * n, (b"v",) * 3, timestamp_ms=time, append_time=True) for n, time in enumerate(times)]
    bucket = Bucket(tmp_path)
    bucket.segment("s0", log, lineage={0: 0})
    chosen = RecordFilter(end_timestamp_exclusive_ms=times[5])
    with open_tier(str(tmp_path)) as tier:
        request = ScanRequest(TopicSelection.of_names(["orders"]), record_filter=chosen)
        damaged = Damaged(tmp_path, jvm, tier, request)
        sound = damaged.listed_by_jar()
        assert len(sound) == 15
        for number in (0, 1, 4, 5):
            start = 8 * damaged.positions[number]
            for bit in range(start, start + 8 * HEADER_BYTES):
                damaged.flip(bit)
                assert damaged.listed_by_jar() in (sound, damaged.listed_by_python()), (number, bit - start)


def test_a_batch_that_is_skipped_unseen(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """What an end in time is for: the bytes behind it are not read."""
    log = [Batch(n, (bytes(5000),), timestamp_ms=1_700_000_000_000 + n, append_time=True) for n in range(30)]
    Bucket(tmp_path).segment("s0", log, lineage={0: 0})
    chosen = RecordFilter(end_timestamp_exclusive_ms=1_700_000_000_003)
    with open_tier(str(tmp_path)) as tier:
        request = ScanRequest(TopicSelection.of_names(["orders"]), record_filter=chosen)
        ranges = plan_scan(tier, request).ranges
    answer = jvm.read(ranges, Store(str(tmp_path.resolve())), ("offset",))
    assert (answer.error, answer.rows) == (None, ["0", "1", "2"])
    assert answer.told["logBytes"] < 5 * 5100
