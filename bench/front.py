"""`tierlog replica --upstream` before a real broker, beside that broker alone: backfills, the live end, storms.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.front [backfill beside live storm] [--scale 0.05] [--rounds 5]

*backfill*: a real broker copies 2 GB to its tier and deletes them locally, as in ``bench.replica``; new groups of
librdkafka, and Kafka's perf consumer, read the topic from its start, straight and through the front, in turn. CPU
seconds are those of broker and front apart, less what they use with no client in as much time. *beside*: a producer of
20 MB/s and a consumer at the live end, straight, with no backfill and beside one that goes on all the time, through
the broker and through the front. *live*: the same producer and consumer at 2 MB/s, straight and through the front;
and a producer as fast as it can, ``acks=all``. *storm*: a thousand clients ask for the metadata of 2,000 partitions at
once, each second. Clients are processes of their own on the same two cores. All parts at full scale take some 30
minutes.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from bench.harness import (
    MIB,
    Side,
    Suite,
    arguments,
    cpu_seconds,
    in_turn,
    memory,
    quotient,
    spread,
    started,
    work_folder,
)
from bench.replica_sides import Client, Served, replica_over
from bench.replica_tier import lags_of, quantile
from bench.storage_sides import FORMS
from bench.topics import broker_settings, fill_tier, our_options
from tests.support.fronts import free_ports
from tests.support.metadata_cluster import admin_of
from tests.support.peers import broker, install, plugin

BROKER, FRONT = "the broker", "the front"
#: MB/s of a backfill × the broker's, at least.
BACKFILL_BARS = {"plain": 1.2, "zstd + AES": 2.5}
CPU_BAR, TAIL_BAR, P50_MS_BAR, PRODUCER_BAR, MEMORY_MIB_BAR, LAG_MS_BAR = 0.05, 1.1, 0.5, 0.7, 300.0, 20.0
IDLE_SECONDS = 10.0
BESIDE_BYTES, LIVE_BYTES, LIVE_SECONDS, PRODUCED_BYTES = 20e6, 2e6, 20.0, 400e6
CLIENTS, TOPICS, STORMS = 1000, 20, 15
LIVE = "live"


class Pair:
    """A broker and a front before it.

    Attributes:
        sides: Both by name, the broker first.
        monitor: Port of the front's figures.
    """

    def __init__(self, theirs: Served, ours: Served, monitor: int) -> None:
        self.sides = {BROKER: theirs, FRONT: ours}
        self.monitor = monitor
        began = self.cpu()
        time.sleep(IDLE_SECONDS)
        self._idle = [(after - before) / IDLE_SECONDS for before, after in zip(began, self.cpu(), strict=True)]

    def cpu(self) -> list[float]:
        """CPU seconds of the broker and of the front so far."""
        return [cpu_seconds(side.pid) for side in self.sides.values()]

    def timed(self, read: Callable[[], object]) -> dict[str, object]:
        """One round: its seconds, and the CPU seconds of both above their idle."""
        before, began = self.cpu(), time.perf_counter()
        told = read()
        wall = time.perf_counter() - began
        spent = [
            max(0.0, after - start - idle * wall)
            for start, after, idle in zip(before, self.cpu(), self._idle, strict=True)
        ]
        own = told if isinstance(told, float) else told["seconds"] if isinstance(told, dict) else wall
        return {"wall": own, "spent": spent}


@contextlib.contextmanager
def running(folder: pathlib.Path, form: str, fills: Callable[[broker.Broker], None]) -> Iterator[Pair]:
    """A broker that tiers in one form, filled, and the front over its bucket."""
    root = folder / "bucket"
    root.mkdir(parents=True)
    with broker.running(folder / "broker", heap="2g", extra=broker_settings(form, root, folder)) as theirs:
        fills(theirs)
        monitor, ports = broker.free_port(), free_ports(3)
        more = ["--upstream", theirs.bootstrap, "--advertise", f"127.0.0.1:{ports[0]}-{ports[-1]}"]
        more += ["--monitor", f"127.0.0.1:{monitor}"]
        with replica_over(root, folder, *more, keys=our_options(form, root, folder)) as ours:
            straight = Served(BROKER, theirs.bootstrap, theirs.process.pid)
            yield Pair(straight, Served(FRONT, ours.bootstrap, ours.pid), monitor)
    shutil.rmtree(folder)


@contextlib.contextmanager
def clients() -> Iterator[Side]:
    with started("clients", [sys.executable, "-m", "bench.front_clients"], in_json=True) as side:
        yield side


# ---- backfills


def measure_backfill(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """Both forms; the plain one alone without the plugin."""
    for form in FORMS if plugin.jars() else ("plain",):
        if form in BACKFILL_BARS:
            _backfill(suite, folder / form.replace(" + ", "-"), form, scale, rounds)


def _backfill(suite: Suite, folder: pathlib.Path, form: str, scale: float, rounds: int) -> None:
    ends: dict[str, int] = {}
    with running(folder, form, lambda each: ends.update(fill_tier(each, "cold", "none", scale))) as pair:
        records, size = sum(ends.values()), _bytes_of(folder, pair, ends)
        perf = Client(folder, "cold", ends)
        with clients() as process:

            def by_librdkafka(side: Served) -> object:
                return process("backfill", bootstrap=side.bootstrap, topic="cold", records=records)

            for name, read in {"librdkafka": by_librdkafka, "Kafka's perf consumer": perf.by_perf_consumer}.items():
                calls = {
                    each: lambda side=side, read=read: pair.timed(lambda: read(side))
                    for each, side in pair.sides.items()
                }
                found = in_turn(calls, rounds)
                what = f"{form}, backfill by {name}"
                suite.speed(
                    f"{what}, MB/s", found, BROKER, amount=size, unit="MB/s", ours=FRONT, bar=BACKFILL_BARS[form]
                )
                spent = {side: list(zip(*(each.told["spent"] for each in found[side]), strict=True)) for side in found}
                told = f"{spread(spent[FRONT][0], '.2f')} s, straight {spread(spent[BROKER][0], '.2f')} s; "
                told += f"the front's {spread(spent[FRONT][1], '.2f')} s"
                share = quotient(spent[FRONT][0], spent[BROKER][0])
                suite.add(f"{what}, the broker's CPU s, × straight", told, share, CPU_BAR, least=False)


def _bytes_of(folder: pathlib.Path, pair: Pair, ends: dict[str, int]) -> int:
    """Bytes of the batches that are read, which are equal on both sides."""
    client = Client(folder, "cold", ends)
    told = {name: client.read(side, "hash") for name, side in pair.sides.items()}
    hashes = {name: [line.split()[-1] for line in lines] for name, lines in told.items()}
    if hashes[BROKER] != hashes[FRONT]:
        raise SystemExit(f"the front serves other batches than the broker: {hashes}")
    return sum(int(line.split()[0]) for line in client.read(pair.sides[BROKER]))


# ---- the live end


def measure_beside(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """The tail's latency with no backfill, and beside one."""
    ends: dict[str, int] = {}

    def fills(each: broker.Broker) -> None:
        ends.update(fill_tier(each, "cold", "none", scale))
        _make(each.bootstrap, [LIVE], 1)

    with running(folder / "beside", "plain", fills) as pair, clients() as tail, clients() as reader:
        found: dict[str, list[float]] = {"none": [], BROKER: [], FRONT: []}
        for number in range(rounds + 1):
            for name, measured in found.items():
                with _backfilling(reader, pair.sides.get(name), sum(ends.values())):
                    answer = tail(
                        "live",
                        bootstrap=pair.sides[BROKER].bootstrap,
                        topic=LIVE,
                        rate_bytes=BESIDE_BYTES,
                        seconds=LIVE_SECONDS * min(1.0, 4 * scale),
                    )
                if number:
                    measured.append(answer["p99"])
    alone = found.pop("none")
    for name, measured in found.items():
        told = f"{spread(measured, '.1f')} ms, with none {spread(alone, '.1f')} ms"
        what = f"tail's p99 beside a backfill through {name}, × with none"
        suite.add(what, told, quotient(measured, alone), TAIL_BAR if name == FRONT else None, least=False)


