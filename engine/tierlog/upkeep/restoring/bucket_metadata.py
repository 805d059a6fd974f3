"""The metadata that a bucket's whole segments had, partition by partition, with the objects that had to be left out.

A segment is whole if its description and every object that the description needs are there, none shorter than it has to
be. A bucket does not show the broker that wrote FINISHED and when (the broker of the description stands
there, -1 where the layout has none, and the time at which the store got the segment's last object), and the deletions
that had begun without having removed anything: such a segment is whole, so that it counts as finished.

Requests of a partition: one listing for each 1,000 objects; one small read a segment for its description (with
``manifest.digest.enabled`` two; in local-tiered, which describes nothing, about five: the checkpoint, the last entries
of two indexes, the last batches); one for the newest segment's leader epochs. Never log bytes but those. Memory: the
objects and segments of the few partitions that are under way: a bucket is walked folder by folder, since a store
promises no order of a listing, and the objects of one partition come together, whatever the store.

Source: Kafka RemoteLogManager.RLMCopyTask#copyLogSegment for what goes into the metadata; docs/disaster-recovery.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    DataLossError,
    EncryptionKeyError,
    ObjectNotFoundError,
    TierlogError,
)
from tierlog.remote.api import (
    ZERO_UUID,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import Candidate
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata
from tierlog.remote.tier.objects.object_keys import FOOTER, LOCAL_TIERED_NEEDED_SUFFIXES, LOG, PARSERS
from tierlog.remote.tier.objects.segment_bounds import UNKNOWN_TIMESTAMP_MS
from tierlog.remote.tier.tier import CONCURRENCY, Tier
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.waiting.threads import OrderedCalls
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.upkeep.copying.segment_source import TopicMap

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, DataLossError, EncryptionKeyError, ObjectNotFoundError)
#: Partitions that are listed, and whose lineage is asked for, ahead of the partition that is waited for.
_PARTITIONS_AHEAD: Final = 8
_LEGAL_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INT32_MAX: Final = 2**31 - 1
#: Layout → the objects without which nothing is a segment.
_NEEDED: Final = {
    "aiven": frozenset(("rsm-manifest",)),
    "kafka": frozenset(("segment.json",)),
    "local-tiered": LOCAL_TIERED_NEEDED_SUFFIXES,
}
#: Layouts whose segments a manager of ours finds by their custom metadata.
_LAYOUTS_WITH_KEYS: Final = frozenset({"aiven", "kafka"})
_ID: Final = r"[A-Za-z0-9_-]{22}"
_BY_TOPIC: Final = re.compile(rf"(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>\d{{1,10}})/")
_BY_PARTITION: Final = re.compile(
    rf"(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<partition>\d{{1,10}})-(?P<topic_id>{_ID})/"
)
#: Layouts of buckets, which a broker's manager reads.
FOLDERS: Final = {"aiven": _BY_TOPIC, "kafka": _BY_TOPIC, "local-tiered": _BY_PARTITION}
#: Folders below each other that are looked into: a key has at most 1,024 bytes, a key.prefix a few levels.
_DEPTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class BucketFolder:
    """One partition's folder.

    Args:
        key: As the store has it, ending with "/".
        lead: What stands before the name of the topic: the key prefix.
        topic_id_partition: The partition, by the name of the folder.
    """

    key: str
    lead: str
    topic_id_partition: TopicIdPartition


class BucketFolders:
    """The folders of partitions of one bucket; each iteration lists anew, lazily.

    Args:
        tier: The bucket; the caller closes it.
        wanted: Whether a partition is.

    Raises:
        ConfigError: the tier is no bucket.

    Cost: one listing request for each folder above those of partitions.
    """

    def __init__(self, tier: Tier, wanted: Callable[[TopicIdPartition], bool]) -> None:
        if tier.layout not in FOLDERS:
            raise ConfigError(f"{tier.describe()}: metadata is restored from a bucket")
        self._store = tier.store
        self._pattern = FOLDERS[tier.layout]
        self._scope = tier.scope
        self._wanted = wanted

    def __iter__(self) -> Iterator[BucketFolder]:
        """Depth first. Raises StoreError and its kinds."""
        prefix = self._scope.key_prefix
        start = self._scope.folder or prefix[: prefix.rfind("/") + 1]
        found = self._read(start)
        if found is not None:
            if self._wanted(found.topic_id_partition):
                yield found
            return
        yield from self._below(start, _DEPTH_MAX)

    def _below(self, folder: str, depth: int) -> Iterator[BucketFolder]:
        prefix = self._scope.key_prefix
        for child in self._store.list_folder(folder).folders:
            if not child.startswith(prefix[: len(child)]):
                continue
            found = self._read(child)
            if found is None:
                if depth:
                    yield from self._below(child, depth - 1)
            elif self._wanted(found.topic_id_partition):
                yield found

    def _read(self, folder: str) -> BucketFolder | None:
        prefix = self._scope.key_prefix
        if not folder.startswith(prefix):
            return None
        matched = self._pattern.fullmatch(folder[len(prefix) :])
        if matched is None or (prefix and matched["lead"]) or int(matched["partition"]) > _INT32_MAX:
            return None
        topic_id = Uuid.from_text(matched["topic_id"])
        partition = TopicIdPartition(topic_id, matched["topic"], int(matched["partition"]))
        return BucketFolder(folder, prefix or matched["lead"], partition)

    def of_topic_id(self, folder: BucketFolder, topic_id: Uuid) -> BucketFolder:
        """Return the folder of the same partition under another topic id, whether it exists or not."""
        was = folder.topic_id_partition
        own = folder.key[len(folder.lead) :].replace(f"-{was.topic_id}/", f"-{topic_id}/")
        return BucketFolder(folder.lead + own, folder.lead, TopicIdPartition(topic_id, was.topic, was.partition))


@dataclass(frozen=True, slots=True)
class RestoredSegment:
    """One whole segment.

    Args:
        stored: The segment in the bucket, without its chunk index.
        metadata: The metadata that is registered: in state COPY_SEGMENT_FINISHED, under the new topic id where it is
            mapped.
        started_ms: Event time of its COPY_SEGMENT_STARTED.
        stored_bytes: Of its objects.
    """

    stored: StoredSegment
    metadata: RemoteLogSegmentMetadata
    started_ms: int
    stored_bytes: int

    @property
    def moved(self) -> bool:
        """Whether its objects lie under another topic id than its metadata has."""
        return self.stored.topic_id_partition.topic_id != self.metadata.topic_id_partition.topic_id


@dataclass(frozen=True, slots=True)
class LeftOutSegment:
    """Objects that are not registered.

    Args:
        name: Their key without suffix, for messages.
        partition: By the folder's name.
        reason: The fault.
    """

    name: str
    partition: TopicIdPartition
    segment_id: Uuid | None
    start_offset: int
    reason: str


_Outcome = RestoredSegment | LeftOutSegment


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """One partition, as a bucket has it.

    Args:
        topic_id_partition: As it is registered.
        segments: By start offset, dead branches and duplicates among them.
        left_out: By name.
        history: What readers will see; None without a segment.
        newest_ms: When the newest object was written; -1 without one.
        newest: The key of that.
    """

    topic_id_partition: TopicIdPartition
    segments: tuple[RestoredSegment, ...]
    left_out: tuple[LeftOutSegment, ...]
    history: PartitionHistory | None
    newest_ms: int
    newest: str


@dataclass(slots=True)
class _Listing:
    """The objects of one partition, by segment."""

    folder: BucketFolder
    partition: TopicIdPartition
    candidates: list[tuple[Candidate, BucketFolder]] = field(default_factory=list)
    left_out: list[LeftOutSegment] = field(default_factory=list)
    newest_ms: int = -1
    newest: str = ""
    elsewhere: bool = False


class BucketMetadata(Closeable):
    """The metadata of one bucket. A context manager: it has threads of its own.

    Args:
        tier: The bucket; the caller closes it.
        config: Of the storage manager that wrote it: which custom metadata it gave to its broker.
        wanted: Whether a partition is; None for all.
        topics: Topic ids that are registered as others.

    Raises:
        ConfigError: the tier is no bucket.
    """

    def __init__(
        self,
        tier: Tier,
        config: StorageConfig,
        *,
        wanted: Callable[[TopicIdPartition], bool] | None = None,
        topics: TopicMap | None = None,
    ) -> None:
        self._tier = tier
        self._store = tier.store
        self._config = config
        self._topics = topics or TopicMap()
        self._folders = BucketFolders(tier, wanted or (lambda _: True))
        self._parse = PARSERS[tier.layout]
        self._needed = _NEEDED[tier.layout]
        self._calls = OrderedCalls(CONCURRENCY, tier.machine, "the tier")
        self._remote = not self._store.is_local
        self.found_old_ids: set[Uuid] = set()

    def iter_partitions(self) -> Iterator[RestoredPartition]:
        """Iterate the partitions, each when all of it is known, in the order of their folders.

        Raises:
            StoreError and its kinds: the store does not answer; nothing can be concluded about objects that were not
                read.
        """
        with ExitStack() as stack:
            listings = stack.enter_context(closing(self._ahead(self._list, self._folders, _PARTITIONS_AHEAD)))
            wanted = ((listing, at) for listing in listings for at in (*listing.candidates, None))
            loads = stack.enter_context(closing(self._ahead(self._load, wanted, 2 * CONCURRENCY)))
            grouped = _by_listing(loads)
            yield from stack.enter_context(closing(self._ahead(self._resolve, grouped, _PARTITIONS_AHEAD)))

    def survey(self, on_segment: Callable[[RemoteLogSegmentId], None] = lambda _: None) -> tuple[int, str]:
        """Return the time at which the newest object was written, or the newest upload begun (ms since 1970; -1 without
        any), and its key.

        Args:
            on_segment: Called with the id, as it would be registered, of everything that may be a segment.

        Raises:
            StoreError and its kinds.

        Cost: one listing of everything.
        """
        newest = (-1, "")
        with closing(self._ahead(self._list, self._folders, _PARTITIONS_AHEAD)) as listings:
            for listing in listings:
                newest = max(newest, (listing.newest_ms, listing.newest))
                for candidate, _ in listing.candidates:
                    on_segment(RemoteLogSegmentId(listing.partition, candidate.segment_id))
        scope = self._tier.scope
        for upload in self._store.iter_uploads(scope.folder or scope.key_prefix):
            newest = max(newest, (upload.started_ms, self._name(upload.key)))
        return newest

    def _ahead(self, function: Callable[[_Item], _Result], items: Iterable[_Item], ahead: int) -> Generator[_Result]:
        return self._calls.iter_ahead(function, items, ahead=ahead if self._remote else 0)

    def _name(self, key: str) -> str:
        return self._tier.scope.name(key, self._tier.scope.key_prefix)

    def _list(self, folder: BucketFolder) -> _Listing:
        was = folder.topic_id_partition
        listing = _Listing(folder, self._topics.new(was))
        if was.topic_id in self._topics.new_ids:
            self.found_old_ids.add(was.topic_id)
            self._take(listing, self._folders.of_topic_id(folder, listing.partition.topic_id))
        elif (old := self._topics.old_ids.get(was.topic_id)) is not None:
            # The folder of the old id, if there is one, takes this one's segments with its own.
            beside = self._folders.of_topic_id(folder, old)
            listing.elsewhere = next(iter(self._store.iter_objects(beside.key)), None) is not None
            if listing.elsewhere:
                return listing
        self._take(listing, folder)
        return listing

    def _take(self, listing: _Listing, folder: BucketFolder) -> None:
        """Add the segments of a folder that the listing does not have yet."""
        known = {candidate.segment_id for candidate, _ in listing.candidates}
        ids: dict[str, Uuid] = {}
        objects: dict[str, dict[str, ObjectInfo]] = {}
        starts: dict[str, int] = {}
        prefix = self._tier.scope.key_prefix
        for info in self._store.iter_objects(folder.key):
            key = self._parse(info.key[len(prefix) :])
            if key is None or key.topic_id_partition != folder.topic_id_partition:
                continue
            objects.setdefault(key.segment_path, {})[key.suffix] = info
            ids[key.segment_path] = key.segment_id or ZERO_UUID
            if self._tier.layout != "kafka" or key.suffix == LOG:
                starts[key.segment_path] = key.start_offset
            newer = (info.last_modified_ms, info.key) > (listing.newest_ms, listing.newest)
            if newer and key.suffix != FOOTER:  # which no broker needs to write
                listing.newest_ms, listing.newest = info.last_modified_ms, self._name(info.key)
        for path in sorted(objects, key=lambda path: (starts.get(path, -1), path)):
            if ids[path] in known:
                continue
            candidate = Candidate(folder.topic_id_partition, starts.get(path, -1), path, objects[path], ids[path])
            lacking = sorted(self._needed - objects[path].keys())
            if lacking:
                text = f"lacks {', '.join(lacking)}: a copy that never ended, or half a deletion"
                listing.left_out.append(self._left_out(candidate, text))
            elif _LEGAL_TOPIC.fullmatch(folder.topic_id_partition.topic) is None:
                listing.left_out.append(self._left_out(candidate, "its topic's name is not a legal one"))
            else:
                listing.candidates.append((candidate, folder))

    def _left_out(self, candidate: Candidate, reason: str) -> LeftOutSegment:
        name = self._name(self._tier.scope.key_prefix + candidate.segment_path)
        return LeftOutSegment(name, candidate.topic_id_partition, candidate.segment_id, candidate.start_offset, reason)

    def _load(self, wanted: tuple[_Listing, tuple[Candidate, BucketFolder] | None]) -> tuple[_Listing, _Outcome | None]:
        listing, at = wanted
        if at is None:
            return listing, None
        candidate, folder = at
        try:
            stored = self._tier.load(candidate)
            if stored is None:
                return listing, self._left_out(candidate, "gone since it was listed")
            _require_whole(stored)
            return listing, self._restored(stored, candidate, listing.partition, folder)
        except _OF_ONE_SEGMENT as error:
            return listing, self._left_out(candidate, str(error))

    def _restored(
        self, stored: StoredSegment, candidate: Candidate, partition: TopicIdPartition, folder: BucketFolder
    ) -> RestoredSegment:
        stored_bytes = sum(info.size_bytes for info in candidate.objects.values())
        found = stored.metadata
        transactions = stored.part(IndexType.TRANSACTION)
        metadata = replace(
            found,
            remote_log_segment_id=RemoteLogSegmentId(partition, found.remote_log_segment_id.id),
            event_timestamp_ms=max(found.event_timestamp_ms, stored.last_modified_ms),
            custom_metadata=self._custom_metadata(
                candidate, folder, stored_bytes, moved=partition != found.topic_id_partition
            ),
            txn_idx_empty=transactions is None or transactions.size_bytes == 0,
        )
        started_ms = found.event_timestamp_ms
        return RestoredSegment(replace(stored, chunk_index=None), metadata, started_ms, stored_bytes)

    def _custom_metadata(
        self, candidate: Candidate, folder: BucketFolder, stored_bytes: int, *, moved: bool
    ) -> bytes | None:
        """Return the fields that the writer gave its broker; for a moved segment also those that lead back to its
        objects.
        """
        if self._tier.layout not in _LAYOUTS_WITH_KEYS:
            return None
        fields = set(self._config.custom_metadata_fields_include)
        if moved:
            fields |= {"OBJECT_PREFIX", "OBJECT_KEY"}
        digest = None
        if self._config.manifest_digest_enabled:
            (description,) = self._needed
            digest = hashlib.sha256(self._store.fetch(candidate.objects[description].key)).digest()
        return SegmentCustomMetadata.of(
            fields,
            remote_size=stored_bytes - self._added_later_bytes(candidate),
            object_prefix=folder.lead,
            object_key=candidate.segment_path[len(folder.lead) if not self._tier.scope.key_prefix else 0 :],
            digest=digest,
        ).encode()

    def _added_later_bytes(self, candidate: Candidate) -> int:
        """Return the size of a footer that the segment's copy did not write, as far as the configuration says."""
        footer = candidate.objects.get(FOOTER)
        return 0 if footer is None or self._config.footer_object_enabled else footer.size_bytes

    def _resolve(self, found: tuple[_Listing, list[_Outcome]]) -> RestoredPartition:
        listing, outcomes = found
        segments = sorted(
            (each for each in outcomes if isinstance(each, RestoredSegment)),
            key=lambda each: (each.metadata.start_offset, str(each.metadata.remote_log_segment_id.id)),
        )
        left_out = [*listing.left_out, *(each for each in outcomes if isinstance(each, LeftOutSegment))]
        history = None
        if segments:
            faults: list[TierlogError] = []
            history = TierHistory(self._tier, faults=faults).history_of(
                listing.partition, [each.stored for each in segments]
            )
        return RestoredPartition(
            listing.partition,
            tuple(segments),
            tuple(sorted(left_out, key=lambda each: each.name)),
            history,
            listing.newest_ms,
            listing.newest,
        )

    def close(self) -> None:
        """End the threads; idempotent."""
        self._calls.close()


