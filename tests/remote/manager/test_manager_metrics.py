"""The series of a manager."""

from __future__ import annotations

import pytest

from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.manager import manager_metrics
from tierlog.remote.manager.manager_metrics import (
    COUNTERS,
    MANAGER_SERIES,
    PARTITION_SERIES,
    ManagerMetrics,
    PartitionFigures,
    short_name,
)
from tierlog.remote.storage.storage_metrics import OTHERS
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine

ORDERS = Uuid(bytes(15) + b"\1")


def partition(number: int, topic: str = "orders") -> TopicIdPartition:
    return TopicIdPartition(ORDERS, topic, number)


def test_all_series_are_there_from_the_start() -> None:
    """An alert on an error counter that appears with the first error misses it; beside the storage manager's, in one
    registry, no name is taken.
    """
    with TieredStorageManager() as storage:
        metrics = ManagerMetrics(Machine(), storage.metrics.registry)
    for series in MANAGER_SERIES:
        for label in series.values or ("",):
            labels = {series.label: label} if series.label else {}
            assert metrics.value(short_name(series), **labels) == 0, series.name


def test_kafkas_names_are_there() -> None:
    """A dashboard of Kafka's tiered storage finds each of its rows."""
    told = " ".join(series.jmx for series in (*MANAGER_SERIES, *PARTITION_SERIES))
    by_topic = (
        "RemoteFetchBytesPerSec RemoteFetchRequestsPerSec RemoteFetchErrorsPerSec RemoteCopyBytesPerSec "
        "RemoteCopyRequestsPerSec RemoteCopyErrorsPerSec RemoteDeleteRequestsPerSec RemoteDeleteErrorsPerSec "
        "BuildRemoteLogAuxStateRequestsPerSec BuildRemoteLogAuxStateErrorsPerSec RemoteCopyLagBytes "
        "RemoteCopyLagSegments RemoteDeleteLagBytes RemoteDeleteLagSegments RemoteLogMetadataCount "
        "RemoteLogSizeBytes RemoteLogSizeComputationTime"
    )
    others = (
        "RemoteLogManagerTasksAvgIdlePercent RemoteLogReaderFetchRateAndTimeMs RemoteLogReaderTaskQueueSize "
        "RemoteLogReaderAvgIdlePercent LocalRetentionSizeInPercent type=RemoteLogManager,name=RetentionSizeInPercent "
        "DelayedRemoteFetchMetrics,name=ExpiresPerSec DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec "
        "PurgatorySize NumDelayedOperations remote-fetch-throttle-time-avg remote-copy-throttle-time-avg RLMCopy "
        "RLMFetch NumLogSegments LogStartOffset LogEndOffset name=Size type=Log,name=RetentionSizeInPercent"
    )
    wanted = [*(f"BrokerTopicMetrics,name={name}" for name in by_topic.split()), *others.split()]
    assert [name for name in wanted if name not in told] == []


def test_counters_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a hundred thousand topics must not fill the broker's memory, nor its scraper's."""
    monkeypatch.setattr(manager_metrics, "TOPICS_MAX", 2)
    metrics = ManagerMetrics(Machine())
    for topic in ("a", "b", "c", "d", "a"):
        metrics.add("copy_bytes", topic, 10)
    assert metrics.value("copy_bytes") == 50
    found = {topic: metrics.value("copy_bytes", topic=topic) for topic in ("a", "b", OTHERS[0])}
    assert found == {"a": 20, "b": 10, OTHERS[0]: 20}
    metrics.drop_topic("a")
    with pytest.raises(KeyError):
        metrics.value("copy_bytes", topic="a")
    assert metrics.value("copy_bytes") == 50


def test_names_that_are_none() -> None:
    """A part of the manager that counts under a name of its own would be seen by nobody."""
    metrics = ManagerMetrics(Machine())
    for call in (
        lambda: metrics.add("copied", "orders"),
        lambda: metrics.add_lone("copied"),
        lambda: metrics.set("fetch_bytes", partition(0), 1),
        lambda: metrics.observe("copied", 1),
    ):
        with pytest.raises(KeyError):
            call()
    assert len({short_name(series) for series in COUNTERS}) == len(COUNTERS)


def test_lags_are_sums_of_partitions_that_are_led() -> None:
    """A partition that another broker leads now would be counted twice in the cluster, and an alert never end."""
    metrics = ManagerMetrics(Machine())
    lag = [5.0]
    metrics.figures = lambda: [(partition(1), PartitionFigures({"copy_lag_bytes": lag[0]}, {}))]
    metrics.set("delete_lag_segments", partition(0), 3)
    metrics.set("delete_lag_segments", partition(1), 4)
    metrics.set("delete_lag_segments", partition(0, "other"), 1)
    assert metrics.value("delete_lag_segments") == 8
    assert metrics.value("delete_lag_segments", topic="orders") == 7
    assert metrics.value("copy_lag_bytes", topic="orders") == metrics.value("copy_lag_bytes") == 5
    lag[0] = 6.0
    assert metrics.value("copy_lag_bytes") == 6
    metrics.drop(partition(0))
    metrics.drop(partition(0, "other"))
    assert metrics.value("delete_lag_segments") == 4
    with pytest.raises(KeyError):
        metrics.value("delete_lag_segments", topic="other")


def test_a_log_that_fails_takes_no_other_series_away(caplog: pytest.LogCaptureFixture) -> None:
    """A scrape that raises answers 500: the broker is without any metrics while it is in trouble."""
    metrics = ManagerMetrics(Machine())

    def fails() -> list[tuple[TopicIdPartition, PartitionFigures]]:
        raise OSError("the disk is gone")

    metrics.figures = fails
    metrics.set("delete_lag_bytes", partition(0), 3)
    assert metrics.value("delete_lag_bytes") == 3
    assert "the disk is gone" in caplog.text


def test_figures_by_partition_are_there_on_request() -> None:
    """Ten thousand partitions with six series each are a scrape of seconds."""
    figures = [(partition(3), PartitionFigures({}, {"log_end_offset": 7.0}))]
    for is_wanted in (True, False):
        metrics = ManagerMetrics(Machine(), by_partition=is_wanted)
        metrics.figures = lambda: figures
        if is_wanted:
            assert metrics.value("log_end_offset", topic="orders", partition="3") == 7
        else:
            with pytest.raises(KeyError):
                metrics.value("log_end_offset", topic="orders", partition="3")
