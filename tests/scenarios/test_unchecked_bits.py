"""No checksum of Kafka's covers a batch's base offset, length and epoch: each bit flipped, through ``tierlog.read``."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import tierlog
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.unchecked_bits import EPOCH_BITS, OFFSET_BITS, UNCHECKED_BITS, WHERE, Flipped
from tierlog import open_tier
from tierlog.errors import CorruptDataError
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.planning.probes import ByteBudget, find_last_offset
from tierlog.scan.reading.read import ScanCounters, read_scan_range, summarise_range
from tierlog.scan.record_summary import RecordSummary
from tierlog.scan.scan_request import ScanRequest, TopicSelection

COLUMNS = ("offset", "timestamp", "value")
#: (first, end) offsets that are asked for: all, and bounds in the middle segment, at borders of batches and within.
BOUNDS = ((0, 120), (52, 120), (50, 120), (49, 120), (0, 68), (0, 70), (52, 68), (50, 70), (60, 65))


@pytest.fixture
def flipped(tmp_path: pathlib.Path) -> Flipped:
    return Flipped(tmp_path)


def rows(root: pathlib.Path, first: int, end: int, **options: object) -> pa.Table:
    return tierlog.read(root, "orders", start=first, end=end, columns=COLUMNS, **options).read_all()  # type: ignore[arg-type]


@pytest.mark.few(1)
@pytest.mark.parametrize("where", WHERE)
def test_each_bit_through_read(flipped: Flipped, tmp_path: pathlib.Path, where: str) -> None:
    """A bit that rots would take records out of an answer, or give them twice, and nobody would know."""
    truth = rows(tmp_path, 0, 120)
    assert truth["offset"].to_pylist() == list(range(120))
    for bit in flipped.each(flipped.number(where)):
        if bit in EPOCH_BITS:
            assert rows(tmp_path, 0, 120).equals(truth), bit
        else:
            with pytest.raises(CorruptDataError, match="orders-0 orders-"):
                rows(tmp_path, 0, 120)


def offsets_of(tier: Tier, request: ScanRequest) -> list[int]:
    found: list[int] = []
    for scan_range in plan_scan(tier, request).ranges:
        for batch in read_scan_range(tier, scan_range, columns=("offset",)):
            found += batch.column(0).to_pylist()
    return found


def count_of(tier: Tier, request: ScanRequest) -> tuple[object, ...]:
    found = RecordSummary()
    for scan_range in plan_scan(tier, request).ranges:
        found.add(summarise_range(tier, scan_range, frozenset({"count", "min_offset", "max_offset"})))
    return found.count, found.min_offset, found.max_offset


def last_of(tier: Tier, request: ScanRequest) -> int | None:
    return find_last_offset(tier, plan_scan(tier, request).ranges, ByteBudget(1 << 20))


@pytest.mark.few(2)
@pytest.mark.parametrize("ask", [offsets_of, count_of, last_of])
@pytest.mark.parametrize(
    "cut",
    [{}, {"max_bytes_per_range": 1}, {"max_bytes_per_range": 300}, {"min_partitions": 40}],
    ids=["whole", "by batch", "by two", "forty"],
)
@pytest.mark.parametrize("interval", [0, pytest.param(250, marks=pytest.mark.slow)])
def test_bounds_and_cuts(
    tmp_path: pathlib.Path, ask: Callable[[Tier, ScanRequest], object], cut: dict[str, int], interval: int
) -> None:
    """At the edges of ranges no neighbour is read: the offset index and the next batch's offset must tell."""
    flipped = Flipped(tmp_path, index_interval_bytes=interval)
    bits = (*range(54, 64), 89)  # those that move a batch a little: the others are seen anywhere
    for first, end in BOUNDS if ask is offsets_of else BOUNDS[:1] + BOUNDS[-2:]:
        request = ScanRequest(
            TopicSelection.of_names(["orders"]),
            starting_offsets={"orders": {0: first}},
            ending_offsets={"orders": {0: end}},
            **cut,  # type: ignore[arg-type]
        )
        with open_tier(str(tmp_path)) as tier:
            truth = ask(tier, request)
            for batch in range(flipped.batches):
                for bit in flipped.each(batch, bits):
                    try:
                        found = ask(tier, request)
                    except CorruptDataError:
                        continue
                    assert found == truth, (first, end, batch, bit)


def test_damage_that_may_be_left_out_is_told(
    flipped: Flipped, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With data loss allowed a batch that cannot stand where it stands is left out as a damaged one: with a warning."""
    for bit in flipped.each(flipped.number("middle"), OFFSET_BITS):
        caplog.clear()
        rows(tmp_path, 0, 120, fail_on_data_loss=False)
        assert "left out" in caplog.text, bit


def test_without_checksums_nothing_is_less_strict(flipped: Flipped, tmp_path: pathlib.Path) -> None:
    """Offsets are compared, not summed: that is free, and no reason to give wrong ones."""
    for _ in flipped.each(flipped.number("middle"), OFFSET_BITS):
        with pytest.raises(CorruptDataError):
            rows(tmp_path, 0, 120, verify_checksums=False)


def gaps() -> Iterator[Batch]:
    """A log as the cleaner of a compacted topic leaves it: every second batch is gone."""
    for base in range(0, 80, 20):
        yield Batch(base, (b"v",) * 5)


def test_a_legal_gap_hides_what_stays_in_it(tmp_path: pathlib.Path) -> None:
    """Documented: between two batches of a compacted log a cleaner can have left any offsets that rise."""
    bucket = Bucket(tmp_path)
    bucket.segment("s0", list(gaps()), lineage={0: 0})
    log = bucket.path("s0", "log")
    sound = log.read_bytes()
    size = len(sound) // 4
    unseen = []
    for bit in UNCHECKED_BITS[:64]:
        data = bytearray(sound)
        data[size + bit // 8] ^= 0x80 >> bit % 8
        log.write_bytes(data)
        try:
            assert rows(tmp_path, 0, 80)["offset"].to_pylist()[5:10] != [20, 21, 22, 23, 24]
            unseen.append(1 << 63 - bit)
        except CorruptDataError:
            pass
    # 20 -> 28, 22, 21 lie before 40; 20 -> 16, 4 lie before or behind 5; 52 and more overlap.
    assert unseen == [8, 4, 2, 1]


def test_what_the_look_behind_costs(flipped: Flipped, tmp_path: pathlib.Path) -> None:
    """A range must not read the next one to know that its own offsets are right: eight bytes are enough."""
    counters = ScanCounters()
    request = ScanRequest(TopicSelection.of_names(["orders"]), max_bytes_per_range=1)
    with open_tier(str(tmp_path)) as tier:
        ranges = plan_scan(tier, request).ranges
        for scan_range in ranges:
            list(read_scan_range(tier, scan_range, counters=counters))
    sizes = sum(each.size_bytes for each in ranges)
    assert counters.log_bytes == sizes + 8 * (len(ranges) - 3), "none behind the last range of each segment"
    assert counters.requests == len(ranges)
