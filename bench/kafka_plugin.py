"""A real broker with our plugin and its sidecar, beside the same broker with the Aiven plugin.

Both tier the same topic into a folder each. CPU and memory are of the broker and of the processes that it has started.
The peer's jars are named by TIERLOG_PLUGIN_JARS.

    copies: a filled topic becomes a tiered one, until its last closed segment is in the bucket
    reads: one client reads the tiered topic; then fifty, each at a place of its own
    streams: the heap of a JVM with 200 half-read streams of the class
    start: from the start of the broker to its first copy
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.harness import MIB, Suite, arguments, cpu_seconds, in_turn, memory, quotient, spread, work_folder
from bench.replica_sides import PARTITION_BYTES, Client, Served
from bench.storage_sides import bench_segment, folder_keys, form_keys
from bench.topics import GIGABYTES, fill, fill_tier, plugin_keys, roll, segment_settings, tier_settings
from tests.support.peers import broker, install, plugin, plugin_peer
from tierlog.remote.api import RemoteLogSegmentMetadata

TOPIC, PARTITIONS = "filled", 10
CLIENTS, CLIENT_BYTES, STREAMS = 50, 8 * MIB, 200
CACHE_BYTES, PREFETCH_BYTES = 256 << 20, 16 << 20
PATIENCE_SECONDS = 900.0
PARTS = ("copies", "reads", "streams", "start")
OURS, THEIRS = "ours", "the Aiven plugin"
#: MB/s × the peer's at least with one copy at a time and with ten at once; CPU × the peer's at most.
COPY_BARS: dict[str, tuple[float | None, float | None, float]] = {
    "zstd": (1.4, 1.4, 1.0),
    "zstd + AES": (1.2, 1.5, 1.0),
    "plain": (None, None, 1.0),
    "AES": (None, None, 0.8),
}
READ_BARS = {"plain": (1.0, None), "zstd + AES": (1.5, 0.6)}


@dataclass(frozen=True)
class Side:
    """A plugin in a broker."""

    name: str
    manager: str
    class_path: str
    more: dict[str, str] = field(default_factory=dict)

    def settings(
        self, form: str, root: pathlib.Path, folder: pathlib.Path, cache: str = "", **more: object
    ) -> dict[str, str]:
        """The broker's settings over a bucket in a folder, with a chunk cache in memory or on a disk, or none."""
        folder.mkdir(parents=True, exist_ok=True)
        keys = plugin_keys(form, root, folder) | self.more
        if cache:
            kind = {"memory": "MemoryChunkCache", "disk": "DiskChunkCache"}[cache]
            keys["fetch.chunk.cache.class"] = f"io.aiven.kafka.tieredstorage.fetch.cache.{kind}"
            keys["fetch.chunk.cache.size"] = str(CACHE_BYTES)
            keys["fetch.chunk.cache.prefetch.max.size"] = str(PREFETCH_BYTES)
            if cache == "disk":
                (folder / "cache").mkdir(exist_ok=True)
                keys["fetch.chunk.cache.path"] = str(folder / "cache")
        return {
            **tier_settings(self.manager, self.class_path, keys),
            # A read of the tier that takes longer is answered without records, and made again.
            "remote.fetch.max.wait.ms": "10000",
            **{name.replace("_", "."): str(value) for name, value in more.items()},
        }


def sides() -> list[Side]:
    """Both plugins, the peer first."""
    jar = str(plugin_peer.our_jar())
    return [
        Side(THEIRS, plugin.MANAGER, ":".join(map(str, plugin.jars()))),
        Side(OURS, plugin_peer.OURS, jar, {"tierlog.python": sys.executable}),
    ]


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        for task in pathlib.Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def tree_cpu(pid: int) -> float:
    return sum(map(cpu_seconds, tree(pid)))


def tree_memory(pid: int) -> int:
    """Resident bytes of a broker and of its sidecar."""
    return sum(memory(each)["VmRSS"] for each in tree(pid))


# ---- copies


def template(folder: pathlib.Path, scale: float) -> tuple[pathlib.Path, int, int]:
    """A stopped broker's folder with a filled topic that is not tiered: the folder, closed segments, their bytes."""
    made = folder / "template"
    with broker.running(made) as running:
        size = int(GIGABYTES * 1e9 * scale)
        fill(running, TOPIC, "none", size, partitions=PARTITIONS, settings=segment_settings(scale / 4))
        roll(running, TOPIC, PARTITIONS)
        closed = [sorted((running.log_dir / f"{TOPIC}-{number}").glob("*.log"))[:-1] for number in range(PARTITIONS)]
        logs = [path for each in closed for path in each]
        count, size = len(logs), sum(path.stat().st_size for path in logs)
    return made, count, size


