"""The layout of Aiven's tiered storage plugin: three objects a segment, the manifest last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError, CorruptObjectError, ObjectNotFoundError, SizeLimitError
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import FooterPlace, StoredPart, StoredSegment, fetch_part, iter_windows
from tierlog.remote.tier.layouts.listing import (
    Candidate,
    ListedLayout,
    ListedSegment,
    Scope,
    SegmentFilter,
    footer_place,
)
from tierlog.remote.tier.objects.listed_manifest import find_listed
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, Manifest, parse_manifest
from tierlog.remote.tier.objects.object_keys import FOOTER, key_prefix_hint, parse_aiven
from tierlog.remote.tier.objects.segment_bounds import OFFSET_SPAN_MAX, UNKNOWN_TIMESTAMP_MS, find_bounds
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.waiting.threads import OrderedCalls

MANIFEST = "rsm-manifest"


class AivenLayout(ListedLayout):
    """Segments as the plugin stores them. An upload without a manifest is no segment."""

    name = "aiven"

    def __init__(
        self,
        store: ObjectStore,
        scope: Scope,
        key_ring: KeyRing,
        machine: Machine | None = None,
        *,
        unlisted_footers: bool = False,
    ) -> None:
        self._key_ring = key_ring
        self._unlisted_footers = unlisted_footers
        super().__init__(store, scope, parse_aiven, machine or Machine())

    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        yield from self.find_whole(wanted, frozenset((MANIFEST,)), objects)

    def find_as_listed(self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None) -> Iterator[Candidate]:
        return self.iter_whole(wanted, frozenset((MANIFEST,)), objects)

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Fetch and read the manifest.

        Returns:
            None if the manifest was deleted since it was listed: then there is no segment.

        Raises:
            CorruptObjectError: unreadable, or of another segment. SizeLimitError. StoreError and its kinds.
        """
        info = candidate.objects[MANIFEST]
        prefix = self._scope.key_prefix or _prefix_of(candidate)
        name = self._scope.name(info.key, prefix)
        if info.size_bytes > MANIFEST_BYTES_MAX:
            text = f"a manifest of {info.size_bytes} bytes; none can need more than {MANIFEST_BYTES_MAX}"
            raise SizeLimitError(
                text, fault="OVER_LIMIT", expected=MANIFEST_BYTES_MAX, found=info.size_bytes, where=name
            )
        try:
            data = self._store.fetch(info.key)
        except ObjectNotFoundError:
            return None
        manifest = parse_manifest(data, where=name)
        identity = candidate.remote_log_segment_id
        metadata = manifest.metadata
        if metadata is not None:
            check_identity(metadata, identity, candidate.start_offset, name)
        footer = footer_place(candidate.objects.get(FOOTER), data, unlisted=self._unlisted_footers)
        described = metadata or _provisional(identity, candidate, manifest)
        segment = self._segment(candidate, manifest, described, footer)
        return segment if metadata is not None else self._measured(segment)

    def described_by(self, candidate: Candidate) -> ObjectInfo:
        return candidate.objects[MANIFEST]

    def load_listed(
        self, candidate: Candidate, description: Buffer | None = None
    ) -> ListedSegment | StoredSegment | None:
        info = candidate.objects[MANIFEST]
        if info.size_bytes > MANIFEST_BYTES_MAX:
            return self.load(candidate)  # which says so
        if description is None:
            end = info.size_bytes + 1
            try:
                description = self._store.fetch_range(info.key, start_position=0, end_position_exclusive=end)
            except ObjectNotFoundError:
                return None
        found = find_listed(description)
        if found is None or not candidate.segment_path.endswith(found.segment_path):
            return self.load(candidate)
        footer = candidate.objects.get(FOOTER)
        footer_size = -1 if self._unlisted_footers else None
        return ListedSegment(
            candidate.topic_id_partition,
            info.key[: -len(found.segment_path) - len(MANIFEST) - 1],
            candidate.segment_id,
            found,
            last_modified_ms=info.last_modified_ms,
            footer_size=footer_size if footer is None else footer.size_bytes,
        )

    def _segment(
        self,
        candidate: Candidate,
        manifest: Manifest,
        metadata: RemoteLogSegmentMetadata,
        footer: FooterPlace | None,
    ) -> StoredSegment:
        info = candidate.objects[MANIFEST]
        return describe_aiven(
            manifest,
            base=info.key[: -len(f".{MANIFEST}")],
            metadata=metadata,
            name=self._scope.name,
            prefix=self._scope.key_prefix or _prefix_of(candidate),
            log_size=_listed_size(candidate.objects.get("log")),
            indexes_size=_listed_size(candidate.objects.get("indexes")),
            last_modified_ms=info.last_modified_ms,
            footer=footer,
        )

    def _measured(self, segment: StoredSegment) -> StoredSegment:
        """Return the end and the epochs from the log's bytes, where the manifest has no description."""
        calls = OrderedCalls(1, self._machine, "the tier")

        def read(start: int, end: int) -> memoryview:
            pieces = iter_windows(
                self._store,
                self._key_ring,
                calls,
                segment,
                start_position=start,
                end_position_exclusive=end,
                window_bytes=max(1, end - start),
                prefetch=0,
            )
            joined = [piece for _, piece in pieces]
            return joined[0] if len(joined) == 1 else memoryview(b"".join(joined))

        bounds = find_bounds(read, segment.size_bytes)
        sound = bounds.valid_bytes == segment.size_bytes and bounds.end_offset is not None
        end_offset = bounds.end_offset if sound and bounds.end_offset is not None else segment.end_offset
        return replace(
            segment,
            metadata=replace(
                segment.metadata,
                end_offset=max(end_offset, segment.start_offset),
                max_timestamp_ms=bounds.max_timestamp_ms if sound else UNKNOWN_TIMESTAMP_MS,
                segment_leader_epochs=self._epochs(segment, end_offset)
                or bounds.leader_epochs
                or {0: segment.start_offset},
            ),
        )

    def _epochs(self, segment: StoredSegment, end_offset: int) -> dict[int, int]:
        try:
            data = fetch_part(self._store, self._key_ring, segment, segment.part(IndexType.LEADER_EPOCH))
            epochs = parse_leader_epochs(data or b"").range(segment.start_offset, end_offset + 1)
        except CorruptIndexError as error:
            raise error.located(segment.name) from None
        return dict(epochs.entries)


