"""A campaign over brokers with a tier, from a seed: producers, elections, crashes, wiped followers, copies, expiry.

Members of the in-sync set alone are elected, two are needed for a commit, and a member that loses its power leaves the
set; the last one is stopped cleanly. So nothing that was committed may be lost, whatever happens. The tail that was not
committed is cut on the way, as elections have it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from tests.scenarios.two_brokers import Cluster, batch_of
from tests.support.log_consumer import last_offset, number
from tests.support.tiered_brokers import CONFIG, TOPIC, BrokerReplica
from tierlog.errors import TierlogError
from tierlog.log.formats.leader_epochs import encode_leader_epochs
from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.remote.api import RemoteLogSegmentState, TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.partition_stops import StopPartition
from tierlog.replication import LeaderSettings, ReplicationError
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Future

PRODUCERS: Final = 3
#: How often each thing is done.
_WEIGHTS: Final = {
    "produce": 30,
    "transact": 30,
    "replicate": 100,
    "retain": 8,
    "read": 10,
    "search": 5,
    "delete_topic": 1,
    "prefer": 3,
    "crash": 1,
    "wipe": 1,
    "forget": 1,
    "wait": 4,
}
#: What a copy or a read may end with, where its log was cut, its broker was stopped or lost its power.
_MAY_END: Final = (TierlogError, LookupError, TimeoutError)


@dataclass
class CampaignProducer:
    """A transactional producer of one partition, with its coordinator."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False

    def begin_anew(self) -> None:
        """Another instance: what the last one left open is aborted by its first marker."""
        self.epoch, self.sequence = self.epoch + 1, 0


