"""What the jar takes from Spark: each answer is that of the same records collected and computed here, in Python."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.bindings.spark.conftest import Read
from tests.conftest import DATA
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.footers import footers_in
from tests.support.segments import Aborted
from tierlog.upkeep.footer_backfill import index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row = Any
TXN = DATA / "main-plain" / "objects"
START_MS = 1_700_000_000_000
COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value"]
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  Spark hands over naive times, here of UTC


def at(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone().replace(tzinfo=None)


def shuffled(number: int) -> int:
    """A time that neither rises nor falls with the offset."""
    return START_MS + (number * 37 % 100) * 1000


@pytest.fixture
def tier(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two topics: shuffled times; offsets that compaction took; an aborted transaction; a lost branch."""
    for partition in (0, 1):
        orders = Bucket(tmp_path / "tier", partition=partition, index_interval_bytes=1)
        for first in (0, 40, 80):
            batches = [
                Batch(
                    offset,
                    tuple(b"%d" % n for n in range(offset, offset + 5)),
                    timestamp_ms=shuffled(offset + partition),
                )
                for offset in range(first, first + 40, 10)  # five offsets in ten are gone
            ]
            orders.segment(f"s{first}", batches, lineage={0: 0}, end_offset=first + 39)
    returns = Bucket(tmp_path / "tier", topic="returns", index_interval_bytes=1)
    log = [
        Batch(0, (b"kept",) * 4, timestamp_ms=START_MS),
        Batch(4, (b"aborted",) * 3, producer_id=7, producer_epoch=0, transactional=True, timestamp_ms=START_MS + 9000),
        Batch(7, producer_id=7, producer_epoch=0, marker="abort", timestamp_ms=START_MS + 90_000),
        Batch(8, (b"kept too",) * 2, timestamp_ms=START_MS + 1000),
    ]
    returns.segment("r0", log, lineage={0: 0}, aborted=[Aborted(7, 4, 7, 8)])
    returns.segment("dead", [Batch(10, (b"dead",) * 5, epoch=0)], lineage={0: 0})
    returns.segment("r1", [Batch(12, (b"new",) * 5, epoch=1, timestamp_ms=START_MS - 5)], lineage={0: 0, 1: 12})
    return tmp_path / "tier"


#: Without the rules of read_committed the same is asked of some records more.
ISOLATIONS = (pytest.param("read_uncommitted", marks=pytest.mark.more), "read_committed")

#: SQL, and the same in Python over a row.
EVERYTHING: tuple[str, Callable[[Row], bool]] = ("true", lambda _: True)
FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("partition = 1", lambda r: r.partition == 1),
    ("partition <=> 0", lambda r: r.partition == 0),
    ("partition IN (1, 5)", lambda r: r.partition in (1, 5)),
    ("partition > 0", lambda r: r.partition > 0),
    ("partition != 0", lambda r: r.partition != 0),
    ("offset < 33", lambda r: r.offset < 33),
    ("offset <= 33", lambda r: r.offset <= 33),
    ("33 < offset", lambda r: r.offset > 33),
    ("offset >= 33 AND offset < 83", lambda r: 33 <= r.offset < 83),
    ("offset IN (3, 41, 42, 9999)", lambda r: r.offset in (3, 41, 42, 9999)),
    ("offset IN (41, 42, 43)", lambda r: r.offset in (41, 42, 43)),
    ("offset = 41 OR partition = 1", lambda r: r.offset == 41 or r.partition == 1),
    ("offset % 3 = 0", lambda r: r.offset % 3 == 0),
    ("offset > 9223372036854775806", lambda _: False),
    ("offset < -9223372036854775807", lambda _: False),
    ("topic = 'orders'", lambda r: r.topic == "orders"),
    ("topic IN ('returns', 'none')", lambda r: r.topic == "returns"),
    ("topic > 'orders'", lambda r: r.topic > "orders"),
    ("topic LIKE 'ret%' AND offset > 3", lambda r: r.topic == "returns" and r.offset > 3),
    ("topic = 'none'", lambda _: False),
    ("timestamp >= timestamp_millis(1700000050000)", lambda r: r.timestamp >= at(START_MS + 50_000)),
    ("timestamp < timestamp_micros(1700000050000001)", lambda r: r.timestamp <= at(START_MS + 50_000)),
    ("timestamp = timestamp_millis(1700000001000)", lambda r: r.timestamp == at(START_MS + 1000)),
    (
        "timestamp > timestamp_millis(1700000010000) AND timestamp <= timestamp_millis(1700000030000) AND partition = 0",  # noqa: E501
        lambda r: at(START_MS + 10_000) < r.timestamp <= at(START_MS + 30_000) and r.partition == 0,
    ),
    ("value IS NOT NULL AND length(value) > 3", lambda r: len(r.value) > 3),
    ("key IS NOT NULL", lambda r: r.key is not None),
    ("offset IS NULL OR timestamp IS NULL", lambda _: False),
]


