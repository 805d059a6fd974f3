"""Closed segments of a partition's folder: as a broker described them when it tiered them, and bad folders."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable

import pytest

from tests.support.golden import config_of
from tierlog.errors import ConfigError, CorruptIndexError, DataLossError, ObjectNotFoundError
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.remote import (
    ClosedSegment,
    IndexType,
    RemoteLogSegmentState,
    TieredStorageManager,
    Uuid,
    closed_segment,
    closed_segments,
)
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock

TRANSACTIONS = pathlib.Path("main-plain", "local-before", "broker1", "fx-txn-0")
FILE_SYSTEM = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
TXN_STARTS = [0, 310, 654, 993, 1309]
ID = Uuid(b"0123456789abcdef")


@pytest.fixture
def folder(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A partition that a broker wrote: five closed segments of transactions, and an active one."""
    return pathlib.Path(shutil.copytree(data / TRANSACTIONS, tmp_path / "fx-txn-0"))


def assert_as_tiered(run: pathlib.Path) -> int:
    """Each segment of the run's bucket that still lay on the broker's disk; how many there were."""
    compared = 0
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        for stored in tier.iter_segments():
            told = stored.metadata
            for folder in sorted((run / "local-before").rglob(str(told.topic_id_partition))):
                snapshot = folder / f"{told.end_offset + 1:020d}.snapshot"
                if not (folder / f"{told.start_offset:020d}.log").exists() or not snapshot.exists():
                    continue
                made = closed_segment(folder, told.start_offset, broker_id=told.broker_id)
                assert_same(made, told, folder)
                epochs = tier.fetch_index(stored, IndexType.LEADER_EPOCH)
                assert parse_leader_epochs(made.data.leader_epoch_index) == parse_leader_epochs(epochs or b"")
                compared += 1
    return compared


def assert_same(made: ClosedSegment, told: object, folder: pathlib.Path) -> None:
    for name in (
        "topic_id_partition",
        "start_offset",
        "end_offset",
        "max_timestamp_ms",
        "segment_size_in_bytes",
        "segment_leader_epochs",
        "txn_idx_empty",
    ):
        assert getattr(made.metadata, name) == getattr(told, name), (folder, name)


def test_segments_are_what_the_broker_said_of_them(data: pathlib.Path) -> None:
    """A wrong end, timestamp or epoch is found by the first consumer that misses records."""
    assert assert_as_tiered(data / "main-plain") == len(TXN_STARTS)


def test_segments_of_every_run_are_what_the_broker_said_of_them(fixtures: pathlib.Path) -> None:
    """The same for compacted topics, several epochs, old formats and replicas."""
    runs = [p for p in sorted(fixtures.iterdir()) if (p / "local-before").is_dir() and (p / "objects").is_dir()]
    assert sum(assert_as_tiered(run) for run in runs if (run / "topics.json").exists()) > 100


