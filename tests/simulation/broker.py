"""One life of a broker: what it opens from its disk, its tasks, and what it does when it is told to stop.

All that it has is its TaskGroup's: a crash abandons the group, and nothing of the life goes on. What comes by the
network, answers and times are put into a queue, from which a few tasks take them, as Kafka's request threads do.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster_messages import (
    AskMetadata,
    Heartbeat,
    HeartbeatTaken,
    Metadata,
    Register,
    Registered,
    TopicState,
)
from tests.simulation.controller import topic_id_of
from tests.simulation.disks import Disk, RealDisk
from tests.simulation.fetchers import ReplicaFetcher
from tests.simulation.messages import Partition
from tests.simulation.metadata_log import RemoteMetadataLogs
from tests.simulation.moves import Moves
from tests.simulation.network import Answer
from tests.simulation.replica import FOLLOWER_SETTINGS, Replica
from tests.simulation.requests import Requests
from tests.simulation.store import StoreClient
from tests.simulation.work_queue import WorkQueue
from tierlog.errors import TierlogError
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.partition_stops import StopPartition
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.manager_parts import ManagerParts
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.replication import Brokers, FollowerSettings
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.simulated.manual_scheduler import SkewedClock

if TYPE_CHECKING:
    from tests.simulation.world import World

_REQUEST_TASKS: Final = 3
#: The tasks whose runs are events; those that only look at the time are none.
TASKS: Final = tuple(
    f"tierlog-{name}"
    for name in (
        "log-tasks",
        "log-cleaner-0",
        "rlm-copy",
        "rlm-expiration",
        "rlm-follower",
        "rlm-stop",
        "rlm-aux-state",
    )
)
_CONTROLLER_TIMEOUT_MS: Final = 2_000
_RETRY_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 5.0
#: How long the folders of deleted logs stay that a start finds.
FOLDER_DELETE_MS: Final = 2_000


class Broker:
    """A life.

    Args:
        world: Has the nodes.
        broker_id: Which broker.
        life: Which life of it.
        disk: Its disk.
        clock: Its clock.
        config: Its configuration: Kafka's names and values.

    Attributes:
        epoch: The broker epoch that the controller gave it; -1 = none yet.
        version: Of the metadata that it knows.
        replicas: By partition.
        known: The brokers, as the controller last said.
        is_stopping: Whether it is to stop.
        has_stopped: Whether it has stopped cleanly.
        manager: The RemoteLogManager.
        directories: Its log directories.
        moves: Of logs between them.
        storage: Its storage manager.
        storage_parts: What that has as long as it is open; None: it was never configured.
    """

    def __init__(
        self,
        world: World,
        broker_id: int,
        life: int,
        disk: Disk | RealDisk,
        clock: SkewedClock,
        config: dict[str, str],
    ) -> None:
        self.world = world
        self.settings = world.settings
        self.trace = world.trace
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.life = life
        self.files = disk.files
        self.folders = disk.folders
        self.clock = clock
        self.config = config
        self.group = world.scheduler.group(f"{self.name}/{life}")
        rng = self.settings.rng(f"{self.name}/{life}")
        self.machine = Machine(clock, rng, self.group, disk.files, Process())
        self.epoch = -1
        self.version = 0
        self.known = Brokers()
        self.replicas: dict[Partition, Replica] = {}
        self._unopened: set[Partition] = set()
        self.follower_settings: FollowerSettings = replace(
            FOLLOWER_SETTINGS, lag_time_max_ms=self.settings.replica_lag_ms
        )
        self.is_stopping = self.has_stopped = False
        self.manager: RemoteLogManager
        self.storage: TieredStorageManager
        self.storage_parts: ManagerParts | None = None
        self.directories: LogDirectories
        self.moves = Moves(self)
        self._requests = Requests(self)
        self._queue = WorkQueue(self.group, "request", _REQUEST_TASKS)
        self.io = WorkQueue(self.group, "io", 1)
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._fetchers_changed = self.group.condition()
        self._topics: dict[tuple[str, int], TopicState] = {}
        self._tokens = itertools.count(1)
        self._is_first_image = True
        self.group.spawn(self._begin, name="start")

    # ---- time and network

    @property
    def now_ms(self) -> int:
        """The time of the replication's machines: it only rises."""
        return int(self.clock.monotonic_seconds() * 1000)

    def token(self) -> int:
        """A token that nothing else has."""
        return next(self._tokens)

    def soon(self, call: Callable[[], None]) -> None:
        """Have a request task make a call; from anywhere."""
        self._queue.put(call)

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Have a request task make a call after a time."""

        def due() -> None:
            if not self.group.is_abandoned and not self.has_stopped:
                self.soon(call)

        self.world.network.after(delay_ms, due)

    def call(self, target: str, request: Any, then: Callable[[Any], None], *, timeout_ms: float) -> None:
        """Send a request; a request task takes the answer."""
        network = self.world.network
        network.call(self.name, target, request, lambda answer: self.soon(lambda: then(answer)), timeout_ms=timeout_ms)

    def ask(self, target: str, request: Any, *, timeout_ms: float, may_double: bool = True) -> Any:
        """Send a request, and wait for the answer; None: none came in time."""
        answer = self.group.future()
        self.world.network.call(
            self.name, target, request, answer.set_result, timeout_ms=timeout_ms, may_double=may_double
        )
        return answer.result()

    def _receive(self, source: str, request: Any, answer: Answer) -> None:
        self.soon(lambda: self._requests.handle(source, request, answer))

    # ---- the start

    def _begin(self) -> None:
        try:
            self._open()
        except TierlogError as error:
            self.trace.note(self.name, "cannot start", type(error).__name__)
            self.world.failed(self)
            return
        if not self._register():
            return
        self.world.network.serve(self.name, self._receive)
        self.group.spawn(self._beat, name="heartbeat")
        self.group.spawn(self._follow_metadata, name="metadata")
        self.group.spawn(self._tick, name="isr-expiration")
        if self.settings.log_directories > 1:
            self.group.spawn(self.moves.run, name="log-move")

    def _open(self) -> None:
        files, machine, config = self.files, self.machine, self.config
        paths = self.folders.log_directories[: self.settings.log_directories]
        for path in paths:
            files.make_directories(path)
        self.directories = LogDirectories.open(
            paths,
            machine=machine,
            config=LogConfig.from_kafka({"file.delete.delay.ms": str(FOLDER_DELETE_MS)}),
            directory_config=LogDirectoryConfig.from_kafka(_own(config)),
            remote_log_enabled=True,
            is_sole_replica=False,
            cleaner_config=CleanerConfig.from_kafka(_own(config)),
            on_offline=self._failed,
        )
        self.storage = storage = TieredStorageManager(machine=machine, wrap_store=lambda _: StoreClient(self))
        storage.configure(self.world.storage_config(self.folders))
        self.storage_parts = storage._configured()
        metadata = TopicBasedRemoteLogMetadataManager(
            machine=machine, open_logs=lambda _config, **_: RemoteMetadataLogs(self)
        )
        metadata.configure(
            {
                "log.dir": self.folders.logs,
                "broker.id": self.broker_id,
                "remote.log.metadata.topic.num.partitions": self.settings.metadata_partitions,
                "remote.log.metadata.kafka.semantics": self.settings.kafka_semantics,
                "remote.log.metadata.consume.wait.ms": 5_000,
                "remote.log.metadata.initialization.retry.max.timeout.ms": 3_600_000,
                "remote.log.metadata.snapshot.interval.ms": 5_000,
                "remote.log.metadata.close.wait.ms": 3_000,
            }
        )
        keys = {name: value for name, value in config.items() if name.startswith(_MANAGER_KEYS)}
        keys["remote.log.manager.kafka.semantics"] = str(self.settings.kafka_semantics).lower()
        self.manager = RemoteLogManager(
            RemoteLogManagerConfig.read(keys),
            broker_id=self.broker_id,
            storage=storage,
            metadata=metadata,
            find_log=self.find_log,
            machine=machine,
        )

    def _failed(self, path: str) -> None:
        """A log directory has failed: the broker goes on without it, unless it has the metadata manager's files, as
        Kafka's does without one that is not its metadata directory.
        """
        if path == self.folders.logs:
            self.world.failed(self)
        else:
            self.soon(self._leave_offline)

    def _leave_offline(self) -> None:
        """Let the replicas go whose logs are offline, and the moves into what is offline; the heartbeats tell the
        controller.
        """
        self.trace.count("directories that failed alone")
        moving = self.directories.future_logs
        for partition, replica in list(self.replicas.items()):
            if not replica.log.is_offline and partition[:2] not in moving:
                self.directories.cancel_move(*partition[:2])  # its future log's directory may be the one that failed
            elif replica.log.is_offline and replica.role != "offline":
                replica.stop()
                if replica.log.remote_log_enabled():
                    self.manager.stop_partitions([StopPartition(replica.tip)])

    def _register(self) -> bool:
        stops = [each.last_stop for each in self.directories.online]
        epochs = {each.broker_epoch if each.was_clean else None for each in stops}
        clean_epoch = epochs.pop() if len(epochs) == 1 else None
        request = Register(self.broker_id, self.life, -1 if clean_epoch is None else clean_epoch)
        while not self.is_stopping:
            answer: Registered | None = self.ask("controller", request, timeout_ms=_CONTROLLER_TIMEOUT_MS)
            if answer is not None and answer.error is None:
                self.epoch = answer.epoch
                return True
            self.clock.sleep(_RETRY_SECONDS)
        self._close()
        return False

    # ---- the controller

    def _beat(self) -> None:
        """Send heartbeats, until it may stop."""
        interval_ms = self.settings.heartbeat_interval_ms
        deadline = None
        while not self.has_stopped:
            wants = self.is_stopping
            if wants and deadline is None:
                deadline = self.clock.monotonic_seconds() + _STOP_SECONDS
            gone = {partition for partition, replica in list(self.replicas.items()) if replica.log.is_offline}
            request = Heartbeat(self.broker_id, self.epoch, self.version, wants, frozenset(gone | self._unopened))
            answer: HeartbeatTaken | None = self.ask("controller", request, timeout_ms=interval_ms)
            may_stop = answer is not None and answer.may_stop
            if wants and deadline is not None and (may_stop or self.clock.monotonic_seconds() > deadline):
                self._close()
                return
            self.clock.sleep(interval_ms / 1000 / (5 if self.is_stopping else 1))

    def _tick(self) -> None:
        """Look for followers that lag (Kafka's isr-expiration)."""
        while not self.is_stopping:
            self.clock.sleep(self.settings.replica_lag_ms / 2000)
            now_ms = self.now_ms
            for replica in list(self.replicas.values()):
                if replica.leader.is_leading and replica.leader.in_sync.lag_deadline_ms <= now_ms:
                    with replica.acting():
                        replica.leader.tick(now_ms)

    def _follow_metadata(self) -> None:
        """Take what the controller has decided, in order."""
        while not self.is_stopping:
            request = AskMetadata(self.broker_id, self.version)
            answer: Metadata | None = self.ask("controller", request, timeout_ms=_CONTROLLER_TIMEOUT_MS)
            if answer is None or answer.version <= self.version:
                continue
            try:
                self._take(answer)
            except (LogOfflineError, LogClosedError):
                if not self.directories.online:
                    return
                self.clock.sleep(_RETRY_SECONDS)  # of one log or directory: the others' changes are taken once more

    def _take(self, image: Metadata) -> None:
        for broker_id, state in image.brokers:
            self.known.update(broker_id, state)
        for topic in image.topics:
            self._topics[topic.name, topic.generation] = topic
        if self._is_first_image:
            self._load_logs(image)
        for topic in image.topics:
            if topic.is_deleted:
                self._delete_topic(topic)
            else:
                self._change_config(topic)
        for each in image.partitions:
            if self.broker_id in each.state.replicas:
                replica = self.replicas.get(each.partition) or self._open_replica(each.partition)
                if replica is not None:
                    replica.take(each)
        leads = frozenset(at for at, leader in enumerate(image.metadata_leaders) if leader == self.broker_id)
        self.manager.on_leadership_change(set(), set(), metadata_partitions=leads)
        self.version = image.version
        self.begin_fetchers()

    def _load_logs(self, image: Metadata) -> None:
        """Load all logs, as a broker does that has caught up with the controller; those of no topic go."""
        configs = {topic.name: topic.config for topic in image.topics if not topic.is_deleted}
        self.directories.load_logs(configs=configs)
        ids = {(each.partition.topic, each.partition.number): each.partition for each in image.partitions}
        for key, log in sorted((self.directories.future_logs | self.directories.logs).items()):
            partition = ids.get(key)
            wanted = None if partition is None else topic_id_of(partition.topic, partition.generation)
            if log.topic_id != wanted:
                self.trace.count("stray logs deleted")
                self.directories.delete_log(*key)
        self._is_first_image = False

    def _open_replica(self, partition: Partition) -> Replica | None:
        topic = self._topics.get((partition.topic, partition.generation))
        if topic is None or topic.is_deleted:
            return None
        tip = TopicIdPartition(topic_id_of(partition.topic, partition.generation), partition.topic, partition.number)
        try:
            log = self.directories.log(partition.topic, partition.number, config=topic.config, topic_id=tip.topic_id)
        except LogOfflineError:
            if not self.directories.online:
                raise
            self._unopened.add(partition)  # it may lie in the directory that has failed
            return None
        self.replicas[partition] = replica = Replica(self, partition, tip, log)
        return replica

    def find_log(self, partition: TopicIdPartition) -> UnifiedLog | None:
        """The log of a partition that is here."""
        for each in self.replicas.values():
            if each.tip == partition:
                return each.log
        return None

    def _delete_topic(self, topic: TopicState) -> None:
        for partition in [each for each in self.replicas if each[::2] == (topic.name, topic.generation)]:
            replica = self.replicas[partition]
            replica.stop()
            if replica.log.remote_log_enabled():
                self.manager.stop_partitions([StopPartition(replica.tip, delete_local_log=True)])
            del self.replicas[partition]
            with contextlib.suppress(LogOfflineError):  # the next life finds it, and that it is nobody's
                self.directories.delete_log(partition.topic, partition.number)

    def _change_config(self, topic: TopicState) -> None:
        changed = [
            replica
            for partition, replica in self.replicas.items()
            if partition[::2] == (topic.name, topic.generation) and replica.log.config != topic.config
        ]
        untiered = [replica for replica in changed if not replica.log.remote_log_enabled()]
        if changed:
            self.directories.update_config(topic.name, topic.config)
        for replica in changed:
            replica.config_changed()
        tips = {replica.tip for replica in changed}
        if tips:
            self.manager.on_config_change(tips)
        for replica in untiered:
            replica.tell_manager()  # it may enter the tier

    # ---- followers

    def begin_fetchers(self) -> None:
        """Begin a task for each leader that is followed, and let those go on that wait."""
        for leader in sorted({each.follower.leader or 0 for each in self.replicas.values()} - {0}):
            if leader not in self._fetchers:
                self._fetchers[leader] = fetcher = ReplicaFetcher(self, leader)
                self.group.spawn(fetcher.run, name=f"fetcher-{leader}")
        self.wake_fetchers()

    def wake_fetchers(self) -> None:
        """Let the fetchers that wait look again."""
        with self._fetchers_changed:
            self._fetchers_changed.notify_all()

    def fetcher_pause(self, wait_ms: float) -> None:
        """Wait until there may be something to fetch."""
        with self._fetchers_changed:
            if not self.is_stopping:
                self._fetchers_changed.wait(wait_ms / 1000)

    # ---- the end

    def stop(self) -> None:
        """Stop cleanly: the leaders move away first. Returns at once; ``has_stopped`` tells the end."""
        self.is_stopping = True

    def _close(self) -> None:
        """Close all in production's order; the life is over then."""
        self.world.network.end(self.name)
        self.wake_fetchers()
        for replica in list(self.replicas.values()):
            replica.stop()
        self.manager.close()
        try:
            self.directories.close(broker_epoch=self.epoch)
        except LogOfflineError:
            self.world.failed(self)
            return
        self.has_stopped = True
        self._queue.close()
        self.io.close()
        self.world.after_stop(self)


_MANAGER_KEYS: Final = (
    "remote.log.manager.",
    "remote.log.reader.",
    "remote.fetch.",
    "remote.list.",
    "remote.partition.",
    "follower.fetch.",
    "metrics.",
)


def _own(config: dict[str, str]) -> dict[str, str]:
    """The keys of the log directory and of the cleaner."""
    return {name: value for name, value in config.items() if not name.startswith(_MANAGER_KEYS)}
