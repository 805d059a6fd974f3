"""Managers and logs below a RemoteLogManager that hang, raise anything, or are a third party's."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.third_party import PARTITION, third_party_broker
from tests.support.tiered_log import NONE, TieredBroker, tiered_broker, values
from tests.support.waiting import wait_until
from tierlog.log.local.log_errors import KafkaError
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.partition_stops import StopPartition

#: Every call of the two managers that the tasks of leaders and followers make.
STORAGE_CALLS = ("copy_log_segment_data", "store_time_ms", "call_off_copy")
METADATA_CALLS = (
    "add_remote_log_segment_metadata",
    "update_remote_log_segment_metadata",
    "highest_offset_for_epoch",
    "list_remote_log_segments",
    "segments_version",
    "when_ready",
    "on_partition_leadership_changes",
)
READ_CALLS = ("fetch_log_segment", "fetch_index", "is_ready", "when_ready", "remote_log_segment_metadata")
ERRORS: dict[str, Callable[[], BaseException]] = {
    "of the KIP's": lambda: RemoteStorageException("broken"),
    "of Python's": lambda: KeyError("of a third party's"),
    "of no exception's": lambda: SystemExit(3),
}


def failing(
    broker: TieredBroker, monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], BaseException]
) -> None:
    """Have a call of a manager fail until the test undoes it."""

    def fail(*_: object, **__: object) -> None:
        raise error()

    manager = broker.storage if hasattr(broker.storage, name) else broker.metadata
    monkeypatch.setattr(manager, name, fail)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STORAGE_CALLS + METADATA_CALLS)
def test_a_call_that_raises(monkeypatch: pytest.MonkeyPatch, name: str, error: str) -> None:
    """The partition goes on once the call raises no more, and so does every other one."""
    config = RemoteLogManagerConfig(task_interval_ms=5000, task_retry_backoff_max_ms=5000)
    with tiered_broker(config=config) as broker:
        first, follower = broker.partition(0), broker.partition(1)
        broker.produce(first, 1)
        broker.manager.on_leadership_change(frozenset({first}), frozenset({follower}))
        broker.machine.clock.sleep(3)
        failing(broker, monkeypatch, name, ERRORS[error])
        second = broker.partition(2)
        broker.produce(first, 1)
        broker.produce(second, 2)
        broker.manager.on_leadership_change(frozenset({second}), NONE)
        broker.machine.clock.sleep(40)
        monkeypatch.undo()
        broker.machine.clock.sleep(40)
        for partition in (first, second):
            log = broker.logs[partition]
            assert log.highest_offset_in_remote_storage == log.active_segment.base_offset - 1, partition
        assert broker.manager.health().uncopied is None
        assert broker.manager.health().copying_stopped == {}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", READ_CALLS)
def test_a_call_of_a_read_that_raises(monkeypatch: pytest.MonkeyPatch, name: str, error: str) -> None:
    """The fetch is answered by its deadline, no thread is lost, and the next one has its records."""
    with tiered_broker() as broker:
        partition = broker.consumed()
        with monkeypatch.context() as patched:
            patched.setattr(broker.metadata, "is_ready", lambda _: name != "when_ready")
            failing(broker, patched, name, ERRORS[error])
            began = broker.now
            found = broker.one(partition, 25)
            assert broker.now - began <= 0.55
            assert found.error in (None, KafkaError.UNKNOWN_SERVER_ERROR)
        assert values(broker.one(partition, 25), 25) == list(range(25, 30))
        assert broker.settles()


def test_one_slow_partition_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that hangs holds one thread; an operator sees which, and for how long; the others are copied."""
    with tiered_broker(config=RemoteLogManagerConfig(task_interval_ms=20_000)) as broker:
        parts = [broker.partition(number) for number in range(20)]
        for partition in parts:
            broker.produce(partition, 2)
        copy = broker.storage.copy_log_segment_data

        def hangs(metadata: Any, data: Any) -> Any:
            if metadata.topic_id_partition == parts[7]:
                broker.machine.clock.sleep(500)
            return copy(metadata, data)

        monkeypatch.setattr(broker.storage, "copy_log_segment_data", hangs)
        broker.manager.on_leadership_change(frozenset(parts), NONE)
        broker.machine.clock.sleep(100)
        behind = [each for each in parts if broker.logs[each].highest_offset_in_remote_storage < 19]
        assert behind == [parts[7]]
        health = broker.manager.health()
        assert [(run.topic_id_partition, run.task) for run in health.long_runs] == [(parts[7], "copy")]
        assert health.uncopied is not None
        assert (health.uncopied.topic_id_partition, health.uncopied_count) == (parts[7], 1)
        assert "being copied" in health.uncopied.reason
        broker.machine.clock.sleep(1200)
        assert broker.manager.health().uncopied is None


