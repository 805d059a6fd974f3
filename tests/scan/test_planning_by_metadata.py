"""Reads that metadata plans: the same records as a listing shows, without one; and what only metadata can tell."""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
import shutil
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest

from tests.conftest import DATA, FIXTURES
from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.golden import (
    ROW_COLUMNS,
    Case,
    bucket_root,
    config_of,
    consumed,
    metadata_folders,
    rows_of,
    tiered_topics,
)
from tests.support.metadata_topic import view_of
from tierlog.errors import DataLossError, ObjectNotFoundError, UnknownTopicError
from tierlog.remote.api import RemoteLogSegmentState
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, StoreCounts
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.plan import ScanPlan, plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection

State = RemoteLogSegmentState
CASES = [
    case for root in (DATA, FIXTURES) if root.is_dir() for case in tiered_topics(root) if metadata_folders(case.run)
]


@dataclasses.dataclass
class Read:
    """What one read gave, what it was planned from, and what it asked of the store, finding the layout included."""

    rows: pa.Table
    plan: ScanPlan
    stores: list[CountingStore]

    @property
    def lists(self) -> int:
        return sum(store.counts.lists for store in self.stores)


def read_by(
    path: pathlib.Path,
    topic: str,
    known: MetadataView | None,
    *,
    config: Mapping[str, str] | None = None,
    layout: str = "auto",
    columns: tuple[str, ...] = ("partition", "offset", "value"),
    **more: object,
) -> Read:
    stores: list[CountingStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(CountingStore(store))
        return stores[-1]

    request = ScanRequest(TopicSelection.of_names([topic]), **more)  # type: ignore[arg-type]
    with open_tier(path, layout=layout, config=config, wrap_store=wrap, known=known) as tier:
        plan = plan_scan(tier, request)
        found = [part for each in plan.ranges for part in read_scan_range(tier, each, columns=columns)]
    schema = found[0].schema if found else pa.schema([(name, pa.int64()) for name in columns])
    return Read(pa.Table.from_batches(found, schema), plan, stores)


@pytest.mark.few(30)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run.parent.name}-{case}")
def test_the_same_records_without_a_listing(case: Case, isolation: str) -> None:
    """Else a read by metadata is another read: records missing, doubled, or out of a dead branch."""
    config, path = config_of(case.run), bucket_root(case.run)
    plain = read_by(path, case.topic, None, config=config, columns=ROW_COLUMNS, isolation_level=isolation)
    with open_metadata(metadata_folders(case.run)) as view:
        known = read_by(path, case.topic, view, config=config, columns=ROW_COLUMNS, isolation_level=isolation)
    assert rows_of(known.rows) == rows_of(plain.rows)
    assert known.rows.num_rows > 0
    assert known.plan.warnings == plain.plan.warnings
    assert known.lists == 0
    assert plain.lists > 0


def test_planning_asks_for_descriptions_alone(fixtures: pathlib.Path) -> None:
    """Else planning by metadata saves a listing and pays for it in requests."""
    run = fixtures / "main-plain"
    requests: list[StoreCounts] = []
    segments = 0
    with open_metadata(metadata_folders(run)) as view:
        for known in (None, view):
            stores: list[CountingStore] = []

            def wrap(store: ObjectStore, stores: list[CountingStore] = stores) -> ObjectStore:
                stores.append(CountingStore(store))
                return stores[-1]

            with open_tier(run / "objects", layout="aiven", wrap_store=wrap, known=known) as tier:
                (history,) = TierHistory(tier).partitions(["fx-gzip"])
            segments = len(history.spans)
            requests.append(stores[-1].counts)
    listed, by_metadata = requests
    assert by_metadata.gets == listed.gets == segments + 1  # the manifests, and the newest checkpoint
    assert (by_metadata.lists, by_metadata.heads) == (0, 0)
    assert listed.lists > 0


@pytest.mark.parametrize("topic", ["fx-retention", "fx-lso"])
def test_segments_whose_deletion_has_begun_are_no_history(
    fixtures: pathlib.Path, tmp_path: pathlib.Path, topic: str
) -> None:
    """Else records that retention or DeleteRecords removed come back for as long as their objects are there."""
    run = fixtures / "main-plain"
    for folder in ("objects", "objects-removed-later"):
        shutil.copytree(run / folder, tmp_path, dirs_exist_ok=True)
    wanted = consumed(run, topic, "read_uncommitted", "expected-after-delete") or []
    everything = read_by(tmp_path, topic, None)
    with open_metadata(metadata_folders(run)) as view:
        left = read_by(tmp_path, topic, view, columns=ROW_COLUMNS)
    last = left.rows["offset"][-1].as_py()
    assert everything.rows["offset"][0].as_py() == 0
    assert everything.rows["offset"][-1].as_py() == last
    got = rows_of(left.rows)
    assert got[0][1] > 0
    # The log start offset that DeleteRecords set lies inside of a segment, which the metadata does not tell.
    assert [row for row in got if row[1] >= wanted[0][1]] == [row for row in wanted if row[1] <= last]
    assert (got[0] == wanted[0]) == (topic == "fx-retention")
    assert left.lists == 0


