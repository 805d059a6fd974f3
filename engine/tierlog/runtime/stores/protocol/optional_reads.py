"""Ways to read that a store may have beside ObjectStore's methods: ask by the functions here, then call.

A store that only blocks, a third party's for instance, has none of them: a caller that has to go on meanwhile calls it
in a thread of a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

from typing_extensions import Buffer

from tierlog._native.files import ReadyFile
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore

#: The bytes, or the read's error.
Answer = Buffer | BaseException
#: Called once with the answer, on any thread, possibly before the read's beginning returns; must not raise, nor wait.
OnAnswer = Callable[[Answer], None]
#: Ends the read, from any thread: its connection closes, and a CancelledReadError is the answer if none has come yet.
Cancel = Callable[[], None]


class OptionalReads(Protocol):
    """A store that has one of these methods, or several. Any number of threads."""

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        """Begin what ``ObjectStore.fetch_range`` does: returns at once, and raises nothing of the store."""

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Put what ``ObjectStore.fetch_range`` gives into ``out``, as far as it fits; returns how many bytes. A store
        whose objects lie on a disk copies their bytes there and nowhere else.

        Raises: as ``fetch_range``; any byte of ``out`` may have been written.
        """

    def open_ready(self, key: str) -> ReadyFile | None:
        """Open the current file of an object on this machine, for an event loop, which reads bytes that are in memory,
        or sends them to a socket; does not wait. A later object is another file. None where opening would wait, and
        after any fault, which ``ObjectStore.fetch_range`` raises.
        """

    def fetch_small(self, keys: list[str], limits: list[int]) -> Sequence[Buffer | None]:
        """Fetch many small objects from their beginning, each up to its limit of bytes, for less than as many calls
        cost; memory for all limits is held meanwhile. None in place of one after any fault, which
        ``ObjectStore.fetch_range`` raises.
        """

    def iter_objects_behind(self, key: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """Iterate the objects of ``iter_objects`` whose keys are greater than ``key``, ascending; requests for those
        alone.

        Args:
            key: Of an object that was listed. (SeaweedFS takes a folder's name for all that lies in it.)
            prefix: As of ``iter_objects``.

        A server that only looks like one of the kind may list others too, or in another order: the caller checks.

        Raises: as ``iter_objects``.
        """


def find_started_reads(store: ObjectStore) -> OptionalReads | None:
    """Return the store, if it begins the very reads that its ``fetch_range`` does; None for a store that only blocks.

    A class that overrides ``fetch_range`` of another and leaves ``start_fetch_range`` as it was (a wrapper that
    throttles reads, say) only blocks: started reads would bypass it. A wrapper says by ``starts_reads`` whether the
    store inside begins them.
    """
    return cast(OptionalReads, store) if _reads_by(store, "start_fetch_range", "starts_reads") else None


def find_direct_reads(store: ObjectStore) -> OptionalReads | None:
    """Return the store, if it reads into given memory the same bytes as its ``fetch_range``; rules as of
    ``find_started_reads``.

    One around another store says by ``reads_directly`` whether that one does.
    """
    return cast(OptionalReads, store) if _reads_by(store, "fetch_range_into", "reads_directly") else None


def find_ready_reads(store: ObjectStore) -> OptionalReads | None:
    """Return the store, if its ``fetch_range`` reads files that it can open; rules as of ``find_started_reads``.

    None for one around another store: it may wait.
    """
    return cast(OptionalReads, store) if _reads_by(store, "open_ready", "opens_ready") else None


def find_small_reads(store: ObjectStore) -> OptionalReads | None:
    """Return the store, if it fetches many small objects by one call; rules as of ``find_started_reads``.

    None for one around another store, which sees each read.
    """
    return cast(OptionalReads, store) if _reads_by(store, "fetch_small", "fetches_small") else None


def find_resumed_listings(store: ObjectStore) -> OptionalReads | None:
    """Return the store, if it begins listings behind a key; rules as of ``find_started_reads``, for ``iter_objects``.

    One around another store says by ``resumes_listings`` whether that one does.
    """
    found = _says_by(store, "iter_objects", "iter_objects_behind", "resumes_listings")
    return cast(OptionalReads, store) if found else None


def _reads_by(store: ObjectStore, method: str, flag: str) -> bool:
    """Whether the class that says last how the store reads a range says how it does that by ``method`` too.

    ``flag`` is asked where that class has it beside the method.
    """
    return _says_by(store, "fetch_range", method, flag)


def _says_by(store: ObjectStore, plain: str, method: str, flag: str) -> bool:
    """Decide like ``_reads_by``, of the method ``plain`` of the protocol."""
    if plain in getattr(store, "__dict__", ()):
        return False
    for kind in type(store).__mro__:
        if method in vars(kind):
            return flag not in vars(kind) or bool(getattr(store, flag))
        if plain in vars(kind):
            return False
    return False
