"""A bucket that is served by what brokers say of its segments."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.catalogs import NEVER_SECONDS, history_of, opened_catalog, relisted, spans_of
from tests.support.golden import bucket_root, config_of, metadata_folders
from tests.support.loops import run_on
from tests.support.metadata_topic import write_topic
from tests.support.waiting import until
from tierlog import open_tier
from tierlog.broker.replica.catalog.bucket_catalog import CatalogSettings
from tierlog.errors import ConfigError, ObjectNotFoundError
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, write_snapshot
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.following.known_partitions import FollowedMetadata
from tierlog.scan.history import TierHistory

State = RemoteLogSegmentState


class NeverLists(PassingStore):
    """Fails a test that lists what is known."""

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        pytest.fail(f"{prefix} is listed")


def segments_of(root: pathlib.Path) -> list[RemoteLogSegmentMetadata]:
    with open_tier(str(root)) as tier:
        return [segment.metadata for segment in tier.iter_segments()]


def records_of(segments: Sequence[RemoteLogSegmentMetadata]) -> list[object]:
    """What a broker writes of segments: begun, then the state that each has."""
    records: list[object] = []
    for segment in segments:
        records.append(replace(segment, state=State.COPY_SEGMENT_STARTED))
        steps = [State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED]
        records += [
            RemoteLogSegmentMetadataUpdate(
                segment.remote_log_segment_id, event_timestamp_ms=0, custom_metadata=None, state=state, broker_id=1
            )
            for state in steps[: segment.state.value]
        ]
    return records


def in_states(segments: Sequence[RemoteLogSegmentMetadata], *states: State) -> list[RemoteLogSegmentMetadata]:
    return [replace(segment, state=state) for segment, state in zip(segments, states, strict=True)]


def write(folder: pathlib.Path, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    log = write_topic(folder, 0, records_of(segments))  # type: ignore[arg-type]
    now = log.stat().st_mtime_ns + 5_000_000 * len(segments)
    os.utime(log, ns=(now, now))


def bucket_of(root: pathlib.Path, topic: str = "orders", count: int = 4) -> Bucket:
    bucket = Bucket(root, topic)
    for number in range(count):
        bucket.segment(f"s{number}", [message(number, "m", 0)], lineage={0: 0})
    return bucket


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_histories_are_those_of_a_scan_by_metadata(data: pathlib.Path, fixtures: pathlib.Path, run: str) -> None:
    """A consumer would get other records than `tierlog cat --metadata` shows."""
    root = next(folder for folder in (data / run, fixtures / run) if metadata_folders(folder))
    config = config_of(root)
    with (
        open_metadata(metadata_folders(root)) as view,
        open_tier(str(bucket_root(root)), layout="aiven", config=config, known=view) as tier,
    ):
        faults: list[Exception] = []
        expected = TierHistory(tier, faults=faults).partitions()  # type: ignore[arg-type]
    assert expected

    async def main() -> None:
        metadata = FollowedMetadata(metadata_folders(root))
        async with opened_catalog(
            bucket_root(root), layout="aiven", config=config, read_metadata=metadata.read
        ) as catalog:
            for each in expected:
                assert await history_of(catalog, each.topic, each.partition).resolve() == each

    run_on("uvloop", main)


def test_states_decide_and_are_followed(tmp_path: pathlib.Path) -> None:
    """A copy that is under way would be served, or a segment whose deletion has begun for as long as it lies there."""
    bucket_of(tmp_path / "bucket")
    topic, done, gone = tmp_path / "kafka", State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED
    segments = segments_of(tmp_path / "bucket")
    write(topic, in_states(segments, gone, done, done, State.COPY_SEGMENT_STARTED))

    async def main() -> None:
        metadata = FollowedMetadata([str(topic)])
        async with opened_catalog(
            tmp_path / "bucket", layout="aiven", wrap_store=NeverLists, read_metadata=metadata.read
        ) as catalog:
            histories = history_of(catalog, "orders")
            first = await histories.resolve()
            assert spans_of(first) == [(1, 2), (2, 3)]
            version = catalog.version
            await relisted(catalog)
            assert histories.current is first
            assert catalog.version == version
            write(topic, in_states(segments, gone, gone, done, done))
            await relisted(catalog)
            await until(lambda: histories.current is not first)
            assert spans_of(await histories.resolve()) == [(2, 3), (3, 4)]
            await until(lambda: catalog.version > version)

    run_on("uvloop", main)


def test_topics_come_and_go_with_the_metadata(tmp_path: pathlib.Path) -> None:
    """A deleted topic would be served while any object of it is left."""
    bucket_of(tmp_path / "bucket")
    bucket_of(tmp_path / "bucket", "other", 1)
    topic = tmp_path / "kafka"
    segments = segments_of(tmp_path / "bucket")
    orders = [segment for segment in segments if segment.topic_id_partition.topic == "orders"]
    other = [segment for segment in segments if segment.topic_id_partition.topic == "other"]
    write(topic, orders)

    async def main() -> None:
        metadata = FollowedMetadata([str(topic)])
        async with opened_catalog(
            tmp_path / "bucket", layout="aiven", wrap_store=NeverLists, read_metadata=metadata.read
        ) as catalog:
            assert [each.name for each in catalog.topics()] == ["orders"]
            write(topic, in_states(orders, *([State.DELETE_SEGMENT_FINISHED] * len(orders))) + other)
            await relisted(catalog)
            assert [each.name for each in catalog.topics()] == ["other"]

    run_on("uvloop", main)


def test_what_the_metadata_knows_and_the_bucket_lacks(tmp_path: pathlib.Path) -> None:
    """A deletion that the metadata does not tell yet would end all reads; a loss would be passed over."""
    bucket = bucket_of(tmp_path / "bucket")
    segments = segments_of(tmp_path / "bucket")
    write(tmp_path / "kafka", segments)
    bucket.path("s0", "rsm-manifest").unlink()

    async def main() -> None:
        metadata = FollowedMetadata([str(tmp_path / "kafka")])
        async with opened_catalog(tmp_path / "bucket", layout="aiven", read_metadata=metadata.read) as catalog:
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(1, 2), (2, 3), (3, 4)]
        bucket.path("s2", "rsm-manifest").unlink()
        async with opened_catalog(tmp_path / "bucket", layout="aiven", read_metadata=metadata.read) as catalog:
            with pytest.raises(ObjectNotFoundError, match="retention"):
                await history_of(catalog, "orders").resolve()

    run_on("uvloop", main)


def test_two_copies_of_one_offset_are_told_apart(tmp_path: pathlib.Path) -> None:
    """After a failover a segment would stand in for another one that begins at the same offset."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("u1", [message(0, "m", 0)], lineage={0: 0})
    bucket.segment("u2", [message(0, "m", 0), message(1, "m", 0)], lineage={0: 0})
    write(tmp_path / "kafka", segments_of(tmp_path / "bucket"))

    async def main() -> None:
        metadata = FollowedMetadata([str(tmp_path / "kafka")])
        async with opened_catalog(tmp_path / "bucket", layout="aiven", read_metadata=metadata.read) as catalog:
            history = await history_of(catalog, "orders").resolve()
            assert spans_of(history) == [(0, 2)]
            assert len(history.unreferenced) == 1

    run_on("uvloop", main)


