"""A store around a store that counts what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tierlog.runtime.stores.protocol.object_store import ObjectStore, views_of
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore, answer_bytes

Result = TypeVar("Result")
#: What a call counts as, of StoreCounts.
_FIELDS: Final = {"LIST": "lists", "HEAD": "heads", "PUT": "puts", "POST": "posts", "DELETE": "deletes"}


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """How many calls were made, and how many bytes they moved.

    Args:
        gets: Reads that were answered with bytes.
        bytes: Bytes that came back.
        puts: Whole objects, and parts of uploads.
        posts: Uploads begun and completed.
        deletes: Objects asked to be removed, and uploads aborted.
        put_bytes: Bytes that were sent and taken.
    """

    gets: int = 0
    bytes: int = 0
    lists: int = 0
    puts: int = 0
    heads: int = 0
    posts: int = 0
    deletes: int = 0
    put_bytes: int = 0


class CountingStore(PassingStore):
    """Passes everything on and counts it. Thread-safe; a listing counts once, however many pages it takes."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._counts = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        return self._counts

    def reset(self) -> StoreCounts:
        """The counts so far, which begin again at zero."""
        with self._lock:
            counts, self._counts = self._counts, StoreCounts()
        return counts

    def add(self, **more: int) -> None:
        """Add to the counts, by names of StoreCounts."""
        with self._lock:
            now = self._counts
            self._counts = replace(now, **{name: getattr(now, name) + count for name, count in more.items()})

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        """See PassingStore."""
        if call.verb == "GET":
            found = run()
            self.add(gets=1, bytes=answer_bytes(found))
            return found
        self.add(**{_FIELDS[call.verb]: call.objects})
        done = run()
        if call.verb == "PUT":
            self.add(put_bytes=sum(len(view) for view in views_of(call.body)))
        return done
