"""Brokers with replicas of partitions, in one thread and from a seed: logs, replication's machines, a tier, metadata.

Who drives decides what happens when: an election, a fetch, a copy, a cut of the power. What every broker serves, from
its disk or from the tier, is compared with what was written: ``Written`` has each batch under its epoch and its offset,
and never forgets one; what was committed has to be read from every broker for as long as the log begins before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.log_consumer import aborted_in, batches_in, last_offset, number
from tests.support.tiered_brokers import CONFIG, END, METADATA_PARTITIONS, Broker, BrokerReplica, partition_of
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.tiered_lineage import epochs_with_records, find_log_start_offset
from tierlog.remote.manager.tiered_partition import Role
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.replication import (
    AlterPartition,
    AskEpochEnd,
    AskOffset,
    Brokers,
    BuildAuxState,
    FetchRecords,
    FollowerRequest,
    FollowerSettings,
    LeaderAndIsr,
    LeaderSettings,
    ReplicationError,
)
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import Rng, SeededRng
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager


def batch_of(values: Iterable[bytes], *, now_ms: int, **producer: Any) -> bytearray:
    """A producer's batch."""
    builder = RecordBatchBuilder(0, **producer)
    for value in values:
        builder.append(None, value, timestamp_ms=now_ms)
    return bytearray(builder.build())


@dataclass
class Written:
    """The oracle of one partition: append-only.

    Attributes:
        batches: By (epoch, base offset): the bytes that a leader of that epoch wrote.
        committed: By base offset: the epoch of the batch that was committed there.
    """

    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)

    def note(self, data: bytes) -> None:
        """Note a batch that a leader wrote."""
        for batch in batches_in(data):
            key = number(batch, 12, 4), number(batch, 0, 8)
            assert self.batches.setdefault(key, batch) == batch, f"two batches in epoch {key[0]} at {key[1]}"

    def commit(self, offset: int, epoch: int) -> None:
        """Note that the batch at an offset is committed."""
        self.committed[offset] = epoch

    def lose(self, offset: int) -> None:
        """What was committed from an offset on is lost: by an unclean election, or by more disks than are made for."""
        self.committed = {at: epoch for at, epoch in self.committed.items() if at < offset}

    def check(self, batch: bytes, who: str) -> None:
        """A batch that was read is one that was written."""
        key = number(batch, 12, 4), number(batch, 0, 8)
        assert self.batches.get(key) == batch, f"{who}: the batch of epoch {key[0]} at {key[1]} was never written"


