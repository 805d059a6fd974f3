"""`tierlog orphans`: what nobody owns goes, and nothing else ever does."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.command import Outcome, Run, command_line, environment, made_disk, properties
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.stores.local.store import LocalStore

State = RemoteLogSegmentState
HOUR = 3600
OLD = 48 * HOUR


class Topic:
    """A folder of the metadata topic: one partition of it, one record a batch."""

    def __init__(self, root: pathlib.Path, bucket: Bucket, *, first_offset: int = 0) -> None:
        self.root = root
        self._partition = TopicIdPartition(Uuid.from_text(bucket.topic_id), bucket.topic, bucket.partition)
        self._log = root / f"__remote_log_metadata-0/{first_offset:020d}.log"
        self._log.parent.mkdir(parents=True)
        self._log.write_bytes(b"")
        self._next = first_offset
        self._bucket = bucket

    def say(self, name: str, *states: State, age_seconds: float = 0) -> None:
        """Records of one segment's life."""
        key = self._bucket.keys[name]
        segment_id = RemoteLogSegmentId(self._partition, Uuid.from_text(key[-22:]))
        start = int(key.rsplit("/", 1)[1][:20])
        now_ms = int((time.time() - age_seconds) * 1000)
        for state in states:
            if state is State.COPY_SEGMENT_STARTED:
                record: object = RemoteLogSegmentMetadata(
                    segment_id,
                    start_offset=start,
                    end_offset=start + 2,
                    max_timestamp_ms=0,
                    broker_id=1,
                    event_timestamp_ms=now_ms,
                    segment_size_in_bytes=self._bucket.path(name, "log").stat().st_size,
                    segment_leader_epochs={0: start},
                )
            else:
                record = RemoteLogSegmentMetadataUpdate(
                    segment_id, event_timestamp_ms=now_ms, custom_metadata=None, state=state, broker_id=1
                )
            builder = RecordBatchBuilder(self._next)
            builder.append(None, encode_record(record), timestamp_ms=now_ms)  # type: ignore[arg-type]
            with self._log.open("ab") as log:
                log.write(builder.build())
            self._next += 1


def aged(folder: pathlib.Path, seconds: float = OLD) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - seconds,) * 2)


def bucket_of(root: pathlib.Path, count: int, *, topic: str = "orders") -> Bucket:
    """Whole segments u0 … of three messages, two days old."""
    bucket = Bucket(root, topic=topic)
    for number in range(count):
        base = 3 * number
        bucket.segment(f"u{number}", [message(base + at, f"m{base + at}", 0) for at in range(3)], lineage={0: 0})
    aged(root)
    return bucket


