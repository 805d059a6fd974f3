"""The whole of a simulated cluster, made of a seed's settings: it runs, is hurt, heals, settles and closes.

What crosses the border of a node crosses the network. The nemesis says which fault comes next; the world does it, and
tells the judge and the trace.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.broker import TASKS, Broker
from tests.simulation.clients import Clients
from tests.simulation.cluster_view import view_of
from tests.simulation.controller import Controller
from tests.simulation.coordinator import Coordinator
from tests.simulation.disks import Disk, Folders, RealDisk
from tests.simulation.facts import Judge, JudgeError, Violation
from tests.simulation.messages import Partition
from tests.simulation.metadata_log import MetadataNode
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.settings import LEAST_EVENTS, LEAST_NUMBERS, Settings
from tests.simulation.settling import Settling
from tests.simulation.store import StoreNode
from tests.simulation.trace import Trace
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler, SkewedClock
from tierlog.runtime.simulated.strands import Strand

#: How often the task of the world looks whether the run is over.
_LOOK_SECONDS: Final = 0.05
_MOMENT_SECONDS: Final = 0.0005
#: Garbage is collected at these events alone: finalizers take locks.
_GARBAGE_EVENTS: Final = 5_000
_CHECKPOINT_EVENTS: Final = 1_000
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0


class World:
    """A cluster.

    Args:
        settings: What decides everything.
        judge: Is told what happens.
        trace: Is told events.
        root: A directory of this machine in which the brokers' disks are, of a run without faults; None: in memory.
    """

    def __init__(self, settings: Settings, judge: Judge, trace: Trace, *, root: str | None = None) -> None:
        self.settings = settings
        self.trace = trace
        self.scheduler = ManualScheduler(
            settings.rng("scheduler").integer_below(1 << 32), switch_rate=settings.switch_rate
        )
        trace.now_ms = self.scheduler.clock.time_ms
        self.judge: Judge = _Told(judge, self.scheduler)  # type: ignore[assignment]
        self.network = Network(self.scheduler, trace, settings.rng("network"), delay_ms=settings.network_delay_ms)
        self._rng = settings.rng("world")
        clock = self.scheduler.clock
        self.controller = Controller(settings, self.network, self.judge, trace)
        topic_machine = Machine(clock=clock)
        self.metadata = MetadataNode(self.network, self.judge, trace, settings.metadata_partitions, topic_machine)
        self.store = StoreNode(self.network, self.judge, trace, settings.rng("store"))
        self.coordinator = Coordinator(settings, self.network, self.judge, trace.count)
        self.clients = Clients(settings, self.network, self.judge)
        self.nemesis = Nemesis(settings, self, self.clients.admin, self.coordinator)
        self.metadata.on_appended = self.nemesis.traps.metadata_appended
        ids = range(1, settings.brokers + 1)
        skews = (*settings.clock_skews_ms, *(0 for _ in ids))
        self._clocks = {each: SkewedClock(clock, skew_ms=skews[each - 1]) for each in ids}
        self._disks = {each: Disk(self._clocks[each], settings.rng(f"disk-{each}")) for each in ids}
        self._real = {} if root is None else {each: RealDisk(f"{root}/broker-{each}") for each in ids}
        self._configs = {each: dict(settings.broker_config) for each in ids}
        self._numbers = dict.fromkeys(ids, 0)
        self._touched = {each: frozenset((each,)) for each in ids}
        self._by_group: dict[int, int] = {}
        self.lives: dict[int, Broker] = {}
        self.ended: list[Broker] = []
        self._lost: set[int] = set()
        self._failing: set[int] = set()
        self._stalled: set[int] = set()
        self._rotten: dict[tuple[str, int], dict[int, set[str]]] = {}  # by broker: the files, below its directories
        self._is_judged = False
        self._next_garbage = _GARBAGE_EVENTS
        self._next_checkpoint = _CHECKPOINT_EVENTS

    # ---- a run

    def run(self) -> None:
        """Run until the settings' events have happened, heal, settle, and close. Raises Violation."""
        for each in self._disks:
            self.start(each)
        self.wait_for("all brokers run", self.all_run, _START_SECONDS)
        self.judge.begin(view_of(self), self.network.now_ms)
        self._is_judged = True
        self.scheduler.after_turn = self._after_turn
        self.controller.make_topics()
        self.wait_for("all partitions have leaders", lambda: self.controller.is_whole, _START_SECONDS)
        self.clients.start()
        if "unclean election" in self.settings.faults:
            self._began("unclean election", "may happen")
        self.nemesis.start()
        while not self._is_long_enough():
            self.look()
        Settling(self).run()
        self._close()

    def _is_long_enough(self) -> bool:
        """Whether there were enough events; a whole run with faults goes on, for a while, until it has met enough."""
        events, wanted = self.trace.events, self.settings.events
        if events < wanted or not self.settings.faults or wanted < LEAST_EVENTS:
            return events >= wanted
        counters = self.trace.counters
        return events >= 10 * wanted or all(counters[name] >= least for name, least in LEAST_NUMBERS.items())

    def look(self) -> None:
        """Wait a little, and do what is due by the number of events."""
        self.scheduler.clock.sleep(_LOOK_SECONDS)
        if self.trace.events >= self._next_garbage:
            self._next_garbage += _GARBAGE_EVENTS
            gc.collect()
        if self._is_judged and self.trace.events >= self._next_checkpoint:
            self._next_checkpoint += _CHECKPOINT_EVENTS
            self.let_changes_end()
            self.judge.checkpoint(self.network.now_ms)

    def let_changes_end(self) -> None:
        """Wait until no task is in the middle of a change of a log. A paused one stays there: its broker's are left out
        by the view.
        """
        while any(
            replica.is_changing
            for life in self.lives.values()
            if not life.group.is_paused
            for replica in life.replicas.values()
        ):
            self.scheduler.clock.sleep(_MOMENT_SECONDS)

    def wait_for(self, what: str, is_so: Callable[[], bool], seconds: float, *, words: Callable[[], str] = str) -> None:
        """Wait until something is so. Raises Violation: it is not within so many seconds; ``words`` say more."""
        until = self.scheduler.clock.monotonic_seconds() + seconds
        while not is_so():
            if self.scheduler.clock.monotonic_seconds() > until:
                raise Violation(10, "stuck", f"within {seconds:.0f} s not: {what} {words()}")
            self.look()

    def all_run(self) -> bool:
        """Whether all brokers run, as the controller has it."""
        return self.controller.active() == set(self._disks)

    def sleep(self, seconds: float) -> None:
        """Let the cluster go on for so long."""
        until = self.scheduler.clock.monotonic_seconds() + seconds
        while self.scheduler.clock.monotonic_seconds() < until:
            self.look()

    def _close(self) -> None:
        self._is_judged = False
        self.scheduler.after_turn = None
        for each in list(self.lives.values()):
            each.stop()
        self.wait_for("all brokers have stopped", lambda: not self.lives, _STOP_SECONDS)
        self.sleep(5.0)
        gc.collect()  # a file that nobody has is closed
        self.judge.closed(self.network.now_ms)

    def _after_turn(self, strand: Strand, was_woken: bool) -> None:
        """A task of a broker has run for a while: what it changed is judged."""
        broker = self._by_group.get(id(strand.group))
        if broker is None:
            return
        if not was_woken and strand.name in TASKS:
            self.trace.event("task", broker, strand.name)
        self.judge.step(self._touched[broker], self.network.now_ms)

    # ---- what there is

    @property
    def disks(self) -> Mapping[int, Disk | RealDisk]:
        """The disks that the brokers have, by broker."""
        return self._real or self._disks

    @property
    def has_rotted(self) -> bool:
        """Whether bits of any log have rotted."""
        return bool(self._rotten)

    def lead_by_sound(self) -> None:
        """Let sound replicas lead, where others have rotted, as an administrator does."""
        for (topic, number), unsound in sorted(self._rotten.items()):
            self.controller.lead_by_others(topic, number, unsound.keys())
            still = {each for each, names in unsound.items() if any(self._has_segment(each, name) for name in names)}
            self.controller.lead_by_others(topic, number, still)  # where all in sync have rotted, some since mended

    def _has_segment(self, broker: int, name: str) -> bool:
        """Whether a broker's disk has a file of a log, in either directory."""
        return any(self._disks[broker].files.find(f"/{folder}/{name}") is not None for folder in ("logs", "logs-2"))

    def running(self) -> tuple[int, ...]:
        """The brokers that run, and are neither paused nor about to stop."""
        lives = sorted(self.lives.items())
        return tuple(each for each, life in lives if not life.group.is_paused and not life.is_stopping)

    def down(self) -> tuple[int, ...]:
        """The brokers that do not run."""
        return tuple(each for each in self._disks if each not in self.lives)

    def paused(self) -> tuple[int, ...]:
        """The brokers that are paused."""
        return tuple(each for each, life in sorted(self.lives.items()) if life.group.is_paused)

    def storage_config(self, folders: Folders) -> Mapping[str, object]:
        """The storage manager's configuration; its store is replaced."""
        config: dict[str, object] = dict(self.settings.storage_config)
        config |= {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
            "storage.root": folders.logs,
            "store.probe.enabled": "false",
        }
        if config.get("encryption.enabled") == "true":
            pair = "encryption.key.pairs"
            config |= {pair: "k1", "encryption.key.pair.id": "k1"}
            config |= {f"{pair}.k1.{kind}.key.file": f"{folders.keys}/{kind}.der" for kind in ("public", "private")}
        if config.get("fetch.chunk.cache.class") == "disk":
            config["fetch.chunk.cache.path"] = folders.cache
        return config

    def begin_behind(self, partition: Partition, broker: int) -> bool:
        """Whether all other local logs of a partition that run begin behind the end of a broker's."""
        logs = {each: life.replicas[partition].log for each, life in self.lives.items() if partition in life.replicas}
        own = logs.pop(broker, None)
        return own is not None and all(log.local_log_start_offset > own.log_end_offset for log in logs.values())

    def is_current(self, partition: Partition, broker: int) -> bool:
        """Whether a broker knows that all of its log of a partition is committed."""
        life = self.lives.get(broker)
        log = None if life is None or partition not in life.replicas else life.replicas[partition].log
        return log is not None and log.high_watermark == log.log_end_offset

    def has_nothing_local(self, partition: Partition, broker: int) -> bool:
        """Whether a broker's log of a partition is in the tier alone."""
        life = self.lives.get(broker)
        log = None if life is None or partition not in life.replicas else life.replicas[partition].log
        return log is not None and 0 < log.local_log_start_offset == log.log_end_offset

    # ---- lives

    def start(self, broker: int) -> None:
        """Begin a life."""
        if broker in self.lives:
            return
        self._numbers[broker] += 1
        number = self._numbers[broker]
        self._fault("start", broker, number)
        self.judge.broker_started(broker, number, self.network.now_ms)
        disk, clock = self._real.get(broker) or self._disks[broker], self._clocks[broker]
        self.lives[broker] = life = Broker(self, broker, number, disk, clock, dict(self._configs[broker]))
        self._by_group[id(life.group)] = broker

    def stop(self, broker: int) -> None:
        """Stop cleanly."""
        life = self.lives.get(broker)
        if life is not None and not life.is_stopping and not life.group.is_paused:
            self._fault("stop", broker)
            life.stop()

    def after_stop(self, life: Broker) -> None:
        """A life has stopped cleanly."""
        if self.lives.get(life.broker_id) is life:
            del self.lives[life.broker_id]
            self.ended.append(life)
            self._fault("stopped", life.broker_id, life.life)
            self.judge.broker_stopped(life.broker_id, life.life, True, self.network.now_ms)

    def crash(self, broker: int) -> None:
        """Lose power: what was not synced is gone, or a part of it."""
        life = self.lives.pop(broker, None)
        if life is None:
            return
        self._fault("crash", broker, life.life)
        self._lost.add(broker)
        self._failing.discard(broker)
        self.network.end(life.name, is_crash=True)
        self._disks[broker].crash()
        life.group.abandon(life)
        self.judge.broker_stopped(broker, life.life, False, self.network.now_ms)

    def would_lose(self, broker: int, *, by_leaving: bool = False) -> bool:
        """Whether a crash of a broker would take the last copy that is sure to have all that was committed; or, if it
        is paused or cut off, and leaves in-sync sets by that, one that has crashed would be left in them.
        """
        gone, leaving = self._leaving() | self._failing, {*self.paused(), *self._cut_off(), *self._stalled}
        (leaving if by_leaving else gone).add(broker)
        return any(
            holders <= gone | self._rotten.get(partition[:2], {}).keys()
            for partition, sets in self.controller.holders(leaving).items()
            for holders in sets
        )

    def _cut_off(self) -> set[int]:
        """The brokers that cannot reach, or be reached by, others or the controller."""
        nodes = [each for cut in self.network.cuts if not {"store", "metadata"} & {*cut} for each in cut]
        return {int(each.removeprefix("broker-")) for each in nodes if each.startswith("broker-")}

    def may_commit(self, brokers: set[int]) -> bool:
        """Whether these brokers alone can lead each partition, and have as many replicas of it as a commit needs."""
        return self.controller.may_commit(brokers, self._leaving())

    def _leaving(self) -> set[int]:
        """The brokers that have lost power, and have not left all in-sync sets yet, as they do in their next life."""
        for each in sorted(self._lost):
            if each in self.lives and self.controller.incarnation(each) == self._numbers[each]:
                self._lost.discard(each)
        return self._lost

    def _may_rot(self, broker: int, path: str) -> bool:
        """Whether another replica that has all that was committed is sound."""
        if not path.split("/")[-2].rpartition("-")[2].isdigit():
            return False  # it is deleted
        key = _partition_of(path)
        gone = self._lost | self._failing | self._rotten.get(key, {}).keys() | {broker}
        found = [holders for each, (holders,) in self.controller.holders().items() if each[:2] == key]
        return bool(found) and not any(holders <= gone for holders in found)

    def crash_within(self, broker: int, change: int, is_spared: Callable[[int], bool], *, where: str = "") -> None:
        """Lose power in front of the broker's n-th change of its disk from now on, of files whose path has a part: in
        the middle of what it does; or later, as long as it is spared. ``spare`` calls it off.
        """
        life = self.lives.get(broker)
        if life is None:
            return

        def end() -> None:
            if self.lives.get(broker) is life:
                self.trace.count(f"crashes within a change{where and ' of '}{where}")
                self.crash(broker)

        def cut() -> None:
            if self.scheduler.current().group is life.group and not is_spared(broker):
                self.network.after(0, end)
                life.group.wait()  # for ever: the crash abandons this task

        self._disks[broker].cut_power_at(change, cut, where)

    def spare(self, broker: int) -> None:
        """Call off what ``crash_within`` has begun."""
        self._disks[broker].spare()

    def failed(self, life: Broker) -> None:
        """A broker's disk failed for it: its process ends, as Kafka's does without a log directory."""

        def end() -> None:
            if self.lives.get(life.broker_id) is life:
                self.trace.count("brokers ended by their disk")
                self.crash(life.broker_id)

        self.network.after(0, end)

    def pause(self, broker: int) -> None:
        """Stop the process for a while."""
        life = self.lives.get(broker)
        if life is not None and not life.is_stopping:
            self._began("pause", broker)
            life.group.pause()

    def resume(self, broker: int) -> None:
        """Let a paused process go on."""
        life = self.lives.get(broker)
        if life is not None and life.group.is_paused:
            self._ended("pause", broker)
            life.group.resume()

    def stall(self, broker: int, rate: float = 0.0, seconds_max: float = 0.0, *, task: str | None = None) -> None:
        """Let tasks of a broker, or those of one name, stand still for up to so long, as often as a rate where another
        may run; 0: none.
        """
        life = self.lives.get(broker)
        if broker in self._stalled:
            self._stalled.discard(broker)
            self._ended("stalls", broker)
            if life is not None:
                life.group.stall = None
        if life is not None and rate:
            rng = self.settings.rng(f"stalls-{broker}-{self.network.now_ms}")
            self._stalled.add(broker)
            self._began("stalls", broker)
            group = life.group

            def stall() -> float:
                is_one = task in (None, group.current().name) and rng.uniform(0, 1) < rate
                return rng.uniform(0, seconds_max) if is_one else 0.0

            group.stall = stall

    def move_log(self, broker: int, index: int) -> None:
        """Move a partition's log, the index-th, to another directory of a broker, or back."""
        life = self.lives.get(broker)
        if life is not None and not life.is_stopping and not life.group.is_paused and life.replicas:
            partition = sorted(life.replicas)[index % len(life.replicas)]
            self._fault("log move", broker, partition)
            life.soon(lambda: life.moves.begin(partition))

    def wipe(self, broker: int) -> None:
        """Lose the whole disk of a broker that is down."""
        if broker not in self.lives:
            self._fault("wipe", broker)
            self._disks[broker].wipe()
            for unsound in self._rotten.values():
                unsound.pop(broker, None)
            self.judge.disk_wiped(broker, self.network.now_ms)

    def lose_epochs(self, broker: int) -> None:
        """Lose the files of leader epochs of a broker that is down, of tiered partitions: their logs have the epochs of
        the records here in their batches, and those of what is in the tier alone nowhere.
        """
        if broker not in self.lives:
            tiered = {each.name for each in self.settings.topics if each.is_tiered}
            for path in self._disks[broker].lose("leader-epoch-checkpoint", tiered):
                self._fault("lost epochs", broker, path)

    def reconfigure(self, broker: int, changes: tuple[tuple[str, str], ...]) -> None:
        """Give a broker another configuration from its next start on."""
        before = dict(self._configs[broker])
        self._configs[broker].update(changes)
        self.trace.count("brokers reconfigured", int(before != self._configs[broker]))

    # ---- faults

    def _fault(self, *words: object) -> None:
        self.trace.count(f"fault: {words[0]}")
        self.trace.event("fault", *words)

    def _began(self, name: str, *words: object) -> None:
        self._fault(name, *words)
        self.judge.fault_began(name, " ".join(map(str, words)), self.network.now_ms)

    def _ended(self, name: str, *words: object) -> None:
        self.trace.event("fault", "end of", name, *words)
        self.judge.fault_ended(name, " ".join(map(str, words)), self.network.now_ms)

    def cut(self, source: str, target: str) -> None:
        """Lose all messages of one direction."""
        self._began("cut", source, target)
        self.network.cut(source, target)

    def mend(self, source: str, target: str) -> None:
        """Lose them no more."""
        if (source, target) in self.network.cuts:
            self._ended("cut", source, target)
            self.network.mend(source, target)

    def set_network(self, *, loss: float = 0.0, doubles: float = 0.0, delay_ms_max: int = 0) -> None:
        """Set the network's faults."""
        network = self.network
        if (network.loss, network.doubles, network.delay_ms_max) == (loss, doubles, delay_ms_max):
            return
        network.loss, network.doubles, network.delay_ms_max = loss, doubles, delay_ms_max
        tell = self._began if loss or doubles or delay_ms_max else self._ended
        tell("network", "loss", loss, "doubles", doubles, "delays", delay_ms_max)

    def set_store(self, broker: int | None = None, **rates: float) -> None:
        """Set the store's faults, for all brokers or for one."""
        self.store.set_faults(broker, **rates)
        tell = self._began if any(rates.values()) else self._ended
        tell("store", *(f"{name}={rate}" for name, rate in sorted(rates.items()) if rate))

    def remove_object(self, index: int) -> None:
        """A lifecycle rule removes an object."""
        key = self.store.remove(index)
        if key is not None:
            self._began("lifecycle", key)

    def rot(self, broker: int, index: int, *, cached: bool) -> None:
        """A bit of a closed segment here, or of a cached chunk, is another one."""
        flipped = self._disks[broker].rot(index, lambda path: self._may_rot(broker, path), cached=cached)
        if flipped is not None and not cached:
            unsound = self._rotten.setdefault(_partition_of(flipped), {})
            unsound.setdefault(broker, set()).add(flipped.split("/", 2)[2])
        if flipped is not None:
            self._began("cache rot" if cached else "local rot", broker, flipped)

    def fail_disk(self, broker: int, where: str = "", *, is_alone: bool = False) -> None:
        """A broker's disk takes no more changes, from one of a file whose path has a part on; or that of its last log
        directory alone.
        """
        self._began("disk failure", broker)
        self._failing.add(broker)
        disk, count = self._disks[broker], self.settings.log_directories
        disk.fail(where, disk.folders.log_directories[count - 1] if is_alone else "")

    def mend_disk(self, broker: int) -> None:
        """It takes changes again."""
        self._ended("disk failure", broker)
        self._failing.discard(broker)
        self._disks[broker].mend()

    def jump_clock(self, broker: int, ms: int) -> None:
        """Set a broker's clock ahead, or back."""
        self._began("clock jump", broker, ms)
        self._clocks[broker].jump(ms)

    def drift_clock(self, broker: int, ppm: int) -> None:
        """Let a broker's clock run faster or slower."""
        self._fault("clock drift", broker, ppm)
        self._clocks[broker].set_drift(ppm / 1_000_000)

    def elect_unclean(self, partition: Partition) -> None:
        """Elect any running replica, where nobody leads."""
        if self.controller.elect_unclean(partition):
            self._began("unclean election", str(partition))


def _partition_of(path: str) -> tuple[str, int]:
    """The topic and number of the partition whose folder a file lies in."""
    topic, _, number = path.split("/")[-2].rpartition("-")
    return topic, int(number)


class _Told:
    """The judge as the world's parts have it: a violation ends the run wherever it is found, whoever would catch it."""

    def __init__(self, judge: Judge, scheduler: ManualScheduler) -> None:
        self._judge = judge
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._judge, name)  # a fact that no judge takes is an error
        scheduler = self._scheduler

        def tell(*arguments: object, **more: object) -> object:
            try:
                return method(*arguments, **more)
            except Violation as violation:
                scheduler.fail(violation)
                raise
            except Exception as error:  # a fault of the judge itself ends the run too
                failure = JudgeError(name)
                failure.__cause__ = error
                scheduler.fail(failure)
                raise

        setattr(self, name, tell)
        return tell
