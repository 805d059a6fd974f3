"""Segments of any size and transform as objects of a store, with the metadata that a metadata manager would have.

Made by the packages that the plugin's own libraries stand for (zstandard, cryptography), not by the code under test.
"""

from __future__ import annotations

import os
import pathlib
import random
import struct
import threading
from dataclasses import dataclass, field

import numpy as np
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typing_extensions import Buffer

from tests.support.buckets import topic_uuid
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import ObjectNotFoundError
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.remote.tier.objects.manifest import Manifest
from tierlog.remote.tier.objects.manifest_writing import encode_manifest, place_indexes, stored_chunk_index

RECORDS_PER_BATCH = 10
#: Beside the log; the transaction index is left out.
INDEXES = {
    IndexType.OFFSET: b"offsets!" * 20,
    IndexType.TIMESTAMP: b"timestamps!!" * 20,
    IndexType.PRODUCER_SNAPSHOT: b"",
    IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
}


def throwaway_keys(data: pathlib.Path) -> KeyRing:
    """A ring that writes with the pair k1 of the golden data."""
    folder = data / "keys" / "k1"
    private, public = (folder / "private.der").read_bytes(), (folder / "public.der").read_bytes()
    return KeyRing({"k1": private}, public_keys={"k1": public}, active_key_id="k1")


def sound_log(size_bytes: int, *, start_offset: int = 0, batch_bytes: int = 4096) -> tuple[bytes, int]:
    """Record batches of about this size in all, half compressible, and the last offset; base offsets are not under the
    checksum, so that one batch serves for all.
    """
    chance = random.Random(size_bytes)
    builder = RecordBatchBuilder(base_offset=0)
    value = batch_bytes // RECORDS_PER_BATCH // 2
    for number in range(RECORDS_PER_BATCH):
        builder.append(None, chance.randbytes(value) + b"v" * value, timestamp_ms=1_700_000_000_000 + number)
    batch = np.frombuffer(builder.build(), np.uint8)
    count = max(1, size_bytes // len(batch))
    log = np.tile(batch, (count, 1))
    offsets = start_offset + np.arange(count, dtype=np.int64) * RECORDS_PER_BATCH
    log[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(count, 8)
    return log.tobytes(), int(offsets[-1]) + RECORDS_PER_BATCH - 1


@dataclass
class Segment:
    """One segment: its objects by key."""

    metadata: RemoteLogSegmentMetadata
    log: bytes
    objects: dict[str, bytes]
    base: str


def make_segment(
    log: bytes,
    *,
    end_offset: int,
    start_offset: int = 0,
    chunk_size: int = 4 << 20,
    compression: bool = False,
    key_ring: KeyRing | None = None,
    prefix: str = "",
    name: str = "a",
    topic: str = "orders",
    indexes: dict[IndexType, bytes] | None = None,
    custom_metadata: bytes | None = None,
) -> Segment:
    """A segment as the plugin stores it; encrypted if a ring is given."""
    partition = TopicIdPartition(Uuid.from_text(topic_uuid(topic)), topic, 0)
    segment_id = RemoteLogSegmentId(partition, Uuid.from_text(topic_uuid(f"{topic}/{name}/{start_offset}")))
    metadata = RemoteLogSegmentMetadata(
        segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=1_700_000_000_009,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_in_bytes=len(log),
        segment_leader_epochs={0: start_offset},
        custom_metadata=custom_metadata,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=True,
    )
    key = key_ring.new_segment_key() if key_ring else None

    def transform(plain: bytes, *, compress: bool) -> bytes:
        stored = zstandard.ZstdCompressor(level=1).compress(plain) if compress else plain
        if key is None:
            return stored
        iv = os.urandom(12)
        return iv + AESGCM(key.data_key).encrypt(iv, stored, key.encryption.aad)

    chunks = [transform(log[at : at + chunk_size], compress=compression) for at in range(0, len(log), chunk_size)]
    parts = {k: transform(d, compress=False) if d else b"" for k, d in (indexes or INDEXES).items()}
    manifest = Manifest(
        chunk_index=stored_chunk_index(
            original_chunk_size=chunk_size,
            original_file_size=len(log),
            encrypted=key is not None,
            transformed_sizes=[len(chunk) for chunk in chunks] if compression else None,
        ),
        indexes=place_indexes((kind, len(data)) for kind, data in parts.items()),
        compression=compression,
        encryption=key.encryption if key else None,
        metadata=metadata,
    )
    base = f"{prefix}{topic}-{partition.topic_id}/0/{start_offset:020d}-{segment_id.id}"
    objects = {
        f"{base}.log": b"".join(chunks),
        f"{base}.indexes": b"".join(parts.values()),
        f"{base}.rsm-manifest": encode_manifest(manifest),
    }
    return Segment(metadata, log, objects, base)


@dataclass
class Bucket:
    """Objects in memory behind the reading half of ObjectStore; by default as if behind a network.

    Attributes:
        gets: (suffix, start, end) of every request.
        gate: Closed, requests wait at it.
        failures: Errors that the next requests of a suffix raise, one each.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    is_local: bool = False
    gets: list[tuple[str, int, int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    failures: dict[str, list[BaseException]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.set()

    def add(self, segment: Segment) -> Segment:
        self.objects.update(segment.objects)
        return segment

    def asked(self, suffix: str) -> list[tuple[int, int]]:
        return [(start, end) for found, start, end in self.gets if found == suffix]

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        suffix = key.rpartition(".")[2]
        self.gets.append((suffix, start_position, end_position_exclusive))
        assert self.gate.wait(LIMIT_SECONDS)
        if self.failures.get(suffix):
            raise self.failures[suffix].pop(0)
        if key not in self.objects:
            raise ObjectNotFoundError(f"memory/{key}: not found")
        return memoryview(self.objects[key])[start_position:end_position_exclusive]

    def fetch(self, key: str) -> Buffer:
        return self.fetch_range(key, start_position=0, end_position_exclusive=1 << 40)


def chunk_key(fetcher: SegmentFetcher, metadata: RemoteLogSegmentMetadata, number: int = 0) -> ChunkKey:
    """What a chunk is called in caches, of a segment whose manifest the fetcher has."""
    found = fetcher._manifests.find(metadata)
    assert found is not None
    log = found.log
    return log.key(log.views(0, log.size_bytes)[number])


def batch_count(log: bytes) -> int:
    """Of ``sound_log``."""
    return len(log) // (struct.unpack_from(">i", log, 8)[0] + 12)
