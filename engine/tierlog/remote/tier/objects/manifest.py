"""The plugin's segment manifest, version 1: clear JSON that says how a segment's objects are to be read.

Stricter than JSON, more lenient than the plugin: unknown members are accepted, a missing ``transaction`` means none,
``remoteLogSegmentMetadata`` may hold anything or be missing (nothing of it is needed to read the bytes).

Source: docs/formats/objects.md, Manifest; the plugin's SegmentManifestV1 and its serde.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.chunks import ChunkIndex, decode_chunk_sizes
from tierlog._native.codecs import decompress
from tierlog.errors import CorruptDataError, CorruptObjectError, CorruptRecordError, SizeLimitError
from tierlog.remote.api import (
    EpochMap,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.tier.chunks.key_ring import UNIT_OVERHEAD_BYTES, SegmentEncryption
from tierlog.remote.tier.objects.json_object import INT64_MAX, INT64_MIN, JsonObject, parse_json_object

#: The plugin refuses a longer list of chunk sizes, packed or not.
CHUNK_LIST_BYTES_MAX: Final = 10 << 20
#: The list in base64, and room for the rest.
MANIFEST_BYTES_MAX: Final = CHUNK_LIST_BYTES_MAX * 4 // 3 + (2 << 20)
_AAD_BYTES: Final = 32
#: Kafka's number of the codec.
_ZSTD: Final = 4
#: Behind a frame's magic, and its bits, one of which is set where the frame has the content's size (RFC 8878,
#: 3.1.1.1.1).
_ZSTD_DESCRIPTOR_POSITION: Final = 4
_ZSTD_TELLS_SIZE: Final = 0xE0
#: Members of ``segmentIndexes``, in the order of the manifest and of the indexes object.
INDEX_MEMBERS: Final = {
    IndexType.OFFSET: "offset",
    IndexType.TIMESTAMP: "timestamp",
    IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexType.LEADER_EPOCH: "leaderEpoch",
    IndexType.TRANSACTION: "transaction",
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest.

    Args:
        indexes: (type, position, size) in the indexes object, as stored; no transaction index if there is none.
        metadata: None if the manifest does not carry a whole description of the segment.
    """

    chunk_index: ChunkIndex
    indexes: tuple[tuple[IndexType, int, int], ...]
    compression: bool
    encryption: SegmentEncryption | None
    metadata: RemoteLogSegmentMetadata | None


def parse_manifest(data: Buffer, *, where: str) -> Manifest:
    """Read a manifest.

    Args:
        data: The object.
        where: Its key, for messages.

    Raises:
        CorruptObjectError: malformed, of another version, or its numbers contradict each other; names the member.
        SizeLimitError: larger than any manifest, or its chunk list expands to more than the format allows.
    """
    root = parse_json_object(data, where=where, limit_bytes=MANIFEST_BYTES_MAX)
    _check_version(root)
    # Without it the stored bytes of an encrypted index would be returned as the index.
    root.require_absent("encryption")
    encryption = _parse_encryption(root)
    compression = root.boolean("compression")
    chunk_index = _parse_chunk_index(root, compression=compression, encrypted=encryption is not None, where=where)
    return Manifest(
        chunk_index=chunk_index,
        indexes=_parse_indexes(root, encrypted=encryption is not None),
        compression=compression,
        encryption=encryption,
        metadata=_find_metadata(root, chunk_index.original_file_size),
    )


def _check_version(root: JsonObject) -> None:
    version = root.get("version")
    if version is None:
        raise root.corrupt("version", "missing", "BAD_VERSION")
    if version != "1" and (version != 1 or isinstance(version, bool | float)):
        raise root.corrupt("version", f'{str(version)[:40]!r}, only "1" is known', "BAD_VERSION")


def _parse_indexes(root: JsonObject, *, encrypted: bool) -> tuple[tuple[IndexType, int, int], ...]:
    members = root.child("segmentIndexes")
    members.require_absent(INDEX_MEMBERS[IndexType.TRANSACTION])
    found = []
    for kind, name in INDEX_MEMBERS.items():
        if kind is IndexType.TRANSACTION and not members.has(name):
            continue
        entry = members.child(name)
        position, size = entry.integer("position"), entry.integer("size")
        if encrypted and 0 < size < UNIT_OVERHEAD_BYTES:
            text = f"{size} bytes: IV and tag of an encrypted index alone take {UNIT_OVERHEAD_BYTES}"
            raise entry.corrupt("size", text, "BAD_SIZE", found=size)
        found.append((kind, position, size))
    return tuple(found)


def _parse_encryption(root: JsonObject) -> SegmentEncryption | None:
    members = root.find_child("encryption")
    if members is None:
        return None
    key_id, colon, wrapped = members.text("dataKey").partition(":")
    if not colon or not key_id.strip() or ":" in wrapped:
        raise members.corrupt("dataKey", "not of the form <key id>:<base64>")
    aad = _base64(members, "aad", members.text("aad"))
    if len(aad) != _AAD_BYTES:
        raise members.corrupt("aad", f"{len(aad)} bytes, expected {_AAD_BYTES}", "BAD_SIZE", found=len(aad))
    wrapped_key = _base64(members, "dataKey", wrapped)
    if not wrapped_key:
        raise members.corrupt("dataKey", "the wrapped key is empty")
    return SegmentEncryption(key_id, wrapped_key, aad)


