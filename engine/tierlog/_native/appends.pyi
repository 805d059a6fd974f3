from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError

class AssignedBatch(NamedTuple):
    """A leader's batch as it stands there now; with ``must_rebuild`` it is as it was, and has to be compressed anew."""

    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    must_rebuild: bool

class Refusal(NamedTuple):
    """Why bytes may not be appended.

    Attributes:
        rule: Which one was broken: "size", "magic", "crc", "codec", "too_large", "base_offset", "batches",
            "old_format", "offset_range", "count", "count_range", "control", "sequence", "compressed", "content_size",
            "record", "records", "timestamps", "record_offsets"; of a follower's "order", "next_offset".
            ``cext/core/log_append.h`` says what each means.
        error_code: Kafka's.
        fault: Where and what; position is that of the batch in the data.
        record_errors: (index in the batch, "no_key" | "timestamp" | "append_time_set", timestamp in ms), at most 1,000.
        record_error_count: Of all.
    """

    rule: str
    error_code: int
    fault: CorruptRecordError
    record_errors: tuple[tuple[int, str, int], ...]
    record_error_count: int

class Marker(NamedTuple):
    """The end of a transaction; the timestamp in ms."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int

class LeaderCheck:
    """What a leader checks in a batch, and writes into it.

    Args:
        compacted: ``cleanup.policy`` has ``compact``: records need keys.
        log_append_time: ``message.timestamp.type`` is LogAppendTime.
        timestamp_before_max_ms: ``message.timestamp.before.max.ms``.
        timestamp_after_max_ms: ``message.timestamp.after.max.ms``.
        max_message_bytes: ``max.message.bytes``, of a batch.
        target_codec: ``compression.type`` as the codec's number; -1 = as the producer has it.
        decompressed_limit: Bytes to which a batch may decompress, 256 MiB. So many are held during a call, one MiB
            between two.

    Thread safety: one thread at a time.
    Source: Kafka UnifiedLog#analyzeAndValidateRecords, LogValidator.
    """

    def __init__(
        self,
        *,
        compacted: bool = False,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = ...,
        timestamp_after_max_ms: int = 3_600_000,
        max_message_bytes: int = 1_048_588,
        target_codec: int = -1,
        decompressed_limit: int = ...,
    ) -> None: ...
    def assign(
        self, data: Buffer, *, first_offset: int, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> AssignedBatch | Refusal | None:
        """Check the one batch of these bytes and assign its offset, the leader's epoch and timestamps, in place.

        Args:
            data: Writable. What is cut off behind the batch is passed over.
            first_offset: The log's end offset.
            leader_epoch: The leader's.
            now_ms: The leader's clock, ms since 1970 UTC.
            from_client: False for a broker's own batches: markers and offset commits.

        Returns:
            None if the data hold no whole batch. Where it is not an ``AssignedBatch`` without ``must_rebuild``, the
            data are as they were.

        Raises:
            ValueError: first_offset is negative or too large, or another thread is in this check. MemoryError.
        """

def check_follower_batches(
    data: Buffer, *, next_offset: int, leader_epoch: int
) -> tuple[dict[str, NDArray[np.generic]], int, Refusal | None]:
    """Check the batches that a leader sent: sizes, checksums, offsets that rise.

    Args:
        data: Any contiguous buffer that begins at a batch.
        next_offset: The follower's end: no batch may begin below.
        leader_epoch: The one that the follower knows. Batches of a later one, and all behind them, are passed over.

    Returns:
        (columns as ``scan_batches`` has them, bytes to append from the start of the data, refusal). With a refusal
        nothing may be appended; the columns are then those in front of the fault.

    Thread safety: any number of threads; the GIL is released.
    Source: Kafka UnifiedLog#analyzeAndValidateRecords.
    """

def find_marker(data: Buffer) -> Marker | None:
    """The marker of a control batch of magic 2; None if compaction left none, or it is of another kind.

    Raises:
        CorruptRecordError: the batch is cut off, or its record is malformed or compressed.
    """

class IndexTail:
    """Which entries a growing segment gets in its offset and time index.

    Args:
        base_offset: The segment's.
        interval_bytes: ``index.interval.bytes``.
        offset_entries_max: What the offset index has room for.
        time_entries_max: The same of the time index, whose last entry is kept for ``close``.

    Thread safety: one thread at a time.
    Source: Kafka LogSegment#append, TimeIndex#maybeAppend (4.3).
    """

    def __init__(
        self, base_offset: int, *, interval_bytes: int, offset_entries_max: int, time_entries_max: int
    ) -> None: ...
    def resume(
        self, *, offset_entries: int, last_offset: int, time_entries: int, last_time: int, last_time_offset: int
    ) -> None:
        """Go on behind the entries that the files have; the values of an index without entries are not looked at.

        Bytes since the last entry are not known then, and count from 0, as in Kafka.
        """

    @property
    def max_timestamp(self) -> int:
        """The greatest so far, ms; -1 if there is none."""

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the first batch that has it."""

    @property
    def greatest_timestamp(self) -> tuple[int, int]:
        """``max_timestamp`` and ``max_timestamp_offset``, of one moment."""

    def note_timestamp(self, *, max_timestamp: int, last_offset: int) -> None:
        """Take the timestamp of a batch that the segment has behind the last time entry."""

    @property
    def bytes_since_entry(self) -> int:
        """Bytes appended since the last entry."""

    @property
    def is_full(self) -> bool:
        """Whether the segment has to be rolled for want of room in an index; until then entries are left out."""

    def add_batch(self, *, last_offset: int, max_timestamp: int, position: int, size_bytes: int) -> tuple[bytes, bytes]:
        """Take one batch; the entries for the offset index and the time index, b"" where none is due.

        Raises:
            CorruptRecordError: the offset does not rise, or does not fit the segment. Nothing has changed.
        """

    def add(self, columns: Mapping[str, NDArray[np.generic]], *, position: int) -> tuple[bytes, bytes]:
        """The same for batches that lie in a row from a position of the segment on.

        Args:
            columns: last_offset, max_timestamp and size_bytes, as ``scan_batches`` has them.
            position: Of the first batch in the segment, bytes.
        """

    def close(self) -> bytes:
        """The time entry of a roll or a clean stop, b"" if the greatest timestamp has one."""
