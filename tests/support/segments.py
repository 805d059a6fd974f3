"""Segments: the one way in which tests make them, from a log's batches to files of a broker and objects of the plugin.

Indexes, manifests, compression and encryption are spelled out on struct, json, zstandard and cryptography, which stand
for the plugin's own libraries, and not by the code under test.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import random
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.batches import Batch, crc32c, encode
from tests.support.closed_segments import ClosedSegment
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.tier.chunks.key_ring import KeyRing

FIRST_MS = 1_700_000_000_000
#: What AES-GCM adds to a chunk: nonce and tag.
_SEAL_BYTES = 28
#: The parts of the indexes object, in the plugin's order, by their names in a manifest.
_PARTS = {
    IndexType.OFFSET: "offset",
    IndexType.TIMESTAMP: "timestamp",
    IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexType.LEADER_EPOCH: "leaderEpoch",
    IndexType.TRANSACTION: "transaction",
}


def topic_uuid(name: str) -> str:
    """A Kafka Uuid in its text form, the same for the same name."""
    return base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, name).bytes).decode().rstrip("=")


def throwaway_keys(data: pathlib.Path) -> KeyRing:
    """A ring that writes with the pair k1 of the golden data."""
    folder = data / "keys" / "k1"
    private, public = (folder / "private.der").read_bytes(), (folder / "public.der").read_bytes()
    return KeyRing({"k1": private}, public_keys={"k1": public}, active_key_id="k1")


def sound_log(
    batches: int = 40,
    *,
    base_offset: int = 0,
    batch_bytes: int = 2100,
    records: int = 2,
    leader_epoch: int = 4,
    codecs: Sequence[str] = ("none",),
) -> bytes:
    """A log of record batches, each of at most ``batch_bytes``, half of which compresses.

    Record n has the timestamp FIRST_MS + n - base_offset. The codecs follow each other, each for its share of the
    batches.
    """
    half = max((batch_bytes - 61) // records - 12, 0) // 2
    log = bytearray()
    for number in range(batches):
        first = records * number
        builder = RecordBatchBuilder(
            base_offset + first, leader_epoch=leader_epoch, codec=codecs[number * len(codecs) // batches]
        )
        chance = random.Random(base_offset + first)
        for record in range(records):
            value = chance.randbytes(half) + (b"the same again, " * (half // 16 + 1))[:half]
            builder.append(None, value, timestamp_ms=FIRST_MS + first + record)
        log += builder.build()
    return bytes(log)


@dataclass(frozen=True)
class Aborted:
    """An entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class Segment:
    """A segment whose copy is finished: its metadata, its log, and the parts beside it."""

    metadata: RemoteLogSegmentMetadata
    log: bytes
    parts: Mapping[IndexType, bytes]

    def closed_in(self, folder: pathlib.Path) -> ClosedSegment:
        """The files of the segment, as a broker hands them to a copy."""
        folder.mkdir(parents=True, exist_ok=True)
        start, end = self.metadata.start_offset, self.metadata.end_offset
        log, snapshot = folder / f"{start:020d}.log", folder / f"{end + 1:020d}.snapshot"
        log.write_bytes(self.log)
        snapshot.write_bytes(self.parts[IndexType.PRODUCER_SNAPSHOT])
        paths = {}
        for kind, suffix in (
            (IndexType.OFFSET, ".index"),
            (IndexType.TIMESTAMP, ".timeindex"),
            (IndexType.TRANSACTION, ".txnindex"),
        ):
            if kind in self.parts:
                paths[kind] = str(log.with_suffix(suffix))
                log.with_suffix(suffix).write_bytes(self.parts[kind])
        data = LogSegmentData(
            str(log),
            paths[IndexType.OFFSET],
            paths[IndexType.TIMESTAMP],
            paths.get(IndexType.TRANSACTION),
            str(snapshot),
            self.parts[IndexType.LEADER_EPOCH],
        )
        return ClosedSegment(replace(self.metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED), data)

    def stored(
        self,
        *,
        chunk_size: int = 4 << 20,
        compression: bool = False,
        key_ring: KeyRing | None = None,
        prefix: str = "",
    ) -> BucketSegment:
        """The objects of the segment, as the plugin stores them; encrypted if there is a ring."""
        key = key_ring.new_segment_key() if key_ring else None
        compressor = zstandard.ZstdCompressor(level=1)

        def sealed(plain: bytes) -> bytes:
            if key is None or not plain:
                return plain
            nonce = os.urandom(12)
            return nonce + AESGCM(key.data_key).encrypt(nonce, plain, key.encryption.aad)

        plain = [self.log[at : at + chunk_size] for at in range(0, len(self.log), chunk_size)]
        chunks = [sealed(compressor.compress(chunk) if compression else chunk) for chunk in plain]
        parts = {kind: sealed(data) for kind, data in self.parts.items()}
        index: dict[str, Any] = {"originalChunkSize": chunk_size, "originalFileSize": len(self.log)}
        if compression:
            index |= {"type": "variable", "transformedChunks": _packed([len(chunk) for chunk in chunks])}
        else:
            whole = chunk_size + (_SEAL_BYTES if key else 0)
            last = len(chunks[-1]) if chunks else 0
            index |= {"type": "fixed", "transformedChunkSize": whole, "finalTransformedChunkSize": last}
        manifest: dict[str, Any] = {
            "version": "1",
            "chunkIndex": index,
            "segmentIndexes": {"transaction": None} | _places(parts),
            "compression": compression,
        }
        if key is not None:
            wrapped = base64.b64encode(key.encryption.wrapped_key).decode()
            aad = base64.b64encode(key.encryption.aad).decode()
            manifest["encryption"] = {"dataKey": f"{key.encryption.key_id}:{wrapped}", "aad": aad}
        manifest["remoteLogSegmentMetadata"] = _metadata_json(self.metadata)
        partition, segment_id = self.metadata.topic_id_partition, self.metadata.remote_log_segment_id.id
        folder = f"{prefix}{partition.topic}-{partition.topic_id}/{partition.partition}"
        base = f"{folder}/{self.metadata.start_offset:020d}-{segment_id}"
        objects = {
            f"{base}.log": b"".join(chunks),
            f"{base}.indexes": b"".join(parts.values()),
            f"{base}.rsm-manifest": json.dumps(manifest, separators=(",", ":")).encode(),
        }
        return BucketSegment(self.metadata, self.log, self.parts, objects, base)


