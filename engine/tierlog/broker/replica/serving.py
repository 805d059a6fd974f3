"""The parts of a replica, made and ended together: a tier, its catalog, the groups, the handlers, the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from tierlog.broker.apis.describe_cluster import DescribeClusterHandler, ServerIdentity
from tierlog.broker.apis.describe_configs import DescribeConfigsHandler
from tierlog.broker.apis.describe_log_dirs import DescribeLogDirsHandler
from tierlog.broker.apis.describe_topic_partitions import DescribeTopicPartitionsHandler
from tierlog.broker.apis.list_offsets import ListOffsetsHandler
from tierlog.broker.apis.metadata import MetadataHandler
from tierlog.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tierlog.broker.apis.refusals import refusals
from tierlog.broker.fetching.fetch_handler import FetchHandler
from tierlog.broker.front.front_config import FrontConfig
from tierlog.broker.front.front_delete_records import FrontDeleteRecordsHandler
from tierlog.broker.front.front_fetch import FrontFetchHandler
from tierlog.broker.front.front_list_offsets import FrontListOffsetsHandler
from tierlog.broker.front.front_metrics import FrontCounts, FrontMetrics
from tierlog.broker.front.front_server import FrontServer, UpstreamCluster, open_upstream
from tierlog.broker.front.read_rights import ReadRights
from tierlog.broker.front.source_choice import Preference
from tierlog.broker.front.tier_choices import TierChoices
from tierlog.broker.front.upstream_partitions import UpstreamPartitions
from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.database_store import open_group_store
from tierlog.broker.groups.group_handlers import group_handlers
from tierlog.broker.groups.group_metrics import GroupMetrics
from tierlog.broker.groups.offset_handlers import committed_for
from tierlog.broker.groups.stored_state import CommittedOffset, GroupStore, StoredState
from tierlog.broker.handling import Handler
from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog, CatalogSettings
from tierlog.broker.replica.replica_config import ReplicaConfig, server_config
from tierlog.broker.replica.replica_partition import ReplicaPartition, SegmentReads
from tierlog.broker.server.server import Server
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Clock, Timers
from tierlog.runtime.waiting.loops import LoopCalls, Worker
from tierlog.scan.scan_request import log_starts_by_topic, parse_log_starts
from tierlog.serving.answer_memory import AnswerMemory
from tierlog.serving.http_endpoint import HttpEndpoint
from tierlog.serving.server import run_server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from tierlog.remote.metadata.metadata_view import MetadataView

#: Threads that open and close the server's resources.
_THREADS: Final = 2
#: In the state directory.
_LISTING_FILE: Final = "bucket-listing"
#: The caches of a reader by segments: a manifest is read once, for the history, whose size is a series of the replica.
_CACHES: Final = ("chunks_memory", "chunks_disk", "indexes")
METRICS_PREFIX: Final = "tierlog_replica_"


class Replica:
    """A server of Kafka's protocol over one bucket, read-only.

    Args:
        config: The served tier, the address, and the settings.
        machine: Clock, chance, threads and files.

    Made, started and stopped on one event loop.
    """

    def __init__(self, config: ReplicaConfig, machine: Machine | None = None) -> None:
        self._config = config
        self._machine = machine or Machine()
        self._parts = AsyncExitStack()
        self._server: Server | FrontServer | None = None
        self._upstream: UpstreamCluster | None = None
        self._is_listening = False

    async def start(self) -> tuple[str, int]:
        """List the bucket and begin to listen; returns host and port.

        Raises:
            ConfigError: PATH holds nothing that fits a layout, a key is malformed, or the state is another server's.
            CorruptDataError: the metadata or the state is damaged. StoreError and its kinds: the bucket cannot be
                listed. OSError: the address cannot be listened on.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> tuple[str, int]:
        config, machine = self._config, self._machine
        pool = machine.scheduler.pool(_THREADS, name="tierlog-replica")
        worker = Worker(pool, machine)
        self._parts.callback(pool.close, wait_seconds=0)
        groups = None if config.front is not None else await self._open_groups(worker)
        read_metadata = _metadata_reader(config, machine)
        tier = await worker.run(partial(self._open_tier, read_metadata))
        self._when_ended(worker, tier.close)
        storage_metrics = StorageMetrics(caches=_CACHES)
        storage = server_config(config.tier_keys, machine=machine)
        reads = SegmentReads(tier, storage, machine=machine, metrics=storage_metrics)
        self._when_ended(worker, reads.close)
        settings = CatalogSettings(
            topics=config.topics,
            refresh_seconds=config.refresh_seconds,
            state_file=None if config.state is None else f"{config.state}/{_LISTING_FILE}",
            log_start_offsets=await worker.run(partial(self._log_starts, tier)),
            histories_bytes_max=config.histories_bytes_max,
            request_seconds=reads.timeout_seconds,
        )
        catalog = BucketCatalog(
            tier,
            lambda history: ReplicaPartition(history, reads),
            settings,
            read_metadata=read_metadata,
            machine=machine,
        )
        self._parts.push_async_callback(catalog.close)
        # What a bucket that is away cannot serve, brokers do.
        await catalog.start(may_be_away=config.front is not None)
        metrics = ServerMetrics()
        registries = [metrics.registry, storage_metrics.registry, ReplicaMetrics(catalog, machine.clock).registry]
        ends: list[Callable[[], None]] = [catalog.end_waits]
        if config.front is not None:
            server: Server | FrontServer = await self._make_front(config.front, catalog, metrics, registries, worker)
        else:
            assert groups is not None
            coordinator = self._coordinator(machine.timers, *groups)
            ends.insert(0, coordinator.close)
            server = Server(
                self._handlers(catalog, coordinator, machine.timers), config.server, machine, metrics=metrics
            )
            by_partition = storage.metrics_recording_level != "INFO"
            lag_of = partial(_end_offset, catalog) if by_partition else None
            registries.append(GroupMetrics(coordinator, lag_of).registry)
        # Before the server stops: members that wait for others are answered, and long polls with the present records.
        self._parts.push_async_callback(server.stop)
        for end in ends:
            self._parts.callback(end)
        self._server = server
        if config.monitor is not None:
            endpoint = HttpEndpoint(
                *config.monitor,
                registries=registries,
                health=partial(self._unready_reason, catalog),
                machine=machine,
            )
            await endpoint.start()
            self._parts.push_async_callback(endpoint.stop)
        address = await server.start()
        self._is_listening = True
        return address

    async def _open_groups(self, worker: Worker) -> tuple[GroupStore, StoredState]:
        store = await worker.run(partial(open_group_store, self._machine, self._config.state))
        self._when_ended(worker, store.close)
        return store, await worker.run(store.load)

    async def _make_front(
        self,
        front: FrontConfig,
        catalog: BucketCatalog,
        metrics: ServerMetrics,
        registries: list[CollectorRegistry],
        worker: Worker,
    ) -> FrontServer:
        """Make the server of a replica that stands in front of a cluster."""
        machine, config, timers = self._machine, self._config, self._machine.timers
        memory = AnswerMemory(config.fetch.answers_max_bytes, timers, machine)
        upstream = self._upstream = await open_upstream(front, memory, machine, worker)
        states = UpstreamPartitions(
            upstream.own,
            timers=timers,
            machine=machine,
            refresh_seconds=front.refresh_seconds,
            asks_local=front.preference is Preference.LOCAL,
        )
        self._parts.push_async_callback(states.close)
        rights = ReadRights(timers, refresh_seconds=front.auth_refresh_seconds)
        choices = TierChoices(catalog, states, rights, preference=front.preference, timers=timers)
        self._parts.push_async_callback(choices.close)
        counts = FrontCounts()
        fetch = FrontFetchHandler(
            choices, timers=timers, machine=machine, counts=counts, limits=config.fetch, memory=memory
        )
        self._parts.push_async_callback(fetch.close)
        registries.append(FrontMetrics(f"{METRICS_PREFIX}front_", counts, choices).registry)
        times = FrontListOffsetsHandler(choices, timers=timers, counts=counts)
        handlers = (fetch, times, FrontDeleteRecordsHandler(states))
        chores = (partial(choices.keep_comparing, upstream.own),)
        return FrontServer(handlers, config.server, upstream, machine, metrics=metrics, chores=chores)

    def _unready_reason(self, catalog: BucketCatalog) -> str:
        """Return the reason why the server is not ready; "" if it is."""
        if self._upstream is not None and self._upstream.own.failure:
            return f"the upstream cluster is away: {self._upstream.own.failure}"
        if not self._is_listening:
            return "the server does not listen yet"
        return "" if self._upstream is not None else catalog.unready_reason  # brokers serve what the bucket does not

    def _when_ended(self, worker: Worker, close: Callable[[], None]) -> None:
        """Register a close that may block, to run in a thread at the end."""

        async def closed() -> None:
            await worker.run(close)

        self._parts.push_async_callback(closed)

    def _open_tier(self, read_metadata: Callable[[], MetadataView] | None) -> Tier:
        config = self._config
        return open_tier(
            config.path,
            layout=config.layout,
            config=config.tier_keys,
            machine=self._machine,
            limited=True,
            known=None if read_metadata is None else read_metadata(),
        )

    def _log_starts(self, tier: Tier) -> Mapping[str, Mapping[int, int]]:
        """Topic -> partition -> log start offset."""
        starts = self._config.log_starts
        return log_starts_by_topic(parse_log_starts(starts), tier.topics()) if starts else {}

    def _coordinator(self, timers: Timers, store: GroupStore, state: StoredState) -> GroupCoordinator:
        return GroupCoordinator(self._config.groups, self._machine, timers, store, state, on_loop=LoopCalls().submit)

    def _handlers(self, catalog: BucketCatalog, coordinator: GroupCoordinator, timers: Timers) -> list[Handler]:
        config, machine = self._config, self._machine
        identity = ServerIdentity(config.cluster_id)
        fetch = FetchHandler(catalog, node_id=identity.node_id, timers=timers, machine=machine, limits=config.fetch)
        self._parts.push_async_callback(fetch.close)
        return [
            fetch,
            ListOffsetsHandler(catalog),
            OffsetForLeaderEpochHandler(catalog),
            MetadataHandler(catalog, identity),
            DescribeClusterHandler(identity),
            DescribeTopicPartitionsHandler(catalog, identity),
            DescribeConfigsHandler(catalog, identity),
            DescribeLogDirsHandler(catalog),
            *group_handlers(coordinator, catalog, machine.clock, node_id=identity.node_id),
            *refusals(),
        ]

    async def stop(self) -> None:
        """End the server and all that it was made of; idempotent."""
        parts, self._parts = self._parts, AsyncExitStack()
        self._server = None
        await parts.aclose()

    async def reload_files(self) -> None:
        """Use a changed certificate and changed users for connections from now on."""
        if self._server is not None:
            await self._server.reload_files()


