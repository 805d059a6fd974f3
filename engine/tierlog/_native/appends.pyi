from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.files import GrowingFile
from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_appends import LogAppendInfo

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
    """The refusal of bytes that may not be appended.

    Attributes:
        rule: The broken rule: "size", "magic", "crc", "codec", "too_large", "base_offset", "batches", "old_format",
            "offset_range", "count", "count_range", "control", "sequence", "compressed", "content_size", "record",
            "records", "timestamps", "record_offsets"; of a follower's "order", "next_offset". ``tierlog/log_append.h``
            has their meanings.
        error_code: Kafka's.
        fault: The fault; its position is that of the batch in the data.
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
    """A leader's checks of a batch, and its changes in it.

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
    """Check batches from a leader: sizes, checksums, offsets that rise.

    Args:
        data: Any contiguous buffer that begins at a batch.
        next_offset: The follower's end: no batch may begin below.
        leader_epoch: The follower's. Batches of a later epoch, and all behind them, are passed over.

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
    """The choice of a growing segment's entries in its offset and time index.

    Args:
        base_offset: The segment's.
        interval_bytes: ``index.interval.bytes``.
        offset_entries_max: Entries for which the offset index has room.
        time_entries_max: The same of the time index, whose last entry is reserved for ``close``.

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

    def add_batches(self, data: Buffer, *, batches_max: int, position: int) -> tuple[bytes, bytes]:
        """The same for whole batches, by their headers.

        Args:
            data: The batches.
            batches_max: As many as there are, or more.
            position: Of the first batch in the segment, bytes.

        Raises:
            CorruptRecordError: as above, or the data is no whole batches. ValueError: there are more of them.
        """

    def close(self) -> bytes:
        """The time entry of a roll or a clean stop, b"" if the greatest timestamp has one."""

class _Writable(Protocol):
    """An UpdatableFile, as far as a segment writes to it."""

    @property
    def growing(self) -> GrowingFile: ...

class _Index(Protocol):
    """An IndexFile, as far as a segment's end adds to it."""

    waiting: WaitingEntries

    def append(self, entries: bytes) -> None: ...

