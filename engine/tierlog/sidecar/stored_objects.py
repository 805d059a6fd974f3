"""The objects that copies have stored, by their segments: a broker's metrics count them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Final, TypeVar

from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.tier.objects.object_keys import parse_aiven
from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore

Result = TypeVar("Result")

#: Kinds of objects, in the order of the answer to a copy.
KINDS: Final = ("log", "indexes", "rsm-manifest")
#: Segments of copies that failed, whose objects nobody asks for.
_SEGMENTS_MAX: Final = 10_000


class StoredObjects:
    """Sizes of stored objects, from when a store took them until they are asked for. Any number of threads."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._sizes: collections.OrderedDict[RemoteLogSegmentId, dict[str, int]] = collections.OrderedDict()

    def wrap(self, store: ObjectStore) -> ObjectStore:
        """Note what a store takes from now on."""
        return _NotedStore(store, self._note)

    def take(self, segment_id: RemoteLogSegmentId) -> list[int]:
        """Return bytes by KINDS of what was stored of a segment since it was asked last; -1: no such object."""
        with self._lock:
            sizes = self._sizes.pop(segment_id, {})
        return [sizes.get(kind, -1) for kind in KINDS]

    def _note(self, key: str, size_bytes: int) -> None:
        found = parse_aiven(key)
        if found is None or found.segment_id is None:
            return
        segment_id = RemoteLogSegmentId(found.topic_id_partition, found.segment_id)
        with self._lock:
            self._sizes.setdefault(segment_id, {})[found.suffix] = size_bytes
            if len(self._sizes) > _SEGMENTS_MAX:
                self._sizes.popitem(last=False)


class _NotedStore(PassingStore):
    """A store whose stored objects are noted."""

    def __init__(self, store: ObjectStore, note: Callable[[str, int], None]) -> None:
        super().__init__(store)
        self._note = note

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        result = run()
        if isinstance(result, StoredObject):
            self._note(call.key, result.size_bytes)
        return result