def test_a_deleted_topic_is_gone(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Else a topic that was deleted is read as long as any of its objects is left."""
    run = fixtures / "main-plain"
    for folder in ("objects", "objects-removed-later"):
        shutil.copytree(run / folder, tmp_path, dirs_exist_ok=True)
    assert read_by(tmp_path, "fx-deleted", None).rows.num_rows > 0
    with open_metadata(metadata_folders(run)) as view, pytest.raises(UnknownTopicError, match="no topic fx-deleted"):
        read_by(tmp_path, "fx-deleted", view)


def made(root: pathlib.Path, count: int = 4) -> tuple[Bucket, list[StoredSegment]]:
    """One message a segment, offsets 0 …"""
    bucket = Bucket(root)
    for number in range(count):
        bucket.segment(f"s{number}", [message(number, f"m{number}", 0)], lineage={0: 0})
    with open_tier(root) as tier:
        return bucket, list(tier.iter_segments())


def in_states(segments: list[StoredSegment], *states: State) -> MetadataView:
    pairs = zip(segments, states, strict=True)
    return view_of(dataclasses.replace(segment.metadata, state=state) for segment, state in pairs)


def offsets(read: Read) -> list[int]:
    return read.rows["offset"].to_pylist()  # type: ignore[no-any-return]


def test_states_decide(tmp_path: pathlib.Path) -> None:
    """Else a copy that is under way, or a segment that is being deleted, is read."""
    _, segments = made(tmp_path)
    states = (State.DELETE_SEGMENT_STARTED, State.COPY_SEGMENT_FINISHED, State.COPY_SEGMENT_FINISHED)
    with in_states(segments, *states, State.COPY_SEGMENT_STARTED) as view:
        found = read_by(tmp_path, "orders", view)
        assert offsets(found) == [1, 2]
        (bounds,) = found.plan.bounds
        assert (bounds.earliest_offset, bounds.latest_offset) == (1, 3)
    with in_states(segments, *states, State.COPY_SEGMENT_FINISHED) as view:
        assert offsets(read_by(tmp_path, "orders", view)) == [1, 2, 3]


def test_a_segment_that_the_metadata_does_not_know_is_harmless(tmp_path: pathlib.Path) -> None:
    """Else metadata that is a day old makes a bucket unreadable."""
    _, segments = made(tmp_path)
    with view_of(segment.metadata for segment in segments[:2]) as view:
        assert offsets(read_by(tmp_path, "orders", view)) == [0, 1]


@pytest.mark.parametrize("gone", [0, 1, 3])
@pytest.mark.parametrize("suffix", ["rsm-manifest", "log"])
def test_a_segment_that_is_lost(tmp_path: pathlib.Path, gone: int, suffix: str) -> None:
    """Else a loss at the beginning or the end of a log, which no gap shows, passes for retention."""
    bucket, segments = made(tmp_path)
    bucket.path(f"s{gone}", suffix).unlink()
    with in_states(segments, *[State.COPY_SEGMENT_FINISHED] * 4) as view:
        with pytest.raises((ObjectNotFoundError, DataLossError), match=segments[gone].name.removesuffix(".log")):
            read_by(tmp_path, "orders", view)
        if suffix == "rsm-manifest":
            found = read_by(tmp_path, "orders", view, fail_on_data_loss=False)
            assert offsets(found) == [offset for offset in range(4) if offset != gone]
            assert any("the metadata says that it is there" in warning for warning in found.plan.warnings)
        else:
            shown = read_by_ranges(tmp_path, view)
            assert shown == [offset for offset in range(4) if offset != gone]
    if suffix == "rsm-manifest":
        assert offsets(read_by(tmp_path, "orders", None, fail_on_data_loss=False)) == [
            offset for offset in range(4) if offset != gone
        ]


def read_by_ranges(path: pathlib.Path, view: MetadataView) -> list[int]:
    """As a task of Spark reads without failing: by ranges, from a tier that was opened without metadata."""
    request = ScanRequest(TopicSelection.of_names(["orders"]), fail_on_data_loss=False)
    with open_tier(path, known=view) as tier:
        plan = plan_scan(tier, request)
    found: list[int] = []
    with open_tier(path, layout=plan.layout) as tier:
        for each in pickle.loads(pickle.dumps(plan.ranges)):
            found += [at for part in _rows(tier, each) for at in part["offset"].to_pylist()]
    return found


def _rows(tier: Tier, scan_range: object) -> Iterator[pa.RecordBatch]:
    return read_scan_range(tier, scan_range, columns=("offset",))  # type: ignore[arg-type]


def test_a_dead_branch_is_left_out(tmp_path: pathlib.Path) -> None:
    """Else planning by the segments' own epochs shows records that an unclean election undid: both segments are
    finished, and only the newest checkpoint knows which epochs are the log.
    """
    bucket = Bucket(tmp_path)
    bucket.segment("dead", [message(1, "dead1", 1), message(2, "dead2", 1)], lineage={0: 0, 1: 1})
    bucket.segment("a", [message(0, "a0", 0), message(1, "a1", 0), message(2, "a2", 0)], lineage={0: 0})
    bucket.segment("b", [message(3, "b3", 2)], lineage={0: 0, 2: 3})
    with open_tier(tmp_path) as tier:
        segments = list(tier.iter_segments())
    with in_states(segments, *[State.COPY_SEGMENT_FINISHED] * 3) as view:
        found = read_by(tmp_path, "orders", view)
    assert [value.decode() for value in found.rows["value"].to_pylist()] == ["a0", "a1", "a2", "b3"]
    assert found.rows.equals(read_by(tmp_path, "orders", None).rows)
