"""`tierlog ls`: what is there, and what of it counts."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.command import Run
from tests.support.kip_scripts import SCRIPTS


def test_segments_of_a_bucket(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise an operator cannot see what was tiered without a broker."""
    outcome = tierlog("ls", data / "main-plain/objects", "fx-epochs", "--output", "json", "--times")
    manifests = [
        json.loads(path.read_text())["remoteLogSegmentMetadata"]
        for path in (data / "main-plain/objects").glob("fx-epochs-*/*/*.rsm-manifest")
    ]
    expected = sorted((m["startOffset"], m["endOffset"], m["remoteLogSegmentId"]["id"]) for m in manifests)
    assert outcome.code == 0
    assert [(line["startOffset"], line["endOffset"], line["segment"]) for line in outcome.lines] == expected
    by_start = {m["startOffset"]: m for m in manifests}
    for line in outcome.lines:
        described = by_start[line["startOffset"]]
        assert line["leaderEpochs"] == described["segmentLeaderEpochs"]
        assert line["maxTimestamp"] == described["maxTimestampMs"]
        assert (line["layout"], line["topic"], line["partition"]) == ("aiven", "fx-epochs", 0)
        assert isinstance(line["firstTimestamp"], int)
        assert line["firstTimestamp"] <= described["maxTimestampMs"]


