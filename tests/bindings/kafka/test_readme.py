"""The page's own lines, run as they stand over an unpacked Kafka: the way of who tries the plugin first."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from tests.support.checkout import BIN
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import install
from tests.support.peers.broker import free_port
from tests.support.peers.plugin_peer import our_jar

PAGE = pathlib.Path(__file__).parents[3] / "bindings" / "kafka" / "README.md"
TOOLS = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
#: What Kafka's own file has that counts here.
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
remote.log.manager.task.interval.ms=1000
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=100
"""


def unpacked(folder: pathlib.Path, port: int) -> None:
    """A folder as Kafka's archive has it: its jars come from Maven."""
    scripts, config = folder / "bin", folder / "config"
    scripts.mkdir()
    config.mkdir()
    (config / "server.properties").write_text(PROPERTIES.format(port=port, controller=free_port(), folder=folder))
    java = f'exec "{install.java()}" -Xmx512m -cp "{install.class_path("kafka")}"'
    for name, main in TOOLS.items():
        (scripts / name).write_text(f'#!/bin/sh\n{java} {main} "$@"\n')
    start = f'#!/bin/sh\nshift\n( {java} kafka.Kafka "$@" >{folder}/broker.out 2>&1 ) &\necho $! >{folder}/pid\n'
    (scripts / "kafka-server-start.sh").write_text(start)
    for script in scripts.iterdir():
        script.chmod(0o755)


@pytest.mark.interop
def test_the_pages_lines(tmp_path: pathlib.Path) -> None:
    """If this fails, the first thing that a new user does fails."""
    needs_a_broker()
    our_jar()
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    assert lines[0] == "pip install 'tierlog[sidecar]'"
    port = free_port()
    script = "\n".join(["set -eu", *lines[1:]]).replace("/tmp/tier", f"{tmp_path}/tier")
    script = script.replace("localhost:9092", f"localhost:{port}")
    unpacked(tmp_path, port)
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        log = (tmp_path / "broker.out").read_text()[-3000:] if (tmp_path / "broker.out").exists() else ""
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:] + log
        assert "20000\n" in done.stdout
        assert "orders" in done.stdout.splitlines()[-1] or "orders" in done.stdout
        assert list((tmp_path / "tier").rglob("*.rsm-manifest"))
    finally:
        if (tmp_path / "pid").exists():
            with contextlib.suppress(ProcessLookupError):  # it did not start, as the test has said
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    shutil.rmtree(tmp_path / "tier", ignore_errors=True)