def _base64(members: JsonObject, name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as cause:
        raise members.corrupt(name, "not base64") from cause


def _parse_chunk_index(root: JsonObject, *, compression: bool, encrypted: bool, where: str) -> ChunkIndex:
    members = root.child("chunkIndex")
    try:
        return _chunk_index(members, compression=compression, encrypted=encrypted)
    except CorruptDataError as error:
        raise error.located(where) from None


def _chunk_index(members: JsonObject, *, compression: bool, encrypted: bool) -> ChunkIndex:
    kind = members.text("type")
    original_chunk_size = members.integer("originalChunkSize", minimum=1)
    original_file_size = members.integer("originalFileSize")
    if kind == "variable":
        return ChunkIndex(
            original_chunk_size=original_chunk_size,
            original_file_size=original_file_size,
            transformed_sizes=_parse_chunk_sizes(members),
        )
    if kind != "fixed":
        raise members.corrupt("type", f"{kind[:40]!r}, only fixed and variable are known", "BAD_VERSION")
    transformed = members.integer("transformedChunkSize")
    final = members.integer("finalTransformedChunkSize")
    if not compression:
        overhead = UNIT_OVERHEAD_BYTES if encrypted else 0
        _check_fixed(members, original_chunk_size, original_file_size, transformed, final, overhead)
    return ChunkIndex(
        original_chunk_size=original_chunk_size,
        original_file_size=original_file_size,
        transformed_chunk_size=transformed,
        final_transformed_chunk_size=final,
    )


def _check_fixed(members: JsonObject, chunk: int, file: int, transformed: int, final: int, overhead: int) -> None:
    """Check fixed sizes. Raises CorruptObjectError: without compression, transformed sizes do not follow from the
    original ones.
    """
    if transformed != chunk + overhead:
        text = f"{transformed}, but {chunk} original bytes make {chunk + overhead}"
        raise members.corrupt("transformedChunkSize", text, "BAD_SIZE", found=transformed)
    rest = (file - 1) % chunk + 1 + overhead if file else 0
    if final != rest:
        text = f"{final}, but the last chunk of {file} bytes makes {rest}"
        raise members.corrupt("finalTransformedChunkSize", text, "BAD_SIZE", found=final)


def _parse_chunk_sizes(members: JsonObject) -> NDArray[np.int32]:
    """Parse base64 of one zstd frame of the size list; the frame's declared size is checked before it is believed."""
    packed = _base64(members, "transformedChunks", members.text("transformedChunks"))
    if len(packed) <= _ZSTD_DESCRIPTOR_POSITION or not packed[_ZSTD_DESCRIPTOR_POSITION] & _ZSTD_TELLS_SIZE:
        raise members.corrupt("transformedChunks", "the zstd frame does not declare its size", "BAD_COMPRESSED")
    try:
        plain = decompress(packed, _ZSTD, limit=CHUNK_LIST_BYTES_MAX)
    except SizeLimitError as cause:
        text = f"transformedChunks: more than the {CHUNK_LIST_BYTES_MAX} bytes that are allowed"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=CHUNK_LIST_BYTES_MAX, found=cause.found) from None
    except CorruptRecordError as cause:
        raise members.corrupt("transformedChunks", f"corrupt zstd frame: {cause.text}", "BAD_COMPRESSED") from None
    return decode_chunk_sizes(plain)


def _find_metadata(root: JsonObject, size_bytes: int) -> RemoteLogSegmentMetadata | None:
    """Find the segment's description; None if it is missing, or something else stands there."""
    if not isinstance(root.get("remoteLogSegmentMetadata"), dict):
        return None
    members = root.child("remoteLogSegmentMetadata")
    try:
        segment = members.child("remoteLogSegmentId")
        partition = segment.child("topicIdPartition")
        name = partition.child("topicPartition")
        epochs = members.child("segmentLeaderEpochs")
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(
                TopicIdPartition(
                    Uuid.from_text(partition.text("topicId")), name.text("topic"), name.integer("partition")
                ),
                Uuid.from_text(segment.text("id")),
            ),
            start_offset=members.integer("startOffset", maximum=INT64_MAX),
            end_offset=members.integer("endOffset", maximum=INT64_MAX),
            max_timestamp_ms=members.integer("maxTimestampMs", minimum=INT64_MIN, maximum=INT64_MAX),
            broker_id=members.integer("brokerId", minimum=-1),
            event_timestamp_ms=members.integer("eventTimestampMs", minimum=INT64_MIN, maximum=INT64_MAX),
            segment_size_in_bytes=size_bytes,
            segment_leader_epochs=EpochMap(
                {
                    int(epoch): epochs.integer(epoch, maximum=INT64_MAX)
                    for epoch, _ in epochs.items()
                    if len(epoch) <= 10
                }
            ),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_idx_empty=members.get("txnIdxEmpty") is True,
        )
    except (CorruptObjectError, ValueError):
        return None  # the content describes no segment: the caller derives the fields from the bytes
