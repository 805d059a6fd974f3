"""Copies that a change of the log, an expiration, or a power cut interrupts: whole objects, nothing lost, nothing
wrong.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.copying_tier import copying_tier
from tests.support.living_logs import batch_of, served
from tests.support.log_consumer import batches_in
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.tier_tasks import PARTITION, RECORDS, STATE, failing, task_tier
from tests.support.tiered_log import TIERED, TieredBroker
from tierlog.errors import StoreError
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageException,
    SegmentFileError,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.partition_terms import PartitionTerms, TermTask
from tierlog.remote.manager.segment_copies import SegmentCopies
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.waiting.byte_quota import ByteQuota
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager


def test_an_operator_acts_while_the_rests_of_a_copy_remain() -> None:
    """If this fails, an operator who mends a damaged segment, and has the notice repeated, mends it for nothing: the
    partition is not copied until a second notice.
    """
    with copying_tier() as made:
        tier, services = made.tier, made.tier.services
        schedule, notices = TaskSchedule(tier.machine, name="tasks", workers=2), MetadataNotices(services)
        idle = TermTask(schedule, lambda _: 30.0)
        copying = TermTask(schedule, made.copies.run)
        terms = PartitionTerms(services, notices, copying=copying, expiring=idle, following=idle)
        tier.storage.hooks["copy_log_segment_data"] = failing(SegmentFileError("the segment is damaged"))
        tier.storage.hooks["delete_log_segment_data"] = failing(RemoteStorageException("away"))
        terms.begin(frozenset({PARTITION}), frozenset())
        tier.machine.clock.sleep(20)
        term = terms.find(PARTITION)
        assert term is not None
        assert term.copying_stopped
        assert term.unfinished is not None
        tier.storage.hooks.clear()
        terms.begin(frozenset({PARTITION}), frozenset())
        tier.machine.clock.sleep(60)
        assert not term.copying_stopped
        assert tier.starts_listed() == [0, RECORDS, 2 * RECORDS]
        assert tier.stored() == 3, "the rests have gone"
        terms.end_all()
        for part in (schedule, notices):
            part.close()


def test_a_segment_does_not_expire_while_it_is_copied() -> None:
    """If this fails, the leader's own expiration takes its copy for one that was given up."""
    with task_tier() as tier:
        tier.append(segments=1)
        copies = SegmentCopies(tier.services, ByteQuota(tier.machine, 1 << 60))

        def copy(metadata: Any, files: Any) -> bytes:
            tier.pass_time(3_600_000)
            tier.expirations.run(tier.term)
            tier.expirations.run(tier.term)
            tier.store.copy_log_segment_data(metadata, files)
            return b""

        tier.storage.hooks["copy_log_segment_data"] = copy
        assert copies.run(tier.term) == 0
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED)]
        assert tier.stored() == 1
        assert tier.term.being_copied == frozenset()
        assert tier.log.highest_offset_in_remote_storage == RECORDS - 1


# ---- real files


