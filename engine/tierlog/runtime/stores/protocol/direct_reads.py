"""Reads into memory of the caller's: a store whose objects lie on a disk copies their bytes there and nowhere else.

Other stores answer with memory of their own, which readers, caches and decryption share. A store of files hands these
out, open, to whoever must not wait for a disk: an event loop, which reads what is in memory, or sends it to a socket.
"""

from __future__ import annotations

from typing import Protocol, cast

from tierlog._native.files import ReadyFile
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.started_reads import reads_by


class DirectReads(Protocol):
    """A store that reads into given memory. Any number of threads."""

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Put what ``ObjectStore.fetch_range`` gives into ``out``, as far as it fits; returns how many bytes.

        Raises: as ``fetch_range``; any byte of ``out`` may have been written.
        """


class ReadyReads(Protocol):
    """A store whose objects are files of this machine. Any number of threads; waits for nothing."""

    def open_ready(self, key: str) -> ReadyFile | None:
        """The file of an object, as it is now: what takes its place later is another file. None where it would be
        waited for, and after any fault, which ``ObjectStore.fetch_range`` tells.
        """


def find_direct_reads(store: ObjectStore) -> DirectReads | None:
    """The store, if it reads into given memory what its ``fetch_range`` reads; rules as of ``find_started_reads``.

    One around another store says by ``reads_directly`` whether that one does.
    """
    return cast(DirectReads, store) if reads_by(store, "fetch_range_into", "reads_directly") else None


def find_ready_reads(store: ObjectStore) -> ReadyReads | None:
    """The store, if its ``fetch_range`` reads files that it hands out; rules as of ``find_started_reads``.

    None for one around another store: it may wait.
    """
    return cast(ReadyReads, store) if reads_by(store, "open_ready", "opens_ready") else None
