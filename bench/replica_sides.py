"""Servers that ``bench.replica`` measures, with their CPU, and the clients that read from them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.harness import ROOT, Rounds, cpu_seconds, in_turn
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.peers import broker, compiled, install

PARTITION_BYTES = 1 << 20
_BATCHES, _FIRST_MS = 4, 1_700_000_000_000


@dataclass(frozen=True)
class Served:
    """A server that is measured."""

    name: str
    bootstrap: str
    pid: int


@contextlib.contextmanager
def _running(name: str, command: list[str], port: int, log: pathlib.Path, **more: object) -> Iterator[Served]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **more)  # type: ignore[call-overload]
    try:
        broker.wait_for_port(process, port, log)
        yield Served(name, f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(30)


def replica_over(
    path: pathlib.Path | str, folder: pathlib.Path, *arguments: str, keys: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[Served]:
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
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    return _running("tierlog replica", command, port, folder / "replica.log", env=environment)


def pread_server(
    folder: pathlib.Path, name: str, path: pathlib.Path, *chunks: str
) -> contextlib.AbstractContextManager[Served]:
    """``pread_server.c`` over a file, or over one of chunks."""
    program, port = folder / "pread_server", broker.free_port()
    libraries = ["-llz4", "-lzstd", "-lcrypto", "-lpthread"]
    source = str(ROOT / "bench" / "pread_server.c")
    subprocess.run(["cc", "-O3", source, *libraries, "-o", str(program)], check=True)
    command = [str(program), str(port), str(path), str(PARTITION_BYTES), *chunks]
    return _running(name, command, port, folder / "pread_server.log")


class Client:
    """The C client over all partitions of a topic, one after another.

    Attributes:
        ends: Partition to the offset behind the last record that is read.
        program: The client's path.
    """

    def __init__(self, folder: pathlib.Path, topic: str, ends: dict[str, int]) -> None:
        self.program = str(compiled.c_program(ROOT / "bench" / "fetch_client.c", folder))
        self.topic, self.ends = topic, ends

    def read(self, served: Served, mode: str = "discard") -> list[str]:
        """The last line for each partition."""
        lines = []
        for partition, end in self.ends.items():
            asked = [*served.bootstrap.split(":"), self.topic, partition, "0", str(end), str(PARTITION_BYTES), mode]
            told = subprocess.run([self.program, *asked], capture_output=True, text=True, check=False)
            if told.returncode:
                raise SystemExit(f"{served.name}: {told.stderr}")
            lines.append(told.stdout.splitlines()[-1])
        return lines

    def repeat(self, served: Served, *, clients: int, requests: int) -> list[float]:
        """µs of each request for the same mebibyte."""
        asked = [*served.bootstrap.split(":"), self.topic, "0", "0", str(requests), str(PARTITION_BYTES), "repeat"]
        pipe = subprocess.PIPE
        processes = [subprocess.Popen([self.program, *asked], stdout=pipe, text=True) for _ in range(clients)]
        told = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit(f"{served.name}: a client failed")
        return [float(line) for text in told for line in text.splitlines()[:-1]]

    def by_librdkafka(self, served: Served) -> None:
        """All records by librdkafka, thrown away."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        keys = {"bootstrap.servers": served.bootstrap, "group.id": "bench", "enable.auto.commit": False}
        # By default it fetches nothing for a second once its queue is full: a client that is served faster than it
        # reads would wait.
        queue = {"queued.max.messages.kbytes": 1 << 18, "fetch.queue.backoff.ms": 10}
        consumer = Consumer({**keys, "check.crcs": False, **queue})
        consumer.assign([TopicPartition(self.topic, int(partition), OFFSET_BEGINNING) for partition in self.ends])
        left = sum(self.ends.values())
        while left > 0:
            messages = consumer.consume(min(left, 10_000), 20)  # waits for as many as it is asked for
            if not messages:
                raise SystemExit(f"{served.name}: {left} records do not come")
            left -= sum((message.offset() or 0) < self.ends[str(message.partition())] for message in messages)
        consumer.close()

    def by_perf_consumer(self, served: Served) -> float:
        """Seconds that Kafka's own perf consumer fetched for."""
        tool = [install.java(), "-cp", install.class_path("kafka"), "org.apache.kafka.tools.ConsumerPerformance"]
        count = str(sum(self.ends.values()))
        asked = ["--bootstrap-server", served.bootstrap, "--topic", self.topic, "--num-records", count]
        command = [*tool, *asked, "--timeout", "60000"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        names, values = (line.split(", ") for line in told[-2:])
        return float(dict(zip(names, values, strict=True))["fetch.time.ms"]) / 1000


def rounds_of(reads: Mapping[Served, Callable[[], object]], rounds: int) -> Rounds:
    """Rounds in turn with the CPU seconds of the servers; a read may return its own seconds."""

    def timed(side: Served, read: Callable[[], object]) -> dict[str, float]:
        cpu, began = cpu_seconds(side.pid), time.perf_counter()
        told = read()
        wall = told if isinstance(told, float) else time.perf_counter() - began
        return {"wall": wall, "cpu": cpu_seconds(side.pid) - cpu}

    return in_turn({side.name: lambda s=side, r=read: timed(s, r) for side, read in reads.items()}, rounds)


def series(port: int, name: str) -> list[tuple[str, float]]:
    """Labels and value of each series of a metric, asked of ``--monitor``."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    found = re.findall(rf"^{name}({{.*}})? (\S+)$", text, re.MULTILINE)
    return [(labels, float(value)) for labels, value in found]


# ---- buckets of many small segments, as the plugin stores them without transforms


def many_segments(root: pathlib.Path, *, partitions: int, segments: int, topics: int = 10) -> int:
    """Write a bucket of topics that share the partitions evenly; the end offset of each partition, exclusive."""
    for number in range(partitions):
        bucket = Bucket(root, f"topic-{number % topics}", number // topics)
        for segment in range(segments):
            first = segment * _BATCHES
            offsets = range(first, first + _BATCHES)
            batches = [Batch(each, (b"v" * 200,), 0, timestamp_ms=_FIRST_MS + first) for each in offsets]
            bucket.segment(f"s{number}-{segment}", batches, lineage={0: 0})
    return segments * _BATCHES


def large_segment(root: pathlib.Path, *, size_bytes: int = 8 << 20) -> int:
    """Write a topic ``large-0`` of one segment of batches of 16 KiB; its end offset, exclusive."""
    count = size_bytes // (16 << 10)
    batches = [Batch(each, (bytes(16 << 10),), 0, timestamp_ms=_FIRST_MS + each) for each in range(count)]
    Bucket(root, "large-0", index_interval_bytes=4096).segment("large", batches, lineage={0: 0})
    return count
