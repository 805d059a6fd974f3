"""The gauges of a replica, as a scrape shows them."""

from __future__ import annotations

import pathlib
import time
import urllib.error
import urllib.request

import pytest

from tests.support.golden import tiered_topics
from tests.support.replica_server import free_port, replica


@pytest.mark.server
def test_a_scrape_tells_what_is_served_and_how_old_it_is(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise an operator learns from her users that a replica has stopped following its bucket."""
    port = free_port()
    with replica(data / "main-plain" / "objects", tmp_path, "--monitor", f"127.0.0.1:{port}", "--refresh", "0.2"):
        for path in ("livez", "readyz", "healthz"):
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10).status == 200
        deadline = time.monotonic() + 20
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
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10)
