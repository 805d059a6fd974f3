"""How a bucket is served: which topics of it, how often it is listed, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Memory of resolved histories: those of a hundred thousand segments.
HISTORIES_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """How a bucket is served.

    Args:
        topics: As ServedTopics takes them.
        refresh_seconds: Pause between two listings.
        refresh_deadline_seconds: After which a listing is given up.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.
        state_file: Where the last listing is kept, so that the next start need not wait for one; None for nowhere. Of
            no effect with metadata, which lists nothing.
        segments_ahead_max: Segments that are described before anybody asks for their partitions, at most.
        histories_bytes_max: Memory of the histories that are at hand; -1 for no limit.
    """

    topics: tuple[str, ...] = ()
    refresh_seconds: float = 60.0
    refresh_deadline_seconds: float = 600.0
    log_start_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    state_file: str | None = None
    segments_ahead_max: int = 20_000
    histories_bytes_max: int = HISTORIES_BYTES