class RealLog:
    """A tiered log in a folder, and Tierlog's managers, in real threads."""

    def __init__(self, folder: pathlib.Path, keys: Mapping[str, str]) -> None:
        self.partition = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 0)
        machine = Machine()
        (folder / "logs").mkdir()
        self.directory = LogDirectory.open(
            str(folder / "logs"), config=TIERED, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
        )
        self.log = self.directory.log("orders", 0, topic_id=self.partition.topic_id)
        self.log.assign_epoch_start_offset(0, 0)
        for number in range(3):
            self.log.append_as_leader(batch_of(*[b"value %d" % number] * 200), leader_epoch=0)
            self.log.roll()
        self.storage = TieredStorageManager(machine=machine)
        self.storage.configure({**local_keys(folder / "tier"), **keys})
        topic = MemoryMetadataTopic(3, machine=machine)
        self.metadata = TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=lambda _config, **_: topic)
        self.metadata.configure(
            {"log.dir": str(folder / "logs"), "remote.log.metadata.topic.num.partitions": 3, "broker.id": 1}
        )
        self.metadata.on_partition_leadership_changes(frozenset({self.partition}), frozenset())
        ready = self.metadata.when_ready(self.partition)
        assert ready is not None
        ready.result(30)
        services = TierServices(
            config=RemoteLogManagerConfig(),
            storage=self.storage,
            metadata=self.metadata,
            find_log=lambda _: self.log,
            broker_id=1,
            machine=machine,
            metrics=ManagerMetrics(machine),
        )
        self.copies = SegmentCopies(services, ByteQuota(machine, 1 << 60))
        self.term = TieredPartition(self.partition, Role.LEADER, machine.scheduler)

    def close(self) -> None:
        self.metadata.close()
        self.storage.close()
        self.directory.close()

    def stored(self) -> list[bytes]:
        """The bytes of the segments that count."""
        found = sorted(self.metadata.list_remote_log_segments(self.partition), key=lambda each: each.start_offset)
        assert {each.state for each in found} <= {STATE.COPY_SEGMENT_FINISHED}
        whole = []
        for segment in found:
            with self.storage.fetch_log_segment(segment, 0) as stream:
                whole.append(stream.read())
        return whole


@contextlib.contextmanager
def real_log(folder: pathlib.Path, keys: Mapping[str, str]) -> Iterator[RealLog]:
    made = RealLog(folder, keys)
    try:
        yield made
    finally:
        made.close()


def deleted(made: RealLog) -> None:
    assert made.directory.delete_log("orders", 0)


def emptied(made: RealLog) -> None:
    made.log.truncate_fully_and_start_at(1000)


def retained(made: RealLog) -> None:
    made.log.update_highest_offset_in_remote_storage(599)
    made.log.delete_old_segments()
    made.log.maybe_increment_log_start_offset(600, "DeleteRecords")
    made.log.delete_old_segments()


