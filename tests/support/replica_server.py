"""`tierlog replica` as a process on 127.0.0.1, for tests with real clients."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.support.checkout import BIN

START_SECONDS = 30.0
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class RunningReplica:
    """A replica that takes connections.

    Args:
        bootstrap: HOST:PORT, as clients take it.
        process: Of the server; a test may kill it.
        log: What it wrote to stdout and stderr.
    """

    bootstrap: str
    process: subprocess.Popen[bytes]
    log: pathlib.Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_properties(path: pathlib.Path, keys: Mapping[str, str]) -> pathlib.Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


@contextlib.contextmanager
def replica(
    path: str | pathlib.Path,
    folder: pathlib.Path,
    *arguments: str,
    config: Mapping[str, str] | None = None,
    port: int | None = None,
    before_verb: Sequence[str] = (),
) -> Iterator[RunningReplica]:
    """Serve PATH until the block ends; then SIGTERM must end the server with 0.

    Args:
        path: PATH of the command.
        folder: For its configuration and its log.
        *arguments: More of the command's.
        config: Lines of ``--config``.
        port: Of 127.0.0.1; by default a free one.
        before_verb: Options of the command that stand before "replica".
    """
    port = port or free_port()
    command = [str(BIN / "tierlog"), *before_verb, "replica", str(path), "--listen", f"127.0.0.1:{port}", *arguments]
    if config:
        command += ["--config", str(write_properties(folder / "replica.properties", config))]
    log = folder / "replica.log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        _wait_for_port(process, port, log)
        yield RunningReplica(f"127.0.0.1:{port}", process, log)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, log.read_text(errors="replace")[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            text = log.read_text(errors="replace")[-2000:]
            pytest.fail(f"the replica ended with {process.returncode}: {text}", pytrace=False)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail(f"the replica does not listen after {START_SECONDS} s", pytrace=False)
