"""What a user of kcat asks of `tierlog cat`: the last records, relative times, several topics, formats, counts."""

from __future__ import annotations

import io
import pathlib
import re
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.checkout import IN_CHECKOUT, ROOT
from tests.support.command import Run
from tierlog.remote.tier import open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.scan.planning.plan import list_histories
from tierlog.scan.planning.probes import LastRecords
from tierlog.scan.scan_request import ScanRequest, TopicSelection

NOW_MS = 1_700_000_000_000


def disk(root: pathlib.Path, logs: dict[str, list[Batch]]) -> pathlib.Path:
    """A log directory; "orders-3" -> its batches."""
    for folder, batches in logs.items():
        (root / folder).mkdir(parents=True)
        log = b"".join(encode(batch) for batch in batches)
        (root / folder / f"{batches[0].base_offset:020d}.log").write_bytes(log)
    return root


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    headers = ((b"trace", b"abc"), (b"none", None), (b"trace", b"\xff"))
    batches = {
        "orders-0": [Batch(0, (b"a0", b"a1"), keys=(b"k0", None), headers=headers), Batch(2, (b"a2", b"a3"))],
        "orders-1": [Batch(10, (b"b0", b"b1", b"b2"))],
        "orders-eu-0": [Batch(5, (b"c0",), timestamp_ms=int(time.time() * 1000) - 60_000)],
        "payments-2": [Batch(7, (b"d0", b"d1"))],
    }
    return disk(tmp_path / "disk", batches)


def places(tierlog: Run, *arguments: object) -> list[tuple[object, object, object]]:
    outcome = tierlog("cat", *arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    return [(line["topic"], line["partition"], line["offset"]) for line in outcome.lines]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["orders", "payments"], ["orders-0", "orders-1", "payments-2"]),
        (["^orders"], ["orders-0", "orders-1", "orders-eu-0"]),
        (["^orders$"], ["orders-0", "orders-1"]),
        (["^.*s-eu", "payments"], ["orders-eu-0", "payments-2"]),
        (["^(orders|payments)$", "--partition", "0,2"], ["orders-0", "payments-2"]),
        (["orders", "--partition", "0,1"], ["orders-0", "orders-1"]),
        (["orders", "--partition", "0", "--partition", "1"], ["orders-0", "orders-1"]),
        (["--partition", "1,2"], ["orders-1", "payments-2"]),
    ],
)
def test_several_topics_and_partitions(
    tierlog: Run, logs: pathlib.Path, arguments: list[str], expected: list[str]
) -> None:
    """Otherwise what kcat does in one command takes one for each topic, or another topic's records come along."""
    found = places(tierlog, logs, *arguments)
    assert list(dict.fromkeys(f"{topic}-{partition}" for topic, partition, _ in found)) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["orders", "nothing"], 3, "no topic nothing"),
        (["^orders", "nothing"], 3, "no topic nothing"),
        (["orders", "--partition", "0,7"], 3, "partitions [7]"),
        (["orders", "--partition", "0-1"], 2, "parted by commas"),
        (["orders", "--partition", "-1"], 2, "parted by commas"),
        (["^("], 2, "malformed"),
        (["^orders", "AAAAAAAAAAAAAAAAAAAAAA:orders"], 2, "ID:TOPIC"),
        (["orders", "{disk}/payments-2"], 2, "is no topic"),
    ],
)
def test_topics_that_are_none(tierlog: Run, logs: pathlib.Path, arguments: list[str], code: int, told: str) -> None:
    """Otherwise a mistyped topic among several is an answer without it."""
    outcome = tierlog("cat", logs, *(each.format(disk=logs) for each in arguments))
    assert (outcome.code, outcome.out) == (code, b"")
    assert told in outcome.err


