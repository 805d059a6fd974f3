"""`tierlog replica` beside a real broker over the same tier: throughput, latency, polls, start and memory.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.replica [tier|latency|polls|start|memory …] [--scale 0.05] [--rounds 5]

*tier*: a real broker copies 2 GB to its tier (the plugin's where TIERLOG_PLUGIN_JARS names its jars, else Kafka's
LocalTieredStorage, which knows plain objects alone) and deletes them locally; a C client (bench/fetch_client.c) and
Kafka's and librdkafka's own consumers read the topic from the broker and from the replica in turn. Another topic stays
on the broker's disk, for its sendfile. The hash of all batches is equal before a time counts; CPU seconds are those of
the server's process.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench import spark
from bench.findings import Findings, ratios, spread
from bench.peers import broker, compiled, install, plugin
from bench.raw_client import RawClient, request_class
from bench.replica_bucket import large_segment, many_segments
from bench.side_by_side import ROOT, ROUNDS
from bench.spark_tier import MONTH_MS, broker_settings, our_options, tiered

PARTITION_BYTES = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
HEAP = "2g"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads among them."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


@dataclass
class Served:
    """A server that is measured."""

    name: str
    bootstrap: str
    pid: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def address(self) -> list[str]:
        return self.bootstrap.split(":")


@contextlib.contextmanager
def replica_over(
    path: pathlib.Path, folder: pathlib.Path, *arguments: str, keys: dict[str, str] | None = None
) -> Iterator[Served]:
    """`tierlog replica`, once it takes connections."""
    port = broker.free_port()
    command = [sys.executable, "-c", "from tierlog.cli import main; main()", "replica", str(path)]
    command += ["--listen", f"127.0.0.1:{port}", *arguments]
    if keys:
        config = folder / "replica.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command += ["--config", str(config)]
    with (folder / "replica.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        broker._wait_for_port(process, port, folder / "replica.log")
        yield Served("tierlog replica", f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(30)


class Client:
    """The C client over all partitions of a topic, one after another."""

    def __init__(self, folder: pathlib.Path, topic: str, ends: dict[str, int]) -> None:
        self._program = compiled.c_program(ROOT / "bench" / "fetch_client.c", folder)
        self._topic = topic
        self._ends = ends

    def read(self, served: Served, mode: str) -> list[str]:
        """The last line for each partition."""
        lines = []
        for partition, end in self._ends.items():
            asked = [*served.address, self._topic, partition, "0", str(end), str(PARTITION_BYTES), mode]
            told = subprocess.run([str(self._program), *asked], capture_output=True, text=True, check=False)
            if told.returncode:
                raise SystemExit(f"{served.name}: {told.stderr}")
            lines.append(told.stdout.splitlines()[-1])
        return lines

    def repeat(self, served: Served, *, clients: int, requests: int) -> list[float]:
        """µs of each request for the same mebibyte."""
        asked = [
            str(self._program),
            *served.address,
            self._topic,
            "0",
            "0",
            str(requests),
            str(PARTITION_BYTES),
            "repeat",
        ]
        processes = [subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) for _ in range(clients)]
        told = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit(f"{served.name}: a client failed")
        return [float(line) for text in told for line in text.splitlines()[:-1]]

    def hashes(self, served: Served) -> list[str]:
        return [line.split()[-1] for line in self.read(served, "hash")]


def confluent_read(served: Served, topic: str, ends: dict[str, int]) -> None:
    """All records by librdkafka, thrown away."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    keys = {"bootstrap.servers": served.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**keys, "check.crcs": False, "queued.max.messages.kbytes": 1 << 18})
    consumer.assign([TopicPartition(topic, int(partition), OFFSET_BEGINNING) for partition in ends])
    left = sum(ends.values())
    while left > 0:
        messages = consumer.consume(min(left, 10_000), 20)  # waits for as many as it is asked for
        if not messages:
            raise SystemExit(f"{served.name}: {left} records do not come")
        left -= sum(message.offset() < ends[str(message.partition())] for message in messages)
    consumer.close()


