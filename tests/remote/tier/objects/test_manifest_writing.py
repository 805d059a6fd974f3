"""Manifests as the plugin writes them: the format's vectors, and every golden one from its own parts."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native.chunks import decode_chunk_sizes
from tierlog.errors import SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.tier.chunks.key_ring import KeyRing, SegmentEncryption
from tierlog.remote.tier.objects.manifest import Manifest, parse_manifest
from tierlog.remote.tier.objects.manifest_writing import (
    encode_chunk_sizes,
    encode_manifest,
    pack_chunk_sizes,
    place_indexes,
    rewrap_manifest,
    stored_chunk_index,
)

# Lists that the plugin packed (docs/formats/objects.md, Chunk index).
LISTS = [
    ([10, 20, 30], "000000030000000a01000a0000001e", "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"),
    ([213], "00000001000000d5", "KLUv/SAIQQAAAAAAAQAAANU="),
    ([5, 5, 5, 5], "0000000400000005010000000000 0005", "KLUv/SAQgQAAAAAABAAAAAUBAAAAAAAABQ=="),
    (
        [0, 1000, 2, 44002, 369],
        "0000000500000000020000 03e8 0002 abe2 00000171",
        "KLUv/SAVqQAAAAAABQAAAAACAAAD6AACq+IAAAFx",
    ),
    (
        [1, 265, 275, 285, 2147483647],
        "00000005 00000001 02 0000 0108 0112 011c 7fffffff",
        "KLUv/SAVqQAAAAAABQAAAAECAAABCAESARx/////",
    ),
    ([2147483647, 0, 7], "00000003 00000000 04 7fffffff 00000000 00000007", "KLUv/SAVqQAAAAAAAwAAAAAEf////wAAAAAAAAAH"),
    (
        [30021, 30248, 30108, 30246, 17563],
        "00000005 00007545 01 00 e3 57 e1 0000449b",
        "KLUv/SARiQAAAAAABQAAdUUBAONX4QAARJs=",
    ),
]
# A manifest that the plugin wrote.
_TAIL = (
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ",'
    '"topicPartition":{"topic":"topic","partition":7}},"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":23,'
    '"endOffset":2000,"maxTimestampMs":1700000000123,"brokerId":2,"eventTimestampMs":1700000001456,'
    '"segmentLeaderEpochs":{"0":0,"3":100,"12":500}'
)
PLAIN_38 = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":65536,"originalFileSize":300007,'
    '"transformedChunkSize":65536,"finalTransformedChunkSize":37863},"segmentIndexes":{"offset":{"position":0,'
    '"size":312},"timestamp":{"position":312,"size":348},"producerSnapshot":{"position":660,"size":0},'
    '"leaderEpoch":{"position":660,"size":21},"transaction":{"position":681,"size":34}},"compression":false,'
    + _TAIL
    + "}}"
)
ZSTD_40 = (
    '{"version":"1","chunkIndex":{"type":"variable","originalChunkSize":65536,"originalFileSize":300007,'
    '"transformedChunks":"KLUv/SARiQAAAAAABQAAdUUBAONX4QAARJs="},"segmentIndexes":{"offset":{"position":0,'
    '"size":312},"timestamp":{"position":312,"size":348},"producerSnapshot":{"position":660,"size":0},'
    '"leaderEpoch":{"position":660,"size":21},"transaction":null},"compression":true,'
    + _TAIL
    + ',"txnIdxEmpty":false}}'
)
#: Stored sizes, without encryption, in the order of the indexes object.
SIZES = [
    (IndexType.OFFSET, 312),
    (IndexType.TIMESTAMP, 348),
    (IndexType.PRODUCER_SNAPSHOT, 0),
    (IndexType.LEADER_EPOCH, 21),
]
METADATA = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(
        TopicIdPartition(Uuid.from_text("lZ6vvmajTWKDBUTV6SQAtQ"), "topic", 7),
        Uuid.from_text("adh9f8BMS4anaUnD8KWfWg"),
    ),
    start_offset=23,
    end_offset=2000,
    max_timestamp_ms=1700000000123,
    broker_id=2,
    event_timestamp_ms=1700000001456,
    segment_size_in_bytes=300007,
    segment_leader_epochs={12: 500, 0: 0, 3: 100},
)


def manifest(*, sizes: list[int] | None, encryption: SegmentEncryption | None, transaction: int | None) -> Manifest:
    overhead = 28 if encryption else 0
    stored = [(kind, size + overhead if size else 0) for kind, size in SIZES]
    if transaction is not None:
        stored.append((IndexType.TRANSACTION, transaction + overhead))
    return Manifest(
        chunk_index=stored_chunk_index(
            original_chunk_size=65536,
            original_file_size=300007,
            encrypted=encryption is not None,
            transformed_sizes=sizes,
        ),
        indexes=place_indexes(stored),
        compression=sizes is not None,
        encryption=encryption,
        metadata=METADATA,
    )


class TestVectors:
    """Sections 20.1 and 20.3: computed by the plugin."""

    @pytest.mark.parametrize(("sizes", "binary", "packed"), LISTS)
    def test_chunk_sizes(self, sizes: list[int], binary: str, packed: str) -> None:
        """If this fails, the plugin reads other chunk borders than we wrote."""
        array = np.array(sizes, dtype=np.int32)
        assert encode_chunk_sizes(array) == bytes.fromhex(binary)
        assert pack_chunk_sizes(array) == packed

    def test_plain_with_a_transaction_index(self) -> None:
        """If this fails, the plugin refuses our manifests."""
        found = encode_manifest(manifest(sizes=None, encryption=None, transaction=34), txn_idx_empty_known=False)
        assert found.decode() == PLAIN_38
        assert len(found) == 746

    def test_compressed_without_one(self) -> None:
        """The same for a broker of Kafka 4.0 or later."""
        sizes = [30021, 30248, 30108, 30246, 17563]
        assert encode_manifest(manifest(sizes=sizes, encryption=None, transaction=None)).decode() == ZSTD_40

    def test_encrypted(self) -> None:
        """If this fails, the plugin cuts encrypted chunks and indexes at the wrong places."""
        encryption = SegmentEncryption("k2", bytes(256), bytes(32))
        text = encode_manifest(manifest(sizes=None, encryption=encryption, transaction=34)).decode()
        assert '"transformedChunkSize":65564,"finalTransformedChunkSize":37891}' in text
        assert (
            '"segmentIndexes":{"offset":{"position":0,"size":340},"timestamp":{"position":340,"size":376},'
            '"producerSnapshot":{"position":716,"size":0},"leaderEpoch":{"position":716,"size":49},'
            '"transaction":{"position":765,"size":62}},"compression":false,"encryption":{"dataKey":"k2:' in text
        )
        assert f'"aad":"{base64.b64encode(bytes(32)).decode()}"}},"remoteLogSegmentMetadata"' in text


def test_every_golden_manifest_from_its_own_parts(fixtures: pathlib.Path) -> None:
    """If this fails, what we write is not what the plugin would have written of the same segment."""
    count = 0
    for run in ("main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta"):
        for path in sorted((fixtures / run / "objects").rglob("*.rsm-manifest")):
            stored = path.read_bytes()
            found = parse_manifest(stored, where=str(path))
            assert encode_manifest(found) == stored, path
            count += 1
    assert count > 100


def test_an_empty_log() -> None:
    """If this fails, a segment without batches cannot be copied, or not read again."""
    for sizes in (None, []):
        index = stored_chunk_index(
            original_chunk_size=100, original_file_size=0, encrypted=False, transformed_sizes=sizes
        )
        empty = dataclasses.replace(
            manifest(sizes=None, encryption=None, transaction=None), chunk_index=index, compression=sizes is not None
        )
        data = encode_manifest(empty)
        assert json.loads(data)["chunkIndex"]["originalFileSize"] == 0
        assert parse_manifest(data, where="k").chunk_index.original_file_size == 0


def test_what_the_format_cannot_say_is_refused() -> None:
    """If this fails, a manifest is written that nobody can read, and the segment is lost with its local copy."""
    index = stored_chunk_index(
        original_chunk_size=1 << 20, original_file_size=1 << 31, encrypted=False, transformed_sizes=None
    )
    with pytest.raises(SizeLimitError, match="2147483648"):
        encode_manifest(dataclasses.replace(manifest(sizes=None, encryption=None, transaction=None), chunk_index=index))
    with pytest.raises(SizeLimitError, match=r"larger chunk\.size"):
        pack_chunk_sizes(np.tile(np.array([1 << 25, 1], dtype=np.int32), 1_400_000))


def test_rotation_changes_the_data_key_and_nothing_else(data: pathlib.Path) -> None:
    """If this fails, rotating the keys of a bucket damages its manifests."""
    keys = {key_id: (data / "keys" / key_id / "private.der").read_bytes() for key_id in ("k1", "k2")}
    public = {key_id: (data / "keys" / key_id / "public.der").read_bytes() for key_id in ("k1", "k2")}
    ring = KeyRing(keys, public_keys=public, active_key_id="k2")
    path = next((data / "zstd-aes" / "objects").rglob("*.rsm-manifest"))
    stored = path.read_bytes()
    moved = rewrap_manifest(stored, ring, where=str(path))
    assert moved is not None
    before, after = json.loads(stored), json.loads(moved)
    assert after["encryption"].pop("dataKey").startswith("k2:")
    assert before["encryption"].pop("dataKey").startswith("k1:")
    assert before == after
    assert list(before) == list(after)
    found, was = (parse_manifest(each, where="k").encryption for each in (moved, stored))
    assert found is not None
    assert was is not None
    sealed = ring.cipher(was).encrypt(bytes(12), b"chunk", was.aad)
    assert KeyRing({"k2": keys["k2"]}).cipher(found).decrypt(bytes(12), sealed, found.aad) == b"chunk"
    assert rewrap_manifest(moved, ring, where="k") is None
    assert rewrap_manifest(PLAIN_38.encode(), ring, where="k") is None


@given(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=50))
def test_chunk_sizes_round_trip(sizes: list[int]) -> None:
    """If this fails, chunks of some size are cut at the wrong place."""
    array = np.array(sizes, dtype=np.int32)
    assert decode_chunk_sizes(encode_chunk_sizes(array)).tolist() == sizes
    packed = base64.b64decode(pack_chunk_sizes(array))
    assert zstandard.get_frame_parameters(packed).content_size == len(encode_chunk_sizes(array))
