"""Where restored metadata goes."""

from __future__ import annotations

from typing import Protocol

from tierlog.upkeep.restore.bucket_metadata import BucketMetadata, RestoredSegment


class RestoreTarget(Protocol):
    """Takes the segments of one restore, in any order; one thread. What was not finished is not to be used."""

    def survey(self, bucket: BucketMetadata) -> tuple[int, str]:
        """See ``BucketMetadata.survey``; called before anything is written.

        Raises:
            ConfigError: the target contradicts the bucket. StoreError and its kinds.
        """

    def add(self, segment: RestoredSegment) -> None:
        """Take one segment."""

    def finish(self) -> None:
        """Make what was taken durable and whole."""
