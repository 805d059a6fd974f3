"""Aggregates and limits: what the planner answers itself, and what it leaves to the executors."""

from __future__ import annotations

import pathlib
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.footers import footers_in, indexed_copy
from tests.support.golden import config_of
from tests.support.planner import PlannerChild, PlannerError, options_of
from tests.support.segments import Aborted
from tierlog import open_tier
from tierlog.errors import TierlogError
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection
from tierlog.upkeep.footer_backfill import index

FUNCTIONS = [["count"], *([name, column] for column in ("offset", "timestamp") for name in ("min", "max"))]
EXTREMES = [["min", "offset"], ["max", "offset"]]
GROUPINGS: list[list[str]] = [[], ["topic"], ["partition"], ["partition", "topic"]]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of a topic of 1200 records in three segments, 10 MB."""
    bucket = Bucket(tmp_path_factory.mktemp("large"))
    for number in range(3):
        batches = [Batch(400 * number + 20 * n, (bytes(8_000),) * 20) for n in range(20)]
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    return {"path": str(bucket.root), "subscribe": "orders"}


def by_records(run: pathlib.Path, isolation: str, chosen: RecordFilter, group_by: list[str]) -> list[list[Any]]:
    """The answer out of every record."""
    found: defaultdict[tuple[Any, ...], list[np.ndarray[Any, Any]]] = defaultdict(list)
    request = ScanRequest(TopicSelection.matching(".*"), isolation_level=isolation, record_filter=chosen)  # type: ignore[arg-type]
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        for each in plan_scan(tier, request).ranges:
            place = {"topic": each.topic, "partition": each.partition}
            for rows in read_scan_range(tier, each, columns=("offset", "timestamp")):
                columns = [np.asarray(rows[name].cast("int64")) for name in ("offset", "timestamp")]
                found[tuple(place[name] for name in group_by)].append(np.array(columns))
    if not group_by:
        found.setdefault((), [])
    answer = []
    for key, parts in found.items():
        if not parts:
            answer.append([0, None, None, None, None])
            continue
        offsets, stamps = np.concatenate(parts, axis=1)
        times = [int(stamps.min()) * 1000, int(stamps.max()) * 1000]
        answer.append([*key, len(offsets), int(offsets.min()), int(offsets.max()), *times])
    return sorted(answer)


@pytest.mark.few(2)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_small_scans_are_answered_from_headers(
    child: PlannerChild, data: pathlib.Path, run: str, isolation: str
) -> None:
    """A count that differs from the rows by a control record is a wrong report."""
    options = options_of(data / run) | {"kafka.isolation.level": isolation}
    filters = [["partition", "=", 0], ["offset", ">=", 5], ["offset", "<", 120]]
    chosen = RecordFilter(frozenset({0}), 5, 120)
    listing = child.list(options)
    for group_by in GROUPINGS:
        for words, wanted in (([], RecordFilter()), (filters, chosen)):
            expected = by_records(data / run, isolation, wanted, group_by)
            for functions, kept in ((FUNCTIONS, slice(None)), (EXTREMES, slice(1, 3))):
                asked = {"group_by": group_by, "functions": functions}
                plan = child.plan(options, listing, filters=words, aggregates=asked)
                assert plan.head["aggregates_taken"]
                assert plan.tasks == []
                width = len(group_by)
                assert plan.answer is not None
                assert sorted(plan.answer) == [[*row[:width], *row[width:][kept]] for row in expected]


def test_large_scans_are_left_to_the_executors(child: PlannerChild, large: dict[str, str]) -> None:
    """The planner is one process: it must not read what a cluster is there for."""
    listing = child.list(large)
    plan = child.plan(large, listing, aggregates={"group_by": [], "functions": [["count"]]})
    assert plan.head["header_only"]
    assert plan.answer is None
    assert sum(len(task) for task in plan.tasks) == 3
    ends = child.plan(large, listing, aggregates={"group_by": [], "functions": EXTREMES})
    assert ends.answer == [[0, 1199]]
    absent = [["topic", "=", "x"]]
    none = child.plan(large, listing, filters=absent, aggregates={"group_by": [], "functions": FUNCTIONS})
    assert none.answer == [[0, None, None, None, None]]
    grouped = {"group_by": ["topic"], "functions": [["count"]]}
    assert child.plan(large, listing, filters=absent, aggregates=grouped).answer == []


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_footers_answer(child: PlannerChild, data: pathlib.Path, tmp_path: pathlib.Path, isolation: str) -> None:
    """With footers a count would cost the log, or be another one."""
    run = data / "zstd-aes"
    options = options_of(run) | {"kafka.isolation.level": isolation, "path": str(indexed_copy(run, tmp_path / "b"))}
    listing = child.list(options)
    if isolation == "read_uncommitted":  # else what lies among aborted records is read
        for path in (tmp_path / "b").rglob("*.log"):
            path.unlink()
    for group_by in GROUPINGS:
        plan = child.plan(options, listing, aggregates={"group_by": group_by, "functions": FUNCTIONS})
        assert plan.tasks == []
        assert plan.answer is not None
        assert sorted(plan.answer) == by_records(run, isolation, RecordFilter(), group_by)


def test_footers_at_another_place(child: PlannerChild, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Of a bucket that is read-only nothing could be counted by footers."""
    run = data / "zstd-aes"
    index(run / "objects", to=tmp_path / "footers", config=config_of(run))
    options = options_of(run) | {"rsm.footer.path": str(tmp_path / "footers")}
    listing = child.list(options)
    plan = child.plan(options, listing, aggregates={"group_by": ["topic"], "functions": FUNCTIONS})
    assert sorted(plan.answer or []) == by_records(run, "read_uncommitted", RecordFilter(), ["topic"])
    for path in (tmp_path / "footers").rglob("*.footer"):
        path.write_bytes(b"none")
    again = child.plan(options, listing, aggregates={"group_by": ["topic"], "functions": FUNCTIONS})
    assert again.answer == plan.answer