def describe_aiven(
    manifest: Manifest,
    *,
    base: str,
    metadata: RemoteLogSegmentMetadata,
    name: Callable[[str, str], str],
    prefix: str,
    log_size: int = -1,
    indexes_size: int = -1,
    last_modified_ms: int = 0,
    footer: FooterPlace | None = None,
) -> StoredSegment:
    """Describe a segment by its manifest.

    Args:
        manifest: Of the segment.
        base: Its key without suffix.
        metadata: Of the segment.
        name: A key for messages, as Scope.name.
        prefix: What of the key that may mask.
        log_size: Of the log's object as listed; -1 if it was not.
        indexes_size: The same of the indexes.
        last_modified_ms: Of the manifest.
        footer: Of the segment.
    """
    indexes = f"{base}.indexes"
    log = f"{base}.log"
    return StoredSegment(
        metadata=metadata,
        layout="aiven",
        name=name(log, prefix),
        log=StoredPart(log, 0, manifest.chunk_index.object_size_bytes, log_size),
        parts=tuple(
            (kind, StoredPart(indexes, position, size, indexes_size)) for kind, position, size in manifest.indexes
        ),
        chunk_index=manifest.chunk_index,
        compression=manifest.compression,
        encryption=manifest.encryption,
        last_modified_ms=last_modified_ms,
        footer=footer,
    )


def _prefix_of(candidate: Candidate) -> str:
    """Return the part before the topic folder: the key.prefix that a reader without configuration sees."""
    folders = candidate.objects[MANIFEST].key.split("/")[:-3]
    return "/".join([*folders, ""])


def _listed_size(info: ObjectInfo | None) -> int:
    return -1 if info is None else info.size_bytes


def check_identity(
    metadata: RemoteLogSegmentMetadata, identity: RemoteLogSegmentId, start_offset: int, where: str
) -> None:
    """Check that a manifest describes the segment that its key names. Raises CorruptObjectError."""
    if metadata.remote_log_segment_id != identity or metadata.start_offset != start_offset:
        text = (
            f"the manifest is of another segment: {metadata.remote_log_segment_id} from {metadata.start_offset}, "
            f"the key says {identity} from {start_offset}"
            f"{key_prefix_hint(identity.topic_id_partition.topic, metadata.topic_id_partition.topic)}"
        )
        raise CorruptObjectError(text, fault="BAD_ENTRY", base_offset=start_offset, where=where)


def _provisional(identity: RemoteLogSegmentId, candidate: Candidate, manifest: Manifest) -> RemoteLogSegmentMetadata:
    modified_ms = candidate.objects[MANIFEST].last_modified_ms
    return RemoteLogSegmentMetadata(
        identity,
        start_offset=candidate.start_offset,
        end_offset=min(candidate.start_offset + OFFSET_SPAN_MAX, 2**63 - 1),
        max_timestamp_ms=UNKNOWN_TIMESTAMP_MS,
        broker_id=-1,
        event_timestamp_ms=modified_ms,
        segment_size_in_bytes=manifest.chunk_index.original_file_size,
        segment_leader_epochs={0: candidate.start_offset},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
