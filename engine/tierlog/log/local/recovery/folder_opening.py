"""A partition's folder from the disk into memory: checked, locked, loaded and mended, before a log runs on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tierlog.arguments import require_flag, require_path, require_type
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_identity import (
    LogIdentity,
    agreed_topic_id,
    check_unlocked,
    is_tiered,
    partition_of,
    require_topic_id,
)
from tierlog.log.local.log_values import ProducerSettings
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.log_loader import LoadedLog, LogCheckpoints, load_log
from tierlog.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """What a UnifiedLog begins with.

    Attributes:
        high_watermark: As it was checkpointed.
        is_tiered: Whether broker and topic say so, and the topic is neither compacted nor internal.
    """

    identity: LogIdentity
    loaded: LoadedLog
    epochs: LeaderEpochCache
    epoch_file: EpochCheckpointFile
    high_watermark: int
    is_tiered: bool


def open_folder(
    folder: str,
    *,
    machine: Machine,
    config: LogConfig,
    producer_settings: ProducerSettings | None,
    checkpoints: LogCheckpoints | None,
    had_clean_shutdown: bool,
    topic_id: bytes | None,
    remote_log_enabled: bool,
    has_lock: bool,
    on_epochs_unwritten: Callable[[], None],
) -> OpenedFolder:
    """Load the log of a folder; arguments and errors are those of ``UnifiedLog.open``.

    ``has_lock``: the caller holds the lock of the log directory. ``on_epochs_unwritten``: of the LeaderEpochCache; it
    may be called before this returns.
    """
    folder = require_path("folder", folder)
    settings = ProducerSettings() if producer_settings is None else producer_settings
    require_type("producer_settings", settings, ProducerSettings, "a ProducerSettings")
    checkpoints = LogCheckpoints() if checkpoints is None else checkpoints
    require_type("checkpoints", checkpoints, LogCheckpoints, "a LogCheckpoints")
    require_flag("had_clean_shutdown", had_clean_shutdown)
    require_topic_id(topic_id)
    topic, partition = partition_of(folder)
    if not has_lock:
        check_unlocked(machine.files, folder)
    machine.files.make_directories(folder)
    known_id = agreed_topic_id(machine, folder, topic_id)
    epoch_file = EpochCheckpointFile(machine.files, folder)
    epochs = LeaderEpochCache(epoch_file, machine=machine, on_unwritten=on_epochs_unwritten)
    producers = ProducerState(
        expiration_ms=settings.producer_id_expiration_ms,
        transaction_timeout_ms_max=settings.transaction_max_timeout_ms,
        verifies=settings.transaction_partition_verification_enable,
    )
    tiered = is_tiered(topic, config, broker_tiers=remote_log_enabled)
    loaded = load_log(
        folder,
        machine=machine,
        config=config,
        epochs=epochs,
        producers=producers,
        checkpoints=checkpoints,
        had_clean_shutdown=had_clean_shutdown,
        remote_log_enabled=tiered,
    )
    identity = LogIdentity(topic, partition, known_id)
    return OpenedFolder(identity, loaded, epochs, epoch_file, checkpoints.high_watermark, tiered)


def require_opening(machine: object, config: object, *, remote_log_enabled: object, is_sole_replica: object) -> None:
    """Check what a log, or a directory of them, is opened with. Raises TypeError."""
    require_type("machine", machine, (Machine, type(None)), "a Machine")
    require_type("config", config, (LogConfig, type(None)), "a LogConfig")
    require_flag("remote_log_enabled", remote_log_enabled)
    require_flag("is_sole_replica", is_sole_replica)
