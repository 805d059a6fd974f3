"""``tierlog.read`` against what real consumers got from the same buckets and logs."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import re
import time
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tierlog
from tests.conftest import DATA, FIXTURES
from tests.support.fault_proxy import FaultProxy
from tests.support.golden import (
    ROW_COLUMNS,
    Case,
    answers,
    config_of,
    consumed,
    log_folders,
    metadata_folders,
    rows_of,
    tiered_topics,
)
from tests.support.kip_scripts import SCRIPTS
from tests.support.servers import StoreServer
from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.reading import _timestamp_ms

CASES = [*tiered_topics(DATA), *(tiered_topics(FIXTURES) if (FIXTURES / "README.md").is_file() else ())]
LOGS = [*log_folders(DATA), *(log_folders(FIXTURES) if (FIXTURES / "README.md").is_file() else ())]
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run.parent.name}-{case}")
def test_every_bucket_reads_as_a_consumer_read_it(case: Case, isolation: str) -> None:
    """Records of some bucket would be missing, repeated, out of order or wrong."""
    wanted = answers(case, isolation)
    if wanted is None:
        pytest.skip(f"no answers for {case}")
    reader = tierlog.read(
        case.objects, case.topic, columns=ROW_COLUMNS, isolation_level=isolation, config=config_of(case.run)
    )
    assert rows_of(reader.read_all()) == wanted


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("folder", "topic"), LOGS, ids=lambda value: str(value).removeprefix(str(DATA.parent)))
def test_every_log_directory_reads_as_a_consumer_read_it(folder: pathlib.Path, topic: str, isolation: str) -> None:
    """Records of some disk would be missing or wrong: compacted, in the active segment, of open transactions."""
    run = next(parent for parent in folder.parents if (parent / "topics.json").exists())
    wanted = consumed(run, topic, isolation)
    assert wanted is not None
    reader = tierlog.read(folder, topic, columns=ROW_COLUMNS, isolation_level=isolation)
    got = rows_of(reader.read_all())
    here = {int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-*") if path.is_dir()}
    assert got == [row for row in wanted if row[0] in here]


@pytest.mark.parametrize("script", SCRIPTS)
def test_kip_scripts_read_as_the_kip_wants(script: str, tmp_path: pathlib.Path) -> None:
    """After a leader change the user would read a dead branch, a record twice, or miss one."""
    wanted = SCRIPTS[script](tmp_path)
    table = tierlog.read(tmp_path, "orders", columns=["offset", "value", "leaderEpoch"]).read_all()
    got = [(row["offset"], row["value"].decode(), row["leaderEpoch"]) for row in table.to_pylist()]
    assert got == wanted


def test_the_deleted_part_of_a_log_is_cut_by_the_log_start_offset(data: pathlib.Path) -> None:
    """Records that DeleteRecords removed would come back from the bucket."""
    run = data / "main-plain"
    wanted = consumed(run, "fx-lso", "read_uncommitted", "expected-after-delete") or []
    start = wanted[0][1]
    reader = tierlog.read(run / "objects", "fx-lso", columns=ROW_COLUMNS, log_start_offsets={0: start})
    got = rows_of(reader.read_all())
    assert got == [row for row in wanted if row[1] <= got[-1][1]]
    assert got[-1][1] == 1086, "the tier ends where the broker said it did"
    everything = tierlog.read(run / "objects", "fx-lso", columns=["offset"]).read_all()
    assert everything["offset"][0].as_py() < start, "the bucket alone cannot know the log start offset"


def test_metadata_says_what_counts(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Segments that are being deleted would be read, or a wrong argument would be taken for no metadata."""
    run = data / "main-plain"
    (broker,) = metadata_folders(run)
    plain = tierlog.read(run / "objects", "fx-txn", columns=ROW_COLUMNS).read_all()
    for source in (broker, pathlib.Path(broker), [broker, pathlib.Path(broker) / "__remote_log_metadata-0"]):
        assert tierlog.read(run / "objects", "fx-txn", columns=ROW_COLUMNS, metadata=source).read_all().equals(plain)
    with_it = 0
    for folder in sorted(pathlib.Path(broker).glob("__remote_log_metadata-*")):  # one of them has the topic's records
        try:
            with_it += tierlog.read(run / "objects", "fx-txn", metadata=folder).read_all().num_rows == plain.num_rows
        except UnknownTopicError:
            continue
    assert with_it == 1
    for wrong in (3, b"x", {"a": "b"}, [3]):
        with pytest.raises(TypeError, match="metadata"):
            tierlog.read(run / "objects", "fx-txn", metadata=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no source"):
        tierlog.read(run / "objects", "fx-txn", metadata=[])


def test_what_retention_removed_is_no_gap(fixtures: pathlib.Path) -> None:
    """A topic whose oldest segments were deleted would be called damaged."""
    run = fixtures / "main-plain"
    wanted = consumed(run, "fx-retention", "read_uncommitted", "expected-after-delete") or []
    got = rows_of(tierlog.read(run / "objects", "fx-retention", columns=ROW_COLUMNS).read_all())
    assert got == [row for row in wanted if row[1] <= got[-1][1]]
    assert (got[0][1], got[-1][1]) == (408, 1060)


def test_a_transaction_without_an_end_stops_read_committed(fixtures: pathlib.Path) -> None:
    """Records of a transaction that may yet abort would be given as committed."""
    run = fixtures / "main-plain"
    uncommitted = tierlog.read(run / "objects", "fx-txnopen", columns=["offset"]).read_all()["offset"].to_pylist()
    committed = (
        tierlog.read(run / "objects", "fx-txnopen", columns=["offset"], isolation_level="read_committed")
        .read_all()["offset"]
        .to_pylist()
    )
    whole = consumed(run, "fx-txnopen", "read_committed") or []
    assert committed == [row[1] for row in whole if row[1] <= max(committed)]
    assert max(committed) < max(uncommitted)


@pytest.mark.parametrize("log", sorted((DATA / "record-v0-v1").glob("*.log")), ids=lambda log: log.stem)
def test_logs_of_the_old_formats(log: pathlib.Path) -> None:
    """A log that an old broker wrote would be unreadable, or its offsets and timestamps wrong."""
    wanted = [json.loads(line) for line in log.with_suffix(".records.jsonl").read_text().splitlines()]
    columns = ["offset", "timestamp", "key", "value"]
    table = tierlog.read(log, log.stem, columns=columns).read_all()
    table = table.set_column(1, "timestamp", table["timestamp"].cast(pa.int64()))
    got = [tuple(row[name] for name in columns) for row in table.to_pylist()]
    content = [[None if row[n] is None else base64.b64decode(row[n]) for n in ("key", "value")] for row in wanted]
    assert got == [(row["offset"], row["timestamp"], *both) for row, both in zip(wanted, content, strict=True)]


class TestBounds:
    """Where a read begins and ends."""

    @pytest.mark.parametrize("bound", [500, {0: 500}])
    def test_offsets(self, data: pathlib.Path, bound: int | dict[int, int]) -> None:
        """The user would read from or to another offset than asked."""
        path = data / "main-plain" / "objects"
        first = tierlog.read(path, "fx-epochs", start=bound, columns=["offset"]).read_all()["offset"].to_pylist()
        last = tierlog.read(path, "fx-epochs", end=bound, columns=["offset"]).read_all()["offset"].to_pylist()
        assert (first[0], first[-1], last[0], last[-1]) == (500, 2200, 0, 499)

    def test_times_are_those_of_offsets_for_times(self, data: pathlib.Path) -> None:
        """A read by time would begin elsewhere than Kafka's consumer does."""
        moment = datetime.datetime.fromtimestamp(1700000182.286, datetime.UTC)
        path = data / "main-plain" / "objects"
        first = tierlog.read(path, "fx-epochs", start=moment, columns=["offset"]).read_all()["offset"][0].as_py()
        last = tierlog.read(path, "fx-epochs", end=moment, columns=["offset"]).read_all()["offset"][-1].as_py()
        assert (first, last) == (191, 190)

    @pytest.mark.parametrize(
        "moment",
        [
            "2023-11-14T22:16:22.286Z",
            "2023-11-14T22:16:22.285001",  # rounded up: no record before the time comes
            "2023-11-14 23:16:22.286+01:00",
            datetime.datetime(2023, 11, 14, 22, 16, 22, 286_000, datetime.UTC),
            datetime.datetime(2023, 11, 14, 22, 16, 22, 286_000),  # noqa: DTZ001 - naive is UTC
            datetime.datetime(2023, 11, 14, 23, 16, 22, 286_000, zoneinfo.ZoneInfo("Europe/Berlin")),
            np.datetime64("2023-11-14T22:16:22.286"),
            np.datetime64("2023-11-14T22:16:22.285000001"),
            pd.Timestamp("2023-11-14T22:16:22.286"),
            pd.Timestamp("2023-11-14T22:16:22.285000001Z"),
            pd.Timestamp("2023-11-14T17:16:22.286", tz="America/New_York"),
        ],
        ids=repr,
    )
    def test_each_form_of_a_time(self, data: pathlib.Path, moment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """The user would have to convert what pandas or Spark showed, or read hours beside it."""
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        try:
            path = data / "main-plain" / "objects"
            first = tierlog.read(path, "fx-epochs", start=moment, columns=["offset"]).read_all()["offset"][0].as_py()
            last = tierlog.read(path, "fx-epochs", end=moment, columns=["offset"]).read_all()["offset"][-1].as_py()
            assert (first, last) == (191, 190)
        finally:
            monkeypatch.undo()
            time.tzset()

    def test_both_hours_of_a_night_when_clocks_are_put_back(self) -> None:
        """A read of that hour would begin an hour early or late."""
        berlin = zoneinfo.ZoneInfo("Europe/Berlin")
        twice = [datetime.datetime(2023, 10, 29, 2, 30, fold=fold, tzinfo=berlin) for fold in (0, 1)]
        assert [_timestamp_ms("start", each) for each in twice] == [1698539400000, 1698543000000]

    @pytest.mark.parametrize(
        ("moment", "wanted"),
        [
            (np.datetime64("2023"), 1672531200000),
            (np.datetime64("1969-12"), -2678400000),
            (np.datetime64(2, "25s"), 50_000),
            (np.datetime64(-1, "ns"), 0),
            (np.datetime64(-(10**15), "as"), -1),
            (np.datetime64(3, "W"), 1814400000),
            (np.datetime64(2**62, "ms"), 2**62),
            (datetime.datetime.max.replace(tzinfo=datetime.UTC), 253402300800000),
            (datetime.datetime.min.replace(tzinfo=datetime.UTC), -62135596800000),
            (pd.Timestamp.max, 9223372036855),
        ],
        ids=repr,
    )
    def test_units_and_ends(self, moment: Any, wanted: int) -> None:
        """A wrapped-around time would read everything, or nothing."""
        assert _timestamp_ms("start", moment) == wanted

    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            ("yesterday", "no time of ISO 8601"),
            ("1655000010000", "no time of ISO 8601"),
            ("", "no time of ISO 8601"),
            (pd.NaT, "NaT"),
            (np.datetime64("NaT"), "NaT"),
            (np.datetime64(2**62, "s"), "out of range"),
            (np.datetime64(2**62, "Y"), "out of range"),
            (np.datetime64(-(2**62), "W"), "out of range"),
        ],
        ids=repr,
    )
    def test_what_is_no_time_is_refused(self, data: pathlib.Path, moment: Any, text: str) -> None:
        """The read would begin anywhere."""
        with pytest.raises(ConfigError, match=f"end.*{text}"):
            tierlog.read(data / "main-plain" / "objects", "fx-epochs", end=moment)

    @pytest.mark.parametrize("offset", [-1, -2, -7])
    def test_what_is_no_offset_is_refused(self, data: pathlib.Path, offset: int) -> None:
        """A computed end of -1 would read everything, where 0 reads nothing: Spark's words for latest and earliest."""
        path = data / "main-plain" / "objects"
        given: Any
        for name in ("start", "end", "log_start_offsets"):
            for given in (offset, {0: offset}, {"fx-epochs": {0: offset}}):
                if name == "log_start_offsets" and given == offset:
                    continue  # a TypeError: they are always by partition
                with pytest.raises(ConfigError, match=rf"{name}.* is an offset, at least 0, not {offset}"):
                    tierlog.read(path, "fx-epochs", **{name: given})

    def test_partitions(self, data: pathlib.Path) -> None:
        """Other partitions than those asked for would come, or an unknown one would be an empty answer."""
        path = data / "local-tiered" / "objects"
        table = tierlog.read(path, "fx-local-json", partitions=[1], columns=["partition"]).read_all()
        assert set(table["partition"].to_pylist()) == {1}
        with pytest.raises(UnknownTopicError, match=r"\[7\]"):
            tierlog.read(path, "fx-local-json", partitions=[7])
        with pytest.raises(UnknownTopicError, match=r"there are: .*fx-local-json"):
            tierlog.read(path, "fx-local-jsno")


