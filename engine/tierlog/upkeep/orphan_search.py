"""Orphans: objects that no segment owns, segments that lack objects, uploads that were begun and never ended.

The bucket is listed first; then the metadata is read to its end. A copy that began meanwhile is in the metadata and not
in the listing, never the other way round. A segment owns its objects in every state but DELETE_SEGMENT_FINISHED: as
long as the metadata knows a failed copy, the broker will remove its objects.

Never touched: objects whose keys are no segment's; objects younger than the given age; topics that the metadata does
not know, which may be another cluster's; segments that may be newer than the metadata. In the last two cases the search
refuses to go on, unless ``skip_unknown`` leaves them alone. Without metadata every segment that is not whole is an
orphan, except one that has a description and lacks objects: only the metadata shows whether it is half a deletion or a
loss.
"""

from __future__ import annotations

import datetime
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tierlog.arguments import require_flag, require_type
from tierlog.errors import ConfigError, CorruptDataError, ObjectNotFoundError, first_of
from tierlog.opening import Config, Metadata, Path, given_machine, open_path, read_metadata
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierlog.remote.metadata.metadata_view import MetadataView, partition_key
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata
from tierlog.remote.tier.objects.object_keys import ObjectKey
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ABSENT, UnfinishedUpload
from tierlog.runtime.stores.protocol.store_probe import probe_key
from tierlog.runtime.stores.reading.folder_listing import iter_by_folder
from tierlog.runtime.waiting.threads import run_all
from tierlog.upkeep.object_groups import DESCRIPTIONS, ObjectGroup, Wholeness, listed_key

#: Younger objects may belong to a copy that still runs.
OLDER_THAN: Final = datetime.timedelta(hours=24)
_BATCH: Final = 250
_CONCURRENCY: Final = 16
_SHOWN: Final = 3


