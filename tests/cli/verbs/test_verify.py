"""`tierlog verify`: sound data passes, each kind of damage is named, nothing swells."""

from __future__ import annotations

import json
import pathlib
import resource
import shutil
import struct
from collections.abc import Callable

import pytest

from tests.support.bad_objects import bucket_of
from tests.support.batches import Batch, crc32c, encode, message
from tests.support.buckets import Bucket
from tests.support.command import Run, config_file, run_process
from tests.support.golden import tiered_topics
from tests.support.kip_scripts import SCRIPTS
from tierlog.log.formats.identity_files import PartitionMetadata, encode_partition_metadata
from tierlog.remote.api import Uuid

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
RUNS = sorted({case.run for case in tiered_topics(DATA)})
ADDRESS_SPACE_BYTES = 3_000_000 << 10


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_golden_buckets_are_sound(tierlog: Run, tmp_path: pathlib.Path, run: pathlib.Path) -> None:
    """Otherwise verify cries wolf, and nobody listens when it matters."""
    outcome = tierlog("verify", run / "objects", *config_file(run, tmp_path))
    assert outcome.code == 0, outcome.text
    assert "0 faults, 0 errors" in outcome.text


def test_golden_log_directories_are_sound(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise a running broker's disk always has faults: preallocated indexes, gaps of compaction."""
    outcome = tierlog("verify", data / "main-plain/local-before/broker1")
    assert outcome.code == 0, outcome.text
    assert "note: OFFSET_GAP" in outcome.text
    assert tierlog("verify", data / "main-plain/local-before/broker1", "--output", "json").out == b""


def test_a_compacted_log_with_transactions_is_sound(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise the log of a compacted topic is called faulty on every broker: its producers' snapshots are older than
    its cleaning, and tell of batches, epochs and transactions that the cleaner took away.
    """
    outcome = tierlog("verify", data / "compacted")
    assert (outcome.code, "0 faults, 0 errors" in outcome.text) == (0, True), outcome.text


def test_a_truncated_log_of_a_running_broker_is_sound(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise each follower that a leader change truncated is called faulty until its next roll: the entries behind
    those that count stay in the active segment's indexes. Of trimmed ones none are spare.
    """
    outcome = tierlog("verify", data / "truncated")
    assert (outcome.code, outcome.text.count("note: STALE_ENTRIES")) == (0, 2), outcome.text
    shutil.copytree(data / "truncated", tmp_path / "trimmed")
    for name, entry_bytes in ((".index", 8), (".timeindex", 12)):
        (index,) = (tmp_path / "trimmed").rglob(f"*{name}")
        content = index.read_bytes()
        entries = [content[at : at + entry_bytes] for at in range(0, len(content), entry_bytes)]
        index.write_bytes(b"".join(entry for entry in entries if any(entry)))
    assert tierlog("verify", tmp_path / "trimmed").code == 1


def test_what_a_follower_knew_beforehand_is_sound(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise a segment whose abort marker came to a follower with the next transaction behind it (the entry's last
    stable offset is that one's first offset) can neither be copied nor looked at, and is called faulty.
    """
    disk = data / "follower"
    for verb in (
        ("verify", disk),
        ("dump", disk / "txn-0/00000000000000000000.txnindex"),
        ("copy", disk, tmp_path / "bucket"),
        ("verify", tmp_path / "bucket"),
    ):
        outcome = tierlog(*verb)
        assert outcome.code == 0, (verb, outcome.text, outcome.err)
    seen = tierlog("cat", disk, "--format", "raw", "--isolation", "read_committed").text
    words = [line.split()[0] for line in seen.splitlines()]
    counts = {"before": 2, "committed": 3, "between": 4, "after": 2, "end": 2, "next": 2}
    assert words == [word for word, count in counts.items() for _ in range(count)]


def test_every_disk_of_a_real_broker_is_sound(tierlog: Run, fixtures: pathlib.Path) -> None:
    """Otherwise verify calls faulty what Kafka itself wrote, running or stopped."""
    disks = [
        disk
        for state in ("local-before", "broker-after-stop")
        for folder in sorted(fixtures.glob(f"*/{state}"))
        for disk in (sorted(folder.glob("broker*")) or [folder])
    ]
    assert len(disks) > 15
    for disk in disks:
        outcome = tierlog("verify", disk, "--no-notes")
        assert (outcome.code, "0 faults, 0 errors" in outcome.text) == (0, True), (disk, outcome.text, outcome.err)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_overlaps_and_dead_branches_are_no_faults(tierlog: Run, tmp_path: pathlib.Path, name: str) -> None:
    """Otherwise every failover makes faults for ever."""
    SCRIPTS[name](tmp_path)
    assert tierlog("verify", tmp_path, "orders").code == 0


def test_each_bad_object_is_named(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise a damaged bucket passes, or a key that is missing is taken for damage."""
    config = config_file(data / "zstd-aes", tmp_path)
    path = pathlib.Path(config[1])
    second = [data / "keys" / name for name in sorted(p.name for p in (data / "keys").iterdir())][1]
    path.write_text(
        path.read_text().replace("key.pairs=k1", "key.pairs=k1,k2")
        + f"rsm.config.encryption.key.pairs.k2.private.key.file={second / 'private.der'}\n"
    )
    cannot_check = ("58-aes-unknown-key-id", "59-aes-datakey-corrupt", "5d-aes-wrong-key")
    cases = sorted((data / "bad/objects").iterdir())
    assert len(cases) > 40
    for case in cases:
        bucket = tmp_path / case.name
        bucket_of(case.name, bucket)
        outcome = tierlog("verify", bucket, "--output", "json", *config)
        expected = 0 if "good" in case.name else 3 if case.name in cannot_check else 1
        assert outcome.code == expected, (case.name, outcome.text, outcome.err)
        for line in outcome.lines:
            assert line["severity"] == ("error" if expected == 3 else "fault"), case.name
            assert line["where"]
            assert line["text"]
        assert bool(outcome.lines) == (expected != 0), case.name


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["50-bomb-zstd-one-record", "52-bomb-gzip-trailing", "53-zstd-lying-content-size"])
def test_hostile_logs_do_not_swell(data: pathlib.Path, name: str) -> None:
    """Otherwise a crafted segment takes the machine down that checks it."""
    outcome = run_process("verify", data / f"bad/log/{name}.log", limit=limited)
    assert outcome.code == 1, outcome.err
    assert outcome.err == ""


def test_a_bucket_is_verified_in_little_address_space(data: pathlib.Path) -> None:
    """Otherwise thread stacks and memory pools break the command where memory is limited (containers, ulimit -v)."""
    outcome = run_process("verify", data / "main-plain/objects", "--jobs", "8", limit=limited)
    assert outcome.code == 0, outcome.err


def test_every_bad_file_is_named(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise a damaged index or snapshot is copied on."""
    for path in sorted((data / "bad/index").iterdir()):
        # Zeros alone are what a crash leaves of a preallocated index; Kafka takes them too.
        sound = "good" in path.name or path.name == "05-all-zero.index"
        outcome = tierlog("verify", path, "--output", "json")
        assert outcome.code == (0 if sound else 1), path.name


def segment_folder(folder: pathlib.Path, *, first: int = 0) -> tuple[pathlib.Path, list[int]]:
    batches = [encode(Batch(first + 2 * place, (b"v" * 50, b"w" * 50), epoch=1)) for place in range(20)]
    path = folder / "orders-0" / f"{first:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(batches))
    return path, [sum(map(len, batches[:place])) for place in range(20)]


def test_an_active_segment_without_a_sound_batch(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a log that is damaged from its first batch on is no segment, and so has no fault."""
    path, _ = segment_folder(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[16] = 9
    path.write_bytes(damaged)
    outcome = tierlog("verify", tmp_path, "--output", "json")
    assert outcome.code == 1
    (line,) = outcome.lines
    assert (line["kind"], line["position"], line["topic"], line["partition"]) == ("BAD_MAGIC", 0, "orders", 0)
    assert (line["expected"], line["found"]) == (2, 9)
    topic_id = Uuid(bytes([7] * 16))
    metadata = path.with_name("partition.metadata")
    metadata.write_bytes(encode_partition_metadata(PartitionMetadata(topic_id)))
    for topic in ("orders", f"{topic_id}:orders"):
        assert tierlog("verify", tmp_path, topic).code == 1
        assert tierlog("verify", tmp_path, topic, "--partition", 0).code == 1
    assert tierlog("verify", tmp_path, f"{Uuid(bytes([8] * 16))}:orders").code == 3


def test_the_torn_tail_of_a_live_log(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a broker that is writing makes faults; and damage before the tail is taken for one."""
    path, positions = segment_folder(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    torn = tierlog("verify", tmp_path)
    assert torn.code == 0
    assert f"note: TORN_TAIL: orders-0/{path.name} @ {positions[-1]}" in torn.text
    assert tierlog("verify", path).code == 1  # of one file nobody knows that it is live
    damaged = bytearray(content)
    damaged[positions[7] + 70] ^= 1
    path.write_bytes(damaged)
    (line,) = tierlog("verify", tmp_path, "--output", "json").lines
    assert (line["kind"], line["position"], line["offset"]) == ("BAD_CRC", positions[7], 14)


def test_an_index_is_compared_with_the_log_beside_it(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise an index of another log passes by its form alone."""
    path, positions = segment_folder(tmp_path)
    index = path.with_suffix(".index")
    index.write_bytes(struct.pack(">ii", 11, positions[5]))
    assert tierlog("verify", index).code == 0
    index.write_bytes(struct.pack(">ii", 11, positions[5] + 1))
    (line,) = tierlog("verify", index, "--output", "json").lines
    assert (line["kind"], line["where"]) == ("INDEX_POSITION", str(index))
    assert (line["expected"], line["found"]) == (positions[5], positions[5] + 1)


def three_segments(root: pathlib.Path) -> Bucket:
    bucket = Bucket(root)
    for name, first in (("a", 0), ("b", 3), ("c", 6)):
        bucket.segment(name, [message(offset, f"m{offset}", 0) for offset in range(first, first + 3)], lineage={0: 0})
    return bucket


def change_manifest(bucket: Bucket, name: str, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    path = bucket.path(name, "rsm-manifest")
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_what_contradicts_a_manifest(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a segment that is described wrongly is pruned, cut or skipped, and nobody knows."""
    changes: dict[str, Callable[[dict], object]] = {  # type: ignore[type-arg]
        "SEGMENT_OFFSET": lambda m: m["remoteLogSegmentMetadata"].update(endOffset=4),
        "LEADER_EPOCH": lambda m: m["remoteLogSegmentMetadata"].update(segmentLeaderEpochs={"7": 3}),
    }
    for kind, change in changes.items():
        bucket = three_segments(tmp_path / kind)
        change_manifest(bucket, "b", change)
        kinds = [line["kind"] for line in tierlog("verify", tmp_path / kind, "--output", "json").lines]
        assert kind in kinds


def test_a_lost_segment_is_a_fault(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a bucket that lost data verifies."""
    bucket = three_segments(tmp_path)
    for suffix in ("log", "indexes", "rsm-manifest"):
        bucket.path("b", suffix).unlink()
    (line,) = tierlog("verify", tmp_path, "--output", "json").lines
    assert (line["kind"], line["offset"], line["topic"]) == ("MISSING_OFFSETS", 3, "orders")


def test_a_lost_log_object_is_a_fault(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise one lost object ends the check of all others."""
    bucket = three_segments(tmp_path)
    bucket.path("b", "log").unlink()
    outcome = tierlog("verify", tmp_path, "--output", "json")
    assert outcome.code == 1
    assert "MISSING_OBJECT" in [line["kind"] for line in outcome.lines]


def kafka_layout(root: pathlib.Path, bucket: Bucket) -> pathlib.Path:
    """The first segment of a bucket, as our own plain layout has it."""
    manifest = json.loads(bucket.path("a", "rsm-manifest").read_text())
    about = manifest["remoteLogSegmentMetadata"]
    identity = about["remoteLogSegmentId"]
    topic_id = identity["topicIdPartition"]["topicId"]
    folder = root / f"orders-{topic_id}/0/{identity['id']}"
    folder.mkdir(parents=True)
    stored = bucket.path("a", "indexes").read_bytes()
    files = {"log": (f"{0:020d}.log", bucket.path("a", "log").read_bytes())}
    for part, suffix, name in (
        ("offset", "index", f"{0:020d}.index"),
        ("timestamp", "timeindex", f"{0:020d}.timeindex"),
        ("producerSnapshot", "snapshot", f"{3:020d}.snapshot"),
        ("leaderEpoch", "leader-epoch-checkpoint", "leader-epoch-checkpoint"),
    ):
        place = manifest["segmentIndexes"][part]
        files[suffix] = (name, stored[place["position"] : place["position"] + place["size"]])
    parts = {}
    for suffix, (name, content) in files.items():
        (folder / name).write_bytes(content)
        parts[suffix] = {"size": len(content), "crc32c": f"{crc32c(content):08x}"}
    description = {
        "version": 1,
        "topic": "orders",
        "topicId": topic_id,
        "partition": 0,
        "segmentId": identity["id"],
        "startOffset": 0,
        "endOffset": 2,
        "maxTimestampMs": about["maxTimestampMs"],
        "brokerId": 1,
        "eventTimestampMs": 0,
        "segmentLeaderEpochs": {"0": 0},
        "parts": parts,
    }
    (folder / "segment.json").write_text(json.dumps(description))
    return folder


def test_checksums_of_the_kafka_layout(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a bit that no batch's checksum covers (an epoch, a checkpoint) changes unseen."""
    folder = kafka_layout(tmp_path / "plain", three_segments(tmp_path / "aiven"))
    assert tierlog("verify", tmp_path / "plain").code == 0
    for name in (f"{0:020d}.log", f"{3:020d}.snapshot", "leader-epoch-checkpoint"):
        content = (folder / name).read_bytes()
        description = (folder / "segment.json").read_text()
        (folder / "segment.json").write_text(description.replace(f"{crc32c(content):08x}", "0badc0de"))
        (line,) = tierlog("verify", tmp_path / "plain", "--output", "json").lines
        assert (line["kind"], line["expected"], line["found"]) == ("PART_CRC", "0x0badc0de", f"0x{crc32c(content):08x}")
        (folder / "segment.json").write_text(description)


def test_random_damage_is_found_or_harmless(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise some flipped bit crashes the check, or is covered by a checksum and still passes."""
    import random

    source = data / "main-plain/local-before/broker1/fx-txn-0"
    folder = tmp_path / "logs" / "fx-txn-0"
    shutil.copytree(source, folder)
    path = folder / f"{310:020d}.log"
    content = path.read_bytes()
    rng = random.Random(20261121)
    for _ in range(25):
        damaged = bytearray(content)
        at = rng.randrange(len(damaged))
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        outcome = tierlog("verify", tmp_path / "logs", "--output", "json")
        assert outcome.code == 1, at  # the epoch too: the checkpoint beside the log knows it
        assert outcome.err == ""


def test_a_torn_tail_of_one_file_is_told_in_plain_words(
    tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """If this fails, the check of one log of a running broker says that it is damaged, and no more."""
    source = data / "main-plain/local-before/broker1/fx-txn-0"
    shutil.copytree(source, tmp_path / "fx-txn-0")
    *_, closed, last = sorted((tmp_path / "fx-txn-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-37])
    for path in (last, last.with_suffix(".index")):
        outcome = tierlog("verify", path)
        assert outcome.code == 1
        assert "fault: TRUNCATED: " in outcome.text
        assert "the log ends inside a batch: normal for the active segment" in outcome.text
        assert "`tierlog verify` of its log directory knows it" in outcome.text
        assert "1 faults, 0 errors" in outcome.text
    whole = tierlog("verify", tmp_path)
    assert whole.code == 0
    assert f"note: TORN_TAIL: fx-txn-0/{last.name}" in whole.text
    closed.write_bytes(closed.read_bytes()[:-37])
    cut = tierlog("verify", tmp_path)
    assert cut.code == 1
    assert f"fault: TRUNCATED: fx-txn-0/{closed.name}" in cut.text
    assert "normal for" not in cut.text