@pytest.mark.parametrize("verb", ["cat", "ls", "verify"])
def test_a_second_file_is_refused(tierlog: Run, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Otherwise `tierlog cat a.log b.log` reads one file under the other's name, and ends with 0."""
    monkeypatch.chdir(logs / "orders-0")
    pathlib.Path("b.log").write_bytes(encode(Batch(0, (b"other",))))
    outcome = tierlog(verb, f"{0:020d}.log", "b.log")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "'b.log' is a file, not a topic" in outcome.err
    outcome = tierlog("cat", f"{0:020d}.log", "orders", "payments")
    assert (outcome.code, "one name" in outcome.err) == (2, True)
    assert {topic for topic, _, _ in places(tierlog, f"{0:020d}.log", "named")} == {"named"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--last", "1"], [3, 12]),
        (["--last", "2"], [2, 3, 11, 12]),
        (["--last", "3"], [1, 2, 3, 10, 11, 12]),
        (["--last", "99"], [0, 1, 2, 3, 10, 11, 12]),
        (["--last", "1", "--to", "11"], [3, 10]),
        (["--last", "9", "--from", "2"], [2, 3, 10, 11, 12]),
        (["--last", "1", "--grep", "^[ab]0|k0"], [0, 10]),
        (["--last", "2", "--grep", "[02]"], [0, 2, 10, 12]),
        (["--last", "2", "--until", "2023-11-14T22:13:20.001Z"], [0, 2, 10]),
        (["--last", "2", "--limit", "3"], [2, 3, 11]),
        (["--last", "2", "--partition", "1"], [11, 12]),
        (["--last", "2", "--log-start", "0:3"], [3, 11, 12]),
    ],
)
def test_the_last_records(tierlog: Run, logs: pathlib.Path, options: list[str], expected: list[int]) -> None:
    """Otherwise the newest records come only with all others before them, or a filter makes them fewer."""
    assert [offset for _, _, offset in places(tierlog, logs, "orders", *options)] == expected


