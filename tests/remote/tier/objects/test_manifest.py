"""The manifest: the format's own vectors, what is accepted beyond the plugin, and hostile JSON."""

from __future__ import annotations

import base64
import copy
import json
import struct

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tierlog.errors import CorruptDataError, CorruptObjectError, SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentState
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, Manifest, parse_manifest

PLAIN = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":65536,"originalFileSize":300007,'
    '"transformedChunkSize":65536,"finalTransformedChunkSize":37863},"segmentIndexes":{"offset":{"position":0,'
    '"size":312},"timestamp":{"position":312,"size":348},"producerSnapshot":{"position":660,"size":0},'
    '"leaderEpoch":{"position":660,"size":21},"transaction":{"position":681,"size":34}},"compression":false,'
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ",'
    '"topicPartition":{"topic":"topic","partition":7}},"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":23,'
    '"endOffset":2000,"maxTimestampMs":1700000000123,"brokerId":2,"eventTimestampMs":1700000001456,'
    '"segmentLeaderEpochs":{"0":0,"3":100,"12":500}}}'
)
#: values → transformedChunks: packed by the plugin.
CHUNK_LISTS = [
    ([10, 20, 30], "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"),
    ([213], "KLUv/SAIQQAAAAAAAQAAANU="),
    ([5, 5, 5, 5], "KLUv/SAQgQAAAAAABAAAAAUBAAAAAAAABQ=="),
    ([30021, 30248, 30108, 30246, 17563], "KLUv/SARiQAAAAAABQAAdUUBAONX4QAARJs="),
]


def parse(document: object) -> Manifest:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_manifest(data, where="the/key.rsm-manifest")


def plain() -> dict[str, object]:
    return copy.deepcopy(json.loads(PLAIN))


def variable(chunk_size: int, file_size: int, transformed: str) -> dict[str, object]:
    return plain() | {
        "compression": True,
        "chunkIndex": {
            "type": "variable",
            "originalChunkSize": chunk_size,
            "originalFileSize": file_size,
            "transformedChunks": transformed,
        },
    }


def encrypted() -> dict[str, object]:
    document = plain()
    document["chunkIndex"] |= {"transformedChunkSize": 65564, "finalTransformedChunkSize": 37891}
    document["segmentIndexes"]["leaderEpoch"]["size"] = 49
    key = base64.b64encode(bytes(range(256))).decode()
    return document | {"encryption": {"dataKey": f"k2:{key}", "aad": base64.b64encode(bytes(32)).decode()}}


class TestVectors:
    """What the plugin writes."""

    def test_plain(self) -> None:
        """If this fails, the commonest manifest is read wrong."""
        found = parse(PLAIN.encode())
        assert found.chunk_index.chunk_count == 5
        assert found.chunk_index.object_size_bytes == 300007
        assert not found.compression
        assert found.encryption is None
        assert (IndexType.TRANSACTION, 681, 34) in found.indexes
        assert found.metadata is not None
        assert str(found.metadata.remote_log_segment_id) == "topic-7/adh9f8BMS4anaUnD8KWfWg"
        assert (found.metadata.start_offset, found.metadata.end_offset) == (23, 2000)
        assert found.metadata.segment_leader_epochs == {0: 0, 3: 100, 12: 500}
        assert found.metadata.segment_size_in_bytes == 300007
        assert found.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    @pytest.mark.parametrize(("sizes", "packed"), CHUNK_LISTS)
    def test_chunk_lists(self, sizes: list[int], packed: str) -> None:
        """If this fails, compressed segments are cut at the wrong bytes."""
        found = parse(variable(1000, 1000 * len(sizes) - 1, packed)).chunk_index
        views = found.views(0, found.original_file_size)
        assert views["transformed_size"].tolist() == sizes
        assert found.object_size_bytes == sum(sizes)

    def test_encrypted(self) -> None:
        """If this fails, encrypted segments cannot be opened."""
        found = parse(encrypted())
        assert found.encryption is not None
        assert found.encryption.key_id == "k2"
        assert found.encryption.wrapped_key == bytes(range(256))
        assert found.encryption.aad == bytes(32)
        assert "AAA" not in repr(found.encryption)
        assert found.chunk_index.object_size_bytes == 300007 + 5 * 28


class TestLeniency:
    """What we read and the plugin does not, or what it reads in spite of its own writer."""

    @pytest.mark.parametrize(
        "change",
        [
            {"anything": [1, {"two": 3}]},
            {"version": 1},
            {"encryption": None},
            {"remoteLogSegmentMetadata": {"whatever": 1}},
            {"remoteLogSegmentMetadata": 7},
        ],
    )
    def test_additions_and_omissions(self, change: dict[str, object]) -> None:
        """If this fails, a segment that a later plugin or another writer stored is unreadable."""
        assert parse(plain() | change).chunk_index.original_file_size == 300007

    def test_a_missing_description_is_no_fault(self) -> None:
        """If this fails, segments of writers that leave the description out are lost."""
        document = plain()
        del document["remoteLogSegmentMetadata"]
        assert parse(document).metadata is None

    @pytest.mark.parametrize("transaction", [None, "left out"])
    def test_no_transaction_index(self, transaction: str | None) -> None:
        """If this fails, segments without transactions do not read."""
        document = plain()
        if transaction is None:
            document["segmentIndexes"]["transaction"] = None
        else:
            del document["segmentIndexes"]["transaction"]
        assert IndexType.TRANSACTION not in [kind for kind, _, _ in parse(document).indexes]

    def test_white_space_and_bytes_behind(self) -> None:
        """If this fails, a manifest that was edited by hand does not read although the plugin reads it."""
        assert parse(b"\n  " + PLAIN.encode() + b"  trailing }").metadata is not None

    def test_what_kafka_4_adds(self) -> None:
        """If this fails, every segment costs a request for a transaction index that it does not have."""
        document = plain()
        document["remoteLogSegmentMetadata"] |= {"txnIdxEmpty": True}
        metadata = parse(document).metadata
        assert metadata is not None
        assert metadata.txn_idx_empty

    def test_what_kafka_3_does_not_say(self) -> None:
        """If this fails, a bucket of a broker before 4.0 reads differently once Tierlog has written to it."""
        without, with_it = plain(), plain()
        assert without["remoteLogSegmentMetadata"].pop("txnIdxEmpty", None) is not True
        with_it["remoteLogSegmentMetadata"] |= {"txnIdxEmpty": False}
        assert parse(without).metadata is not None
        assert parse(without).metadata == parse(with_it).metadata
        assert parse(without).indexes == parse(with_it).indexes


