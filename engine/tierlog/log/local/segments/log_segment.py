"""One segment: a ``.log`` and its indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.log_slice import LogSlice
from tierlog.runtime.machine import Machine


class BatchPosition(NamedTuple):
    """Where a batch lies in its segment; ``base_offset`` and ``last_offset`` as its header has them."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp; -1 where there is none; ``leader_epoch`` None if it is not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class SegmentRead(NamedTuple):
    """What a segment has for a fetch.

    Attributes:
        records: The bytes; they begin with a whole batch's first byte and may end inside one.
        first_offset: Base offset of the first batch, as its header has it.
        first_entry_incomplete: Whether the first batch does not fit into what was asked for.
    """

    records: LogSlice
    first_offset: int
    first_entry_incomplete: bool


class LogSegment:
    """A ``.log`` that begins at ``base_offset``, with its offset, time and transaction index.

    One thread appends, cuts, flushes or renames; any number read meanwhile. After a StoreError of a call that changes
    files, nobody may go on with the segment but by opening it anew: what is in the files is not known.

    Attributes:
        base_offset: The segment's.
        created_ms: When it was created or opened, by the machine's clock.
    """

    base_offset: int
    created_ms: int

    # ---- making one

    @classmethod
    def create(cls, machine: Machine, folder: str, base_offset: int, *, config: LogConfig, suffix: str = "") -> Self:
        """A new empty segment. The names are not durable before ``flush`` and an fsync of the folder.

        Raises:
            StoreError: a file cannot be made; or a ``.log`` of this name, that is not empty, is there.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, machine: Machine, folder: str, base_offset: int, *, config: LogConfig, suffix: str = "") -> Self:
        """A segment that is there. Indexes are looked at when they are asked for, as in Kafka; trailing zeros of
        preallocation do not count. A missing time or transaction index is an empty one.

        Raises:
            ObjectNotFoundError: there is no ``.log``. StoreError.
        """
        raise NotImplementedError

    # ---- what is known

    @property
    def log_path(self) -> str:
        raise NotImplementedError

    @property
    def offset_index_path(self) -> str:
        raise NotImplementedError

    @property
    def time_index_path(self) -> str:
        raise NotImplementedError

    @property
    def transaction_index_path(self) -> str:
        """Of the transaction index, which need not exist."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Of the ``.log``."""
        raise NotImplementedError

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment; the time of its file's last change if there is none."""
        raise NotImplementedError

    @property
    def largest_record_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, last offset of the batch that has it); None if there is none."""
        raise NotImplementedError

    @property
    def is_index_full(self) -> bool:
        """Whether an index has no room for another entry: the segment has to be rolled."""
        raise NotImplementedError

    def read_next_offset(self) -> int:
        """Behind the last offset in the segment; ``base_offset`` if it is empty. Reads from the last index entry on."""
        raise NotImplementedError

    def waited_ms(self, now_ms: int, append_timestamp_ms: int) -> int:
        """How long the segment has been written to, for ``segment.ms`` (Kafka timeWaitedForRoll)."""
        raise NotImplementedError

    # ---- writing

    def append(self, data: Buffer, *, last_offset: int, max_timestamp_ms: int) -> None:
        """Append one batch, whose offset lies behind all others, with the index entries that are due.

        Raises:
            CorruptRecordError: the offset does not fit the segment; nothing has changed. StoreError.
        """
        raise NotImplementedError

    def append_run(self, data: Buffer, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Append several batches that lie in a row: ``columns`` as ``scan_batches`` has them. Raises as ``append``."""
        raise NotImplementedError

    def append_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add entries to the transaction index, which is made with the first."""
        raise NotImplementedError

    def write_out(self) -> None:
        """Write the index entries that are in memory alone to their files. By the thread that appends."""
        raise NotImplementedError

    def fsync(self) -> None:
        """Fsync the log, then the offset, time and transaction index as they are. Raises StoreError: never try again.

        Any thread, also while another appends.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """``write_out`` and ``fsync``."""
        self.write_out()
        self.fsync()

    def on_become_inactive(self) -> None:
        """Write the last time entry and all index entries that are still in memory: the segment is closed now."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> int:
        """Cut the segment in front of the first batch that ends at or behind an offset; returns the bytes cut off.

        Index entries at or behind the offset go too. The segment becomes one that can be appended to.
        """
        raise NotImplementedError

    # ---- rebuilding, for recovery

    def begin_rebuild(self) -> None:
        """Forget all index entries, in memory and on disk."""
        raise NotImplementedError

    def index_batches(self, columns: Mapping[str, NDArray[np.generic]], *, position: int) -> None:
        """Take batches that are in the log, from a position on: only indexes are written."""
        raise NotImplementedError

    def truncate_log(self, size_bytes: int) -> None:
        """Cut the ``.log`` to a size; the indexes stay."""
        raise NotImplementedError

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill a buffer from the ``.log``; returns the bytes read, fewer at its end alone."""
        raise NotImplementedError

    def check_transaction_index(self) -> None:
        """Raises CorruptIndexError where the transaction index is not sound."""
        raise NotImplementedError

    # ---- reading

    def find_batch(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at or behind an offset (Kafka translateOffset); None if there is none.

        Raises:
            CorruptRecordError: no batch stands where one must. StoreError.
        """
        raise NotImplementedError

    def read(
        self, start_offset: int, *, max_bytes: int, end_position: int, min_one_message: bool
    ) -> SegmentRead | None:
        """The bytes from the batch that holds an offset on; None if no batch of the segment reaches it.

        Args:
            start_offset: The first batch that reaches it is the first one handed out.
            max_bytes: At most so many, but with ``min_one_message`` the whole first batch.
            min_one_message: Whether a first batch that is larger is handed out whole.
            end_position: No byte at or behind it, whatever else.
        """
        raise NotImplementedError

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        """The first record at or behind an offset whose timestamp is at or above one, with its batch's leader epoch."""
        raise NotImplementedError

    def fetch_upper_bound_offset(self, *, position: int, size_bytes: int) -> int | None:
        """Offset of the first index entry at or behind position + size; None if the index has none."""
        raise NotImplementedError

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        """((producer id, first offset, last offset) of aborted transactions in a range, whether no later segment can
        hold more).
        """
        raise NotImplementedError

    # ---- leaving

    def change_suffix(self, suffix: str) -> None:
        """Rename all files (".deleted", ".swap", "" …), the log last. Readers go on. The folder is not fsynced."""
        raise NotImplementedError

    def move_to(self, folder: str) -> None:
        """The folder was renamed: the files are in another one now."""
        raise NotImplementedError

    def delete_files(self) -> None:
        """Remove the files; readers that hold a slice go on. The folder is not fsynced."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the files; nothing is written. Idempotent."""
        raise NotImplementedError