def test_the_last_records_of_transactions(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise markers and aborted records count, and fewer come than were asked for."""
    bucket = [data / "main-plain/objects", "fx-txn"]
    for isolation in ("read_uncommitted", "read_committed"):
        everything = places(tierlog, *bucket, "--isolation", isolation)
        assert places(tierlog, *bucket, "--isolation", isolation, "--last", "150") == everything[-150:]


def test_the_last_records_are_read_from_the_end(tmp_path: pathlib.Path) -> None:
    """Otherwise the last ten of a terabyte take as long as all of it."""
    batches = [Batch(offset, (b"x" * 900,), timestamp_ms=NOW_MS + offset) for offset in range(2000)]
    bucket = Bucket(tmp_path, index_interval_bytes=4096)
    for start in range(0, 2000, 500):
        bucket.segment(f"s{start}", batches[start : start + 500], lineage={0: 0})
    counts: list[CountingStore] = []

    def counted(store: ObjectStore) -> ObjectStore:
        counts.append(CountingStore(store))
        return counts[-1]

    request = ScanRequest(TopicSelection.of_names(["orders"]), clamp_offsets=True)
    with open_tier(str(tmp_path), wrap_store=counted) as tier:
        histories, _ = list_histories(tier, request)
        before = counts[-1].counts.bytes
        found = LastRecords(tier, request, 10).first_offsets(histories)
        assert found == {"orders": {0: 1990}}
        assert counts[-1].counts.bytes - before < 200_000  # of 1.9 MB
        assert LastRecords(tier, request, 1999).first_offsets(histories) == {"orders": {0: 1}}
        assert LastRecords(tier, request, 5000).first_offsets(histories) == {"orders": {0: 0}}


def test_relative_times(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise the records of the last hour take a calculation."""
    assert places(tierlog, logs, "--since", "1h") == [("orders-eu", 0, 5)]
    assert places(tierlog, logs, "orders-eu", "--until", "1h") == []
    outcome = tierlog("cat", logs, "--since", "1655000010")
    assert (outcome.code, "write 1655000010000" in outcome.err) == (2, True)


def test_headers_in_text_and_in_a_search(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a record that only its trace id tells cannot be found, nor its headers be seen."""
    lines = tierlog("cat", logs, "orders", "--partition", "0").text.splitlines()
    assert lines[0].endswith("\ta0\ttrace=abc,none=null,trace=\\xff")
    assert lines[2].endswith("\tnull\ta2")
    assert [place[2] for place in places(tierlog, logs, "orders", "--grep", "^trace=abc$")] == [0, 1]
    assert [place[2] for place in places(tierlog, logs, "orders", "--grep", "none=$")] == [0, 1]
    assert places(tierlog, logs, "orders", "--grep", "trace=abcd") == []


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%o %k %s\\n", b"0 k0 a0\n1  a1\n2  a2\n3  a3\n"),
        ("%t-%p@%o;", b"orders-0@0;orders-0@1;orders-0@2;orders-0@3;"),
        ("%K/%S ", b"2/2 -1/2 -1/2 -1/2 "),
        ("%T,", b"1700000000000,1700000000001,1700000000000,1700000000001,"),
        ("[%h]", b"[trace=abc,none=NULL,trace=\xff][trace=abc,none=NULL,trace=\xff][][]"),
        ("%R%s", b"\0\0\0\2a0\0\0\0\2a1\0\0\0\2a2\0\0\0\2a3"),
        ("%s\\0", b"a0\0a1\0a2\0a3\0"),
        ("%s\\x1e\\t\\r\\\\|", b"a0\x1e\t\r\\|a1\x1e\t\r\\|a2\x1e\t\r\\|a3\x1e\t\r\\|"),
        ("100%%ü\\012", "100%ü\n".encode() * 4),
        ("", b""),
    ],
)
def test_a_template_is_kcats_format(tierlog: Run, logs: pathlib.Path, template: str, expected: bytes) -> None:
    """Otherwise a script that was written for `kcat -f` prints something else."""
    outcome = tierlog("cat", logs, "orders", "--partition", "0", "--template", template)
    assert (outcome.code, outcome.out, outcome.err) == (0, expected, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--template", "%q"], "%q is none of %s"),
        (["--template", "%"], "% is none of"),
        (["--template", "%s", "--format", "json"], "does not go together"),
        (["--template", "%s", "--columns", "key"], "does not go together"),
        (["--columns", "key,nothing"], "'nothing' is none of topic, partition"),
        (["--columns", "key,key"], "twice"),
        (["--columns", ""], "none of"),
        (["--columns", "key", "--format", "raw"], "does not go together"),
        (["--count", "--format", "parquet"], "does not go together"),
        (["--count", "--columns", "key"], "does not go together"),
        (["--last", "0"], "--last"),
    ],
)
def test_options_that_make_no_sense(tierlog: Run, logs: pathlib.Path, options: list[str], told: str) -> None:
    """Otherwise one of two options that contradict each other is silently left out."""
    outcome = tierlog("cat", logs, "orders", *options)
    assert (outcome.code, outcome.out) == (2, b"")
    assert told in outcome.err


def test_columns(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a user who wants the keys reads the values too, and cuts them off again."""
    orders = [logs, "orders", "--partition", "0"]
    lines = tierlog("cat", *orders, "--columns", "offset,key", "--format", "json").text.splitlines()
    assert lines == [
        '{"offset":0,"key":"azA="}',
        '{"offset":1,"key":null}',
        '{"offset":2,"key":null}',
        '{"offset":3,"key":null}',
    ]
    text = tierlog("cat", *orders, "--columns", "value, partition,timestampType,headers").text.splitlines()
    assert text[0] == "a0\t0\tCreateTime\ttrace=abc,none=null,trace=\\xff"
    assert text[2] == "a2\t0\tCreateTime\t"
    constants = tierlog("cat", *orders, "--columns", "partition,topic,segment", "--format", "json").lines
    assert constants == [{"partition": 0, "topic": "orders", "segment": f"{0:020d}.log"}] * 4
    table = pq.read_table(io.BytesIO(tierlog("cat", *orders, "--columns", "value,offset", "--format", "parquet").out))
    assert table.to_pydict() == {"value": [b"a0", b"a1", b"a2", b"a3"], "offset": [0, 1, 2, 3]}
    found = tierlog("cat", *orders, "--columns", "offset", "--format", "arrow", "--grep", "k0").out
    assert pa.ipc.open_stream(found).read_all().to_pydict() == {"offset": [0]}


def test_the_two_forms_of_arrow(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise the half of all readers that wants the other form finds no magic bytes."""
    stream = pa.ipc.open_stream(tierlog("cat", logs, "orders", "--format", "arrow").out).read_all()
    file = pa.ipc.open_file(tierlog("cat", logs, "orders", "--format", "arrow-file").out).read_all()
    assert stream.equals(file)
    assert stream.num_rows == 7


def test_a_count(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise `| wc -l` counts the line feeds within values."""
    assert tierlog("cat", logs, "--count").text == "10\n"
    assert tierlog("cat", logs, "orders", "--count", "--grep", "0$").text == "2\n"
    assert tierlog("cat", logs, "^orders", "--count", "--last", "1").text == "3\n"
    assert tierlog("cat", logs, "orders", "--count", "--from", "99").text == "0\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["payments", "--from", "9"], "holds offsets 7 to 8, and offset 9 is beyond its end"),
        (["payments", "--to", "7"], "holds offsets 7 to 8, and offset 7, where to end, is not above its first offset"),
        (["payments", "--log-start", "8", "--to", "8"], "is not above the log start offset"),
        (["payments", "--log-start", "99"], "up to offset 8, lies below the log start offset 99"),
        (["payments", "--since", "1h"], "of its offsets 7 to 8 none has a record of that time"),
        (["payments", "--grep", "zzz"], "of its offsets 7 to 8 none matches"),
        (["payments", "--from", "8", "--to", "8"], "begin at offset 8 and end before 8"),
        (["^nothing"], "matches ^nothing"),
        (["--partition", "9"], "none of the partitions asked for is here; there are 0, 1, 2"),
    ],
)
def test_an_empty_answer_says_why(tierlog: Run, logs: pathlib.Path, arguments: list[str], told: str) -> None:
    """Otherwise nobody knows whether there is no such record, or the question was wrong."""
    outcome = tierlog("cat", logs, *arguments)
    assert (outcome.code, outcome.out) == (0, b"")
    assert told in outcome.err
    assert tierlog("cat", logs, *arguments, "--limit", "0").err.count("no record") == 0


def test_an_undecided_tail_says_so(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise read_committed of a partition with a hanging transaction looks like one without records."""
    data = Batch(4, (b"a", b"b"), producer_id=1, producer_epoch=0, transactional=True)
    root = disk(tmp_path, {"orders-0": [data, Batch(6, (b"plain",))]})
    outcome = tierlog("cat", root, "--isolation", "read_committed")
    assert (outcome.code, outcome.out) == (0, b"")
    assert "from offset 4 on it is undecided (a transaction is open): read_committed ends there" in outcome.err


def test_many_empty_partitions_are_a_few_lines(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a topic of a thousand partitions scrolls the answer away."""
    root = disk(tmp_path, {f"orders-{number}": [message(0, "v", 0)] for number in range(8)})
    outcome = tierlog("cat", root, "--from", "5")
    assert outcome.err.count("\n") == 6
    assert "3 more partitions" in outcome.err


@pytest.mark.skipif(not IN_CHECKOUT, reason="the pages are in a checkout only")
def test_the_page_for_them_names_options_that_exist() -> None:
    """Otherwise the first command that is copied from the page is wrong use."""
    page = (ROOT / "docs" / "coming-from-kcat.md").read_text()
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    known = set(re.findall(r"--[a-z-]+", reference.partition("## tierlog cat")[2].partition("## tierlog check")[0]))
    assert set(re.findall(r"--[a-z-]+", page.replace("---", ""))) <= known | {"--topics"}


@pytest.mark.skipif(not IN_CHECKOUT, reason="the pages are in a checkout only")
def test_the_page_names_the_fields_of_json(tierlog: Run, logs: pathlib.Path) -> None:
    """A filter of jq that was written for kcat's `-J` gives null for all other names."""
    rows = (ROOT / "docs" / "coming-from-kcat.md").read_text().partition("| kcat `-J` | tierlog |")[2]
    same, *others = rows.partition("\n\n")[0].splitlines()[2:]
    ours = [cells[2] if cells[2].startswith(" `") else "" for cells in (line.split("|") for line in others)]
    named = set(re.findall(r"`([a-zA-Z]+)`", same)) | {
        found[1] for text in ours if (found := re.match(r" `(\w+)`", text))
    }
    (line,) = tierlog("cat", logs, "orders", "--format", "json", "--limit", "1").lines
    assert named == set(line)
