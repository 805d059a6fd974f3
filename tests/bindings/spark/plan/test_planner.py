"""The child plans what the Python path plans: the same ranges, the same errors, the same words."""

from __future__ import annotations

import io
import json
import pathlib
import pickletools
import shutil
from dataclasses import replace
from typing import Any

import pytest

from pyspark_tierlog.listing import list_tiers
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.plan.frames import FrameWriter
from pyspark_tierlog.plan.listing_frames import read_listing, write_listing
from pyspark_tierlog.request import scan_requests
from tests.support.golden import config_of, metadata_folders
from tests.support.metadata_topic import write_topic
from tests.support.planner import PlannerChild, PlannerError, options_of
from tierlog import open_tier
from tierlog.remote.api import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import segment_label
from tierlog.scan.scan_range import ScanRange

State = RemoteLogSegmentState
RUNS = ("main-plain", "zstd-aes", "custom-meta")
CUTS: list[dict[str, str]] = [
    {},
    {"maxBytesPerPartition": "20k"},
    {"kafka.isolation.level": "read_committed", "maxBytesPerPartition": "50k"},
    {"minPartitions": "40", "maxPartitions": "45"},
]


def as_sent(scan_range: ScanRange) -> dict[str, Any]:
    """What must be in the frames of a range."""
    segment, chunks = scan_range.segment, None
    if segment.transformed:
        assert segment.chunk_index is not None
        views = segment.chunk_index.views(scan_range.start_position, scan_range.end_position)
        first = int(views["chunk"][0]) * segment.chunk_index.original_chunk_size
        transformed = int(views["transformed_position"][0])
        chunks = (first, transformed, int(views["original_size"][-1]), views["transformed_size"].tolist())
    return {
        "topic": scan_range.topic,
        "partition": scan_range.partition,
        "label": segment_label(segment),
        "name": segment.name,
        "key": segment.log.key,
        "place": (segment.log.position, segment.size_bytes, segment.last_modified_ms),
        "bytes": (scan_range.start_position, scan_range.end_position),
        "offsets": (scan_range.from_offset, scan_range.to_offset_exclusive),
        "timestamps": (scan_range.from_timestamp_ms, scan_range.to_timestamp_exclusive_ms),
        "aborted": scan_range.aborted,
        "chunks": chunks,
        "key_id": segment.encryption.key_id if segment.encryption else None,
        "wrapped": (segment.encryption.wrapped_key, segment.encryption.aad) if segment.encryption else None,
        "compressed": segment.compression,
    }


def as_told(told: dict[str, Any]) -> dict[str, Any]:
    segment, chunks = told["segment"], told["chunks"]
    return {
        **{name: segment[name] for name in ("topic", "partition", "label", "name", "key")},
        "place": (segment["logPosition"], segment["sizeBytes"], segment["lastModifiedMs"]),
        "bytes": (told["start"], told["end"]),
        "offsets": (told["fromOffset"], told["toOffset"]),
        "timestamps": (told["fromTimestamp"], told["toTimestamp"]),
        "aborted": told["aborted"],
        "chunks": None if chunks is None else (*chunks[:3], chunks[3].tolist()),
        "key_id": segment.get("keyId"),
        "wrapped": (segment["wrappedKey"], segment["aad"]) if "keyId" in segment else None,
        "compressed": bool(segment["compressed"]),
    }


@pytest.mark.parametrize("run", RUNS)
def test_the_ranges_are_those_of_the_python_path(child: PlannerChild, data: pathlib.Path, run: str) -> None:
    """One brain: a range that differs by a byte is rows that one of the two paths does not have."""
    for cut in CUTS:
        given = options_of(data / run) | cut
        options, _ = parse_options(given)
        (pinned,) = list_tiers(options).checked()
        (request,) = scan_requests(options, [pinned.size_bytes])
        with open_tier(pinned.path, layout=pinned.layout, config=config_of(data / run)) as tier:
            wanted = plan_scan(tier, request, histories=pinned.histories)
        plan = child.plan(given)
        assert [[as_told(each) for each in task] for task in plan.tasks] == [
            [as_sent(each) for each in task] for task in wanted.tasks()
        ]
        assert plan.warnings == list(wanted.warnings)
        assert plan.head["rows"] >= 1
        assert plan.stores == [
            ("local", str(data / run / "objects"), {}, plan.stores[0][3]),
        ]


