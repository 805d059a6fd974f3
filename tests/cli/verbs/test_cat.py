"""`tierlog cat`: the records that a real consumer got, in every form."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.command import Outcome, Run, config_file
from tests.support.golden import Case, Row, answers, expected_row, list_offsets, tiered_offsets, tiered_topics
from tests.support.kip_scripts import SCRIPTS
from tierlog.cli.records.record_lines import JsonLines
from tierlog.cli.records.record_output import COLUMNS

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
TOPICS = {str(case): case for case in tiered_topics(DATA)}
CASES = [case for case in TOPICS.values() if answers(case, "read_uncommitted")]
KEYS = ["topic", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "key", "value", "headers"]


def rows(outcome: Outcome) -> list[Row]:
    assert outcome.code == 0, outcome.err
    return [shortened(expected_row(line)) for line in outcome.lines]


def shortened(row: Row) -> Row:
    """As the answers: a value above 4096 bytes by its length and digest."""
    value = row[6]
    if isinstance(value, bytes) and len(value) > 4096:
        value = f"{len(value)}:{hashlib.sha256(value).hexdigest()}"
    return (*row[:6], value, row[7])


def log_of(folder: pathlib.Path, batches: list[Batch]) -> pathlib.Path:
    path = folder / "orders-3" / f"{batches[0].base_offset:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(encode(batch) for batch in batches))
    return path


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bucket_gives_what_a_consumer_got(tierlog: Run, tmp_path: pathlib.Path, case: Case, isolation: str) -> None:
    """Otherwise the command shows other records than Kafka does."""
    outcome = tierlog(
        "cat", case.objects, case.topic, "--format", "json", "--isolation", isolation, *config_file(case.run, tmp_path)
    )
    found = rows(outcome)
    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
    held = tiered_offsets(case)
    assert {row[0] for row in found} <= set(held)
    expected = answers(case, isolation)
    below = {partition: first for partition, (first, _) in held.items()}
    assert [row for row in found if row[1] >= below[row[0]]] == expected


def test_what_was_deleted_below_the_log_start(tierlog: Run) -> None:
    """Otherwise records that DeleteRecords took away (a request to forget them, often) are shown again."""
    case = TOPICS["main-plain/fx-lso"]
    start = list_offsets(case, "expected-after-delete")[0]["earliest(-2)"]["offset"]
    assert start > tiered_offsets(case)[0][0]
    found = rows(tierlog("cat", case.objects, case.topic, "--format", "json", "--log-start", f"0:{start}"))
    assert found == answers(case, "read_uncommitted", "expected-after-delete")


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_kips_scripts(tierlog: Run, tmp_path: pathlib.Path, name: str) -> None:
    """Otherwise records of an abandoned branch come back from the dead, or an offset comes twice."""
    expected = SCRIPTS[name](tmp_path)
    found = tierlog("cat", tmp_path, "orders", "--format", "json", "--value-as", "utf8").lines
    assert [(line["offset"], line["value"], line["leaderEpoch"]) for line in found] == expected


def test_the_old_formats(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise logs that older brokers wrote cannot be read."""
    logs = sorted((data / "record-v0-v1").glob("*.log"))
    assert logs
    for log in logs:
        expected = [json.loads(line) for line in log.with_suffix(".records.jsonl").read_text().splitlines()]
        outcome = tierlog("cat", log, "--format", "json")
        assert outcome.code == 0
        for line, wanted in zip(outcome.lines, expected, strict=True):
            assert {name: line[name] for name in wanted if name in KEYS} == {
                name: value for name, value in wanted.items() if name in KEYS
            }
            if wanted["magic"] == 0:
                assert (line["timestamp"], line["timestampType"]) == (-1, "NoTimestampType")


LOG = [
    Batch(10, (b"alpha", b"beta"), epoch=2, keys=(b"k1", None), timestamp_ms=1_700_000_000_000),
    Batch(12, (b"gamma", b"\xff\x00"), epoch=2, keys=(b"", b"k4"), timestamp_ms=1_700_000_060_000),
]