def test_footers_answer_beside_the_executors(child: PlannerChild, tmp_path: pathlib.Path) -> None:
    """Where the newest segments have no footers yet, all of the topic would be read, or these would not be counted."""
    bucket = Bucket(tmp_path)
    for number in range(3):
        batches = [Batch(400 * number + 20 * n, (bytes(25_000),) * 20) for n in range(20)]
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    assert index(tmp_path).written == 3
    options = {"path": str(tmp_path), "subscribe": "orders"}
    asked = {"group_by": [], "functions": FUNCTIONS}
    whole = child.plan(options, aggregates=asked)
    assert whole.answer == [[1200, 0, 1199, *(1000 * (1_700_000_000_000 + ms) for ms in (0, 19))]]
    footers_in(tmp_path)[0].unlink()
    part = child.plan(options, aggregates=asked)
    assert (part.head["header_only"], part.answer, len(part.tasks)) == (True, None, 1)
    assert [row[:3] for row in part.known] == [[800, 400, 1199]]
    assert [(each["fromOffset"], each["toOffset"]) for each in part.tasks[0]] == [(0, 400)]
    grouped = child.plan(options, aggregates={"group_by": ["topic"], "functions": [["count"]]})
    assert grouped.known == [["orders", 800]]
    lenient = child.plan(options | {"failOnDataLoss": "false"}, aggregates=asked)
    assert (lenient.known, sum(map(len, lenient.tasks))) == ([], 3)  # damage that may be left out is found by reading
    for path in footers_in(tmp_path):
        path.unlink()
    assert child.plan(options, aggregates=asked).known == []


def test_the_last_record_is_found_behind_a_tail_of_other_things(child: PlannerChild, tmp_path: pathlib.Path) -> None:
    """The end of a log is often a marker or an aborted transaction: max(offset) of a manifest is no record's."""
    bucket = Bucket(tmp_path)
    bucket.segment("u0", [Batch(10 * n, (bytes(3000),) * 10) for n in range(8)], lineage={0: 0})
    transaction = [
        Batch(80 + 10 * n, (bytes(3000),) * 10, producer_id=7, producer_epoch=0, transactional=True) for n in range(4)
    ]
    marker = Batch(120, producer_id=7, producer_epoch=0, marker="abort")
    bucket.segment("u1", [*transaction, marker], lineage={0: 0}, aborted=[Aborted(7, 80, 120, 80)])
    options = {"path": str(tmp_path), "subscribe": "orders"}
    asked = {"group_by": ["topic"], "functions": EXTREMES}
    listing = child.list(options)
    assert child.plan(options, listing, aggregates=asked).answer == [["orders", 0, 119]]
    committed = options | {"kafka.isolation.level": "read_committed"}
    assert child.plan(committed, listing, aggregates=asked).answer == [["orders", 0, 79]]


