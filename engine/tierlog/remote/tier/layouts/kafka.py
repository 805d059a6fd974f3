"""Our own plain layout: each part an object under Kafka's name for the file, ``segment.json`` last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptObjectError, ObjectNotFoundError, SizeLimitError
from tierlog.remote.api import (
    ZERO_UUID,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment
from tierlog.remote.tier.layouts.listing import Candidate, ListedLayout, Scope, SegmentFilter, footer_place
from tierlog.remote.tier.objects.json_object import INT64_MAX, INT64_MIN, JsonObject, parse_json_object
from tierlog.remote.tier.objects.object_keys import (
    FOOTER,
    PART_SUFFIXES,
    TRANSACTION_INDEX,
    key_prefix_hint,
    parse_kafka,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore

DESCRIPTION: Final = "segment.json"
DESCRIPTION_BYTES_MAX: Final = 16 << 20
_VERSION: Final = 1
_CHECKSUM: Final = re.compile(r"[0-9a-fA-F]{8}")


class KafkaLayout(ListedLayout):
    """Segments of our own layout. An upload without ``segment.json`` is no segment."""

    name = "kafka"

    def __init__(
        self, store: ObjectStore, scope: Scope, machine: Machine | None = None, *, unlisted_footers: bool = False
    ) -> None:
        super().__init__(store, scope, parse_kafka, machine or Machine())
        self._unlisted_footers = unlisted_footers

    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        partitions: dict[str, TopicIdPartition] = {}
        ids: dict[str, Uuid] = {}
        starts: dict[str, int] = {}
        parts: dict[str, dict[str, ObjectInfo]] = {}
        for key, info in self.iter_objects(wanted, objects):
            partitions[key.segment_path] = key.topic_id_partition
            ids[key.segment_path] = key.segment_id or ZERO_UUID
            parts.setdefault(key.segment_path, {})[key.suffix] = info
            if key.suffix == "log":
                starts[key.segment_path] = key.start_offset
        whole = [path for path, found in parts.items() if DESCRIPTION in found]
        if objects is None:
            self.count_foreign(sum(len(found) for found in parts.values()) - sum(len(parts[p]) for p in whole))
        for path in sorted(whole, key=lambda path: (partitions[path], starts.get(path, -1), path)):
            yield Candidate(partitions[path], starts.get(path, -1), path, parts[path], ids[path])

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Fetch and read ``segment.json``. None if it was deleted since it was listed: then there is no segment."""
        info = candidate.objects[DESCRIPTION]
        name = self._scope.name(info.key, self._scope.key_prefix)
        if info.size_bytes > DESCRIPTION_BYTES_MAX:
            text = f"a description of {info.size_bytes} bytes; none can need more than {DESCRIPTION_BYTES_MAX}"
            raise SizeLimitError(text, fault="OVER_LIMIT", expected=DESCRIPTION_BYTES_MAX, where=name)
        try:
            data = self._store.fetch(info.key)
        except ObjectNotFoundError:
            return None
        segment = describe_kafka(
            data,
            folder=info.key[: -len(DESCRIPTION)],
            identity=candidate.remote_log_segment_id,
            name=self._scope.name,
            prefix=self._scope.key_prefix,
            sizes={suffix: listed.size_bytes for suffix, listed in candidate.objects.items()},
            last_modified_ms=info.last_modified_ms,
        )
        footer = footer_place(candidate.objects.get(FOOTER), data, unlisted=self._unlisted_footers)
        return segment if footer is None else replace(segment, footer=footer)


