"""A store whose client is replaced while calls go on: by one with other credentials for the same objects."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore


class ReloadedStore(PassingStore):
    """A store that passes on to another one, which may be replaced.

    Calls that have begun go on with the client that they began with. That one is closed with the next replacement, or
    with this store.

    Args:
        store: The first one.
        lock: Guards the replacement.

    Thread safety: any number of threads.
    """

    def __init__(self, store: ObjectStore, lock: Lock) -> None:
        super().__init__(store)
        self._lock = lock
        self._previous: ObjectStore | None = None
        self._counted: dict[str, int] = {}
        self._is_closed = False

    def replace(self, store: ObjectStore) -> None:
        """Pass calls on to another store from now on; it is this store's to close."""
        with self._lock:
            gone, self._previous = self._previous, self._store
            for verb, count in self._previous.requests.items():
                self._counted[verb] = self._counted.get(verb, 0) + count
            self._store = store
            is_closed = self._is_closed
        for each in (gone, store if is_closed else None):
            if each is not None:
                each.close()

    @property
    def requests(self) -> Mapping[str, int]:
        found = dict(self._counted)
        for verb, count in self._store.requests.items():
            found[verb] = found.get(verb, 0) + count
        return found

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            stores, self._previous = (self._previous, self._store), None
        for each in stores:
            if each is not None:
                each.close()
