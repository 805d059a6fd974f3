import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

#: producer_id, first_offset, last_offset: int64 each (the C struct tl_aborted).
ABORTED_DTYPE: np.dtype[np.void]
#: producer_id, first_offset, last_offset, last_stable_offset: int64 each.
TRANSACTION_DTYPE: np.dtype[np.void]

def offset_index_entries(data: Buffer) -> int:
    """Entries in use: trailing zero entries of a preallocated file do not count."""

def read_offset_index(data: Buffer, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(offsets, positions) of the entries in use; offsets absolute, positions in bytes; both rise in a sound file."""

def lookup_offset(data: Buffer, base_offset: int, target_offset: int) -> tuple[int, int]:
    """(offset, position) of the entry with the largest offset <= target; (base_offset, 0) if there is none."""

def lookup_offsets(data: Buffer, base_offset: int, targets: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """``lookup_offset`` of many targets at once: (offsets, positions), in the targets' order. Raises ValueError: the
    targets are no row of integers of 64 bits.
    """

def find_upper_bound_offset(data: Buffer, base_offset: int, position: int, size_bytes: int) -> int | None:
    """Kafka's fetchUpperBoundOffset: offset of the first entry at or behind position + size_bytes."""

def check_offset_index(data: Buffer, base_offset: int, segment_size_bytes: int | None = None) -> None:
    """Raises CorruptIndexError at the first entry that breaks size, order or range."""

def time_index_entries(data: Buffer) -> int: ...
def read_time_index(data: Buffer, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(timestamps in ms, offsets) of the entries in use."""

def lookup_timestamp(data: Buffer, base_offset: int, target_timestamp_ms: int) -> tuple[int, int]:
    """(timestamp, offset) of the entry with the largest timestamp <= target; (-1, base_offset) if there is none."""

def lookup_timestamps(
    data: Buffer, base_offset: int, targets_ms: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``lookup_timestamp`` of many targets at once: (timestamps in ms, offsets), in the targets' order. Raises as
    ``lookup_offsets``.
    """

def check_time_index(data: Buffer, base_offset: int) -> None:
    """Raises CorruptIndexError at the first entry that breaks size, order or range."""

def read_transaction_index(data: Buffer) -> NDArray[np.void]:
    """All whole entries, dtype TRANSACTION_DTYPE. Raises CorruptIndexError on a version above 0 or a wrong order."""

def check_transaction_index(data: Buffer, base_offset: int) -> None: ...
def collect_aborted(
    data: Buffer, fetch_offset: int, upper_bound_offset_exclusive: int
) -> tuple[NDArray[np.void], bool]:
    """(entries of ABORTED_DTYPE that touch the range, complete): Kafka's collectAbortedTxns over one segment."""

def sort_aborted(entries: NDArray[np.void]) -> NDArray[np.void]:
    """A sorted, distinct copy (dtype ABORTED_DTYPE) as RecordDecoder wants it. CorruptIndexError on overlaps."""

def is_aborted(sorted_entries: NDArray[np.void], producer_id: int, base_offset: int) -> bool: ...