def perf_read(served: Served, topic: str, ends: dict[str, int]) -> float:
    """Seconds that Kafka's own perf consumer fetched for."""
    tool = [install.java(), "-cp", install.class_path("kafka"), "org.apache.kafka.tools.ConsumerPerformance"]
    count = str(sum(ends.values()))
    asked = ["--bootstrap-server", served.bootstrap, "--topic", topic, "--num-records", count, "--timeout", "60000"]
    told = subprocess.run([*tool, *asked], capture_output=True, text=True, check=True).stdout.splitlines()
    names, values = (line.split(", ") for line in told[-2:])
    return float(dict(zip(names, values, strict=True))["fetch.time.ms"]) / 1000


def rounds_of(sides: Sequence[Served], rounds: int, read: Callable[[Served], float | None]) -> None:
    """Rounds in turn; the first one warms up."""
    for each in sides:
        each.wall, each.cpu = [], []
    for number in range(rounds + 1):
        for side in sides:
            cpu, began = cpu_seconds(side.pid), time.perf_counter()
            told = read(side)
            wall = time.perf_counter() - began if told is None else told
            if number:
                side.wall.append(wall)
                side.cpu.append(cpu_seconds(side.pid) - cpu)


def tell(
    found: Findings, what: str, ours: Served, theirs: Served, size: int, bars: tuple[float | None, float | None]
) -> None:
    """Speed and CPU beside a peer's."""
    speeds = [[size / wall / 1e6 for wall in side.wall] for side in (ours, theirs)]
    told = f"{spread(speeds[0])} MB/s, {theirs.name} {spread(speeds[1])} MB/s, ratios {ratios(speeds[0], speeds[1])}"
    value = statistics.median(speeds[0]) / statistics.median(speeds[1])
    found.add(f"{what}, MB/s × {theirs.name}", told, value, bars[0], least=True)
    told = f"{spread(ours.cpu, '.2f')} s, {theirs.name} {spread(theirs.cpu, '.2f')} s"
    found.add(
        f"{what}, CPU s × {theirs.name}",
        told,
        statistics.median(ours.cpu) / max(0.01, statistics.median(theirs.cpu)),
        bars[1],
    )


def measure_tier(found: Findings, folder: pathlib.Path, form: str, scale: float, rounds: int) -> None:
    root = folder / "bucket"
    root.mkdir(parents=True)
    settings = broker_settings(form, root, folder, "none", 64 << 20)
    segment = max(1 << 20, int((64 << 20) * min(1, scale * 4)))
    shared = (f"segment.ms={MONTH_MS}", f"segment.bytes={segment}", "file.delete.delay.ms=500")
    cold = f"cold-{form.replace(' + ', '-')}"
    with broker.running(folder / "broker", heap=HEAP, extra=settings) as running:
        spark.ensure_topic(
            running,
            "none",
            scale,
            name=cold,
            settings=("remote.storage.enable=true", "local.retention.bytes=1", *shared),
        )
        ends = tiered(running, cold)
        size = sum(
            int(line.split()[0])
            for line in Client(folder, cold, ends).read(
                Served("broker", running.bootstrap, running.process.pid), "discard"
            )
        )
        keys = our_options(form, root, folder)
        with replica_over(root, folder, keys=keys) as ours:
            theirs = Served(
                "the plugin's broker" if plugin.jars() else "Kafka's broker", running.bootstrap, running.process.pid
            )
            client = Client(folder, cold, ends)
            if client.hashes(ours) != client.hashes(theirs):
                raise SystemExit(f"{form}: the replica and the broker send different batches")

            def raw(side: Served) -> None:
                client.read(side, "discard")

            rounds_of((theirs, ours), rounds, raw)
            tell(found, f"{form}, tier, raw client", ours, theirs, size, (1.5, 0.5))
            rounds_of((theirs, ours), rounds, lambda side: confluent_read(side, cold, ends))
            tell(found, f"{form}, tier, librdkafka", ours, theirs, size, (1.0, None))
            rounds_of((theirs, ours), rounds, lambda side: perf_read(side, cold, ends))
            tell(found, f"{form}, tier, Kafka's perf consumer", ours, theirs, size, (1.0, None))
            if form == "plain":
                measure_warm(found, folder, running, ours, client, scale, shared, rounds, size)
    shutil.rmtree(folder)


