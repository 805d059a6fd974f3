"""The RemoteLogManager: what a broker calls so that its logs are copied to the tier, expire there and are read from it.

Each call returns at once, or gives a future: what takes time runs in threads of the manager's own. No lock is held
across a call of a manager, of a log, or of the broker.

Source: KIP-405 RemoteLogManager; Kafka 4.3 RemoteLogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from tierlog.arguments import require_int, require_type
from tierlog.errors import ForkedProcessError, TierlogError
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteStorageException,
    RemoteStorageManager,
    TopicIdPartition,
)
from tierlog.remote.manager.aux_states import AuxStates
from tierlog.remote.manager.expirations import Expirations
from tierlog.remote.manager.follower_lookups import FollowerLookups
from tierlog.remote.manager.leader_endpoint import LeaderEndpoint
from tierlog.remote.manager.log_indexes import LogIndexes
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_health import HealthCheck, ManagerHealth
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.offset_search import OffsetSearch
from tierlog.remote.manager.opened_managers import open_managers
from tierlog.remote.manager.partition_removals import PartitionRemovals
from tierlog.remote.manager.partition_stops import PartitionStops, StopPartition
from tierlog.remote.manager.partition_terms import PartitionRun, PartitionTerms, TermTask
from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead
from tierlog.remote.manager.remote_reads import RemoteReads
from tierlog.remote.manager.segment_copies import SegmentCopies
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import FindLog, TierServices
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.replication.messages import AuxStateBuilt, BuildAuxState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.byte_quota import ByteQuota

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)

_WHAT: Final = "the remote log manager"
#: Of each step of a close.
_CLOSE_SECONDS: Final = 10.0


def _alone(run: PartitionRun) -> PartitionRun:
    """Return a task as it is: no remote log index is written."""
    return run


class RemoteLogManager(Closeable):
    """The RemoteLogManager of a broker. A context manager.

    Args:
        config: Its configuration; ``RemoteLogManagerConfig.read`` makes one of a broker's keys.
        broker_id: This broker.
        storage: The storage manager, configured; closed by this manager.
        metadata: The metadata manager, configured; closed by this manager.
        find_log: Finds the log of a partition here; None: there is none now. It returns at once, in any thread.
        on_log_start_offset: Called with (partition, new start) when a log's start was raised by its tier; in a
            thread of the manager's. It must not wait.
        machine: The machine that it runs on; this one by default.
        registry: Where metrics are collected; None makes a registry (``metrics.registry``).

    Attributes:
        metrics: All series.
        storage, metadata: The two managers.

    Raises:
        ConfigError: ``remote.log.index.enable`` is true, and the storage manager stores no entries beside segments.

    Raises (all calls but ``health`` and ``close``):
        RemoteStorageException: the manager is closed, or belongs to the process that this one was forked from.

    Thread safety: any number of threads. Futures are completed in threads of the manager's: callbacks must neither
    raise nor wait.
    """

    def __init__(
        self,
        config: RemoteLogManagerConfig,
        *,
        broker_id: int,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        find_log: FindLog,
        on_log_start_offset: Callable[[TopicIdPartition, int], None] | None = None,
        machine: Machine | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        require_type("config", config, RemoteLogManagerConfig, "a RemoteLogManagerConfig")
        require_type("storage", storage, RemoteStorageManager, "a RemoteStorageManager")
        require_type("metadata", metadata, RemoteLogMetadataManager, "a RemoteLogMetadataManager")
        machine = machine or Machine()
        self._machine = machine
        self._origin = Origin()
        self._closed = False
        self._lock = machine.scheduler.lock()
        self.storage, self.metadata = storage, metadata
        by_partition = config.metrics_recording_level != "INFO"
        self.metrics = ManagerMetrics(machine, registry, by_partition=by_partition)
        self._services = services = TierServices(
            config=config,
            storage=storage,
            metadata=metadata,
            find_log=find_log,
            broker_id=require_int("broker_id", broker_id),
            machine=machine,
            metrics=self.metrics,
        )
        if on_log_start_offset is not None:
            services.on_log_start_offset = on_log_start_offset
        self._make_parts(services, config)
        self._show_metrics(by_partition=by_partition)

    def _make_parts(self, services: TierServices, config: RemoteLogManagerConfig) -> None:
        machine = services.machine
        behind = LogIndexes(services).behind if config.log_index_enable else _alone

        def schedule(name: str, workers: int) -> TaskSchedule:
            return TaskSchedule(machine, name=f"tierlog-rlm-{name}", workers=workers)

        self._copy_quota = ByteQuota(
            machine,
            config.copy_max_bytes_per_second,
            config.copy_quota_window_num,
            config.copy_quota_window_size_seconds,
        )
        self._copying = schedule("copy", config.copier_thread_pool_size)
        self._expiring = schedule("expiration", config.expiration_thread_pool_size)
        self._following = schedule("follower", config.follower_thread_pool_size)
        self._notices = MetadataNotices(services)
        expirations = Expirations(services)
        copies = SegmentCopies(services, self._copy_quota, others_wait=lambda: self._copying.waiting > 0)
        self._terms = PartitionTerms(
            services,
            self._notices,
            copying=TermTask(self._copying, behind(copies.run)),
            expiring=TermTask(self._expiring, expirations.run),
            following=TermTask(self._following, behind(FollowerLookups(services).run)),
        )
        services.has_told, services.when_told = self._terms.has_begun, self._terms.when_begun
        self._stops = PartitionStops(services, self._terms, self._notices, SegmentDeletions(services))
        self._removals = PartitionRemovals(services, is_here=lambda partition: self._terms.find(partition) is not None)
        interval = config.partition_remover_task_interval_ms / 1000
        self._removals.wake = self._following.add(self._removals.run, delay_seconds=interval).wake
        self._fetch_quota = ByteQuota(
            machine,
            config.fetch_max_bytes_per_second,
            config.fetch_quota_window_num,
            config.fetch_quota_window_size_seconds,
        )
        self._reads = RemoteReads(services, self._fetch_quota, self._terms.find)
        self._searches = OffsetSearch(services, self._reads.pool.submit)
        self._aux_states = AuxStates(services)
        self._health = HealthCheck(
            services,
            self._terms,
            self._notices,
            {"copy": self._copying, "expiration": self._expiring, "follower": self._following},
            expirations.clock_check,
        )

    def _show_metrics(self, *, by_partition: bool) -> None:
        metrics = self.metrics
        metrics.figures = partial(self._health.figures, by_partition=by_partition)
        metrics.ask("tasks_idle_ratio", lambda: 1 - min(1.0, self._copying.running / self._copying.workers))
        metrics.ask("waiting_requests", lambda: len(self._searches), operation="RemoteListOffsets")
        metrics.ask("copy_quota_bytes_per_second", self._copy_quota.rate)
        metrics.ask("fetch_quota_bytes_per_second", self._fetch_quota.rate)
        metrics.ask("leader_partitions", lambda: self._terms.count(Role.LEADER))
        metrics.ask("follower_partitions", lambda: self._terms.count(Role.FOLLOWER))
        metrics.ask("copying_stopped_partitions", lambda: len(self._health.copying_stopped()))
        metrics.ask("uncopied_age_seconds", self._health.uncopied_age_seconds)

    @classmethod
    def open(
        cls,
        configs: Mapping[str, str],
        *,
        broker_id: int,
        cluster_id: str,
        find_log: FindLog,
        on_log_start_offset: Callable[[TopicIdPartition, int], None] | None = None,
        client_configs: Mapping[str, str] | None = None,
        machine: Machine | None = None,
        registry: CollectorRegistry | None = None,
    ) -> Self:
        """Make a manager, and the two that a broker's configuration names, with keys behind ``rsm.config.`` and
        ``rlmm.config.``.

        Args:
            configs: A broker's configuration, with all of its keys; those of others are passed over.
            broker_id: This broker.
            cluster_id: Of the cluster, as its brokers know it.
            find_log: As of the class.
            on_log_start_offset: As of the class.
            client_configs: How the metadata manager's Kafka clients reach the cluster, from the broker's own listener:
                keys without ``rlmm.config.``, over which those of ``configs`` win.
            machine: As of the class.
            registry: As of the class; Tierlog's own managers collect their metrics there too.

        Raises:
            ConfigError: a malformed key, no tiered storage (``remote.log.storage.system.enable``), a class that is
                missing or cannot be loaded, or keys that a manager refuses. NoThreadError. Nothing is open then.
        """
        config = RemoteLogManagerConfig.read(configs)
        machine = machine or Machine()
        storage, metadata = open_managers(
            configs,
            broker_id=broker_id,
            cluster_id=cluster_id,
            client_configs=client_configs or {},
            index_cache_bytes=config.index_cache_bytes,
            machine=machine,
            registry=registry,
        )
        try:
            return cls(
                config,
                broker_id=broker_id,
                storage=storage,
                metadata=metadata,
                find_log=find_log,
                on_log_start_offset=on_log_start_offset,
                machine=machine,
                registry=registry,
            )
        except BaseException:
            metadata.close()
            storage.close()
            raise

    # ---- roles

    def on_leadership_change(
        self,
        leaders: AbstractSet[TopicIdPartition],
        followers: AbstractSet[TopicIdPartition],
        *,
        metadata_partitions: AbstractSet[int] | None = None,
    ) -> None:
        """Report the partitions that this broker begins to lead or to follow. Returns at once.

        Partitions whose log is not tiered are passed over. A repeated notice restarts nothing, but copying that an
        error, or ``remote.log.copy.disable``, had stopped. A partition of another topic id is another partition.

        Args:
            leaders: That it leads from now on. Their logs exist.
            followers: That it follows from now on.
            metadata_partitions: All partitions of the metadata topic that this broker leads now: it removes what is
                marked there by ``delete_partition``. None: the same ones as before.
        """
        self._require_open()
        if metadata_partitions is not None:
            self._removals.lead(metadata_partitions)
        self._terms.begin(self._tiered("leaders", leaders), self._tiered("followers", followers))

    def stop_partitions(self, stopped: Iterable[StopPartition]) -> Future[Mapping[TopicIdPartition, Exception]]:
        """Report partitions that this broker leads or follows no more. Their tasks have ended on return, but for runs
        under way, which write nothing more.

        Returns:
            A future of the errors by partition: what was to be deleted in the tier and is not, or what the metadata
            manager did not take. It is done when all is deleted that was to be, and raises RemoteStorageException if
            the manager is closed before.
        """
        self._require_open()
        partitions = list(stopped)
        for each in partitions:
            require_type("each of stopped", each, StopPartition, "a StopPartition")
        return self._stops.stop(partitions)

    def delete_partition(self, partition: TopicIdPartition) -> Future[None]:
        """Have all segments of a deleted partition removed, by whichever broker leads the partition of the metadata
        topic that has its events: the controller's call, which may be repeated. Returns at once.

        Returns:
            A future that is done when the removal is marked, so that it goes on after any crash. It raises
            RemoteStorageException and what else the metadata manager raises, if that may not go away by itself.
        """
        self._require_open()
        return self._removals.delete_partition(
            require_type("partition", partition, TopicIdPartition, "a TopicIdPartition")
        )

    def on_config_change(
        self, partitions: AbstractSet[TopicIdPartition]
    ) -> Future[Mapping[TopicIdPartition, Exception]]:
        """Report partitions whose logs have another configuration now; ``topic_changes`` judges one before.

        Copying ends, or goes on, by ``remote.log.copy.disable``. A partition that leaves the tier stops: if this broker
        leads it, its segments in the tier are deleted, and its log starts where it is local. One that enters the tier
        needs a notice of ``on_leadership_change``, which says what this broker is to it.

        Returns:
            The future, as of ``stop_partitions``.
        """
        self._require_open()
        stopped: list[StopPartition] = []
        for partition in sorted(partitions):  # a simulation repeats, whatever their hashes
            term, log = self._terms.find(partition), self._services.find_log(partition)
            if term is None or log is None:
                continue
            if not log.remote_log_enabled():
                is_leader = term.role is Role.LEADER
                deletes = is_leader and log.config.remote_log_delete_on_disable
                stopped.append(StopPartition(partition, delete_remote_log=deletes, stop_metadata=True))
                if is_leader:
                    self._start_locally(partition)
            elif log.config.remote_log_copy_disable:
                self._terms.stop_copying([partition])
            else:
                self._terms.resume_copying([partition])
        return self._stops.stop(stopped)

    def _start_locally(self, partition: TopicIdPartition) -> None:
        """Let a log that left the tier start with its local segments."""
        log = self._services.find_log(partition)
        try:
            if log is not None:
                log.maybe_increment_log_start_offset(log.local_log_start_offset, "the topic left the tier")
        except TierlogError as error:
            _log.warning("%s: its log cannot start at its local segments: %s", partition, error)

    def _tiered(self, name: str, given: AbstractSet[TopicIdPartition]) -> AbstractSet[TopicIdPartition]:
        found = set()
        for partition in given:
            require_type(f"each of {name}", partition, TopicIdPartition, "a TopicIdPartition")
            log = self._services.find_log(partition)
            if log is not None and log.remote_log_enabled():
                found.add(partition)
        return found

    # ---- readers

    def read(
        self,
        requests: Sequence[RemoteRead],
        *,
        max_bytes: int | None = None,
        min_one_message: bool = True,
        max_wait_ms: int | None = None,
    ) -> PendingRead:
        """Read partitions of one fetch whose offsets are in the tier alone: a consumer's, which a log answered with an
        OffsetOutOfRangeError whose ``is_in_tier`` is set.

        Args:
            requests: The partitions, in the order of the fetch.
            max_bytes: What is left of the answer's bytes; None: no limit. Each read is taken to use all that it may.
            min_one_message: Whether the first partition that is read gives a batch even if that is larger.
            max_wait_ms: None: ``remote.fetch.max.wait.ms``.

        Returns:
            The future of a result for each partition, which never raises but CancelledError: errors are in the results,
            and at the deadline there is an answer, however little. ``cancel`` it when the client has gone.
        """
        self._require_open()
        return self._reads.read(requests, max_bytes=max_bytes, min_one_message=min_one_message, max_wait_ms=max_wait_ms)

    def fetch_throttle_time_ms(self) -> int:
        """Return how long the quota of remote reads is to be waited for; 0: there is room."""
        return self._fetch_quota.throttle_ms()

    def list_offsets(
        self, partition: TopicIdPartition, timestamp_ms: int, *, timeout_ms: int | None = None
    ) -> Future[TimestampAndOffset | None]:
        """Search a partition's offset by time, over tier and log; special timestamps of ListOffsets too.

        Args:
            partition: That this broker leads or follows.
            timestamp_ms: From this time on, or a special one.
            timeout_ms: Of the request; None: ``remote.list.offsets.request.timeout.ms``.

        Returns:
            A future of the first record from that time on; None: there is none. What of it a client may see is the
            request layer's. It raises ReplicationError: REQUEST_TIMED_OUT, or there is no log here; else what the
            managers and the log raise.
        """
        self._require_open()
        term = self._terms.find(require_type("partition", partition, TopicIdPartition, "a TopicIdPartition"))
        scope = None if term is None else term.scope
        return self._searches.list_offsets(partition, timestamp_ms, timeout_ms=timeout_ms, term=scope)

    # ---- followers

    def build_aux_state(
        self, partition: TopicIdPartition, build: BuildAuxState | LeaderEndpoint, *, leader_epoch: int = -1
    ) -> Future[AuxStateBuilt]:
        """Begin a partition's log behind what only the tier has.

        Args:
            partition: That this broker follows, or leads.
            build: The action of a machine of ``tierlog.replication``; or the partition's leader, for a follower of the
                broker's own.
            leader_epoch: Of the leadership in which it is asked for, where the leader is given.

        Returns:
            A future; its ``cancel`` says whether the log stays as it was (see ``AuxStates``).

        Raises:
            RemoteStorageException: closed; or this broker neither leads nor follows the partition.
        """
        self._require_open()
        term = self._require_term(partition)
        if isinstance(build, BuildAuxState):
            return self._aux_states.execute(term, build)
        return self._aux_states.build(term, build, leader_epoch=leader_epoch)

    def _require_term(self, partition: TopicIdPartition) -> TieredPartition:
        term = self._terms.find(require_type("partition", partition, TopicIdPartition, "a TopicIdPartition"))
        if term is None:
            raise RemoteStorageException(f"{partition} ({partition.topic_id}) is neither led nor followed here")
        return term

    # ---- the operator

    def update_config(self, changes: Mapping[str, str]) -> None:
        """Change keys while the manager runs: quotas, numbers of threads, waits, the size of the index cache.

        Raises:
            ConfigError: as RemoteLogManagerConfig.changed; nothing has changed then.
        """
        self._require_open()
        with self._lock:
            before, config = self._services.config, self._services.config.changed(changes)
            self._services.config = config
        if config.index_cache_bytes != before.index_cache_bytes:
            self._resize_index_cache(config.index_cache_bytes)
        self._copying.resize(config.copier_thread_pool_size)
        self._expiring.resize(config.expiration_thread_pool_size)
        self._following.resize(config.follower_thread_pool_size)
        self._copy_quota.change(config.copy_max_bytes_per_second)
        self._fetch_quota.change(config.fetch_max_bytes_per_second)
        self._reads.apply_config()

    def _resize_index_cache(self, size_bytes: int | None) -> None:
        assert size_bytes is not None, "a key is changed, never taken away"
        try:
            has_one = self.storage.resize_index_cache(size_bytes)
        except Exception as error:  # noqa: BLE001 - a third party's; the other keys count
            _log.warning("the index cache has its old size: %s: %s", type(error).__name__, error)
        else:
            if not has_one:
                _log.info("the storage manager has no index cache to be resized")

    @property
    def config(self) -> RemoteLogManagerConfig:
        """The present configuration."""
        return self._services.config

    def health(self) -> ManagerHealth:
        """Return what the manager is behind with, and why: the oldest segment that is not copied, calls that hang."""
        return self._health.look()

    # ---- life

    def close(self) -> None:
        """End all tasks, then close the metadata manager, then the storage manager; the broker closes its logs after
        that. Each step has ten seconds: what hangs goes on in its thread. In a fork nothing is closed, since it is the
        parent's. Idempotent.
        """
        if not self._origin.is_here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._terms.end_all()
        self._searches.close()
        self._reads.close()
        for part in (
            self._removals,
            self._stops,
            self._aux_states,
            self._copying,
            self._expiring,
            self._following,
            self._notices,
        ):
            part.close()
        self._close_manager("metadata", self.metadata.close)
        self._close_manager("storage", self.storage.close)

    def _close_manager(self, name: str, close: Callable[[], None]) -> None:
        try:
            error = self._machine.scheduler.start(close, name=f"tierlog-rlm-close-{name}").exception(_CLOSE_SECONDS)
        except TimeoutError:
            _log.warning("the %s manager has not closed within %g s", name, _CLOSE_SECONDS)
        else:
            if error is not None:
                _log.warning("the %s manager failed to close: %s", name, error)

    def _require_open(self) -> None:
        try:
            self._origin.require(_WHAT)
        except ForkedProcessError as error:
            raise RemoteStorageException(str(error)) from error
        if self._closed:
            raise RemoteStorageException(f"{_WHAT} is closed")
