"""One look at a tier's keys: its partitions, each with its listed objects.

A listing takes few bytes an object (a name and two numbers), since it stays in memory for as long as the server runs;
segments are made of it when a reader asks for a partition. Parts that a listing has in common with the one before are
shared, so that finding changes costs a comparison of bytes, and no key is parsed twice.
"""

from __future__ import annotations

import itertools
import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import ObjectNotFoundError, StoreError, TierlogError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.known_rows import KnownRows
from tierlog.remote.metadata.listed_spans import SegmentOrigin
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import EVERYTHING, Candidate, ListedSegment, SegmentFilter
from tierlog.remote.tier.layouts.plain_segments import plain_numbers, plain_segment
from tierlog.remote.tier.objects.object_keys import LOG, PARSERS
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.protocol.optional_reads import OptionalReads, find_resumed_listings
from tierlog.runtime.stores.reading.folder_listing import iter_by_folder
from tierlog.runtime.stores.wrappers.passing_store import MASK
from tierlog.scan.history import SINGLE_LOG_LAYOUTS

_log = logging.getLogger(__name__)

#: Between names. No layout's name has it: a key that does is foreign.
SEPARATOR: Final = "\0"
#: Of each object: size in bytes, last modified in ms.
NUMBERS: Final = 2
#: Names that are joined at once while a folder is listed.
_JOINED_NAMES: Final = 8192
#: How often everything is listed: each n-th time.
WHOLE_LISTING_EACH: Final = 10
#: Objects of a folder from which on it is cheaper to begin behind those that are known, by one more request, than to
#: list them all, a thousand a request; and how many of the last ones are listed again, which costs nothing.
LARGE_FOLDER: Final = 2500
RELISTED_OBJECTS: Final = 500
#: Folders of a key below that of its partition, and the file's own name; of other layouts 1.
_NAMES_BELOW: Final = {"kafka": 2}


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """The objects of one partition's folder, packed.

    Args:
        path: What their keys begin with: "" or ending with "/".
        names: What follows it in each key, joined by SEPARATOR, in the order of the listing.
        numbers: int64[objects × NUMBERS], little-endian.
    """

    path: str
    names: str
    numbers: bytes = field(repr=False)

    @property
    def count(self) -> int:
        return len(self.numbers) // (8 * NUMBERS)

    @property
    def newest_ms(self) -> int:
        """Time at which the youngest object was written; -1 without objects."""
        return max(memoryview(self.numbers).cast("q")[1::NUMBERS], default=-1)

    def objects(self) -> Iterator[ObjectInfo]:
        """Yield the objects as they were listed, without their etags."""
        numbers = memoryview(self.numbers).cast("q")
        names = self.names.split(SEPARATOR) if len(numbers) else ()
        for name, size_bytes, modified_ms in zip(names, numbers[::NUMBERS], numbers[1::NUMBERS], strict=True):
            yield ObjectInfo(self.path + name, size_bytes, modified_ms)

    def first(self, count: int) -> list[ObjectInfo]:
        """Return the first objects; all but the last ones if ``count`` is negative."""
        return list(itertools.islice(self.objects(), count if count >= 0 else max(self.count + count, 0)))

    def joined(self, more: ListedFolder) -> ListedFolder:
        """Return the folder with more objects, where a store lists in no order."""
        return ListedFolder(self.path, f"{self.names}{SEPARATOR}{more.names}", self.numbers + more.numbers)


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition that has whole segments, as the keys or the metadata show it. Equal where nothing has changed.

    Args:
        folders: Where its objects lie; several where several prefixes lead to the same partition; none of metadata.
        newest_ms: When the youngest of its objects, or the last of its segments, was written.
        segments: How many whole ones there are.
        digest: Of the ids of the segments that metadata has.
    """

    topic_id_partition: TopicIdPartition
    folders: tuple[ListedFolder, ...]
    newest_ms: int
    segments: int
    digest: bytes = b""

    def objects(self) -> Iterator[ObjectInfo]:
        """Yield all that was listed of it."""
        for folder in self.folders:
            yield from folder.objects()


@dataclass(frozen=True, slots=True)
class TierListing:
    """The partitions and folders that one listing found. Immutable; any number of threads.

    Args:
        partitions: Those that have whole segments; a folder in which nothing is whole is one of none.
        folders: All folders of partitions, by path; none of metadata.
        foreign_objects: Keys that are none of the layout.
    """

    partitions: Mapping[TopicIdPartition, ListedPartition]
    folders: Mapping[str, ListedPartition | ListedFolder]
    foreign_objects: int = 0


class TierKeys:
    """Listings of partitions by a tier's own keys. Most list new keys alone; each tenth lists all.

    Args:
        tier: Stays the caller's.
        wanted: Folders of other topics are not listed.

    Thread safety: any number of threads; one listing at a time.

    Raises (all methods): StoreError and its kinds.
    """

    def __init__(self, tier: Tier, wanted: SegmentFilter = EVERYTHING) -> None:
        self.tier = tier
        self._wanted = wanted
        self._listings = 0

    def list_partitions(self, before: TierListing | None) -> TierListing:
        """List all partitions; an unchanged one is the same object."""
        is_whole = before is None or self._listings % WHOLE_LISTING_EACH == 0
        found = list_tier(self.tier, before, is_whole=is_whole, wanted=self._wanted)
        self._listings += 1
        return found

    def find_candidates(self, listed: ListedPartition) -> list[Candidate]:
        """Find the segments of a partition, by start offset."""
        found = self.tier.find_candidates(objects=listed.objects())
        return [candidate for candidate in found if candidate.topic_id_partition == listed.topic_id_partition]

    def looks(self, candidates: Sequence[Candidate]) -> list[StoredSegment | TierlogError | None]:
        """Look at what is needed of segments of one partition: their metadata, without what describes them unless that
        is a few numbers. In order the segment of each, None if it is gone, or its error; faults of descriptions come
        when they are read.
        """
        return _without_descriptions(list(self.tier.iter_looks(candidates)), self.tier)

    @property
    def has_late_segments(self) -> bool:
        """Whether a segment may be listed before one in front of it: in a bucket that others fill, not in a broker's
        own folder.
        """
        return self.tier.layout not in SINGLE_LOG_LAYOUTS

    def relist(self, listed: ListedPartition) -> ListedPartition | None:
        """Return the same partition as it is now; None if it is gone; ``listed`` itself if nothing newer
        can be known.
        """
        return relist_partition(self.tier, listed)


def list_tier(
    tier: Tier, previous: TierListing | None = None, *, is_whole: bool = True, wanted: SegmentFilter = EVERYTHING
) -> TierListing:
    """List a tier.

    Args:
        tier: Stays the caller's.
        previous: Its unchanged parts are reused: the same Python objects.
        is_whole: False passes over objects that ``previous`` has, where that saves requests: deletions and late copies
            are not seen then.
        wanted: Folders of other topics are not listed, where the layout has some.

    Raises:
        StoreError and its kinds.

    Cost: the listing; of a log directory also one small file for each partition that changed.
    """
    known = previous.folders if previous else {}
    reader = _FolderReader(tier, wanted)
    resumed = None if is_whole or reader.names_below > 1 else find_resumed_listings(tier.store)
    if resumed is not None:
        try:
            return _list_resumed(tier, reader, known, resumed)
        except _UnorderedListingError:
            _log.info("%s: the store does not list in the order of keys: all of it is listed", tier.describe())
            reader = _FolderReader(tier, wanted)
    return _listed(tier, reader, known)


def _listed(tier: Tier, reader: _FolderReader, known: Mapping[str, ListedPartition | ListedFolder]) -> TierListing:
    folders: dict[str, ListedPartition | ListedFolder] = {}
    for listed in reader:
        before = folders.get(listed.path)
        whole = listed if before is None else _only_folder(before).joined(listed)
        folders[whole.path] = _described(tier, whole, known.get(whole.path))
    return TierListing(group_by_partition(folders.values()), folders, reader.foreign_objects)


class _UnorderedListingError(StoreError):
    """Keys came in another order than they were asked for in."""


def _list_resumed(
    tier: Tier,
    reader: _FolderReader,
    known: Mapping[str, ListedPartition | ListedFolder],
    resumed: OptionalReads,
) -> TierListing:
    """List behind the known objects of each large folder.

    A folder's last objects are listed again: a copy that was under way when they were listed is whole by now.
    """
    large = {path: _only_folder(each) for path, each in known.items() if _only_folder(each).count >= LARGE_FOLDER}

    def objects_below(prefix: str) -> Iterator[ObjectInfo]:
        passed: set[str] = set()
        listing, last = tier.store.iter_objects(prefix), ""
        while True:
            for info in listing:
                if info.key <= last:
                    raise _UnorderedListingError(f"{info.key} is listed behind {last}")
                last = info.key
                path = reader.path_of(last)
                if path in large and path not in passed:
                    passed.add(path)
                    # Objects in front of the first key are gone: so retention is seen at once.
                    known_objects = [each for each in large[path].first(-RELISTED_OBJECTS) if each.key >= last]
                    if known_objects:
                        yield from known_objects
                        last = known_objects[-1].key
                        listing = resumed.iter_objects_behind(last, prefix)
                        break
                yield info
            else:
                return

    reader.objects = itertools.chain.from_iterable(map(objects_below, reader.prefixes()))
    return _listed(tier, reader, known)


def _without_descriptions(
    found: Sequence[ListedSegment | StoredSegment | TierlogError | None], tier: Tier
) -> list[StoredSegment | TierlogError | None]:
    """Return the segments of one partition, by start offset, that ``Tier.iter_looks`` found."""
    listed = [each for each in found if isinstance(each, ListedSegment)]
    rows = KnownRows.of_listed(listed) if listed else None
    segments: list[StoredSegment | TierlogError | None] = []
    number = 0
    for each in found:
        if not isinstance(each, ListedSegment):
            segments.append(each)
            continue
        assert rows is not None
        metadata, numbers = rows.metadata(number), plain_numbers(each)
        number += 1
        modified_ms = each.last_modified_ms
        if numbers[0]:
            shown = MASK if tier.scope.mask else each.prefix
            segments.append(
                plain_segment(metadata, numbers, prefix=each.prefix, shown=shown, last_modified_ms=modified_ms)
            )
        else:
            origin = SegmentOrigin(each.topic_id_partition, tier.layout, each.prefix, tier.scope.mask)
            segments.append(origin.segment(metadata, last_modified_ms=modified_ms, footer_size=each.footer_size))
    return segments


def relist_partition(tier: Tier, listed: ListedPartition) -> ListedPartition | None:
    """Return the same partition as its folders are listed now; None if no whole segment is left. Raises: as
    ``list_tier``.
    """
    found: list[ListedPartition | ListedFolder] = []
    for folder in listed.folders:
        now: ListedFolder | None = None
        for each in _FolderReader(tier, prefixes=(folder.path,)):
            if each.path == folder.path:
                now = each if now is None else now.joined(each)
        if now is not None:
            found.append(_described(tier, now, listed if len(listed.folders) == 1 else None))
    return group_by_partition(found).get(listed.topic_id_partition)


def _only_folder(described: ListedPartition | ListedFolder) -> ListedFolder:
    return described if isinstance(described, ListedFolder) else described.folders[0]


def _described(
    tier: Tier, listed: ListedFolder, known: ListedPartition | ListedFolder | None
) -> ListedPartition | ListedFolder:
    """Describe a folder's content: the known object if nothing changed."""
    if known is not None and _only_folder(known) == listed:
        return known
    try:
        whole = [found for found in tier.find_candidates(objects=listed.objects()) if LOG in found.objects]
    except ObjectNotFoundError:  # the one file
        return listed
    except TierlogError as error:  # of a log directory: the file that has its topic id
        _log.warning("%s: the partition cannot be found out, and is left as it was: %s", listed.path, error)
        return known or listed
    if not whole:
        return listed
    return ListedPartition(whole[0].topic_id_partition, (listed,), listed.newest_ms, len(whole))


