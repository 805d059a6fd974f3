"""An administrator: records are deleted, topics deleted and made again, configurations changed, leaders preferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.client import RETRY_MS, Client, Network, broker_name
from tests.simulation.facts import Judge
from tests.simulation.messages import (
    AdminAnswer,
    ChangeConfig,
    CreateTopic,
    DeletedRecords,
    DeleteRecords,
    DeleteTopic,
    ElectLeader,
    ListedOffset,
    ListOffset,
    Partition,
)
from tests.simulation.settings import Settings, TopicSettings

CONTROLLER: Final = "controller"
_LATEST: Final = -1
_TRIES: Final = 20
#: After which time a topic is tiered again that was not for a while: a run has to copy something.
_OFF_MS: Final = (3_000, 15_000)
#: By key: what a tiered topic may be changed to.
_CHANGES: Final = (
    ("retention.ms", ("-1", "8000", "20000")),
    ("retention.bytes", ("-1", "6000", "30000")),
    ("local.retention.bytes", ("-2", "0", "3000")),
    ("local.retention.ms", ("-2", "500", "4000")),
    ("internal.segment.bytes", ("800", "2000")),
    ("segment.ms", ("3000", "30000")),
)


class Admin(Client):
    """An administrator, who does what the nemesis says."""

    def __init__(self, name: str, settings: Settings, network: Network, judge: Judge) -> None:
        super().__init__(name, settings, network, judge)
        self._under_way = 0
        self._topics = {topic.name: topic for topic in settings.topics}
        self._changed: dict[str, dict[str, str]] = {name: dict(topic.config) for name, topic in self._topics.items()}

    def begin(self) -> None:
        """Watch who leads."""
        self.known.refresh_at_times()
        self.after(300, self.begin)

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def _partition(self) -> Partition | None:
        partitions = self.known.partitions(tuple(self._topics))
        return self.chance.one_of(partitions) if partitions else None

    def _request(self, request: object, then: Callable[[], None] | None = None, tries: int = _TRIES) -> None:
        """Ask the controller until it has answered."""
        self._under_way += 1

        def answered(answer: AdminAnswer | None) -> None:
            self._under_way -= 1
            if answer is None and tries > 1:
                self._request(request, then, tries - 1)
            elif then is not None:
                then()

        self.ask(CONTROLLER, request, answered)

    # ---- what the nemesis has done

    def prefer_leader(self, partition: Partition | None = None, broker: int | None = None) -> None:
        """Another member of the in-sync set leads a partition, or this one; None: any."""
        partition = partition or self._partition()
        if partition in self.known.replicas:
            leader, _ = self.known.leader(partition)
            others = [each for each in self.known.replicas[partition] if each != leader]
            if others:
                self._request(ElectLeader(partition, broker or self.chance.one_of(others)))

    def elect_unclean(self) -> None:
        """Any replica that runs leads a partition that nobody leads, in sync or not."""
        led_by_none = [each for each, (leader, _) in sorted(self.known.leaders.items()) if leader is None]
        if led_by_none:
            partition = self.chance.one_of(led_by_none)
            broker = self.chance.one_of(self.known.replicas[partition])
            self._request(ElectLeader(partition, broker, is_unclean=True))

    def replace_topic(self, topic: str | None = None) -> None:
        """Delete a topic, and make it again; None: any."""
        topic = topic or self.chance.one_of(sorted(self._topics))
        self._changed[topic] = dict(self._topics[topic].config)

        def deleted() -> None:
            self._under_way += 1
            self.after(self.chance.between(1, 1_500), made)

        def made() -> None:
            self._under_way -= 1
            self._request(CreateTopic(topic))

        self._request(DeleteTopic(topic), deleted)

    def delete_records(self, partition: Partition | None = None) -> None:
        """Move a partition's log start to some offset below its high watermark; None: any partition's."""
        partition = partition or self._partition()
        if partition is None:
            return
        leader, _ = self.known.leader(partition)
        if leader is None or self._topics[partition.topic].is_compacted:
            return
        self._under_way += 1

        def found(answer: ListedOffset | None) -> None:
            if answer is None or answer.error is not None or answer.offset <= 0:
                self._under_way -= 1
                return
            low = max(0, answer.offset - 40) if self.chance.happens(0.5) else answer.offset // 2
            offset = self.chance.between(low, answer.offset)
            self._delete_below(partition, offset, _TRIES)

        self.ask(broker_name(leader), ListOffset(partition, _LATEST), found)

    def _delete_below(self, partition: Partition, offset: int, tries: int) -> None:
        leader, _ = self.known.leader(partition)
        if leader is None or not tries:
            self._under_way -= 1
            return
        self.judge.records_deletion_asked(partition, offset, self.now_ms)

        def deleted(answer: DeletedRecords | None) -> None:
            if answer is not None and answer.error in (None, "OFFSET_OUT_OF_RANGE"):
                self._under_way -= 1
            else:
                self.after(
                    RETRY_MS, lambda: self.known.refresh(lambda: self._delete_below(partition, offset, tries - 1))
                )

        self.ask(broker_name(leader), DeleteRecords(partition, offset), deleted)

    def change_config(self) -> None:
        """Change a topic's retention, segments, copying, or tiering; what contradicts itself is refused."""
        topic = self._topics[self.chance.one_of(sorted(self._topics))]
        changes = self._changes_of(topic)
        self._changed[topic.name].update(changes)
        regrets = changes.get("remote.storage.enable") == "false" and self.chance.happens(0.5)
        self._request(ChangeConfig(topic.name, tuple(changes.items())), self._regret(topic) if regrets else None)
        if _is_off(changes):
            self.after(self.chance.between(*_OFF_MS), lambda: self._turn_on(topic))

    def _regret(self, topic: TopicSettings) -> Callable[[], None]:
        """Turn tiering on again while what is in the tier is being deleted."""
        self._under_way += 1

        def turn_on() -> None:
            self._under_way -= 1
            self._turn_on(topic)

        return lambda: self.after(self.chance.between(1, 500), turn_on)

    def _turn_on(self, topic: TopicSettings) -> None:
        """Turn tiering and copying on again, if they are off."""
        known = self._changed[topic.name]
        if _is_off(known):
            changes = self._tiering_changes(known)
            known.update(changes)
            self._request(ChangeConfig(topic.name, tuple(changes.items())))

    def _changes_of(self, topic: TopicSettings) -> dict[str, str]:
        known = self._changed[topic.name]
        if topic.is_compacted:
            return {
                "delete.retention.ms": self.chance.one_of(("0", "3000", "20000")),
                "min.cleanable.dirty.ratio": self.chance.one_of(("0.01", "0.5")),
            }
        if topic.is_tiered and self.chance.happens(0.3):
            return self._tiering_changes(known)
        name, values = self.chance.one_of(_CHANGES)
        if name.startswith("local.") and (not topic.is_tiered or known.get("remote.log.copy.disable") == "true"):
            return {"segment.ms": "5000"}
        return {name: self.chance.one_of(values)}

    def _tiering_changes(self, known: dict[str, str]) -> dict[str, str]:
        """Turn copying, or tiering, off and on again."""
        if known.get("remote.storage.enable") == "false":
            return {"remote.storage.enable": "true", "remote.log.delete.on.disable": "false"}
        if known.get("remote.log.copy.disable") == "true":
            return {"remote.log.copy.disable": "false"}
        if self.chance.happens(0.7):
            return {"remote.log.copy.disable": "true", "local.retention.ms": "-2", "local.retention.bytes": "-2"}
        return {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}

    def restore_config(self) -> None:
        """Turn tiering and copying on again, as the seed has them: what the cluster settles to is known."""
        for name in sorted(self._topics):
            known, wanted = self._changed[name], dict(self._topics[name].config)
            if wanted.get("remote.storage.enable") == "true":
                changes = {"remote.storage.enable": "true", "remote.log.copy.disable": "false"}
                changes["remote.log.delete.on.disable"] = "false"
                if any(known.get(key, "false") != value for key, value in changes.items()):
                    known.update(changes)
                    self._request(ChangeConfig(name, tuple(sorted(changes.items()))))


def _is_off(config: Mapping[str, str]) -> bool:
    """Whether a topic is not tiered any more, or nothing of it is copied."""
    return config.get("remote.storage.enable") == "false" or config.get("remote.log.copy.disable") == "true"
