"""The interface of every layout, and the listing of those that are listed: by scope, key prefix and topic folder."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import ConfigError
from tierlog.remote.api import ZERO_UUID, RemoteLogSegmentId, TopicIdPartition, Uuid
from tierlog.remote.tier.chunks.stored_segment import FooterPlace, StoredSegment
from tierlog.remote.tier.objects.listed_manifest import ListedManifest
from tierlog.remote.tier.objects.object_keys import ObjectKey, may_hold_topic
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.reading.folder_listing import iter_by_folder
from tierlog.runtime.stores.wrappers.passing_store import MASK


@dataclass(frozen=True, slots=True)
class Scope:
    """The place of the segments in a store.

    Args:
        folder: Only keys below it ("" or ending with "/") are listed; it is part of what names topic and partition
            where PATH is the folder of one topic or partition.
        key_prefix: ``key.prefix``: removed before a key is parsed, verbatim, with or without a "/" at its end.
        mask: ``key.prefix.mask``.
    """

    folder: str = ""
    key_prefix: str = ""
    mask: bool = False

    def name(self, key: str, prefix: str) -> str:
        """Return a key for messages; ``prefix`` is what stands before its topic folder."""
        return f"{MASK}{key[len(prefix) :]}" if self.mask and key.startswith(prefix) else key

    def parse(self, key: str, parse: Callable[[str], ObjectKey | None]) -> ObjectKey | None:
        """Parse a key of the store, without the configured prefix; None for a foreign one."""
        found = parse(key[len(self.key_prefix) :])
        return None if found is None or (self.key_prefix and found.prefix) else found

    def split(self, store: ObjectStore, wanted: SegmentFilter) -> tuple[list[str], list[ObjectInfo]]:
        """Split what is to be listed of a store, so that folders of other topics are not: (prefixes, in the order of
        keys; objects that lie beside these). Raises StoreError and its kinds. Cost: a request where topics are chosen.
        """
        if not wanted.chooses_topics or self.folder:
            return [self.folder or self.key_prefix], []
        prefix = self.key_prefix
        level = store.list_folder(prefix[: prefix.rfind("/") + 1])
        folders = [folder for folder in level.folders if folder.startswith(prefix)]
        held = [folder for folder in folders if may_hold_topic(folder[len(prefix) :], wanted.accepts_topic)]
        return held, [info for info in level.objects if info.key.startswith(prefix)]


@dataclass(frozen=True, slots=True)
class SegmentFilter:
    """The wanted segments; all if empty."""

    topic: str | None = None
    topic_pattern: re.Pattern[str] | None = None
    partitions: frozenset[int] | None = None

    @property
    def chooses_topics(self) -> bool:
        return self.topic is not None or self.topic_pattern is not None

    @classmethod
    def of(
        cls, topic: str | None, topic_pattern: str | re.Pattern[str] | None, partitions: Collection[int] | None
    ) -> SegmentFilter:
        """Make the filter of a caller's arguments. Raises ConfigError for both a topic and a pattern, or a malformed
        pattern.
        """
        if topic is not None and topic_pattern is not None:
            raise ConfigError("give a topic or a topic pattern, not both")
        try:
            pattern = re.compile(topic_pattern) if topic_pattern is not None else None
        except re.error as cause:
            raise ConfigError(f"topic pattern {topic_pattern!r}: {cause}") from cause
        return cls(topic, pattern, None if partitions is None else frozenset(partitions))

    def accepts_topic(self, name: str) -> bool:
        if self.topic is not None:
            return name == self.topic
        return self.topic_pattern is None or self.topic_pattern.fullmatch(name) is not None

    def accepts(self, partition: TopicIdPartition) -> bool:
        if self.partitions is not None and partition.partition not in self.partitions:
            return False
        return self.accepts_topic(partition.topic)


#: The filter of all segments.
EVERYTHING: Final = SegmentFilter()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment as the keys show it: its objects by suffix.

    Args:
        segment_id: ZERO_UUID where the layout has none.
        next_start_offset: Of the next segment in the same folder, where a layout goes by that; else None.
    """

    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_path: str
    objects: dict[str, ObjectInfo]
    segment_id: Uuid = ZERO_UUID
    next_start_offset: int | None = None

    @property
    def remote_log_segment_id(self) -> RemoteLogSegmentId:
        return RemoteLogSegmentId(self.topic_id_partition, self.segment_id)


class ListedSegment(NamedTuple):
    """A segment of which the metadata alone was looked at.

    Attributes:
        prefix: What stands before the path of its objects.
        manifest: What its manifest says.
        last_modified_ms: Of what marks it whole.
        footer_size: As FooterPlace has it; None: it is known to have none.
    """

    topic_id_partition: TopicIdPartition
    prefix: str
    segment_id: Uuid
    manifest: ListedManifest
    last_modified_ms: int
    footer_size: int | None


def footer_place(info: ObjectInfo | None, description: Buffer, *, unlisted: bool = False) -> FooterPlace | None:
    """Return the place of a segment's footer.

    Args:
        info: The object beside the segment, as it was listed; None if it was not.
        description: Content of the object that describes the segment.
        unlisted: Whether there may be one that was not listed.
    """
    if info is None and not unlisted:
        return None
    return FooterPlace(-1 if info is None else info.size_bytes, hashlib.sha256(description).digest())