def group_by_partition(described: Iterable[ListedPartition | ListedFolder]) -> dict[TopicIdPartition, ListedPartition]:
    """Return the partitions of some folders; folders of the same partition add up."""
    found: dict[TopicIdPartition, ListedPartition] = {}
    for each in described:
        if isinstance(each, ListedFolder):
            continue
        known = found.get(each.topic_id_partition)
        found[each.topic_id_partition] = each if known is None else _merged(known, each)
    return found


def _merged(one: ListedPartition, other: ListedPartition) -> ListedPartition:
    return ListedPartition(
        one.topic_id_partition,
        one.folders + other.folders,
        max(one.newest_ms, other.newest_ms),
        one.segments + other.segments,
    )


class _Packer:
    """The packed objects of one folder, as they are listed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._joined: list[str] = []
        self._names: list[str] = []
        self._numbers = array("q")

    def add(self, info: ObjectInfo) -> None:
        name = info.key[len(self._path) :]
        if SEPARATOR in name:
            return
        self._names.append(name)
        self._numbers.extend((info.size_bytes, info.last_modified_ms))
        if len(self._names) >= _JOINED_NAMES:
            self._joined = [SEPARATOR.join([*self._joined, *self._names])]
            self._names.clear()

    def packed(self) -> ListedFolder:
        return ListedFolder(self._path, SEPARATOR.join([*self._joined, *self._names]), self._numbers.tobytes())


class _FolderReader:
    """The folders of partitions of a listing, in its order; what fits no layout is counted and passed over."""

    def __init__(
        self, tier: Tier, wanted: SegmentFilter = EVERYTHING, *, prefixes: tuple[str, ...] | None = None
    ) -> None:
        self._tier = tier
        self._wanted = wanted
        self._prefixes = prefixes
        self.objects: Iterator[ObjectInfo] | None = None
        self.names_below = _NAMES_BELOW.get(tier.layout, 1)
        self._parse = PARSERS.get(tier.layout)
        self.foreign_objects = 0

    def prefixes(self) -> Sequence[str]:
        """The prefixes under which the tier is listed, in the order of keys."""
        if self._prefixes is not None:
            return self._prefixes
        prefixes, beside = self._tier.scope.split(self._tier.store, self._wanted)
        self.foreign_objects += len(beside)
        return prefixes

    def __iter__(self) -> Iterator[ListedFolder]:
        packer, path = _Packer(""), ""
        begun = self._parse is None
        for info in self._iter_listed():
            if self._parse is not None and (not begun or self.path_of(info.key) != path):
                if begun:
                    yield packer.packed()
                begun = self._tier.scope.parse(info.key, self._parse) is not None
                if not begun:
                    self.foreign_objects += 1
                    continue
                path = self.path_of(info.key)
                packer = _Packer(path)
            packer.add(info)
        if begun:
            yield packer.packed()

    def _iter_listed(self) -> Iterator[ObjectInfo]:
        if self.objects is not None:  # a resumed listing
            yield from self.objects
        elif self._parse is None:  # one file, with what lies beside it
            yield from self._tier.store.list_folder().objects
        else:
            yield from iter_by_folder(self._tier.store, self.prefixes(), self._tier.machine)

    def path_of(self, key: str) -> str:
        end = key.rfind("/")
        for _ in range(self.names_below - 1):
            end = key.rfind("/", 0, max(end, 0))
        return key[: end + 1]