@dataclass(frozen=True)
class BucketSegment(Segment):
    """A segment and its objects by key; ``base`` is what their keys begin with."""

    objects: Mapping[str, bytes]
    base: str

    def put_in(self, root: pathlib.Path) -> None:
        """Write the objects below a folder, the manifest last."""
        for key, content in self.objects.items():
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def make_segment(
    log: bytes | Sequence[Batch],
    *,
    topic: str = "orders",
    partition: int = 0,
    topic_id: str = "",
    name: str = "",
    lineage: dict[int, int] | None = None,
    epochs: dict[int, int] | None = None,
    checkpoint: bytes | None = None,
    end_offset: int | None = None,
    aborted: Sequence[Aborted] = (),
    open_transactions: dict[int, int] | None = None,
    event_timestamp_ms: int = FIRST_MS,
    index_interval_bytes: int = 4096,
    indexes: Mapping[IndexType, bytes] | None = None,
) -> Segment:
    """A segment of at least one batch.

    Args:
        log: Its bytes, or its batches.
        topic: With the partition and the topic id (default: made from the topic), whose segment it is.
        partition: See ``topic``.
        topic_id: See ``topic``.
        name: The segment id is made from it; default: the start offset.
        lineage: The leader's whole lineage, epoch to start offset; gives the checkpoint. Default: that of the batches.
        epochs: The segment's own epochs; default: the lineage clipped to the segment, as a broker does.
        checkpoint: Other bytes for the leader-epoch part.
        end_offset: Inclusive; default: the last batch's.
        aborted: The transaction index; without entries there is none.
        open_transactions: Producer id to first offset, for the producer snapshot.
        event_timestamp_ms: When the broker made the metadata: which of two copies is the later one.
        index_interval_bytes: Of the offset and the time index.
        indexes: Other bytes for some of the parts.
    """
    if not isinstance(log, bytes):
        log = b"".join(encode(batch) for batch in log)
    headers = list(_iter_headers(log))
    start = headers[0].base_offset
    end = headers[-1].last_offset if end_offset is None else end_offset
    if lineage is None:
        lineage = {header.leader_epoch: header.base_offset for header in reversed(headers)}
        lineage = ({0: 0} if start and 0 not in lineage else {}) | lineage
    offset_index, time_index = _indexes(headers, index_interval_bytes)
    parts = {
        IndexType.OFFSET: offset_index,
        IndexType.TIMESTAMP: time_index,
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot(open_transactions or {}),
        IndexType.LEADER_EPOCH: leader_epochs(lineage, end + 1) if checkpoint is None else checkpoint,
    }
    if aborted:
        parts[IndexType.TRANSACTION] = b"".join(
            struct.pack(">hqqqq", 0, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
            for e in aborted
        )
    topic_id_partition = TopicIdPartition(Uuid.from_text(topic_id or topic_uuid(topic)), topic, partition)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(topic_id_partition, Uuid.from_text(topic_uuid(f"{topic}/{partition}/{name or start}"))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max(header.max_timestamp_ms for header in headers),
        broker_id=1,
        event_timestamp_ms=event_timestamp_ms,
        segment_size_in_bytes=len(log),
        segment_leader_epochs=clipped(lineage, start, end) if epochs is None else epochs,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=not aborted,
    )
    return Segment(metadata, log, parts | dict(indexes or {}))


def clipped(lineage: dict[int, int], start_offset: int, end_offset: int) -> dict[int, int]:
    """The lineage's epochs inside [start_offset, end_offset], the first one beginning at the segment's start."""
    pairs = sorted(lineage.items())
    ends = [start for _, start in pairs[1:]] + [end_offset + 1]
    return {
        epoch: max(start, start_offset)
        for (epoch, start), end in zip(pairs, ends, strict=True)
        if start <= end_offset and end > start_offset
    }


def leader_epochs(lineage: dict[int, int], end_offset_exclusive: int) -> bytes:
    """The checkpoint's text, up to an offset."""
    pairs = sorted((e, s) for e, s in lineage.items() if s < end_offset_exclusive)
    return f"0\n{len(pairs)}\n".encode() + b"".join(f"{e} {s}\n".encode() for e, s in pairs)


def producer_snapshot(open_transactions: dict[int, int]) -> bytes:
    """A snapshot of producers with an open transaction each, by its first offset."""
    entries = struct.pack(">i", len(open_transactions)) + b"".join(
        struct.pack(">qhiqiqiq", producer, 0, 0, first, 0, 1_700_000_000_000, 7, first)
        for producer, first in open_transactions.items()
    )
    return struct.pack(">hI", 1, crc32c(entries)) + entries


@dataclass(frozen=True)
class _Header:
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    size_bytes: int


def _iter_headers(log: bytes) -> Iterator[_Header]:
    """The headers of batches of magic 2."""
    at = 0
    while at < len(log):
        base, size, epoch = struct.unpack_from(">qii", log, at)
        delta, max_timestamp_ms = struct.unpack_from(">i8xq", log, at + 23)
        yield _Header(base, base + delta, epoch, max_timestamp_ms, size + 12)
        at += size + 12


def _indexes(headers: Sequence[_Header], interval_bytes: int) -> tuple[bytes, bytes]:
    """Offset and time index as LogSegment#append writes them: no entry for the first batch, one on roll."""
    base = headers[0].base_offset
    offsets, times = bytearray(), bytearray()
    position = since = 0
    largest, holder, written = -1, base, -1
    for header in headers:
        if header.max_timestamp_ms > largest:
            largest, holder = header.max_timestamp_ms, header.last_offset
        if since > interval_bytes:
            offsets += struct.pack(">ii", header.last_offset - base, position)
            if largest > written:
                times += struct.pack(">qi", largest, holder - base)
                written = largest
            since = 0
        position += header.size_bytes
        since += header.size_bytes
    if largest > written:
        times += struct.pack(">qi", largest, holder - base)
    return bytes(offsets), bytes(times)


def _places(parts: Mapping[IndexType, bytes]) -> dict[str, dict[str, int]]:
    """Where each part lies in the indexes object."""
    places, at = {}, 0
    for kind, data in parts.items():
        places[_PARTS[kind]] = {"position": at, "size": len(data)}
        at += len(data)
    return places


def _packed(sizes: Sequence[int]) -> str:
    """The plugin's list of chunk sizes: differences to the smallest, four bytes each, the last apart."""
    plain = struct.pack(">i", len(sizes))
    if len(sizes) > 1:
        base = min(sizes[:-1])
        plain += struct.pack(">iB", base, 4) + b"".join(struct.pack(">I", size - base) for size in sizes[:-1])
    plain += struct.pack(">i", sizes[-1])
    return base64.b64encode(zstandard.ZstdCompressor().compress(plain)).decode()


def _metadata_json(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """The metadata as a manifest has them."""
    partition = metadata.topic_id_partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": str(metadata.remote_log_segment_id.id),
        },
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in metadata.segment_leader_epochs.items()},
        "txnIdxEmpty": metadata.txn_idx_empty,
    }
