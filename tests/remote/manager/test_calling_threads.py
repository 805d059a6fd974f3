"""Which threads call the managers below a RemoteLogManager."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.contract.folder_manager import FolderStorageManager
from tests.support.third_party import PARTITION, third_party_broker
from tests.support.tiered_log import NONE
from tests.support.waiting import wait_until
from tierlog.remote import RemoteRead, StopPartition
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager
from tierlog.replication import BuildAuxState

#: Their contracts say that they do not block: a broker's thread may make them.
NEVER_BLOCK = {"call_off_copy", "resize_index_cache", "is_ready", "when_ready"}


def watch(manager: object, interface: type, made: set[tuple[str, str]]) -> None:
    """Note (call, thread) of each call of a manager, as its interface has them."""

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:
            made.add((name, threading.current_thread().name))
            return call(*args, **kwargs)

        return noted

    for name in dir(interface):
        if not name.startswith("_") and name != "configure":
            setattr(manager, name, watched(name, getattr(manager, name)))


def test_brokers_threads_wait_for_no_store(tmp_path: pathlib.Path) -> None:
    """If this fails, a store that hangs stops a broker's request threads, its fetchers or its event loop."""
    storage = FolderStorageManager()
    made: set[tuple[str, str]] = set()
    with third_party_broker(tmp_path, segments=4, storage=storage) as broker, broker.manager as manager:
        listed = broker.metadata.list_remote_log_segments
        watch(storage, RemoteStorageManager, made)
        watch(broker.metadata, RemoteLogMetadataManager, made)
        log = broker.log
        manager.on_leadership_change({PARTITION}, NONE, metadata_partitions={0})
        wait_until(lambda: log.highest_offset_in_remote_storage == 39)
        log.delete_old_segments()
        (found,) = manager.read([RemoteRead(PARTITION, 0, max_bytes=1 << 20)], max_wait_ms=60_000).result(60)
        assert found.data.first_offset == 0
        assert manager.list_offsets(PARTITION, 1).result(60) is not None
        assert manager.list_offsets(PARTITION, -5).result(60) is not None
        log.maybe_increment_log_start_offset(15, "DeleteRecords")
        wait_until(lambda: len(list(listed(PARTITION))) == 3)
        log.truncate_to(25)
        assert log.must_be_rebuilt
        manager.on_leadership_change(NONE, {PARTITION})
        built = manager.build_aux_state(PARTITION, BuildAuxState(0, 0, 30, 15)).result(60)
        assert built.next_offset == log.log_end_offset == 40
        manager.update_config({"remote.log.index.file.cache.total.size.bytes": "1048576"})
        assert manager.on_config_change({PARTITION}).result(60) == {}
        assert manager.health().followers == 1
        manager.on_leadership_change({PARTITION}, NONE)
        stop = StopPartition(PARTITION, delete_local_log=True, delete_remote_log=True)
        assert manager.stop_partitions([stop]).result(60) == {}
        manager.delete_partition(PARTITION).result(60)
    here = threading.current_thread().name
    asked = {name for name, _ in made}
    assert {name for name, thread in made if thread == here} <= NEVER_BLOCK
    assert {
        "copy_log_segment_data",
        "delete_log_segment_data",
        "fetch_log_segment",
        "fetch_index",
        "add_remote_log_segment_metadata",
        "update_remote_log_segment_metadata",
        "remote_log_segment_metadata",
        "on_partition_leadership_changes",
        "on_stop_partitions",
        "put_remote_partition_delete_metadata",
        "close",
    } <= asked
    assert all(thread.startswith("tierlog-rlm-") for _, thread in made if thread != here)