def measure_warm(
    found: Findings,
    folder: pathlib.Path,
    running: broker.Broker,
    ours: Served,
    client: Client,
    scale: float,
    settings: tuple[str, ...],
    rounds: int,
    size: int,
) -> None:
    """The replica's tier beside the same records on the broker's own disk, which it sends by sendfile."""
    spark.ensure_topic(running, "none", scale, name="warm", settings=settings)
    local = Served("the broker's local log", running.bootstrap, running.process.pid)
    own = Client(folder, "warm", dict(client._ends))

    def raw(side: Served) -> None:
        (own if side is local else client).read(side, "discard")

    rounds_of((local, ours), rounds, raw)
    tell(found, "plain, warm, raw client", ours, local, size, (0.8, None))


def measure_latency(found: Findings, folder: pathlib.Path, rounds: int) -> None:
    """1 MiB that is cached, beside pread and send of as many bytes: one client, and a hundred."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    ends = large_segment(root)
    client = Client(folder, "large-0", {"0": ends})
    server = folder / "pread_server"
    compiler = ["cc", "-O2", str(ROOT / "bench" / "pread_server.c"), "-lpthread", "-o", str(server)]
    subprocess.run(compiler, check=True)
    port = broker.free_port()
    log = next(root.rglob("*.log"))
    bare = subprocess.Popen([str(server), str(port), str(log), str(PARTITION_BYTES)])
    try:
        with replica_over(root, folder) as ours:
            theirs = Served("pread + send", f"127.0.0.1:{port}", bare.pid)
            client.read(ours, "discard")
            for count in (1, 100):
                times: dict[str, list[list[float]]] = {ours.name: [], theirs.name: []}
                for _ in range(rounds + 1):
                    for side in (theirs, ours):
                        times[side.name].append(client.repeat(side, clients=count, requests=2000 // count))
                _tell_latency(found, times[ours.name][1:], times[theirs.name][1:], count)
    finally:
        bare.terminate()
        bare.wait()
    shutil.rmtree(folder)


def _tell_latency(found: Findings, ours: list[list[float]], theirs: list[list[float]], clients: int) -> None:
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, bare = ([sorted(each)[int(len(each) * share)] / 1000 for each in side] for side in (ours, theirs))
        told = f"{spread(mine, '.2f')} ms, pread + send {spread(bare, '.2f')} ms"
        value = statistics.median(mine) / statistics.median(bare)
        bar = 2.0 if clients == 1 and name == "p50" else None
        found.add(f"1 MiB fetch, cached, {clients} clients, {name} × pread + send", told, value, bar)


def measure_polls(found: Findings, folder: pathlib.Path, rounds: int) -> None:
    """Empty long polls of 200 partitions in a fetch session."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    ends = many_segments(root, partitions=200, segments=2, topics=1)
    with replica_over(root, folder) as ours:
        client = RawClient(ours.bootstrap)
        asked = request_class(1, 12)
        inner = sys.modules[asked.__module__]
        common = {"max_wait": datetime.timedelta(milliseconds=1), "min_bytes": 1, "forgotten_topics_data": ()}
        partitions = tuple(
            inner.FetchPartition(partition=number, fetch_offset=ends, partition_max_bytes=PARTITION_BYTES)
            for number in range(200)
        )
        topics = (inner.FetchTopic(topic="topic-0", partitions=partitions),)
        session = client.ask(asked(topics=topics, session_id=0, session_epoch=0, **common)).session_id
        assert session, "the server made no session"
        time.sleep(8)  # what a server does after its start is not of the polls
        spent, number, count = [], 0, 1000
        for _ in range(rounds + 1):
            cpu = cpu_seconds(ours.pid)
            for _ in range(count):
                number += 1
                answer = client.ask(asked(topics=(), session_id=session, session_epoch=number, **common))
                assert not answer.error_code, answer
                assert not answer.responses, answer
            spent.append((cpu_seconds(ours.pid) - cpu) / count * 1000)
        client.close()
    found.add(
        "empty poll of 200 partitions in a session, CPU ms", spread(spent[1:], ".3f"), statistics.median(spent[1:]), 0.3
    )
    shutil.rmtree(folder)


