"""The figures of a sidecar with thousands of partitions, which count by partition."""

from __future__ import annotations

import asyncio
import json
import pathlib
import tempfile
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter

from tests.support.loops import run_on
from tests.support.sidecars import SidecarClient, storage_keys
from tests.support.waiting import LIMIT_SECONDS
from tierlog.runtime.machine.unix_socket import UnixListener
from tierlog.sidecar.mbeans import encode_mbeans
from tierlog.sidecar.sidecar import Sidecar
from tierlog.sidecar.sidecar_config import read_sidecar_config


def test_those_of_partitions_are_left_out_where_they_are_too_much() -> None:
    """If this fails, the plugin refuses the answer, and its MBeans stand still."""
    registry = CollectorRegistry()
    Counter("copies", "All.", registry=registry).inc(5)
    by_partition = Counter("copies_of", "One's.", ("topic", "partition"), registry=registry)
    for number in range(100):
        by_partition.labels("orders", str(number)).inc()
    found = json.loads(encode_mbeans({"storage": registry}))
    assert found["io.tierlog:type=storage,topic=orders,partition=7"] == {"copies_of_total": 1.0}
    for number in range(20_000):
        by_partition.labels("orders" * 40, str(number)).inc()
    data = encode_mbeans({"storage": registry})
    assert len(data) < 4 << 20
    assert json.loads(data) == {"io.tierlog:type=storage": {"copies_total": 5.0}}


def test_others_are_served_while_they_are_collected(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, each look at a broker's MBeans holds up all reads and copies, for seconds."""
    (tmp_path / "bucket").mkdir()
    asked, given = threading.Event(), threading.Event()

    def slow(_: object) -> bytes:
        asked.set()
        assert given.wait(LIMIT_SECONDS)
        return b"{}"

    monkeypatch.setattr("tierlog.sidecar.sidecar.encode_mbeans", slow)

    def ask(path: str) -> None:
        with SidecarClient(path) as looking, SidecarClient(path) as other:
            looking.send(6)
            assert asked.wait(LIMIT_SECONDS)
            assert other.health() == ""
            given.set()
            assert looking.receive()[4:] == b"{}"

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="sidecar-") as short:
            path = f"{short}/s"
            keys = storage_keys(tmp_path / "bucket")
            sidecar = Sidecar(read_sidecar_config(UnixListener(path), lambda: keys))
            await sidecar.start()
            try:
                await asyncio.to_thread(ask, path)
            finally:
                given.set()
                await sidecar.stop()

    run_on("uvloop", main)
