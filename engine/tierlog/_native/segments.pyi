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
    """What ``tierlog.remote.metadata.table.segment_table.SegmentTable`` is made of; nobody else uses it.

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
    def _assigned(self) -> list[tuple[bytes, int, str, int]]:
        """(topic id, partition, topic, offset of the last event or -1), in no order."""
    def _add(self, metadata: RemoteLogSegmentMetadata) -> tuple[bool, int] | None:
        """None: not assigned. Else (whether it was applied, the state that was there or -1)."""
    def _change(self, update: RemoteLogSegmentMetadataUpdate) -> tuple[bool, int] | None: ...
    def _apply_batches(self, place: int, batches: Buffer) -> Mapping[str, Any]: ...
    def _apply_values(
        self,
        place: int,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> Mapping[str, Any]: ...