def test_a_segment_can_be_given_to_a_copy_as_it_is(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a copy refuses of it is of no use to a broker."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    with TieredStorageManager() as manager:
        manager.configure({"storage.backend.class": FILE_SYSTEM, "storage.root": bucket, "chunk.size": 1 << 20})
        for segment in closed_segments(folder, broker_id=7):
            manager.copy_log_segment_data(*segment)
            assert segment.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            assert segment.metadata.broker_id == 7
    with open_tier(str(bucket)) as tier:
        assert [segment.start_offset for segment in tier.iter_segments("fx-txn")] == TXN_STARTS


def test_metadata_are_those_of_a_new_attempt(folder: pathlib.Path) -> None:
    """An attempt under the id of an earlier one finds that one's objects, and its metadata record is refused."""
    machine = Machine(clock=ManualClock(time_ms=1234))
    first, again = (closed_segment(folder, 310, machine=machine) for _ in range(2))
    assert first.metadata.remote_log_segment_id != again.metadata.remote_log_segment_id
    assert first.metadata.event_timestamp_ms == 1234
    assert closed_segment(folder, 310, segment_id=ID).metadata.remote_log_segment_id.id == ID
    assert first.data.transaction_index is not None
    assert not first.metadata.txn_idx_empty


def test_an_empty_transaction_index_is_given_and_told(folder: pathlib.Path) -> None:
    """Brokers ask for the index of a segment whose metadata do not say that it is empty."""
    (folder / f"{310:020d}.txnindex").write_bytes(b"")
    segment = closed_segment(folder, 310)
    assert segment.metadata.txn_idx_empty
    assert segment.data.transaction_index is not None


def test_indexes_that_were_allocated_ahead_are_read_to_their_last_entry(folder: pathlib.Path) -> None:
    """After an unclean stop they end with zeros: the largest timestamp would be 0."""
    expected = closed_segment(folder, 310).metadata.max_timestamp_ms
    for suffix, entry in (("timeindex", 12), ("index", 8)):
        path = folder / f"{310:020d}.{suffix}"
        path.write_bytes(path.read_bytes() + bytes(entry * 1000))
    assert closed_segment(folder, 310).metadata.max_timestamp_ms == expected > 0


def test_without_a_checkpoint_epochs_are_those_of_the_batches(folder: pathlib.Path) -> None:
    """Readers of a lineage would leave the segment out."""
    expected = closed_segment(folder, 310)
    (folder / "leader-epoch-checkpoint").unlink()
    made = closed_segment(folder, 310)
    assert made.metadata.segment_leader_epochs == expected.metadata.segment_leader_epochs
    assert dict(parse_leader_epochs(made.data.leader_epoch_index)) == dict(made.metadata.segment_leader_epochs)


def test_the_checkpoint_ends_with_the_segment_and_epochs_begin_with_it(folder: pathlib.Path) -> None:
    """A follower that restores from the checkpoint of a segment would believe in epochs that it does not hold."""
    (folder / "leader-epoch-checkpoint").write_text("0\n4\n0 0\n2 400\n5 700\n6 1400\n")
    segment = closed_segment(folder, 654)  # offsets 654 … 992
    assert dict(segment.metadata.segment_leader_epochs) == {2: 654, 5: 700}
    assert segment.data.leader_epoch_index == b"0\n3\n0 0\n2 400\n5 700\n"


def test_an_empty_segment_is_given_with_its_offsets(folder: pathlib.Path) -> None:
    """Compaction leaves them; without it the history has a hole."""
    for suffix in ("log", "index", "timeindex", "txnindex"):
        (folder / f"{310:020d}.{suffix}").write_bytes(b"")
    segment = closed_segment(folder, 310)
    assert (segment.metadata.end_offset, segment.metadata.segment_size_in_bytes) == (653, 0)
    assert segment.metadata.max_timestamp_ms == -1


def test_files_that_kafka_does_not_know_are_passed_over(folder: pathlib.Path) -> None:
    """Editors, backups and Kafka's own renamed files lie about in every log directory."""
    expected = [segment.data for segment in closed_segments(folder)]
    for name in (f"{310:020d}.log.deleted", f"{5000:020d}.log.swap", "notes.txt", "1.log", f"{2000:020d}.index"):
        (folder / name).write_bytes(b"junk")
    (folder / "a folder").mkdir()
    assert [segment.data for segment in closed_segments(folder)] == expected


def test_another_topic_s_folder_beside_it_is_not_taken(folder: pathlib.Path) -> None:
    """``fx-txn-0`` and ``fx-txn-01`` begin alike."""
    shutil.copytree(folder, folder.with_name("fx-txn-01"))
    assert [segment.metadata.start_offset for segment in closed_segments(folder)] == TXN_STARTS
    assert all(pathlib.Path(segment.data.log_segment).parent == folder for segment in closed_segments(folder))


def test_the_active_segment_is_none(folder: pathlib.Path) -> None:
    """It grows while it is copied, and its end is not yet anywhere."""
    assert [segment.metadata.start_offset for segment in closed_segments(folder)] == TXN_STARTS
    with pytest.raises(ConfigError, match=r"00001614\.log is the active segment"):
        closed_segment(folder, 1614)
    for path in folder.glob("*"):
        if path.stem.isdigit() and int(path.stem) != 1614:
            path.unlink()
    assert not list(closed_segments(folder))


def _without(suffix: str) -> Callable[[pathlib.Path], None]:
    return lambda folder: (folder / f"{654:020d}.{suffix}").unlink()


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (_without("index"), ObjectNotFoundError, "654.index: the segment has no such index"),
        (_without("timeindex"), ObjectNotFoundError, "654.timeindex: the segment has no such index"),
        (lambda f: (f / f"{993:020d}.snapshot").unlink(), DataLossError, "no producer snapshot of offset 993"),
        (lambda f: (f / "partition.metadata").unlink(), DataLossError, "topic id is not known"),
        (lambda f: (f / "partition.metadata").write_text("junk"), DataLossError, "topic id is not known"),
        (lambda f: (f / "leader-epoch-checkpoint").write_text("0\n1\n1"), CorruptIndexError, "leader-epoch-checkpoint"),
        (_without("log"), ObjectNotFoundError, "654.log: there is no such segment"),
        (shutil.rmtree, ObjectNotFoundError, "fx-txn-0: there is no such folder"),
    ],
)
def test_what_is_missing_is_named(
    folder: pathlib.Path, damage: Callable[[pathlib.Path], None], error: type[Exception], text: str
) -> None:
    """A copy of a segment that cannot be restored is found out when its broker's disk is gone."""
    damage(folder)
    with pytest.raises(error, match=text):
        closed_segment(folder, 654)


