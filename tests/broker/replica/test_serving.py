"""A replica's parts in the order in which they begin, and its gauges, as a scrape shows them."""

from __future__ import annotations

import pathlib
import socket
import time
import urllib.error
import urllib.request

import pytest

from tests.support.buckets import Bucket
from tests.support.catalogs import segment
from tests.support.golden import tiered_topics
from tests.support.loops import run_on
from tests.support.replica_server import free_port, replica
from tests.support.waiting import LIMIT_SECONDS
from tierlog.broker.replica.replica_config import ReplicaConfig
from tierlog.broker.replica.serving import Replica
from tierlog.broker.server.server_config import ServerConfig
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.posix_files import PosixFiles


class Knocking(PosixFiles):
    """Files; at each look into the state directory it is noted whether a port is open."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.found: dict[str, bool] = {}

    def knock(self, path: str) -> None:
        with socket.socket() as client:
            self.found[path.rpartition("/")[2]] = client.connect_ex(("127.0.0.1", self.port)) == 0

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:
        self.knock(path)
        super().make_directories(path, durable=durable, private=private)

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        if path.endswith("/bucket-listing"):
            self.knock(path)
        return super().read_whole(path, limit_bytes=limit_bytes)


def test_no_client_gets_in_before_the_state_is_read(tmp_path: pathlib.Path) -> None:
    """A member that asks too early finds no group, and a consumer begins anew at the start of its topics."""
    segment(Bucket(tmp_path / "bucket"), 0)
    files = Knocking(free_port())
    config = ReplicaConfig(
        str(tmp_path / "bucket"),
        ServerConfig(port=files.port),
        "cluster",
        layout="aiven",
        state=str(tmp_path / "state"),
    )

    async def main() -> None:
        server = Replica(config, Machine(files=files))
        await server.start()
        files.knock("after the start")
        await server.stop()

    run_on("uvloop", main)
    assert files.found == {"state": False, "bucket-listing": False, "after the start": True}


@pytest.mark.server
def test_a_scrape_tells_what_is_served_and_how_old_it_is(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise an operator learns from users that a replica has stopped following its bucket."""
    port = free_port()
    with replica(data / "main-plain" / "objects", tmp_path, "--monitor", f"127.0.0.1:{port}", "--refresh", "0.2"):
        for path in ("livez", "readyz", "healthz"):
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10).status == 200
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tierlog_replica_"))
            is_listed = 0 <= float(figures["tierlog_replica_refresh_age_seconds"]) < 10
            if is_listed and float(figures["tierlog_replica_histories_bytes"]) > 0:
                break
            assert time.monotonic() < deadline, figures
    topics = {case.topic for case in tiered_topics(data) if case.run.name == "main-plain"}
    assert float(figures["tierlog_replica_topics"]) == len(topics)
    assert float(figures["tierlog_replica_partitions"]) >= float(figures["tierlog_replica_topics"])
    assert float(figures["tierlog_replica_refresh_failed"]) == 0
    assert float(figures["tierlog_replica_newest_segment_age_seconds"]) > 0
    assert 'tierlog_remote_cache_bytes{cache="indexes"}' in text
    assert 'cache="manifests"' not in text, "a series that nothing counts"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10)