@final
class WaitingEntries:
    """Index entries of batches that native calls appended, until somebody looks, or a page of them is full.

    Args:
        page_bytes: Of whole entries. So many are held, and only while there are any.

    Thread safety: any number of threads take; one at a time adds, which is native code.
    """

    def __init__(self, page_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int:
        """Size of the index entries that wait to be written, bytes."""

    def take(self) -> bytes:
        """The entries that wait; none of them do any more."""

    def note_written(self) -> None:
        """Begin a new page: all entries of the last one are in the file."""

@final
class SegmentEnd:
    """The end of a growing segment: its size, the state of its next index entries, and the file.

    Args:
        offsets: The segment's offset index.
        times: Its time index.
        size_bytes: Of its ``.log``.

    Thread safety: one thread at a time changes it, any number read the size.
    Source: Kafka LogSegment#append, #shouldRoll.
    """

    def __init__(self, offsets: _Index, times: _Index, *, size_bytes: int = 0) -> None: ...
    size_bytes: int
    """Size of the segment's ``.log``, bytes."""
    first_timestamp_ms: int | None
    """The greatest of the first batch (Kafka's rollingBasedTimestamp); None: not read since the segment was opened."""
    tail: IndexTail | None
    """None until the first append after opening, closing or cutting."""

    @property
    def has_file(self) -> bool:
        """Whether ``append`` knows where to write."""

    def write_to(self, file: _Writable | None) -> None:
        """Append to a file from now on, or to none. The file is held until then."""

    def must_roll(
        self, size_bytes: int, last_offset: int, max_timestamp_ms: int, *, limit_bytes: int, limit_ms: int
    ) -> bool | None:
        """Whether bytes may not go into this segment any more; None: its age by the leader's clock decides.

        Raises:
            ValueError: there is no tail.
        """

    def append(self, data: Buffer, *, last_offset: int, max_timestamp: int) -> None:
        """Append one batch, with the index entries that are due: they wait in memory, and go to the file by pages.

        Raises:
            CorruptRecordError: the offset does not fit the segment; nothing has changed. StoreError: of the file or an
                index. ValueError: there is no tail or no file.
        """

@final
class LogEnd:
    """The end of a log: native appends move it, other changes replace it.

    Args:
        log_end_offset: The next offset.
        log_start_offset: The log start in the answer of an append.
        segment: The active segment's end; None: no native append until this object is replaced.

    Thread safety: any number of threads read.
    """

    def __init__(
        self, log_end_offset: int, *, log_start_offset: int = 0, segment: SegmentEnd | None = None
    ) -> None: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    def read(self) -> tuple[int, int]:
        """(log end offset, size of the active segment), of one moment."""

@final
class LatestEpoch:
    """The last leader epoch of a log, and its start offset; -1, -1 if there is none. Thread safety: any threads."""

    def set(self, epoch: int, start_offset: int) -> None: ...
    def covers(self, epoch: int, offset: int) -> bool:
        """Whether a batch of this epoch at this offset begins no epoch."""

def sequence_after(sequence: int, count: int) -> int:
    """The sequence number ``count`` records on; after 2^31-1 comes 0. -1 stays -1."""

class KnownProducer:
    """A log's state of one producer. Not thread-safe: it belongs to the log's writer.

    Attributes:
        coordinator_epoch: Of the last marker's coordinator; -1 if there was none.
        last_timestamp_ms: Of the last batch or marker; -1 if there was none.
        current_txn_first_offset: Of the open transaction; None if none is open.
    """

    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    current_txn_first_offset: int | None

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        current_txn_first_offset: int | None = None,
        batches: Iterable[tuple[int, int, int, int]] = (),
    ) -> None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def has_batches(self) -> bool:
        """Whether a data batch of this epoch is known."""

    def kept(self) -> list[tuple[int, int, int, int]]:
        """The last data batches of this epoch, at most five, oldest first: (last sequence, last offset, offset delta,
        greatest timestamp).
        """

    def keep(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int) -> None:
        """Take a data batch of this epoch."""

    def forget_batches(self) -> None: ...

@final
class KnownProducers:
    """The producers of a log, as a native append asks and changes them.

    Args:
        producers: By id. The same dict always.
        verifications: Not empty: some transaction's begin is being verified, and no batch is a plain sequel. The same
            dict always.
        end_offset: Behind the last batch that was applied.
    """

    end_offset: int

    def __init__(
        self, producers: Mapping[int, KnownProducer], verifications: Mapping[int, Any], *, end_offset: int
    ) -> None: ...

@final
class LeaderAppends:
    """A leader's appends, by one configuration of the log: the usual ones in one call.

    Args:
        check: What every batch is asked.
        producers: Those of the log.
        latest: The leader epoch that the log ends with.
        segment_bytes: ``segment.bytes``.
        segment_ms: How old a segment becomes by its timestamps.
        info: The type of the answer, a named tuple: LogAppendInfo.

    Thread safety: one thread at a time.
    Source: Kafka UnifiedLog#appendAsLeader.
    """

    def __init__(
        self,
        check: LeaderCheck,
        producers: KnownProducers,
        latest: LatestEpoch,
        *,
        segment_bytes: int,
        segment_ms: int,
        info: type[LogAppendInfo],
    ) -> None: ...
    def append(
        self, data: Buffer, end: LogEnd, leader_epoch: int, now_ms: int, from_client: bool
    ) -> LogAppendInfo | AssignedBatch | Refusal | None:
        """Check and assign the one batch of these bytes, and append it, if it is a usual one: no producer's or the
        plain sequel of one, of the epoch that the log ends with, and its segment has room.

        Args:
            data: Writable. What is cut off behind the batch is passed over.
            end: Of the log; it is moved.
            leader_epoch: The leader's.
            now_ms: The leader's clock, ms since 1970 UTC.
            from_client: False for a broker's own batches: markers and offset commits.

        Returns:
            LogAppendInfo: the batch is in the log. Anything else is the answer of ``LeaderCheck.assign``, and nothing
            has changed but the data.

        Raises:
            StoreError, CorruptIndexError: the log has to go offline. Else as ``LeaderCheck.assign``.
        """
