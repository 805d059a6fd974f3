"""``--metadata`` of the commands: what counts, and the table against the bucket."""

from __future__ import annotations

import pathlib
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.command import Outcome, Run
from tests.support.golden import metadata_folders
from tests.support.metadata_topic import write_topic
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord
from tierlog.remote.tier import open_tier

State = RemoteLogSegmentState
LIFE = (State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED)


class Cluster:
    """A bucket of segments s0 … of one message each, and the metadata topic beside it."""

    def __init__(self, root: pathlib.Path, count: int) -> None:
        self.bucket = Bucket(root / "bucket")
        self.metadata = root / "broker"
        for number in range(count):
            self.bucket.segment(f"s{number}", [message(number, f"m{number}", 0)], lineage={0: 0})
        with open_tier(root / "bucket") as tier:
            self.segments = [segment.metadata for segment in tier.iter_segments()]

    def say(self, *states: State) -> None:
        """The whole topic: segment i goes as far as its state says."""
        records: list[RemoteLogMetadataRecord] = []
        for segment, state in zip(self.segments, states, strict=False):
            records += life_of(segment, state)
        write_topic(self.metadata, 0, records)


def life_of(segment: RemoteLogSegmentMetadata, state: State) -> list[RemoteLogMetadataRecord]:
    records: list[RemoteLogMetadataRecord] = [replace(segment, state=State.COPY_SEGMENT_STARTED)]
    segment_id = segment.remote_log_segment_id
    records += [
        RemoteLogSegmentMetadataUpdate(
            segment_id, event_timestamp_ms=1_700_000_000_000, custom_metadata=None, state=step, broker_id=1
        )
        for step in LIFE[:state]
    ]
    return records


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Cluster:
    return Cluster(tmp_path, 5)


