"""`tierlog copy`: what was in the source is in the bucket, whole, checked, and only once."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import shutil
import time

import pytest

from tests.conftest import FIXTURES, FIXTURES_ABSENT
from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.command import Outcome, Run, config_file, made_disk, properties, run_process
from tests.support.golden import Case, config_of, tiered_topics
from tests.support.kip_scripts import SCRIPTS
from tests.support.servers import READER_KEYS, StoreServer
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
CASES = [case for case in tiered_topics(DATA) if any((case.run / "local-before").rglob(f"{case.topic}-*/*.log"))]
BROKERS = FIXTURES / "main-plain" / "local-before"


def log_folders(case: Case) -> list[pathlib.Path]:
    """The log directories of the case that hold its topic."""
    found = (case.run / "local-before").rglob(f"{case.topic}-*")
    return sorted({path.parent for path in found if path.is_dir()})


def closed_logs(folder: pathlib.Path, topic: str) -> dict[str, bytes]:
    """<topic>-<partition>/<name> -> content of every log that is not its partition's last."""
    found: dict[str, bytes] = {}
    for partition in folder.glob(f"{topic}-*"):
        for log in sorted(partition.glob("*.log"))[:-1]:
            found[f"{partition.name}/{log.name}"] = log.read_bytes()
    return found


def exported(tierlog: Run, bucket: pathlib.Path, topic: str, out: pathlib.Path, *options: object) -> dict[str, bytes]:
    """The same of a bucket, by ``tierlog export``."""
    outcome = tierlog("export", bucket, topic, out, *options)
    assert outcome.code == 0, outcome.err
    return {f"{log.parent.name}/{log.name}": log.read_bytes() for log in out.rglob("*.log")}