@pytest.mark.parametrize("change", [deleted, emptied, retained])
@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd", "kafka"])
def test_a_log_that_changes_under_its_copy(
    tmp_path: pathlib.Path, shape: str, change: Callable[[RealLog], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a topic's deletion, a cut or retention gives the tier half a segment, or another one's bytes."""
    with real_log(tmp_path, SHAPES[shape]) as made:
        first = pathlib.Path(made.log.folder, f"{0:020d}.log").read_bytes()
        copy, changes = made.storage.copy_log_segment_data, [change]

        def copying(metadata: Any, data: Any) -> Any:
            while changes:
                changes.pop()(made)
            return copy(metadata, data)

        monkeypatch.setattr(made.storage, "copy_log_segment_data", copying)
        made.copies.run(made.term)
        assert not made.term.copying_stopped
        assert made.stored() == [first]
        assert change is deleted or made.term.failure is None


def test_a_log_that_is_cut_inside_the_segment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a broker that has begun to follow leaves half a segment in the tier, or believes its disk bad."""
    with real_log(tmp_path, {}) as made:
        copy = made.storage.copy_log_segment_data

        def copying(metadata: Any, data: Any) -> Any:
            made.term.end()
            made.log.truncate_to(50)
            return copy(metadata, data)

        monkeypatch.setattr(made.storage, "copy_log_segment_data", copying)
        assert made.copies.run(made.term) is None
        assert not made.term.copying_stopped
        assert not [path for path in (tmp_path / "tier").rglob("*") if path.is_file()]
        assert made.log.highest_offset_in_remote_storage == -1


def test_a_term_that_ends_calls_its_copy_off(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a broker that leads no more uploads a gigabyte to the end, and leaves it."""
    with real_log(tmp_path, {}) as made:
        copy = made.storage.copy_log_segment_data

        def copying(metadata: RemoteLogSegmentMetadata, data: Any) -> Any:
            made.term.end()
            for segment_id in made.term.being_copied:
                made.storage.call_off_copy(segment_id)
            return copy(metadata, data)

        monkeypatch.setattr(made.storage, "copy_log_segment_data", copying)
        assert made.copies.run(made.term) is None
        assert [each.state for each in made.metadata.list_remote_log_segments(made.partition)] == [
            STATE.COPY_SEGMENT_STARTED
        ]
        assert not [path for path in (tmp_path / "tier").rglob("*") if path.is_file()]
        assert made.log.highest_offset_in_remote_storage == -1


# ---- power cuts


def filled(log: UnifiedLog, segments: int, *, epoch: int, mark: int) -> None:
    """Append closed segments whose records no other run has."""
    for _ in range(segments):
        start = log.log_end_offset
        log.append_as_leader(batch_of(*[b"%d of run %d" % (start + at, mark) for at in range(10)]), leader_epoch=epoch)
        log.roll()


def check_tier(broker: TieredBroker, partition: TopicIdPartition) -> None:
    """Each offset that counts as copied is found by the log's own lineage, with the log's own bytes."""
    log, metadata = broker.logs[partition], broker.metadata
    here = {each[:8]: each for each in batches_in(served(log))}
    for offset in range(log.highest_offset_in_remote_storage + 1):
        epoch = log.leader_epoch_cache.epoch_for_offset(offset)
        assert epoch is not None
        segment = metadata.remote_log_segment_metadata(partition, epoch, offset)
        assert segment is not None, f"offset {offset} of epoch {epoch} is nowhere"
        with broker.storage.fetch_log_segment(segment, 0) as stream:
            found = {each[:8]: each for each in batches_in(stream.read())}
        base = max(key for key in here if int.from_bytes(key, "big") <= offset)
        assert found[base] == here[base], f"offset {offset} of epoch {epoch} has other bytes in the tier"


class SlowStorage(MemoryStorageManager):
    """A store that takes its time, and whose answers may be lost."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        self.machine.clock.sleep(self.machine.rng.uniform(0, 0.1))
        custom = super().copy_log_segment_data(metadata, data)
        self.machine.clock.sleep(self.machine.rng.uniform(0, 0.1))
        return custom

    def __init__(self, machine: Machine, segments: dict[RemoteLogSegmentId, Any]) -> None:
        super().__init__(machine=machine, segments=segments)
        self.machine = machine
        self.lose_acknowledgements = int(machine.rng.uniform(0, 3))
        self.configure({})


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut(seed: int) -> None:
    """A broker whose power fails in its copies, three times: what a cut log appends anew is copied anew, and what
    counts as copied is in the tier.
    """
    machine, scheduler = ManualScheduler.machine(seed)
    config = RemoteLogManagerConfig(task_interval_ms=100, task_retry_backoff_ms=10, unfinished_copy_retention_ms=5000)
    segments: dict[RemoteLogSegmentId, Any] = {}
    with scheduler:
        topic, rng = MemoryMetadataTopic(3, machine=machine), machine.rng

        def start() -> TieredBroker:
            return TieredBroker(machine, topic=topic, storage=SlowStorage(machine, segments), config=config)

        broker = start()
        partition = broker.partition()
        for run in range(4):
            log = broker.logs[partition]
            log.assign_epoch_start_offset(run, log.log_end_offset)
            broker.manager.on_leadership_change(frozenset({partition}), frozenset())
            filled(log, 3, epoch=run, mark=run)
            machine.clock.sleep(rng.uniform(0, 1.0) if run < 3 else 30)
            check_tier(broker, partition)
            if run < 3:
                files = machine.files
                assert isinstance(files, MemoryFiles)
                machine = replace(machine, files=files.crash(rng))
                with contextlib.suppress(StoreError):
                    broker.close()
                broker = start()
                broker.partition()
        log = broker.logs[partition]
        assert log.highest_offset_in_remote_storage == log.active_segment.base_offset - 1
        machine.clock.sleep(30)
        listed = {each.remote_log_segment_id for each in broker.metadata.list_remote_log_segments(partition)}
        assert listed == set(segments), "the store has what nobody knows of, or lacks what counts"
        broker.close()
