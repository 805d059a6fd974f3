"""The plugin's segment manifest, written: the JSON that it would write, to the byte.

No white space, members in the plugin's order, ``transaction`` null where there is none, ``encryption`` left out where
there is none. The plugin refuses unknown members, so nothing of ours is added.

Source: docs/formats/objects.md, Manifest; the plugin's SegmentManifestV1 and its serde, ChunkSizesBinaryCodec.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.chunks import ChunkIndex
from tierlog._native.codecs import compress_bound, compress_into
from tierlog.errors import CorruptObjectError, SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.key_ring import UNIT_OVERHEAD_BYTES, KeyRing, SegmentEncryption
from tierlog.remote.tier.objects.json_object import INT32_MAX
from tierlog.remote.tier.objects.manifest import CHUNK_LIST_BYTES_MAX, INDEX_MEMBERS, Manifest, parse_manifest

#: Of the parts in the indexes object.
INDEX_ORDER: Final = tuple(INDEX_MEMBERS)
_ZSTD_LEVEL: Final = 3


def stored_chunk_index(
    *,
    original_chunk_size: int,
    original_file_size: int,
    encrypted: bool,
    transformed_sizes: Sequence[int] | NDArray[np.int32] | None,
) -> ChunkIndex:
    """Make the chunk index of a written log.

    Args:
        original_chunk_size: Bytes before they were transformed; >= 1.
        original_file_size: Of the log.
        encrypted: Only asked without compression, where the sizes follow from it.
        transformed_sizes: Of each chunk as stored, in order; None if they were not compressed.

    Raises:
        CorruptObjectError: the numbers contradict each other.
    """
    if transformed_sizes is not None:
        return ChunkIndex(
            original_chunk_size=original_chunk_size,
            original_file_size=original_file_size,
            transformed_sizes=np.asarray(transformed_sizes, dtype=np.int32),
        )
    overhead = UNIT_OVERHEAD_BYTES if encrypted else 0
    last = (original_file_size - 1) % original_chunk_size + 1 + overhead if original_file_size else 0
    return ChunkIndex(
        original_chunk_size=original_chunk_size,
        original_file_size=original_file_size,
        transformed_chunk_size=original_chunk_size + overhead,
        final_transformed_chunk_size=last,
    )


def place_indexes(sizes: Iterable[tuple[IndexType, int]]) -> tuple[tuple[IndexType, int, int], ...]:
    """Return (type, position, size) of each index, from (type, stored size) in INDEX_ORDER."""
    placed, position = [], 0
    for kind, size in sizes:
        placed.append((kind, position, size))
        position += size
    return tuple(placed)


def encode_manifest(manifest: Manifest, *, txn_idx_empty_known: bool = True) -> bytes:
    """Encode the manifest object's bytes.

    Args:
        manifest: Its ``chunk_index`` is that of a whole log; ``metadata`` is there.
        txn_idx_empty_known: The broker says whether the transaction index is empty: Kafka 4.0 and later do. False
            leaves the member out, as the plugin does under Kafka 3; read back, that and ``false`` are one.

    Raises:
        SizeLimitError: a log above 2^31 - 1 bytes, or more chunks than the format can list.
    """
    if manifest.metadata is None:
        raise ValueError("a manifest is written with the segment's metadata")
    root: dict[str, object] = {
        "version": "1",
        "chunkIndex": _chunk_index(manifest.chunk_index, variable=manifest.compression, encryption=manifest.encryption),
        "segmentIndexes": _indexes(manifest.indexes),
        "compression": manifest.compression,
    }
    if manifest.encryption is not None:
        root["encryption"] = {
            "dataKey": data_key_text(manifest.encryption),
            "aad": base64.b64encode(manifest.encryption.aad).decode("ascii"),
        }
    root["remoteLogSegmentMetadata"] = _metadata(manifest.metadata, txn_idx_empty_known=txn_idx_empty_known)
    return _json(root)


def data_key_text(encryption: SegmentEncryption) -> str:
    """Return the wrapped data key as a manifest has it: ``<key id>:<base64>``."""
    return f"{encryption.key_id}:{base64.b64encode(encryption.wrapped_key).decode('ascii')}"


def rewrap_manifest(data: bytes, key_ring: KeyRing, *, where: str) -> bytes | None:
    """Return the same manifest with its data key under the ring's active pair: all other bytes stay.

    A digest of the manifest in the segment's metadata (``manifest.digest.enabled``) is then that of the old one: such a
    segment is copied anew instead, or its owner updates its metadata.

    Returns:
        None if there is nothing to do: not encrypted, or under that pair already.

    Raises:
        CorruptObjectError: no manifest. EncryptionKeyError: the ring does not open its data key. ConfigError: the ring
            has no active pair.
    """
    encryption = parse_manifest(data, where=where).encryption
    if encryption is None or encryption.key_id == key_ring.active_key_id:
        return None
    old, new = (_json(data_key_text(each)) for each in (encryption, key_ring.rewrap(encryption)))
    if data.count(old) != 1:
        raise CorruptObjectError("encryption.dataKey: not written as the plugin writes it", where=where)
    return data.replace(old, new)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def encode_chunk_sizes(sizes: NDArray[np.int32]) -> bytes:
    """Encode the plugin's binary chunk size list (docs/formats/objects.md, Chunk index).

    Args:
        sizes: int32[n], bytes, none negative.
    """
    count = len(sizes)
    parts = [count.to_bytes(4, "big")]
    if count > 1:
        front = sizes[:-1].astype(np.int64)
        base = int(front.min())
        above = (front - base).astype(">u4")
        width = max(1, (int(above.max()).bit_length() + 7) // 8)
        packed = above.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()
        parts += [base.to_bytes(4, "big"), bytes([width]), packed]
    if count:
        parts.append(int(sizes[-1]).to_bytes(4, "big"))
    return b"".join(parts)


def pack_chunk_sizes(sizes: NDArray[np.int32]) -> str:
    """Text of ``transformedChunks``: base64 of a zstd frame. Raises SizeLimitError above the format's limit."""
    plain = encode_chunk_sizes(sizes)
    if len(plain) > CHUNK_LIST_BYTES_MAX:
        text = f"{len(sizes)} chunks: their sizes take {len(plain)} bytes, the format allows {CHUNK_LIST_BYTES_MAX}"
        raise SizeLimitError(
            f"{text}; use a larger chunk.size", fault="OVER_LIMIT", expected=CHUNK_LIST_BYTES_MAX, found=len(plain)
        )
    frame = bytearray(compress_bound(len(plain)))
    size = compress_into(plain, frame, level=_ZSTD_LEVEL)
    return base64.b64encode(memoryview(frame)[:size]).decode("ascii")


