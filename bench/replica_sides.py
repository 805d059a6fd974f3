"""Who is measured in ``bench.replica``, and by whom: servers with their CPU, the clients, rounds in turn."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.findings import Findings, ratios, spread
from bench.side_by_side import ROOT
from tests.support.peers import broker, compiled, install

PARTITION_BYTES = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads among them."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def waited_seconds(pid: int) -> float:
    """How long a process's first thread was ready to run and had no core."""
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


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
    path: pathlib.Path | str, folder: pathlib.Path, *arguments: str, keys: dict[str, str] | None = None
) -> Iterator[Served]:
    """`tierlog replica`, once it takes connections. Its modules are compiled, as an installer leaves them, by the first
    start of each folder.
    """
    port = broker.free_port()
    command = [sys.executable, "-c", "from tierlog.cli import main; main()", "replica", str(path)]
    command += ["--listen", f"127.0.0.1:{port}", *arguments]
    if keys:
        config = folder / "replica.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command += ["--config", str(config)]
    with (folder / "replica.log").open("ab") as log:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        broker.wait_for_port(process, port, folder / "replica.log")
        yield Served("tierlog replica", f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(30)


class Client:
    """The C client over all partitions of a topic, one after another.

    Attributes:
        ends: Partition to the offset behind the last record that is read.
    """

    def __init__(self, folder: pathlib.Path, topic: str, ends: dict[str, int]) -> None:
        self._program = compiled.c_program(ROOT / "bench" / "fetch_client.c", folder)
        self._topic = topic
        self.ends = ends

    def read(self, served: Served, mode: str) -> list[str]:
        """The last line for each partition."""
        lines = []
        for partition, end in self.ends.items():
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
    # By default it fetches nothing for a second once its queue is full: who is served faster than it reads would wait.
    queue = {"queued.max.messages.kbytes": 1 << 18, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**keys, "check.crcs": False, **queue})
    consumer.assign([TopicPartition(topic, int(partition), OFFSET_BEGINNING) for partition in ends])
    left = sum(ends.values())
    while left > 0:
        messages = consumer.consume(min(left, 10_000), 20)  # waits for as many as it is asked for
        if not messages:
            raise SystemExit(f"{served.name}: {left} records do not come")
        left -= sum((message.offset() or 0) < ends[str(message.partition())] for message in messages)
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
    """Rounds in turn; the first one warms up. ``read`` may say how many seconds it took itself."""
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


def series(port: int, name: str) -> list[tuple[str, float]]:
    """Labels and value of each series of a metric, asked of ``--monitor``."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    found = re.findall(rf"^{name}({{.*}})? (\S+)$", text, re.MULTILINE)
    return [(labels, float(value)) for labels, value in found]
