"""Brokers of a cluster in one process: a disk, logs, replication's machines, managers of storage and of metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from tests.support.log_consumer import batches_in
from tierlog.arguments import INT64_MAX
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import InconsistentTopicIdError, KafkaError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from tierlog.remote.manager.aux_states import AuxStates
from tierlog.remote.manager.follower_lookups import FollowerLookups
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.pending_reads import RemoteRead
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.manager.remote_reads import RemoteReads
from tierlog.remote.manager.segment_copies import SegmentCopies
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import (
    CopiedOffset,
    epochs_with_records,
    find_copied_offset,
)
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.replication import (
    AskEpochEnd,
    BrokerState,
    BuildAuxState,
    EpochEnd,
    Follower,
    Leader,
    OffsetAndEpoch,
)
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.waiting.byte_quota import ByteQuota

if TYPE_CHECKING:
    from tests.scenarios.two_brokers import Cluster

TOPIC: Final = "orders"
TOPIC_ID: Final = Uuid(b"scenariosoftier!")
LOGS: Final = "/logs"
END: Final = FetchIsolation.LOG_END
METADATA_PARTITIONS: Final = 3
#: A segment in the tier is deleted here at the next retention, and none expires.
CONFIG: Final = LogConfig(
    index_interval_bytes=1,
    remote_storage_enable=True,
    retention_ms=-1,
    retention_bytes=-1,
    local_retention_bytes=0,
    local_retention_ms=-2,
    file_delete_delay_ms=0,
)


def partition_of(number: int = 0, generation: int = 0) -> TopicIdPartition:
    """The partition of a number, of the topic that was made so often."""
    topic_id = TOPIC_ID if not generation else Uuid(TOPIC_ID.raw[:12] + generation.to_bytes(4, "big"))
    return TopicIdPartition(topic_id, TOPIC, number)


def generation_of(partition: TopicIdPartition) -> int:
    """How often the partition's topic was made anew."""
    return 0 if partition.topic_id == TOPIC_ID else int.from_bytes(partition.topic_id.raw[12:], "big")


class BrokerReplica:
    """One broker's replica of one partition."""

    def __init__(self, broker: Broker, log: UnifiedLog) -> None:
        self.broker = broker
        self.log = log
        cluster = broker.cluster
        self.leader = Leader(log, broker.broker_id, cluster.registered, cluster.leader_settings)
        self.follower = Follower(log, cluster.follower_settings)
        self.term: TieredPartition | None = None
        self.build: tuple[BuildAuxState, Future[Any]] | None = None

    @property
    def partition(self) -> TopicIdPartition:
        topic_id = self.log.topic_id
        assert topic_id is not None
        return TopicIdPartition(topic_id, TOPIC, self.log.partition)

    @property
    def epochs(self) -> dict[int, int]:
        """Epoch to start offset."""
        return self.log.leader_epoch_cache.epoch_with_offsets()

    def begin_term(self, role: Role) -> None:
        """Be leader or follower from now on, for the manager of the tier."""
        self.end_term()
        broker, own, others = self.broker, frozenset((self.partition,)), frozenset[TopicIdPartition]()
        led, followed = (own, others) if role is Role.LEADER else (others, own)
        if broker.manager is not None:
            broker.manager.on_leadership_change(led, followed)
        else:
            self.term = TieredPartition(self.partition, role, broker.machine.scheduler)
            broker.metadata.on_partition_leadership_changes(led, followed)

    def end_term(self) -> None:
        """Be neither. A switch of the log that is being made is waited for."""
        if self.build is not None:
            build = self.build[1]
            if not build.cancel():
                build.exception()
            self.build = None
        if self.term is not None:
            self.term.end()
            self.term = None