@contextlib.contextmanager
def _backfilling(reader: Side, side: Served | None, records: int) -> Iterator[None]:
    """Backfill after backfill within the block; none without a side."""
    stop = threading.Event()

    def read() -> None:
        while side is not None and not stop.is_set():
            reader("backfill", bootstrap=side.bootstrap, topic="cold", records=records)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _make(bootstrap: str, topics: Sequence[str], partitions: int) -> None:
    from confluent_kafka.admin import NewTopic

    admin = admin_of(bootstrap)
    for made in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        made.result(120)


def measure_live(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """The latency of the live end, and the speed of a producer."""

    def fills(each: broker.Broker) -> None:
        fill_tier(each, "cold", "none", 0.01)  # a bucket without anything is taken for a wrong one
        _make(each.bootstrap, [LIVE], 1)

    with running(folder / "live", "plain", fills) as pair, clients() as process:
        seconds, size = LIVE_SECONDS * min(1.0, 4 * scale), PRODUCED_BYTES * scale
        found: dict[str, list[dict[str, float]]] = {name: [] for name in pair.sides}
        for number in range(rounds + 1):
            for name, side in pair.sides.items():
                at = {"bootstrap": side.bootstrap, "topic": LIVE}
                answer = process("live", **at, rate_bytes=LIVE_BYTES, seconds=seconds)
                before = pair.cpu()
                answer |= process("produce", **at, size_bytes=size)
                answer["cpu"] = pair.cpu()[1] - before[1]
                if number:
                    found[name].append(answer)

    def values(side: str, name: str) -> list[float]:
        return [each[name] for each in found[side]]

    for name, bar in (("p50", P50_MS_BAR), ("p99", None)):
        ours, theirs = values(FRONT, name), values(BROKER, name)
        told = f"{spread(ours, '.2f')} ms, straight {spread(theirs, '.2f')} ms"
        more = statistics.median(ours) - statistics.median(theirs)
        suite.add(f"live end, {name} more than straight, ms", told, more, bar, least=False)
    ours, theirs = ([size / MIB / each for each in values(side, "seconds")] for side in (FRONT, BROKER))
    told = f"{spread(ours)} MiB/s, straight {spread(theirs)} MiB/s; "
    told += f"the front's CPU {spread(values(FRONT, 'cpu'), '.2f')} s"
    suite.add("producer, acks=all, × straight", told, quotient(ours, theirs), PRODUCER_BAR)


# ---- storms


def measure_storm(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """Many clients that ask for all metadata at once."""
    del rounds  # each storm is one
    count, partitions = max(10, int(CLIENTS * min(1.0, scale))), max(1, int(100 * min(1.0, scale)))

    def fills(each: broker.Broker) -> None:
        fill_tier(each, "cold", "none", 0.01)
        _make(each.bootstrap, [f"topic-{number}" for number in range(TOPICS)], partitions)

    with running(folder / "storm", "plain", fills) as pair, clients() as process:
        before = lags_of(pair.monitor)
        told = process("storm", bootstrap=pair.sides[FRONT].bootstrap, clients=count, storms=STORMS)
        straight = process("storm", bootstrap=pair.sides[BROKER].bootstrap, clients=count, storms=STORMS)
        counts = {bound: seen - before[bound] for bound, seen in lags_of(pair.monitor).items()}
        resident = memory(pair.sides[FRONT].pid)["VmHWM"] / MIB
    what = f"storm, {count} clients, {TOPICS * partitions} partitions"
    words = f"one storm {told['seconds']:.2f} s, straight {straight['seconds']:.2f} s"
    suite.add(f"{what}, the front's memory at most, MiB", words, resident, MEMORY_MIB_BAR, least=False)
    lag = 1000 * quantile(counts, 0.99)
    suite.add(f"{what}, loop lag p99, ms", f"p50 {1000 * quantile(counts, 0.5):.2f} ms", lag, LAG_MS_BAR, least=False)


PARTS = {"backfill": measure_backfill, "beside": measure_beside, "live": measure_live, "storm": measure_storm}


def main() -> None:
    chosen = arguments(__doc__, tuple(PARTS))
    suite = Suite("front", {"kafka": "4.3.1", "confluent-kafka": install.version_here("confluent-kafka")})
    with work_folder() as folder:
        for name in chosen.parts:
            PARTS[name](suite, folder, chosen.scale, chosen.rounds)
    suite.save()


if __name__ == "__main__":
    main()
