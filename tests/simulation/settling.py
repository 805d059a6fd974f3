"""The end of a simulated cluster's run: the faults stop, the tasks end what they have begun, and all is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.client import broker_name
from tests.simulation.final_reads import FinalReader
from tests.simulation.messages import Partition, WriteMarker

if TYPE_CHECKING:
    from tests.simulation.world import World

_HEAL_SECONDS: Final = 120.0
_READ_SECONDS: Final = 120.0
#: Beyond the intervals: clocks that are wrong, and the network's delays.
_SETTLE_SECONDS: Final = 4.0
#: Within which a broker removes what a request stored that it had given up.
_LATE_SECONDS: Final = 150.0
#: That a copy, or a deletion, of one segment may take.
_COPY_SECONDS: Final = 2.0


class Settling:
    """The settling of one cluster."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self) -> None:
        """Stop the faults, let the clients end what they have begun, and wait for as long as the tasks may need."""
        world = self._world
        world.trace.note("the faults stop")
        well = set(world.nemesis.heal())
        if not world.may_commit(well):  # the chosen majority has too few replicas of some partition
            world.nemesis.heal_all()
            well = set(world.disks)
        world.trace.note("well:", *sorted(well))
        world.wait_for("those that are well run", lambda: world.controller.active() >= well, _HEAL_SECONDS)
        world.clients.stop_writing()
        world.wait_for("clients are idle", self._is_idle, _HEAL_SECONDS)
        world.wait_for("all replicas that run are in sync", self._is_whole, _HEAL_SECONDS)
        world.wait_for("hanging transactions are aborted", self._aborts_hanging, _HEAL_SECONDS)
        world.wait_for("all moves of logs are over", self._have_moved, _HEAL_SECONDS)
        self._let_tasks_end()
        world.let_changes_end()
        world.judge.settled(world.network.now_ms)
        world.nemesis.heal_all()
        world.wait_for("all brokers run", world.all_run, _HEAL_SECONDS)
        world.wait_for("all replicas are in sync", self._is_whole, _HEAL_SECONDS)
        world.judge.checkpoint(world.network.now_ms)
        self._read_all()
        self._let_late_objects_go()  # of those that were paused until now
        world.judge.store_settled(world.network.now_ms)

    def _read_all(self) -> None:
        """Have every partition read from every replica, from its start to its end."""
        world = self._world
        topics = tuple(topic.name for topic in world.settings.topics)
        reader = FinalReader("final-reader", world.settings, world.network, world.judge, topics=topics)
        reader.start()
        world.wait_for("all is read", lambda: reader.is_idle, _READ_SECONDS, words=lambda: reader.words)
        self._world.sleep(_SETTLE_SECONDS)  # what was set aside before is deleted by now

    def _is_idle(self) -> bool:
        """Whether the clients have ended what they had begun. Meanwhile an administrator lets sound replicas lead, for
        as long as one is in sync: nobody can follow one whose segments have rotted.
        """
        self._world.lead_by_sound()
        return self._world.clients.is_idle and self._world.coordinator.is_idle

    def _is_whole(self) -> bool:
        """Whether all replicas that run are in sync, and sound ones lead."""
        self._world.lead_by_sound()
        return self._world.controller.is_whole

    def _have_moved(self) -> bool:
        """Whether no log is on its way to another directory, but those of rotten ones, which nobody can copy."""
        world = self._world
        begun = [life for life in world.lives.values() if life.epoch >= 0]  # the others have yet to open their logs
        return world.has_rotted or all(life.moves.are_over for life in begun)

    def _aborts_hanging(self) -> bool:
        """Abort, as an administrator does by ``kafka-transactions``, the transactions whose markers were lost by an
        unclean election, on a leader, or on a follower that led then; whether none is left. Any other that hangs is a
        fault: it stays, and nothing behind it is copied. A broker that is paused until the end follows then.
        """
        world = self._world
        running = [life for life in world.lives.values() if not life.group.is_paused]
        replicas = [each for life in running for each in list(life.replicas.values())]
        unclean = [each for each in replicas if each.partition in world.controller.unclean and each.leader_id]
        if any(each.log.high_watermark < each.log.log_end_offset for each in unclean):
            return False  # a marker may be on its way
        hanging = [(replica, entry) for replica in unclean for entry in replica.log.open_transactions()]
        for replica, entry in hanging:
            coordinator_epoch = max(0, entry.coordinator_epoch)
            world.trace.note("hanging transaction", str(replica.partition), entry.producer_id)
            request = WriteMarker(
                replica.partition, entry.producer_id, entry.producer_epoch, coordinator_epoch, False, 1
            )
            leader = broker_name(replica.leader_id or 0)
            world.network.call("administrator", leader, request, _nothing, timeout_ms=1_000, is_connection=True)
        if hanging:
            world.trace.count("hanging transactions aborted")
            world.sleep(1.0)
        return not hanging

    def _let_tasks_end(self) -> None:
        """Let a backlog be copied; then wait three intervals of the tasks, and for what was closed meanwhile."""
        world = self._world
        interval = self._longest("log.retention.check.interval.ms", "remote.log.manager.task.interval.ms")
        self._let_copies_end(3 * interval)
        world.sleep(3 * interval + self._longest("remote.log.manager.unfinished.copy.retention.ms") + _SETTLE_SECONDS)
        self._let_copies_end(3 * interval)
        self._let_late_objects_go()
        self._let_copies_end(3 * interval)  # of what was closed meanwhile

    def _let_late_objects_go(self) -> None:
        """Wait until brokers that run have removed what they stored behind its deletion, or should have."""
        world, clock = self._world, self._world.scheduler.clock
        until = clock.monotonic_seconds() + _LATE_SECONDS
        while world.judge.has_late_objects() and clock.monotonic_seconds() < until:
            world.look()

    def _let_copies_end(self, seconds: float) -> None:
        """Wait until all that is closed is copied, and all that is due is deleted: so long behind the last segment that
        came, or that went, and for each.
        """
        world, clock = self._world, self._world.scheduler.clock
        known: set[object] = set()
        until = 0.0
        while (left := {*self._closed_segments(), *world.judge.due_segments()}) and (
            left != known or clock.monotonic_seconds() < until
        ):
            if left != known:
                known, until = left, clock.monotonic_seconds() + seconds + _COPY_SECONDS * len(left)
            world.look()

    def _longest(self, *names: str) -> float:
        """The longest of some times of the brokers' settings, in seconds."""
        configs = dict(self._world.settings.broker_config), dict(self._world.settings.changed_config)
        return max(int(config.get(name, 1_000)) for config in configs for name in names) / 1000

    def _closed_segments(self) -> set[tuple[Partition, int]]:
        """The segments that a leader still has to copy."""
        return {
            (partition, segment.base_offset)
            for life in self._world.lives.values()
            for partition, replica in list(life.replicas.items())
            if replica.leader.is_leading and replica.log.remote_log_enabled()
            for segment, end in replica.log.closed_segments()
            if end - 1 > replica.log.highest_offset_in_remote_storage
        }


def _nothing(_: object) -> None:
    """The answer does not matter: what is left is looked for again."""
