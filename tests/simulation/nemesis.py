"""What hurts the cluster: the schedule of faults, by the seed. It says what happens; the world does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.admin import CONTROLLER, Admin
from tests.simulation.broker import TASKS
from tests.simulation.client import Chance, broker_name
from tests.simulation.coordinator import Coordinator
from tests.simulation.messages import Partition
from tests.simulation.settings import ALWAYS, Settings
from tests.simulation.traps import Traps

if TYPE_CHECKING:
    from tests.simulation.world import World

_FIRST_FAULT_MS: Final = 1_500
_WATCH_MS: Final = 2_000
#: How often an operator acts, of those times.
_OPERATOR_RATE: Final = 0.2
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
_MOVES: Final = ("-future", "-future", "moved-from")
_CLEANINGS: Final = (".cleaned", ".swap", ".swap")
_PLACE_MS: Final = 2_500
#: How often a trap is set with a fault.
_TRAP_RATE: Final = 0.6
#: How often a task stands still where another may run, and for how long at most.
_STALL_RATES: Final = (0.0005, 0.002, 0.01)
_STALL_SECONDS: Final = (0.05, 0.5, 1.5)
#: The same where the tasks of one name alone do.
_STALL_RATE_OF_ONE: Final = 0.1
_STALL_SECONDS_OF_ONE: Final = 3.0
#: For so long at most a follower falls behind that shall end below the others' local logs.
_FAR_BEHIND_MS: Final = 20_000
#: What takes what a broker has not synced, or all that it has.
_LOSING: Final = ("crash", "wipe", "disk failure")


class Nemesis:
    """The schedule of faults of one run."""

    def __init__(self, settings: Settings, world: World, admin: Admin, coordinator: Coordinator) -> None:
        self._settings = settings
        self._world = world
        self._admin = admin
        self._coordinator = coordinator
        self.chance = Chance(settings.rng("nemesis"))
        self.is_over = self.is_staging = False
        self._strikes = self._next_scene_ms = 0
        self._cuts: set[tuple[str, str]] = set()
        self.busy: set[int] = set()
        self._network: dict[str, float] = {}
        self._store: dict[str, float] = {}
        #: Whether one log directory alone has failed.
        self._broken_disks: dict[int, bool] = {}
        self.doomed: set[int] = set()
        self.traps = Traps(world, admin, self)
        self._compacts = any(each.is_compacted for each in settings.topics)
        self._places = _PLACES + (_MOVES if settings.log_directories > 1 else ())

    # ---- the schedule

    def start(self) -> None:
        """Begin with the first fault, once the cluster has something to lose."""
        if self._settings.faults:
            self.after(_FIRST_FAULT_MS, self._strike)
            self.after(_WATCH_MS, self._watch)

    def _watch(self) -> None:
        """Start brokers that ended by themselves; let sound replicas lead, where nothing of rotten ones is copied."""
        for broker in self._world.down():
            if broker not in self.busy:
                self._world.start(broker)
        if self.chance.happens(_OPERATOR_RATE):
            self._world.lead_by_sound()
        self.after(_WATCH_MS, self._watch)

    def after(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Do something later, unless the faults have stopped by then."""
        self._world.network.after(delay_ms, lambda: None if self.is_over else function())

    def _strike(self) -> None:
        kinds = self._settings.faults
        self._strikes += 1
        kind = self.chance.one_of([each for each in kinds for _ in range(_WEIGHTS.get(each, 1))])
        if self._settings.favoured and self.chance.happens(0.5):
            kind = self.chance.one_of(self._settings.favoured)
        if self._strikes % _ALWAYS_EVERY:
            kind = ALWAYS[self._strikes // _ALWAYS_EVERY % len(ALWAYS)]
        if kind in kinds and not self.is_staging:  # a shrunk seed may have fewer
            self._begin(kind)
        if "trap" in kinds and self.chance.happens(_TRAP_RATE):
            self.traps.set()
        self.after(self.chance.around(self._settings.fault_interval_ms), self._strike)

    def _begin(self, kind: str) -> None:
        match kind:
            case "loss" | "doubles" | "delays":
                self._set_network(_NETWORK_FAULTS[kind])
            case "partition" | "one-way partition" | "store cut" | "metadata cut":
                self._cut(kind)
            case "stalls":
                self._stall()
            case "isolated leader":
                self._stage(self._isolate_leader)
            case "crash" | "wipe" | "clean restart" | "pause" | "disk failure" | "lost epochs":
                self._hurt(kind)
            case "power cut":
                self._cut_power()
            case "local rot" | "cache rot":
                self._rot(kind)
            case "unclean election" if self.chance.happens(0.5):
                self._stage(self._elect_behind)
            case "store lifecycle":
                self._world.remove_object(self.chance.below(1 << 20))
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

    def duration_ms(self) -> int:
        return self.chance.between(200, 3_000)

    def victim(self, broker: int | None = None) -> int | None:
        """A broker that runs, or this one, if it does; None where enough of them are hurt already."""
        running = [each for each in self._world.running() if each not in self.busy]
        hurt = self._settings.brokers - len(running)
        hurt_max = (self._settings.brokers - 1) // 2 + self.chance.happens(0.15)
        if not running or hurt >= hurt_max:
            return None
        return self.chance.one_of(running) if broker is None else broker if broker in running else None

    # ---- network, store

    def _set_network(self, rates: dict[str, float]) -> None:
        self._network = {**_CALM, **self._network, **rates}
        self._world.set_network(**self._network)

        def calm() -> None:
            self._network = {**self._network, **{name: _CALM[name] for name in rates}}
            self._world.set_network(**self._network)

        self.after(self.duration_ms(), calm)

    def _set_store(self, rates: dict[str, float]) -> None:
        self._store = {**_STORE_CALM, **self._store, **rates}
        self._world.set_store(**self._store)

        def calm() -> None:
            self._store = {**self._store, **{name: _STORE_CALM[name] for name in rates}}
            self._world.set_store(**self._store)

        self.after(self.chance.between(500, 6_000), calm)

    def _cut(self, kind: str) -> None:
        brokers = list(range(1, self._settings.brokers + 1))
        victim = self.victim()
        if victim is None:
            return
        name = broker_name(victim)
        if kind in ("store cut", "metadata cut"):
            self.cut_from(victim, kind.removesuffix(" cut"))
        elif self.is_spared(victim, by_leaving=True):
            return
        elif self.chance.happens(0.3):
            self._hide_elections(victim)
        else:
            others = [broker_name(each) for each in brokers if each != victim]
            if self.chance.happens(0.5):
                others.append(CONTROLLER)
            if self.chance.happens(0.3):
                others = [self.chance.one_of(others)]
            cuts = {(name, other) for other in others}
            if kind == "partition":
                cuts |= {(other, name) for other in others}
            elif self.chance.happens(0.5):
                cuts = {(other, source) for source, other in cuts}
            # A zombie may act alone.
            self.cut_for(cuts, self.chance.between(1_000, self._settings.replica_lag_ms + 3_000))

    def cut_from(self, broker: int, node: str) -> None:
        """Cut a broker from the store, or from the metadata topic, for a while."""
        name = broker_name(broker)
        cuts = {(name, node), (node, name)}
        self.cut_for(cuts, self.chance.between(1_000, self._settings.replica_lag_ms + 3_000))

    def cut_for(self, cuts: set[tuple[str, str]], duration_ms: int) -> None:
        for source, target in sorted(cuts):
            self._cuts.add((source, target))
            self._world.cut(source, target)
        self.after(duration_ms, lambda: self._mend(cuts))

    def _stage(self, scene: Callable[[], int], tries: int = _CALM_TRIES) -> None:
        """Play a scene once all is well; nothing else is hurt until it is over, and no other scene begins for a while
        behind it. It returns how long it takes, in ms.
        """
        if tries == _CALM_TRIES and self._world.network.now_ms < self._next_scene_ms:
            return
        self.is_staging = True
        if tries and (self.busy or not self._world.controller.is_whole):
            self.after(_CALM_MS, lambda: self._stage(scene, tries - 1))
            return

        def over() -> None:
            self.is_staging = False
            self._next_scene_ms = self._world.network.now_ms + self.chance.between(1_000, 4_000)

        self.after(scene(), over)

    def _isolate_leader(self) -> int:
        """Cut a leader from its followers, and a little later from the controller, while clients still reach it: it
        finds that they lag, and nobody hears of it; another leader is elected meanwhile, which has its log cut.
        """
        world, settings = self._world, self._settings
        holders = world.controller.holders()
        led = sorted(
            leader
            for partition, leader in world.controller.leaders().items()
            if leader in world.running() and len(holders[partition][0]) > 1
        )
        if not led:
            return 0
        isolated, lag_ms = self.chance.one_of(led), settings.replica_lag_ms
        name = broker_name(isolated)
        others = [broker_name(each) for each in world.running() if each != isolated]
        wait_ms = self.chance.between(lag_ms // 2, lag_ms)
        left_ms = lag_ms + settings.session_timeout_ms + 500
        self.cut_for({cut for other in others for cut in ((name, other), (other, name))}, wait_ms + left_ms)
        self.after(wait_ms, lambda: self.cut_for({(name, CONTROLLER), (CONTROLLER, name)}, left_ms))
        if self.chance.happens(0.5):  # what it has cut and written again is not synced yet
            crash_ms = wait_ms + left_ms + self.chance.between(200, 2_000)
            self.after(crash_ms, lambda: self._crash_unless_hurt(isolated))
        return wait_ms + left_ms

    def _hide_elections(self, broker: int) -> None:
        """Let a broker hear nothing of the controller, which it still reaches, while another one leads a partition for
        a moment: it goes on asking the leader of before, who leads in a newer epoch.
        """
        self.cut_for({(CONTROLLER, broker_name(broker))}, self.chance.between(1_000, 3_000))
        controller, chance = self._world.controller, self.chance
        led = [
            (each, leader)
            for each, leader in sorted(controller.leaders().items())
            if leader not in (None, broker) and broker in controller.replicas(each)
        ]
        if led:
            partition, leader = chance.one_of(led)
            others = [each for each in controller.replicas(partition) if each not in (leader, broker)]
            other = chance.one_of(others or [broker])
            self.after(50, lambda: self._admin.prefer_leader(partition, other))
            self.after(chance.between(150, 350), lambda: self._admin.prefer_leader(partition, leader))

    def _mend(self, cuts: set[tuple[str, str]]) -> None:
        for source, target in sorted(cuts & self._cuts):
            self._cuts.discard((source, target))
            self._world.mend(source, target)

    # ---- brokers

    def _hurt(self, kind: str) -> None:
        victim = self.victim()
        if victim is None or self.is_spared(victim, by_leaving=kind == "pause"):
            return
        self.busy.add(victim)
        world = self._world
        if kind == "pause":
            world.pause(victim)
            self.after(self.chance.between(300, 2 * self._settings.session_timeout_ms), lambda: self.up(victim))
            return
        if kind == "disk failure":
            place = self.chance.one_of(_CLEANINGS if self._compacts and self.chance.happens(0.3) else self._places)
            is_alone = self._settings.log_directories > 1 and self.chance.happens(0.6)
            self._broken_disks[victim] = is_alone
            world.fail_disk(victim, place, is_alone=is_alone)
            wait_ms = (_PLACE_MS if place else 0) + (self._settings.session_timeout_ms if is_alone else 0)
            self.after(wait_ms + self.duration_ms(), lambda: self._replace_disk(victim))
            return
        if kind == "clean restart":
            world.stop(victim)
        elif kind == "crash" and self.chance.happens(0.5):
            place = self.chance.one_of(self._places)
            change = self.chance.between(1, _PLACE_CHANGES_MAX if place else _CUT_CHANGES_MAX)
            self.doomed.add(victim)
            world.crash_within(victim, change, self.is_spared, where=place)
            self.after(_PLACE_MS if place else _CUT_MS, lambda: self.crash(victim))
            return
        else:
            world.crash(victim)
        if kind == "wipe":
            world.wipe(victim)
        if kind == "lost epochs":
            world.lose_epochs(victim)
        if kind in _LOSING and "metadata cut" in self._settings.faults and self.chance.happens(0.3):
            self.cut_from(victim, "metadata")  # it comes back without knowing what is in the tier
        self.after(self.duration_ms(), lambda: self.up(victim))

    def _stall(self) -> None:
        """Let single tasks of a broker stand still for a while each, here and there, while its others go on."""
        broker = self.victim()
        if broker is not None and not self.is_spared(broker, by_leaving=True):
            if self.chance.happens(0.5):
                task = self.chance.one_of(TASKS)
                self._world.stall(broker, _STALL_RATE_OF_ONE, _STALL_SECONDS_OF_ONE, task=task)
            else:
                self._world.stall(broker, self.chance.one_of(_STALL_RATES), self.chance.one_of(_STALL_SECONDS))
            self.after(self.chance.between(500, 3_000), lambda: self._world.stall(broker))
            if "record deletion" in self._settings.faults:  # what a task has looked at may have gone when it goes on
                led = [each for each, leader in sorted(self._world.controller.leaders().items()) if leader == broker]
                self._admin.delete_records(self.chance.one_of(led) if led else None)

    def _cut_power(self) -> None:
        """Crash all brokers at once."""
        for broker in self._world.running():
            if broker not in self.busy:
                self.busy.add(broker)
                self._world.crash(broker)
                self.after(self.duration_ms(), lambda broker=broker: self.up(broker))

    def _elect_behind(self) -> int:
        """Let a follower fall behind while the others go on, crash them, and elect it: its log ends below what is
        committed, and copied.
        """
        world, controller = self._world, self._world.controller
        leaders = sorted((each, leader) for each, leader in controller.leaders().items() if leader is not None)
        if not leaders or self.busy:
            return 0
        partition, leader = self.chance.one_of(leaders)
        others = [each for each in controller.replicas(partition) if each != leader and each in world.running()]
        if not others:
            return 0
        current = [each for each in others if world.is_current(partition, each)]
        behind = self.chance.one_of(current or others)
        self.busy.add(behind)
        names = broker_name(behind), broker_name(leader)
        cuts = {names, names[::-1]}
        for source, target in sorted(cuts):
            self._cuts.add((source, target))
            world.cut(source, target)
        behind_ms = self._settings.replica_lag_ms + self.chance.between(1_000, 4_000)
        far_ms = _FAR_BEHIND_MS if self.chance.happens(0.7) else 0
        is_far = self.chance.one_of((world.begin_behind, world.has_nothing_local))
        self.after(
            behind_ms, lambda: self._await_far(lambda: is_far(partition, behind), partition, behind, cuts, far_ms)
        )
        return behind_ms + far_ms + 2 * self._settings.session_timeout_ms + 5_000

    def _await_far(
        self, is_far: Callable[[], bool], partition: Partition, behind: int, cuts: set[tuple[str, str]], left_ms: int
    ) -> None:
        """Wait until the others have deleted locally what a follower lacks: they will be cut in front of their logs; or
        until it has deleted all that it has, in front of whose end a segment of the tier goes on.
        """
        if left_ms > 0 and not is_far():
            self.after(_WATCH_MS, lambda: self._await_far(is_far, partition, behind, cuts, left_ms - _WATCH_MS))
        else:
            self._betray(partition, behind, cuts)

    def _betray(self, partition: Partition, behind: int, cuts: set[tuple[str, str]]) -> None:
        """Crash all replicas but the one that is behind, or pause them, and have it elected; then let all run again."""
        world = self._world
        self._mend(cuts)
        self.busy.discard(behind)
        hurt = world.pause if self.chance.happens(0.5) else world.crash  # then an open log is cut
        for broker in world.controller.replicas(partition):
            if broker != behind and broker in world.running() and broker not in self.busy:
                self.busy.add(broker)
                hurt(broker)
                self.after(self._settings.session_timeout_ms + 1_500, lambda broker=broker: self.up(broker))
        elected_ms = self._settings.session_timeout_ms + 1_000
        self.after(elected_ms, lambda: world.elect_unclean(partition))
        if self.chance.happens(0.5):  # while others, which were cut to its log, have yet to begin theirs anew
            self.after(elected_ms + self.chance.between(600, 2_000), lambda: self._betray_again(partition, behind))

    def _betray_again(self, partition: Partition, leader: int) -> None:
        """Crash the leader too, and have one of its followers elected."""
        if self._world.controller.leaders().get(partition) == leader:
            self._crash_unless_hurt(leader)
            self.after(self._settings.session_timeout_ms + 600, lambda: self._world.elect_unclean(partition))

    def _crash_unless_hurt(self, broker: int) -> None:
        if broker in self._world.running() and broker not in self.busy:
            self.busy.add(broker)
            self.crash(broker)

    def crash(self, broker: int) -> None:
        """Crash a broker that made fewer changes than it was to crash behind, and let it run again later."""
        self.doomed.discard(broker)
        if broker in self._world.running() and self.is_spared(broker):
            self._world.spare(broker)
            self.busy.discard(broker)
            return
        self._world.crash(broker)
        self.after(self.duration_ms(), lambda: self.up(broker))

    def is_spared(self, broker: int, *, by_leaving: bool = False) -> bool:
        """Whether a crash would take the last copy of what is committed: only seeds with unclean elections do that. So
        would a clean stop, a pause or a cut that leaves one in sync alone which has lost its power.
        """
        is_unclean = "unclean election" in self._settings.faults
        return not is_unclean and self._world.would_lose(broker, by_leaving=by_leaving)

    def up(self, broker: int) -> None:
        """Let a broker run again, whatever was done to it. A clean stop may still be under way."""
        world = self._world
        if broker in world.paused():
            world.resume(broker)
        elif broker in world.down():
            world.start(broker)
        elif broker not in world.running():
            self._world.network.after(200, lambda: self.up(broker))
            return
        self.busy.discard(broker)

    def _replace_disk(self, broker: int) -> None:
        """The disk takes writes again; its logs are offline until the broker is started anew. One that goes on with its
        other directory is stopped: by now it may have there what nobody else has.
        """
        is_alone = self._broken_disks.pop(broker, None)
        if is_alone is None:
            return
        if not is_alone:
            self._world.crash(broker)
        self._world.mend_disk(broker)
        if is_alone:
            self._world.stop(broker)
        self._world.network.after(100, lambda: self.up(broker))

    def _roll(self, brokers: list[int]) -> None:
        """Restart one broker after the other, with other settings."""
        if not brokers:
            return
        broker = brokers.pop()
        if broker not in self.busy and broker in self._world.running() and not self.is_spared(broker):
            self.busy.add(broker)
            self._world.reconfigure(broker, self._settings.changed_config)
            self._world.stop(broker)
            self.after(500, lambda: self.up(broker))
        self.after(2_000, lambda: self._roll(brokers))

    def _rot(self, kind: str) -> None:
        """Let bits rot: of one broker's log, or of all brokers' caches, which hold few chunks at a time."""
        running = self._world.running()
        if kind == "local rot":
            running = tuple(self.chance.one_of(running) for _ in running[:1])
        for broker in running:
            self._world.rot(broker, self.chance.below(1 << 20), cached=kind == "cache rot")

    def _turn_clock(self, kind: str) -> None:
        broker = self.chance.between(1, self._settings.brokers)
        if kind == "clock jump":
            self._world.jump_clock(broker, self.chance.between(-1_500, 1_500))
        else:
            self._world.drift_clock(broker, self.chance.between(-20_000, 20_000))

    # ---- the coordinator and the administrator

    def _delay_markers(self, *, fails_over: bool) -> None:
        """Have the coordinator hold markers and answers back; and have another one in its place meanwhile."""
        self._coordinator.marker_delay_ms = self.chance.between(100, 1_500)
        self._coordinator.answer_delay_ms = self.chance.between(100, 3_000)

        def calm() -> None:
            self._coordinator.marker_delay_ms = self._coordinator.answer_delay_ms = 0

        self.after(self.duration_ms(), calm)
        if fails_over:
            away_ms = self.chance.between(50, 1_500)
            self.after(self.chance.between(100, 1_500), lambda: self._coordinator.fail_over(away_ms))

    def _administer(self, kind: str) -> None:
        match kind:
            case "leader change":
                self._admin.prefer_leader()
            case "unclean election":
                self._admin.elect_unclean()
            case "configuration change":
                self._admin.change_config()
            case "topic deletion":
                if self.chance.happens(0.3):
                    self._admin.replace_topic()
            case "record deletion":
                self._admin.delete_records()
            case "log move":
                self._world.move_log(self.chance.between(1, self._settings.brokers), self.chance.below(1 << 20))
            case "trap":
                self.traps.set()
            case "stale copier":
                self.traps.want_copier()
            case _:
                raise AssertionError(f"a fault of an unknown kind: {kind}")

    # ---- the end

    def heal(self) -> tuple[int, ...]:
        """Stop the faults: of all brokers, or of a random majority; return the brokers that are well."""
        self.is_over = True
        brokers = list(range(1, self._settings.brokers + 1))
        well = list(brokers)
        if self._settings.heals_majority_alone:
            hurt = [each for each in brokers if each not in self._world.running()]
            while hurt and len(brokers) - len(well) < (len(brokers) - 1) // 2:
                well.remove(hurt.pop(self.chance.below(len(hurt))))
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
        for broker in range(1, self._settings.brokers + 1):
            self._world.stall(broker)

    def _heal(self, broker: int) -> None:
        self._world.drift_clock(broker, 0)
        if broker in self.doomed:
            self.crash(broker)
        if broker in self._broken_disks:
            self._replace_disk(broker)
        else:
            self.up(broker)