@dataclass
class Campaign:
    """One campaign. ``run`` makes it.

    Attributes:
        counts: How often each thing happened: of a run that did nothing, nothing can be concluded.
        cluster_type: What makes the cluster.
        has_remover: Whether deleted topics go from the tier by the KIP's remover; else with the stop of their leaders.
        has_leftovers: Whether a topic's deletion in the tier was cut short.
    """

    seed: int
    brokers: int = 2
    partitions: int = 4
    as_kafka: bool = False
    steps: int = 1500
    cluster_type: Callable[..., Cluster] = Cluster
    has_remover: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    has_leftovers: bool = False

    def settings(self) -> dict[str, Any]:
        """What the brokers of a campaign have in common."""
        return {
            "config": replace(CONFIG, segment_bytes=700, retention_bytes=random.Random(self.seed).choice((-1, 1500))),
            "manager_config": RemoteLogManagerConfig(kafka_semantics=self.as_kafka, task_interval_ms=500),
            "leader_settings": LeaderSettings(min_insync_replicas=2, replica_lag_time_max_ms=3000),
        }

    def run(self) -> None:
        """Do all steps, heal everything, and compare."""
        brokers = range(1, self.brokers + 1)
        with self.cluster_type(
            self.seed, brokers=brokers, partitions=self.partitions, is_managed=True, **self.settings()
        ) as cluster:
            self.begin(cluster, random.Random(self.seed))
            for each in range(self.partitions):
                cluster.elect(1 + each % self.brokers, each)
                cluster.settle(each)
            for _ in range(self.steps):
                self.step()
                if self.rng.random() < 0.2:
                    cluster.machine.clock.sleep(0.01)
            self.heal()
            self.compare()
            self.counts["builds"] += cluster.builds

    def begin(self, cluster: Cluster, rng: random.Random, *, first_producer: int = 0) -> None:
        """Take a cluster."""
        self.cluster, self.rng = cluster, rng
        self.stops: list[tuple[int, Future[Mapping[TopicIdPartition, Exception]]]] = []
        self.marks: list[tuple[TopicIdPartition, Future[None]]] = []
        self.producers = [
            [CampaignProducer(first_producer + 10 * each + at) for at in range(PRODUCERS)]
            for each in range(self.partitions)
        ]

    def step(self, *, without: Sequence[str] = ()) -> None:
        """Do one thing."""
        names = [name for name in _WEIGHTS if name not in without]
        (name,) = self.rng.choices(names, [_WEIGHTS[each] for each in names])
        getattr(self, name)()

    # ---- choices

    def _partition(self) -> int:
        return self.rng.randrange(self.partitions)

    def _leader(self, partition: int) -> BrokerReplica | None:
        broker = self.cluster.leaders[partition]
        if broker is None or not self.cluster.brokers[broker].is_up:
            return None
        replica = self.cluster.replica(broker, partition)
        return replica if replica.leader.is_leading and replica.build is None else None

    def _up(self) -> list[int]:
        return [each for each, broker in self.cluster.brokers.items() if broker.is_up]

    # ---- producers

    def produce(self) -> None:
        partition = self._partition()
        values = [b"%d" % self.rng.getrandbits(60) * self.rng.randrange(1, 6) for _ in range(self.rng.randrange(1, 4))]
        self._append(partition, batch_of(values, now_ms=self.cluster.now_ms))

    def _append(self, partition: int, data: bytearray, **more: object) -> bool:
        if self._leader(partition) is None:
            return False
        try:
            self.cluster.append(partition, data=data, acks=-1, **more)
        except ReplicationError:
            return False
        self.counts["appends"] += 1
        return True

    def transact(self) -> None:
        """One step of a transaction: a batch, or its end."""
        partition = self._partition()
        producer = self.rng.choice(self.producers[partition])
        if producer.is_open and self.rng.random() < 0.6:
            self._end(partition, producer, commits=self.rng.random() < 0.5)
            return
        leader = self._leader(partition)
        if leader is None:
            return
        data = batch_of(
            [b"t%d" % self.rng.getrandbits(40)],
            now_ms=self.cluster.now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=True,
        )
        try:
            guard = leader.log.begin_transaction_verification(
                producer.producer_id,
                sequence=producer.sequence,
                producer_epoch=producer.epoch,
                supports_epoch_bump=False,
            )
            if self._append(partition, data, verification_guard=guard):
                producer.sequence, producer.is_open = producer.sequence + 1, True
        except AppendRefusedError:  # a failover lost what it had written
            self._end(partition, producer, commits=False)
            producer.begin_anew()

    def _end(self, partition: int, producer: CampaignProducer, *, commits: bool) -> None:
        marker = build_end_transaction_marker(
            0,
            ControlRecordType.COMMIT if commits else ControlRecordType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            timestamp_ms=self.cluster.now_ms,
        )
        try:
            if self._append(partition, bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=1):
                producer.is_open = False
                self.counts["commits" if commits else "aborts"] += 1
        except AppendRefusedError:
            producer.begin_anew()

    def _end_open(self) -> None:
        """The coordinator ends what is open: else nothing behind it is copied."""
        for partition in range(self.partitions):
            leader = self._leader(partition)
            for entry in () if leader is None else leader.log.open_transactions():
                self._end(partition, CampaignProducer(entry.producer_id, entry.producer_epoch), commits=False)
                for producer in self.producers[partition]:
                    if producer.producer_id == entry.producer_id:
                        producer.is_open = False
                        producer.begin_anew()

    # ---- brokers

    def replicate(self) -> None:
        for _ in range(3):
            broker = self.rng.choice(self._up())
            self.cluster.exchange(broker, self._partition())

    def prefer(self) -> None:
        """Another member of the in-sync set is elected; the old leader's tail is cut."""
        partition = self._partition()
        state, leader = self.cluster.states[partition], self.cluster.leaders[partition]
        others = [each for each in state.in_sync_replicas if each != leader and self.cluster.brokers[each].is_up]
        if others:
            self.cluster.elect(self.rng.choice(others), partition, in_sync=state.in_sync_replicas)
            self.counts["elections"] += 1

    def crash(self) -> None:
        """Power goes, or a clean stop; the broker starts again at once or later."""
        up = self._up()
        if len(up) < 2:
            self.start()
            return
        broker = self.rng.choice(up)
        is_last = any(state.in_sync_replicas == {broker} for state in self.cluster.states.values())
        if is_last:
            self.cluster.brokers[broker].stop()
        else:
            self.cluster.lose_power(broker, SeededRng(self.rng.getrandbits(32)))
        self.counts["stops" if is_last else "crashes"] += 1
        self.cluster.leave(broker)
        if self.rng.random() < 0.7:
            self.start()

    def start(self) -> None:
        for each, broker in self.cluster.brokers.items():
            if not broker.is_up:
                broker.start()
                self.cluster.join(each)

    def wipe(self) -> None:
        """A follower loses the disk of a partition: it is not in sync any more."""
        partition = self._partition()
        state, leader = self.cluster.states[partition], self.cluster.leaders[partition]
        followers = [each for each in self._up() if each != leader]
        if not followers or leader is None:
            return
        broker = self.rng.choice(followers)
        if state.in_sync_replicas == {broker}:
            return
        self.cluster.elect(leader, partition, in_sync=state.in_sync_replicas - {broker})
        self.cluster.brokers[broker].wipe(partition)
        self.cluster.hear(broker, partition)
        self.counts["wipes"] += 1

    def forget(self) -> None:
        """A broker stops, and starts without the lineage of what it has in the tier alone, as a Kafka that was killed
        while it began from there leaves it.
        """
        up = self._up()
        if len(up) < 2:
            return
        broker = self.cluster.brokers[self.rng.choice(up)]
        lineages = {}
        for log in (replica.log for replica in broker.replicas.values()):
            epochs = log.leader_epoch_cache.epochs.truncate_from_start(log.local_log_start_offset)
            lineages[f"{log.folder}/{LEADER_EPOCH_CHECKPOINT}"] = epochs
        broker.stop()
        for path, epochs in lineages.items():
            broker.files.write_whole(path, encode_leader_epochs(epochs))
        self.cluster.leave(broker.broker_id)
        broker.start()
        self.counts["lineages lost"] += sum(replica.log.must_be_rebuilt for replica in broker.replicas.values())
        self.cluster.join(broker.broker_id)

    def wait(self) -> None:
        self.cluster.machine.clock.sleep(self.rng.choice((0.1, 1.0, 4.0)))
        for broker in self.cluster.brokers.values():
            for replica in broker.replicas.values() if broker.is_up else ():
                replica.leader.tick(self.cluster.now_ms)
                self.cluster.act(replica)

    # ---- the tier

    def retain(self) -> None:
        broker = self.cluster.brokers[self.rng.choice(self._up())]
        before = sum(len(each.log.log_segments()) for each in broker.replicas.values())
        for replica in broker.replicas.values():
            replica.log.delete_old_segments()
        self.counts["segments gone here"] += before - sum(
            len(each.log.log_segments()) for each in broker.replicas.values()
        )

    def read(self) -> None:
        """A consumer reads somewhere, at any broker: what it gets was written."""
        partition, broker = self._partition(), self.cluster.brokers[self.rng.choice(self._up())]
        log = broker.replicas[partition].log
        if log.must_be_rebuilt or log.log_start_offset >= log.high_watermark:
            return
        offset = self.rng.randrange(log.log_start_offset, log.high_watermark)
        try:
            found = broker.read(partition, offset)
        except _MAY_END:
            return
        for batch in found:
            self.cluster.written[partition].check(batch, f"broker {broker.broker_id}, from {offset}")
        self.counts["reads in the tier" if offset < log.local_log_start_offset else "reads here"] += 1

    def search(self) -> None:
        """A consumer asks for an offset by time: where that record is, and none of that time in front of it."""
        partition, broker = self._partition(), self.cluster.brokers[self.rng.choice(self._up())]
        log, manager = broker.replicas[partition].log, broker.manager
        if log.must_be_rebuilt or manager is None:
            return
        now_ms = self.cluster.now_ms
        timestamp = now_ms - self.rng.randrange(20_000)
        try:
            found = manager.list_offsets(self.cluster.partition(partition), timestamp).result(60)
        except _MAY_END:
            return
        self.counts["searches"] += 1
        if found is not None:
            assert timestamp <= found.timestamp_ms <= now_ms
            assert found.offset >= 0

    # ---- topics

    def delete_topic(self) -> None:
        """Now and then a topic is made anew."""
        if self.rng.random() >= 0.7:
            self.make_anew()

    def make_anew(self) -> None:
        """A partition's topic is deleted everywhere, under readers and copies, and made anew under another id."""
        cluster, partition = self.cluster, self._partition()
        leader, before = cluster.leaders[partition], cluster.begin_generation(partition)
        self.producers[partition] = [CampaignProducer(10 * partition + at) for at in range(PRODUCERS)]
        for each in self._up():
            broker = cluster.brokers[each]
            assert broker.manager is not None
            broker.replicas[partition].end_term()
            deletes = each == leader and not self.has_remover
            stop = StopPartition(before, delete_local_log=True, delete_remote_log=deletes, stop_metadata=True)
            self.stops.append((each, broker.manager.stop_partitions([stop])))
            broker.directory.delete_log(TOPIC, partition)
            broker.open(partition)
        up = self._up()
        cluster.elect(self.rng.choice(up), partition, in_sync=up)
        self.counts["topics deleted"] += 1
        if self.has_remover:
            self.remove(before)
        else:
            self.has_leftovers |= leader is None

    def remove(self, partition: TopicIdPartition) -> None:
        """The controller has a deleted partition removed from the tier, by the broker that leads its metadata."""
        manager = self.cluster.brokers[1].manager
        assert manager is not None
        self.marks.append((partition, manager.delete_partition(partition)))

    # ---- the end

    def heal(self) -> None:
        """Everything is up, in sync and copied."""
        cluster = self.cluster
        self.start()
        for _, stopping in self.stops:
            failed = stopping.exception(600) is not None or bool(stopping.result())
            self.has_leftovers |= failed and not self.has_remover  # its broker was stopped meanwhile, as in Kafka
        for partition in range(self.partitions):
            if self._leader(partition) is None:
                state = cluster.states[partition]
                cluster.elect(min(state.in_sync_replicas), partition, in_sync=state.in_sync_replicas)
            cluster.settle(partition, seconds=120)
        until = cluster.machine.clock.monotonic_seconds() + 300
        while any(
            leader is not None and leader.log.open_transactions()
            for leader in map(self._leader, range(self.partitions))
        ):
            assert cluster.machine.clock.monotonic_seconds() < until, "a transaction cannot be ended"
            self._end_open()
            for partition in range(self.partitions):
                cluster.settle(partition, seconds=120)
                for broker in cluster.brokers:
                    cluster.exchange(broker, partition)
        until = cluster.machine.clock.monotonic_seconds() + 300
        while not all(self._is_copied(each) for each in range(self.partitions)):
            assert cluster.machine.clock.monotonic_seconds() < until, "the tier lags for ever"
            cluster.machine.clock.sleep(1)
            for partition in range(self.partitions):  # a follower looks from its log start on, which its leader tells
                for broker in cluster.brokers:
                    cluster.exchange(broker, partition)
        cluster.machine.clock.sleep(5)
        for partition in range(self.partitions):
            cluster.retain(partition)
        cluster.machine.clock.sleep(5)  # a log starts later where the tier has nothing of what went here
        for partition in range(self.partitions):
            cluster.settle(partition, seconds=120)
        for broker in cluster.brokers.values():
            assert broker.manager is not None
            for name in ("copy_bytes", "copy_errors", "delete_requests", "build_aux_state_errors"):
                self.counts[name] += int(broker.manager.metrics.count(name, TOPIC))

    def _is_copied(self, partition: int) -> bool:
        """Whether every broker knows that all that may be copied is."""
        for broker in self.cluster.brokers.values():
            log = broker.replicas[partition].log
            leader = self._leader(partition)
            assert leader is not None
            closed = leader.log.closed_segments()
            if closed and log.highest_offset_in_remote_storage < closed[-1][1] - 1 >= log.log_start_offset:
                return False
        return True

    def compare(self) -> None:
        """Every broker serves what was committed, and knows the same; the store has what the metadata own."""
        cluster = self.cluster
        for partition in range(self.partitions):
            brokers = list(cluster.brokers.values())
            for broker in brokers:
                cluster.check_committed(broker.broker_id, partition)
            first, *others = (broker.replicas[partition] for broker in brokers)
            start = max(each.log.log_start_offset for each in (first, *others))
            for other in others:
                assert _lineage(first, start) == _lineage(other, start), cluster.describe(partition)
                assert _producers(first) == _producers(other), f"producers of partition {partition}"
            self._compare_reads(partition)
        owned = {
            each.remote_log_segment_id.id: each.state
            for partition in range(self.partitions)
            for each in cluster.brokers[1].metadata.list_remote_log_segments(cluster.partition(partition))
        }
        stored = cluster.stored_ids()
        finished = {each for each, state in owned.items() if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
        assert finished <= stored, "what the metadata own is in the store"
        if not self.has_leftovers:
            assert stored <= set(owned), "and nothing else"

    def _compare_reads(self, partition: int) -> None:
        """All brokers serve the same from the greatest log start on."""
        cluster = self.cluster
        start = max(cluster.start(broker, partition) for broker in cluster.brokers)
        if start >= cluster.replica(1, partition).log.high_watermark:
            return
        served = [
            [each for each in cluster.served(broker, partition, start=start) if last_offset(each) >= start]
            for broker in cluster.brokers
        ]
        assert all(each == served[0] for each in served), f"partition {partition}"
        for broker in cluster.brokers:
            self.counts["aborted transactions"] += cluster.check_aborted(broker, partition)
        offsets = [number(each, 0, 8) for each in served[0]]
        assert offsets == sorted(set(offsets)), "each offset once"


def _lineage(replica: BrokerReplica, start: int) -> dict[int, int]:
    """The epochs that have records from an offset on."""
    log = replica.log
    return dict(log.leader_epoch_cache.epoch_entries_in_range(start, log.log_end_offset))


def _producers(replica: BrokerReplica) -> dict[int, tuple[int, int, int]]:
    """The producers that have a record behind the log's start: a replica that began there knows no others."""
    return {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
        for entry in replica.log._contents.producers.snapshot()
        if entry.last_offset >= replica.log.log_start_offset
    }


def campaign(seed: int, **more: Any) -> Campaign:
    """Run a campaign; how it went."""
    made = partial(Campaign, seed)(**more)  # type: ignore[arg-type]
    made.run()
    return made
