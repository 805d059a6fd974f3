"""`tierlog restore`: what it prints, when it refuses, how it ends."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.command import Run
from tests.support.manager_configs import SHAPES
from tests.support.metadata_topics import read_topic
from tests.support.segments import topic_uuid
from tierlog.remote.api import RemoteLogSegmentState
from tierlog.remote.metadata.snapshots.snapshot_file import read_snapshot
from tierlog.runtime.machine import Machine

NEW_ID = topic_uuid("made anew")


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    """Two whole segments, written long ago."""
    made = Bucket(tmp_path / "bucket")
    made.segment("a", [message(at, f"a{at}", 0) for at in range(3)], lineage={0: 0})
    made.segment("b", [message(at, f"b{at}", 0) for at in range(3, 5)], lineage={0: 0})
    age(made.root, 3600)
    return made


def age(root: pathlib.Path, seconds: float) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - seconds,) * 2)


def test_a_dry_run_tells_each_segment(tierlog: Run, bucket: Bucket) -> None:
    """An operator decides by it before anything is written."""
    outcome = tierlog("restore", bucket.root, "--output", "json")
    assert (outcome.code, outcome.err) == (0, "")
    first, second = outcome.lines
    assert {key: first[key] for key in ("topic", "topicId", "partition", "segment", "state", "visible")} == {
        "topic": "orders",
        "topicId": bucket.topic_id,
        "partition": 0,
        "segment": topic_uuid("orders/0/a"),
        "state": "COPY_SEGMENT_FINISHED",
        "visible": [[0, 2]],
    }
    assert (second["startOffset"], second["endOffset"], second["leaderEpochs"]) == (3, 4, {"0": 3})
    text = tierlog("restore", bucket.root).text.splitlines()
    assert "readers will see offsets 0 to 4" in text[0]
    assert text[-1].endswith("would be registered (nothing was written)")


def test_a_bucket_that_somebody_writes_to_is_refused(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """Nothing in it fences a broker: what it copies meanwhile would be unknown to its own metadata."""
    os.utime(bucket.root / (bucket.keys["b"] + ".log"))
    dest = tmp_path / "logs"
    refused = tierlog("restore", bucket.root, "--to", f"{dest}/")
    assert refused.code == 2
    assert "quiet-minutes" in refused.err
    assert not dest.exists()
    dry = tierlog("restore", bucket.root)
    assert dry.code == 0
    assert "warning: " in dry.err
    assert tierlog("restore", bucket.root, "--to", f"{dest}/", "--dry-run").code == 0
    assert not dest.exists()
    age(bucket.root, -3600)  # by the store's clock
    assert tierlog("restore", bucket.root, "--to", f"{dest}/").code == 2
    assert tierlog("restore", bucket.root, "--to", f"{dest}/", "--quiet-minutes", "0").code == 0
    assert len(list(dest.glob("__remote_log_metadata-*"))) == 50


def test_what_is_left_out_is_named_and_ends_with_1(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """The rest is written: a disaster is no time for all or nothing."""
    (bucket.root / (bucket.keys["a"] + ".log")).unlink()
    outcome = tierlog("restore", bucket.root, "--to", f"{tmp_path}/logs/", "--partitions", 1, "--output", "json")
    assert outcome.code == 1
    kept, left = outcome.lines
    assert (kept["startOffset"], left["state"], left["startOffset"]) == (3, None, 0)
    assert "is missing" in str(left["reason"])
    assert f"left out: {bucket.keys['a']}: " in outcome.err
    again = tierlog("restore", bucket.root, "--to", f"{tmp_path}/logs/", "--partitions", 1)
    assert again.code == 2
    assert "is not empty" in again.err


def test_the_folder_is_one_that_other_commands_read(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """`orphans` believes only metadata that it can read whole."""
    assert tierlog("restore", bucket.root, "--to", f"{tmp_path}/logs/", "--partitions", 3).code == 0
    found = tierlog("orphans", bucket.root, "--metadata", tmp_path / "logs", "--older-than", "0s")
    assert found.code == 0, found.err


def test_a_snapshot_is_read_back(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """The smallest form of what was found; of no topic, so that no manager takes it for its own."""
    path = tmp_path / "metadata.snapshot"
    assert tierlog("restore", bucket.root, "--to", path).code == 0
    table, state = read_snapshot(str(path), machine=Machine())
    with table:
        (partition,) = table.partitions()
        assert [each.start_offset for each in table.list(partition)] == [0, 3]
        assert all(each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for each in table.list(partition))
    assert (state.identity, state.partition_count, dict(state.positions)) == ("", 0, {})
    content = path.read_bytes()
    again = tierlog("restore", bucket.root, "--to", path)
    assert again.code == 2
    assert "is not empty" in again.err
    assert path.read_bytes() == content
    (tmp_path / "empty").touch()
    assert tierlog("restore", bucket.root, "--to", tmp_path / "empty").code == 0
    missing = tierlog("restore", bucket.root, "--to", tmp_path / "no" / "folder")
    assert missing.code == 3


def test_mapped_topics_say_what_they_need(tierlog: Run, bucket: Bucket) -> None:
    """The plugin looks for a manifest below the topic's own id; ours is led by the custom metadata."""
    outcome = tierlog("restore", bucket.root, "--map", f"{bucket.topic_id}={NEW_ID}", "--output", "json")
    assert outcome.code == 0
    assert {line["topicId"] for line in outcome.lines} == {NEW_ID}
    assert all(line["customMetadata"] for line in outcome.lines)
    assert f"tierlog copy {bucket.root} {bucket.root} {bucket.topic_id}:orders --map" in outcome.err
    wrong = tierlog("restore", bucket.root, "--map", f"{NEW_ID}={bucket.topic_id}")
    assert wrong.code == 2
    assert f"no topic of id {NEW_ID}" in wrong.err


