"""Kafka Connect, standalone, as a process on 127.0.0.1."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.peers import install
from tests.support.replica_server import free_port, write_properties

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
START_SECONDS = 90.0
STOP_SECONDS = 60.0


class ConnectWorker:
    """A worker with its connectors.

    Args:
        url: Of its REST interface.
        process: Of the worker.
        log: What it wrote to stdout and stderr.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
        self.url, self.process, self.log = url, process, log

    def wait_until(self, holds: Callable[[], bool], what: str, *, seconds: float) -> None:
        """Wait for what its connectors do. The test fails where one of them, or the worker, fails, or time is up."""
        deadline = time.monotonic() + seconds
        while not holds():
            failed = self.failures()
            if failed or self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-3000:]
                pytest.fail(f"{what}: not after {seconds} s; failed: {failed}\n{told}", pytrace=False)
            time.sleep(0.2)

    def failures(self) -> list[str]:
        """What made connectors and tasks fail."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}?expand=status", timeout=20) as answer:
            known = [each["status"] for each in json.load(answer).values()]
            parts = [part for status in known for part in (status["connector"], *status["tasks"])]
            return [part.get("trace", "") for part in parts if part["state"] == "FAILED"]
        return []


@contextlib.contextmanager
def connect_worker(
    folder: pathlib.Path, bootstrap: str, connectors: Mapping[str, Mapping[str, str]], settings: Mapping[str, str]
) -> Iterator[ConnectWorker]:
    """Run connectors until the block ends; then SIGTERM must end the worker, which commits what it has read.

    Args:
        folder: For its files.
        bootstrap: The cluster that it works for.
        connectors: Name -> configuration.
        settings: Of the worker.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}/connectors"
    own = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "service_load",
    }
    files = [write_properties(folder / "worker.properties", own | dict(settings))]
    for name, keys in connectors.items():
        files.append(write_properties(folder / f"{name}.properties", {"name": name, **keys}))
    command = [install.java(), "-Xmx768m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", install.class_path("kafka-connect"), _MAIN, *map(str, files)]
    log = folder / "connect.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    worker = ConnectWorker(url, process, log)
    try:
        worker.wait_until(lambda: _listens(url), "the worker takes requests", seconds=START_SECONDS)
        yield worker
        process.terminate()
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()


def _listens(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=20):
        return True
    return False
