"""The series of a server: all of them, with a bound, and as the page says."""

from __future__ import annotations

import dataclasses
import pathlib
import re

from tests.support.checkout import ROOT, needs_checkout
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.server_metrics import CLIENTS_MAX, OTHER_CLIENTS, REFUSALS, ServerMetrics

PAGE = pathlib.Path(ROOT) / "docs" / "server.md"
KEYS = pathlib.Path(ROOT) / "docs" / "reference" / "server-keys.md"


def value(metrics: ServerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tierlog_server_{name}", labels)


def test_clients_have_a_bounded_number_of_series() -> None:
    """A client that draws a new name for each request would fill the memory of the server and of Prometheus."""
    metrics = ServerMetrics()
    for number in range(1000):
        metrics.count_client(f"client-{number}", 10, 20)
    metrics.count_client("client-5", 10, 20)
    metrics.count_client("x" * 30_000, 10, 20)
    found = [
        sample.labels["client_id"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "tierlog_server_client_requests_total"
    ]
    assert len(found) == CLIENTS_MAX + 1
    assert max(map(len, found)) < 100
    assert value(metrics, "client_requests_total", client_id="client-5") == 2
    assert value(metrics, "client_response_bytes_total", client_id="client-5") == 40
    assert value(metrics, "client_requests_total", client_id=OTHER_CLIENTS) == 1000 - CLIENTS_MAX + 1


def test_a_handlers_time_falls_into_its_bucket() -> None:
    """Percentiles of a board are made of these counts."""
    metrics = ServerMetrics()
    for seconds in (0.0001, 0.0005, 0.02, 1000.0):
        metrics.api(3).count(10, 100, seconds)
    buckets = {
        bound: value(metrics, "handler_seconds_bucket", api="Metadata", le=bound)
        for bound in ("0.0005", "0.001", "0.025", "60.0", "+Inf")
    }
    assert buckets == {"0.0005": 2, "0.001": 2, "0.025": 3, "60.0": 3, "+Inf": 4}
    assert value(metrics, "handler_seconds_count", api="Metadata") == 4
    assert value(metrics, "response_bytes_total", api="Metadata") == 400


def test_refusals_are_there_from_the_start() -> None:
    """An alert whose series appears with the first refusal misses that refusal."""
    metrics = ServerMetrics()
    assert all(value(metrics, "refused_total", reason=reason) == 0 for reason in REFUSALS)


@needs_checkout
def test_the_page_names_all_series_and_limits() -> None:
    """Whoever builds a board or sets a limit looks there."""
    metrics = ServerMetrics()
    metrics.api(3).count(1, 1, 1.0)
    page = PAGE.read_text()
    kinds = {"counter": "_total", "gauge": "", "histogram": ""}
    exported = {family.name + kinds[family.type] for family in metrics.registry.collect()}
    assert exported == set(re.findall(r"`(tierlog_server_\w+)`", page))
    assert {reason for reason in REFUSALS if f"`{reason}`" not in page} == set()
    assert KEYS.name in page
    limits = {field.name: field.default for field in dataclasses.fields(ServerConfig) if isinstance(field.default, int)}
    rows = dict(re.findall(r"^\| `([a-z.]+)`(?: \*\*ours\*\*)? \| number \| (\d+)", KEYS.read_text(), re.MULTILINE))
    told = {name: int(rows[key]) for name in limits if (key := name.replace("_", ".")) in rows}
    assert told == {name: default for name, default in limits.items() if not name.endswith("port")}