class Cluster:
    """The brokers, their controller, the network between them, the store and the metadata topic.

    Attributes:
        written: The oracle of each partition.
        states, leaders: As the controller has them, by partition.
        generations: How often a partition's topic was made anew.
        is_managed: Whether each broker has a RemoteLogManager; else a test runs its parts.
        builds: How many logs have begun anew behind the tier.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: Iterable[int] = (1, 2),
        partitions: int = 1,
        config: LogConfig = CONFIG,
        manager_config: RemoteLogManagerConfig | None = None,
        leader_settings: LeaderSettings | None = None,
        follower_settings: FollowerSettings | None = None,
        is_managed: bool = False,
    ) -> None:
        self.open_world(seed)
        self.partitions = partitions
        self.config = config
        self.manager_config = manager_config or RemoteLogManagerConfig()
        self.leader_settings = leader_settings or LeaderSettings()
        self.follower_settings = follower_settings or FollowerSettings(fetch_backoff_ms=100)
        self.registered = Brokers()
        self.written = [Written() for _ in range(partitions)]
        self.states: dict[int, LeaderAndIsr] = {}
        self.leaders: dict[int, int | None] = {}
        self.builds = 0
        self.generations = self.known_generations()
        self.is_managed = is_managed
        self.brokers = {each: Broker(self, each) for each in brokers}

    # ---- the world: in memory, from a seed

    def open_world(self, seed: int) -> None:
        """Make what all brokers share: time, threads, the metadata topic and the store."""
        self.machine, self.scheduler = ManualScheduler.machine(seed)
        self.topic = MemoryMetadataTopic(METADATA_PARTITIONS, machine=self.machine)
        self.store = MemoryStorageManager(machine=self.machine)

    def stored_ids(self) -> set[Uuid]:
        """The ids of the segments that the store has."""
        return {each.id for each in self.store.segments}

    def known_generations(self) -> dict[int, int]:
        """How often topics were made anew in earlier lives of the cluster."""
        return {}

    def begin_generation(self, partition: int) -> TopicIdPartition:
        """Decide that a partition's topic is deleted and made anew under another id; what it was."""
        before = self.partition(partition)
        self.generations[partition] = self.generations.get(partition, 0) + 1
        self.written[partition] = Written()
        return before

    def decided(self, partition: int) -> None:
        """The controller has decided on a partition; nobody has heard of it."""

    def disk_of(self, broker_id: int) -> Files:
        """The disk of a broker."""
        return MemoryFiles(self.machine.clock)

    def path_of(self, broker_id: int) -> str:
        """The log directory of a broker."""
        return "/logs"

    def machine_of(self, broker: Broker) -> Machine:
        """The machine of a broker's present life."""
        rng = SeededRng(1000 * broker.broker_id + broker.life)
        return Machine(self.scheduler.clock, rng, self.scheduler, broker.files, Process())

    def storage_of(self, broker: Broker) -> RemoteStorageManager:
        """A broker's storage manager."""
        storage = MemoryStorageManager(machine=broker.machine, segments=self.store.segments)
        storage.configure({})
        return storage

    def metadata_of(self, broker: Broker) -> RemoteLogMetadataManager:
        """A broker's metadata manager."""
        metadata = TopicBasedRemoteLogMetadataManager(machine=broker.machine, open_logs=lambda _config, **_: self.topic)
        metadata.configure(
            {
                "log.dir": broker.path,
                "broker.id": broker.broker_id,
                "remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
                "remote.log.metadata.kafka.semantics": self.manager_config.kafka_semantics,
            }
        )
        return metadata

    def __enter__(self) -> Self:
        self.scheduler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error[0] is None:
                for broker in self.brokers.values():
                    if broker.is_up:
                        broker.stop()
        finally:
            self.scheduler.__exit__(*error)

    def lose_power(self, broker: int, rng: Rng) -> None:
        """A broker loses its power."""
        self.brokers[broker].crash(rng)

    @property
    def now_ms(self) -> int:
        return self.machine.clock.time_ms()

    def partition(self, number: int = 0) -> TopicIdPartition:
        """The partition of a number, as it is now."""
        return partition_of(number, self.generations.get(number, 0))

    def replica(self, broker: int, partition: int = 0) -> BrokerReplica:
        return self.brokers[broker].replicas[partition]

    # ---- the controller

    def elect(self, broker: int, partition: int = 0, *, in_sync: Iterable[int] | None = None) -> None:
        """Elect a leader; every broker that is up hears of it at once."""
        before = self.states.get(partition)
        members = frozenset(in_sync if in_sync is not None else (each for each, b in self.brokers.items() if b.is_up))
        epoch, partition_epoch = (-1, -1) if before is None else (before.leader_epoch, before.partition_epoch)
        self.states[partition] = LeaderAndIsr(epoch + 1, partition_epoch + 1, tuple(self.brokers), members)
        self.leaders[partition] = broker
        self.decided(partition)
        for each in self.brokers.values():
            if each.is_up:
                self.hear(each.broker_id, partition)

    def leave(self, broker: int) -> None:
        """A broker is gone: it is in no in-sync set any more, but where it is the last one, and leads nothing."""
        for partition, state in self.states.items():
            members = state.in_sync_replicas - {broker} or state.in_sync_replicas
            if self.leaders[partition] == broker:
                up = sorted(each for each in members if self.brokers[each].is_up)
                if up:
                    self.elect(up[0], partition, in_sync=members)
                else:
                    self.leaders[partition] = None
            elif members != state.in_sync_replicas:
                self.states[partition] = LeaderAndIsr(
                    state.leader_epoch, state.partition_epoch + 1, state.replicas, members
                )
                leader = self.leaders[partition]
                if leader is not None:
                    self.replica(leader, partition).leader.lead(self.states[partition], self.now_ms)

    def join(self, broker: int) -> None:
        """A broker has started: it hears of everything, and leads what nobody else can."""
        for partition, state in self.states.items():
            if self.leaders[partition] is not None:
                self.hear(broker, partition)
            elif broker in state.in_sync_replicas:
                self.elect(broker, partition, in_sync=state.in_sync_replicas)

    def hear(self, broker: int, partition: int = 0) -> None:
        """A broker hears of the partition's newest state, and takes its role."""
        state, leader = self.states[partition], self.leaders[partition]
        replica = self.replica(broker, partition)
        role = Role.LEADER if leader == broker else Role.FOLLOWER
        replica.begin_term(role)
        if role is Role.LEADER:
            replica.follower.stop()
            replica.leader.lead(state, self.now_ms)
            self.act(replica)
        else:
            assert leader is not None
            replica.leader.resign()
            replica.follower.follow(leader, state.leader_epoch)

    def act(self, replica: BrokerReplica) -> None:
        """Do what a leader's machine asks for: proposals are accepted, its own log is built from the tier."""
        for action in replica.leader.take_actions():
            if isinstance(action, AlterPartition):
                self._alter(replica, action)
            elif isinstance(action, BuildAuxState):
                replica.broker.build(replica, action)

    def _alter(self, replica: BrokerReplica, proposal: AlterPartition) -> None:
        partition = replica.log.partition
        known = self.states[partition]
        if (proposal.leader_epoch, proposal.partition_epoch) != (known.leader_epoch, known.partition_epoch):
            return
        members = frozenset(broker for broker, _ in proposal.in_sync_replicas if self.brokers[broker].is_up)
        state = LeaderAndIsr(known.leader_epoch, known.partition_epoch + 1, tuple(self.brokers), members)
        self.states[partition] = state
        self.decided(partition)
        replica.leader.on_altered(proposal, state, self.now_ms)

    # ---- producers

    def append(
        self, partition: int = 0, /, *values: bytes, data: bytearray | None = None, acks: int = 1, **more: Any
    ) -> int:
        """Append a batch by the partition's leader; the offset of its first record."""
        leader = self.leaders[partition]
        assert leader is not None
        replica = self.replica(leader, partition)
        data = data or batch_of(values, now_ms=self.now_ms)
        info = replica.leader.append(data, required_acks=acks, now_ms=self.now_ms, **more)
        self.written[partition].note(bytes(data))
        self.act(replica)
        self.commit(replica)
        return info.first_offset

    def append_transactional(self, partition: int, sequence: int, *, producer: int = 7) -> int:
        """Append a batch of a producer's open transaction; where it is."""
        data = batch_of(
            [b"t%d" % sequence],
            now_ms=self.now_ms,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        guard = self.replica(self.leaders[partition] or 0, partition).log.begin_transaction_verification(
            producer, sequence=sequence, producer_epoch=0, supports_epoch_bump=False
        )
        return self.append(partition, data=data, verification_guard=guard)

    def abort(self, partition: int, *, producer: int = 7) -> int:
        """Append the marker by which a producer's transaction is aborted."""
        data = build_end_transaction_marker(
            0,
            ControlRecordType.ABORT,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.now_ms,
        )
        return self.append(partition, data=bytearray(data), origin=AppendOrigin.COORDINATOR, transaction_version=1)

    def commit(self, replica: BrokerReplica) -> None:
        """Note what the leader says is committed: it must stay so."""
        log, written = replica.log, self.written[replica.log.partition]
        at = max(written.committed, default=-1)
        offset = max(at + 1, log.local_log_start_offset)
        while offset < log.high_watermark:
            for batch in replica.broker.read(log.partition, offset):
                if last_offset(batch) < log.high_watermark and number(batch, 0, 8) > at:
                    written.commit(number(batch, 0, 8), number(batch, 12, 4))
                offset = last_offset(batch) + 1

    # ---- followers

    def exchange(self, broker: int, partition: int = 0) -> FollowerRequest | None:
        """A follower asks, and hears the answer; what it asked. A build of aux state goes on beside."""
        replica = self.replica(broker, partition)
        if replica.build is not None:
            self._built(replica)
            return None
        if replica.follower.leader is None:
            return None
        request = replica.follower.next_request(self.now_ms)
        if request is None:
            return None
        if isinstance(request, BuildAuxState):
            replica.broker.build(replica, request)
            return request
        leader = self.brokers[replica.follower.leader]
        try:
            if not leader.is_up:
                replica.follower.on_error(request, None, self.now_ms)
            else:
                self._answer(replica, leader.replicas[partition], request)
        except ReplicationError as error:
            replica.follower.on_error(request, error.error, self.now_ms)
        return request

    def _answer(self, replica: BrokerReplica, leader: BrokerReplica, request: FollowerRequest) -> None:
        follower, broker = replica.follower, replica.broker
        match request:
            case FetchRecords():
                fetched = leader.leader.fetch(
                    broker.broker_id, request, max_bytes=1 << 20, now_ms=self.now_ms, broker_epoch=broker.life
                )
                follower.on_answer(request, fetched.read(), self.now_ms)
                self.act(leader)
                self.commit(leader)
            case AskEpochEnd():
                end = leader.leader.end_offset_for_epoch(request.epoch, leader_epoch=request.leader_epoch)
                follower.on_answer(request, end, self.now_ms)
            case AskOffset():
                found = leader.leader.list_offset(request.timestamp, isolation=END, leader_epoch=request.leader_epoch)
                follower.on_answer(request, found, self.now_ms)

    def _built(self, replica: BrokerReplica) -> None:
        assert replica.build is not None
        request, build = replica.build
        if not build.done():
            return
        replica.build = None
        failed = build.cancelled() or build.exception() is not None
        self.builds += not failed
        if replica.leader.is_leading:
            if failed:
                replica.leader.on_build_failed(request, self.now_ms)
            else:
                replica.leader.on_built(request, build.result(), self.now_ms)
            self.act(replica)
        elif failed:
            replica.follower.on_error(request, None, self.now_ms)
        else:
            replica.follower.on_answer(request, build.result(), self.now_ms)

    def settle(self, partition: int = 0, *, seconds: float = 30.0) -> list[FollowerRequest]:
        """Let followers ask until all have the leader's log and its high watermark; what they asked."""
        asked: list[FollowerRequest] = []
        until = self.machine.clock.monotonic_seconds() + seconds
        while not self.is_settled(partition):
            assert self.machine.clock.monotonic_seconds() < until, f"not settled: {self.describe(partition)}"
            for broker in self.brokers.values():
                if broker.is_up:
                    request = self.exchange(broker.broker_id, partition)
                    asked += [] if request is None else [request]
            self.machine.clock.sleep(0.01)
        return asked

    def is_settled(self, partition: int = 0) -> bool:
        leader = self.leaders[partition]
        if leader is None or not self.brokers[leader].is_up:
            return True
        own = self.replica(leader, partition)
        return own.build is None and all(
            each.is_up
            and (replica := each.replicas[partition]).log.log_end_offset == own.log.log_end_offset
            and replica.build is None
            and replica.follower.lag == 0
            and replica.log.log_start_offset >= own.log.log_start_offset
            and replica.log.high_watermark == own.log.high_watermark == own.log.log_end_offset
            for each in self.brokers.values()
            if each.broker_id != leader and each.is_up
        )

    def describe(self, partition: int = 0) -> str:
        """What each broker has, for messages."""
        return "; ".join(
            f"{each.broker_id}: {each.replicas[partition].log.offsets} {each.replicas[partition].epochs} "
            f"{each.replicas[partition].follower.state.name}"
            for each in self.brokers.values()
            if each.is_up
        )

    # ---- the tier, and what is served

    def tier(self, partition: int = 0) -> list[RemoteLogSegmentMetadata]:
        """Copy what may be copied, and let the followers know; the new segments."""
        leader = self.leaders[partition]
        assert leader is not None
        self.brokers[leader].wait_ready(partition)
        copied = self.brokers[leader].copy(partition)
        self.look_up(partition)
        return copied

    def look_up(self, partition: int = 0) -> None:
        """Let the followers read the metadata, and look up what is copied."""
        self.machine.clock.sleep(1.0)
        for broker in self.brokers.values():
            replica = broker.replicas.get(partition)
            if broker.is_up and replica is not None and replica.term is not None and replica.term.role is Role.FOLLOWER:
                broker.wait_ready(partition)
                broker.lookups.run(replica.term)

    def retain(self, partition: int = 0) -> None:
        """Local retention of every broker."""
        for broker in self.brokers.values():
            if broker.is_up:
                broker.replicas[partition].log.delete_old_segments()

    def roll(self, partition: int = 0, *, brokers: Iterable[int] | None = None) -> None:
        """Close the active segments."""
        for each in self.brokers if brokers is None else brokers:
            if self.brokers[each].is_up:
                self.replica(each, partition).log.roll()

    def start(self, broker: int, partition: int = 0) -> int:
        """The first offset of a broker's log that anybody has: by Kafka's rules a leader goes on offering what the tier
        has deleted, until something else expires.
        """
        node = self.brokers[broker]
        log, tip = node.replicas[partition].log, self.partition(partition)
        if not self.manager_config.kafka_semantics:
            return log.log_start_offset
        found = find_log_start_offset(
            epochs_with_records(node.replicas[partition].epochs.items()),
            lambda epoch: node.metadata.list_remote_log_segments(tip, epoch),
            local_log_start_offset=log.local_log_start_offset,
        )
        return max(log.log_start_offset, found)

    def served(self, broker: int, partition: int = 0, *, start: int | None = None) -> Iterator[bytes]:
        """The batches that a consumer is given, from the log's start to its high watermark; each was written so."""
        node = self.brokers[broker]
        log = node.replicas[partition].log
        at = self.start(broker, partition) if start is None else start
        while at < log.high_watermark:
            found = node.read(partition, at)
            assert found, f"broker {broker}: nothing at {at} of {log.offsets}"
            for batch in found:
                if last_offset(batch) < at:
                    continue
                self.written[partition].check(batch, f"broker {broker}")
                assert log.leader_epoch_cache.epoch_for_offset(at) == number(batch, 12, 4), f"the lineage at {at}"
                at = last_offset(batch) + 1
                yield batch

    def check_aborted(self, broker: int, partition: int = 0) -> int:
        """A reader of committed records is told of every aborted transaction of the log, by disk and tier, and of no
        other; their number. Of one that began in front of the log's start a replica may know the part behind it alone.
        """
        node, written = self.brokers[broker], self.written[partition]
        log = node.replicas[partition].log
        at = start = self.start(broker, partition)
        listed = set[tuple[int, int]]()
        while at < log.last_stable_offset:
            batches, aborted = node.fetch(partition, at, FetchIsolation.TXN_COMMITTED)
            assert batches, f"broker {broker}: nothing committed at {at} of {log.offsets}"
            at = last_offset(batches[-1]) + 1
            assert all(first < at for _, first in aborted), f"broker {broker}: {aborted} begin behind {at}"
            listed |= set(aborted)
        known = [written.batches[epoch, base] for base, epoch in sorted(written.committed.items()) if base < at]
        cut, found = set[tuple[int, int]](), 0
        for producer, first, marker in aborted_in(known):
            if first < start:
                cut |= {each for each in listed if each[0] == producer and first <= each[1] <= marker}
            else:
                assert (producer, first) in listed, f"broker {broker}, partition {partition}: {producer} at {first}"
                listed.remove((producer, first))
                found += 1
        assert listed <= cut, f"broker {broker}, partition {partition}: {listed - cut} were not aborted"
        return found

    def values(self, broker: int, partition: int = 0, *, start: int | None = None) -> list[bytes]:
        """The values that a consumer is given."""
        data = b"".join(self.served(broker, partition, start=start))
        return [row["value"] for row in decode(data, columns=["value"]).to_pylist()]

    def check_committed(self, broker: int, partition: int = 0) -> None:
        """A broker serves every batch that was committed, at or behind its log's start."""
        start = self.start(broker, partition)
        found = {number(each, 0, 8): number(each, 12, 4) for each in self.served(broker, partition, start=start)}
        log = self.replica(broker, partition).log
        for offset, epoch in self.written[partition].committed.items():
            if start <= offset < log.high_watermark:
                assert found.get(offset) == epoch, f"broker {broker}: committed offset {offset} is {found.get(offset)}"
