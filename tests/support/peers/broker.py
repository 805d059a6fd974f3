"""A real Apache Kafka broker (KRaft, one node) as a child process on loopback."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.peers import install

#: A Uuid as Kafka writes it: brokers before 3.7 take no other.
CLUSTER_ID = "dGllcmxvZ0JlbmNoMDAwMQ"
START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Broker:
    bootstrap: str
    log_dir: pathlib.Path
    process: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _properties(folder: pathlib.Path, port: int, controller: int, extra: dict[str, str]) -> pathlib.Path:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "logs"),
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.initial.task.delay.ms": "500",
        "log.retention.ms": "-1",
        "log.message.timestamp.after.max.ms": str(2**62),
        **extra,
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def wait_for_port(process: subprocess.Popen[bytes], port: int, log: pathlib.Path) -> None:
    """Wait until a process takes connections; raises RuntimeError with the end of its log if none comes."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the server did not listen within {START_SECONDS} s")


@contextlib.contextmanager
def running(
    folder: pathlib.Path,
    *,
    heap: str = "1g",
    extra: dict[str, str] | None = None,
    jars: str = "kafka",
    port: int | None = None,
) -> Iterator[Broker]:
    """Starts a broker over ``folder`` (formatted when it is new; its logs stay) and ends it behind the block. ``jars``
    names the list of jars that it runs on; ``port`` is given to start one again that others know.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = port or free_port(), free_port()
    properties = _properties(folder, port, controller, extra or {})
    java = [install.java(), f"-Xmx{heap}", "-cp", install.class_path(jars)]
    if not (folder / "logs" / "meta.properties").exists():
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(tool, check=True, capture_output=True)
    log = folder / "broker.out"
    with log.open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=out, stderr=out, env=os.environ)
    try:
        wait_for_port(process, port, log)
        yield Broker(f"127.0.0.1:{port}", folder / "logs", process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
