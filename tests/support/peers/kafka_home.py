"""A folder as Kafka's archive has it: scripts, configuration, `libs`. The jars come from Maven."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from tests.support.checkout import BIN
from tests.support.peers import install

#: What counts here of Kafka's own file for one node with KRaft.
KRAFT = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""
_TOOLS = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
#: These take ``-daemon`` first.
_SERVERS = {
    "kafka-server-start.sh": "kafka.Kafka",
    "zookeeper-server-start.sh": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
}
_SCRIPT_SECONDS = 300.0
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0


class KafkaHome:
    """The folder, and what its servers' scripts have started.

    Args:
        folder: Is made where it is not there.
        jars: Name of a list of jars, as ``install.jars`` takes it.
        libs: Jars that were copied into ``libs``.
    """

    def __init__(self, folder: pathlib.Path, *, jars: str = "kafka", libs: Sequence[pathlib.Path] = ()) -> None:
        self.folder = folder
        self.config = folder / "config"
        scripts = folder / "bin"
        for each in (scripts, self.config, folder / "libs"):
            each.mkdir(parents=True, exist_ok=True)
        for jar in libs:
            (folder / "libs" / jar.name).symlink_to(jar)
        java = f'exec "{install.java()}" -Xmx512m -cp "{install.class_path(jars)}:{folder}/libs/*"'
        for name, main in _TOOLS.items():
            (scripts / name).write_text(f'#!/bin/sh\n{java} {main} "$@"\n')
        for name, main in _SERVERS.items():
            start = f'shift\n( {java} {main} "$@" >{folder}/{name}.out 2>&1 ) &\necho $! >{folder}/{name}.pid\n'
            (scripts / name).write_text(f"#!/bin/sh\n{start}")
        for script in scripts.iterdir():
            script.chmod(0o755)

    def run(self, script: str) -> str:
        """Run lines of a shell in the folder, with this Python's programs on the path; return what they print."""
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.folder,
            env={**os.environ, "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]])},
            capture_output=True,
            text=True,
            timeout=_SCRIPT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:] + self.server_log[-3000:]
        return done.stdout

    def await_port(self, port: int) -> None:
        """Wait until a server listens."""
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                return
            time.sleep(0.1)
        raise AssertionError(f"nothing listens within {_START_SECONDS:.0f} s: {self.server_log[-3000:]}")

    @property
    def server_log(self) -> str:
        """The text that the broker, and ZooKeeper, have printed so far."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.sh.out")))

    def stop(self) -> None:
        """End the servers, the broker first."""
        for name in _SERVERS:
            path = self.folder / f"{name}.pid"
            if path.exists():
                _end(int(path.read_text()))
                path.unlink()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(pid: int) -> None:
    """End a process that is nobody's child any more, and wait for it."""
    with contextlib.suppress(ProcessLookupError):  # it did not start, as its log says
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < until:
            os.kill(pid, 0)
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
