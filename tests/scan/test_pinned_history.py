"""Histories without descriptions: the same plans as of histories that have them, out of what a pipe can carry."""

from __future__ import annotations

import os
import pathlib
import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.conftest import DATA, FIXTURES
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import Case, bucket_root, config_of, metadata_folders, tiered_topics
from tierlog.errors import CorruptObjectError, ObjectNotFoundError, TierlogError
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.scan.pinned_history import PinnedTierHistory
from tierlog.scan.planning.plan import list_histories, plan_scan, prepare_scan
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection
from tierlog.scan.spans import SpanColumns

CASES = [case for root in (DATA, FIXTURES) if root.is_dir() for case in tiered_topics(root)]


def spans_of(tier: Tier, history: PartitionHistory) -> list[object]:
    """Spans with all that describes their segments."""
    found: list[object] = []
    for span in history.lineage.spans:
        segment = tier.describe_segment(span.segment)
        found.append((unlisted(segment), segment.footer, span.first_offset, span.end_offset_exclusive))
    return found


def unlisted(segment: StoredSegment) -> StoredSegment:
    """The segment without the sizes of objects that only a listing says, which no plan and no reader asks for."""
    parts = tuple((kind, part._replace(object_size_bytes=-1)) for kind, part in segment.parts)
    return replace(segment, log=segment.log._replace(object_size_bytes=-1), parts=parts)


def check_same(tier: Tier, whole: PartitionHistory, pinned: PartitionHistory) -> None:
    assert spans_of(tier, pinned) == spans_of(tier, whole)
    assert (pinned.gaps, pinned.warnings, pinned.size_bytes) == (whole.gaps, whole.warnings, whole.size_bytes)
    assert (pinned.earliest_offset, pinned.end_offset_exclusive) == (whole.earliest_offset, whole.end_offset_exclusive)
    assert pinned.lineage.epochs == whole.lineage.epochs
    for protocol in (4, 5):
        assert pickle.loads(pickle.dumps(pinned, protocol)).lineage.spans == pinned.lineage.spans


@pytest.mark.few(20)
@pytest.mark.parametrize("most", [0, 2])
@pytest.mark.parametrize("by_metadata", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run.parent.name}-{case}")
def test_the_same_plans(case: Case, by_metadata: bool, most: int) -> None:
    """A plan by a listing that lacks something is wrong rows, and nobody compares it with another one."""
    if by_metadata and not metadata_folders(case.run):
        pytest.skip("no metadata")
    config, path = config_of(case.run), bucket_root(case.run)
    known = open_metadata(metadata_folders(case.run)) if by_metadata else None
    with open_tier(path, config=config, known=known) as tier:
        whole = TierHistory(tier).partitions([case.topic])
        pinned = PinnedTierHistory(tier, described_max=most).partitions([case.topic])
        again = PinnedTierHistory(tier, described_max=most, previous=pinned).partitions([case.topic])
        for one, other, later in zip(whole, pinned, again, strict=True):
            check_same(tier, one, other)
            check_same(tier, one, later)
        for chosen in (
            RecordFilter(),
            RecordFilter(first_offset=3),
            RecordFilter(first_timestamp_ms=1_700_000_000_000),
        ):
            for isolation in ("read_uncommitted", "read_committed"):
                request = ScanRequest(
                    TopicSelection.of_names([case.topic]), record_filter=chosen, isolation_level=isolation
                )
                plans = [plan_scan(tier, request, histories=each) for each in (whole, pinned)]
                ranges = [[replace(each, segment=unlisted(each.segment)) for each in plan.ranges] for plan in plans]
                assert ranges[0] == ranges[1]
                assert plans[0].warnings == plans[1].warnings
                limits = [prepare_scan(tier, request, histories=each).limits for each in (whole, pinned)]
                assert limits[0] == limits[1]
    if known is not None:
        known.close()


@pytest.fixture
def orders(tmp_path: pathlib.Path) -> Bucket:
    bucket = Bucket(tmp_path / "orders")
    for number in range(3):
        bucket.segment(f"u{number}", [Batch(10 * number, (b"x",) * 10)], lineage={0: 0})
    return bucket


