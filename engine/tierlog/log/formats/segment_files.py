"""Names in a log directory: the kind of a file, and the partition of a folder.

A segment's files are named by its base offset in 20 digits; a producer snapshot by the offset behind the data it
covers, which is the base offset of the *next* segment. While Kafka cleans, swaps or deletes, it appends a suffix to
the whole name; such files are no part of the log.

Source: Kafka LogFileUtils, UnifiedLog#parseTopicPartitionName, LocalLog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tierlog.arguments import require_buffer, require_path

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"

#: Beside the partitions' folders.
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1

_UNIQUE_FOLDER = re.compile(r"(\S+)-([0-9]{1,10})\.([0-9a-f]{32})-(delete|future|stray)")
_PLAIN_FOLDER = re.compile(r"(\S+)-([0-9]{1,10})")


class SegmentFileKind(StrEnum):
    """The kind of a file of a log directory; the value is its suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"

    @property
    def suffix(self) -> str:
        """Without the dot, as parts of object keys are called."""
        return self.value[1:]


#: Of a base offset in a name.
_DIGITS: Final = 20
_KINDS: Final = {kind.value: kind for kind in SegmentFileKind}
_FILE_NAME = re.compile(
    rf"([0-9]{{1,20}})({'|'.join(re.escape(kind.value) for kind in SegmentFileKind)})(\.deleted|\.cleaned|\.swap)?"
)


class SegmentFileName(NamedTuple):
    """A name that Kafka gives to a file of a log directory.

    Attributes:
        base_offset: The segment's base offset; of a snapshot, the offset behind the data that it covers.
        kind: The kind, by the suffix.
        transient: "deleted", "cleaned" or "swap" for a file that is on its way out or in; "" for a file that counts.
    """

    base_offset: int
    kind: SegmentFileKind
    transient: str = ""

    def __str__(self) -> str:
        suffix = f".{self.transient}" if self.transient else ""
        return f"{self.base_offset:020d}{self.kind.value}{suffix}"


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A folder name of a log dir.

    Attributes:
        purpose: "" for a live partition; "delete", "future" or "stray" for a folder that Kafka has set aside.
    """

    topic: str
    partition: int
    purpose: str = ""


def segment_file_name(base_offset: int, kind: SegmentFileKind) -> str:
    """Return the name of a segment's file, such as ``00000000000000000042.log``."""
    return f"{base_offset:020d}{kind.value}"


def find_segment_file(name: str) -> SegmentFileName | None:
    """Parse the name of a segment's file (no folder in front); None if it is none."""
    match = _FILE_NAME.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return SegmentFileName(int(match[1]), _KINDS[match[2]], (match[3] or "")[1:])


def group_segment_files(listed: Iterable[tuple[str, int]]) -> dict[SegmentFileKind, dict[int, int]]:
    """Group the files of a partition's folder that count as they are: by kind, base offset to what is given of each
    name (its size). Names that are not written as Kafka writes them, and files on their way in or out, are left out.
    """
    found: dict[SegmentFileKind, dict[int, int]] = {kind: {} for kind in SegmentFileKind}
    for name, given in listed:
        kind, digits = _KINDS.get(name[_DIGITS:]), name[:_DIGITS]
        if kind is not None and digits.isascii() and digits.isdigit() and (base_offset := int(digits)) <= OFFSET_MAX:
            found[kind][base_offset] = given
    return found


def find_partition_folder(name: str) -> PartitionFolder | None:
    """Return the partition that a folder of a log directory holds; None if it holds none (``remote-log-index-cache``).

    The partition is what follows the last ``-``: topics may hold dashes and dots.
    """
    match = _UNIQUE_FOLDER.fullmatch(name)
    purpose = match[4] if match else ""
    match = match or _PLAIN_FOLDER.fullmatch(name)
    if match is None or int(match[2]) > PARTITION_MAX:
        return None
    return PartitionFolder(match[1], int(match[2]), purpose)


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The files of one closed segment that are to be copied. The files may be deleted once the copy has returned.

    Args:
        log_segment: Path of the ``.log``.
        offset_index: Path of the ``.index``, with or without the zeros that Kafka allocates ahead.
        time_index: Path of the ``.timeindex``, likewise.
        transaction_index: Path of the ``.txnindex``; None if the segment has none, which differs from an empty one.
        producer_snapshot: Path of the ``.snapshot`` of the segment's end.
        leader_epoch_index: Content of a leader-epoch-checkpoint that ends at the segment's end.
    """

    log_segment: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str
    leader_epoch_index: bytes

    def __post_init__(self) -> None:
        """Turn pathlib's paths into str. Raises TypeError: a field is of another type."""
        for name in ("log_segment", "offset_index", "time_index", "producer_snapshot"):
            object.__setattr__(self, name, require_path(name, getattr(self, name)))
        if self.transaction_index is not None:
            object.__setattr__(self, "transaction_index", require_path("transaction_index", self.transaction_index))
        require_buffer("leader_epoch_index", self.leader_epoch_index)
