"""Where restored metadata goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata


class RestoreTarget(Protocol):
    """Takes the segments of one restore, in any order; one thread. What was not finished is not to be used."""

    @property
    def known(self) -> int:
        """How many of the segments the target had already: these were not written again."""

    def look(self, segment_id: RemoteLogSegmentId) -> None:
        """Take note of what will be added: called with each before the first is."""

    def check(self, segments: Callable[[], Iterable[tuple[RemoteLogSegmentMetadata, int]]]) -> None:
        """Called between the last ``look`` and the first ``add``.

        Args:
            segments: Gives what ``add`` will be called with, at the cost of reading it all.

        Raises:
            ConfigError: what the target has contradicts what will be added, or would not keep it. StoreError and its
                kinds: the target cannot be asked.
        """

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:
        """Take one segment.

        Args:
            metadata: In state COPY_SEGMENT_FINISHED.
            started_ms: Event time of its COPY_SEGMENT_STARTED.
        """

    def finish(self) -> None:
        """Make what was taken durable and whole."""
