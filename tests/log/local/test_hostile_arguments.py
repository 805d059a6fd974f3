"""The local log, its directory and its configuration under arguments that no caller should give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.hostile_arguments import HOSTILE, check_calls, error_of, iter_hostile_calls
from tests.support.living_logs import FOLDER, NOW_MS, batch_of, machine_of, opened, served
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local import (
    AppendOrigin,
    CleanerConfig,
    DirectoryIdentity,
    FetchIsolation,
    LogCheckpoints,
    LogConfig,
    LogDirectories,
    LogDirectory,
    LogDirectoryConfig,
    ProducerSettings,
    UnifiedLog,
)
from tierlog.log.local.log_view import LogView

EPOCH = 3
BATCH = bytes(batch_of(b"a", b"b"))
#: Public, and not called here: they end the log, take a function of the embedder's, or have no argument.
_OTHERS = frozenset(
    {"open", "close", "delete", "size", "remote_log_enabled", "has_late_transaction", "delete_old_segments"}
    | {"remove_expired_producers", "only_local_log_segments_size", "only_local_log_segments_count"}
    | {"add_listener", "remove_listener", "flush_epochs_later", "take_offline"}
    | {"lease", "open_transactions", "reading", "hand_over"}
    | {"last_records_of_producers", "create_cleaned_segment", "replace_segments"}  # for the cleaner alone
)
CALLS: dict[str, dict[str, Any]] = {
    "append_as_leader": {
        "data": BATCH,
        "leader_epoch": EPOCH,
        "origin": AppendOrigin.CLIENT,
        "verification_guard": None,
        "transaction_version": None,
    },
    "append_as_follower": {"data": BATCH, "leader_epoch": EPOCH},
    "assign_epoch_start_offset": {"leader_epoch": EPOCH + 1, "start_offset": 4},
    "begin_transaction_verification": {
        "producer_id": 7,
        "sequence": 0,
        "producer_epoch": 0,
        "supports_epoch_bump": False,
    },
    "roll": {"expected_next_offset": None},
    "flush": {"up_to_offset": None},
    "update_high_watermark": {"offset": 2},
    "maybe_increment_high_watermark": {"offset": 2},
    "maybe_increment_log_start_offset": {"offset": 1, "reason": "a test"},
    "maybe_increment_local_log_start_offset": {"offset": 1, "reason": "a test"},
    "update_highest_offset_in_remote_storage": {"offset": 1},
    "update_log_start_offset_from_remote_tier": {"offset": 1},
    "truncate_to": {"offset": 2},
    "truncate_fully_and_start_at": {"offset": 10, "log_start_offset": None},
    "start_from_tier": {
        "offset": 10,
        "log_start_offset": 2,
        "epochs": [(0, 0)],
        "producer_snapshot": encode_producer_snapshot(()),
    },
    "complete_lineage": {"epochs": [(0, 0)]},
    "take_lineage": {"epochs": [(0, 0)]},
    "update_config": {"config": LogConfig()},
    "rename_folder": {"folder": "/logs/orders-0.0123-delete"},
    "log_segments": {"from_offset": None, "to_offset": None},
    "read": {
        "start_offset": 0,
        "max_bytes": 1000,
        "isolation": FetchIsolation.LOG_END,
        "min_one_message": True,
    },
    "fetch_offset_by_timestamp": {"timestamp_ms": NOW_MS},
    "end_offset_for_epoch": {"leader_epoch": EPOCH},
    "collect_aborted_transactions": {"start_offset": 0, "upper_bound_offset": 4},
    "snapshot_at": {"offset": 4},
    "closed_segments": {"from_offset": 0},
}


def a_log() -> UnifiedLog:
    """Four records in two batches."""
    log = opened(machine_of(), config=LogConfig(remote_storage_enable=True))
    for _ in range(2):
        log.append_as_leader(bytearray(BATCH), leader_epoch=EPOCH)
    return log


def test_every_public_method_is_asked() -> None:
    """A method that is added must be hardened too."""
    public = {name for name, each in {**vars(LogView), **vars(UnifiedLog)}.items() if callable(each)}
    public = {name for name in public if not name.startswith("_")} | {"open"}
    assert public - _OTHERS == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_log_raises_what_it_says_and_harms_nothing(name: str) -> None:
    """A broker answers Kafka's error for each kind; one that it does not know ends a connection, or its thread, and a
    log that is half changed by it serves wrong records later.
    """
    sound = CALLS[name]
    raised = 0
    for what, _ in iter_hostile_calls(getattr(UnifiedLog, name), sound):
        log = a_log()
        before, offsets = served(log), log.offsets
        call = getattr(log, name)
        if "data" in sound:
            sound = sound | {"data": bytearray(BATCH)}  # it is written to
        if error_of(dict(iter_hostile_calls(call, sound))[what], call, sound, what) is not None:
            raised += 1
            assert (log.offsets, log.folder) == (offsets, FOLDER), what
            assert served(log) == before, what
            end = log.log_end_offset
            assert log.append_as_leader(bytearray(BATCH), leader_epoch=EPOCH).first_offset == end, what
        assert not log.is_offline, what
        log.close()
    assert raised > 5


def test_a_lease_of_no_segment() -> None:
    """Its argument is an object of the log's."""
    with a_log() as log:
        for value in HOSTILE:
            with pytest.raises(TypeError, match="segment"):
                log.lease(value)  # type: ignore[arg-type]
        with a_log() as other, pytest.raises(LookupError, match="has gone"):
            log.lease(other.active_segment)