class TestHostile:
    """A bucket is untrusted input."""

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"version": "2"}, "version"),
            ({"version": True}, "version"),
            ({"version": 1.0}, "version"),
            ({"compression": "false"}, "compression"),
            ({"segmentIndexes": []}, "segmentIndexes"),
            ({"encryption": {"dataKey": "a:b:c", "aad": "AA=="}}, "dataKey"),
            ({"encryption": {"dataKey": ":AAAA", "aad": "AA=="}}, "dataKey"),
            ({"encryption": {"dataKey": "k:AAAA", "aad": "AA=="}}, "aad"),
            ({"encryption": {"dataKey": "k:AAAA", "aad": "A\u00e9=="}}, "aad"),
        ],
    )
    def test_wrong_members_are_named(self, change: dict[str, object], told: str) -> None:
        """If this fails, an operator is not told what is wrong with the manifest, or is told by a traceback."""
        with pytest.raises(CorruptObjectError, match=told) as caught:
            parse(plain() | change)
        assert "the/key.rsm-manifest" in str(caught.value)

    @pytest.mark.parametrize("number", ["1e3", "65536.0", "true", "9" * 5000, "2147483648", "-1", '"7"', "null", "NaN"])
    def test_numbers_that_are_none(self, number: str) -> None:
        """If this fails, a lying number becomes a size."""
        text = PLAIN.replace('"originalFileSize":300007', f'"originalFileSize":{number}')
        with pytest.raises(CorruptObjectError):
            parse(text.encode())

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    def test_depth(self, opening: str) -> None:
        """If this fails, a manifest of brackets ends the process."""
        with pytest.raises(CorruptObjectError):
            parse(opening.encode() * 200_000)

    def test_size(self) -> None:
        """If this fails, an endless manifest is parsed in memory."""
        with pytest.raises(SizeLimitError):
            parse(b" " * (MANIFEST_BYTES_MAX + 1))

    @pytest.mark.parametrize("declares", [True, False])
    def test_a_bomb_in_the_chunk_list(self, declares: bool) -> None:
        """If this fails, a manifest of a few kilobytes fills the memory."""
        compressor = zstandard.ZstdCompressor(write_content_size=declares)
        packed = base64.b64encode(compressor.compress(bytes(64 << 20))).decode()
        with pytest.raises(SizeLimitError if declares else CorruptObjectError):
            parse(variable(1, 64 << 20, packed))

    def test_a_frame_that_lies_about_its_size(self) -> None:
        """If this fails, the chunk list is read short or over its end."""
        frame = bytearray(zstandard.ZstdCompressor().compress(struct.pack(">ii", 1, 213)))
        frame[5] = 200  # single segment, one byte of content size
        with pytest.raises(CorruptObjectError):
            parse(variable(1000, 999, base64.b64encode(bytes(frame)).decode()))

    @pytest.mark.parametrize("junk", [b"junk", b"\0", zstandard.ZstdCompressor().compress(b"\0" * 16)])
    def test_what_lies_behind_the_frame_is_damage(self, junk: bytes) -> None:
        """If this fails, a manifest that somebody changed is read as if it were whole."""
        frame = base64.b64decode(CHUNK_LISTS[0][1])
        parse(variable(100, 250, base64.b64encode(frame).decode()))
        with pytest.raises(CorruptObjectError, match=r"corrupt zstd frame|left over"):
            parse(variable(100, 250, base64.b64encode(frame + junk).decode()))

    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=1, max_size=4))
    def test_any_damage_is_a_typed_error_or_reads(self, position: int, junk: bytes) -> None:
        """If this fails, one flipped byte in a manifest is a traceback."""
        data = PLAIN.encode()
        places: list[str] = []
        try:
            parse(data[:position] + junk + data[position + len(junk) :])
        except CorruptDataError as error:
            places.append(error.where)
        assert places in ([], ["the/key.rsm-manifest"])


@pytest.mark.parametrize("document", [plain(), encrypted()], ids=["plain", "encrypted"])
def test_no_flipped_bit_hides_a_member(document: dict[str, object]) -> None:
    """If this fails, a damaged name makes encrypted bytes pass for an index, or hides that records were aborted."""
    sound, data = parse(document), bytearray(json.dumps(document).encode())
    read = 0
    for position in range(len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            try:
                found = parse(bytes(data))
            except CorruptDataError:
                pass
            else:
                read += 1
                assert (found.encryption is None) == (sound.encryption is None)
                assert [kind for kind, _, _ in found.indexes] == [kind for kind, _, _ in sound.indexes]
            data[position] ^= 1 << bit
    assert read > 100  # numbers and ids that are others: authentication and checksums find those