def test_a_line_is_exactly_as_documented(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise every program that reads the lines breaks."""
    lines = tierlog("cat", log_of(tmp_path, LOG), "--format", "json").text.splitlines()
    assert lines[0] == (
        '{"topic":"orders","partition":3,"offset":10,"timestamp":1700000000000,"timestampType":"CreateTime",'
        '"leaderEpoch":2,"key":"azE=","value":"YWxwaGE=","headers":[]}'
    )
    assert '"key":null,' in lines[1]
    assert '"key":"",' in lines[2]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from", "11"], [11, 12, 13]),
        (["--to", "12"], [10, 11]),
        (["--from", "11", "--to", "13"], [11, 12]),
        (["--from", "99"], []),
        (["--limit", "3"], [10, 11, 12]),
        (["--limit", "0"], []),
        (["--since", "1700000000001"], [11, 12, 13]),
        (["--since", "2023-11-14T22:14:00Z"], [12, 13]),
        (["--since", "2023-11-14T23:14:00+01:00"], [12, 13]),
        (["--until", "2023-11-14T22:13:20.001"], [10]),
        (["--since", "1700000000001", "--until", "1700000060001"], [11, 12]),
        (["--grep", "^(al|k4)"], [10, 13]),
        (["--grep", r"\xff"], [13]),
        (["--grep", "a$", "--limit", "2"], [10, 11]),
        (["--log-start", "12"], [12, 13]),
        (["--log-start", "12", "--log-start", "3:13"], [13]),
        (["--log-start", "4:13"], [10, 11, 12, 13]),
        (["--partition", "3"], [10, 11, 12, 13]),
    ],
)
def test_what_is_asked_is_given(tierlog: Run, tmp_path: pathlib.Path, options: list[str], offsets: list[int]) -> None:
    """Otherwise a filter silently leaves records out, or lets others through."""
    outcome = tierlog("cat", log_of(tmp_path, LOG), "--format", "json", *options)
    assert outcome.code == 0, outcome.err
    assert [line["offset"] for line in outcome.lines] == offsets


def test_the_topic_of_one_file(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a log that was copied out of its folder cannot be read, or its records have a file's name as topic."""
    path = log_of(tmp_path, LOG)
    assert {line["topic"] for line in tierlog("cat", path, "--format", "json").lines} == {"orders"}
    copy = path.rename(tmp_path / "saved.log")
    named = tierlog("cat", copy, "payments", "--format", "json")
    assert [(line["topic"], line["offset"]) for line in named.lines] == [("payments", o) for o in (10, 11, 12, 13)]
    table = pq.read_table(io.BytesIO(tierlog("cat", copy, "payments", "--format", "parquet").out))
    assert set(table["topic"].to_pylist()) == {"payments"}


def test_text_and_raw(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise people cannot read it, and pipes cannot use it."""
    path = log_of(tmp_path, LOG)
    assert tierlog("cat", path).text.splitlines() == [
        "orders-3\t10\t2023-11-14T22:13:20.000Z\tk1\talpha",
        "orders-3\t11\t2023-11-14T22:13:20.001Z\tnull\tbeta",
        "orders-3\t12\t2023-11-14T22:14:20.000Z\t\tgamma",
        "orders-3\t13\t2023-11-14T22:14:20.001Z\tk4\t\\xff\\x00",
    ]
    assert tierlog("cat", path, "--format", "raw").out == b"alpha\nbeta\ngamma\n\xff\x00\n"


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_csv_and_tsv(tierlog: Run, tmp_path: pathlib.Path, form: str, delimiter: str) -> None:
    """Otherwise a spreadsheet or a database loads other values than the records have, or null for an empty text."""
    values = (b"plain", None, b"", b'say "a,b"\tc\r\nd', b"\xff", b'{"base64":"/w=="}', " ü".encode(), b"NULL", b"\\N")
    path = log_of(tmp_path, [Batch(0, values, keys=(b"k,",) * 9, timestamp_ms=1_700_000_000_000)])
    out = tierlog("cat", path, "--format", form, "--columns", "offset,timestamp,key,value,headers,topic").text
    lines = out.replace("\t", ",") if form == "tsv" else out
    assert lines.startswith(
        "offset,timestamp,key,value,headers,topic\n"
        + ("0,2023-11-14T22:13:20.000Z," + ('"k,"' if form == "csv" else "k,") + ",plain,,orders\n")
    )
    read = list(csv.DictReader(io.StringIO(out, newline=""), delimiter=delimiter))
    assert [row["value"] for row in read] == [
        "plain",
        "",
        "",
        'say "a,b"\tc\r\nd',
        '{"base64":"/w=="}',
        '{"base64":"eyJiYXNlNjQiOiIvdz09In0="}',
        " ü",
        "NULL",
        "\\N",
    ]
    options = pacsv.ConvertOptions(
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        column_types={"value": pa.string()},
    )
    parsing = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pacsv.read_csv(io.BytesIO(out.encode()), parse_options=parsing, convert_options=options)
    assert table["value"].to_pylist()[:4] == ["plain", None, "", 'say "a,b"\tc\r\nd']
    coded = tierlog("cat", path, "--format", form, "--columns", "value", "--value-as", "base64").text.splitlines()
    assert coded[:4] == ["value", "cGxhaW4=", "", '""']
    assert tierlog("cat", path, "--format", form, "--value-as", "json").code == 2


def test_csv_of_no_records_has_its_head(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a load of an empty answer fails, or takes the first record of the next file for its head."""
    path = log_of(tmp_path, LOG)
    assert tierlog("cat", path, "--format", "csv", "--from", "99").text == ",".join(KEYS) + "\n"


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_csv_holds_the_same_as_json(tierlog: Run, tmp_path: pathlib.Path, case: Case) -> None:
    """Otherwise CSV loses headers, or a column is another one's."""
    given = ["cat", case.objects, case.topic, *config_file(case.run, tmp_path), "--key-as", "base64"]
    lines = tierlog(*given, "--format", "json", "--value-as", "base64").lines
    out = tierlog(*given, "--format", "csv", "--value-as", "base64").text
    read = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [(row["key"], row["value"], row["headers"]) for row in read] == [
        (line["key"] or "", line["value"] or "", json.dumps(line["headers"], separators=(",", ":")).replace("[]", ""))
        for line in lines
    ]
    for name in ("topic", "partition", "offset", "timestampType", "leaderEpoch"):
        assert [row[name] for row in read] == [str(line[name]) for line in lines]


def test_parquet_and_arrow_hold_the_same(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise a table that was written by the command differs from the records."""
    bucket = [data / "main-plain/objects", "fx-epochs"]
    lines = tierlog("cat", *bucket, "--format", "json").lines
    piped = pq.read_table(io.BytesIO(tierlog("cat", *bucket, "--format", "parquet").out))
    target = tmp_path / "records.parquet"
    assert tierlog("cat", *bucket, "--format", "parquet", "--out", target).out == b""
    stream = pa.ipc.open_stream(tierlog("cat", *bucket, "--format", "arrow").out).read_all()
    assert piped.equals(pq.read_table(target))
    assert piped.equals(stream)
    assert piped.schema.names == KEYS
    assert piped["offset"].to_pylist() == [line["offset"] for line in lines]
    assert [base64.b64encode(value).decode() for value in piped["value"].to_pylist()] == [
        line["value"] for line in lines
    ]


def test_a_file_appears_only_when_it_is_whole(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise half a table is loaded as a whole one."""
    path = log_of(tmp_path, LOG)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    for form in ("json", "parquet", "arrow"):
        target = tmp_path / f"out.{form}"
        outcome = tierlog("cat", path, "--format", form, "--out", target)
        assert outcome.code == 3
        assert list(tmp_path.glob("out*")) == []
    broken = tierlog("cat", path, "--format", "parquet").out
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(broken))


def test_a_pipe_or_a_link_stays_what_it_is(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise `--out /dev/null` puts a file in place of the device, for everybody on the machine."""
    path = log_of(tmp_path, LOG)
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        assert tierlog("cat", path, "--format", "raw", "--out", pipe).code == 0
        assert read.result(timeout=60) == b"alpha\nbeta\ngamma\n\xff\x00\n"
    assert pipe.is_fifo()
    link.symlink_to(target)
    assert tierlog("cat", path, "--format", "raw", "--out", link).code == 0
    assert link.is_symlink()
    assert target.read_bytes().startswith(b"alpha")
    assert tierlog("cat", path, "--out", tmp_path).code == 2


def test_keys_and_values_decoded(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise bytes that are no text are lost or mistaken for text."""
    values = (b'{"a":\n 1}', b"NaN", b'"x"', b"\xff", "ü".encode())
    path = log_of(tmp_path, [Batch(0, values, keys=(b"k",) * 5)])
    as_json = tierlog("cat", path, "--format", "json", "--value-as", "json", "--key-as", "utf8").lines
    assert [line["value"] for line in as_json] == [
        {"a": 1},
        {"base64": "TmFO"},
        "x",
        {"base64": "/w=="},
        {"base64": "w7w="},
    ]
    assert {line["key"] for line in as_json} == {"k"}
    as_text = tierlog("cat", path, "--format", "json", "--value-as", "utf8").lines
    assert [line["value"] for line in as_text] == ['{"a":\n 1}', "NaN", '"x"', {"base64": "/w=="}, "ü"]


def test_lost_segments_are_an_error(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a bucket that lost a segment reads as if nothing had been there."""
    bucket = Bucket(tmp_path)
    for name, first in (("a", 0), ("b", 3), ("c", 6)):
        bucket.segment(name, [message(offset, f"m{offset}", 0) for offset in range(first, first + 3)], lineage={0: 0})
    for suffix in ("log", "indexes", "rsm-manifest"):
        bucket.path("b", suffix).unlink()
    outcome = tierlog("cat", tmp_path, "--format", "json")
    assert (outcome.code, outcome.out) == (3, b"")
    assert "offsets 3 to 5" in outcome.err
    allowed = tierlog("cat", tmp_path, "--format", "json", "--no-fail-on-data-loss")
    assert [line["offset"] for line in allowed.lines] == [0, 1, 2, 6, 7, 8]
    assert "offsets 3 to 5" in allowed.err


def test_json_is_made_fast_enough() -> None:
    """Otherwise printing, not reading, decides how long a day of records takes: 200 000 a second and core are asked of
    a machine on which the standard library makes 400 000 such lines of rows that are at hand.
    """
    count = 10_000
    headers = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "key": pa.array([b"key-%06d" % place for place in range(count)], pa.binary()),
            "value": pa.array([b"%0100d" % place for place in range(count)], pa.binary()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(range(count), pa.timestamp("ms", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([None] * count, headers),
            "leaderEpoch": pa.array([0] * count, pa.int32()),
        }
    )
    lines = JsonLines(COLUMNS)
    rows = [{name: str(value) for name, value in row.items()} for row in batch.to_pylist()]

    def seconds(work: Callable[[], object]) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    plain = min(seconds(lambda: [json.dumps(row) for row in rows]) for _ in range(5))
    assert min(seconds(lambda: lines.render(batch)) for _ in range(5)) < 2 * plain
