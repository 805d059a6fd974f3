"""The producer snapshots in a log's folder."""

from __future__ import annotations

from collections.abc import Iterable

from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.runtime.machine import Machine


class ProducerSnapshots:
    """The ``.snapshot`` files of one folder, by the offset in their name.

    Thread safety: one thread changes them, any number ask ``path_at``.
    """

    def __init__(self, machine: Machine, folder: str) -> None:
        """List the folder. Raises StoreError."""
        raise NotImplementedError

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of all snapshots, ascending."""
        raise NotImplementedError

    @property
    def latest_offset(self) -> int | None:
        raise NotImplementedError

    def path_at(self, offset: int) -> str | None:
        """The file of exactly this offset; None if there is none (Kafka fetchSnapshot)."""
        raise NotImplementedError

    def take(self, state: ProducerState, *, fsync: bool = True) -> str | None:
        """Write the state at its ``end_offset``, if anything was appended since the last one; the file's path."""
        raise NotImplementedError

    def write_empty(self, offset: int) -> None:
        """A snapshot without producers (after a clean stop of a version that wrote none)."""
        raise NotImplementedError

    def load_latest(self, state: ProducerState, *, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest sound snapshot at log_start_offset < n <= log_end_offset into a state; corrupt ones are
        deleted, and the next older is tried. Without one the state restarts at ``log_start_offset``.
        """
        raise NotImplementedError

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> None:
        """Delete those that are of no segment, but for the newest if it is at or behind the last base offset."""
        raise NotImplementedError

    def truncate(self, *, log_start_offset: int, log_end_offset: int) -> None:
        """Delete those behind the log's end, and those at or before its start (Kafka truncateAndReload)."""
        raise NotImplementedError

    def remove_before(self, offset: int) -> None:
        """Delete those below an offset."""
        raise NotImplementedError

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the one of an offset to ``.deleted``; its new path, for whoever removes it later."""
        raise NotImplementedError