@pytest.mark.parametrize("place", ["the bucket", "a topic", "a partition", "a log directory", "a file"])
def test_each_segment_is_where_its_store_and_key_say(child: PlannerChild, data: pathlib.Path, place: str) -> None:
    """The jar joins the two and opens what is there: a folder too much or too few is a log that is not found."""
    run = data / "main-plain"
    logs = sorted((run / "objects").rglob("*.log"))
    path = {
        "the bucket": run / "objects",
        "a topic": logs[0].parents[1],
        "a partition": logs[0].parent,
        "a log directory": next((run / "local-before").rglob("*.log")).parents[1],
        "a file": logs[0],
    }[place]
    plan = child.plan({"path": str(path), "subscribePattern": ".*"})
    assert plan.segments != []
    for segment in plan.segments:
        kind, url, _, _ = plan.stores[segment["store"]]
        assert kind == "local"
        assert pathlib.Path(url).is_absolute()
        assert (pathlib.Path(url) / segment["key"]).stat().st_size >= segment["logPosition"] + segment["sizeBytes"]


def test_metadata_says_which_segments_are_planned(
    child: PlannerChild, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Else the jar reads segments that the cluster is deleting, or does not see that one is lost."""
    run = data / "main-plain"
    shutil.copytree(run / "objects", tmp_path / "bucket")
    given = {"path": str(tmp_path / "bucket"), "subscribe": "fx-txn"}
    by_metadata = given | {"metadata": metadata_folders(run)[0]}
    with open_tier(given["path"]) as tier:
        segments = [segment.metadata for segment in tier.iter_segments("fx-txn")]
    records: list[RemoteLogMetadataRecord] = []
    for number, segment in enumerate(segments):
        segment_id = segment.remote_log_segment_id
        records.append(replace(segment, state=State.COPY_SEGMENT_STARTED))
        states = [State.COPY_SEGMENT_FINISHED, *([State.DELETE_SEGMENT_STARTED] if number == 0 else [])]
        records += [
            RemoteLogSegmentMetadataUpdate(
                segment_id, event_timestamp_ms=1, custom_metadata=None, state=state, broker_id=1
            )
            for state in states
        ]
    write_topic(tmp_path / "deleting", 0, records)
    plain, known = child.plan(given), child.plan(by_metadata)
    less = child.plan(given | {"metadata": str(tmp_path / "deleting")})
    assert [segment["key"] for segment in known.segments] == [segment["key"] for segment in plain.segments]
    assert [segment["key"] for segment in less.segments] == [segment["key"] for segment in plain.segments][1:]
    assert known.head["rows"] == plain.head["rows"] > less.head["rows"]
    lost = tmp_path / "bucket" / plain.segments[-1]["key"].replace(".log", ".rsm-manifest")
    lost.unlink()
    with pytest.raises(PlannerError, match="the metadata says that it is there"):
        child.plan(by_metadata)
    lenient = child.plan(by_metadata | {"failOnDataLoss": "false"})
    assert len(lenient.segments) == len(plain.segments) - 1
    assert any("the metadata says that it is there" in warning for warning in lenient.warnings)


def test_two_paths_share_the_tasks(child: PlannerChild, data: pathlib.Path) -> None:
    """Every task of load([a, b]) must open the store that its segments are in, and maxPartitions counts them all."""
    paths = [str(data / run / "objects") for run in ("main-plain", "custom-meta")]
    options = {"paths": json.dumps(paths), "subscribePattern": ".*", "maxBytesPerPartition": "10k"}
    listing = child.list(options)
    many = child.plan(options, listing)
    few = child.plan(options | {"maxPartitions": "7"}, listing)
    assert len(few.tasks) <= 7 < len(many.tasks)
    for plan in (many, few):
        assert [url for _, url, _, _ in plan.stores] == paths
        assert {segment["store"] for segment in plan.segments} == {0, 1}
        for task in plan.tasks:
            assert len({each["segment"]["store"] for each in task}) == 1


def test_a_listing_travels_as_our_own_classes_alone(data: pathlib.Path) -> None:
    """Otherwise the child refuses its own listing: some Pythons (3.11.2, Debian 12's) pickle an enum by ``getattr``."""
    options, _ = parse_options({"path": str(data / "main-plain" / "objects"), "subscribePattern": "fx-.*"})
    listing = list_tiers(options)
    out = io.BytesIO()
    write_listing(FrameWriter(out), listing)
    body = out.getvalue()[5:]
    called = {argument for _, argument, _ in pickletools.genops(body) if isinstance(argument, str)}
    assert not called & {"builtins", "getattr"}
    assert read_listing([body]).checked()[0].path == listing.checked()[0].path