def test_a_bucket_is_listed_once(s3: StoreServer, data: pathlib.Path) -> None:
    """Each read would pay several round trips to the store, and see the bucket at several times."""
    path = s3.upload(data / "main-plain" / "objects", "read-lists-once")
    with FaultProxy.before(s3) as proxy:
        config = {**s3.options, "store.endpoint": proxy.endpoint}
        assert tierlog.read(path, "fx-epochs", config=config).read_all().num_rows == 2201
        lists = [seen.query for seen in proxy.seen if "list-type" in seen.query]
    assert len(lists) == 1, lists


class TestSeveralTopics:
    """One read of more than one topic."""

    PATH = DATA / "main-plain" / "objects"
    COLUMNS = ("topic", "partition", "offset")

    def rows(self, topic: object, **options: object) -> list[tuple[object, ...]]:
        table = tierlog.read(self.PATH, topic, columns=self.COLUMNS, **options).read_all()  # type: ignore[arg-type]
        return [tuple(row.values()) for row in table.to_pylist()]

    def test_names(self) -> None:
        """A user who wants two topics would read twice, and put them together by hand."""
        both = self.rows("fx-epochs") + self.rows("fx-txn")
        assert self.rows(["fx-txn", "fx-epochs"]) == both
        assert self.rows(("fx-epochs", "fx-txn", "fx-txn")) == both
        assert self.rows({"fx-epochs", "fx-txn"}) == both
        with pytest.raises(UnknownTopicError, match="no topic fx-txm"):
            self.rows(["fx-epochs", "fx-txm"])
        with pytest.raises(ConfigError, match="topic names no topic"):
            self.rows([])

    def test_a_pattern(self) -> None:
        """All topics of a family would have to be listed by name; a part of a name would pull in others."""
        both = self.rows("fx-epochs") + self.rows("fx-txn")
        assert self.rows(re.compile("fx-(epochs|txn)")) == both
        assert self.rows(re.compile("FX-(epochs|txn)", re.IGNORECASE)) == both
        with pytest.raises(UnknownTopicError, match="fits 'x-tx'"):
            self.rows(re.compile("x-tx"))

    def test_partitions_are_of_each(self) -> None:
        """Partitions that were not asked for would come, or those of one topic alone."""
        both = self.rows("fx-epochs", partitions=[0]) + self.rows("fx-txn", partitions=[0])
        assert self.rows(["fx-epochs", "fx-txn"], partitions=[0]) == both
        assert self.rows(re.compile("fx-(epochs|txn)"), partitions=[0]) == both
        with pytest.raises(UnknownTopicError, match=r"\[7\]"):
            self.rows(["fx-epochs", "fx-txn"], partitions=[7])

    def test_bounds_are_by_topic(self) -> None:
        """An offset of one topic would cut another."""
        wanted = self.rows("fx-epochs", start=100, end=200) + self.rows("fx-txn", end=50)
        got = self.rows(
            ["fx-epochs", "fx-txn"],
            start={"fx-epochs": {0: 100}},
            end={"fx-epochs": {0: 200}, "fx-txn": {0: 50}},
        )
        assert got == wanted
        cut = self.rows(["fx-epochs", "fx-txn"], log_start_offsets={"fx-epochs": {0: 100}})
        assert cut == self.rows("fx-epochs", start=100) + self.rows("fx-txn")
        for topics in (["fx-epochs", "fx-txn"], re.compile("fx-epochs")):
            with pytest.raises(ConfigError, match="start by partition is for one topic"):
                self.rows(topics, start={0: 100})
        for name in ("start", "end"):
            with pytest.raises(ConfigError, match=rf"^{name} is given for partitions that are not read: fx-txn-5"):
                self.rows("fx-txn", **{name: {5: 1}})
        with pytest.raises(ConfigError, match=r"^isolation_level is one of"):
            self.rows("fx-txn", isolation_level="serializable")
        assert self.rows(re.compile("fx-(epochs|txn)"), start=1, end=2) == [("fx-epochs", 0, 1), ("fx-txn", 0, 1)]