PARTS: tuple[tuple[Callable[[UnifiedLog], Any], str, dict[str, Any]], ...] = (
    (lambda log: log.leader_epoch_cache, "epoch_entry", {"epoch": 3}),
    (lambda log: log.leader_epoch_cache, "previous_entry", {"epoch": 3}),
    (lambda log: log.leader_epoch_cache, "previous_epoch", {"epoch": 3}),
    (lambda log: log.leader_epoch_cache, "next_epoch", {"epoch": 3}),
    (lambda log: log.leader_epoch_cache, "end_offset_for", {"epoch": 3, "log_end_offset": 4}),
    (lambda log: log.leader_epoch_cache, "epoch_for_offset", {"offset": 2}),
    (lambda log: log.leader_epoch_cache, "epoch_entries_in_range", {"start_offset": 0, "end_offset_exclusive": 3}),
    (lambda log: log.leader_epoch_cache, "assign", {"epoch": 4, "start_offset": 4}),
    (lambda log: log.leader_epoch_cache, "assign_all", {"entries": [(4, 4)]}),
    (lambda log: log.leader_epoch_cache, "truncate_from_end", {"end_offset_exclusive": 2}),
    (lambda log: log.leader_epoch_cache, "truncate_from_start", {"start_offset": 1}),
    (lambda log: log.active_segment, "find_offset_by_timestamp", {"timestamp_ms": 0, "starting_offset": 0}),
    (lambda log: log.active_segment, "collect_aborted", {"fetch_offset": 0, "upper_bound_offset": 4}),
)


@pytest.mark.parametrize("number", range(len(PARTS)))
def test_a_call_of_a_logs_parts_raises_what_it_says(number: int) -> None:
    """The RemoteLogManager asks epochs and segments by what other brokers told it."""
    part, name, sound = PARTS[number]
    with a_log() as log:
        assert check_calls(getattr(part(log), name), sound) > 5


DIRECTORY_CALLS: dict[str, tuple[Callable[[LogDirectory], Callable[..., object]], dict[str, Any]]] = {
    "log": (
        lambda directory: directory.log,
        {"topic": "orders", "partition": 0, "config": LogConfig(), "topic_id": Uuid(bytes(range(16)))},
    ),
    "load_logs": (lambda directory: directory.load_logs, {"configs": {"orders": LogConfig()}}),
    "delete_log": (lambda directory: directory.delete_log, {"topic": "none", "partition": 0}),
}


@pytest.mark.parametrize("name", DIRECTORY_CALLS)
def test_a_call_of_a_directory_raises_what_it_says_and_harms_nothing(name: str) -> None:
    """A wrong name from a request must not take a disk with all its partitions offline."""
    method, sound = DIRECTORY_CALLS[name]
    with LogDirectory.open("/logs", machine=machine_of(), runs_tasks=False) as directory:
        log = directory.log("kept", 0)
        assert check_calls(method(directory), sound) > 5
        assert not directory.is_offline
        assert log.append_as_leader(bytearray(BATCH), leader_epoch=EPOCH).first_offset == 0
        directory.checkpoint()