def _by_listing(loads: Iterable[tuple[_Listing, _Outcome | None]]) -> Iterator[tuple[_Listing, list[_Outcome]]]:
    """Yield the outcomes of each partition; a None ends one."""
    outcomes: list[_Outcome] = []
    for listing, outcome in loads:
        if outcome is not None:
            outcomes.append(outcome)
            continue
        if not listing.elsewhere:
            yield listing, outcomes
        outcomes = []


def _require_whole(segment: StoredSegment) -> None:
    """Raise DataLossError or CorruptObjectError if an object lacks bytes, or what describes the segment is no number
    that a record can hold.
    """
    for part in (segment.log, *(part for _, part in segment.parts)):
        needed = part.position + part.size_bytes
        if part.object_size_bytes < needed:
            file = part.key.rpartition("/")[2]
            found = "is missing" if part.object_size_bytes < 0 else f"has {part.object_size_bytes} bytes"
            raise DataLossError(f"{file} {found}, {needed} are needed")
    if segment.metadata.max_timestamp_ms == UNKNOWN_TIMESTAMP_MS:
        raise CorruptObjectError("its last batches are damaged, which alone tell where it ends", fault="TRUNCATED")
    if segment.size_bytes > _INT32_MAX:
        text = f"a log of {segment.size_bytes} bytes, which no metadata record can hold"
        raise CorruptObjectError(text, fault="OVER_LIMIT", expected=_INT32_MAX, found=segment.size_bytes)