def test_of_segments_metadata_alone_is_in_memory(orders: Bucket) -> None:
    """A million chunk indexes in the driver are gigabytes."""
    with open_tier(orders.root) as tier:
        (history,) = PinnedTierHistory(tier, described_max=2).partitions(["orders"])
        few, _ = list_histories(tier, ScanRequest(TopicSelection.of_names(["orders"])), pinned=True)
        assert few == TierHistory(tier).partitions(["orders"])
    assert isinstance(history.lineage.spans, SpanColumns)
    assert len(history.lineage.spans) == 3
    assert len(pickle.dumps(history.lineage.spans)) < 3 * 150 + 2000


def test_plain_segments_are_not_read_again(orders: Bucket) -> None:
    """A million small reads are a minute of each query's plan."""
    request = ScanRequest(TopicSelection.of_names(["orders"]))
    with open_tier(orders.root) as tier:
        for most in (0, 2):
            histories = PinnedTierHistory(tier, described_max=most).partitions(["orders"])
            before = dict(tier.store.requests)
            assert len(plan_scan(tier, request, histories=histories).ranges) == 3
            assert dict(tier.store.requests) == before


@pytest.mark.parametrize("compression", [False, True])
def test_what_was_listed_before_is_not_read_again(tmp_path: pathlib.Path, compression: bool) -> None:
    """A session over a million segments would read all their manifests at each refresh; or miss what is another one."""
    bucket = Bucket(tmp_path / "orders")

    def write(number: int) -> None:
        batches = [Batch(10 * number, (b"x",) * 10)]
        bucket.segment(f"u{number}", batches, lineage={0: 0}, compression=compression)

    def listed(previous: Sequence[PartitionHistory]) -> tuple[list[PartitionHistory], int]:
        """The histories, and how many manifests were read but that of the newest segment."""
        with open_tier(bucket.root) as tier:
            before = tier.store.requests.get("GET", 0)
            found = PinnedTierHistory(tier, described_max=0, previous=previous).partitions(["orders"])
            reads = tier.store.requests.get("GET", 0) - before
            whole = TierHistory(tier).partitions(["orders"])
            for one, other in zip(whole, found, strict=True):
                check_same(tier, one, other)
        return found, reads

    for number in range(6):
        write(number)
    first, cold = listed(())
    again, known = listed(first)
    assert [each.lineage.spans for each in again] == [each.lineage.spans for each in first]
    write(6)
    more, with_new = listed(again)
    assert cold >= 12, "these manifests are not as the plugin writes them, and are read by its whole parser"
    assert (known, with_new) == (2, 3), "the newest segment's checkpoint and manifest, which is read twice if it is new"
    assert more[0].end_offset_exclusive == 70
    manifest = bucket.path("u2", "rsm-manifest")
    os.utime(manifest, (1, 1))  # written again, as by a rotation of its key
    assert listed(more)[1] == known + 2
    for path in manifest.parent.glob(manifest.name.partition(".")[0] + ".*"):
        path.unlink()
    (left,), _ = listed(more)
    assert len(left.lineage.spans) == 6


@pytest.fixture
def packed(tmp_path: pathlib.Path) -> Bucket:
    bucket = Bucket(tmp_path / "packed")
    for number in range(3):
        bucket.segment(f"u{number}", [Batch(10 * number, (b"x",) * 10)], lineage={0: 0}, compression=True)
    return bucket


@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_segment_that_was_lost_since(packed: Bucket, fault: str) -> None:
    """A description that is read when it is planned: then retention is said, or passed over, as a reader would."""
    orders, request = packed, ScanRequest(TopicSelection.of_names(["orders"]))
    with open_tier(orders.root) as tier:
        histories = PinnedTierHistory(tier, described_max=0).partitions(["orders"])
        manifest = orders.path("u1", "rsm-manifest")
        if fault == "gone":
            manifest.unlink()
        else:
            manifest.write_text("{")
        error: type[TierlogError] = ObjectNotFoundError if fault == "gone" else CorruptObjectError
        with pytest.raises(error, match="gone since it was listed" if fault == "gone" else "rsm-manifest"):
            plan_scan(tier, request, histories=histories)
        plan = plan_scan(tier, replace(request, fail_on_data_loss=False), histories=histories)
        assert [each.from_offset for each in plan.ranges] == [0, 20]
        assert len(plan.warnings) == 1
        assert plan.warnings[0].startswith("left out: ")
        others = replace(request, record_filter=RecordFilter(first_offset=20))
        assert [each.from_offset for each in plan_scan(tier, others, histories=histories).ranges] == [20]