class Layout(ABC):
    """Thread safety: ``load`` from any number of threads."""

    name: str

    @property
    def foreign_objects(self) -> int:
        """Objects of the last listing that belong to no segment; 0 where nothing is listed."""
        return 0

    @abstractmethod
    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """Find the segments in a listing alone, ordered by topic, partition, start offset, path. Incomplete uploads are
        left out.

        Args:
            wanted: The segments to find.
            objects: Listed objects, in place of a listing of the store; ``foreign_objects`` stays as it is.
        """

    def find_as_listed(self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None) -> Iterator[Candidate]:
        """Find the segments of ``find_candidates``, partition by partition in the order of the listing where the layout
        can; without all of the listing in memory.
        """
        return self.find_candidates(wanted, objects)

    @abstractmethod
    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Fetch what describes it. None if there is nothing to read in it (an empty active segment)."""

    def described_by(self, candidate: Candidate) -> ObjectInfo | None:  # noqa: ARG002 - for overrides
        """Return the listed object that ``load_listed`` looks at; None where it is not one alone."""
        return None

    def load_listed(
        self,
        candidate: Candidate,
        description: Buffer | None = None,  # noqa: ARG002 - for overrides
    ) -> ListedSegment | StoredSegment | None:
        """Look at the metadata alone in what describes it, where that is enough: faults of all else come when it is
        described.

        Args:
            candidate: Of this layout.
            description: The object of ``described_by``, from its beginning up to one byte more than its listed size;
                None: it is fetched.
        """
        return self.load(candidate)


class ListedLayout(Layout):
    """A layout whose segments are found by a listing of the objects below a scope."""

    def __init__(
        self, store: ObjectStore, scope: Scope, parse: Callable[[str], ObjectKey | None], machine: Machine
    ) -> None:
        self._store = store
        self._scope = scope
        self._parse = parse
        self._machine = machine
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
        """Iterate the wanted objects with their parsed keys, without the configured prefix. All others are counted, but
        of ``objects``, which another caller listed.
        """
        if objects is None:
            with self._lock:
                self._foreign_objects = 0
        foreign = 0
        partition: TopicIdPartition | None = None  # the last one that was wanted; neighbours have the same value
        for info in self._iter_listed(wanted) if objects is None else objects:
            key = self._scope.parse(info.key, self._parse)
            if key is None:
                foreign += 1
            elif key.topic_id_partition is partition or wanted.accepts(key.topic_id_partition):
                partition = key.topic_id_partition
                yield key, info
        if objects is None:
            self.count_foreign(foreign)

    def find_whole(
        self, wanted: SegmentFilter, required: frozenset[str], objects: Iterable[ObjectInfo] | None = None
    ) -> list[Candidate]:
        """Find segments that have every required object, by partition, start offset and path; other objects are
        foreign.
        """
        found: dict[str, Candidate] = {}
        for key, info in self.iter_objects(wanted, objects):
            _add(found, key, info)
        whole = _take_whole(found, required)
        self._count_left(found, objects)
        return whole

    def iter_whole(
        self, wanted: SegmentFilter, required: frozenset[str], objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """Iterate the segments of ``find_whole``, partition by partition in the order of the listing.

        Of the listing those objects alone are in memory that belong to a partition under way, or to no whole segment
        so far. Objects that are listed after other partitions' are missing in a segment that was whole without them.
        """
        found: dict[str, Candidate] = {}
        partition: TopicIdPartition | None = None
        for key, info in self.iter_objects(wanted, objects):
            if key.topic_id_partition is not partition and key.topic_id_partition != partition:
                yield from _take_whole(found, required)
                partition = key.topic_id_partition
            _add(found, key, info)
        yield from _take_whole(found, required)
        self._count_left(found, objects)

    def _count_left(self, found: Mapping[str, Candidate], objects: Iterable[ObjectInfo] | None) -> None:
        if objects is None:
            self.count_foreign(sum(len(candidate.objects) for candidate in found.values()))

    def _iter_listed(self, wanted: SegmentFilter) -> Iterator[ObjectInfo]:
        """Iterate all objects of the scope but those in the folder of a topic that is not wanted."""
        prefixes, beside = self._scope.split(self._store, wanted)
        yield from beside
        yield from iter_by_folder(self._store, prefixes, self._machine)


def _add(found: dict[str, Candidate], key: ObjectKey, info: ObjectInfo) -> None:
    known = found.get(key.segment_path)
    if known is None:
        known = Candidate(key.topic_id_partition, key.start_offset, key.segment_path, {}, key.segment_id or ZERO_UUID)
        found[key.segment_path] = known
    known.objects[key.suffix] = info


def _order(candidate: Candidate) -> tuple[TopicIdPartition, int, str]:
    return candidate.topic_id_partition, candidate.start_offset, candidate.segment_path


def _take_whole(found: dict[str, Candidate], required: frozenset[str]) -> list[Candidate]:
    """Take the candidates out that have every required object, by partition, start offset and path."""
    whole = sorted((each for each in found.values() if each.objects.keys() >= required), key=_order)
    for candidate in whole:
        del found[candidate.segment_path]
    return whole