class Broker:
    """One broker: its disk, its logs, its managers of storage and of metadata.

    Attributes:
        manager: The RemoteLogManager, which does all by itself; None: a test runs its parts, when it wants to.
    """

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.files: Files = cluster.disk_of(broker_id)
        self.path = cluster.path_of(broker_id)
        self.life = 0
        self.is_up = False
        self.start()

    def start(self) -> None:
        """Open everything, as nobody's leader or follower."""
        cluster = self.cluster
        self.life += 1
        self.machine = cluster.machine_of(self)
        self.files.make_directories(self.path)
        self.storage: RemoteStorageManager = cluster.storage_of(self)
        self.metadata: RemoteLogMetadataManager = cluster.metadata_of(self)
        self.directory = LogDirectory.open(
            self.path,
            machine=self.machine,
            config=cluster.config,
            remote_log_enabled=True,
            is_sole_replica=False,
            runs_tasks=False,
        )
        self.replicas: dict[int, BrokerReplica] = {}
        self.manager: RemoteLogManager | None = None
        if cluster.is_managed:
            self.manager = RemoteLogManager(
                cluster.manager_config,
                broker_id=self.broker_id,
                storage=self.storage,
                metadata=self.metadata,
                find_log=self.find_log,
                machine=self.machine,
            )
        self._make_parts()
        self.is_up = True
        cluster.registered.update(self.broker_id, BrokerState(self.life))
        for each in range(cluster.partitions):
            self.open(each)

    def _make_parts(self) -> None:
        """Make the parts of a manager that a test runs by itself."""
        self.services = TierServices(
            self.cluster.manager_config,
            self.storage,
            self.metadata,
            self.find_log,
            self.broker_id,
            self.machine,
            ManagerMetrics(self.machine),
        )
        self.aux_states = AuxStates(self.services)
        self.lookups = FollowerLookups(self.services)
        quota = ByteQuota(self.machine, INT64_MAX)
        self.copies = SegmentCopies(self.services, quota)
        self.reads = RemoteReads(self.services, quota, self._find_term)

    def change_storage(self, storage: RemoteStorageManager) -> None:
        """Work with another storage manager, over the same store: the parts of the manager are made anew."""
        self.aux_states.close()
        self.reads.close()
        self.storage.close()
        self.storage = storage
        self._make_parts()

    def open(self, partition: int) -> BrokerReplica:
        """Open a log, or make it."""
        wanted = self.cluster.partition(partition)
        try:
            log = self.directory.log(TOPIC, partition, topic_id=wanted.topic_id)
        except InconsistentTopicIdError:  # its topic was deleted while this broker was down
            self.directory.delete_log(TOPIC, partition)
            log = self.directory.log(TOPIC, partition, topic_id=wanted.topic_id)
        self.replicas[partition] = replica = BrokerReplica(self, log)
        return replica

    def find_log(self, partition: TopicIdPartition) -> UnifiedLog | None:
        """The log of a partition that is here."""
        found = self.replicas.get(partition.partition)
        return None if found is None or partition != found.partition else found.log

    def build(self, replica: BrokerReplica, request: BuildAuxState) -> None:
        """Let the manager of the tier begin a log anew."""
        if self.manager is not None:
            replica.build = request, self.manager.build_aux_state(replica.partition, request)
        else:
            assert replica.term is not None
            replica.build = request, self.aux_states.execute(replica.term, request)

    def wipe(self, partition: int) -> BrokerReplica:
        """Lose a log: another one, empty, is in its place."""
        self.replicas[partition].end_term()
        self.directory.delete_log(TOPIC, partition)
        return self.open(partition)

    def _down(self) -> None:
        self.is_up = False
        self.cluster.registered.update(self.broker_id, None)
        for replica in self.replicas.values():
            replica.end_term()
            replica.leader.resign()
            replica.follower.stop()

    def crash(self, rng: Rng | None = None) -> None:
        """Lose power: what was not synced is gone. What runs sees a failing disk."""
        self.directory.checkpoint()
        assert isinstance(self.files, MemoryFiles)
        self.files = self.files.crash(rng)
        self._down()
        self._close_managers()

    def _close_managers(self) -> None:
        self.aux_states.close()
        self.reads.close()
        if self.manager is not None:
            self.manager.close()
        self.metadata.close()

    def stop(self) -> None:
        """Stop cleanly."""
        self._down()
        self._close_managers()
        self.storage.close()
        self.directory.close()

    # ---- the tier

    def wait_ready(self, partition: int) -> None:
        """Let the metadata manager read up to the end of its topic."""
        until = self.machine.clock.monotonic_seconds() + 60
        while not self.metadata.is_ready(self.cluster.partition(partition)):
            assert self.machine.clock.monotonic_seconds() < until, "the metadata never get ready"
            self.machine.clock.sleep(0.01)

    def copied_offset(self, partition: int = 0) -> CopiedOffset:
        """The last offset of a log that is in the tier, as its leader finds it."""
        replica = self.replicas[partition]
        return find_copied_offset(
            epochs_with_records(replica.epochs.items()),
            lambda epoch: self.metadata.highest_offset_for_epoch(replica.partition, epoch),
            log_end_offset=replica.log.log_end_offset,
        )

    def copy(self, partition: int) -> list[RemoteLogSegmentMetadata]:
        """Copy what may be copied, as leader; the new segments, in their order."""
        replica = self.replicas[partition]
        assert replica.term is not None
        before = {each.remote_log_segment_id for each in self._segments(partition)}
        while self.copies.run(replica.term) == 0.0:
            pass
        assert replica.term.failure is None, replica.term.failure
        copied = [each for each in self._segments(partition) if each.remote_log_segment_id not in before]
        return sorted(copied, key=lambda each: each.start_offset)

    def _segments(self, partition: int) -> list[RemoteLogSegmentMetadata]:
        return list(self.metadata.list_remote_log_segments(self.cluster.partition(partition)))

    def read(
        self, partition: int, offset: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> list[bytes]:
        """Whole batches from an offset on, from here or from the tier; none at the end."""
        return self.fetch(partition, offset, isolation)[0]

    def fetch(
        self, partition: int, offset: int, isolation: FetchIsolation
    ) -> tuple[list[bytes], Sequence[tuple[int, int]]]:
        """The same, with the (producer, first offset) of the aborted transactions that touch what was read."""
        log = self.replicas[partition].log
        try:
            found = log.read(offset, max_bytes=1 << 20, isolation=isolation)
        except OffsetOutOfRangeError as error:
            if not error.is_in_tier:
                raise
            remote = self._fetch_tier(partition, offset, isolation)
            if remote is None:
                raise
            return remote
        data = b"".join(bytes(part.read()) for part in found.records)
        return list(batches_in(data)), found.aborted_transactions or ()

    def _fetch_tier(
        self, partition: int, offset: int, isolation: FetchIsolation
    ) -> tuple[list[bytes], Sequence[tuple[int, int]]] | None:
        asked = RemoteRead(self.replicas[partition].partition, offset, 1 << 20, isolation)
        (found,) = (self.manager or self.reads).read([asked], max_wait_ms=60_000).result()
        if found.error is KafkaError.OFFSET_OUT_OF_RANGE:
            return None
        assert found.error is None, f"broker {self.broker_id}: offset {offset}: {found.error!r} {found.cause!r}"
        data = b"".join(bytes(cast("memoryview", part)) for part in found.data.records)
        return list(batches_in(data)), found.data.aborted_transactions or ()

    def _find_term(self, partition: TopicIdPartition) -> TieredPartition | None:
        found = self.replicas.get(partition.partition)
        return None if found is None or partition != found.partition else found.term


class Endpoint:
    """A broker as the leader that others ask (LeaderEndpoint)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _ask(self, partition: TopicIdPartition, leader_epoch: int, timestamp: int) -> OffsetAndEpoch:
        leader = self._broker.replicas[partition.partition].leader
        return leader.list_offset(timestamp, isolation=END, leader_epoch=leader_epoch)

    def fetch_earliest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        return self._ask(partition, leader_epoch, -2)

    def fetch_latest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        return self._ask(partition, leader_epoch, -1)

    def fetch_earliest_local_offset(self, partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        return self._ask(partition, leader_epoch, -4)

    def fetch_earliest_pending_upload_offset(self, partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        return self._ask(partition, leader_epoch, -6)

    def fetch_epoch_end_offsets(
        self, asked: Mapping[TopicIdPartition, AskEpochEnd]
    ) -> Mapping[TopicIdPartition, EpochEnd]:
        return {
            partition: self._broker.replicas[partition.partition].leader.end_offset_for_epoch(
                request.epoch, leader_epoch=request.leader_epoch
            )
            for partition, request in asked.items()
        }