class ReplicaMetrics:
    """The metrics of a catalog, looked up for each scrape.

    Args:
        catalog: The served topics.
        clock: The time.

    Attributes:
        registry: Where the series are collected.

    Thread safety: any thread may scrape.
    """

    def __init__(self, catalog: BucketCatalog, clock: Clock) -> None:
        from prometheus_client import CollectorRegistry

        self._catalog = catalog
        self._clock = clock
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """Return the series, as a registry asks for them."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        catalog = self._catalog
        newest_ms = catalog.newest_segment_ms
        gauges = {
            "topics": ("Topics that are served.", len(catalog.topics())),
            "partitions": ("Partitions that are served.", sum(len(topic.partitions) for topic in catalog.topics())),
            "histories_bytes": ("Memory of the cached histories.", catalog.history_cache.size_bytes),
            "refresh_age_seconds": (
                "Time since the newest listing of the bucket that came to an end; -1 before the first.",
                -1.0 if catalog.refresh_age_seconds is None else catalog.refresh_age_seconds,
            ),
            "refresh_failed": ("1 if the newest listing failed, else 0.", int(catalog.refresh_error is not None)),
            "newest_segment_age_seconds": (
                "Time since the newest segment was written: how far the tier lies behind its writers; -1 without any.",
                -1.0 if newest_ms < 0 else max(0.0, (self._clock.time_ms() - newest_ms) / 1000),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(METRICS_PREFIX + name, text, value=float(value))


def _end_offset(catalog: BucketCatalog, topic: str, partition: int, committed: CommittedOffset) -> int | None:
    """The end of a partition for the lag of a group; None where it is not known, or the commit is of another topic."""
    offsets = catalog.known_offsets(topic, partition)
    return offsets.high_watermark if offsets is not None and committed_for(catalog.find(topic), committed) else None


def _metadata_reader(config: ReplicaConfig, machine: Machine) -> Callable[[], MetadataView] | None:
    """Make the reader of metadata; its module is imported for a server that has some: imports are most of a start."""
    if not config.metadata.sources:
        return None
    from tierlog.scan.following.known_partitions import FollowedMetadata

    return FollowedMetadata(config.metadata.sources, client_keys=config.metadata.client_keys, machine=machine).read


def serve_replica(
    config: ReplicaConfig, *, on_ready: Callable[[str, int], None], machine: Machine | None = None
) -> None:
    """Run a replica until SIGTERM or SIGINT. Only for the main thread.

    Args:
        config: The replica's configuration.
        on_ready: Called with host and port once clients can connect.
        machine: By default this machine.

    Raises: as ``Replica.start``.
    """

    replica = Replica(config, machine)
    run_server(replica.start, replica.stop, replica.reload_files, on_ready)