def test_states(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a duplicate or an abandoned branch is taken for data, or cut data for lost data."""
    states = {}
    for name in ("4", "F"):
        (tmp_path / name).mkdir()
        SCRIPTS[name](tmp_path / name)
        lines = tierlog("ls", tmp_path / name, "--output", "json").lines
        states[name] = [(line["startOffset"], line["endOffset"], line["state"]) for line in lines]
    assert states["4"] == [(0, 1, "live"), (0, 2, "unreferenced")]
    assert states["F"] == [(0, 2, "live"), (3, 4, "live"), (4, 6, "cut 5-6")]


def test_text_names_gaps_and_incomplete_uploads(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise lost segments and the rests of failed copies stay unseen."""
    bucket = Bucket(tmp_path)
    for name, first in (("a", 0), ("b", 3), ("c", 6)):
        bucket.segment(name, [message(offset, f"m{offset}", 0) for offset in range(first, first + 3)], lineage={0: 0})
    bucket.path("b", "rsm-manifest").unlink()
    outcome = tierlog("ls", tmp_path)
    assert outcome.code == 0
    heading, columns, *rows = outcome.text.splitlines()
    assert heading.startswith("orders-0 ")
    assert "offsets 0 to 8" in heading
    assert columns.split()[:4] == ["START", "END", "BYTES", "STORED"]
    assert [row.split()[0] for row in rows] == ["0", "6", "GAP:"]
    assert "2 objects belong to no whole segment" in outcome.err


def test_an_unreadable_manifest_is_named(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise one bad manifest hides a bucket, or goes unseen in it."""
    bucket = Bucket(tmp_path)
    bucket.segment("a", [message(0, "m0", 0)], lineage={0: 0})
    bucket.segment("b", [message(1, "m1", 0)], lineage={0: 0})
    bucket.path("b", "rsm-manifest").write_text("{")
    outcome = tierlog("ls", tmp_path, "--output", "json")
    assert outcome.code == 3
    assert [line["startOffset"] for line in outcome.lines] == [0]
    assert "rsm-manifest" in outcome.err


def test_a_segment_whose_first_record_cannot_be_read_is_named(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise one damaged batch, or one segment that retention takes meanwhile, hides a bucket."""
    bucket = Bucket(tmp_path)
    for name, at in (("a", 0), ("b", 1), ("c", 2)):
        bucket.segment(name, [message(at, "m", 0)], lineage={0: 0})
    log = bucket.path("a", "log").read_bytes()
    bucket.path("a", "log").write_bytes(log[:8] + bytes(4) + log[12:])
    bucket.path("b", "log").unlink()
    ledger = tmp_path.parent / "ledger"
    for _ in range(2):
        outcome = tierlog("ls", tmp_path, "--times", "--output", "json", "--ledger", ledger)
        assert outcome.code == 3
        assert [line["firstTimestamp"] is None for line in outcome.lines] == [True, True, False]
        assert "@ 0 (offset 0)" in outcome.err
        assert "gone since it was listed" in outcome.err


def test_two_topics_of_one_name(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a topic that was deleted and made anew makes the whole bucket unreadable."""
    for topic_id in ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"):
        Bucket(tmp_path, topic_id=topic_id).segment("a", [message(0, topic_id, 0)], lineage={0: 0})
    assert [line["topicId"] for line in tierlog("ls", tmp_path, "--output", "json").lines] == [
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "AAAAAAAAAAAAAAAAAAAAAg",
    ]
    ambiguous = tierlog("cat", tmp_path, "orders")
    assert ambiguous.code == 2
    assert "AAAAAAAAAAAAAAAAAAAAAg:orders" in ambiguous.err
    one = tierlog("cat", tmp_path, "AAAAAAAAAAAAAAAAAAAAAg:orders", "--format", "raw")
    assert one.out == b"AAAAAAAAAAAAAAAAAAAAAg\n"


def test_a_log_directory(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise the active segment looks like one that will not change."""
    folder = tmp_path / "orders-3"
    folder.mkdir()
    for first in (0, 5):
        log = b"".join(encode(Batch(offset)) for offset in range(first, first + 5))
        (folder / f"{first:020d}.log").write_bytes(log)
    lines = tierlog("ls", tmp_path, "--output", "json").lines
    assert [(line["startOffset"], line["endOffset"], line["state"]) for line in lines] == [
        (0, 4, "live"),
        (5, 9, "active"),
    ]


def test_topics_below_a_prefix_without_a_slash_are_told(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Names that begin with a part of the key.prefix are no topics: no other command knows them."""
    bucket = Bucket(tmp_path / "bucket", prefix="x-")
    for name, at in (("a", 0), ("b", 1)):
        bucket.segment(name, [message(at, "m", 0)], lineage={0: 0})
    outcome = tierlog("ls", bucket.root, "--topics")
    assert (outcome.code, outcome.out) == (3, b"")
    assert "a key.prefix that ends in 'x-', give it" in outcome.err
    config = tmp_path / "tier.properties"
    config.write_text("key.prefix=x-\n")
    assert tierlog("ls", bucket.root, "--topics", "--config", config).text == "orders\n"


def test_one_damaged_description_hides_no_topic(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Names come from keys; a description only confirms them."""
    bucket = Bucket(tmp_path)
    for name, at in (("a", 0), ("b", 1)):
        bucket.segment(name, [message(at, "m", 0)], lineage={0: 0})
    bucket.path("a", "rsm-manifest").write_text("{")
    assert tierlog("ls", tmp_path, "--topics").text == "orders\n"


def test_two_buckets_below_one_folder_are_told_apart(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A bucket and its copy in one folder look like one log with duplicates."""
    for prefix, name in (("one/", "a"), ("two/", "a"), ("two/", "b")):
        Bucket(tmp_path, prefix=prefix, partition=int(name == "b")).segment(name, [message(0, "m", 0)], lineage={0: 0})
    outcome = tierlog("ls", tmp_path)
    assert outcome.code == 0
    headings = [line for line in outcome.text.splitlines() if line.startswith("orders-")]
    assert headings[0].endswith(" prefix one/, two/")
    assert headings[1].endswith(" prefix two/")
    assert "orders-0: segments of 2 prefixes (one/, two/) are taken for one log" in outcome.err
    assert "segments of 2 prefixes" in tierlog("ls", tmp_path, "--totals").err
    one = tierlog("ls", tmp_path / "one")
    assert "prefix" not in one.text + one.err


def test_topics_alone(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise a user who wants the names reads through all segments, and no script can loop over them."""
    bucket = data / "main-plain/objects"
    assert tierlog("ls", bucket, "--topics").text.splitlines() == ["fx-epochs", "fx-lso", "fx-txn"]
    assert tierlog("ls", bucket, "^fx-[el]", "--topics").text.splitlines() == ["fx-epochs", "fx-lso"]
    (line,) = tierlog("ls", bucket, "fx-txn", "--topics", "--output", "json").lines
    assert line == {"topic": "fx-txn", "topicId": line["topicId"], "partitions": [0]}
    assert tierlog("ls", bucket, "--topics", "--partition", "1").out == b""
    assert tierlog("ls", bucket, "nothing", "--topics").code == 3
    for name in ("a", "b"):
        Bucket(tmp_path, topic_id=name * 22).segment("s", [message(0, "v", 0)], lineage={0: 0})
    names = tierlog("ls", tmp_path, "--topics").text.splitlines()
    assert len(names) == 2
    for name in names:
        assert name.endswith(":orders")
        assert tierlog("cat", tmp_path, name, "--count").text == "1\n"


def test_several_topics(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise each topic takes a command, or a pattern is taken for a name."""
    bucket = data / "main-plain/objects"

    def topics(*arguments: str) -> set[object]:
        outcome = tierlog("ls", bucket, *arguments, "--output", "json")
        assert outcome.code == 0, outcome.err
        return {line["topic"] for line in outcome.lines}

    assert topics("fx-lso", "fx-txn") == {"fx-lso", "fx-txn"}
    assert topics("^fx-l", "fx-txn", "--partition", "0,3") == {"fx-lso", "fx-txn"}
    assert topics("^fx-.*o") == {"fx-epochs", "fx-lso"}
    assert "no topic matches ^zz" in tierlog("ls", bucket, "^zz").err
    assert tierlog("ls", bucket, "^fx", "nothing").code == 3


def test_totals_by_topic(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise a user who asks what fills a bucket adds up hundreds of lines by hand."""
    path = data / "main-plain/objects"
    segments = tierlog("ls", path, "--output", "json").lines
    totals = {str(line["topic"]): line for line in tierlog("ls", path, "--totals", "--output", "json").lines}
    assert totals.keys() == {line["topic"] for line in segments}
    for name, total in totals.items():
        of_topic = {line["object"]: line for line in segments if line["topic"] == name}
        counting = [line for line in segments if line["topic"] == name and line["firstOffset"] is not None]
        assert total == {
            "topic": name,
            "topicId": counting[0]["topicId"],
            "partitions": len({line["partition"] for line in of_topic.values()}),
            "segments": len(of_topic),
            "records": sum(int(str(line["lastOffset"])) + 1 - int(str(line["firstOffset"])) for line in counting),
            "sizeBytes": sum(int(str(line["sizeBytes"])) for line in of_topic.values()),
            "storedBytes": sum(int(str(line["storedBytes"])) for line in of_topic.values()),
            "maxTimestamp": max(int(str(line["maxTimestamp"])) for line in counting),
        }
    head, *rows, last = tierlog("ls", path, "--totals").text.splitlines()
    assert head.split()[-1] == "TOPIC"
    assert [row.split()[-1] for row in rows] == sorted(totals)
    assert last.split()[-1] == "total"
    assert int(last.split()[3]) == sum(int(row.split()[3]) for row in rows)


def test_the_largest_come_first(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise the one topic that fills the bucket is somewhere in a long list."""
    made = {"many": (9, b"x", 5), "late": (1, b"x", 900), "large": (2, b"x" * 5000, 7)}
    for at, (topic, (count, value, time_ms)) in enumerate(made.items()):
        bucket = Bucket(tmp_path, topic=topic, partition=at)
        bucket.segment(topic, [Batch(0, (value,) * count, timestamp_ms=time_ms)], lineage={0: 0})
    for order, first in (("size", "large"), ("records", "many"), ("time", "late")):
        lines = tierlog("ls", tmp_path, "--totals", "--sort", order, "--output", "json").lines
        assert lines[0]["topic"] == first
        assert tierlog("ls", tmp_path, "--sort", order).text.startswith(f"{first}-")
    assert tierlog("ls", tmp_path, "--sort", "name").code == 2
    assert tierlog("ls", tmp_path, "--totals", "--topics").code == 2


def test_a_dry_run_counts(tierlog: Run, data: pathlib.Path) -> None:
    """Otherwise nobody knows what `--times` over a million segments costs before it was paid."""
    path = data / "main-plain/objects"
    outcome = tierlog("ls", path, "fx-epochs", "--dry-run", "--times", "--output", "json")
    segments = len({line["object"] for line in tierlog("ls", path, "fx-epochs", "--output", "json").lines})
    assert outcome.lines == [{"segments": segments, "requests": 2 * segments, "sizeBytes": segments << 14}]


@pytest.mark.parametrize("option", ["--spark", "--ledger"])
def test_what_a_listing_has_no_use_for_is_refused(tierlog: Run, data: pathlib.Path, option: str) -> None:
    """Else a cluster is started for nothing."""
    outcome = tierlog("ls", data / "main-plain/objects", option, "x")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "go with --times or --records" in outcome.err