def files(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder: its name -> inode and time of change."""
    found = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def states(outcome: Outcome) -> list[object]:
    return [line["state"] for line in outcome.lines]


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_brokers_disk(tierlog: Run, tmp_path: pathlib.Path, case: Case) -> None:
    """Otherwise a topic that is moved into a bucket is not the topic that the broker had."""
    for folder in log_folders(case):
        expected = closed_logs(folder, case.topic)
        if not expected:
            continue
        dest = tmp_path / f"dest-of-{folder.name}"
        config = config_file(case.run, tmp_path)
        arguments = (folder, dest, case.topic, *(["--dest-config", config[1]] if config else []))
        outcome = tierlog("copy", *arguments, "--output", "json")
        assert outcome.code == 0, outcome.err
        assert states(outcome) == ["copied"] * len(expected)
        assert exported(tierlog, dest, case.topic, tmp_path / f"out-of-{folder.name}", *config) == expected
        assert tierlog("verify", dest, case.topic, *config).code == 0
        before = files(dest)
        again = tierlog("copy", *arguments, "--output", "json")
        assert (again.code, states(again)) == (0, ["present"] * len(expected))
        assert files(dest) == before


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_from_bucket_to_bucket_and_back(tierlog: Run, tmp_path: pathlib.Path, case: Case) -> None:
    """Re-chunked, re-compressed, re-keyed and under another prefix, a segment is still itself, under its own id."""
    source_config = config_file(case.run, tmp_path)
    kafka = properties(tmp_path / "kafka.properties", layout="kafka", key_prefix="plain/")
    first = tierlog(
        "copy", case.objects, tmp_path / "k", case.topic, *source_config, "--dest-config", kafka, "--output", "json"
    )
    assert first.code == 0, first.err
    assert set(states(first)) == {"copied"}
    keys = config_of(DATA / "zstd-aes") | {"rsm.config.chunk.size": "5000", "rsm.config.key.prefix": "sealed/"}
    sealed = tmp_path / "sealed.properties"
    sealed.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    second = tierlog("copy", tmp_path / "k", tmp_path / "s", "--config", kafka, "--dest-config", sealed)
    assert second.code == 0, second.err
    wanted = {line["segmentId"] for line in first.lines}
    assert {path.stem[21:] for path in (tmp_path / "s").rglob("*.log")} == wanted
    if case.run.name != "local-tiered":
        assert {path.stem[21:] for path in case.folder.rglob("*.log")} == wanted
    assert all(path.is_relative_to(tmp_path / "s/sealed") for path in (tmp_path / "s").rglob("*.rsm-manifest"))
    original = exported(tierlog, case.objects, case.topic, tmp_path / "one", *source_config)
    assert exported(tierlog, tmp_path / "s", case.topic, tmp_path / "two", "--config", sealed) == original
    for path in (tmp_path / "k", tmp_path / "s"):
        config = kafka if path.name == "k" else sealed
        assert tierlog("verify", path, "--config", config).code == 0


@pytest.mark.few(3)
@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_branches_come_along(tierlog: Run, tmp_path: pathlib.Path, script: str) -> None:
    """Segments that do not count, or count in part, are copied as they are: what counts is the reader's to say."""
    expected = SCRIPTS[script](tmp_path / "bucket")
    assert tierlog("copy", tmp_path / "bucket", tmp_path / "dest").code == 0
    found = tierlog("cat", tmp_path / "dest", "orders", "--format", "json", "--value-as", "utf8").lines
    assert [(line["offset"], line["value"], line["leaderEpoch"]) for line in found] == expected


def test_a_damaged_segment_is_named_and_left_out(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise damage becomes the only copy there is."""
    disk = made_disk(tmp_path, tierlog)
    log = disk / f"orders-0/{3:020d}.log"
    data = bytearray(log.read_bytes())
    data[90] ^= 1
    log.write_bytes(data)
    outcome = tierlog("copy", disk, tmp_path / "dest", "--output", "json")
    assert outcome.code == 3
    assert sorted(map(str, states(outcome))) == ["copied", "copied", "copied", "failed"]
    (failed,) = [line for line in outcome.lines if line["state"] == "failed"]
    assert (failed["startOffset"], failed["object"]) == (3, None)
    assert f"{3:020d}.log" in str(failed["error"])
    assert "checksum" in outcome.err
    left = [
        path.name for path in (tmp_path / "dest").rglob("*") if path.is_file() and path.name.startswith(f"{3:020d}")
    ]
    assert left == []


@pytest.mark.few(3)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("how", ["missing", "of another segment", "torn"])
def test_a_sparse_index_is_built_anew(tierlog: Run, tmp_path: pathlib.Path, suffix: str, how: str) -> None:
    """Otherwise one lost index keeps a segment from being copied, or a wrong one leads readers astray for ever."""
    disk = made_disk(tmp_path, tierlog)
    index = disk / f"orders-0/{3:020d}.{suffix}"
    right = index.read_bytes()
    assert right
    if how == "missing":
        index.unlink()
    elif how == "torn":
        index.write_bytes(right[:-1])
    else:
        # Of a segment that is three times as long: it points behind this one's end.
        entry = (b"\0\0\0\7\0\0\x7f\xff") if suffix == "index" else (2**41).to_bytes(8, "big") + b"\0\0\0\7"
        index.write_bytes(right + entry)
    outcome = tierlog("copy", disk, tmp_path / "dest", "--output", "json")
    assert outcome.code == 0, outcome.err
    (noted,) = [line for line in outcome.lines if line["notes"]]
    assert noted["startOffset"] == 3
    assert "built anew from the log" in str(noted["notes"])
    assert "built anew" in outcome.err
    assert tierlog("verify", tmp_path / "dest").code == 0
    assert tierlog("copy", disk, tmp_path / "dest", "--output", "json").code == 0


def test_the_second_replica_of_a_partition(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """What its broker's clock and its own appends made otherwise is no damage; an open transaction is."""
    disk, dest, other = made_disk(tmp_path, tierlog), tmp_path / "dest", tmp_path / "replica"
    shutil.copytree(disk, other)
    assert tierlog("copy", disk, dest).code == 0
    before = files(dest)
    known = ProducerEntry(41, 0, 9, 5, 0, 1_700_000_000_000, -1, -1)
    snapshot = other / f"orders-0/{6:020d}.snapshot"
    snapshot.write_bytes(encode_producer_snapshot([known]))
    (other / f"orders-0/{9:020d}.snapshot").unlink()
    (other / f"orders-0/{3:020d}.index").write_bytes(b"")
    outcome = tierlog("copy", other, dest, "--output", "json")
    assert (outcome.code, set(states(outcome))) == (0, {"present"}), outcome.err
    assert {line["startOffset"]: line["kept"] for line in outcome.lines} == {
        0: [],
        3: ["offset", "producer_snapshot"],
        6: ["producer_snapshot"],
        9: [],
    }
    (line,) = [line for line in outcome.err.splitlines() if "another replica" in line]
    assert line.endswith("offset of 1, producer_snapshot of 2")
    assert files(dest) == before

    snapshot.write_bytes(encode_producer_snapshot([dataclasses.replace(known, transaction_first_offset=4)]))
    outcome = tierlog("copy", other, dest, "--output", "json")
    assert outcome.code == 3
    assert "open transactions by producer: {}, the source has {41: 4}" in outcome.err


@pytest.mark.skipif(not BROKERS.is_dir(), reason=FIXTURES_ABSENT)
def test_two_real_brokers_replicas(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Real ones: two of ten segments have other sparse indexes, seven other producer snapshots."""
    assert tierlog("copy", BROKERS / "broker1", tmp_path / "dest", "fx-epochs").code == 0
    outcome = tierlog("copy", BROKERS / "broker2", tmp_path / "dest", "fx-epochs", "--output", "json")
    assert (outcome.code, set(states(outcome))) == (0, {"present"}), outcome.err
    assert "offset of 2, producer_snapshot of 7, timestamp of 2" in outcome.err


def test_a_copy_of_another_log_is_not_taken_for_done(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A log whose batches are sound and which is not the source's, under the id that the source's content makes."""
    disk, dest = made_disk(tmp_path, tierlog), tmp_path / "dest"
    assert tierlog("copy", disk, dest).code == 0
    log = sorted(dest.rglob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[15] ^= 1  # the leader epoch: not under the checksum
    log.write_bytes(data)
    outcome = tierlog("copy", disk, dest)
    assert outcome.code == 3
    assert "the copied log differs from the source's" in outcome.err


def test_what_nothing_can_stand_in_for(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A segment without its producer snapshot, or of an unknown topic id, is an error that says what is missing."""
    disk = made_disk(tmp_path, tierlog)
    (disk / f"orders-0/{6:020d}.snapshot").unlink()
    outcome = tierlog("copy", disk, tmp_path / "dest")
    assert outcome.code == 3
    assert f"{6:020d}.snapshot" in outcome.err
    assert len(list((tmp_path / "dest").rglob("*.rsm-manifest"))) == 3
    (disk / "orders-0/partition.metadata").unlink()
    outcome = tierlog("copy", disk, tmp_path / "other")
    assert outcome.code == 3
    assert "partition.metadata" in outcome.err
    assert not list((tmp_path / "other").rglob("*.*"))


def test_leftovers_of_a_killed_copy_are_replaced(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A log without its manifest, half a log, an empty manifest: the same command makes them whole."""
    disk = made_disk(tmp_path, tierlog)
    dest = tmp_path / "dest"
    assert tierlog("copy", disk, dest).code == 0
    whole = {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()}
    logs = sorted(path for path in whole if path.suffix == ".log")
    logs[0].with_suffix(".rsm-manifest").unlink()
    logs[1].write_bytes(whole[logs[1]][:50])
    logs[2].with_suffix(".rsm-manifest").write_bytes(b"")
    logs[3].with_suffix(".indexes").unlink()
    outcome = tierlog("copy", disk, dest, "--output", "json")
    assert outcome.code == 0, outcome.err
    assert set(states(outcome)) == {"copied"}
    assert {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()} == whole


def test_a_damaged_copy_is_not_taken_for_done(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a second run says "present" of a segment that rotted, and the source is deleted."""
    disk, dest = made_disk(tmp_path, tierlog), tmp_path / "dest"
    assert tierlog("copy", disk, dest).code == 0
    log = sorted(dest.rglob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    outcome = tierlog("copy", disk, dest, "--output", "json")
    assert outcome.code == 3
    assert log.name in outcome.err
    quick = tierlog("copy", disk, dest, "--no-recheck", "--output", "json")
    assert (quick.code, set(states(quick))) == (0, {"present"})


def test_ids_depend_on_content(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise two brokers' different segments of the same offsets would be one object."""
    disk = made_disk(tmp_path, tierlog)
    assert tierlog("copy", disk, tmp_path / "a").code == 0
    log = disk / f"orders-0/{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[15] ^= 1  # the leader epoch: not under the checksum
    log.write_bytes(data)
    assert tierlog("copy", disk, tmp_path / "b").code == 0
    first, second = ({path.name for path in (tmp_path / name).rglob("*.log")} for name in "ab")
    assert len(first & second) == 3


def test_custom_metadata_is_what_a_broker_would_keep(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A user who registers the copied segments with a cluster needs it."""
    disk = made_disk(tmp_path, tierlog)
    config = properties(
        tmp_path / "c.properties",
        custom_metadata_fields_include="REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
        key_prefix="here/",
    )
    for _ in range(2):
        line = tierlog("copy", disk, tmp_path / "dest", "--dest-config", config, "--output", "json").lines[0]
        custom = decode_custom_metadata(base64.b64decode(str(line["customMetadata"])), where="")
        assert (custom.object_prefix, custom.remote_size) == ("here/", line["storedBytes"])
        assert f"here/{custom.object_key}.log" == line["object"]


def test_what_is_left_out_is_said(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """The active segment and Kafka's own topics are not copied by the way, and nobody should believe they were."""
    disk = made_disk(tmp_path, tierlog)
    shutil.copytree(disk / "orders-0", disk / "__consumer_offsets-7")
    outcome = tierlog("copy", disk, tmp_path / "dest")
    assert outcome.code == 0
    assert "__consumer_offsets" in outcome.err
    assert "1 active" in outcome.err
    assert {path.name.rpartition("-")[0].partition("-")[0] for path in (tmp_path / "dest").iterdir()} == {"orders"}
    by_name = tierlog("copy", disk, tmp_path / "dest", "__consumer_offsets", "--output", "json")
    assert len(by_name.lines) == 4


def test_wrong_use(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A typing error must not look like a copy that had nothing to do."""
    disk = made_disk(tmp_path, tierlog)
    assert tierlog("copy", disk, disk).code == 2
    assert tierlog("copy", disk / f"orders-0/{0:020d}.log", tmp_path / "dest").code == 2
    unknown = tierlog("copy", disk, tmp_path / "dest", "oders")
    assert unknown.code == 3
    assert "orders" in unknown.err
    bad = properties(tmp_path / "bad.properties", chunk_sise=5)
    assert tierlog("copy", disk, tmp_path / "dest", "--dest-config", bad).code == 2
    sealed = properties(tmp_path / "sealed.properties", encryption_enabled="true")
    assert tierlog("copy", disk, tmp_path / "dest", "--dest-config", sealed).code == 2


def test_the_sources_download_limit_holds(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a bucket that is moved takes the network from the brokers that serve consumers from it."""
    bucket = Bucket(tmp_path / "source")
    for number in range(3):
        bucket.segment(f"u{number}", [message(number, "m" * 700_000, 0)], lineage={0: 0})
    config = properties(tmp_path / "source.properties", **{"download.rate.limit.bytes.per.second": 1 << 20})
    dest = properties(tmp_path / "dest.properties", chunk_size=100_000)
    began = time.monotonic()
    outcome = tierlog("copy", tmp_path / "source", tmp_path / "dest", "--config", config, "--dest-config", dest)
    assert outcome.code == 0, outcome.err
    assert time.monotonic() - began >= 1.2


def test_a_key_that_only_reads_leaves_nothing_and_says_why(
    tmp_path: pathlib.Path, data: pathlib.Path, s3: StoreServer
) -> None:
    """The cause came last, behind a page of warnings of objects that the store had refused to take."""
    keys = {"store.access_key_id": READER_KEYS[0], "store.secret_access_key": READER_KEYS[1]}
    config = tmp_path / "reader.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in {**s3.options, **keys}.items()))
    dest = f"{s3.url}/only-read"
    outcome = run_process("copy", data / "main-plain" / "objects", dest, "--dest-config", config)
    assert outcome.code == 3
    (line,) = outcome.err.splitlines()
    assert "status 403" in line


def test_empty_segments_of_a_compacted_log_are_left_out(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """The plugin fetches no object without a byte; without the offsets of such a segment readers tell of a loss."""
    bucket = Bucket(tmp_path / "made")
    for base in range(0, 15, 3):
        batches = [message(at, f"m{at}", 0 if at < 7 else 4) for at in range(base, base + 3)]
        bucket.segment(f"u{base}", batches, lineage={0: 0} if base < 6 else {0: 0, 4: 7})
    disk = tmp_path / "disk"
    assert tierlog("export", bucket.root, "orders", disk).code == 0
    for base in (3, 6):  # the cleaner has removed all that they had
        for suffix in ("log", "index", "timeindex"):
            (disk / "orders-0" / f"{base:020d}.{suffix}").write_bytes(b"")
    copied = tierlog("copy", disk, tmp_path / "bucket", "--output", "json")
    assert copied.code == 0, copied.err
    assert "left out: 2 empty segments" in copied.err
    found = [(line["startOffset"], line["endOffset"], line["leaderEpochs"]) for line in copied.lines]
    assert sorted(found, key=str) == [(0, 8, {"0": 0, "4": 7}), (9, 11, {"4": 9})]
    assert all(path.stat().st_size for path in (tmp_path / "bucket").rglob("*.log"))
    offsets = [line["offset"] for line in tierlog("cat", tmp_path / "bucket", "--format", "json").lines]
    assert offsets == [0, 1, 2, 9, 10, 11]
    assert set(states(tierlog("copy", disk, tmp_path / "bucket", "--output", "json"))) == {"present"}
    verified = tierlog("verify", tmp_path / "bucket")
    assert verified.code == 0, verified.text