class TestStreaming:
    """The reader as pyarrow, pandas, polars and DuckDB use it."""

    def test_columns_come_in_the_order_and_types_of_sparks_kafka_source(self, data: pathlib.Path) -> None:
        """Code written for Spark's Kafka source would not find its columns."""
        with tierlog.read(data / "main-plain" / "objects", "fx-txn") as reader:
            assert reader.schema == pa.schema(
                [
                    ("key", pa.binary()),
                    ("value", pa.binary()),
                    ("topic", pa.string()),
                    ("partition", pa.int32()),
                    ("offset", pa.int64()),
                    ("timestamp", pa.timestamp("ms", tz="UTC")),
                    ("timestampType", pa.int32()),
                ]
            )
            assert reader.read_next_batch().schema == reader.schema

    def test_only_constant_columns(self, data: pathlib.Path) -> None:
        """Counting rows by topic would count none."""
        table = tierlog.read(data / "main-plain" / "objects", "fx-txn", columns=["segment", "topic"]).read_all()
        assert table.column_names == ["segment", "topic"]
        rows = consumed(data / "main-plain", "fx-txn", "read_uncommitted") or []
        assert table.num_rows == sum(row[1] <= 1613 for row in rows)
        assert "8FftK6CGS3mYto4IRrrv7A" in table["segment"].unique().to_pylist()

    def test_a_reader_that_is_dropped_leaves_nothing_running(self, data: pathlib.Path) -> None:
        """Threads and files of abandoned reads would pile up (the leak check of every test looks for them)."""
        for used in (0, 1):
            reader = tierlog.read(data / "main-plain" / "objects", "fx-epochs", threads=2)
            for _ in range(used):
                reader.read_next_batch()
            del reader

    def test_pandas_polars_and_duckdb_take_it(self, data: pathlib.Path) -> None:
        """The README's examples would not run."""
        polars = pytest.importorskip("polars")
        duckdb = pytest.importorskip("duckdb")
        path = data / "main-plain" / "objects"
        columns = ["partition", "offset", "timestamp", "value"]
        frame = tierlog.read(path, "fx-epochs", columns=columns).read_pandas()
        assert len(frame) == 2201
        assert polars.from_arrow(tierlog.read(path, "fx-epochs", columns=columns).read_all()).height == 2201
        reader = tierlog.read(path, "fx-epochs", columns=columns)
        with duckdb.connect() as connection:
            connection.register("records", reader)
            assert connection.sql('select count(*), max("offset") from records').fetchall() == [(2201, 2200)]

    def test_an_unknown_column_is_refused_with_the_known_ones(self, data: pathlib.Path) -> None:
        """A typing error would give a column of nulls or a traceback from below."""
        with pytest.raises(ConfigError, match="known are key, value"):
            tierlog.read(data / "main-plain" / "objects", "fx-epochs", columns=["ofset"])


