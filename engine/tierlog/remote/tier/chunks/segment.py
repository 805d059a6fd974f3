"""One segment of a tier: where its parts lie and how they were transformed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from tierlog._native.chunks import ChunkIndex
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Bytes of an object that hold one part of a segment.

    Args:
        key: Of the object, relative to the tier's store.
        position: First byte in the object.
        size_bytes: As stored (transformed), as the segment's own description says.
        object_size_bytes: Of the whole object as the listing said; -1 if the listing did not have it.
        crc32c: Of the stored bytes, as the segment's own description says; None if it says none.
    """

    key: str
    position: int
    size_bytes: int
    object_size_bytes: int = -1
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentEncryption:
    """How the parts of a segment were encrypted; no secret: the data key is wrapped."""

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A whole segment as a listing of its tier found it. Immutable, picklable, small, free of secrets.

    Args:
        metadata: As far as the layout knows it. ``segment_size_in_bytes`` are the log bytes that count: of an active
            segment those up to its last valid batch. Ids that a layout does not have are ZERO_UUID (topic) and
            made of the log's key (segment); ``broker_id`` -1; ``event_timestamp_ms`` = last modified.
        layout: Name of the layout, as ``open_tier`` takes it.
        name: For messages: the key of the log object, its prefix masked where ``key.prefix.mask`` asks for it.
        log: The log's object.
        parts: The other parts that are known to exist, also empty ones (size 0).
        chunk_index: Where the chunks lie (of ``narrowed``, only those of its range); None if the log is stored as it
            is, without a chunk index.
        compression: The chunks are zstd frames.
        encryption: None if the parts are stored in the clear.
        last_modified_ms: Of the log object (of what marks the segment whole, where the layout has that).
        closed: False for the active segment of a log directory: it may grow, and its tail may be torn.
    """

    metadata: RemoteLogSegmentMetadata
    layout: str
    name: str
    log: StoredPart
    parts: tuple[tuple[IndexType, StoredPart], ...]
    chunk_index: ChunkIndex | None = field(default=None, compare=False)
    compression: bool = False
    encryption: SegmentEncryption | None = None
    last_modified_ms: int = 0
    closed: bool = True

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.metadata.topic_id_partition

    @property
    def start_offset(self) -> int:
        return self.metadata.start_offset

    @property
    def end_offset(self) -> int:
        """Last offset of the segment, inclusive."""
        return self.metadata.end_offset

    @property
    def size_bytes(self) -> int:
        """Size of the untransformed log, as far as it counts."""
        return self.metadata.segment_size_in_bytes

    @property
    def transformed(self) -> bool:
        """Whether the stored bytes differ from the broker's."""
        return self.compression or self.encryption is not None

    def narrowed(self, start_position: int, end_position_exclusive: int) -> Self:
        """The same segment for a reader of one range of its log: it knows where the chunks of that range lie, and no
        others, so that its pickle does not grow with the segment.
        """
        if self.chunk_index is None or start_position == end_position_exclusive:
            return self
        return replace(self, chunk_index=self.chunk_index.part(start_position, end_position_exclusive))

    def part(self, index_type: IndexType) -> StoredPart | None:
        """Where a part lies; None if it is known to be absent."""
        for kind, part in self.parts:
            if kind is index_type:
                return part
        return None
