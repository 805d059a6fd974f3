"""The controller: topics, registrations, sessions, elections, in-sync sets. It never crashes, and forgets nothing.

Its rules are Kafka's: eligible leader replicas (KIP-966) are members that left while the in-sync set was below its
minimum, so that they have all that was committed. A broker that stopped uncleanly leaves every in-sync set and every
eligible one before it may lead; was it the last, it leads again as the last known leader, by an unclean election. A
replica in a directory that has failed neither leads nor joins before its broker's next life (KIP-858).
Source: Kafka ReplicationControlManager, PartitionChangeBuilder, BrokerHeartbeatManager, ClusterControlManager.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.cluster_messages import (
    Altered,
    AskAlter,
    AskMetadata,
    Heartbeat,
    HeartbeatTaken,
    Metadata,
    PartitionRemoved,
    PartitionState,
    Register,
    Registered,
    RemovePartition,
    TopicState,
)
from tests.simulation.facts import Judge, TopicFacts
from tests.simulation.messages import (
    AdminAnswer,
    AskLeaders,
    ChangeConfig,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    Leaders,
    Partition,
)
from tests.simulation.metadata_questions import MetadataQuestions
from tests.simulation.network import Answer, Network
from tests.simulation.settings import Settings, TopicSettings
from tests.simulation.trace import Trace
from tierlog.errors import ConfigError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig
from tierlog.remote.api import TopicIdPartition
from tierlog.replication import BrokerState, LeaderAndIsr

_REMOVAL_TIMEOUT_MS: Final = 3_000


@dataclass(slots=True)
class _Broker:
    """A registered broker.

    Attributes:
        offline: The partitions that it has in a directory that has failed.
    """

    epoch: int
    incarnation: int
    is_fenced: bool = True
    is_stopping: bool = False
    heard_ms: int = 0
    offline: frozenset[Partition] = frozenset()

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_stopping


@dataclass(slots=True)
class _Topic:
    """A topic; it stays known when it is deleted.

    Attributes:
        changed: Version of its last change.
    """

    settings: TopicSettings
    generation: int
    topic_id: Uuid
    config: LogConfig
    changed: int = 0
    is_deleted: bool = False

    @property
    def state(self) -> TopicState:
        return TopicState(self.settings.name, self.generation, self.topic_id.raw, self.config, self.is_deleted)


@dataclass(slots=True)
class _Partition:
    """A partition.

    Attributes:
        eligible: Replicas out of the in-sync set that have all that was committed.
        last_leader: The last leader before there was none.
        changed: Version of its last change.
    """

    partition: Partition
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    leader: int | None = None
    eligible: frozenset[int] = frozenset()
    last_leader: int | None = None
    leader_epoch: int = -1
    partition_epoch: int = -1
    changed: int = 0

    @property
    def leader_and_isr(self) -> LeaderAndIsr:
        return LeaderAndIsr(self.leader_epoch, self.partition_epoch, self.replicas, self.in_sync)


class Controller:
    """The controller.

    Args:
        settings: Of the run.
        network: Its calls.
        judge: Is told what is decided.
        trace: Counts.

    Attributes:
        unclean: The partitions that ever had an unclean election.
    """

    def __init__(self, settings: Settings, network: Network, judge: Judge, trace: Trace) -> None:
        self.unclean: set[Partition] = set()
        self._settings = settings
        self._network = network
        self._judge = judge
        self._trace = trace
        self._version = 0
        self._brokers: dict[int, _Broker] = {}
        self._brokers_changed: dict[int, int] = {}
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[Partition, _Partition] = {}
        self._deleted: list[tuple[int, TopicState]] = []
        self._questions = MetadataQuestions(network, self._since)
        self._metadata_leaders: tuple[int | None, ...] = (None,) * settings.metadata_partitions
        self._removals: list[TopicIdPartition] = []
        self._handlers: dict[type, Callable[[Any, Answer], None]] = {
            Register: self._register,
            Heartbeat: self._heartbeat,
            AskMetadata: self._ask_metadata,
            AskAlter: self._alter,
            AskLeaders: self._ask_leaders,
            ElectLeader: self._elect_asked,
            DeleteTopic: self._delete_topic,
            CreateTopic: self._create_topic,
            ChangeConfig: self._change_config,
        }
        network.serve("controller", self._handle)
        self._check_sessions()

    def _handle(self, source: str, request: Any, answer: Answer) -> None:
        self._handlers[type(request)](request, answer)
        self._publish()

    def make_topics(self) -> None:
        """Make all topics of the settings."""
        for each in self._settings.topics:
            self._make_topic(each, 0)
        self._publish()

    # ---- what others look up

    @property
    def is_whole(self) -> bool:
        """Whether each partition has a leader, and all of its replicas that run are in sync."""
        return all(
            each.leader is not None and each.in_sync >= set(self._able(each)) for each in self._partitions.values()
        )

    def may_commit(self, brokers: set[int], lost: set[int]) -> bool:
        """Whether brokers can lead each partition, some of which lost power, with replicas enough to commit."""
        for each in self._partitions.values():
            able = (each.in_sync | each.eligible) - (lost & brokers) or {each.last_leader}
            if not able & brokers or len(brokers & set(each.replicas)) < self._minimum(each):
                return False
        return True

    def active(self) -> set[int]:
        """The brokers that run and may lead."""
        return {each for each in self._brokers if self._is_active(each)}

    def replicas(self, partition: Partition) -> tuple[int, ...]:
        """The brokers that have a partition; none: it was deleted."""
        known = self._partitions.get(partition)
        return () if known is None else known.replicas

    def leaders(self) -> dict[Partition, int | None]:
        """The leader of each partition."""
        return {each.partition: each.leader for each in self._partitions.values()}

    def incarnation(self, broker: int) -> int:
        """The life in which a broker last registered; 0 = none."""
        found = self._brokers.get(broker)
        return 0 if found is None else found.incarnation

    def holders(self, leaving: Collection[int] = ()) -> dict[Partition, list[frozenset[int]]]:
        """Of each partition the replicas that have all that was committed, as far as the controller knows.

        Args:
            leaving: Brokers that may leave in-sync sets: of one that stays at its minimum without them they count for
                nothing. Below it those stay eligible that leave last: there is a set for each of which these may be.
        """
        found = dict[Partition, list[frozenset[int]]]()
        for each in self._partitions.values():
            stay, leave = each.in_sync.difference(leaving), each.in_sync.intersection(leaving)
            last = itertools.combinations(sorted(leave), min(len(leave), max(0, self._minimum(each) - len(stay))))
            found[each.partition] = [stay | each.eligible | {*some} for some in last]
        return found

    def lead_by_others(self, topic: str, number: int, unsound: Collection[int]) -> None:
        """Elect a leader that is sound, if the present one is not and there is one."""
        for each in list(self._partitions.values()):
            if each.partition[:2] == (topic, number) and each.leader in unsound:
                sound = [broker for broker in each.replicas if broker in each.in_sync and broker not in unsound]
                found = next((broker for broker in sound if broker in self._able(each)), None)
                if found is not None:
                    self._lead(each, found, is_unclean=False)
                    self._changed(each)
        self._publish()

    def topic_id_partition(self, partition: Partition) -> TopicIdPartition:
        """The partition with its topic's id."""
        return TopicIdPartition(topic_id_of(partition.topic, partition.generation), partition.topic, partition.number)

    # ---- topics

    def _make_topic(self, settings: TopicSettings, generation: int) -> None:
        config = LogConfig.from_kafka(dict(settings.config))
        topic = _Topic(settings, generation, topic_id_of(settings.name, generation), config, self._bump())
        self._topics[settings.name] = topic
        count = self._settings.brokers
        for number in range(settings.partitions):
            first = number + len(settings.name) + generation
            replicas = tuple((first + each) % count + 1 for each in range(settings.replication))
            partition = Partition(settings.name, number, generation)
            made = _Partition(partition, replicas, frozenset(replicas))
            self._partitions[partition] = made
        self._tell_topic(topic)
        for each in self._partitions_of(topic):
            active = frozenset(self._able(each))
            each.in_sync = active or frozenset(each.replicas[:1])
            each.leader = next((broker for broker in each.replicas if broker in active), None)
            each.last_leader = each.replicas[0]
            each.leader_epoch = each.partition_epoch = 0
            self._changed(each)

    def _partitions_of(self, topic: _Topic) -> list[_Partition]:
        name = topic.settings.name
        return [
            self._partitions[Partition(name, number, topic.generation)] for number in range(topic.settings.partitions)
        ]

    def _tell_topic(self, topic: _Topic) -> None:
        facts = None if topic.is_deleted else _facts(topic, tuple(each.replicas for each in self._partitions_of(topic)))
        self._judge.topic_changed(topic.settings.name, topic.generation, facts, self._network.now_ms)

    def _delete_topic(self, request: DeleteTopic, answer: Answer) -> None:
        topic = self._topics.get(request.topic)
        if topic is None or topic.is_deleted:
            answer(AdminAnswer("UNKNOWN_TOPIC_OR_PARTITION"))
            return
        topic.is_deleted, topic.changed = True, self._bump()
        self._deleted.append((topic.changed, topic.state))
        for each in self._partitions_of(topic):
            del self._partitions[each.partition]
            if topic.config.remote_storage_enable:
                self._removals.append(self.topic_id_partition(each.partition))
                self._remove(self._removals[-1])
        self._tell_topic(topic)
        answer(AdminAnswer(None))

    def _remove(self, partition: TopicIdPartition) -> None:
        """Have a broker mark a partition for removal from the tier, until one has."""
        active = [broker for broker in sorted(self._brokers) if self._is_active(broker)]
        if not active:
            self._network.after(_REMOVAL_TIMEOUT_MS, lambda: self._remove(partition))
            return
        broker = active[self._version % len(active)]

        def then(answer: PartitionRemoved | None) -> None:
            if answer is None or answer.error is not None:
                self._network.after(500, lambda: self._remove(partition))
            else:
                self._removals.remove(partition)

        request = RemovePartition(partition)
        self._network.call("controller", f"broker-{broker}", request, then, timeout_ms=_REMOVAL_TIMEOUT_MS)

    def _create_topic(self, request: CreateTopic, answer: Answer) -> None:
        topic = self._topics.get(request.topic)
        if topic is not None and not topic.is_deleted:
            answer(AdminAnswer("TOPIC_ALREADY_EXISTS"))
            return
        if topic is None:
            answer(AdminAnswer("INVALID_TOPIC_EXCEPTION"))
            return
        self._make_topic(topic.settings, topic.generation + 1)
        answer(AdminAnswer(None))

    def _change_config(self, request: ChangeConfig, answer: Answer) -> None:
        topic = self._topics.get(request.topic)
        if topic is None or topic.is_deleted:
            answer(AdminAnswer("UNKNOWN_TOPIC_OR_PARTITION"))
            return
        try:
            config = topic.config.with_changes(dict(request.changes))
        except ConfigError:
            answer(AdminAnswer("INVALID_CONFIG"))
            return
        is_other_minimum = config.min_insync_replicas != topic.config.min_insync_replicas
        topic.config, topic.changed = config, self._bump()
        for each in self._partitions_of(topic) if is_other_minimum else ():
            if each.in_sync:
                each.eligible = frozenset()  # of another minimum: they need not have all that was committed
        self._tell_topic(topic)
        answer(AdminAnswer(None))

    # ---- brokers

    def _is_active(self, broker: int) -> bool:
        found = self._brokers.get(broker)
        return found is not None and found.is_active

    def _register(self, request: Register, answer: Answer) -> None:
        known = self._brokers.get(request.broker)
        if known is not None and known.incarnation == request.incarnation:
            answer(Registered(None, known.epoch))
            return
        if known is not None and (known.is_active or request.incarnation < known.incarnation):  # late, of an ended life
            answer(Registered("DUPLICATE_BROKER_REGISTRATION"))
            return
        version = self._bump()
        is_clean = known is not None and request.clean_epoch == known.epoch
        self._brokers[request.broker] = _Broker(version, request.incarnation, heard_ms=self._network.now_ms)
        self._broker_changed(request.broker)
        self._trace.note("registered", request.broker, version, "clean" if is_clean else "unclean")
        self._leave(request.broker, is_unclean=not is_clean)
        answer(Registered(None, version))

    def _heartbeat(self, request: Heartbeat, answer: Answer) -> None:
        broker = self._brokers.get(request.broker)
        if broker is None or broker.epoch != request.epoch:
            answer(HeartbeatTaken("STALE_BROKER_EPOCH"))
            return
        broker.heard_ms = self._network.now_ms
        if broker.is_fenced and not request.wants_to_stop and request.version >= broker.epoch:
            broker.is_fenced = False
            self._broker_changed(request.broker)
            self._returned(request.broker)
        if request.wants_to_stop and not broker.is_stopping:
            broker.is_stopping = True
            self._broker_changed(request.broker)
            self._leave(request.broker, is_unclean=False)
        if request.offline != broker.offline:
            broker.offline = request.offline
            self._leave(request.broker, is_unclean=False, of=broker.offline)
        leads = any(each.leader == request.broker for each in self._partitions.values())
        answer(HeartbeatTaken(None, broker.is_fenced, broker.is_stopping and not leads))

    def _check_sessions(self) -> None:
        late_ms = self._network.now_ms - self._settings.session_timeout_ms
        for broker_id, broker in sorted(self._brokers.items()):
            if not broker.is_fenced and broker.heard_ms < late_ms:
                broker.is_fenced = True
                self._broker_changed(broker_id)
                self._trace.note("fenced", broker_id)
                self._leave(broker_id, is_unclean=False)
        self._publish()
        self._network.after(self._settings.heartbeat_interval_ms / 2, self._check_sessions)

    def _broker_changed(self, broker: int) -> None:
        self._brokers_changed[broker] = self._bump()
        active = [each for each in sorted(self._brokers) if self._is_active(each)]
        count = self._settings.metadata_partitions
        self._metadata_leaders = tuple(active[at % len(active)] if active else None for at in range(count))

    def _leave(self, broker: int, *, is_unclean: bool, of: Collection[Partition] | None = None) -> None:
        """Take a broker out of the in-sync sets, of these partitions or of all, and let others lead."""
        for each in list(self._partitions.values()):
            if broker not in each.replicas or (of is not None and each.partition not in of):
                continue
            before = each.in_sync, each.eligible, each.leader
            self._set_in_sync(each, each.in_sync - {broker})
            if is_unclean:
                each.eligible -= {broker}
            if each.leader == broker:
                self._elect(each)
            if (each.in_sync, each.eligible, each.leader) != before:
                self._changed(each)

    def _returned(self, broker: int) -> None:
        """Let a broker lead what nobody leads."""
        for each in list(self._partitions.values()):
            if broker in each.replicas and each.leader is None and self._elect(each):
                self._changed(each)

    # ---- elections

    def _able(self, each: _Partition) -> list[int]:
        """The replicas that run, and whose directory has not failed."""
        brokers = self._brokers
        active = (broker for broker in each.replicas if self._is_active(broker))
        return [broker for broker in active if each.partition not in brokers[broker].offline]

    def _minimum(self, partition: _Partition) -> int:
        config = self._topics[partition.partition.topic].config
        return min(config.min_insync_replicas, len(partition.replicas))

    def _set_in_sync(self, each: _Partition, members: Iterable[int]) -> None:
        """Set the in-sync set; below its minimum, those that leave stay eligible."""
        wanted = frozenset(members)
        left = (each.in_sync | each.eligible) - wanted
        each.in_sync = wanted
        each.eligible = left if len(wanted) < self._minimum(each) else frozenset()

    def _elect(self, each: _Partition) -> bool:
        """Elect a leader, or none; whether there is one."""
        active = self._able(each)
        before = each.leader
        config = self._topics[each.partition.topic].config
        is_unclean = False
        found = next((broker for broker in active if broker in each.in_sync), None)
        if found is None:
            found = next((broker for broker in active if broker in each.eligible), None)
        if found is None and not each.in_sync and not each.eligible and each.last_leader in active:
            found, is_unclean = each.last_leader, True
        if found is None and config.unclean_leader_election_enable and active:
            found, is_unclean = active[0], True
        if before is not None:
            each.last_leader = before
        self._lead(each, found, is_unclean=is_unclean)
        return found is not None

    def _lead(self, each: _Partition, leader: int | None, *, is_unclean: bool) -> None:
        if leader is None and each.leader is None:
            return
        if is_unclean and leader is not None:
            each.in_sync, each.eligible = frozenset((leader,)), frozenset()
        elif leader is not None and leader not in each.in_sync:
            self._set_in_sync(each, {leader})
        each.leader = leader
        each.leader_epoch += 1
        if is_unclean:
            self._trace.note("unclean election", str(each.partition), leader)
            self.unclean.add(each.partition)
        self._tell(each, is_unclean=is_unclean)

    def _changed(self, each: _Partition) -> None:
        """A partition is another one: its epoch rises."""
        each.partition_epoch += 1
        each.changed = self._bump()
        self._tell(each, is_unclean=False)

    def _tell(self, each: _Partition, *, is_unclean: bool) -> None:
        self._trace.note(
            "elected", str(each.partition), each.leader, each.leader_epoch, sorted(each.in_sync), sorted(each.eligible)
        )
        self._judge.elected(
            each.partition, each.leader_epoch, each.leader, each.in_sync, is_unclean, self._network.now_ms
        )

    def elect_unclean(self, partition: Partition) -> bool:
        """Elect any running replica, where there is no leader; whether one is."""
        each = self._partitions.get(partition)
        if each is None or each.leader is not None:
            return False
        active = self._able(each)
        if not active:
            return False
        is_clean = self._elect(each)
        if not is_clean:
            self._lead(each, active[self._version % len(active)], is_unclean=True)
        self._changed(each)
        self._publish()
        return True

    def _elect_asked(self, request: ElectLeader, answer: Answer) -> None:
        each = self._partitions.get(request.partition)
        if each is None:
            answer(AdminAnswer("UNKNOWN_TOPIC_OR_PARTITION"))
        elif request.is_unclean:
            answer(AdminAnswer(None if self.elect_unclean(request.partition) else "ELECTION_NOT_NEEDED"))
        elif each.leader == request.broker:
            answer(AdminAnswer("ELECTION_NOT_NEEDED"))
        elif request.broker in each.in_sync and request.broker in self._able(each):
            self._lead(each, request.broker, is_unclean=False)
            self._changed(each)
            answer(AdminAnswer(None))
        else:
            answer(AdminAnswer("ELIGIBLE_LEADERS_NOT_AVAILABLE"))

    def _alter(self, request: AskAlter, answer: Answer) -> None:
        each = self._partitions.get(request.partition)
        broker = self._brokers.get(request.broker)
        if broker is None or broker.epoch != request.broker_epoch:
            answer(Altered("STALE_BROKER_EPOCH"))
            return
        if each is None:
            answer(Altered("UNKNOWN_TOPIC_OR_PARTITION"))
            return
        if request.leader_epoch < each.leader_epoch:
            answer(Altered("FENCED_LEADER_EPOCH"))
            return
        if each.leader != request.broker or request.leader_epoch > each.leader_epoch:
            answer(Altered("INVALID_REQUEST"))
            return
        if request.partition_epoch != each.partition_epoch:
            answer(Altered("INVALID_UPDATE_VERSION"))
            return
        if request.version < self._topics[request.partition.topic].changed:
            answer(Altered("NOT_CONTROLLER"))  # it may go by another minimum: it asks again
            return
        members = [member for member, _ in request.in_sync]
        if request.broker not in members or not set(members) <= set(each.replicas):
            answer(Altered("INVALID_REQUEST"))
            return
        if not all(self._may_join(each, member, epoch) for member, epoch in request.in_sync):
            answer(Altered("INELIGIBLE_REPLICA"))
            return
        self._set_in_sync(each, members)
        self._changed(each)
        answer(Altered(None, each.leader_and_isr))

    def _may_join(self, each: _Partition, broker: int, epoch: int) -> bool:
        return broker in self._able(each) and epoch in (-1, self._brokers[broker].epoch)

    # ---- who asks for metadata

    def _bump(self) -> int:
        self._version += 1
        return self._version

    def _ask_metadata(self, request: AskMetadata, answer: Answer) -> None:
        self._questions.ask(request.version, self._version, answer)

    def _publish(self) -> None:
        self._questions.publish(self._version)

    def _since(self, version: int) -> Metadata:
        deleted = tuple(state for changed, state in self._deleted if changed > version)
        topics = tuple(each.state for each in self._topics.values() if each.changed > version and not each.is_deleted)
        partitions = tuple(
            PartitionState(each.partition, each.leader, each.leader_and_isr, each.eligible)
            for each in self._partitions.values()
            if each.changed > version
        )
        brokers = tuple(
            (each, BrokerState(broker.epoch, broker.is_fenced, broker.is_stopping))
            for each, broker in sorted(self._brokers.items())
            if self._brokers_changed[each] > version
        )
        return Metadata(self._version, (*deleted, *topics), partitions, brokers, self._metadata_leaders)

    def _ask_leaders(self, _: AskLeaders, answer: Answer) -> None:
        found = self._partitions.values()
        answer(
            Leaders(
                {each.partition: (each.leader, each.leader_epoch) for each in found},
                {each.partition: each.replicas for each in found},
                {topic.name: topic.generation for _, topic in self._deleted},
            )
        )


def topic_id_of(name: str, generation: int) -> Uuid:
    """The id of a topic that was made so often."""
    return Uuid(hashlib.md5(f"{name} {generation}".encode(), usedforsecurity=False).digest())


def _facts(topic: _Topic, replicas: tuple[tuple[int, ...], ...]) -> TopicFacts:
    config = topic.config
    return TopicFacts(
        partitions=topic.settings.partitions,
        topic_id=topic.topic_id.raw,
        replicas=replicas,
        min_insync_replicas=config.min_insync_replicas,
        is_compacted=config.is_compacted,
        is_tiered=config.remote_storage_enable,
        is_copy_disabled=config.remote_log_copy_disable,
        segment_bytes=config.segment_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        local_retention_ms=config.local_retention_ms,
        local_retention_bytes=config.local_retention_bytes,
        flush_messages=config.flush_messages,
        delete_retention_ms=config.delete_retention_ms,
    )