def test_what_comes_before_a_fault_is_given(folder: pathlib.Path) -> None:
    """One bad segment does not keep the older ones from the tier."""
    _without("index")(folder)
    found: list[ClosedSegment] = []
    with pytest.raises(ObjectNotFoundError):
        found.extend(closed_segments(folder))
    assert [segment.metadata.start_offset for segment in found] == [0, 310]


def test_a_topic_id_can_be_given_but_not_another(folder: pathlib.Path) -> None:
    """Objects under the wrong topic id belong to no topic."""
    known = closed_segment(folder, 0).metadata.topic_id_partition.topic_id
    assert closed_segment(folder, 0, topic_id=known).metadata.topic_id_partition.topic_id == known
    with pytest.raises(ConfigError, match=r"topic id is .* \(partition.metadata\), not"):
        closed_segment(folder, 0, topic_id=ID)
    (folder / "partition.metadata").unlink()
    assert closed_segment(folder, 0, topic_id=ID).metadata.topic_id_partition.topic_id == ID


@pytest.mark.parametrize("name", ["orders", "orders-x", "orders-0.abc-delete", "-0"])
def test_a_folder_that_is_no_partition_s_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    """A deleted partition's folder still holds segments."""
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match="is called <topic>-<partition>"):
        list(closed_segments(tmp_path / name))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: pathlib.Path) -> None:
    """Otherwise it would look like a partition without segments."""
    (tmp_path / "orders-0").write_bytes(b"")
    with pytest.raises(ObjectNotFoundError, match="no such folder"):
        list(closed_segments(tmp_path / "orders-0"))


def test_a_followers_segment_is_taken(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Else the leader that was a follower when a marker and the next transaction came in one fetch never copies that
    segment, and its disk fills up.
    """
    folder = data / "follower" / "txn-0"
    ((metadata, parts),) = closed_segments(folder, broker_id=2)
    with TieredStorageManager() as manager:
        manager.configure({"storage.backend.class": FILE_SYSTEM, "storage.root": str(tmp_path), "chunk.size": 4 << 20})
        manager.copy_log_segment_data(metadata, parts)
        with manager.fetch_index(metadata, IndexType.TRANSACTION) as stream:
            assert stream.read() == (folder / "00000000000000000000.txnindex").read_bytes()