def test_the_table_against_the_bucket(tierlog: Run, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Else an operator cannot see that a segment is lost, or that one lies there that nobody knows."""
    cluster.say(State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, State.COPY_SEGMENT_STARTED, LIFE[2])
    for suffix in ("log", "indexes", "rsm-manifest"):
        cluster.bucket.path("s2", suffix).unlink()
    outcome = tierlog("ls", cluster.bucket.root, "--metadata", cluster.metadata, "--output", "json")
    assert outcome.code == 0, outcome.err
    assert [(row["startOffset"], row["in"], row["state"], row["objects"], row["whole"]) for row in outcome.lines] == [
        (0, "both", "COPY_SEGMENT_FINISHED", 3, True),
        (1, "both", "DELETE_SEGMENT_STARTED", 3, True),
        (2, "metadata", "COPY_SEGMENT_STARTED", 0, False),
        (3, "bucket", "DELETE_SEGMENT_FINISHED", 3, True),
        (4, "bucket", None, 3, True),
    ]
    first = outcome.lines[0]
    assert (first["endOffset"], first["leaderEpochs"], first["topic"]) == (0, {"0": 0}, "orders")
    text = tierlog("ls", cluster.bucket.root, "orders", "--metadata", cluster.metadata)
    assert text.code == 0
    assert "5 segments: 2 in both, 1 in the metadata alone, 2 in the bucket alone" in text.text
    assert len(text.text.splitlines()) == 7


@pytest.mark.parametrize("suffixes", [["log"], ["rsm-manifest"], ["log", "indexes", "rsm-manifest"]])
def test_a_finished_segment_without_its_objects_is_a_fault(tierlog: Run, cluster: Cluster, suffixes: list[str]) -> None:
    """Else a script that watches a bucket never hears of a loss."""
    cluster.say(*[State.COPY_SEGMENT_FINISHED] * 5)
    for suffix in suffixes:
        cluster.bucket.path("s0", suffix).unlink()
    outcome = tierlog("ls", cluster.bucket.root, "--metadata", cluster.metadata, "--output", "json")
    assert outcome.code == 1
    assert "1 segments lack objects" in outcome.err
    assert [row["whole"] for row in outcome.lines] == [False, True, True, True, True]
    assert outcome.lines[0]["in"] == ("both" if len(suffixes) == 1 else "metadata")


def test_ls_chooses_topics_and_partitions(tierlog: Run, cluster: Cluster) -> None:
    """Else a wrong topic looks like an empty one."""
    cluster.say(*[State.COPY_SEGMENT_FINISHED] * 5)
    ls = ("ls", cluster.bucket.root, "--metadata", cluster.metadata, "--output", "json")
    assert len(tierlog(*ls, "--partition", "0").lines) == 5
    assert tierlog(*ls, "--partition", "1").lines == []
    assert tierlog(*ls, "payments").code == 3
    assert tierlog(*ls, "--topics").code == 2
    topic_id = cluster.segments[0].topic_id_partition.topic_id
    with_id = ("ls", cluster.bucket.root, f"{topic_id}:orders", "--metadata", cluster.metadata, "--output", "json")
    assert len(tierlog(*with_id).lines) == 5


def test_ls_of_a_real_bucket(tierlog: Run, fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Else the two disagree where a real cluster's agree."""
    source = fixtures / "main-plain"
    for folder in ("objects", "objects-removed-later"):
        shutil.copytree(source / folder, tmp_path / "bucket", dirs_exist_ok=True)
    metadata = [word for folder in metadata_folders(source) for word in ("--metadata", folder)]
    outcome = tierlog("ls", tmp_path / "bucket", *metadata, "--output", "json")
    assert outcome.code == 0
    counts = Counter((row["in"], row["state"]) for row in outcome.lines)
    removed = len(list((source / "objects-removed-later").rglob("*.rsm-manifest")))
    there = len(list((source / "objects").rglob("*.rsm-manifest")))
    assert counts == {
        ("both", "COPY_SEGMENT_FINISHED"): there,
        ("bucket", "DELETE_SEGMENT_FINISHED"): removed,
        ("metadata", "COPY_SEGMENT_STARTED"): 1,  # the broker was stopped
    }


def test_cat_verify_and_export_go_by_the_metadata(tierlog: Run, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Else a command shows, checks or restores what the cluster is deleting."""
    cluster.say(State.DELETE_SEGMENT_STARTED, *[State.COPY_SEGMENT_FINISHED] * 3, State.COPY_SEGMENT_STARTED)
    source = (cluster.bucket.root, "--metadata", cluster.metadata)
    rows = tierlog("cat", *source, "--format", "json").lines
    assert [row["offset"] for row in rows] == [1, 2, 3]
    verified = tierlog("verify", *source)
    assert verified.code == 0
    assert "3 segments, 3 batches, 3 records" in verified.text
    out = tmp_path / "out"
    assert tierlog("export", cluster.bucket.root, "orders", out, "--metadata", cluster.metadata).code == 0
    assert sorted(int(path.stem) for path in (out / "orders-0").glob("*.log")) == [1, 2, 3]


def test_a_loss_is_told_by_every_command(tierlog: Run, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Else the end of a log can go missing unseen: no gap shows it."""
    cluster.say(*[State.COPY_SEGMENT_FINISHED] * 5)
    cluster.bucket.path("s4", "rsm-manifest").unlink()
    commands: list[Callable[[object], Outcome]] = [
        lambda path: tierlog("cat", path, "--metadata", cluster.metadata),
        lambda path: tierlog("export", path, "orders", tmp_path / "out", "--metadata", cluster.metadata),
        lambda path: tierlog("verify", path, "--metadata", cluster.metadata),
    ]
    for command, code in zip(commands, (3, 3, 1), strict=True):
        outcome = command(cluster.bucket.root)
        assert outcome.code == code
        assert "the metadata says that it is there" in outcome.err + outcome.text
    lenient = tierlog("cat", cluster.bucket.root, "--metadata", cluster.metadata, "--no-fail-on-data-loss", "--count")
    assert (lenient.code, lenient.text.strip()) == (0, "4")


def test_a_wrong_source_is_told(tierlog: Run, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Else a mistyped path reads as a bucket without segments."""
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "nowhere", tmp_path / "empty"):
        outcome = tierlog("cat", cluster.bucket.root, "--metadata", source)
        assert outcome.code in (2, 3)
        assert str(source) in outcome.err
        assert "Traceback" not in outcome.err
    cluster.say(*[State.COPY_SEGMENT_FINISHED] * 5)
    log = next(cluster.bucket.root.rglob("*.log"))
    for verb in ("cat", "verify"):
        assert tierlog(verb, log, "--metadata", cluster.metadata).code == 2


def test_a_clients_keys_without_a_cluster_are_refused(tierlog: Run, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Else a password file that was meant for the metadata is silently of no use."""
    keys = tmp_path / "client.properties"
    keys.write_text("security.protocol=SSL\n")
    for verb in ("cat", "ls", "verify", "orphans"):
        outcome = tierlog(verb, cluster.bucket.root, "--command-config", keys)
        assert outcome.code == 2
        assert "--command-config" in outcome.err
