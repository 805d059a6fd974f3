"""The one order in which stores are put around a store."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TypeVar

import pytest

from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.manager_parts import counted_by_partition
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.configured_store import open_backend, stack_store
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import Call, CountingStore, PassingStore
from tierlog.runtime.stores.wrappers.rate_limiter import LIMITED_REQUEST_BYTES

Result = TypeVar("Result")
PREFIX = "secret-prefix/"
PARTITION = f"{PREFIX}orders-AAAAAAAAAAAAAAAAAAAAAQ/3/"
KEY = f"{PARTITION}00000000000000000000-AAAAAAAAAAAAAAAAAAAAAg.log"


class Down(PassingStore):
    """What a caller wraps: it names whole keys in its errors, as the bucket does."""

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        raise StoreUnavailableError(f"{call.key}: is down")


def test_the_mask_covers_what_a_caller_wraps(tmp_path: pathlib.Path) -> None:
    """If this fails, a store of a caller's, or the bucket inside, shows the prefix that its operator hides."""
    config = read_storage_config({"key.prefix": PREFIX, "key.prefix.mask": "true"})
    for limited in (False, True):
        store = stack_store(LocalStore(str(tmp_path)), config, machine=Machine(), wrap_store=Down, limited=limited)
        with pytest.raises(StoreUnavailableError) as caught:
            store.fetch(KEY)
        assert str(caught.value) == f"{KEY}: is down".replace(PREFIX, "<prefix>/")


def test_masking_covers_a_third_partys_store(tmp_path: pathlib.Path) -> None:
    """If this fails, key.prefix.mask does not mask with some stores."""
    keys = {"storage.backend.class": "tests.contract.hdfs_store.FolderStore", "storage.folder": str(tmp_path)}
    config = read_storage_config(keys | {"key.prefix": "secret/", "key.prefix.mask": "true"})
    store = stack_store(open_backend(config), config, machine=Machine())
    with pytest.raises(ObjectNotFoundError, match="<prefix>/k") as caught:
        store.fetch("secret/k")
    assert "secret" not in str(caught.value)


def test_a_caller_sees_requests_and_partitions_count_calls(tmp_path: pathlib.Path) -> None:
    """If this fails, a wrapper that counts does not see the requests that are paid for, or one fetch of a partition
    counts as several since a limit cuts it.
    """
    counting: list[CountingStore] = []

    def wrap(store: ObjectStore) -> CountingStore:
        counting.append(CountingStore(store))
        return counting[-1]

    config = read_storage_config(
        {
            "key.prefix": PREFIX,
            "key.prefix.mask": "true",
            "download.rate.limit.bytes.per.second": str(64 << 20),
            "metrics.recording.level": "DEBUG",
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        }
    )
    metrics = StorageMetrics()
    machine = Machine(clock=ManualClock())
    bucket = LocalStore(str(tmp_path))
    size = 2 * LIMITED_REQUEST_BYTES + 5
    bucket.put(KEY, bytes(size))
    store = stack_store(bucket, config, machine=machine, wrap_store=wrap, limited=True)
    store = counted_by_partition(store, config, metrics)
    assert len(memoryview(store.fetch_range(KEY, start_position=0, end_position_exclusive=size))) == size
    assert counting[0].counts.gets == 3
    found = metrics.registry.get_sample_value(
        "tierlog_remote_partition_store_requests_total", {"topic": "orders", "partition": "3", "verb": "GET"}
    )
    assert found == 1


def test_nothing_is_there_that_nothing_asks_for(tmp_path: pathlib.Path) -> None:
    """If this fails, every read of every broker passes through layers that do nothing."""
    bucket = LocalStore(str(tmp_path))
    config = read_storage_config({"key.prefix": PREFIX})
    assert stack_store(bucket, config, machine=Machine(), limited=True) is bucket
    assert counted_by_partition(bucket, config, StorageMetrics()) is bucket
