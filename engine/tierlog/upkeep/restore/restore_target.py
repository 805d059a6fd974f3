"""Where restored metadata goes."""

from __future__ import annotations

from typing import Protocol

from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.upkeep.restore.bucket_metadata import BucketMetadata


class RestoreTarget(Protocol):
    """Takes the segments of one restore, in any order; one thread. What was not finished is not to be used."""

    def survey(self, bucket: BucketMetadata) -> tuple[int, str]:
        """See ``BucketMetadata.survey``; called before anything is written.

        Raises:
            ConfigError: the target contradicts the bucket. StoreError and its kinds.
        """

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:
        """Take one segment.

        Args:
            metadata: In state COPY_SEGMENT_FINISHED.
            started_ms: Event time of its COPY_SEGMENT_STARTED.
        """

    def finish(self) -> None:
        """Make what was taken durable and whole."""