def _chunk_index(index: ChunkIndex, *, variable: bool, encryption: SegmentEncryption | None) -> dict[str, object]:
    size = index.original_file_size
    if size > INT32_MAX:
        text = f"a log of {size} bytes: the format allows {INT32_MAX}"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=INT32_MAX, found=size)
    same = {"originalChunkSize": index.original_chunk_size, "originalFileSize": size}
    if variable:
        sizes = index.views(0, size)["transformed_size"].astype(np.int32) if size else np.zeros(0, np.int32)
        return {"type": "variable", **same, "transformedChunks": pack_chunk_sizes(sizes)}
    overhead = UNIT_OVERHEAD_BYTES if encryption else 0
    last = int(index.views(size - 1, size)["transformed_size"][0]) if size else 0
    return {
        "type": "fixed",
        **same,
        "transformedChunkSize": index.original_chunk_size + overhead,
        "finalTransformedChunkSize": last,
    }


def _indexes(placed: Iterable[tuple[IndexType, int, int]]) -> dict[str, object]:
    known = {kind: {"position": position, "size": size} for kind, position, size in placed}
    return {name: known.get(kind) for kind, name in INDEX_MEMBERS.items()}


def _metadata(metadata: RemoteLogSegmentMetadata, *, txn_idx_empty_known: bool) -> dict[str, object]:
    segment_id = metadata.remote_log_segment_id
    partition = segment_id.topic_id_partition
    members: dict[str, object] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": str(segment_id.id),
        },
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in sorted(metadata.segment_leader_epochs.items())},
    }
    if txn_idx_empty_known:
        members["txnIdxEmpty"] = metadata.txn_idx_empty
    return members
