"""Synthetic buckets in the Aiven layout, from scripted batches: branches, duplicates, transactions, damage.

The fixtures hold what real systems wrote; these buckets hold what real systems write only after bad luck.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.batches import Batch, crc32c, encode
from tierlog.remote.tier.chunks.key_ring import KeyRing

#: What AES-GCM adds to a chunk: nonce and tag.
_SEAL_BYTES = 28


def topic_uuid(name: str) -> str:
    """A Kafka Uuid in its text form, the same for the same name."""
    return base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, name).bytes).decode().rstrip("=")


def message(offset: int, value: str, epoch: int) -> Batch:
    """``o:mN/E`` of the KIP's scripts: one record in a batch of its own."""
    return Batch(offset, (value.encode(),), epoch, timestamp_ms=1_700_000_000_000 + 1000 * offset)


@dataclass(frozen=True)
class Aborted:
    """An entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass
class Bucket:
    """Writes segments below ``root`` as the plugin does without transforms: .log, .indexes, manifest last."""

    root: pathlib.Path
    topic: str = "orders"
    partition: int = 0
    topic_id: str = ""
    prefix: str = ""
    chunk_size: int = 1 << 16
    index_interval_bytes: int = 0
    keys: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topic_id = self.topic_id or topic_uuid(self.topic)

    def segment(
        self,
        name: str,
        batches: Sequence[Batch],
        *,
        lineage: dict[int, int],
        epochs: dict[int, int] | None = None,
        checkpoint: bytes | None = None,
        end_offset: int | None = None,
        aborted: Sequence[Aborted] = (),
        open_transactions: dict[int, int] | None = None,
        event_timestamp_ms: int = 0,
    ) -> str:
        """Writes one segment and returns its key without the suffix.

        Args:
            name: Its segment id is made from it.
            batches: At least one.
            lineage: The leader's whole lineage, epoch to start offset; gives the checkpoint.
            epochs: The segment's own epochs; default: the lineage clipped to the segment, as a broker does.
            checkpoint: Other bytes for the leader-epoch part.
            end_offset: Inclusive; default: the last batch's.
            aborted: The transaction index; without entries there is none.
            open_transactions: Producer id to first offset, for the producer snapshot.
            event_timestamp_ms: When the broker made the metadata: which of two copies is the later one.
        """
        start = batches[0].base_offset
        end = batches[-1].last_offset if end_offset is None else end_offset
        encoded = [encode(batch) for batch in batches]
        log = b"".join(encoded)
        offset_index, time_index = _indexes(batches, [len(each) for each in encoded], self.index_interval_bytes)
        parts = {
            "offset": offset_index,
            "timestamp": time_index,
            "producerSnapshot": producer_snapshot(open_transactions or {}),
            "leaderEpoch": leader_epochs(lineage, end + 1) if checkpoint is None else checkpoint,
            "transaction": b"".join(
                struct.pack(">hqqqq", 0, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
                for e in aborted
            ),
        }
        segment_id = topic_uuid(f"{self.topic}/{self.partition}/{name}")
        key = f"{self.prefix}{self.topic}-{self.topic_id}/{self.partition}/{start:020d}-{segment_id}"
        positions, at = {}, 0
        for part, data in parts.items():
            positions[part] = {"position": at, "size": len(data)}
            at += len(data)
        last_chunk = len(log) - (max(len(log) - 1, 0) // self.chunk_size) * self.chunk_size
        manifest = {
            "version": "1",
            "chunkIndex": {
                "type": "fixed",
                "originalChunkSize": self.chunk_size,
                "originalFileSize": len(log),
                "transformedChunkSize": self.chunk_size,
                "finalTransformedChunkSize": last_chunk,
            },
            "segmentIndexes": {**positions, "transaction": positions["transaction"] if aborted else None},
            "compression": False,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {
                    "topicIdPartition": {
                        "topicId": self.topic_id,
                        "topicPartition": {"topic": self.topic, "partition": self.partition},
                    },
                    "id": segment_id,
                },
                "startOffset": start,
                "endOffset": end,
                "maxTimestampMs": max(batch.max_timestamp_ms for batch in batches),
                "brokerId": 1,
                "eventTimestampMs": event_timestamp_ms,
                "segmentLeaderEpochs": {
                    str(epoch): offset
                    for epoch, offset in (clipped(lineage, start, end) if epochs is None else epochs).items()
                },
                "txnIdxEmpty": not aborted,
            },
        }
        self._write(key + ".log", log)
        self._write(key + ".indexes", b"".join(parts.values()))
        self._write(key + ".rsm-manifest", json.dumps(manifest, separators=(",", ":")).encode())
        self.keys[name] = key
        return key

    def path(self, name: str, suffix: str) -> pathlib.Path:
        """The file of a segment's object: suffix "log", "indexes" or "rsm-manifest"."""
        return self.root / f"{self.keys[name]}.{suffix}"

    def compress(self, name: str, chunk_size: int) -> None:
        """Rewrites a segment's log as zstd chunks with a list of their sizes, as the plugin's compression does."""
        log = self.path(name, "log").read_bytes()
        compressor = zstandard.ZstdCompressor(level=1)
        chunks = [compressor.compress(log[at : at + chunk_size]) for at in range(0, len(log), chunk_size)]
        manifest = json.loads(self.path(name, "rsm-manifest").read_bytes())
        manifest["compression"] = True
        manifest["chunkIndex"] = {
            "type": "variable",
            "originalChunkSize": chunk_size,
            "originalFileSize": len(log),
            "transformedChunks": _packed([len(chunk) for chunk in chunks]),
        }
        self._write(self.keys[name] + ".log", b"".join(chunks))
        self._write(self.keys[name] + ".rsm-manifest", json.dumps(manifest).encode())

    def encrypt(self, name: str, key_ring: KeyRing) -> None:
        """Rewrites a plain segment as the plugin's encryption stores it, under a data key of its own."""
        manifest = json.loads(self.path(name, "rsm-manifest").read_bytes())
        key = key_ring.new_segment_key()

        def sealed(data: bytes) -> bytes:
            nonce = os.urandom(12)
            return nonce + AESGCM(key.data_key).encrypt(nonce, data, key.encryption.aad)

        log, size = self.path(name, "log").read_bytes(), self.chunk_size
        chunks = [sealed(log[at : at + size]) for at in range(0, len(log), size)]
        index = manifest["chunkIndex"]
        index |= {"transformedChunkSize": size + _SEAL_BYTES, "finalTransformedChunkSize": len(chunks[-1])}
        plain, parts, at = self.path(name, "indexes").read_bytes(), [], 0
        for place in filter(None, manifest["segmentIndexes"].values()):
            part = plain[place["position"] : place["position"] + place["size"]]
            parts.append(sealed(part) if part else b"")
            place |= {"position": at, "size": len(parts[-1])}
            at += len(parts[-1])
        wrapped = base64.b64encode(key.encryption.wrapped_key).decode()
        manifest["encryption"] = {
            "dataKey": f"{key.encryption.key_id}:{wrapped}",
            "aad": base64.b64encode(key.encryption.aad).decode(),
        }
        self._write(self.keys[name] + ".log", b"".join(chunks))
        self._write(self.keys[name] + ".indexes", b"".join(parts))
        self._write(self.keys[name] + ".rsm-manifest", json.dumps(manifest).encode())

    def _write(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _packed(sizes: Sequence[int]) -> str:
    """The plugin's list of chunk sizes (at least two): differences to the smallest, four bytes each, the last apart."""
    base = min(sizes[:-1])
    deltas = b"".join(struct.pack(">I", size - base) for size in sizes[:-1])
    plain = struct.pack(">iiB", len(sizes), base, 4) + deltas + struct.pack(">i", sizes[-1])
    return base64.b64encode(zstandard.ZstdCompressor().compress(plain)).decode()


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
    pairs = sorted((e, s) for e, s in lineage.items() if s < end_offset_exclusive)
    return f"0\n{len(pairs)}\n".encode() + b"".join(f"{e} {s}\n".encode() for e, s in pairs)


def producer_snapshot(open_transactions: dict[int, int]) -> bytes:
    entries = struct.pack(">i", len(open_transactions)) + b"".join(
        struct.pack(">qhiqiqiq", producer, 0, 0, first, 0, 1_700_000_000_000, 7, first)
        for producer, first in open_transactions.items()
    )
    return struct.pack(">hI", 1, crc32c(entries)) + entries


def _indexes(batches: Sequence[Batch], sizes: Sequence[int], interval_bytes: int) -> tuple[bytes, bytes]:
    """Offset and time index as LogSegment#append writes them: no entry for the first batch, one on roll."""
    base = batches[0].base_offset
    offsets, times = bytearray(), bytearray()
    position = since = 0
    largest, holder, written = -1, base, -1
    for batch, size in zip(batches, sizes, strict=True):
        if batch.max_timestamp_ms > largest:
            largest, holder = batch.max_timestamp_ms, batch.last_offset
        if since > interval_bytes:
            offsets += struct.pack(">ii", batch.last_offset - base, position)
            if largest > written:
                times += struct.pack(">qi", largest, holder - base)
                written = largest
            since = 0
        position += size
        since += size
    if largest > written:
        times += struct.pack(">qi", largest, holder - base)
    return bytes(offsets), bytes(times)
