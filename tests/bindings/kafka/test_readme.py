"""The page's own lines, run as they stand over an unpacked Kafka: the way of who tries the plugin first."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers.broker import free_port
from tests.support.peers.kafka_home import KRAFT, KafkaHome
from tests.support.peers.plugin_peer import our_jar

PAGE = pathlib.Path(__file__).parents[3] / "bindings" / "kafka" / "README.md"
PROPERTIES = (
    KRAFT
    + """log.dirs={folder}/logs
offsets.topic.replication.factor=1
remote.log.manager.task.interval.ms=1000
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=100
"""
)


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
    home = KafkaHome(tmp_path)
    (home.config / "server.properties").write_text(
        PROPERTIES.format(port=port, controller=free_port(), folder=tmp_path)
    )
    script = "\n".join(["set -eu", *lines[1:]]).replace("/tmp/tier", f"{tmp_path}/tier")
    try:
        printed = home.run(script.replace("localhost:9092", f"localhost:{port}"))
        assert "20000\n" in printed
        assert "orders" in printed
        assert list((tmp_path / "tier").rglob("*.rsm-manifest"))
    finally:
        home.stop()
    home.remove()