def test_names_that_are_not_there_are_told_before_anything_is_written(
    tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """A slip in an id would register a topic under the one that nobody asks for."""
    dest = tmp_path / "logs"
    wrong = tierlog("restore", bucket.root, "--map", f"{NEW_ID}={bucket.topic_id}", "--to", f"{dest}/")
    unknown = tierlog("restore", bucket.root, "orders", "nope", "--to", f"{dest}/")
    assert (wrong.code, unknown.code) == (2, 3)
    assert not dest.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("nope",), 3, "no topic nope"),
        (("--map", "x"), 2, "OLD=NEW expected"),
        (("--topic-id", "x", "--to", "y/"), 2, "--topic-id"),
        (("--for-cluster", "x", "--to", "y/"), 2, "needs --node-id"),
        (("--partitions", "0"), 2, "--partitions"),
        (("--to", "y", "--for-cluster", "x", "--node-id", "1"), 2, "y is a snapshot file"),
        (("--to", "localhost:1", "--partitions", "3"), 2, "localhost:1 is a running Kafka"),
        (("--to", "y/", "--command-config", os.devnull), 0, ""),
        (("--to", "y/", "--command-config", "client.properties"), 2, "y/ is no HOST:PORT"),
        (("--from-copy", "orders"), 2, "registers all that was copied"),
        (("--from-copy", "--map", f"{NEW_ID}={NEW_ID}"), 2, "registers all that was copied"),
    ],
)
def test_wrong_use(
    tierlog: Run,
    bucket: Bucket,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    reason: str,
) -> None:
    """One line, and the code of its kind; a slip would else write another thing than was asked for."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("client.properties").write_text("security.protocol=PLAINTEXT\n")
    outcome = tierlog("restore", bucket.root, *arguments, "--quiet-minutes", 0 if code == 0 else 10)
    assert outcome.code == code
    assert not pathlib.Path("y").is_file()
    assert reason in outcome.err


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-custom", "aiven-zstd-aes", "kafka"])
def test_a_copy_under_the_new_id_is_what_the_plugin_looks_for(
    tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path, shape: str
) -> None:
    """It knows a topic's objects by the id that the topic has now; the old ones stay for clients with the old id."""
    config = tmp_path / "tier.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in SHAPES[shape].items()))
    disk, dest = data / "main-plain" / "local-before" / "broker1", tmp_path / "bucket"
    topic = "fx-txn"
    assert tierlog("copy", disk, dest, topic, "--dest-config", config).code == 0
    before = tierlog("cat", dest, topic, "--config", config, "--format", "json").out
    old = str(tierlog("ls", dest, topic, "--topics", "--output", "json", "--config", config).lines[0]["topicId"])
    options = ("--config", config, "--dest-config", config, "--map", f"{old}={NEW_ID}", "--output", "json")
    assert tierlog("copy", dest, dest, "--config", config, "--dest-config", config).code == 2  # nothing is mapped
    copied = tierlog("copy", dest, dest, *options)
    assert copied.code == 0, copied.err
    assert {line["topicId"] for line in copied.lines} == {NEW_ID}
    assert {line["state"] for line in copied.lines} == {"copied"}
    assert {line["state"] for line in tierlog("copy", dest, dest, *options).lines} == {"present"}
    again = tierlog("cat", dest, f"{NEW_ID}:{topic}", "--config", config, "--format", "json")
    assert (again.code, again.out) == (0, before)
    assert tierlog("verify", dest, "--config", config).code == 0

    mapped = ("--config", config, "--map", f"{old}={NEW_ID}", "--output", "json")
    restored = tierlog("restore", dest, *mapped)
    assert restored.code == 0
    assert not [line for line in restored.err.splitlines() if "note: " in line]  # nothing is left under the old id
    told = tmp_path / "copied.json"
    told.write_bytes(copied.out)
    age(dest, 3600)
    for source, folder in ((dest, "one"), (told, "two")):
        options = () if source == told else ("--config", config, "--map", f"{old}={NEW_ID}")
        options = ("--from-copy",) if source == told else options
        outcome = tierlog("restore", source, *options, "--to", f"{tmp_path / folder}/", "--partitions", 1)
        assert outcome.code == 0, outcome.err
    assert registered(tmp_path / "one") == registered(tmp_path / "two")
    assert len(registered(tmp_path / "one")) == len(copied.lines)


