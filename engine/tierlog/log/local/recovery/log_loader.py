"""Loading a log: what Kafka's LogLoader does when a broker starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.segments.log_segments import LogSegments
from tierlog.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class LogCheckpoints:
    """What the log directory's checkpoints say of one log; 0 where they say nothing."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that loading did to a file.

    Attributes:
        kind: "cut", "rebuilt", "deleted", "swapped", "split", "created", "snapshot", "epochs".
        path: Of the file.
        text: What, in words.
        bytes_cut: Of a log that was cut, or a file that was deleted.
    """

    kind: str
    path: str
    text: str
    bytes_cut: int = 0


@dataclass(slots=True)
class RecoveryReport:
    """What loading did, in order."""

    actions: list[RecoveryAction] = field(default_factory=list)
    batches_checked: int = 0
    bytes_checked: int = 0


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A log that is ready to run."""

    segments: LogSegments
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport


def load_log(
    folder: str,
    *,
    machine: Machine,
    config: LogConfig,
    epochs: LeaderEpochCache,
    producers: ProducerState,
    checkpoints: LogCheckpoints,
    had_clean_shutdown: bool,
    remote_log_enabled: bool = False,
) -> LoadedLog:
    """Load the log of a folder that exists, and mend it: interrupted deletions and swaps finished, indexes rebuilt,
    after an unclean stop everything behind the recovery point read and the torn tail cut, producers' state restored.

    All that was mended is fsynced on return, the folder included. After an error or a crash, loading again gives the
    same log.

    Args:
        folder: The partition's.
        machine: Clock, threads and files.
        config: The topic's.
        had_clean_shutdown: Whether the log directory was closed cleanly.
        remote_log_enabled: Whether the log is tiered.
        epochs: The log's cache: cut at both ends to the log.
        producers: A new one.
        checkpoints: Of the log directory. ``high_watermark`` is not looked at.

    Raises:
        CorruptIndexError: the leader epoch checkpoint is malformed. StoreError: a file cannot be read or written.
    """
    raise NotImplementedError
