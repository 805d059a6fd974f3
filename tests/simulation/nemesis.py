"""What hurts the cluster: the schedule of faults, by the seed. It says what happens; the world does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.admin import CONTROLLER, Admin
from tests.simulation.client import Chance, broker_name
from tests.simulation.controller import topic_id_of
from tests.simulation.coordinator import Coordinator
from tests.simulation.judge.segments import DELETED, DELETING, FINISHED, NAMES, STARTED, PartitionChange, decode
from tests.simulation.messages import Partition
from tests.simulation.settings import ALWAYS, Settings

if TYPE_CHECKING:
    from tests.simulation.world import World

_FIRST_FAULT_MS: Final = 1_500
_WATCH_MS: Final = 2_000
#: In front of which of its disk's changes a broker crashes, at most, and after which time at the latest.
_CUT_CHANGES_MAX: Final = 20
_PLACE_CHANGES_MAX: Final = 6
_CUT_MS: Final = 500
#: Every second fault is a crash, or a change of a leader: every seed needs some.
_ALWAYS_EVERY: Final = 2
#: Kinds that need more than one try to come to anything, against the others.
_WEIGHTS: Final = {"unclean election": 3, "isolated leader": 3}
#: For so long one of them waits until all brokers are well.
_CALM_MS: Final = 200
_CALM_TRIES: Final = 25
_CALM: Final[dict[str, float]] = {"loss": 0.0, "doubles": 0.0, "delay_ms_max": 0}
_STORE_CALM: Final[dict[str, float]] = {
    "fail": 0.0,
    "lose_answer": 0.0,
    "slow_ms_max": 0,
    "late_cancel": 0.0,
    "stale_listing": 0.0,
    "short_body": 0.0,
}
_STORE_FAULTS: Final[dict[str, dict[str, float]]] = {
    "store failures": {"fail": 0.3},
    "store lost answers": {"lose_answer": 0.3},
    "store slowness": {"slow_ms_max": 4_000},
    "store late cancels": {"late_cancel": 0.4},
    "store stale listings": {"stale_listing": 0.5},
    "store short bodies": {"short_body": 0.3},
}
_NETWORK_FAULTS: Final[dict[str, dict[str, float]]] = {
    "loss": {"loss": 0.05},
    "doubles": {"doubles": 0.2},
    "delays": {"delay_ms_max": 800},
}


#: Parts of paths: a crash, or a failure of the disk, in front of a change of such a file comes amid a cleaning, a swap,
#: a beginning from the tier, a deletion, a move, a checkpoint. Empty: any file.
_PLACES: Final = ("", "", "", ".cleaned", ".swap", "start-from-tier", ".deleted", "-delete", "checkpoint", ".snapshot")
_PLACE_MS: Final = 2_500
#: How often a trap that is set springs at a record of a state; and what it does to who wrote it.
_TRAPS: Final = {STARTED: 0.3, FINISHED: 0.2, DELETING: 0.5, DELETED: 0.2}
_TRAP_RATE: Final = 0.6
_SPRINGS: Final = ("leader", "leader", "leader", "pause", "pause", "crash", "metadata cut", "store cut", "records")
#: Longer than a leader waits until it removes what another one has begun.
_LONG_PAUSE_MS: Final = 14_000

#: What takes what a broker has not synced, or all that it has.
_LOSING: Final = ("crash", "wipe", "disk failure")


class Nemesis:
    """The schedule of faults of one run."""

    def __init__(self, settings: Settings, world: World, admin: Admin, coordinator: Coordinator) -> None:
        self._settings = settings
        self._world = world
        self._admin = admin
        self._coordinator = coordinator
        self._chance = Chance(settings.rng("nemesis"))
        self._is_over = self._is_staging = False
        self._strikes = 0
        self._cuts: set[tuple[str, str]] = set()
        self._busy: set[int] = set()
        self._network: dict[str, float] = {}
        self._store: dict[str, float] = {}
        self._broken_disks: set[int] = set()
        self._doomed: set[int] = set()
        self._is_trapped = False
        self._wants_copier = False

    # ---- the schedule

    def start(self) -> None:
        """Begin with the first fault, once the cluster has something to lose."""
        if self._settings.faults:
            self._after(_FIRST_FAULT_MS, self._strike)
            self._after(_WATCH_MS, self._watch)

    def _watch(self) -> None:
        """Start brokers that ended by themselves."""
        for broker in self._world.down():
            if broker not in self._busy:
                self._world.start(broker)
        self._after(_WATCH_MS, self._watch)

    def _after(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Do something later, unless the faults have stopped by then."""
        self._world.network.after(delay_ms, lambda: None if self._is_over else function())

    def _strike(self) -> None:
        kinds = self._settings.faults
        self._strikes += 1
        kind = self._chance.one_of([each for each in kinds for _ in range(_WEIGHTS.get(each, 1))])
        if self._settings.favoured and self._chance.happens(0.5):
            kind = self._chance.one_of(self._settings.favoured)
        if self._strikes % _ALWAYS_EVERY:
            kind = ALWAYS[self._strikes // _ALWAYS_EVERY % len(ALWAYS)]
        if kind in kinds and not self._is_staging:  # a shrunk seed may have fewer
            self._begin(kind)
        if "trap" in kinds and self._chance.happens(_TRAP_RATE):
            self._is_trapped = True
        self._after(self._chance.around(self._settings.fault_interval_ms), self._strike)

    def _begin(self, kind: str) -> None:
        match kind:
            case "loss" | "doubles" | "delays":
                self._set_network(_NETWORK_FAULTS[kind])
            case "partition" | "one-way partition" | "store cut" | "metadata cut":
                self._cut(kind)
            case "stale copier":
                self._wants_copier = True
            case "isolated leader":
                self._stage(self._isolate_leader)
            case "crash" | "wipe" | "clean restart" | "pause" | "disk failure":
                self._hurt(kind)
            case "power cut":
                self._cut_power()
            case "local rot" | "cache rot":
                self._rot(kind)
            case "unclean election" if self._chance.happens(0.5):
                self._stage(self._elect_behind)
            case "store lifecycle":
                self._world.remove_object(self._chance.below(1 << 20))
            case "clock jump" | "clock drift":
                self._turn_clock(kind)
            case "late markers" | "coordinator failover":
                self._delay_markers(fails_over=kind == "coordinator failover")
            case "rolling settings":
                self._roll(list(self._world.running()))
            case _ if kind in _STORE_FAULTS:
                self._set_store(_STORE_FAULTS[kind])
            case _:
                self._administer(kind)

    def _duration_ms(self) -> int:
        return self._chance.between(200, 3_000)

    def _victim(self, broker: int | None = None) -> int | None:
        """A broker that runs, or this one, if it does; None where enough of them are hurt already."""
        running = [each for each in self._world.running() if each not in self._busy]
        hurt = self._settings.brokers - len(running)
        hurt_max = (self._settings.brokers - 1) // 2 + self._chance.happens(0.15)
        if not running or hurt >= hurt_max:
            return None
        return self._chance.one_of(running) if broker is None else broker if broker in running else None

    # ---- network, store

    def _set_network(self, rates: dict[str, float]) -> None:
        self._network = {**_CALM, **self._network, **rates}
        self._world.set_network(**self._network)

        def calm() -> None:
            self._network = {**self._network, **{name: _CALM[name] for name in rates}}
            self._world.set_network(**self._network)

        self._after(self._duration_ms(), calm)

    def _set_store(self, rates: dict[str, float]) -> None:
        self._store = {**_STORE_CALM, **self._store, **rates}
        self._world.set_store(**self._store)

        def calm() -> None:
            self._store = {**self._store, **{name: _STORE_CALM[name] for name in rates}}
            self._world.set_store(**self._store)

        self._after(self._chance.between(500, 6_000), calm)

    def _cut(self, kind: str) -> None:
        brokers = list(range(1, self._settings.brokers + 1))
        victim = self._victim()
        if victim is None:
            return
        name = broker_name(victim)
        if kind in ("store cut", "metadata cut"):
            self._cut_from(victim, kind.removesuffix(" cut"))
        elif self._chance.happens(0.3):
            self._hide_elections(victim)
        else:
            others = [broker_name(each) for each in brokers if each != victim]
            if self._chance.happens(0.5):
                others.append(CONTROLLER)
            if self._chance.happens(0.3):
                others = [self._chance.one_of(others)]
            cuts = {(name, other) for other in others}
            if kind == "partition":
                cuts |= {(other, name) for other in others}
            elif self._chance.happens(0.5):
                cuts = {(other, source) for source, other in cuts}
            # A zombie may act alone.
            self._cut_for(cuts, self._chance.between(1_000, self._settings.replica_lag_ms + 3_000))

    def _cut_from(self, broker: int, node: str) -> None:
        """Cut a broker from the store, or from the metadata topic, for a while."""
        name = broker_name(broker)
        cuts = {(name, node), (node, name)}
        self._cut_for(cuts, self._chance.between(1_000, self._settings.replica_lag_ms + 3_000))

    def _cut_for(self, cuts: set[tuple[str, str]], duration_ms: int) -> None:
        for source, target in sorted(cuts):
            self._cuts.add((source, target))
            self._world.cut(source, target)
        self._after(duration_ms, lambda: self._mend(cuts))

    def _stage(self, scene: Callable[[], int], tries: int = _CALM_TRIES) -> None:
        """Play a scene once all is well; nothing else is hurt until it is over. It returns how long it takes, in ms."""
        self._is_staging = True
        if tries and (self._busy or not self._world.controller.is_whole):
            self._after(_CALM_MS, lambda: self._stage(scene, tries - 1))
            return

        def over() -> None:
            self._is_staging = False

        self._after(scene(), over)

    def _isolate_leader(self) -> int:
        """Cut a leader from its followers, and a little later from the controller, while clients still reach it: it
        finds that they lag, and nobody hears of it; another leader is elected meanwhile, which has its log cut.
        """
        world, settings = self._world, self._settings
        holders = world.controller.holders()
        led = sorted(
            leader
            for partition, leader in world.controller.leaders().items()
            if leader in world.running() and len(holders[partition]) > 1
        )
        if not led:
            return 0
        isolated, lag_ms = self._chance.one_of(led), settings.replica_lag_ms
        name = broker_name(isolated)
        others = [broker_name(each) for each in world.running() if each != isolated]
        wait_ms = self._chance.between(lag_ms // 2, lag_ms)
        left_ms = lag_ms + settings.session_timeout_ms + 500
        self._cut_for({cut for other in others for cut in ((name, other), (other, name))}, wait_ms + left_ms)
        self._after(wait_ms, lambda: self._cut_for({(name, CONTROLLER), (CONTROLLER, name)}, left_ms))
        if self._chance.happens(0.5):  # what it has cut and written again is not synced yet
            crash_ms = wait_ms + left_ms + self._chance.between(200, 2_000)
            self._after(crash_ms, lambda: self._crash_unless_hurt(isolated))
        return wait_ms + left_ms

    def _hide_elections(self, broker: int) -> None:
        """Let a broker hear nothing of the controller, which it still reaches, while another one leads a partition for
        a moment: it goes on asking the leader of before, who leads in a newer epoch.
        """
        self._cut_for({(CONTROLLER, broker_name(broker))}, self._chance.between(1_000, 3_000))
        controller, chance = self._world.controller, self._chance
        led = [
            (each, leader)
            for each, leader in sorted(controller.leaders().items())
            if leader not in (None, broker) and broker in controller.replicas(each)
        ]
        if led:
            partition, leader = chance.one_of(led)
            others = [each for each in controller.replicas(partition) if each not in (leader, broker)]
            other = chance.one_of(others or [broker])
            self._after(50, lambda: self._admin.prefer_leader(partition, other))
            self._after(chance.between(150, 350), lambda: self._admin.prefer_leader(partition, leader))

    # ---- traps

    def metadata_appended(self, broker: int, value: bytes) -> None:
        """A broker's record is in the metadata topic: a trap that is set may spring."""
        is_awaited = (self._is_trapped or self._wants_copier) and not self._is_over
        record = decode(value) if is_awaited else None
        if record is not None and self._wants_copier and record.state == STARTED:
            self._wants_copier = isinstance(record, PartitionChange)
            if not self._wants_copier:
                self._after(self._chance.below(20), lambda: self._pause_copier(broker))
        if not self._is_trapped:
            return
        if record is None or isinstance(record, PartitionChange) or not self._chance.happens(_TRAPS[record.state]):
            return
        self._is_trapped = False
        self._world.trace.count(f"traps at {NAMES[record.state]}")
        delay_ms = self._chance.below(20) if self._chance.happens(0.5) else 0
        self._after(delay_ms, lambda: self._spring(broker, *record.partition))

    def _spring(self, broker: int, topic_id: bytes, number: int) -> None:
        """Hurt who is in the middle of a copy, or of a deletion."""
        spring, admin = self._chance.one_of(_SPRINGS), self._admin
        if spring in ("leader", "records"):
            for partition in sorted(self._world.controller.leaders()):
                is_it = partition.number == number
                if is_it and topic_id_of(partition.topic, partition.generation).raw == topic_id:
                    admin.prefer_leader(partition) if spring == "leader" else admin.delete_records(partition)
            return
        victim = self._victim(broker)
        if victim is None:
            return
        if spring.endswith(" cut"):
            self._cut_from(victim, spring.removesuffix(" cut"))
        elif spring == "pause":
            self._busy.add(victim)
            self._world.pause(victim)
            self._after(self._chance.between(300, _LONG_PAUSE_MS), lambda: self._up(victim))
        elif not self._is_spared(victim):
            self._busy.add(victim)
            self._world.crash(victim)
            self._after(self._duration_ms(), lambda: self._up(victim))

    def _pause_copier(self, broker: int) -> None:
        """Pause a leader in the middle of its copy until another one may have removed that, and let it go on while it
        does not hear of the other. Nothing else is hurt meanwhile.
        """
        if self._victim(broker) is None:
            return
        name, pause_ms = broker_name(broker), self._chance.between(4_000, _LONG_PAUSE_MS)
        self._cut_for({(name, CONTROLLER), (CONTROLLER, name)}, pause_ms + 3_000)
        self._busy.add(broker)
        self._world.pause(broker)
        self._after(pause_ms, lambda: self._up(broker))
        self._is_staging = True

        def over() -> None:
            self._is_staging = False

        self._after(pause_ms + 3_000, over)

    def _mend(self, cuts: set[tuple[str, str]]) -> None:
        for source, target in sorted(cuts & self._cuts):
            self._cuts.discard((source, target))
            self._world.mend(source, target)

    # ---- brokers

    def _hurt(self, kind: str) -> None:
        victim = self._victim()
        if victim is None or (kind in (*_LOSING, "clean restart") and self._is_spared(victim)):
            return
        self._busy.add(victim)
        world = self._world
        if kind == "pause":
            world.pause(victim)
            self._after(self._chance.between(300, 2 * self._settings.session_timeout_ms), lambda: self._up(victim))
            return
        if kind == "disk failure":
            place = self._chance.one_of(_PLACES)
            self._broken_disks.add(victim)
            world.fail_disk(victim, place)
            wait_ms = _PLACE_MS if place else 0
            self._after(wait_ms + self._duration_ms(), lambda: self._replace_disk(victim))
            return
        if kind == "clean restart":
            world.stop(victim)
        elif kind == "crash" and self._chance.happens(0.5):
            place = self._chance.one_of(_PLACES)
            change = self._chance.between(1, _PLACE_CHANGES_MAX if place else _CUT_CHANGES_MAX)
            self._doomed.add(victim)
            world.crash_within(victim, change, self._is_spared, where=place)
            self._after(_PLACE_MS if place else _CUT_MS, lambda: self._crash(victim))
            return
        else:
            world.crash(victim)
        if kind == "wipe":
            world.wipe(victim)
        if kind in _LOSING and "metadata cut" in self._settings.faults and self._chance.happens(0.3):
            self._cut_from(victim, "metadata")  # it comes back without knowing what is in the tier
        self._after(self._duration_ms(), lambda: self._up(victim))

    def _cut_power(self) -> None:
        """Crash all brokers at once."""
        for broker in self._world.running():
            if broker not in self._busy:
                self._busy.add(broker)
                self._world.crash(broker)
                self._after(self._duration_ms(), lambda broker=broker: self._up(broker))

    def _elect_behind(self) -> int:
        """Let a follower fall behind while the others go on, crash them, and elect it: its log ends below what is
        committed, and copied.
        """
        world, controller = self._world, self._world.controller
        leaders = sorted((each, leader) for each, leader in controller.leaders().items() if leader is not None)
        if not leaders or self._busy:
            return 0
        partition, leader = self._chance.one_of(leaders)
        others = [each for each in controller.replicas(partition) if each != leader and each in world.running()]
        if not others:
            return 0
        behind = self._chance.one_of(others)
        self._busy.add(behind)
        names = broker_name(behind), broker_name(leader)
        cuts = {names, names[::-1]}
        for source, target in sorted(cuts):
            self._cuts.add((source, target))
            world.cut(source, target)
        behind_ms = self._settings.replica_lag_ms + self._chance.between(1_000, 4_000)
        self._after(behind_ms, lambda: self._betray(partition, behind, cuts))
        return behind_ms + self._settings.session_timeout_ms + 2_000

    def _betray(self, partition: Partition, behind: int, cuts: set[tuple[str, str]]) -> None:
        """Crash all replicas but the one that is behind, or pause them, and have it elected; then let all run again."""
        world = self._world
        self._mend(cuts)
        self._busy.discard(behind)
        hurt = world.pause if self._chance.happens(0.5) else world.crash  # then an open log is cut
        for broker in world.controller.replicas(partition):
            if broker != behind and broker in world.running() and broker not in self._busy:
                self._busy.add(broker)
                hurt(broker)
                self._after(self._settings.session_timeout_ms + 1_500, lambda broker=broker: self._up(broker))
        self._after(self._settings.session_timeout_ms + 1_000, lambda: world.elect_unclean(partition))

    def _crash_unless_hurt(self, broker: int) -> None:
        if broker in self._world.running() and broker not in self._busy:
            self._busy.add(broker)
            self._crash(broker)

    def _crash(self, broker: int) -> None:
        """Crash a broker that made fewer changes than it was to crash behind, and let it run again later."""
        self._doomed.discard(broker)
        if broker in self._world.running() and self._is_spared(broker):
            self._busy.discard(broker)
            return
        self._world.crash(broker)
        self._after(self._duration_ms(), lambda: self._up(broker))

    def _is_spared(self, broker: int) -> bool:
        """Whether a crash would take the last copy of what is committed: only seeds with unclean elections do that. So
        would a clean stop that leaves one in sync alone which has lost its power.
        """
        return "unclean election" not in self._settings.faults and self._world.would_lose(broker)

    def _up(self, broker: int) -> None:
        """Let a broker run again, whatever was done to it. A clean stop may still be under way."""
        world = self._world
        if broker in world.paused():
            world.resume(broker)
        elif broker in world.down():
            world.start(broker)
        elif broker not in world.running():
            self._world.network.after(200, lambda: self._up(broker))
            return
        self._busy.discard(broker)

    def _replace_disk(self, broker: int) -> None:
        """The disk takes writes again; its logs are offline until the broker is started anew."""
        if broker not in self._broken_disks:
            return
        self._broken_disks.discard(broker)
        self._world.crash(broker)
        self._world.mend_disk(broker)
        self._world.network.after(100, lambda: self._up(broker))

    def _roll(self, brokers: list[int]) -> None:
        """Restart one broker after the other, with other settings."""
        if not brokers:
            return
        broker = brokers.pop()
        if broker not in self._busy and broker in self._world.running() and not self._is_spared(broker):
            self._busy.add(broker)
            self._world.reconfigure(broker, self._settings.changed_config)
            self._world.stop(broker)
            self._after(500, lambda: self._up(broker))
        self._after(2_000, lambda: self._roll(brokers))

    def _rot(self, kind: str) -> None:
        """Let bits rot: of one broker's log, or of all brokers' caches, which hold few chunks at a time."""
        running = self._world.running()
        if kind == "local rot":
            running = tuple(self._chance.one_of(running) for _ in running[:1])
        for broker in running:
            self._world.rot(broker, self._chance.below(1 << 20), cached=kind == "cache rot")

    def _turn_clock(self, kind: str) -> None:
        broker = self._chance.between(1, self._settings.brokers)
        if kind == "clock jump":
            self._world.jump_clock(broker, self._chance.between(-1_500, 1_500))
        else:
            self._world.drift_clock(broker, self._chance.between(-20_000, 20_000))

    # ---- the coordinator and the administrator

    def _delay_markers(self, *, fails_over: bool) -> None:
        """Have the coordinator hold markers and answers back; and have another one in its place meanwhile."""
        self._coordinator.marker_delay_ms = self._chance.between(100, 1_500)
        self._coordinator.answer_delay_ms = self._chance.between(100, 3_000)

        def calm() -> None:
            self._coordinator.marker_delay_ms = self._coordinator.answer_delay_ms = 0

        self._after(self._duration_ms(), calm)
        if fails_over:
            away_ms = self._chance.between(50, 1_500)
            self._after(self._chance.between(100, 1_500), lambda: self._coordinator.fail_over(away_ms))

    def _administer(self, kind: str) -> None:
        match kind:
            case "leader change":
                self._admin.prefer_leader()
            case "unclean election":
                self._admin.elect_unclean()
            case "configuration change":
                self._admin.change_config()
            case "topic deletion":
                if self._chance.happens(0.3):
                    self._admin.replace_topic()
            case "record deletion":
                self._admin.delete_records()
            case "trap":
                self._is_trapped = True
            case _:
                raise AssertionError(f"a fault of an unknown kind: {kind}")

    # ---- the end

    def heal(self) -> tuple[int, ...]:
        """Stop the faults: of all brokers, or of a random majority; return the brokers that are well."""
        self._is_over = True
        brokers = list(range(1, self._settings.brokers + 1))
        well = list(brokers)
        if self._settings.heals_majority_alone:
            hurt = [each for each in brokers if each not in self._world.running()]
            while hurt and len(brokers) - len(well) < (len(brokers) - 1) // 2:
                well.remove(hurt.pop(self._chance.below(len(hurt))))
        self._calm()
        for broker in well:
            self._heal(broker)
        return tuple(well)

    def heal_all(self) -> None:
        """Let the other brokers run too: the run ends."""
        for broker in range(1, self._settings.brokers + 1):
            self._heal(broker)

    def _calm(self) -> None:
        self._coordinator.marker_delay_ms = self._coordinator.answer_delay_ms = 0
        self._world.set_network(**_CALM)
        self._world.set_store(**_STORE_CALM)
        self._mend(set(self._cuts))
        self._admin.restore_config()

    def _heal(self, broker: int) -> None:
        self._world.drift_clock(broker, 0)
        if broker in self._doomed:
            self._world.crash(broker)
        if broker in self._broken_disks:
            self._replace_disk(broker)
        else:
            self._up(broker)