def copied_bytes(
    side: Side, made: pathlib.Path, folder: pathlib.Path, form: str, *, threads: int, count: int
) -> dict[str, Any]:
    """Start a broker over a copy of a folder, tier the topic, and wait for the last manifest."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder / "broker")
    root = folder / "bucket"
    extra = side.settings(form, root, folder, remote_log_manager_copier_thread_pool_size=threads)
    began = time.perf_counter()
    with broker.running(folder / "broker", heap="1g", extra=extra) as running:
        enable(running)
        start, cpu = time.perf_counter(), tree_cpu(running.process.pid)
        first = 0.0
        while (found := sum(1 for _ in root.rglob("*.rsm-manifest"))) < count:
            if found and not first:
                first = time.perf_counter() - began
            if time.perf_counter() - start > PATIENCE_SECONDS:
                raise SystemExit(f"{side.name}, {form}: {found} of {count} segments are copied")
            time.sleep(0.02)
        told = {"wall": time.perf_counter() - start, "cpu": tree_cpu(running.process.pid) - cpu, "first": first}
        told["stored"] = sum(path.stat().st_size for path in root.rglob("*.log"))
    shutil.rmtree(folder)
    return told


def enable(running: broker.Broker) -> None:
    """Make the topic a tiered one."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("remote.storage.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def measure_copies(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    made, count, size = template(folder, scale)
    for form, (one, ten, cpu_bar) in COPY_BARS.items():
        for threads, bar in ((1, one), (10, ten)):
            calls: dict[str, Callable[[], object]] = {
                side.name: lambda s=side, t=threads, f=form: copied_bytes(
                    s, made, folder / "run", f, threads=t, count=count
                )
                for side in sides()
            }
            found = in_turn(calls, rounds, warm=0)
            what = f"copies, {form}, " + ("one at a time" if threads == 1 else "ten at once")
            suite.speed(f"{what}, MB/s", found, THEIRS, amount=size, unit="MB/s", bar=bar)
            cpu = [[each.cpu for each in found[name]] for name in (OURS, THEIRS)]
            told = f"{spread(cpu[0], '.2f')} s, {THEIRS} {spread(cpu[1], '.2f')} s"
            suite.add(f"{what}, CPU s, × {THEIRS}", told, quotient(*cpu), cpu_bar, least=False)


def measure_start(suite: Suite, folder: pathlib.Path, rounds: int) -> None:
    """Seconds from the start of the broker to the first whole copy."""
    made, count, _ = template(folder, 0.05)
    calls: dict[str, Callable[[], object]] = {
        side.name: lambda s=side: copied_bytes(s, made, folder / "run", "plain", threads=10, count=count)
        for side in sides()
    }
    found = in_turn(calls, rounds, warm=1)
    first = [[each.told["first"] for each in found[name]] for name in (OURS, THEIRS)]
    told = f"{spread(first[0], '.2f')} s, {THEIRS} {spread(first[1], '.2f')} s"
    suite.add(
        "start of the broker to its first copy, s more",
        told,
        sorted(first[0])[rounds // 2] - sorted(first[1])[rounds // 2],
        2.0,
        least=False,
    )


# ---- reads


@contextlib.contextmanager
def tiered(
    side: Side, folder: pathlib.Path, form: str, cache: str, scale: float
) -> Iterator[tuple[broker.Broker, Client]]:
    """A broker whose topic is in the tier alone."""
    place = folder / side.name.replace(" ", "-")
    extra = side.settings(form, place / "bucket", place, cache)
    with broker.running(place / "broker", heap="2g", extra=extra) as running:
        client = Client(place, "cold", fill_tier(running, "cold", "none", scale))
        yield running, client
    shutil.rmtree(place)


def measure_reads(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    for form, cache in (("plain", "memory"), ("zstd + AES", "memory"), ("zstd + AES", "disk")):
        with contextlib.ExitStack() as opened:
            both = {side.name: opened.enter_context(tiered(side, folder, form, cache, scale)) for side in sides()}
            calls = {
                name: lambda r=running, c=client: timed(r, lambda: size_of(c, r))
                for name, (running, client) in both.items()
            }
            found = in_turn(calls, rounds)
            size = int(found[OURS][0].told["size"])
            speed_bar, cpu_bar = READ_BARS[form]
            what = f"reads, {form}, cache: {cache}"
            suite.speed(f"{what}, one client, MB/s", found, THEIRS, amount=size, unit="MB/s", bar=speed_bar)
            tell_cpu(suite, f"{what}, one client", found, cpu_bar)
            if form == "plain":
                continue
            many = {
                name: lambda r=running, c=client: timed(r, lambda: at_random(c, r))
                for name, (running, client) in both.items()
            }
            found = in_turn(many, rounds)
            size = int(found[OURS][0].told["size"])
            suite.speed(f"{what}, {CLIENTS} clients, MB/s", found, THEIRS, amount=size, unit="MB/s", bar=1.5)
            tell_cpu(suite, f"{what}, {CLIENTS} clients", found, None)
            resident = {name: tree_memory(running.process.pid) for name, (running, _) in both.items()}
            told = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in resident.items())
            suite.add(
                f"{what}, RSS of broker and sidecar, × {THEIRS}",
                told,
                resident[OURS] / resident[THEIRS],
                1.0,
                least=False,
            )


def tell_cpu(suite: Suite, what: str, found: Any, bar: float | None) -> None:
    cpu = [[each.cpu for each in found[name]] for name in (OURS, THEIRS)]
    told = f"{spread(cpu[0], '.2f')} s, {THEIRS} {spread(cpu[1], '.2f')} s"
    suite.add(f"{what}, CPU s, × {THEIRS}", told, quotient(*cpu), bar, least=False)


def timed(running: broker.Broker, read: Callable[[], int]) -> dict[str, float]:
    cpu, began = tree_cpu(running.process.pid), time.perf_counter()
    size = read()
    return {"wall": time.perf_counter() - began, "cpu": tree_cpu(running.process.pid) - cpu, "size": size}


def size_of(client: Client, running: broker.Broker) -> int:
    """Read all of the topic; its bytes."""
    served = Served("", running.bootstrap, running.process.pid)
    return sum(int(line.split()[0]) for line in client.read(served))


def at_random(client: Client, running: broker.Broker) -> int:
    """Read some MiB by each of many clients, from places that a seed draws; the bytes of whole ranges."""
    chance, processes = random.Random(7), []
    per_record = 1000
    for _ in range(CLIENTS):
        partition, end = chance.choice(sorted(client.ends.items()))
        count = min(end, CLIENT_BYTES // per_record)
        start = chance.randrange(max(1, end - count))
        asked = [*running.bootstrap.split(":"), client.topic, partition, str(start), str(start + count)]
        command = [client.program, *asked, str(PARTITION_BYTES), "discard"]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    told = [process.communicate()[0].split() for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a client failed")
    assert all(int(words[-4]) > 0 for words in told)
    return CLIENTS * CLIENT_BYTES


# ---- streams


def measure_streams(suite: Suite, folder: pathlib.Path) -> None:
    """The heap of a JVM with open streams of both classes."""
    segment = bench_segment(folder / "logs" / "orders-0", 64 * MIB)
    found: dict[str, int] = {}
    for side in sides():
        place = folder / f"streams-{side.name.replace(' ', '-')}"
        place.mkdir()
        class_path = plugin_peer.compiled_with(pathlib.Path(side.class_path), place)
        keys = plugin.with_pem_keys(form_keys("zstd + AES") | folder_keys(place / "bucket"), place) | side.more
        with plugin_peer.running(place, class_path, manager=side.manager, heap="4g") as peer:
            peer.configure(keys | {"broker.id": "1"})
            stored: RemoteLogSegmentMetadata = segment.finished(peer.copy(segment))
            peer.open(0, stored)
            peer.read(0, MIB)
            peer.shut(0)
            before = peer.heap_bytes()
            for number in range(STREAMS):
                peer.open(number, stored, number * 65536)
                peer.read(number, 100_000)
            found[side.name] = peer.heap_bytes() - before
            peer.close()
    told = ", ".join(f"{name} {size / MIB:.1f} MiB" for name, size in found.items())
    suite.add(f"heap of {STREAMS} half-read streams, × {THEIRS}", told, found[OURS] / found[THEIRS], 0.25, least=False)


def main() -> None:
    chosen = arguments(__doc__, PARTS)
    if not plugin.jars():
        print(plugin.HOW, file=sys.stderr)
        return
    suite = Suite("kafka_plugin", {"Kafka": install.kafka_version()})
    with work_folder() as folder:
        for part in chosen.parts:
            place = folder / part
            place.mkdir()
            match part:
                case "copies":
                    measure_copies(suite, place, chosen.scale, chosen.rounds)
                case "reads":
                    measure_reads(suite, place, chosen.scale, chosen.rounds)
                case "streams":
                    measure_streams(suite, place)
                case "start":
                    measure_start(suite, place, chosen.rounds)
            shutil.rmtree(place)
    suite.save()


if __name__ == "__main__":
    main()