def test_filters_that_only_narrow_leave_the_aggregate_to_spark(child: PlannerChild, data: pathlib.Path) -> None:
    """Offset IN (1, 5) is planned as 1 to 5: counting that would count three offsets too many."""
    options = options_of(data / "main-plain")
    plan = child.plan(
        options, filters=[["offset", "in", [1, 5]]], aggregates={"group_by": [], "functions": [["count"]]}
    )
    assert not plan.head["aggregates_taken"]
    assert not plan.head["header_only"]
    assert plan.answer is None
    assert plan.tasks == []


def test_damage_is_left_to_who_reads_the_records(child: PlannerChild, tmp_path: pathlib.Path) -> None:
    """The executors know failOnDataLoss and the words for it."""
    bucket = Bucket(tmp_path)
    bucket.segment("u0", [Batch(10 * n, (bytes(50),) * 10) for n in range(8)], lineage={0: 0})
    log = bucket.path("u0", "log")
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    options = {"path": str(tmp_path), "subscribe": "orders"}
    plan = child.plan(options, aggregates={"group_by": [], "functions": [["count"]]})
    assert plan.head["header_only"]
    assert len(plan.tasks) == 1
    limited = child.plan(options, limit=79)
    assert not limited.head["limit_taken"]


def test_a_limit_reads_no_more_than_it_needs(child: PlannerChild, large: dict[str, str]) -> None:
    """df.show() of a year of data must not plan a year."""
    listing = child.list(large)
    plan = child.plan(large, listing, limit=21)
    assert plan.head["limit_taken"]
    ((only,),) = plan.tasks
    assert only["end"] < 1 << 20
    behind = child.plan(large, listing, filters=[["offset", ">=", 790]], limit=15)
    (two,) = behind.tasks
    assert len({each["segment"]["label"] for each in two}) == 2
    assert behind.head["limit_taken"]
    assert not child.plan(large, listing, limit=5000).head["limit_taken"]
    lenient = large | {"failOnDataLoss": "false"}
    assert not child.plan(lenient, listing, limit=21).head["limit_taken"]
    with pytest.raises(PlannerError, match="exclude each other"):
        child.plan(large, listing, limit=1, aggregates={"group_by": [], "functions": [["count"]]})


@pytest.mark.parametrize("number", [0, 19])
def test_the_ends_of_a_partition_are_in_order(child: PlannerChild, tmp_path: pathlib.Path, number: int) -> None:
    """No checksum covers a batch's offset: a flipped bit of the first or last one would be the answer."""
    bucket = Bucket(tmp_path, index_interval_bytes=1)
    bucket.segment("u0", [Batch(10 * n, (bytes(8_000),) * 10) for n in range(1, 21)], lineage={0: 10})
    log = bucket.path("u0", "log")
    sound = log.read_bytes()
    start = len(sound) // 20 * number
    options = {"path": str(tmp_path), "subscribe": "orders"}
    asked = {"group_by": [], "functions": EXTREMES}
    listing = child.list(options)
    assert child.plan(options, listing, aggregates=asked).answer == [[10, 209]]
    for bit in range(8):
        data = bytearray(sound)
        data[start + 7] ^= 1 << bit
        log.write_bytes(data)
        plan = child.plan(options, listing, aggregates=asked)
        rows = _offsets_of(tmp_path)
        assert plan.answer == ([[min(rows), max(rows)]] if rows else None), bit


def _offsets_of(root: pathlib.Path) -> list[int]:
    """Of all records; none where they cannot be read."""
    found: list[int] = []
    try:
        with open_tier(str(root)) as tier:
            for each in plan_scan(tier, ScanRequest(TopicSelection.matching(".*"))).ranges:
                for rows in read_scan_range(tier, each, columns=("offset",)):
                    found += rows["offset"].to_pylist()
    except TierlogError:
        return []
    return found