def in_order(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def summaries(rows: list[Row], names: list[str]) -> list[tuple[Any, ...]]:
    """Count and extremes of each group."""
    groups: dict[tuple[Any, ...], list[Row]] = {} if names else {(): []}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found = []
    for group, members in sorted(groups.items()):
        offsets, times = [r.offset for r in members], [r.timestamp for r in members]
        ends = [end(values, default=None) for values in (offsets, times) for end in (min, max)]
        found.append((*group, len(members), *ends))
    return found


def aggregated(frame: DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    words = ["count(*) AS n", "min(offset) AS a", "max(offset) AS b", "min(timestamp) AS c", "max(timestamp) AS d"]
    frame.createOrReplaceTempView("asked")
    group = f" GROUP BY {', '.join(names)}" if names else ""
    rows = frame.sparkSession.sql(f"SELECT {', '.join([*names, *words])} FROM asked{group}").collect()
    return sorted(tuple(row) for row in rows)


@pytest.mark.few(1)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_filters_and_aggregates(by_engine: dict[str, Read], tier: pathlib.Path, isolation: str) -> None:
    """A filter that is absorbed is evaluated by nobody else; a count out of headers shows no rows."""
    options = {"subscribePattern": ".*", "kafka.isolation.level": isolation}
    by_python, by_jar = by_engine["python"](tier, **options), by_engine["jar"](tier, **options)
    everything = by_python.select(*COLUMNS).collect()
    assert len(everything) == 2 * 60 + (11 if isolation == "read_committed" else 14) + 2
    assert in_order(by_jar.select(*COLUMNS).collect()) == in_order(everything)
    for condition, holds in FILTERS:
        wanted = [row for row in everything if holds(row)]
        kept = by_jar.filter(condition)
        assert in_order(kept.select(*COLUMNS).collect()) == in_order(wanted), condition
        assert aggregated(kept, []) == summaries(wanted, []), condition
    for names in (["topic"], ["partition"], ["topic", "partition"]):
        for condition, holds in [EVERYTHING, *FILTERS[9::6]]:
            wanted = [row for row in everything if holds(row)]
            assert aggregated(by_jar.filter(condition), names) == summaries(wanted, names), (names, condition)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_counts_of_real_logs(by_engine: dict[str, Read], isolation: str) -> None:
    """Brokers write what no script here thought of: markers, leader changes, deleted heads."""
    options = {"subscribePattern": "fx-.*", "kafka.isolation.level": isolation, "maxBytesPerPartition": "64k"}
    everything = by_engine["python"](TXN, **options).select(*COLUMNS).collect()
    by_jar = by_engine["jar"](TXN, **options)
    assert in_order(by_jar.select(*COLUMNS).collect()) == in_order(everything)
    for names in ([], ["topic", "partition"]):
        assert aggregated(by_jar, names) == summaries(everything, names)
    middle = sorted(row.timestamp for row in everything)[len(everything) // 2]
    kept = [row for row in everything if row.timestamp >= middle and row.offset < 1000]
    micros = (middle.astimezone(datetime.UTC) - EPOCH.replace(tzinfo=datetime.UTC)) // datetime.timedelta(
        microseconds=1
    )
    asked = by_jar.filter(f"timestamp >= timestamp_micros({micros}) AND offset < 1000")
    assert aggregated(asked, ["topic"]) == summaries(kept, ["topic"])


def test_footers_change_no_answer(by_engine: dict[str, Read], tier: pathlib.Path) -> None:
    """Whoever writes footers, for some segments or for all, must not change a report."""
    options = {"subscribePattern": ".*", "kafka.isolation.level": "read_committed"}
    everything = by_engine["python"](tier, **options).select(*COLUMNS).collect()
    assert index(tier).written > 6
    for path in footers_in(tier)[::3]:
        path.unlink()
    frames = {engine: read(tier, **options) for engine, read in by_engine.items()}
    for condition, holds in [EVERYTHING, *FILTERS[4::5], *FILTERS[20:25]]:
        wanted = [row for row in everything if holds(row)]
        for frame in frames.values():
            assert in_order(frame.filter(condition).select(*COLUMNS).collect()) == in_order(wanted), condition
        assert aggregated(frames["jar"].filter(condition), ["topic"]) == summaries(wanted, ["topic"]), condition


def test_footers_count_beside_what_is_read(by_engine: dict[str, Read], tmp_path: pathlib.Path) -> None:
    """The newest segments have no footers yet: they are read, and the others still counted, each once."""
    for topic in ("orders", "returns"):
        bucket = Bucket(tmp_path, topic=topic)
        for number in range(3):
            batches = [Batch(400 * number + 20 * n, (bytes(15_000),) * 20, timestamp_ms=START_MS) for n in range(20)]
            bucket.segment(f"u{number}", batches, lineage={0: 0})
    assert index(tmp_path).written == 6
    next(tmp_path.rglob("orders-*/0/*00400-*.footer")).unlink()
    next(tmp_path.rglob("returns-*/0/*00000-*.footer")).unlink()
    by_jar = by_engine["jar"](tmp_path, subscribePattern=".*")
    ends = at(START_MS), at(START_MS + 19)
    assert aggregated(by_jar, []) == [(2400, 0, 1199, *ends)]
    assert aggregated(by_jar, ["topic"]) == [(topic, 1200, 0, 1199, *ends) for topic in ("orders", "returns")]
    assert by_jar.filter("topic = 'returns' AND offset >= 390").count() == 810


@pytest.mark.parametrize("limit", [0, 1, 7, 63, 10_000])
def test_limits(by_engine: dict[str, Read], tier: pathlib.Path, limit: int) -> None:
    """Tasks behind the limit are not planned: one too many of them left out, and rows are missing."""
    frame = by_engine["jar"](tier, subscribe="orders", maxBytesPerPartition="200")
    found = frame.limit(limit).collect()
    assert len(found) == min(limit, 120)
    assert len({(row.partition, row.offset) for row in found}) == len(found)
    late = frame.filter("offset >= 80 AND value LIKE '%4'").limit(limit)
    assert late.count() == min(limit, 8)
    assert len(late.collect()) == min(limit, 8)


def test_no_columns_at_all(by_engine: dict[str, Read], tier: pathlib.Path) -> None:
    """Batches without a column have rows only; a cache or a Cartesian product asks for them."""
    frame = by_engine["jar"](tier, subscribe="orders")
    assert frame.select().rdd.count() == 120
    assert frame.selectExpr("1 AS one").agg({"one": "sum"}).collect()[0][0] == 120
    assert frame.select("partition").crossJoin(frame.filter("offset = 1").select()).count() == 240


def test_joins(with_jar: SparkSession, by_engine: dict[str, Read], tier: pathlib.Path) -> None:
    """The other side of a join prunes segments at run time: one too many, and matches are missing."""
    frame = by_engine["jar"](tier, subscribePattern=".*")
    wanted = with_jar.createDataFrame(
        [("orders", 1, "x"), ("returns", 0, "y")], "topic string, partition int, tag string"
    )
    joined = frame.join(wanted.filter("tag > 'w'").hint("broadcast"), ["topic", "partition"])
    counts = {row.tag: row["count"] for row in joined.groupBy("tag").count().collect()}
    assert counts == {"x": 60, "y": 16}
    only = frame.join(wanted.filter("tag = 'x'"), ["topic", "partition"]).select("offset", "value").collect()
    assert sorted(row.offset for row in only) == [n for n in range(120) if n % 10 < 5]
    itself = frame.alias("a").join(frame.filter("offset > 30").alias("b"), ["topic", "partition", "offset"])
    assert itself.count() == frame.filter("offset > 30").count()
    left = frame.filter("topic = 'orders'").select("offset").exceptAll(frame.filter("partition = 1").select("offset"))
    assert left.count() == 60


@pytest.mark.parametrize("bit", [8 * 22 + 5, -1], ids=["control", "record"])
def test_an_aggregate_over_damage(by_engine: dict[str, Read], tier: pathlib.Path, bit: int) -> None:
    """One bit of a disk, and a report counts other records than there are; jar/test_damaged_headers.py flips all."""
    path = next(tier.rglob("orders-*/0/00000000000000000040-*.log"))
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    rows = by_engine["python"](tier, subscribe="orders", failOnDataLoss="false").select("offset", "timestamp").collect()
    assert len(rows) == 115
    times = [row.timestamp for row in rows]
    ends = min(row.offset for row in rows), max(row.offset for row in rows)
    for read in by_engine.values():
        lenient = read(tier, subscribe="orders", failOnDataLoss="false")
        assert aggregated(lenient, []) == [(115, *ends, min(times), max(times))]
        assert tuple(lenient.selectExpr("min(offset)", "max(offset)").collect()[0]) == ends
        with pytest.raises(Exception, match="checksum differs"):
            read(tier, subscribe="orders").selectExpr("count(*)", "max(timestamp)").collect()


def test_explain_says_who_answers(by_engine: dict[str, Read], tmp_path: pathlib.Path) -> None:
    """Whether a number was checked must not be a guess."""
    bucket = Bucket(tmp_path)
    bucket.segment("s0", [Batch(10 * n, (b"v",) * 10) for n in range(12)], lineage={0: 0})
    path = bucket.path("s0", "log")

    def counted(**options: str) -> DataFrame:
        return by_engine["jar"](tmp_path, subscribe="orders", **options).selectExpr("count(*)")

    def plan(frame: DataFrame) -> str:
        return str(frame._jdf.queryExecution().executedPlan().toString())

    assert "LocalTableScan" in plan(counted())
    path.write_bytes(path.read_bytes()[:-1] + b"!")  # which the planner leaves to the executors
    assert "from headers of checked batches" in plan(counted())
    trusting = counted(headerAnswers="true")
    assert "from headers of unchecked batches" in plan(trusting)
    assert trusting.collect()[0][0] == 120