@pytest.mark.parametrize(
    "run", sorted({case.run for case in CASES if list(case.objects.rglob("*.rsm-manifest"))}), ids=str
)
def test_topics_tell_what_the_manifests_say(run: pathlib.Path) -> None:
    """Whoever plans a read by wrong sizes or offsets reserves too little, or asks for what is not there."""
    case = next(case for case in CASES if case.run == run)
    told = tierlog.topics(case.objects, config=config_of(run))
    sizes: dict[tuple[str, int], list[int]] = {}
    for path in case.objects.rglob("*.rsm-manifest"):
        folder, number = path.parent.parent.name, int(path.parent.name)
        manifest = json.loads(path.read_bytes())
        log = path.with_name(path.name.replace(".rsm-manifest", ".log"))
        found = sizes.setdefault((folder[:-23], number), [0, 0, 0])
        found[0] += 1
        found[1] += manifest["chunkIndex"]["originalFileSize"]
        found[2] += log.stat().st_size
    assert {
        (topic.name, each.partition): [each.segments, each.size_bytes, each.stored_bytes]
        for topic in told
        for each in topic.partitions
    } == sizes
    for topic in told:
        table = tierlog.read(
            case.objects, topic.name, columns=["partition", "offset"], config=config_of(run)
        ).read_all()
        found = table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        spans = {each.partition: (each.earliest_offset, each.end_offset) for each in topic.partitions}
        for row in found:
            earliest, end = spans[row["partition"]]
            assert earliest <= row["offset_min"] <= row["offset_max"] < end
        assert topic.segments == sum(each.segments for each in topic.partitions)
        assert topic.records >= len(table)
        latest = [each.max_timestamp_ms for each in topic.partitions if each.max_timestamp_ms is not None]
        assert topic.max_timestamp_ms == max(latest)


def test_topics_can_be_chosen(data: pathlib.Path) -> None:
    """A bucket of thousands of topics would be described whole for one."""
    path = data / "main-plain" / "objects"
    names = [topic.name for topic in tierlog.topics(path)]
    assert [topic.name for topic in tierlog.topics(path, names[1])] == names[1:2]
    assert [topic.name for topic in tierlog.topics(path, re.compile(re.escape(names[0])))] == names[:1]
    assert tierlog.topics(path, re.compile("nothing-.*")) == []
    with pytest.raises(UnknownTopicError):
        tierlog.topics(path, "nothing")
    with pytest.raises(TypeError, match="topic"):
        tierlog.topics(path, 3)  # type: ignore[arg-type]
