from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)

#: start_offset, end_offset, max_timestamp_ms, event_timestamp_ms: int64; broker_id, segment_size_in_bytes: int32;
#: segment_id: uint8[16]; state: uint8; txn_idx_empty: bool; epoch_count: uint32; custom_metadata_size: int64
#: (the C struct tl_segment_copy).
SEGMENT_DTYPE: np.dtype[np.void]

def may_become(found_state: int, state: int) -> bool:
    """Whether a segment in one state (-1: there is none) may go to another, or to the same one again.

    States by their numbers, as RemoteLogSegmentState has them. Any number of threads.
    """

@final
class SegmentCopy:
    """A segment as it was at one moment. Immutable; any number of threads."""

    @property
    def partition(self) -> TopicIdPartition: ...
    @property
    def segment_id(self) -> bytes: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def event_timestamp_ms(self) -> int: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def segment_size_in_bytes(self) -> int: ...
    @property
    def segment_leader_epochs(self) -> dict[int, int]: ...
    @property
    def custom_metadata(self) -> bytes | None: ...
    @property
    def state(self) -> int: ...
    @property
    def txn_idx_empty(self) -> bool: ...

class NativeSegmentTable:
    """The base of ``tierlog.remote.metadata.segment_table.SegmentTable``; nothing else uses it.

    Public methods are any thread's; those with an underscore are one thread's at a time, but ``_find_rows``,
    ``_list_rows``, ``_get_rows`` and ``_figures``. All raise ValueError once the table is closed.
    """

    def _open(self, seed: bytes, as_kafka: bool, learns: bool, row_type: type[RemoteLogSegmentMetadata]) -> None:
        """Once, before anything else. ``seed``: 8 secret bytes; ``row_type``: has a slot named _copy."""
    def close(self) -> None:
        """Free the table, or let the last call under way do so. Later calls raise ValueError. Idempotent."""
    @property
    def closed(self) -> bool: ...
    def find(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The segment in state COPY_SEGMENT_FINISHED whose part of a leader epoch holds an offset, or None."""
    def get(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """The segment of an id, in any state but DELETE_SEGMENT_FINISHED."""
    def next_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first segment from the one with the offset on, of this epoch and without a gap before it, that may have a
        transaction index; None if there is none.
        """
    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest offset of an epoch that any segment in state COPY_SEGMENT_FINISHED ever had, or None."""
    def version(self, partition: TopicIdPartition) -> int:
        """A number that changes with each change of the partition's segments; 0 while it has never had one."""
    def size_in_bytes(self, partition: TopicIdPartition, epoch: int) -> int:
        """The sum of the sizes of all segments that the list of an epoch has, whatever their state."""
    def _find_rows(
        self, partition: TopicIdPartition, epochs: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.void]]: ...
    def _list_rows(self, partition: TopicIdPartition, epoch: int) -> NDArray[np.void]: ...
    def _get_rows(self, partition: TopicIdPartition, rows: NDArray[np.void]) -> list[RemoteLogSegmentMetadata]: ...
    @property
    def _figures(self) -> tuple[int, int, int]: ...
    def _assign(self, partition: TopicIdPartition, applied: int) -> bool:
        """False: its topic id is that of a topic of another name. ``applied``: offset of its last event, -1."""
    def _unassign(self, partition: TopicIdPartition) -> None: ...
    def _settle(self, pages: int) -> int:
        """Return the number of huge pages that were asked for, with the GIL released."""
    def _assigned(self) -> list[tuple[bytes, int, str, int, int]]:
        """(topic id, partition, topic, metadata partition or -1, offset of the last event or -1), in no order."""
    def _add(self, metadata: RemoteLogSegmentMetadata) -> tuple[bool, int] | None:
        """None: not assigned. Else (whether it was applied, the state that was there or -1)."""
    def _change(self, update: RemoteLogSegmentMetadataUpdate) -> tuple[bool, int] | None: ...
    def _apply_batches(self, place: int, batches: Buffer, all_removals: bool) -> Mapping[str, Any]: ...
    def _apply_values(
        self,
        place: int,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        all_removals: bool,
    ) -> Mapping[str, Any]: ...

SNAPSHOT_HEAD_BYTES: int
#: The largest section, its head included.
SNAPSHOT_SECTION_BYTES_MAX: int
SNAPSHOT_TOPIC: int
SNAPSHOT_REMOVALS: int
SNAPSHOT_PARTITIONS: int
SNAPSHOT_SEGMENTS: int
SNAPSHOT_END: int

def read_snapshot_head(head: Buffer) -> tuple[int, int]:
    """(kind, bytes of the payload) of a section's head; its checksum is not looked at. Raises CorruptIndexError."""

def check_snapshot_section(section: Buffer) -> tuple[int, int, int, int, int, int]:
    """(kind, number, count, more, bytes, CRC-32C) of a whole section. Raises CorruptIndexError: damaged."""

def seal_snapshot_section(section: Buffer, kind: int, number: int, count: int, more: int, size: int) -> None:
    """Write the head of a section, whose payload of a multiple of 8 bytes stands behind it."""

@final
class SnapshotWriter:
    """A table's partitions, by topic id and number, and their segments, as the sections of a snapshot.

    The writer's thread only, at its making and in each call.
    """

    def __init__(self, table: NativeSegmentTable) -> None: ...
    @property
    def partitions(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def as_kafka(self) -> bool:
        """Whether the table answers as Kafka's cache does, and its marks say so."""
    def next_section(self, number: int, out: Buffer) -> int:
        """One more section, into SNAPSHOT_SECTION_BYTES_MAX bytes; its size, 0 at the end. The GIL is released.

        Raises:
            RuntimeError: the table was changed since this was made. ValueError: a topic's name is above 64 KiB.
        """

@final
class SnapshotLoader:
    """A reader of a snapshot's sections into an empty table, which no other code uses meanwhile.

    Args:
        table: After an error it holds a part of the snapshot, and is only good to be closed.
        segments: The number of segments; the file has been found large enough for them.
    """

    def __init__(self, table: NativeSegmentTable, segments: int) -> None: ...
    def load(self, section: Buffer) -> tuple[int, int, int, int, int, int]:
        """Check and take a section of partitions or of segments; as check_snapshot_section. The GIL is released.

        Raises:
            CorruptIndexError: damaged, or no table can hold it. ValueError: a section failed before.
        """
    def end(self) -> None:
        """Raises CorruptIndexError where segments are missing."""