def test_metadata_that_cannot_be_read_keeps_what_is_known(tmp_path: pathlib.Path) -> None:
    """A copy of the topic that is being replaced would take all topics away."""
    bucket_of(tmp_path / "bucket")
    write(tmp_path / "kafka", segments_of(tmp_path / "bucket"))

    async def main() -> None:
        metadata = FollowedMetadata([str(tmp_path / "kafka")])
        settings = CatalogSettings(
            refresh_seconds=NEVER_SECONDS, segments_ahead_max=0, state_file=str(tmp_path / "state")
        )
        async with opened_catalog(
            tmp_path / "bucket", settings, layout="aiven", read_metadata=metadata.read
        ) as catalog:
            (tmp_path / "kafka" / "__remote_log_metadata-0" / f"{0:020d}.log").unlink()
            await relisted(catalog)
            assert isinstance(catalog.refresh_error, ConfigError)
            assert [each.name for each in catalog.topics()] == ["orders"]
        assert not (tmp_path / "state").exists()

    run_on("uvloop", main)


def test_files_are_read_again_only_when_they_have_changed(tmp_path: pathlib.Path) -> None:
    """Each refresh would read all metadata, or news would never be seen."""
    bucket_of(tmp_path / "bucket")
    segments = segments_of(tmp_path / "bucket")
    topic, file = tmp_path / "kafka", tmp_path / "snapshot"

    def write_file(some: Sequence[RemoteLogSegmentMetadata]) -> None:
        with SegmentTable() as table:
            for segment in some:
                table.assign(segment.topic_id_partition)
                table.put(segment)
            write_snapshot(str(file), table, SnapshotState(), machine=Machine())

    def ids(view: MetadataView) -> set[object]:
        return {segment.remote_log_segment_id for segment in view.segments()}

    write(topic, segments[:2])
    write_file(segments[:2])
    for source in (topic, topic / "__remote_log_metadata-0", file):
        metadata = FollowedMetadata([str(source)])
        first = metadata.read()
        assert metadata.read() is first
        write(topic, segments)
        write_file(segments)
        second = metadata.read()
        assert ids(first) == {segment.remote_log_segment_id for segment in segments[:2]}, source
        assert ids(second) == {segment.remote_log_segment_id for segment in segments}, source
        assert metadata.read() is second
        write(topic, segments[:2])
        write_file(segments[:2])