def describe_kafka(
    data: Buffer,
    *,
    folder: str,
    identity: RemoteLogSegmentId,
    name: Callable[[str, str], str],
    prefix: str,
    sizes: Mapping[str, int] | None = None,
    last_modified_ms: int = 0,
    is_own_key: bool = True,
) -> StoredSegment:
    """Describe a segment by its ``segment.json``.

    Args:
        data: The object.
        folder: Of the segment's objects, ending with "/".
        identity: Which segment it must be.
        name: A key for messages, as Scope.name.
        prefix: What of the key that may mask.
        sizes: Of objects as listed, by suffix.
        last_modified_ms: Of ``segment.json``.
        is_own_key: False where custom metadata named the folder: topic and partition may have had other ids there.

    Raises:
        CorruptObjectError: unreadable, or of another segment.
    """
    where = name(folder + DESCRIPTION, prefix)
    root = parse_json_object(data, where=where, limit_bytes=DESCRIPTION_BYTES_MAX)
    version = root.integer("version")
    if version != _VERSION:
        raise root.corrupt("version", f"{version}, only {_VERSION} is known", "BAD_VERSION", found=version)
    parts = root.child("parts")
    metadata = _metadata(root, parts, where=where)
    if is_own_key or metadata.remote_log_segment_id.id != identity.id:
        _check_identity(metadata, identity, where=where)
    log_key = f"{folder}{metadata.start_offset:020d}.log"
    return StoredSegment(
        metadata=metadata,
        layout="kafka",
        name=name(log_key, prefix),
        log=_part(parts, "log", log_key, sizes or {}),
        parts=tuple(_iter_parts(parts, metadata, folder, sizes or {})),
        last_modified_ms=last_modified_ms,
    )


def _iter_parts(
    parts: JsonObject, metadata: RemoteLogSegmentMetadata, folder: str, sizes: Mapping[str, int]
) -> Iterator[tuple[IndexType, StoredPart]]:
    parts.require_absent(PART_SUFFIXES[IndexType.TRANSACTION])
    for kind, suffix in PART_SUFFIXES.items():
        if kind is IndexType.TRANSACTION and not parts.has(suffix):
            continue
        file = f"{metadata.start_offset:020d}.{suffix}"
        if kind is IndexType.PRODUCER_SNAPSHOT:
            file = f"{metadata.end_offset + 1:020d}.{suffix}"
        elif kind is IndexType.LEADER_EPOCH:
            file = suffix
        yield kind, _part(parts, suffix, folder + file, sizes)


def _part(parts: JsonObject, suffix: str, key: str, sizes: Mapping[str, int]) -> StoredPart:
    part = parts.child(suffix)
    size = part.integer("size")
    return StoredPart(key, 0, size, sizes.get(suffix, -1), _checksum(part))


def _checksum(part: JsonObject) -> int | None:
    part.require_absent("crc32c")
    if not part.has("crc32c"):
        return None
    text = part.text("crc32c")
    if _CHECKSUM.fullmatch(text) is None:
        raise part.corrupt("crc32c", f"{text!r:.40} is not eight hex digits", "BAD_ENTRY")
    return int(text, 16)


def _metadata(root: JsonObject, parts: JsonObject, *, where: str) -> RemoteLogSegmentMetadata:
    epochs = root.child("segmentLeaderEpochs")
    try:
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(
                TopicIdPartition(Uuid.from_text(root.text("topicId")), root.text("topic"), root.integer("partition")),
                Uuid.from_text(root.text("segmentId")),
            ),
            start_offset=root.integer("startOffset", maximum=INT64_MAX),
            end_offset=root.integer("endOffset", maximum=INT64_MAX - 1),
            max_timestamp_ms=root.integer("maxTimestampMs", minimum=INT64_MIN, maximum=INT64_MAX),
            broker_id=root.integer("brokerId", minimum=-1),
            event_timestamp_ms=root.integer("eventTimestampMs", minimum=INT64_MIN, maximum=INT64_MAX),
            segment_size_in_bytes=parts.child("log").integer("size"),
            segment_leader_epochs={
                int(epoch): epochs.integer(epoch, maximum=INT64_MAX) for epoch, _ in epochs.items() if len(epoch) <= 10
            },
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_idx_empty=not parts.has(TRANSACTION_INDEX),
        )
    except CorruptObjectError:
        raise
    except ValueError as cause:
        raise CorruptObjectError(str(cause), fault="BAD_ENTRY", where=where) from cause


def _check_identity(metadata: RemoteLogSegmentMetadata, identity: RemoteLogSegmentId, *, where: str) -> None:
    if metadata.remote_log_segment_id != identity:
        hint = key_prefix_hint(identity.topic_id_partition.topic, metadata.topic_id_partition.topic)
        text = f"describes another segment: {metadata.remote_log_segment_id}, the key says {identity}{hint}"
        raise CorruptObjectError(text, fault="BAD_ENTRY", base_offset=metadata.start_offset, where=where)