class OrphanKind(enum.StrEnum):
    """The kinds of orphans."""

    LEFTOVER = "leftover"
    """Objects of no whole segment: a copy that was killed, or half a deletion."""
    UNOWNED = "unowned"
    """Objects, perhaps of a whole segment, that the metadata gives to nobody."""
    BROKEN = "broken"
    """A segment whose objects miss. Never deleted."""
    UPLOAD = "upload"
    """A multipart upload that nobody ends."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """The orphaned objects of one segment, or one upload.

    Attributes:
        key: The key for messages: of the segment's objects without suffix, or of the upload; masked if so configured.
        reason: Why it counts as an orphan.
        description: The key of its description, present or not; None if the layout has none.
        keys: The keys of its objects but the description.
        size_bytes: Size of the existing objects.
        age_ms: Age of the youngest object.
    """

    kind: OrphanKind
    key: str
    partition: TopicIdPartition
    segment_id: Uuid | None
    reason: str
    description: str | None = None
    has_description: bool = False
    keys: tuple[str, ...] = ()
    size_bytes: int = 0
    age_ms: int = 0
    upload: UnfinishedUpload | None = None

    @property
    def deletable(self) -> bool:
        return self.kind is not OrphanKind.BROKEN


@dataclass(slots=True)
class OrphanReport:
    """The result of a search.

    Attributes:
        orphans: The orphans by key.
        objects, segments: The number of objects of segments, and of whole segments.
        foreign: The number of objects whose keys are no segment's; they are left alone.
        young: The number of groups that would be orphans if they were older.
        left_alone: The number of groups that the metadata does not know, or may not know yet.
        deleted: Those of the orphans that were removed.
    """

    orphans: list[Orphan] = field(default_factory=list)
    objects: int = 0
    segments: int = 0
    foreign: int = 0
    young: int = 0
    left_alone: int = 0
    deleted: list[Orphan] = field(default_factory=list)

    @property
    def left(self) -> list[Orphan]:
        """The orphans that still exist."""
        gone = {id(orphan) for orphan in self.deleted}
        return [orphan for orphan in self.orphans if id(orphan) not in gone]


class OrphanSearch:
    """A search for orphans in one bucket.

    Args:
        tier: The bucket; the caller closes it.
        read_metadata: Reads the metadata to its end, when it is called; None for a bucket alone. The caller closes what
            it gives.
        older_than_ms: Younger objects are left alone.
        skip_unknown: Whether to leave segments alone that the metadata does not know, or may not know yet, instead of
            refusing.

    Raises:
        ConfigError: not a bucket.
    """

    def __init__(
        self,
        tier: Tier,
        read_metadata: Callable[[], MetadataView] | None = None,
        *,
        older_than_ms: int,
        skip_unknown: bool = False,
    ) -> None:
        if tier.layout not in DESCRIPTIONS:
            raise ConfigError(f"{tier.describe()}: orphans are searched for in a bucket")
        self._tier = tier
        self._store = tier.store
        self._scope = tier.scope
        self._read_metadata = read_metadata
        self._older_than_ms = older_than_ms
        self._skip_unknown = skip_unknown
        self._description = DESCRIPTIONS[tier.layout]
        self._wholeness = Wholeness(tier)
        self._now_ms = 0
        self._unknown: list[tuple[ObjectGroup, str]] = []

    def run(self, *, ask_store: bool = False) -> OrphanReport:
        """List the bucket, read the metadata, and compare the two.

        Args:
            ask_store: Whether to take the time from the store, by writing a small object and removing it. Else this
                machine's clock counts, or the newest object of the listing if that is later.

        Raises:
            ConfigError: the metadata is empty, behind, or not of this bucket, so that nothing may be concluded from it.
            CorruptDataError: the metadata is damaged. StoreError and its kinds.
        """
        report = OrphanReport()
        groups = self._list(report)
        self._now_ms = self._store_time_ms() if ask_store else self._tier.machine.clock.time_ms()
        self._now_ms = max([self._now_ms, *(group.newest_ms for group in groups.values() if not ask_store)])
        metadata = None if self._read_metadata is None else self._read_metadata()
        self._unknown = []
        owned = set() if metadata is None else _owned_places(metadata)
        self._wholeness.look(group for group in groups.values() if not _has_no_transactions(group, metadata))
        for _, group in sorted(groups.items()):
            found = self._judge(group, report) if metadata is None else self._compare(group, metadata, owned, report)
            report.orphans += found
        if metadata is not None:
            report.orphans += self._missing(metadata, groups)
            report.left_alone = len(self._unknown)
            if self._unknown and not self._skip_unknown:
                raise self._refusal()
        return report

    def _list(self, report: OrphanReport) -> dict[str, ObjectGroup]:
        prefix, groups = self._scope.key_prefix, dict[str, ObjectGroup]()

        def group_of(full_key: str) -> tuple[ObjectGroup, ObjectKey] | None:
            key = listed_key(self._tier, full_key)
            if key is None:
                report.foreign += 1
                return None
            return groups.setdefault(key.segment_path, ObjectGroup(key, prefix + key.segment_path)), key

        place = self._scope.folder or prefix
        # Uploads first: an upload that ends meanwhile is an object of the listing then.
        for upload in self._store.iter_uploads(place):
            if (found := group_of(upload.key)) is not None:
                found[0].uploads.append(upload)
        for info in iter_by_folder(self._store, [place], self._tier.machine):
            if (found := group_of(info.key)) is not None:
                found[0].objects[found[1].suffix] = info
                report.objects += 1
        return groups

    def _store_time_ms(self) -> int:
        key = probe_key(self._tier.machine, self._scope.key_prefix)
        try:
            self._store.put(key, b"tierlog", expected_etag=ABSENT)
            info = self._store.find(key)
        finally:
            self._store.delete([key])
        if info is None:
            raise ObjectNotFoundError(f"{key}: gone as soon as it was written")
        return info.last_modified_ms

    def _judge(self, group: ObjectGroup, report: OrphanReport) -> list[Orphan]:
        """Judge the groups by the bucket alone."""
        if self._wholeness.is_whole(group):
            report.segments += 1
            return self._old_uploads(group, report)
        if self._description in group.objects:
            lacking = ", ".join(self._wholeness.lacking(group))
            reason = f"lacks {lacking}: half a deletion or a loss, which a bucket alone does not show"
            return [self._orphan(OrphanKind.BROKEN, group, reason), *self._old_uploads(group, report)]
        if not self._is_old(group, report):
            return []
        reason = "no whole segment: a copy that never ended, or half a deletion"
        return self._all_of(OrphanKind.LEFTOVER, group, reason)

    def _compare(
        self, group: ObjectGroup, metadata: MetadataView, owned: set[str], report: OrphanReport
    ) -> list[Orphan]:
        """Judge the groups by the metadata."""
        whole = self._wholeness.is_whole(group)
        report.segments += whole
        partition = group.key.topic_id_partition
        segment_id = group.segment_id
        known = None if segment_id is None else metadata.find(segment_id)
        state = None if segment_id is None else metadata.last_state(segment_id)
        if state not in (None, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED) or group.path in owned:
            return self._of_owned(group, known, report, whole=whole)
        if not metadata.knows(partition):
            self._unknown.append((group, f"{partition.topic}-{partition.topic_id} partition {partition.partition}"))
            return []
        if not self._is_old(group, report):
            return []
        if state is None and group.newest_ms > metadata.newest_record_ms(partition):
            self._unknown.append((group, f"{partition}: objects newer than its newest record"))
            return []
        reason = "the metadata knows no segment of this id" if state is None else "the segment was deleted"
        return self._all_of(OrphanKind.UNOWNED, group, reason)

    def _of_owned(
        self, group: ObjectGroup, known: RemoteLogSegmentMetadata | None, report: OrphanReport, *, whole: bool
    ) -> list[Orphan]:
        if known is None or known.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            return []  # it may still be running
        found = []
        if group.objects and not whole and known.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            reason = f"lacks {', '.join(self._wholeness.lacking(group))}, and the metadata says that it is there"
            found.append(self._orphan(OrphanKind.BROKEN, group, reason))
        return found + self._old_uploads(group, report)

    def _missing(self, metadata: MetadataView, groups: dict[str, ObjectGroup]) -> Iterator[Orphan]:
        """Segments that the metadata knows as finished and that the listing lacks."""
        listed = {group.key.segment_id for group in groups.values() if group.objects}
        seen = {partition_key(group.key.topic_id_partition) for group in groups.values()}
        lookup = make_lookup(self._tier.layout, key_prefix=self._scope.key_prefix, mask=self._scope.mask)
        for known in metadata.segments():
            segment_id = known.remote_log_segment_id
            partition = segment_id.topic_id_partition
            if known.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED or segment_id.id in listed:
                continue
            if self._scope.folder and partition_key(partition) not in seen:
                continue  # PATH is a part of the bucket
            try:
                if self._store.find(look_up(lookup, self._store, known).segment.log.key) is not None:
                    continue  # it came after the listing
                reason = "its log is gone, and the metadata says that it is there"
            except (ObjectNotFoundError, CorruptDataError) as error:
                reason = f"the metadata says that it is there: {error}"
            yield Orphan(OrphanKind.BROKEN, str(segment_id), partition, segment_id.id, reason)

    def _is_old(self, group: ObjectGroup, report: OrphanReport) -> bool:
        old = self._now_ms - group.newest_ms >= self._older_than_ms
        report.young += not old
        return old

    def _old_uploads(self, group: ObjectGroup, report: OrphanReport) -> list[Orphan]:
        if not group.uploads:
            return []
        old = [u for u in group.uploads if self._now_ms - u.started_ms >= self._older_than_ms]
        report.young += len(group.uploads) - len(old)
        return self._uploads(group, old)

    def _uploads(self, group: ObjectGroup, uploads: Sequence[UnfinishedUpload] | None = None) -> list[Orphan]:
        return [
            Orphan(
                OrphanKind.UPLOAD,
                self._scope.name(upload.key, self._scope.key_prefix),
                group.key.topic_id_partition,
                group.key.segment_id,
                "an upload that was begun and neither completed nor aborted",
                age_ms=max(0, self._now_ms - upload.started_ms),
                upload=upload,
            )
            for upload in (group.uploads if uploads is None else uploads)
        ]

    def _all_of(self, kind: OrphanKind, group: ObjectGroup, reason: str) -> list[Orphan]:
        return ([self._orphan(kind, group, reason)] if group.objects else []) + self._uploads(group)

    def _orphan(self, kind: OrphanKind, group: ObjectGroup, reason: str) -> Orphan:
        described = self._description in group.objects
        separator = "/" if self._tier.layout == "kafka" else "."
        return Orphan(
            kind,
            self._scope.name(group.path, self._scope.key_prefix),
            group.key.topic_id_partition,
            group.key.segment_id,
            reason,
            description=None if self._description is None else f"{group.path}{separator}{self._description}",
            has_description=described,
            keys=tuple(sorted(info.key for suffix, info in group.objects.items() if suffix != self._description)),
            size_bytes=sum(info.size_bytes for info in group.objects.values()),
            age_ms=max(0, self._now_ms - group.newest_ms),
        )

    def _refusal(self) -> ConfigError:
        places = list(dict.fromkeys(place for _, place in self._unknown))
        return ConfigError(
            f"the metadata does not cover this bucket: {first_of(places, _SHOWN, '; ')}. It is another cluster's, "
            "lacks partitions of the metadata topic, or is behind the bucket: nothing is concluded and nothing was "
            "deleted (skip-unknown leaves alone what it does not know)"
        )

    def delete(self, orphans: Sequence[Orphan]) -> Iterator[Orphan]:
        """Remove the orphans that can be removed, descriptions first; yield each orphan once it is gone.

        A group that has become a whole segment since it was listed stays.

        Raises:
            StoreError and its kinds: some objects could not be removed; run the search again.
        """
        wanted = [orphan for orphan in orphans if orphan.deletable]
        with self._tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-orphans") as pool:
            while wanted:
                batch, wanted = wanted[:_BATCH], wanted[_BATCH:]
                checked = list(run_all(pool, self._still_one, batch))
                gone = list(itertools.compress(batch, checked))
                described = [each.description for each in gone if each.has_description and each.description]
                if described:
                    self._store.delete(described)
                others = [key for each in gone for key in each.keys]
                if others:
                    self._store.delete(others)
                aborts = [partial(self._store.abort_upload, each.upload) for each in gone if each.upload is not None]
                for _ in run_all(pool, lambda abort: abort(), aborts):
                    pass
                yield from gone

    def _still_one(self, orphan: Orphan) -> bool:
        if orphan.description is None or orphan.has_description:
            return True
        return self._store.find(orphan.description) is None


def _has_no_transactions(group: ObjectGroup, metadata: MetadataView | None) -> bool:
    """Whether the metadata says that the segment has no transaction index; brokers before 4.0 say nothing."""
    segment_id = group.segment_id
    known = None if metadata is None or segment_id is None else metadata.find(segment_id)
    return known is not None and known.txn_idx_empty


def _owned_places(metadata: MetadataView) -> set[str]:
    """The places that custom metadata names for the objects of segments, which may differ from those of their ids."""
    places = set()
    for known in metadata.segments():
        if known.custom_metadata is None:
            continue
        custom = decode_custom_metadata(known.custom_metadata, where=str(known.remote_log_segment_id))
        if custom.object_key is not None:
            places.add((custom.object_prefix or "") + custom.object_key)
    return places


def orphans(
    path: Path,
    *,
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    older_than: datetime.timedelta = OLDER_THAN,
    delete: bool = False,
    skip_unknown: bool = False,
    config: Config | None = None,
    layout: str = "auto",
    on_deleted: Callable[[Orphan], None] = lambda _: None,
    machine: Machine | None = None,
) -> OrphanReport:
    """Find objects that no segment owns, segments that lack objects, and uploads that were never finished.

    The bucket is listed first, then the metadata is read to its end. Objects whose keys are no segment's are never
    touched; segments that lack objects are named and not touched.

    Args:
        path: A bucket, or a folder in it.
        metadata: As for ``tierlog.read``. Without it, every object that is not part of a whole segment counts.
        metadata_client: As for ``tierlog.read``.
        older_than: Younger objects are left alone.
        delete: Delete the orphans. Then ages are measured by the store's clock, else by the machine's.
        skip_unknown: Leave segments alone that the metadata does not know, or may not know yet, instead of refusing.
        config: As for ``tierlog.read``.
        layout: As for ``tierlog.read``.
        on_deleted: Called with each orphan as soon as it is gone.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The orphans, those that were deleted, and how much was looked at.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError: the tier is no bucket, or the metadata is
        empty, lacks its beginning, does not know a topic of the bucket, or is older than the bucket: nothing was
        deleted. CorruptDataError: the metadata is damaged. StoreError and its kinds.
    """
    age = require_type("older_than", older_than, datetime.timedelta, "a timedelta")
    require_flag("delete", delete)
    require_flag("skip_unknown", skip_unknown)
    machine = given_machine(machine)
    with ExitStack() as held:
        tier = held.enter_context(open_path(path, config=config, layout=layout, machine=machine))

        def read() -> MetadataView:
            assert metadata is not None
            view = read_metadata(metadata, metadata_client, machine=machine, remember_departed=True)
            return held.enter_context(view)

        search = OrphanSearch(
            tier,
            None if metadata is None else read,
            older_than_ms=age // datetime.timedelta(milliseconds=1),
            skip_unknown=skip_unknown,
        )
        report = search.run(ask_store=delete)
        for orphan in search.delete(report.orphans) if delete else ():
            report.deleted.append(orphan)
            on_deleted(orphan)
    return report
