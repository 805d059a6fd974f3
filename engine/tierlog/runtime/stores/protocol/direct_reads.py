"""Reads into memory of the caller's: a store whose objects lie on a disk copies their bytes there and nowhere else.

Other stores answer with memory of their own, which readers, caches and decryption share. A store that knows which bytes
the system has in memory gives these to whoever must not wait: an event loop.
"""

from __future__ import annotations

from typing import Protocol, cast

from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.started_reads import reads_by


class DirectReads(Protocol):
    """A store that reads into given memory. Any number of threads."""

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Put what ``ObjectStore.fetch_range`` gives into ``out``, as far as it fits; returns how many bytes.

        Raises: as ``fetch_range``; any byte of ``out`` may have been written.
        """


class ReadyReads(Protocol):
    """A store that reads what is in memory. Any number of threads; waits for nothing."""

    def fetch_ready_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Put into ``out`` what ``fetch_range_into`` would, up to the first byte that a disk would be waited for.

        Returns how many bytes: 0 for none, and after any fault, which ``fetch_range_into`` tells.
        """


def find_direct_reads(store: ObjectStore) -> DirectReads | None:
    """The store, if it reads into given memory what its ``fetch_range`` reads; rules as of ``find_started_reads``.

    One around another store says by ``reads_directly`` whether that one does.
    """
    return cast(DirectReads, store) if reads_by(store, "fetch_range_into", "reads_directly") else None


def find_ready_reads(store: ObjectStore) -> ReadyReads | None:
    """The store, if it reads what is in memory of what its ``fetch_range`` reads; rules as of ``find_started_reads``.

    None for one around another store: it may wait.
    """
    return cast(ReadyReads, store) if reads_by(store, "fetch_ready_into", "reads_ready") else None
