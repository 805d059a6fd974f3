"""Reads into memory of the reader's own: a store whose objects lie on a disk copies them there at once.

Other stores answer with memory of theirs, which is what readers, caches and decryption share.
"""

from __future__ import annotations

from typing import Protocol, cast

from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.started_reads import reads_by


class DirectReads(Protocol):
    """A store that reads into given memory. Any number of threads."""

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """What ``ObjectStore.fetch_range`` gives, in ``out``, as much as that takes; the bytes.

        Raises: as ``fetch_range``; any byte of ``out`` may have been written.
        """


def find_direct_reads(store: ObjectStore) -> DirectReads | None:
    """The store, if it does so what its ``fetch_range`` does; see ``find_started_reads`` for what overrides that.

    One around another store says by ``reads_directly`` whether that one does.
    """
    is_one = reads_by(store, "fetch_range_into") and getattr(store, "reads_directly", True)
    return cast(DirectReads, store) if is_one else None
