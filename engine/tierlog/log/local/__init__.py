"""The living log of a partition, as Kafka 4.3 writes it, and the directory of logs, for brokers that embed them.

What it is: a leader's and a follower's changes of a partition's files, byte for byte as Kafka's. Why: a broker that
embeds Tierlog needs a log, tests need a log that behaves like Kafka's, and the tier copies its segments. The public
names are here, loaded when they are first used (docs/local-log.md has them in thirty lines).

Belongs here: the rules, the state and the files of local logs. Does not belong here: parsing a file (``log.formats``),
judging files by each other (``log.checks``), replication (which asks this room), anything remote.

From the bottom:

- ``log_config``: Kafka's keys of a topic and of a broker, a row each.
- ``log_folder``: a log's folder and its files, none of which is opened before it is needed: thousands of segments are
  opened at no cost.
- ``log_appends``: a batch is checked, and offset, epoch and timestamps are written into it in place: the bytes are read
  once for the checksum and once for the records (C, ``tierlog/log_append.h``).
- ``producers``: idempotence and transactions, as a state machine, and its snapshots.
- ``leader_epoch_cache``: the lineage, on disk before the first record of an epoch.
- ``segments``: a ``.log`` and its indexes. An append is one write of the producer's own buffer, and for a leader's
  usual batch (no roll, no new epoch, the plain sequel of its producer or of none) one native call from the checks to
  the index entries (``cext/core/log/usual_append.h``); any other goes on step by step. Entries go to a tail in memory,
  which readers search, and to the file behind their records, a page at a time. The row of segments is a value that is
  replaced as a whole: readers take it without a lock, and a file is closed when its last reader has gone.
- ``recovery``: after an unclean stop one pass over what lies behind the recovery point; the torn tail is cut.
- ``log_contents``: segments, producers, epochs and offsets, and how they change together, over the files of
  ``local_log``. Nothing in it locks.
- ``log_view``: what readers ask of one partition, without a lock.
- ``unified_log``: one partition: the one lock around all changes.
- ``log_flusher``: what follows a change: syncs, beside appends or in the background, and the calls of listeners.
- ``log_directories``: the directories of one broker: a new log goes into one of them, and one that fails is offline
  alone; a log moves between them (``tierlog.replication`` copies it, ``log_switch`` puts it in the old one's place).
- ``compaction``: the log cleaner.
- ``log_directory``: the folders of one directory, its lock, its checkpoints, its jobs (retention, flushes by time), and
  whether it was closed cleanly; ``directory`` has its files and their state.

The order of an append: check and assign, producers, epochs (fsynced if they changed), roll, write, end
offset, producers' new state, transaction index, last stable offset, flush. A failed write or fsync is never tried
again: the log and its directory are offline, with one error (docs/decisions/0012-files-of-the-living-log.md).

Source: Kafka UnifiedLog, LocalLog, LogSegment, LogLoader, LogManager, ProducerStateManager, LeaderEpochFileCache.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.log.fetch_data import FetchDataInfo
    from tierlog.log.formats.identity_files import Uuid
    from tierlog.log.local.background_tasks import BackgroundTasks
    from tierlog.log.local.compaction.log_cleaner import LogCleaner
    from tierlog.log.local.compaction.log_cleaner_manager import LogCleanerManager
    from tierlog.log.local.directory.directory_files import DirectoryIdentity
    from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
    from tierlog.log.local.log_appends import LogAppendInfo
    from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
    from tierlog.log.local.log_directories import DirectoryDescription, LogDescription, LogDirectories
    from tierlog.log.local.log_directory import LogDirectory
    from tierlog.log.local.log_errors import (
        AppendRefusedError,
        DirectoryInUseError,
        InconsistentTopicIdError,
        KafkaError,
        LogBusyError,
        LogClosedError,
        LogOfflineError,
        LogTruncatedError,
        OffsetOutOfRangeError,
        RecordError,
    )
    from tierlog.log.local.log_metrics import LogCleanerMetrics, LogDirectoriesMetrics
    from tierlog.log.local.log_reads import (
        EARLIEST_LOCAL_TIMESTAMP,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP,
        EARLIEST_TIMESTAMP,
        LATEST_TIERED_TIMESTAMP,
        LATEST_TIMESTAMP,
        MAX_TIMESTAMP,
        FetchIsolation,
        LogOffsets,
        OffsetsListener,
    )
    from tierlog.log.local.producers.producer_appends import AppendOrigin
    from tierlog.log.local.producers.producer_entries import ProducerSettings, VerificationGuard
    from tierlog.log.local.recovery.log_loader import LogCheckpoints
    from tierlog.log.local.recovery.segment_recovery import RecoveryAction, RecoveryReport
    from tierlog.log.local.segments.log_segment import LogSegment
    from tierlog.log.local.segments.segment_view import LogSlice, TimestampAndOffset
    from tierlog.log.local.unified_log import UnifiedLog
else:
    _NAMES = {
        "tierlog.log.formats.identity_files": ("Uuid",),
        "tierlog.log.local.background_tasks": ("BackgroundTasks",),
        "tierlog.log.local.compaction.log_cleaner": ("LogCleaner",),
        "tierlog.log.local.compaction.log_cleaner_manager": ("LogCleanerManager",),
        "tierlog.log.local.directory.directory_files": ("DirectoryIdentity",),
        "tierlog.log.local.leader_epoch_cache": ("LeaderEpochCache",),
        "tierlog.log.local.log_appends": ("LogAppendInfo",),
        "tierlog.log.local.log_config": ("CleanerConfig", "LogConfig", "LogDirectoryConfig"),
        "tierlog.log.local.log_directories": ("DirectoryDescription", "LogDescription", "LogDirectories"),
        "tierlog.log.local.log_directory": ("LogDirectory",),
        "tierlog.log.local.log_errors": (
            "AppendRefusedError",
            "DirectoryInUseError",
            "InconsistentTopicIdError",
            "KafkaError",
            "LogBusyError",
            "LogClosedError",
            "LogOfflineError",
            "LogTruncatedError",
            "OffsetOutOfRangeError",
            "RecordError",
        ),
        "tierlog.log.fetch_data": ("FetchDataInfo",),
        "tierlog.log.local.log_metrics": ("LogCleanerMetrics", "LogDirectoriesMetrics"),
        "tierlog.log.local.log_reads": (
            "EARLIEST_LOCAL_TIMESTAMP",
            "EARLIEST_PENDING_UPLOAD_TIMESTAMP",
            "EARLIEST_TIMESTAMP",
            "LATEST_TIERED_TIMESTAMP",
            "LATEST_TIMESTAMP",
            "MAX_TIMESTAMP",
            "FetchIsolation",
            "LogOffsets",
            "OffsetsListener",
        ),
        "tierlog.log.local.producers.producer_appends": ("AppendOrigin",),
        "tierlog.log.local.producers.producer_entries": ("ProducerSettings", "VerificationGuard"),
        "tierlog.log.local.recovery.log_loader": ("LogCheckpoints",),
        "tierlog.log.local.recovery.segment_recovery": ("RecoveryAction", "RecoveryReport"),
        "tierlog.log.local.segments.log_segment": ("LogSegment",),
        "tierlog.log.local.segments.segment_view": ("LogSlice", "TimestampAndOffset"),
        "tierlog.log.local.unified_log": ("UnifiedLog",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = [
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_PENDING_UPLOAD_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "LATEST_TIERED_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "AppendOrigin",
    "AppendRefusedError",
    "BackgroundTasks",
    "CleanerConfig",
    "DirectoryDescription",
    "DirectoryIdentity",
    "DirectoryInUseError",
    "FetchDataInfo",
    "FetchIsolation",
    "InconsistentTopicIdError",
    "KafkaError",
    "LeaderEpochCache",
    "LogAppendInfo",
    "LogBusyError",
    "LogCheckpoints",
    "LogCleaner",
    "LogCleanerManager",
    "LogCleanerMetrics",
    "LogClosedError",
    "LogConfig",
    "LogDescription",
    "LogDirectories",
    "LogDirectoriesMetrics",
    "LogDirectory",
    "LogDirectoryConfig",
    "LogOfflineError",
    "LogOffsets",
    "LogSegment",
    "LogSlice",
    "LogTruncatedError",
    "OffsetOutOfRangeError",
    "OffsetsListener",
    "ProducerSettings",
    "RecordError",
    "RecoveryAction",
    "RecoveryReport",
    "TimestampAndOffset",
    "UnifiedLog",
    "Uuid",
    "VerificationGuard",
]
