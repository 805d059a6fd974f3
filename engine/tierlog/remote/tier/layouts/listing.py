"""The part of a listing that may hold wanted segments: by scope, key prefix and topic folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tierlog.remote.tier.layouts import Candidate, SegmentFilter
from tierlog.remote.tier.objects.object_keys import ObjectKey, may_hold_topic
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.wrappers.masked_store import MASK


@dataclass(frozen=True, slots=True)
class Scope:
    """Where in a store the segments are.

    Args:
        folder: Only keys below it ("" or ending with "/") are listed; it is part of what names topic and partition
            where PATH is the folder of one topic or partition.
        key_prefix: ``key.prefix``: taken off before a key is parsed, verbatim, with or without a "/" at its end.
        mask: ``key.prefix.mask``.
    """

    folder: str = ""
    key_prefix: str = ""
    mask: bool = False

    def name(self, key: str, prefix: str) -> str:
        """A key for messages; ``prefix`` is what stands before its topic folder."""
        return f"{MASK}{key[len(prefix) :]}" if self.mask and key.startswith(prefix) else key


class Listing:
    """Objects of a layout's keys below a scope. Thread safety: any number of threads."""

    def __init__(
        self, store: ObjectStore, scope: Scope, parse: Callable[[str], ObjectKey | None], machine: Machine
    ) -> None:
        self.store = store
        self.scope = scope
        self._parse = parse
        self._lock = machine.scheduler.lock()
        self._foreign_objects = 0

    @property
    def foreign_objects(self) -> int:
        """Objects of the last listing that belong to no segment."""
        return self._foreign_objects

    def count_foreign(self, more: int) -> None:
        with self._lock:
            self._foreign_objects += more

    def iter_objects(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[tuple[ObjectKey, ObjectInfo]]:
        """The wanted objects with their parsed keys, without the configured prefix. All others are counted, but of
        ``objects``, which somebody else listed.
        """
        if objects is None:
            with self._lock:
                self._foreign_objects = 0
        foreign = 0
        for info in self._iter_listed(wanted) if objects is None else objects:
            key = self.parse(info.key)
            if key is None:
                foreign += 1
            elif wanted.accepts(key.topic_id_partition):
                yield key, info
        if objects is None:
            self.count_foreign(foreign)

    def parse(self, key: str) -> ObjectKey | None:
        """A key of the store taken apart, without the configured prefix; None for a foreign one."""
        prefix = self.scope.key_prefix
        found = self._parse(key[len(prefix) :])
        return None if found is None or (prefix and found.prefix) else found

    def find_whole(
        self, wanted: SegmentFilter, required: frozenset[str], objects: Iterable[ObjectInfo] | None = None
    ) -> list[Candidate]:
        """Segments that have every required object, by partition, start offset and path; other objects are foreign."""
        found: dict[str, Candidate] = {}
        for key, info in self.iter_objects(wanted, objects):
            known = found.get(key.segment_path)
            if known is None:
                known = Candidate(key.topic_id_partition, key.start_offset, key.segment_path, {})
                found[key.segment_path] = known
            known.objects[key.suffix] = info
        whole = [candidate for candidate in found.values() if candidate.objects.keys() >= required]
        if objects is None:
            self.count_foreign(sum(len(c.objects) for c in found.values()) - sum(len(c.objects) for c in whole))
        return sorted(whole, key=lambda c: (c.topic_id_partition, c.start_offset, c.segment_path))

    def _iter_listed(self, wanted: SegmentFilter) -> Iterator[ObjectInfo]:
        """All objects of the scope but those in the folder of a topic that is not wanted."""
        prefix = self.scope.key_prefix
        if (wanted.topic is None and wanted.topic_pattern is None) or self.scope.folder:
            yield from self.store.iter_objects(self.scope.folder or prefix)
            return
        level = self.store.list_folder(prefix[: prefix.rfind("/") + 1])
        yield from (info for info in level.objects if info.key.startswith(prefix))
        for folder in level.folders:
            if folder.startswith(prefix) and may_hold_topic(folder[len(prefix) :], wanted.accepts_topic):
                yield from self.store.iter_objects(folder)
