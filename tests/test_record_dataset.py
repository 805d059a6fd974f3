"""``tierlog.dataset``: what engines push into it, and that it gives the records that a read gives."""

from __future__ import annotations

import datetime
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tierlog
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import bucket_root, config_of
from tierlog.errors import CorruptDataError, UnknownTopicError
from tierlog.reading import reading_of
from tierlog.record_dataset import OpenTier, RecordDataset
from tierlog.remote.tier import open_tier
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.planning.expression_bounds import ExpressionBounds
from tierlog.scan.planning.plan import list_histories
from tierlog.scan.reading.read import DEFAULT_COLUMNS, records_schema
from tierlog.scan.scan_request import RecordFilter

FIRST_MS = 1_700_000_000_000
OFFSET, PARTITION, TOPIC, TIME, KEY = (ds.field(each) for each in ("offset", "partition", "topic", "timestamp", "key"))


def moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(FIRST_MS + milliseconds, pa.timestamp("ms", tz="UTC"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two topics of two partitions of five segments; record n has the key n, its time n ms behind the first."""
    folder = tmp_path_factory.mktemp("bucket")
    for topic in ("orders", "events"):
        for partition in range(2):
            bucket = Bucket(folder, topic, partition, index_interval_bytes=1)
            for first in range(0, 100, 20):
                batches = [
                    Batch(n, tuple(b"%d" % m * 300 for m in range(n, n + 5)), timestamp_ms=FIRST_MS + n,
                          keys=tuple(b"%d" % m for m in range(n, n + 5)))
                    for n in range(first, first + 20, 5)
                ]  # fmt: skip
                bucket.segment(f"{topic}{partition}s{first}", batches, lineage={0: 0})
    return folder


@pytest.fixture(scope="module")
def whole(root: pathlib.Path) -> pa.Table:
    return tierlog.read(root, ["orders", "events"]).read_all()


@pytest.fixture
def records(root: pathlib.Path) -> Iterator[RecordDataset]:
    with tierlog.dataset(root, ["orders", "events"]) as opened:
        yield opened


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    chosen = table.select(["topic", "partition", "offset", "key"])
    return sorted(zip(*(column.to_pylist() for column in chosen.columns), strict=True))


COMPARISONS = st.one_of(
    st.builds(lambda field, low, way: way(field, low), st.just(OFFSET), st.integers(-5, 120), st.sampled_from(
        [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: a == b,
         lambda a, b: a != b])),
    st.builds(lambda low, way: way(TIME, moment(low)), st.integers(-5, 120), st.sampled_from(
        [lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a == b])),
    st.builds(OFFSET.isin, st.lists(st.integers(0, 110), max_size=4)),
    st.builds(lambda number: number == PARTITION, st.integers(0, 3)),
    st.builds(lambda name: name == TOPIC, st.sampled_from(["orders", "events", "none"])),
    st.builds(lambda value: value == KEY, st.sampled_from([b"7", b"55", b"x"])),
    st.just(OFFSET.is_null()),
    st.just(KEY.is_valid()),
)  # fmt: skip
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS)
def test_a_filter_leaves_what_it_says(root: pathlib.Path, whole: pa.Table, expression: ds.Expression) -> None:
    """If this fails, a query over the dataset lacks records, or has others."""
    with tierlog.dataset(root, ["orders", "events"]) as opened:
        wanted = whole.filter(expression)
        assert rows(opened.to_table(filter=expression)) == rows(wanted)
        assert opened.count_rows(filter=expression) == wanted.num_rows
        assert rows(opened.filter(expression).to_table()) == rows(wanted)


class Counted(PassingStore):
    """Counts the bytes of logs that are fetched."""

    fetched = 0

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Any:
        if key.endswith(".log"):
            Counted.fetched += end_position_exclusive - start_position
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


def fetched_by(root: pathlib.Path, expression: ds.Expression | None) -> int:
    """Bytes of logs that a query fetches."""
    tier = open_tier(str(root), layout="aiven", wrap_store=Counted)
    reading = reading_of(
        ["orders", "events"], partitions=None, start=None, end=None, isolation_level="read_uncommitted",
        log_start_offsets=None, verify_checksums=True, fail_on_data_loss=True, threads=1,
    )  # fmt: skip
    histories, _ = list_histories(tier, reading.request)
    with RecordDataset(OpenTier(tier), reading, histories, records_schema(DEFAULT_COLUMNS)) as opened:
        Counted.fetched = 0
        opened.to_table(columns=["offset"], filter=expression)
        return Counted.fetched


def test_what_is_left_out_is_not_fetched(root: pathlib.Path) -> None:
    """If this fails, a query for an hour pays for a year of history."""
    everything = fetched_by(root, None)
    assert everything > 0
    assert fetched_by(root, TOPIC == "orders") == everything / 2
    assert fetched_by(root, (TOPIC == "orders") & (PARTITION == 1)) == everything / 4
    segment = everything / 20
    one = (TOPIC == "orders") & (PARTITION == 1)
    assert fetched_by(root, one & (OFFSET >= 40) & (OFFSET < 60)) == pytest.approx(segment, rel=0.2)
    assert 0 < fetched_by(root, one & (OFFSET == 42)) < segment * 0.6
    assert fetched_by(root, one & OFFSET.isin([42, 44])) < segment * 0.6
    assert fetched_by(root, one & (moment(80) <= TIME)) <= segment * 1.2
    for nothing in (OFFSET < 0, PARTITION == 9, TOPIC == "none", OFFSET.is_null(), one & (OFFSET > 1000)):
        assert fetched_by(root, nothing) == 0


def test_engines_find_it(records: RecordDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, DuckDB or polars read all of a topic, or do not take the dataset at all."""
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    asked: list[Any] = []
    scanner = RecordDataset.scanner

    def watched(self: RecordDataset, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:  # noqa: A002
        asked.append((sorted(columns), str(filter)))
        return scanner(self, columns, filter, **options)

    monkeypatch.setattr(RecordDataset, "scanner", watched)
    where = "topic = 'orders' AND \"offset\" >= 90"
    query = f'SELECT partition, count(*), min("offset") FROM records WHERE {where} GROUP BY ALL'
    assert sorted(duckdb.sql(query).fetchall()) == [(0, 10, 90), (1, 10, 90)]
    columns, text = asked.pop()
    assert set(columns) <= {"topic", "partition", "offset"}
    assert "(offset >= 90)" in text
    frame = polars.scan_pyarrow_dataset(records).filter(polars.col("offset") < 3).select("offset", "topic").collect()
    assert frame.shape == (12, 2)
    assert "(offset < 3)" in asked.pop()[1]


def test_it_is_read_again(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a second query over the dataset has nothing, or another bucket than the first."""
    bucket = Bucket(tmp_path)
    bucket.segment("a", [Batch(0, (b"a", b"b"))], lineage={0: 0})
    with tierlog.dataset(tmp_path, "orders") as opened:
        assert opened.count_rows() == opened.to_table().num_rows == 2
        bucket.segment("b", [Batch(2, (b"c",))], lineage={0: 0})
        assert opened.count_rows() == opened.to_table().num_rows == 2
        assert [batch.num_rows for batch in opened.to_batches()] == [2]
        assert opened.head(1)["value"].to_pylist() == [b"a"]
        assert opened.take([1])["value"].to_pylist() == [b"b"]
        assert opened.sort_by([("offset", "descending")]).to_table()["value"].to_pylist() == [b"b", b"a"]
        doubled = opened.to_table(columns={"double": OFFSET * 2, "value": ds.field("value")})
        assert doubled.to_pydict() == {"double": [0, 2], "value": [b"a", b"b"]}
        ds.write_dataset(opened, tmp_path / "out", format="parquet")
        assert ds.dataset(tmp_path / "out").count_rows() == 2
    with tierlog.dataset(tmp_path, "orders", columns=["offset", "value"], start=1) as opened:
        assert opened.to_table().to_pydict() == {"offset": [1, 2], "value": [b"b", b"c"]}


def test_what_it_cannot(records: RecordDataset) -> None:
    """If this fails, pyarrow ends the process where it looks for files that are not there."""
    for call in (
        records.get_fragments,
        lambda: records.replace_schema(records.schema),
        records.join,
        records.join_asof,
    ):
        with pytest.raises(NotImplementedError, match="no files"):
            call()
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(records)
    public = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    assert public <= {name for name in vars(RecordDataset) if not name.startswith("_")}
    assert records.partition_expression.equals(ds.scalar(1) == 1)
    assert "RecordDataset" in repr(records)


def test_its_errors_are_those_of_a_read(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, damage is an empty answer."""
    with pytest.raises(UnknownTopicError):
        tierlog.dataset(root, "order")
    bucket = Bucket(tmp_path)
    bucket.segment("a", [Batch(0, (b"a" * 100,))], lineage={0: 0})
    log = bucket.path("a", "log")
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    with tierlog.dataset(tmp_path, "orders") as opened, pytest.raises(CorruptDataError):
        opened.to_table()
    with pytest.raises(Exception, match="closed"):
        opened.to_table()


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_real_tiers(run: str, data: pathlib.Path, fixtures: pathlib.Path) -> None:
    """If this fails, the dataset has other records than a read of what the real plugin wrote."""
    folder = next(each for each in (data / run, fixtures / run) if (each / "objects").exists())
    config = config_of(folder)
    for topic in [each.name for each in tierlog.topics(bucket_root(folder), config=config)][:3]:
        wanted = tierlog.read(bucket_root(folder), topic, config=config).read_all()
        with tierlog.dataset(bucket_root(folder), topic, config=config) as opened:
            assert opened.to_table().equals(wanted)
            latest = pc.max(wanted["timestamp"]).as_py() - datetime.timedelta(seconds=1)
            assert opened.to_table(filter=latest <= TIME).num_rows == wanted.filter(latest <= TIME).num_rows


def test_bounds_that_pyarrow_does_not_see() -> None:
    """If this fails, what pyarrow cannot decide is left out: records are missing."""
    schema = records_schema(("topic", "partition", "offset", "timestamp"))
    odd = pc.equal(pc.bit_wise_and(OFFSET, 1), 1)
    found = ExpressionBounds(odd, schema).narrowed(RecordFilter(), [("orders", 0)])
    assert found is not None
    assert (found.first_offset, found.end_offset_exclusive, found.bounds_time) == (0, 2**63 - 1, False)
    found = ExpressionBounds((OFFSET > 4) & (OFFSET <= 10) & odd, schema).narrowed(RecordFilter(), [("orders", 0)])
    assert found is not None
    assert (found.first_offset, found.end_offset_exclusive) == (5, 11)
