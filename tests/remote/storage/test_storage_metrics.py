"""The storage manager's series: stable, complete from the start, documented."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tierlog.remote.api import ZERO_UUID, TopicIdPartition
from tierlog.remote.storage.storage_metrics import (
    ERROR_KINDS,
    OPERATIONS,
    OTHERS,
    PARTITION_PREFIX,
    SERIES,
    PartitionMetrics,
    StorageMetrics,
)


def test_all_series_are_there_at_zero_before_anything_happens() -> None:
    """An alert on errors that has no series before the first error misses it."""
    registry = CollectorRegistry()
    StorageMetrics(registry)
    text = generate_latest(registry).decode()
    for series in SERIES:
        name = series.full_name + ("_count" if series.kind == "histogram" else "")
        for value in series.values or (None,):
            wanted = f'{name}{{{series.label}="{value}"}} 0.0' if value else f"{name} 0.0"
            assert wanted in text, wanted
    assert 'tierlog_remote_store_requests_total{verb="GET"} 0.0' in text
    for operation in OPERATIONS:
        for kind in ERROR_KINDS:
            assert f'tierlog_remote_errors_total{{kind="{kind}",operation="{operation}"}} 0.0' in text


def test_names_follow_the_conventions() -> None:
    """A board built on one release has to work with the next one: a name is forever."""
    for series in SERIES:
        assert series.name == series.name.lower()
        assert (series.kind == "counter") == series.name.endswith("_total")
        assert series.kind != "histogram" or series.name.endswith("_seconds")
    assert len({series.name for series in SERIES}) == len(SERIES)


def test_what_is_counted_is_collected() -> None:
    """A series that stays at zero whatever happens is worse than none."""
    metrics = StorageMetrics()
    metrics.add("copies_total")
    metrics.add("upload_bytes_total", 42, label="log")
    metrics.set("cache_bytes", 7, label="indexes")
    metrics.ask("oldest_copy_age_seconds", lambda: 3.5)
    metrics.observe("copy_seconds", 0.2)
    metrics.add_error("delete", "refused")
    metrics.ask_requests(lambda: {"PUT": 17})
    assert metrics.value("store_requests_total", verb="PUT") == 17
    assert metrics.value("copies_total") == 1
    assert metrics.value("upload_bytes_total", object="log") == 42
    assert metrics.value("cache_bytes", cache="indexes") == 7
    assert metrics.value("oldest_copy_age_seconds") == 3.5
    assert metrics.value("copy_seconds_count") == 1
    assert metrics.value("errors_total", operation="delete", kind="refused") == 1
    with pytest.raises(KeyError):
        metrics.add("no_such_total")


def test_partitions_beyond_the_bound_count_together() -> None:
    """If this fails, a cluster of very many partitions eats a broker's memory, or its figures do not add up."""
    registry = CollectorRegistry()
    metrics = PartitionMetrics(registry, partitions_max=3)
    for number in [0, 1, 2, 3, 4, 0, 3]:
        metrics.add(TopicIdPartition(ZERO_UUID, "orders", number), "store_requests_total", label="GET")
    name = PARTITION_PREFIX + "store_requests_total"
    found = [
        registry.get_sample_value(name, {"topic": topic, "partition": partition, "verb": "GET"})
        for topic, partition in [("orders", "0"), ("orders", "1"), ("orders", "2"), ("orders", "3"), OTHERS]
    ]
    assert found == [2, 1, 1, None, 3]
    assert sum(name in line and "{" in line for line in generate_latest(registry).decode().splitlines()) == 4