def measure_memory(found: Findings, folder: pathlib.Path) -> None:
    """10⁴ partitions, all resolved, and a thousand connections that each fetch once."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    ends = many_segments(root, partitions=10_000, segments=1)
    with replica_over(root, folder) as ours:
        clients = [RawClient(ours.bootstrap) for _ in range(1000)]
        asked = request_class(1, 12)
        inner = sys.modules[asked.__module__]
        for number, client in enumerate(clients):
            partitions = tuple(
                inner.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=PARTITION_BYTES)
                for _ in range(1)
            )
            topics = tuple(inner.FetchTopic(topic=f"topic-{each}", partitions=partitions) for each in range(10))
            wait = {"max_wait": datetime.timedelta(seconds=30), "min_bytes": 1, "forgotten_topics_data": ()}
            answer = client.ask(asked(topics=topics, **wait))
            got = sum(part.high_watermark == ends for topic in answer.responses for part in topic.partitions)
            assert got == 10, answer
        found.add("10⁴ partitions, 10³ connections, MiB", "resident", resident_mib(ours.pid), 200)
        for client in clients:
            client.close()
    shutil.rmtree(folder)


def metric(port: int, name: str) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return max(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def measure_start(found: Findings, folder: pathlib.Path, rounds: int) -> None:
    """From the start of the process until the first record of the last partition is out."""
    root = folder / "bucket"
    ends = many_segments(root, partitions=1000, segments=10)
    client = Client(folder, "topic-0", {"0": ends})
    for what, arguments, bar in (("cold", [], 3.0), ("with --state", ["--state", str(folder / "state")], 1.0)):
        seconds = []
        for number in range(rounds + 1):
            began = time.perf_counter()
            with replica_over(root, folder, *arguments) as ours:
                client.read(ours, "discard")
                if number:
                    seconds.append(time.perf_counter() - began)
                time.sleep(3 if number == 0 else 0)  # the listing is kept
        found.add(
            f"start, 10⁴ segments, 10³ partitions, {what}, s", spread(seconds, ".2f"), statistics.median(seconds), bar
        )
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["tier", "start", "latency", "polls", "memory"])
    parser.add_argument("--scale", type=float, default=1.0, help="of 2 GB")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--forms", default="plain,zstd + AES" if plugin.jars() else "plain")
    arguments = parser.parse_args()
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        folder = pathlib.Path(name)
        if "tier" in arguments.parts:
            for form in arguments.forms.split(","):
                measure_tier(found, folder / form.replace(" + ", "-"), form, arguments.scale, arguments.rounds)
        if "start" in arguments.parts:
            measure_start(found, folder / "start", arguments.rounds)
        if "latency" in arguments.parts:
            measure_latency(found, folder / "latency", arguments.rounds)
        if "polls" in arguments.parts:
            measure_polls(found, folder / "polls", arguments.rounds)
        if "memory" in arguments.parts:
            measure_memory(found, folder / "memory")
    found.save("replica", install.versions())


if __name__ == "__main__":
    main()