def test_a_partition_that_hangs_holds_one_thread_however_often_it_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one partition whose store hangs takes all copier threads while its leader changes, and no other
    partition is copied any more.
    """
    config = RemoteLogManagerConfig(task_interval_ms=5000, copier_thread_pool_size=2)
    with tiered_broker(config=config) as broker:
        hanging, other = broker.partition(0), broker.partition(1)
        copy, clock = broker.storage.copy_log_segment_data, broker.machine.clock
        until = clock.monotonic_seconds() + 3000

        def hangs(metadata: Any, data: Any) -> Any:
            if metadata.topic_id_partition == hanging:
                clock.sleep(max(0.0, until - clock.monotonic_seconds()))
            return copy(metadata, data)

        monkeypatch.setattr(broker.storage, "copy_log_segment_data", hangs)
        broker.produce(hanging, 2)
        for _ in range(5):
            broker.manager.on_leadership_change(frozenset({hanging}), NONE)
            broker.machine.clock.sleep(20)
            broker.manager.on_leadership_change(NONE, frozenset({hanging}))
            broker.machine.clock.sleep(20)
        broker.manager.on_leadership_change(frozenset({hanging, other}), NONE)
        broker.produce(other, 2)
        broker.machine.clock.sleep(20)
        assert broker.manager.metrics.value("tasks_idle_ratio") == 0.5
        assert broker.logs[other].highest_offset_in_remote_storage == broker.logs[other].active_segment.base_offset - 1
        health = broker.manager.health()
        assert [(run.topic_id_partition, run.task) for run in health.long_runs] == [(hanging, "copy")]
        assert health.long_runs[0].seconds > 200
        assert health.uncopied is not None
        assert (health.uncopied.topic_id_partition, health.uncopied.reason) == (
            hanging,
            "a copy of an earlier term still runs",
        )
        broker.machine.clock.sleep(3000)
        assert broker.manager.health().uncopied is None
        assert broker.manager.health().long_runs == ()


def test_a_store_that_is_away_for_ten_minutes() -> None:
    """Produce and local reads go on, nothing is lost, and the lag is gone soon after it is back."""
    with tiered_broker(config=RemoteLogManagerConfig(task_interval_ms=20_000)) as broker:
        parts = [broker.partition(number) for number in range(10)]
        broker.manager.on_leadership_change(frozenset(parts), NONE)
        broker.machine.clock.sleep(2)
        broker.storage.unavailable = True  # type: ignore[attr-defined]
        for _ in range(10):
            for partition in parts:
                broker.produce(partition, 1)
                broker.logs[partition].delete_old_segments()
                assert broker.logs[partition].local_log_start_offset == 0
            broker.machine.clock.sleep(60)
        assert broker.manager.metrics.value("copy_lag_segments") == 10 * 10
        broker.storage.unavailable = False  # type: ignore[attr-defined]
        broker.machine.clock.sleep(60)
        assert broker.manager.metrics.value("copy_lag_segments") == 0
        assert broker.manager.metrics.value("copy_errors") == 0


def test_third_partys(tmp_path: pathlib.Path) -> None:
    """A log tiers, its start goes up, its topic goes."""
    with third_party_broker(tmp_path, segments=5) as broker, broker.manager as manager:
        log = broker.log
        manager.on_leadership_change({PARTITION}, NONE)
        wait_until(lambda: log.highest_offset_in_remote_storage == 49)
        log.delete_old_segments()
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 50)
        found = manager.list_offsets(PARTITION, 0).result(20)
        assert found is not None
        assert found.offset == 0
        log.maybe_increment_log_start_offset(25, "DeleteRecords")
        wait_until(lambda: len(list(broker.metadata.list_remote_log_segments(PARTITION))) == 3)
        stop = StopPartition(PARTITION, delete_local_log=True, delete_remote_log=True)
        assert manager.stop_partitions([stop]).result(20) == {}
        assert not broker.stored_files