def registered(folder: pathlib.Path) -> dict[object, object]:
    """What a folder of the topic says of each segment; times of events left out."""
    found = read_topic([folder]).finished.values()
    return {each.remote_log_segment_id: dataclasses.replace(each, event_timestamp_ms=0) for each in found}


def test_the_output_of_several_runs_of_a_copy(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """The second run tells again what the first one copied, and each segment would be registered twice."""
    runs = [tierlog("copy", bucket.root, tmp_path / "dest", "--output", "json") for _ in range(2)]
    (tmp_path / "told").write_bytes(b"".join(run.out for run in runs))
    outcome = tierlog("restore", tmp_path / "told", "--from-copy", "--to", f"{tmp_path}/topic/", "--output", "json")
    assert outcome.code == 0
    assert len(outcome.lines) == len(runs[0].lines) == len(registered(tmp_path / "topic"))


def test_another_layout_in_the_same_bucket_is_refused(tierlog: Run, bucket: Bucket) -> None:
    """A reader would have to choose one of the two."""
    topics = f"{bucket.topic_id}={NEW_ID}"
    config = bucket.root.parent / "kafka.properties"
    config.write_text("layout=kafka\n")
    outcome = tierlog("copy", bucket.root, bucket.root, "--map", topics, "--dest-config", config)
    assert outcome.code == 2
    assert "has the layout aiven" in outcome.err


def test_copies_that_failed_are_left_out(tierlog: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """What was not copied is not there to be read."""
    path = bucket.root / (bucket.keys["a"] + ".log")
    path.write_bytes(bytes(len(path.read_bytes())))
    copied = tierlog("copy", bucket.root, tmp_path / "dest", "--output", "json")
    assert copied.code == 3
    (tmp_path / "told").write_bytes(copied.out + b"\n")
    outcome = tierlog("restore", tmp_path / "told", "--from-copy", "--output", "json")
    assert outcome.code == 1
    assert [line["startOffset"] for line in outcome.lines] == [3]
    assert "it was not copied" in outcome.err


@pytest.mark.parametrize("line", ["x", "[]", "{}", '{"state": "copied"}', "[" * 100_000, '{"state": []}'])
def test_what_is_no_copy_is_refused(tierlog: Run, tmp_path: pathlib.Path, line: str) -> None:
    """By the number of its line."""
    (tmp_path / "told").write_text(f"\n{line}\n")
    outcome = tierlog("restore", tmp_path / "told", "--from-copy")
    assert outcome.code == 2
    assert "line 2 is no segment" in outcome.err
