"""``tierlog dump`` against what Kafka 4.3.1's own tool printed, and on what it cannot print."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import struct
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.batches import Batch, encode
from tierlog.cli.dump.payloads import java_text
from tierlog.cli.exits import guarded
from tierlog.cli.verbs.dump import dump as dump_verb
from tierlog.records.decoding import decode

RUNNER = CliRunner()


@dataclass
class Outcome:
    code: int
    lines: list[str]
    told: str


def dump(*arguments: str | Path) -> Outcome:
    """Runs the verb in this process."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("dump")(guarded(dump_verb))
    result = RUNNER.invoke(app, ["dump", *map(str, arguments)])
    # Not str.splitlines: payloads hold line separators of Unicode.
    return Outcome(result.exit_code, result.stdout_bytes.decode("utf-8").split("\n")[:-1], result.stderr)


def by_file(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("Dumping "):
            name = line.rsplit("/", 1)[-1].removeprefix("Dumping ")
            found[name] = []
        else:
            found[name].append(line)
    return found


def expected(answer: Path) -> dict[str, list[str]]:
    """The tool's output; without the files on which it ended with an exception."""
    with gzip.open(answer, "rt", encoding="utf-8") if answer.suffix == ".gz" else answer.open(encoding="utf-8") as text:
        files = by_file(text.read().split("\n")[:-1])
    return {name: lines for name, lines in files.items() if not any(line.startswith("EXC ") for line in lines)}


def compare(run: Path) -> int:
    """Every dump of a run against ours, line by line; returns how many files were compared."""
    compared = 0
    for answer in sorted(run.glob("expected-dump/**/*.dump.txt*")):
        folder = answer.name.split(".dump")[0]
        metadata = answer.parent.name == "rlmm-after-stop"
        if folder.startswith("__remote") and not metadata:
            continue  # dumped there without its decoder
        roots = (
            [run / "broker-after-stop"]
            if metadata
            else [run / "local-before" / answer.parent.name, run / "local-before"]
        )
        places = [p for root in roots if root.exists() for p in sorted(root.rglob(folder)) if p.is_dir()]
        if not places:
            continue
        want = {name: lines for name, lines in expected(answer).items() if (places[0] / name).exists()}
        options = ["--remote-log-metadata"] if metadata else ["--deep"]
        got = by_file(dump(*options, *(places[0] / name for name in want)).lines) if want else {}
        for name, lines in want.items():
            assert got[name] == lines, f"{answer} {name}"
        compared += len(want)
    return compared


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
def test_equal_to_the_tool(data: Path, run: str) -> None:
    """Else an operator's scripts that read kafka-dump-log break on ours."""
    assert compare(data / run) > 5 or not (data / run / "expected-dump").exists()


def test_equal_to_the_tool_in_the_full_set(fixtures: Path) -> None:
    """The same for every file of every run."""
    assert sum(compare(run) for run in sorted(fixtures.iterdir()) if (run / "expected-dump").is_dir()) > 890


def test_old_formats(data: Path, tmp_path: Path) -> None:
    """Else a log of before 2017 is shown with made-up offsets, times or checksums."""
    want = (Path(__file__).parent / "dump_v1_snappy_compacted.txt").read_text("utf-8").split("\n")[:-1]
    log = tmp_path / "00000000000000000000.log"
    shutil.copy(data / "record-v0-v1/v1-snappy-compacted.log", log)
    assert by_file(dump("--deep", log).lines)[log.name] == want[1:]
    for source in sorted((data / "record-v0-v1").glob("*.log")):
        records = source.with_suffix(".records.jsonl").read_text().splitlines()
        lines = dump("--format", "json", "--print-data-log", source).lines
        found = [row for row in map(json.loads, lines) if row["kind"] == "record"]
        assert [(r["offset"], r["key"], r["value"]) for r in found] == [
            (r["offset"], r["key"], r["value"]) for r in map(json.loads, records)
        ]
        assert all(row["isValid"] for row in found if "isValid" in row)


def test_a_directory_is_all_its_files(data: Path) -> None:
    """Else part of a partition is left out of a dump unseen."""
    root = data / "main-plain/local-before/broker1"
    whole = dump("--topic", "fx-txn", root)
    folder = dump(root / "fx-txn-0")
    names = set(by_file(folder.lines))
    # Of the directory's own files, the offset checkpoints are dumped beside its folders.
    assert {name: lines for name, lines in by_file(whole.lines).items() if name in names} == by_file(folder.lines)
    assert {path.name for path in root.glob("*-offset-checkpoint")} >= set(by_file(whole.lines)) - names
    assert {path.name for path in (root / "fx-txn-0").iterdir()} == names


def test_parts_of_a_bucket_equal_the_brokers_files(data: Path) -> None:
    """Else what lies in the bucket cannot be compared with what the broker had."""
    bucket, folder = data / "main-plain/objects", data / "main-plain/local-before/broker1/fx-txn-0"
    tiered = dump("--topic", "fx-txn", "--deep", bucket)
    assert tiered.code == 0
    parts = by_file(tiered.lines)
    files = by_file(dump("--deep", folder).lines)
    compared = 0
    for name, lines in parts.items():
        offset, _, rest = name.partition("-")
        local = f"{offset}.{rest.rsplit('.', 1)[-1]}"
        if local.endswith((".log", ".index", ".timeindex", ".txnindex")):
            # Names differ: the bucket's carry the segment's id.
            assert [line.replace(name, local) for line in lines] == files[local], name
            compared += 1
    assert compared > 10


def test_a_bucket_of_several_topics_asks_which(data: Path) -> None:
    """Else a dump of one topic begins with terabytes of another."""
    outcome = dump(data / "main-plain/objects")
    assert outcome.code == 2
    assert "--topic" in outcome.told
    assert "fx-txn" in outcome.told


def test_payloads_and_what_json_says(tmp_path: Path) -> None:
    """Else bytes that are no text are lost in JSON, or null and empty look the same."""
    log = tmp_path / "00000000000000000007.log"
    log.write_bytes(encode(Batch(7, (b"v", b"", b"\xff"), keys=(b"k", None, b"\xe2\x82\xac"))))
    lines = dump("--print-data-log", log).lines
    assert lines[1] == "Log starting offset: 7"
    assert lines[3].endswith("keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v")
    assert lines[4].endswith("keySize: -1 valueSize: 0 sequence: -1 headerKeys: [] payload: ")
    assert lines[5].endswith("key: € payload: \N{REPLACEMENT CHARACTER}")
    rows = [json.loads(line) for line in dump("--format", "json", "--print-data-log", log).lines]
    assert [row["kind"] for row in rows] == ["log", "batch", "record", "record", "record"]
    assert [row["value"] for row in rows[2:]] == [base64.b64encode(v).decode() for v in (b"v", b"", b"\xff")]
    assert rows[3]["key"] is None
    assert rows[1]["count"] == 3


def test_a_torn_tail_is_counted(data: Path) -> None:
    """Else the end of a log that crashed looks like its whole end."""
    outcome = dump(data / "bad/log/01-truncated-tail.log")
    assert outcome.lines[-1] == "Found 1293 invalid bytes at the end of 01-truncated-tail.log"
    assert outcome.code == 1
    oversized = dump(data / "bad/log/06-batch-length-intmax.log")
    assert oversized.lines[-1] == "Found 17805 invalid bytes at the end of 06-batch-length-intmax.log"


@pytest.mark.parametrize(
    ("name", "batches", "records", "words"),
    [
        ("04-flipped-byte", 4, 121, "checksum"),
        ("07-magic-3", 2, 56, "unknown magic"),
        ("09-count-too-low", 1, 2, "left over"),
        ("12-varint-overflow", 1, 0, "too long"),
        ("25-batches-out-of-order", 3, 60, "offset"),
        ("27-codec-5", 0, 0, "codec 5"),
        ("28-garbage-zeros", 4, 121, "impossible size"),
        ("29-garbage-random", 0, 0, "impossible size"),
        ("31-control-key-short", 1, 0, "control record"),
        ("41-zstd-corrupt-middle", 1, None, ""),
        ("50-bomb-zstd-one-record", 1, 0, "limit"),
    ],
)
def test_faults_are_told_with_what_is_valid(
    data: Path, name: str, batches: int, records: int | None, words: str
) -> None:
    """Else a damaged log is shown as a shorter one, or not at all."""
    path = data / f"bad/log/{name}.log"
    if not path.exists():
        pytest.skip(f"{name} is not in the committed subset")
    outcome = dump("--deep", path)
    assert outcome.code == 1
    assert sum("isvalid:" in line for line in outcome.lines) == batches
    if records is not None:
        assert sum(line.startswith("| offset") for line in outcome.lines) == records
    assert words in outcome.told
    assert str(path) in outcome.told
    rows = [json.loads(line) for line in dump("--deep", "--format", "json", path).lines]
    assert any(row["kind"] == "fault" and row["position"] >= 0 for row in rows)


def test_no_malformed_log_ends_in_a_traceback(data: Path) -> None:
    """Else hostile bytes crash the tool that is meant to look at them."""
    for path in sorted((data / "bad/log").glob("*.log")):
        for options in (["--deep"], ["--print-data-log", "--format", "json"], []):
            outcome = dump(*options, path)
            assert outcome.code in (0, 1), (path, outcome.told)
            assert "unexpected" not in outcome.told
            if "good" in path.name or path.name == "30-empty.log":
                assert outcome.code == 0


SMALL = encode(Batch(0, (b"v", b"w"))) + encode(Batch(2, producer_id=1, producer_epoch=0, marker="abort"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes_end_in_faults(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    """Else damage that nobody thought of ends the dump with a traceback."""
    damaged = bytearray(SMALL)
    for place, value in flips:
        damaged[place] = value
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(damaged)
    outcome = dump("--print-data-log", log)
    assert outcome.code in (0, 1), outcome.told
    assert outcome.code == 1 or "isvalid: false" not in "".join(outcome.lines)


def test_metadata_records_that_cannot_be_decoded(data: Path) -> None:
    """Else one bad metadata record hides all that follow it."""
    for path in sorted((data / "bad/rlmm").glob("*.log")):
        outcome = dump("--remote-log-metadata", path)
        fine = path.name.startswith(("00-", "08-"))
        assert outcome.code == (0 if fine else 1), path
        assert any("payload: RemoteLogSegmentMetadata" in line for line in outcome.lines) == fine
        assert any("payload: Error at offset 0, skipping. " in line for line in outcome.lines) != fine


def test_metadata_as_json(data: Path) -> None:
    """Else a script has to parse Java's toString."""
    row = json.loads(dump("--remote-log-metadata", "--format", "json", data / "bad/rlmm/00-good.log").lines[-1])
    assert row["payload"]["type"] == "RemoteLogSegmentMetadata"
    assert row["payload"]["topic"] == "fx-gzip"
    assert row["payload"]["segmentLeaderEpochs"] == {"0": 0}


KIP_PROPERTIES = ("print.partition", "print.message.offset", "print.version")


def test_metadata_as_the_kip_has_it(data: Path) -> None:
    """Else records are left out of the KIP's form, or have another place in the topic than they have."""
    topic = sorted((data / "main-plain/broker-after-stop/broker1").glob("__remote_log_metadata-*"))
    properties = [word for name in KIP_PROPERTIES for word in ("--property", f"{name}=true")]
    kip = dump("--format", "kip", *properties, *topic)
    rows = [json.loads(line) for line in dump("--remote-log-metadata", "--format", "json", *topic).lines]
    records = [row for row in rows if row["kind"] == "record"]
    assert kip.code == 0
    assert len(kip.lines) == len(records) > 10
    for line, row in zip(kip.lines, records, strict=True):
        partition = Path(row["file"]).parent.name.rpartition("-")[2]
        kind = row["payload"]["type"]
        start = f"partition:{partition},message-offset:{row['offset']},type:{kind},version:0,event-value:{{"
        assert line.startswith(start)
        assert row["payload"]["segmentId"] in line
        assert line.endswith(f"remote-log-segment-state:{row['payload']['state']}}}")


def test_metadata_that_cannot_be_decoded_in_the_kips_form(data: Path) -> None:
    """Else one bad record hides the others, or ends in a traceback."""
    paths = sorted((data / "bad/rlmm").glob("*.log"))
    outcome = dump("--format", "kip", *paths)
    assert outcome.code == 1
    assert len(outcome.lines) == len(paths)
    assert sum(line.startswith("Error at offset 0, skipping. ") for line in outcome.lines) == len(paths) - 2


def test_options_of_the_kips_form(data: Path) -> None:
    """Else a property is accepted that does nothing, or a partition is printed that nobody knows."""
    path = data / "bad/rlmm/00-good.log"
    for arguments in (["--property", "print.version=true"], ["--format", "kip", "--property", "print.versoin=true"]):
        assert dump(*arguments, path).code == 2
    outcome = dump("--format", "kip", "--property", "print.partition=true", path)
    assert outcome.code == 2
    assert "folder of a partition" in outcome.told


def keyed_metadata(folder: Path, data: Path) -> Path:
    """A metadata partition as KIP-1266 would have it: one record with a key, then its tombstone."""
    value = decode((data / "bad/rlmm/00-good.log").read_bytes()).column("value")[0].as_py()
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    log.write_bytes(encode(Batch(0, (value,), keys=(b"segment \xff one",))) + encode(Batch(1, (None,), keys=(b"k",))))
    return log


def test_keyed_metadata_records_and_tombstones(tmp_path: Path, data: Path) -> None:
    """Else the topic of a cluster that compacts it ends in faults, or its keys are not seen."""
    log = keyed_metadata(tmp_path / "__remote_log_metadata-1", data)
    kafka = dump("--remote-log-metadata", log)
    assert kafka.code == 0, kafka.told
    lines = [line for line in kafka.lines if line.startswith("| offset")]
    assert "key: segment \N{REPLACEMENT CHARACTER} one payload: RemoteLogSegmentMetadata{" in lines[0]
    assert lines[1].endswith("key: k payload: <DELETE>")
    kip = dump("--format", "kip", log)
    assert kip.code == 0
    assert kip.lines[0].startswith("key:segment \N{REPLACEMENT CHARACTER} one,type:RemoteLogSegmentMetadata,")
    assert kip.lines[1] == "key:k,<DELETE>"
    rows = [json.loads(line) for line in dump("--remote-log-metadata", "--format", "json", log).lines]
    first, second = (row for row in rows if row["kind"] == "record")
    assert base64.b64decode(first["key"]) == b"segment \xff one"
    assert first["payload"]["type"] == "RemoteLogSegmentMetadata"
    assert (second["key"], second["payload"]) == (base64.b64encode(b"k").decode(), None)


def segment(folder: Path, *, index: bytes, time_index: bytes) -> Path:
    """Two batches, at 0 and 79, ending with offsets 10 and 11, with an index of each kind."""
    folder.mkdir()
    stem = folder / "00000000000000000010"
    stem.with_suffix(".log").write_bytes(encode(Batch(10)) + encode(Batch(11, timestamp_ms=1_700_000_000_005)))
    stem.with_suffix(".index").write_bytes(index)
    stem.with_suffix(".timeindex").write_bytes(time_index)
    return stem


def test_indexes_are_compared_with_their_log(tmp_path: Path) -> None:
    """Else an index that sends readers to the wrong batch passes as sound."""
    second = len(encode(Batch(10)))
    sound = segment(
        tmp_path / "sound", index=struct.pack(">ii", 1, second), time_index=struct.pack(">qi", 1_700_000_000_005, 1)
    )
    assert dump(*(sound.with_suffix(s) for s in (".index", ".timeindex"))).code == 0
    wrong = segment(
        tmp_path / "wrong",
        index=struct.pack(">iiii", 1, 0, 2, second + 1),
        time_index=struct.pack(">qiqi", 5, 0, 6, 7),
    )
    found = dump(wrong.with_suffix(".index"))
    assert found.code == 1
    assert found.lines[-2:] == [f"Mismatches in :{wrong.name}.index", "  Index offset: 11, log offset: 10"]
    assert f"points to {second + 1}, where no batch begins" in found.told
    times = dump(wrong.with_suffix(".timeindex"))
    assert times.code == 1
    assert times.lines[3:] == [
        f"Found timestamp mismatch in :{wrong.name}.timeindex",
        "  Index timestamp: 5, log timestamp: 1700000000000",
        f"The following indexed offsets are not found in :{wrong.name}.timeindex",
        "Indexed offset: 17, found log offset: -1",
    ]


def test_preallocated_indexes_are_no_fault(tmp_path: Path) -> None:
    """Else every active segment of a healthy broker counts as damaged."""
    stem = segment(tmp_path / "active", index=bytes(80), time_index=bytes(120))
    outcome = dump(stem.with_suffix(".index"), stem.with_suffix(".timeindex"))
    assert outcome.code == 0
    assert "offset: 10 position: 0" in outcome.lines
    lines = dump("--format", "json", stem.with_suffix(".index"), stem.with_suffix(".timeindex")).lines
    assert lines == []


def test_an_index_without_its_log_says_so(tmp_path: Path) -> None:
    """Else entries that nothing was compared with look checked."""
    path = tmp_path / "00000000000000000010.index"
    path.write_bytes(struct.pack(">ii", 1, 700))
    outcome = dump(path)
    assert outcome.lines == [f"Dumping {path}", "offset: 11 position: 700"]
    assert "its .log is not there" in outcome.told


def test_malformed_indexes(data: Path) -> None:
    """Else a damaged index, snapshot or checkpoint is printed as if it were sound."""
    for path in sorted((data / "bad/index").iterdir()):
        outcome = dump(path)
        good = "good" in path.name or path.name.startswith("05-all-zero")
        if path.name.startswith("03-"):
            continue  # sound by itself but for a position that only its log contradicts
        assert outcome.code == (0 if good else 1), (path, outcome.told)


def test_transaction_state_is_decoded(tmp_path: Path) -> None:
    """Else a stuck transaction cannot be looked at without a broker; the lines are those of the tool."""
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    partitions = struct.pack(">ih3sii", 1, 3, b"abc", 1, 7)
    values = (struct.pack(">hqhib", 0, 4, 1, 60000, 1) + partitions + struct.pack(">qq", 111, 99), b"\x00\x09", b"x")
    keys = (b"\x00\x00\x00\x04\\\x1f\xc3\xa9", b"\x00\x00\x00\x01b", b"\x00\x03\x00\x00")
    (folder / "00000000000000000000.log").write_bytes(encode(Batch(0, values, keys=keys)))
    outcome = dump("--deep", folder)
    assert outcome.code == 1
    shown = [line.partition("headerKeys: [] ")[2] for line in outcome.lines[3:]]
    assert shown[0] == (
        r'key: {"type":"0","data":{"transactionalId":"\\\u001Fé"}} payload: {"version":"0","data":{"producerId":4,'
        '"producerEpoch":1,"transactionTimeoutMs":60000,"transactionStatus":1,"transactionPartitions":[{"topic":"abc",'
        '"partitionIds":[7]}],"transactionLastUpdateTimestampMs":111,"transactionStartTimestampMs":99}}'
    )
    assert shown[1].startswith("key: Error at offset 1, skipping. ")
    assert shown[2] == "key: Unknown record type 3 at offset 2, skipping."


def test_checkpoints_and_foreign_files(tmp_path: Path, data: Path) -> None:
    """Else the small files of a folder, which decide how it is read, cannot be looked at."""
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n3 500\n")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n1\norders 3 17\n")
    (tmp_path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA")
    (tmp_path / "notes.txt").write_bytes(b"mine")
    outcome = dump(*sorted(tmp_path.iterdir()))
    assert outcome.code == 0
    assert [line for line in outcome.lines if not line.startswith("Dumping")] == [
        "epoch: 0 startOffset: 0",
        "epoch: 3 startOffset: 500",
        "topic: orders partition: 3 offset: 17",
        "version: 0 topicId: ASNFZ4mrze8RIjNEVWZ3iA",
    ]
    assert "notes.txt" in outcome.told
    assert dump(tmp_path / "absent.log").code == 3


def test_text_is_javas() -> None:
    """Else payloads of malformed UTF-8 differ from the tool's by the number of replacement characters."""
    r = "\N{REPLACEMENT CHARACTER}"
    assert java_text(b"\xed\xa0\x80x") == r + "x"
    assert java_text(b"\xed\xa0x") == r + "x"
    assert java_text(b"\xed\xa0") == r
    assert java_text(b"\xc0\x80\xf0\x90\x80x\xe2\x82") == r * 3 + "x" + r
    assert java_text("aé€😀".encode()) == "aé€😀"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Else a dump of one large segment takes the machine down."""
    log = tmp_path / "00000000000000000000.log"
    batch = encode(Batch(0, (b"x" * 1000,) * 10))
    with log.open("wb") as out:
        for offset in range(0, 60_000, 10):
            out.write(struct.pack(">q", offset) + batch[8:])  # the checksum leaves the base offset out
    assert log.stat().st_size > 50 << 20
    tracemalloc.start()
    try:
        outcome = dump(log)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(outcome.lines) == 2 + 6000
    assert peak_bytes < 30 << 20