def names(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def kinds(outcome: Outcome) -> list[tuple[object, object]]:
    return sorted((str(line["kind"]), line["deleted"]) for line in outcome.lines)


def test_a_bucket_alone(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """What killed copies left is found and goes; segments, foreign files and young leftovers stay."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 5)
    bucket.path("u1", "rsm-manifest").unlink()
    bucket.path("u2", "rsm-manifest").unlink()
    bucket.path("u2", "indexes").unlink()
    bucket.path("u3", "log").unlink()
    (root / "backup.tar").write_bytes(b"not ours")
    probe = root / ".tierlog-probe-0123456789abcdef"
    probe.write_bytes(b"no segment's: the log of a manager that left it says so")
    os.utime(probe, (time.time() - OLD,) * 2)
    (bucket.path("u0", "log").parent / "notes.log").write_bytes(b"not ours")
    part = bucket.path("u4", "log").parent / f"{9:020d}-AAAAAAAAAAAAAAAAAAAAAA.log"
    part.write_bytes(b"young")
    before = names(root)
    dry = tierlog("orphans", root, "--output", "json")
    assert (dry.code, kinds(dry)) == (1, [("broken", False), ("leftover", False), ("leftover", False)])
    assert names(root) == before
    assert "metadata" not in dry.out.decode() + dry.err  # nobody gave any
    done = tierlog("orphans", root, "--delete", "--output", "json")
    assert (done.code, kinds(done)) == (1, [("broken", False), ("leftover", True), ("leftover", True)])
    gone = {f"{bucket.keys['u1']}.log", f"{bucket.keys['u1']}.indexes", f"{bucket.keys['u2']}.log"}
    assert names(root) == before - gone
    bucket.path("u3", "rsm-manifest").unlink()
    bucket.path("u3", "indexes").unlink()
    assert tierlog("orphans", root).code == 0
    assert tierlog("orphans", root, "--older-than", "0s").code == 1


def test_other_layouts(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A bucket of Kafka's own files has leftovers too."""
    bucket_of(tmp_path / "aiven", 3)
    kafka = properties(tmp_path / "k.properties", layout="kafka", key_prefix="in/")
    assert tierlog("copy", tmp_path / "aiven", tmp_path / "k", "--dest-config", kafka).code == 0
    first, second, _ = sorted((tmp_path / "k").rglob("segment.json"))
    first.unlink()
    next(second.parent.glob("*.timeindex")).unlink()
    outcome = tierlog(
        "orphans", tmp_path / "k", "--config", kafka, "--older-than", "0s", "--delete", "--output", "json"
    )
    assert kinds(outcome) == [("broken", False), ("leftover", True)]
    assert not first.parent.exists()
    assert second.exists()


def test_uploads_that_nobody_ends(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Parts of a killed copy cost money for ever, and no listing of objects shows them."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 2)
    log = bucket.path("u0", "log")
    with_store = LocalStore(str(root))
    upload = with_store.begin_upload(str(log.relative_to(root)), part_bytes=4)
    upload.put_part(1, [b"part"])
    (left,) = list(with_store.iter_uploads())
    part = log.with_name(left.upload_id)
    assert tierlog("orphans", root).code == 0
    os.utime(part, (time.time() - OLD,) * 2)
    assert kinds(tierlog("orphans", root, "--output", "json")) == [("upload", False)]
    done = tierlog("orphans", root, "--delete", "--output", "json")
    assert (done.code, kinds(done)) == (0, [("upload", True)])
    assert not part.exists()
    assert len(names(root)) == 6
    upload.abort()
    with_store.close()


def test_locks_of_killed_writers(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A file store locks a key by a file: one that outlived its writer is litter, one that is held keeps two apart."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 1)
    dead, alive = (
        bucket.path("u0", suffix).with_name(f"{bucket.path('u0', suffix).name}.lock.tierlog-part")
        for suffix in ("log", "indexes")
    )
    dead.write_bytes(b"")
    with PosixFiles().try_lock(str(alive)) as held:  # type: ignore[union-attr]
        assert held is not None
        for path in (dead, alive):
            os.utime(path, (time.time() - OLD,) * 2)
        assert kinds(tierlog("orphans", root, "--output", "json")) == [("upload", False)] * 2
        tierlog("orphans", root, "--delete")
        assert (dead.exists(), alive.exists()) == (False, True)
    assert tierlog("orphans", root).code == 0


def test_any_state_but_the_last_owns(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A copy that is under way, or a deletion that is not done, is the broker's: taking its objects loses data."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 6)
    topic = Topic(tmp_path / "meta", bucket)
    started, finished = State.COPY_SEGMENT_STARTED, State.COPY_SEGMENT_FINISHED
    topic.say("u0", started)
    topic.say("u1", started, finished)
    topic.say("u2", started, finished, State.DELETE_SEGMENT_STARTED)
    topic.say("u3", started, finished, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED)
    topic.say("u4", started, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED)
    bucket.path("u0", "rsm-manifest").unlink()
    bucket.path("u4", "rsm-manifest").unlink()
    arguments = ("orphans", root, "--metadata", tmp_path / "meta", "--output", "json")
    assert kinds(tierlog(*arguments)) == [("unowned", False)] * 3
    before = names(root)
    done = tierlog(*arguments, "--delete")
    assert (done.code, kinds(done)) == (0, [("unowned", True)] * 3)
    left = {name for name in before if not name.startswith(tuple(bucket.keys[f"u{n}"] for n in (3, 4, 5)))}
    assert names(root) == left
    assert {line["reason"] for line in done.lines} == {
        "the segment was deleted",
        "the metadata knows no segment of this id",
    }


def test_segments_whose_objects_miss(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Lost data must be named while there may still be a replica of it, and what is left of it must stay."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 3)
    topic = Topic(tmp_path / "meta", bucket)
    for name in bucket.keys:
        topic.say(name, State.COPY_SEGMENT_STARTED, State.COPY_SEGMENT_FINISHED)
    bucket.path("u0", "log").unlink()
    for suffix in ("log", "indexes", "rsm-manifest"):
        bucket.path("u1", suffix).unlink()
    before = names(root)
    outcome = tierlog("orphans", root, "--metadata", tmp_path / "meta", "--delete", "--output", "json")
    assert (outcome.code, kinds(outcome)) == (1, [("broken", False)] * 2)
    assert names(root) == before


def test_metadata_that_proves_nothing_is_refused(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """With the wrong directory, an empty or an old one, every segment of a healthy cluster looks like an orphan."""
    root = tmp_path / "bucket"
    bucket = bucket_of(root, 3)
    before = names(root)

    def refused(meta: pathlib.Path, word: str) -> None:
        for more in ([], ["--delete"]):
            outcome = tierlog("orphans", root, "--metadata", meta, "--older-than", "0s", *more)
            assert outcome.code in (2, 3)
            assert word in outcome.err
            assert names(root) == before

    Topic(tmp_path / "empty", bucket)
    refused(tmp_path / "empty", "metadata")
    refused(tmp_path / "nowhere", "nowhere")
    behind = Topic(tmp_path / "behind", bucket)
    behind.say("u0", State.COPY_SEGMENT_STARTED, State.COPY_SEGMENT_FINISHED, age_seconds=2 * OLD)
    refused(tmp_path / "behind", "behind")
    trimmed = Topic(tmp_path / "trimmed", bucket, first_offset=7)
    trimmed.say("u0", State.COPY_SEGMENT_STARTED)
    refused(tmp_path / "trimmed", "begins at 7")
    other = bucket_of(tmp_path / "other", 1, topic="payments")
    Topic(tmp_path / "another", other).say("u0", State.COPY_SEGMENT_STARTED)
    refused(tmp_path / "another", "another cluster")
    damaged = Topic(tmp_path / "damaged", bucket)
    for name in bucket.keys:
        damaged.say(name, State.COPY_SEGMENT_STARTED)
    (log,) = (tmp_path / "damaged").rglob("*.log")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    refused(tmp_path / "damaged", log.name)


def test_what_is_unknown_can_be_left_alone(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Two clusters may share a bucket: each may clean up its own."""
    root = tmp_path / "bucket"
    ours, theirs = bucket_of(root, 2), bucket_of(root, 2, topic="payments")
    topic = Topic(tmp_path / "meta", ours)
    topic.say("u0", State.COPY_SEGMENT_STARTED, State.COPY_SEGMENT_FINISHED)
    before = names(root)
    done = tierlog("orphans", root, "--metadata", tmp_path / "meta", "--skip-unknown", "--delete", "--output", "json")
    assert (done.code, kinds(done)) == (0, [("unowned", True)])
    assert before - names(root) == {name for name in before if name.startswith(ours.keys["u1"])}
    assert all(theirs.path(name, "log").exists() for name in theirs.keys)


def test_the_metadata_of_a_real_cluster(tierlog: Run, fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Objects that Kafka deleted are put back: exactly those are orphans, and the rest of the bucket is not."""
    run = fixtures / "main-plain"
    brokers = ["--metadata", run / "broker-after-stop/broker1"]
    assert tierlog("orphans", run / "objects", *brokers, "--older-than", "0s").code == 0
    shutil.copytree(run / "objects", tmp_path / "bucket")
    shutil.copytree(run / "objects-removed-later", tmp_path / "bucket", dirs_exist_ok=True)
    assert names(tmp_path / "bucket") > names(run / "objects")
    # By its metadata a deletion is over; its objects are younger than that here, and must go all the same.
    done = tierlog("orphans", tmp_path / "bucket", *brokers, "--older-than", "0s", "--delete", "--output", "json")
    assert done.code == 0
    assert {line["reason"] for line in done.lines} == {"the segment was deleted"}
    assert names(tmp_path / "bucket") == names(run / "objects")


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_killed_copies_leave_nothing_that_stays(tierlog: Run, tmp_path: pathlib.Path, seed: int) -> None:
    """After kill -9 at any moment readers see whole segments only, what is left is found, a second run goes on."""
    disk, dest = made_disk(tmp_path, tierlog), tmp_path / "dest"
    chance = random.Random(seed)
    config = properties(tmp_path / "small.properties", chunk_size=64)
    assert tierlog("copy", disk, tmp_path / "want", "--dest-config", config).code == 0
    process = subprocess.Popen(
        command_line("copy", disk, dest, "--dest-config", config, "--jobs", 1),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    goal = chance.randrange(1, 12)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if dest.exists() and sum(path.is_file() for path in dest.rglob("*")) >= goal:
            time.sleep(chance.random() * 0.003)
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = list(dest.rglob("*.rsm-manifest"))
    if whole:
        assert tierlog("verify", dest).code == 0
    if any(path.is_file() for path in dest.rglob("*")):
        assert tierlog("orphans", dest, "--older-than", "0s", "--delete").code == 0
        assert len(names(dest)) == 3 * len(whole)
        assert tierlog("orphans", dest, "--older-than", "0s").code == 0 or not whole
    assert tierlog("copy", disk, dest, "--dest-config", config).code == 0
    assert names(dest) == names(tmp_path / "want")


def test_a_bucket_of_nothing_but_an_upload(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A first copy that was killed leaves no object: what it left would be paid for unseen."""
    bucket_of(tmp_path / "bucket", 1)
    for path in [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]:
        if path.name.endswith(".log"):
            path.rename(f"{path}.0123456789abcdef.tierlog-part")
        else:
            path.unlink()
    assert tierlog("cat", tmp_path / "bucket").lines == []
    found = tierlog("orphans", tmp_path / "bucket", "--older-than", "0s", "--output", "json")
    assert (found.code, [line["kind"] for line in found.lines]) == (1, ["upload"])
    assert tierlog("orphans", tmp_path / "bucket", "--older-than", "0s", "--delete").code == 0
    assert names(tmp_path / "bucket") == set()


def test_wrong_use(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A broker's disk has no orphans to delete, and an age that is none must not be taken for 0."""
    bucket_of(tmp_path / "bucket", 1)
    assert tierlog("orphans", made_disk(tmp_path, tierlog)).code == 2
    for age in ("24", "h", "-1h", "1y"):
        assert tierlog("orphans", tmp_path / "bucket", f"--older-than={age}").code == 2
