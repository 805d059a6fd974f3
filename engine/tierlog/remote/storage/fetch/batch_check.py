"""Whether what a reader gets is a run of sound record batches, in order: a check over chunks as they go by.

Chunks of a segment all authenticate under the same key, so that two of them can change places and still be authentic
(docs/formats/objects.md, Encryption of chunks and indexes); of a plain segment nothing authenticates at all. What the
broker put there does tell.
"""

from __future__ import annotations

from tierlog.errors import CorruptObjectError
from tierlog.log.checks.batch_walk import BatchWalk
from tierlog.remote.api import RemoteLogSegmentMetadata


class BatchCheck(BatchWalk):
    """The check of one fetch: raises CorruptObjectError.

    Args:
        metadata: Of the segment: its offsets and its size.
        position: Of the first byte in the log.
        name: Of the object, for messages.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, *, position: int, name: str) -> None:
        super().__init__(
            position=position,
            first_offset=metadata.start_offset,
            last_offset=metadata.end_offset,
            size_bytes=metadata.segment_size_in_bytes,
            name=name,
            kind=CorruptObjectError,
            misplaced_hint=": chunks of another place, or of another segment",
        )