DIRECTORIES_CALLS: dict[str, tuple[Callable[[LogDirectories], Callable[..., object]], dict[str, Any]]] = {
    "log": (
        lambda directories: directories.log,
        {"topic": "orders", "partition": 0, "config": LogConfig(), "topic_id": Uuid(bytes(range(16))), "is_new": True},
    ),
    "load_logs": (lambda directories: directories.load_logs, {"configs": {"orders": LogConfig()}}),
    "delete_log": (lambda directories: directories.delete_log, {"topic": "none", "partition": 0}),
    "directory": (lambda directories: directories.directory, {"path": "/a"}),
    "directory_of": (lambda directories: directories.directory_of, {"directory_id": Uuid(bytes(range(16)))}),
    "update_config": (lambda directories: directories.update_config, {"topic": "orders", "config": LogConfig()}),
    "begin_move": (lambda directories: directories.begin_move, {"topic": "other", "partition": 0, "path": "/a"}),
    "cancel_move": (lambda directories: directories.cancel_move, {"topic": "kept", "partition": 0}),
    "finish_move": (lambda directories: directories.finish_move, {"topic": "kept", "partition": 0}),
}


@pytest.mark.parametrize("name", DIRECTORIES_CALLS)
def test_a_call_of_the_directories_raises_what_it_says_and_harms_nothing(name: str) -> None:
    """A wrong name from a request must not take a disk with all its partitions offline."""
    method, sound = DIRECTORIES_CALLS[name]
    with LogDirectories.open(["/a", "/b"], machine=machine_of(), runs_tasks=False) as directories:
        log = directories.log("kept", 0)
        assert check_calls(method(directories), sound) > 5
        assert directories.offline == {}
        assert log.append_as_leader(bytearray(BATCH), leader_epoch=EPOCH).first_offset == 0


def test_closing_a_directory_raises_what_it_says() -> None:
    """A broker epoch that cannot be written must not cost the clean stop of every log."""
    for what, _ in iter_hostile_calls(LogDirectory.close, {"broker_epoch": 5}):
        directory = LogDirectory.open("/logs", machine=machine_of(), runs_tasks=False)
        directory.log("kept", 0)
        attempt = dict(iter_hostile_calls(directory.close, {"broker_epoch": 5}))[what]
        if error_of(attempt, directory.close, ["broker_epoch"], what) is not None:
            directory.close()


def test_opening_raises_what_it_says() -> None:
    """A wrong value in a broker's configuration must be told by its name, before a file is touched."""
    of_log = {
        "folder": FOLDER,
        "machine": machine_of(),
        "config": LogConfig(),
        "producer_settings": ProducerSettings(),
        "checkpoints": LogCheckpoints(),
        "had_clean_shutdown": False,
        "topic_id": None,
        "remote_log_enabled": False,
        "is_sole_replica": False,
    }
    assert check_calls(UnifiedLog.open, of_log) > 50
    of_directory = {
        "path": "/other",
        "machine": machine_of(folder="/other"),
        "config": LogConfig(),
        "directory_config": LogDirectoryConfig(),
        "remote_log_enabled": False,
        "is_sole_replica": True,
        "identity": None,
        "runs_tasks": False,
        "cleaner": None,
        "cleaner_config": None,
    }

    of_directories = {"paths": ["/other"], **{name: value for name, value in of_directory.items() if name != "path"}}
    for open_it, sound in ((LogDirectory.open, of_directory), (LogDirectories.open, of_directories)):
        for what, attempt in iter_hostile_calls(open_it, sound):
            with contextlib.ExitStack() as opened:
                error_of(partial(_enter, opened, attempt), open_it, sound, what)


def _enter(stack: contextlib.ExitStack, attempt: Callable[[], Any]) -> None:
    stack.enter_context(attempt())


@pytest.mark.parametrize(
    ("kind", "sound"),
    [
        (LogCheckpoints, {"recovery_point": 0, "log_start_offset": 0, "high_watermark": 0}),
        (DirectoryIdentity, {"cluster_id": "abc", "node_id": 1}),
    ],
)
def test_values_raise_what_they_say(kind: Callable[..., object], sound: dict[str, Any]) -> None:
    """What is not checked here goes wrong in the middle of a recovery."""
    assert check_calls(kind, sound) > 5


@pytest.mark.parametrize("kind", [CleanerConfig, LogConfig, LogDirectoryConfig, ProducerSettings])
def test_configurations_raise_what_they_say(kind: Any) -> None:
    """A malformed value of a topic's configuration must be answered as INVALID_CONFIG, not as a fault of the server."""
    if kind is not ProducerSettings:
        for value in HOSTILE:
            for name in ("retention.ms", "num.recovery.threads.per.data.dir"):
                error_of(partial(kind.from_kafka, {name: value}), kind.from_kafka, ["given"], f"{name}={value!r}")
        assert check_calls(kind.from_kafka, {"given": {}}) > 5
    for name in kind.__dataclass_fields__:
        assert check_calls(kind, {name: getattr(kind(), name)}) > 5
