"""Traps: they wait for a state of a segment in the metadata topic, a log that begins from the tier, or a follower that
is to join, and hurt who is in the middle of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.admin import CONTROLLER, Admin
from tests.simulation.client import broker_name
from tests.simulation.controller import topic_id_of
from tests.simulation.judge.segments import DELETED, DELETING, FINISHED, NAMES, STARTED, PartitionChange, decode
from tests.simulation.messages import Partition

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis
    from tests.simulation.world import World

#: How often a trap that is set springs at a record of a state; and what it does to who wrote it.
_TRAPS: Final = {STARTED: 0.3, FINISHED: 0.2, DELETING: 0.5, DELETED: 0.2}
_SPRINGS: Final = ("leader", "leader", "leader", "pause", "pause", "crash", "metadata cut", "store cut", "records")
#: How often it deletes the topic, where topics are deleted.
_TOPIC_RATE: Final = 0.15
#: Longer than a leader waits until it removes what another one has begun.
_LONG_PAUSE_MS: Final = 14_000
#: How often a trap springs at a log that begins anew from the tier, and at a follower that is to join.
_BUILD_RATE: Final = 0.5
_JOIN_RATE: Final = 0.2
#: Shorter than a session.
_JOIN_CUT_MS: Final = 1_000
#: In front of which change of the disk a broker crashes in the middle of such a beginning, at most.
_BUILD_CHANGES_MAX: Final = 14
#: After which time it crashes at the latest.
_BUILD_MS: Final = 2_500


class Traps:
    """The traps of one run.

    Args:
        world: Does what is done.
        admin: Changes what an administrator changes.
        nemesis: Says whom a trap may hurt now.
    """

    def __init__(self, world: World, admin: Admin, nemesis: Nemesis) -> None:
        self._world = world
        self._admin = admin
        self._nemesis = nemesis
        self._is_set = False
        self._wants_copier = False

    def set(self) -> None:
        """Set a trap: it springs once."""
        self._is_set = True

    def want_copier(self) -> None:
        """Have the next broker that begins a copy paused."""
        self._wants_copier = True

    def metadata_appended(self, broker: int, value: bytes) -> None:
        """A broker's record is in the metadata topic: a trap that is set may spring."""
        is_awaited = (self._is_set or self._wants_copier) and not self._nemesis.is_over
        record = decode(value) if is_awaited else None
        if record is not None and self._wants_copier and record.state == STARTED:
            self._wants_copier = isinstance(record, PartitionChange)
            if not self._wants_copier:
                self._nemesis.after(self._nemesis.chance.below(20), lambda: self._pause_copier(broker))
        if not self._is_set:
            return
        if record is None or isinstance(record, PartitionChange):
            return
        if not self._nemesis.chance.happens(_TRAPS[record.state]):
            return
        self._is_set = False
        self._world.trace.count(f"traps at {NAMES[record.state]}")
        delay_ms = self._nemesis.chance.below(20) if self._nemesis.chance.happens(0.5) else 0
        self._nemesis.after(delay_ms, lambda: self._spring(broker, *record.partition))

    def log_begins(self, broker: int, partition: Partition) -> None:
        """A broker begins a partition's log anew from the tier: a trap may crash it in the middle of that."""
        nemesis = self._nemesis
        if not self._is_sprung(_BUILD_RATE) or nemesis.victim(broker) is None or nemesis.is_spared(broker):
            return
        self._world.trace.count("traps at a beginning from the tier")
        nemesis.busy.add(broker)
        nemesis.doomed.add(broker)
        change, folder = nemesis.chance.between(1, _BUILD_CHANGES_MAX), f"/{partition.topic}-{partition.number}/"
        self._world.crash_within(broker, change, nemesis.is_spared, where=folder)
        nemesis.after(_BUILD_MS, lambda: nemesis.crash(broker))

    def joins(self, leader: int, follower: int) -> None:
        """A leader proposes that a follower joins: a trap may keep the controller from hearing of it until the follower
        has another life, which is not the one that had caught up.
        """
        nemesis = self._nemesis
        if not self._is_sprung(_JOIN_RATE) or nemesis.victim(follower) is None or nemesis.is_spared(follower):
            return
        self._world.trace.count("traps at a follower that joins")
        nemesis.cut_for({(broker_name(leader), CONTROLLER)}, _JOIN_CUT_MS)
        nemesis.busy.add(follower)

        def crash() -> None:
            if not nemesis.is_spared(follower):
                self._world.crash(follower)

        nemesis.after(0, crash)  # a task of another broker is here
        nemesis.after(50, lambda: nemesis.up(follower))

    def _is_sprung(self, rate: float) -> bool:
        """Whether a trap is set, and springs now: it is set no more then."""
        is_sprung = self._is_set and not self._nemesis.is_over and self._nemesis.chance.happens(rate)
        self._is_set = self._is_set and not is_sprung
        return is_sprung

    def _spring(self, broker: int, topic_id: bytes, number: int) -> None:
        """Hurt who is in the middle of a copy, or of a deletion."""
        spring, admin = self._nemesis.chance.one_of(_SPRINGS), self._admin
        if "topic deletion" in self._world.settings.faults and self._nemesis.chance.happens(_TOPIC_RATE):
            spring = "topic"
        if spring in ("leader", "records", "topic"):
            act = {"leader": admin.prefer_leader, "records": admin.delete_records}.get(
                spring, lambda partition: admin.replace_topic(partition.topic)
            )
            for partition in sorted(self._world.controller.leaders()):
                is_it = partition.number == number
                if is_it and topic_id_of(partition.topic, partition.generation).raw == topic_id:
                    act(partition)
            return
        victim = self._nemesis.victim(broker)
        if victim is None:
            return
        if spring.endswith(" cut"):
            self._nemesis.cut_from(victim, spring.removesuffix(" cut"))
        elif self._nemesis.is_spared(victim, by_leaving=spring == "pause"):
            return
        elif spring == "pause":
            self._nemesis.busy.add(victim)
            self._world.pause(victim)
            self._nemesis.after(self._nemesis.chance.between(300, _LONG_PAUSE_MS), lambda: self._nemesis.up(victim))
        else:
            self._nemesis.busy.add(victim)
            self._world.crash(victim)
            self._nemesis.after(self._nemesis.duration_ms(), lambda: self._nemesis.up(victim))

    def _pause_copier(self, broker: int) -> None:
        """Pause a leader in the middle of its copy until another one may have removed that, and let it go on while it
        does not hear of the other. Nothing else is hurt meanwhile.
        """
        if self._nemesis.victim(broker) is None or self._nemesis.is_spared(broker, by_leaving=True):
            return
        name, pause_ms = broker_name(broker), self._nemesis.chance.between(4_000, _LONG_PAUSE_MS)
        self._nemesis.cut_for({(name, CONTROLLER), (CONTROLLER, name)}, pause_ms + 3_000)
        self._nemesis.busy.add(broker)
        self._world.pause(broker)
        self._nemesis.after(pause_ms, lambda: self._nemesis.up(broker))
        self._nemesis.is_staging = True

        def over() -> None:
            self._nemesis.is_staging = False

        self._nemesis.after(pause_ms + 3_000, over)
