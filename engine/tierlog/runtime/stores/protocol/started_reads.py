"""Reads of a store that hold no thread: begun by one call, answered by another one from the thread that has the bytes.

A store that can begin a read has ``start_fetch_range`` beside ``fetch_range``. One that only blocks, a third party's
for instance, has not: whoever needs to go on meanwhile calls it in a thread of a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from typing_extensions import Buffer

from tierlog.runtime.stores.protocol.object_store import ObjectStore

#: The bytes, or what the read failed with.
Answer = Buffer | BaseException
#: Called once with the answer, on any thread, possibly before the read's beginning returns; must not raise, nor wait.
OnAnswer = Callable[[Answer], None]
#: Ends the read, from any thread: its connection closes, and a CancelledReadError is the answer if none has come yet.
Cancel = Callable[[], None]


class StartedReads(Protocol):
    """A store that begins reads. Any number of threads."""

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        """Begin what ``ObjectStore.fetch_range`` does; returns at once, and raises nothing of the store."""


def find_started_reads(store: ObjectStore) -> StartedReads | None:
    """The store, if it begins the very reads that its ``fetch_range`` does; None for one that only blocks.

    A class that overrides ``fetch_range`` of another and leaves ``start_fetch_range`` as it was (a wrapper that
    throttles reads, say) is one that blocks: the other way would go around it. One around another store says by
    ``starts_reads`` whether that one begins them.
    """
    return cast(StartedReads, store) if reads_by(store, "start_fetch_range", "starts_reads") else None


def reads_by(store: ObjectStore, method: str, flag: str) -> bool:
    """Whether the class that says last how the store reads a range says how it does that by ``method`` too.

    ``flag`` is asked where that class has it beside the method.
    """
    return says_by(store, "fetch_range", method, flag)


def says_by(store: ObjectStore, plain: str, method: str, flag: str) -> bool:
    """As ``reads_by``, of the method ``plain`` of the protocol."""
    if plain in getattr(store, "__dict__", ()):
        return False
    for kind in type(store).__mro__:
        if method in vars(kind):
            return flag not in vars(kind) or bool(getattr(store, flag))
        if plain in vars(kind):
            return False
    return False
