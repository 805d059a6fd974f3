"""Objects that somebody changed, moved or removed: typed errors, and never other bytes than the broker's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import random

import pytest

from tests.support.fetchers import BATCH_BYTES, FORMS, MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.segments import BucketSegment, make_segment, sound_log, throwaway_keys
from tierlog.errors import (
    CorruptObjectError,
    EncryptionKeyError,
    ObjectNotFoundError,
    SizeLimitError,
    StoreUnavailableError,
    TierlogError,
)
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata


def read_all(
    bucket: MemoryBucket, metadata: RemoteLogSegmentMetadata, keys: KeyRing | None = None, **options: object
) -> bytes:
    with fetcher_over(bucket, keys=keys, **options) as fetcher, fetcher.fetch_log_segment(metadata, 0) as stream:
        return stream.read()


def stored(segment: BucketSegment, suffix: str) -> bytearray:
    return bytearray(segment.objects[f"{segment.base}.{suffix}"])


class TestChangedObjects:
    """An attacker with the right to write to the bucket."""

    @pytest.mark.parametrize("form", ["plain", "aes"])
    def test_swapped_chunks_are_found(self, data: pathlib.Path, form: str) -> None:
        """If this fails, whoever can write to the bucket reorders records, encrypted or not, and nobody notices."""
        segment, keys = segment_of(data, form)
        size = 32_768 + (28 if form == "aes" else 0)
        log = stored(segment, "log")
        log[size : 2 * size], log[3 * size : 4 * size] = log[3 * size : 4 * size], log[size : 2 * size]
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.log": bytes(log)})
        with pytest.raises(CorruptObjectError):
            read_all(bucket, segment.metadata, keys)
        assert read_all(bucket, segment.metadata, keys, fetch_check_batches_enabled="false") != segment.log

    def test_another_segments_objects_are_found(self, data: pathlib.Path) -> None:
        """If this fails, a reader of one segment gets the records of another."""
        segment, _ = segment_of(data, "plain")
        other_log = sound_log(300_000 // BATCH_BYTES, base_offset=10_000, batch_bytes=BATCH_BYTES)
        other = make_segment(other_log).stored(chunk_size=32_768)
        assert len(other.log) == len(segment.log)
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.log": other.objects[f"{other.base}.log"]})
        with pytest.raises(CorruptObjectError, match="another segment"):
            read_all(bucket, segment.metadata)
        bucket = MemoryBucket(
            segment.objects | {f"{segment.base}.rsm-manifest": other.objects[f"{other.base}.rsm-manifest"]}
        )
        with pytest.raises(CorruptObjectError, match="another segment"):
            read_all(bucket, segment.metadata)

    @pytest.mark.few(4)
    @pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
    @pytest.mark.parametrize("form", FORMS)
    def test_flipped_bits_and_cut_objects(self, data: pathlib.Path, form: str, suffix: str) -> None:
        """If this fails, damage ends a reader with a traceback, or reads as data."""
        segment, keys = segment_of(data, form, size_bytes=60_000, chunk_size=8_192)
        chance = random.Random(form + suffix)
        for _ in range(60):
            damaged = stored(segment, suffix)
            if chance.random() < 0.3:
                del damaged[chance.randrange(len(damaged)) :]
            else:
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            bucket = MemoryBucket(segment.objects | {f"{segment.base}.{suffix}": bytes(damaged)})
            with fetcher_over(bucket, keys=keys) as fetcher:
                try:
                    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                        found = stream.read()
                    fetcher.fetch_index(segment.metadata, IndexType.OFFSET).read()
                except TierlogError:
                    continue
            assert found == segment.log or (form == "plain" and suffix == "log" and len(found) == len(segment.log))

    def test_an_index_that_is_damaged_does_not_hide_its_neighbours(self, data: pathlib.Path) -> None:
        """If this fails, one damaged index makes all five unreadable."""
        segment, keys = segment_of(data, "aes")
        indexes = stored(segment, "indexes")
        indexes[20] ^= 1
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.indexes": bytes(indexes)})
        with fetcher_over(bucket, keys=keys) as fetcher:
            assert (
                fetcher.fetch_index(segment.metadata, IndexType.LEADER_EPOCH).read()
                == segment.parts[IndexType.LEADER_EPOCH]
            )
            with pytest.raises(CorruptObjectError, match="not authentic"):
                fetcher.fetch_index(segment.metadata, IndexType.OFFSET)

    def test_a_manifest_of_another_size(self, data: pathlib.Path) -> None:
        """If this fails, a manifest that says less than was copied ends a segment early, without an error."""
        segment, _ = segment_of(data, "plain")
        short = dataclasses.replace(segment.metadata, segment_size_in_bytes=len(segment.log) + 1)
        with pytest.raises(CorruptObjectError, match="its metadata one of"):
            read_all(MemoryBucket(segment.objects), short)

    def test_a_manifest_bomb(self, data: pathlib.Path) -> None:
        """If this fails, one object of a bucket takes a broker's memory."""
        segment, _ = segment_of(data, "plain")
        bomb = b"[" * (17 << 20)
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.rsm-manifest": bomb})
        with pytest.raises(SizeLimitError):
            read_all(bucket, segment.metadata)

    def test_a_chunk_that_is_said_to_be_huge(self, data: pathlib.Path) -> None:
        """If this fails, a chunk of 8 KiB downloads a gigabyte of whatever lies in the object."""
        segment, _ = segment_of(data, "zstd", size_bytes=20_000, chunk_size=20_000)
        manifest = json.loads(stored(segment, "rsm-manifest"))
        manifest["chunkIndex"] |= {
            "type": "fixed",
            "transformedChunkSize": 1 << 30,
            "finalTransformedChunkSize": 1 << 30,
        }
        del manifest["chunkIndex"]["transformedChunks"]
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.rsm-manifest": json.dumps(manifest).encode()})
        with pytest.raises(CorruptObjectError, match="said to be stored"):
            read_all(bucket, segment.metadata)

    def test_the_digest_in_the_metadata_is_the_manifests(self, data: pathlib.Path) -> None:
        """If this fails, ``manifest.digest.enabled`` protects nothing."""
        segment, _ = segment_of(data, "plain")
        manifest = stored(segment, "rsm-manifest")
        custom = SegmentCustomMetadata(manifest_digest=hashlib.sha256(manifest).digest()).encode()
        signed = dataclasses.replace(segment.metadata, custom_metadata=custom)
        assert read_all(MemoryBucket(segment.objects), signed) == segment.log
        forged = MemoryBucket(segment.objects | {f"{segment.base}.rsm-manifest": bytes(manifest) + b" "})
        assert read_all(forged, segment.metadata) == segment.log
        with pytest.raises(CorruptObjectError, match="SHA-256"):
            read_all(forged, signed)

    def test_a_key_that_the_ring_does_not_have(self, data: pathlib.Path) -> None:
        """If this fails, an operator who lost a key cannot tell that from damage."""
        segment, _ = segment_of(data, "aes")
        with pytest.raises(EncryptionKeyError, match="k1"):
            read_all(MemoryBucket(segment.objects), segment.metadata)


class TestPlaces:
    """Where the objects of a segment are."""

    def test_custom_metadata_first_then_the_configured_prefix(self, data: pathlib.Path) -> None:
        """If this fails, segments that were copied before ``key.prefix`` changed are lost, as with the plugin."""
        segment, _ = segment_of(data, "plain", prefix="old/")
        told = dataclasses.replace(
            segment.metadata, custom_metadata=SegmentCustomMetadata(object_prefix="old/").encode()
        )
        wrong = dataclasses.replace(
            segment.metadata, custom_metadata=SegmentCustomMetadata(object_prefix="elsewhere/").encode()
        )
        bucket = MemoryBucket(segment.objects)
        assert read_all(bucket, told, key_prefix="new/") == segment.log
        assert read_all(bucket, wrong, key_prefix="old/") == segment.log
        with pytest.raises(ObjectNotFoundError):
            read_all(bucket, segment.metadata, key_prefix="new/")

    def test_a_key_of_its_own(self, data: pathlib.Path) -> None:
        """If this fails, OBJECT_KEY of the plugin's custom metadata is ignored."""
        segment, _ = segment_of(data, "plain")
        objects = {f"pre/fix/{key.removeprefix(segment.base)[1:]}": data for key, data in segment.objects.items()}
        moved = {key.replace("pre/fix/", "pre/fix."): data for key, data in objects.items()}
        custom = SegmentCustomMetadata(object_prefix="pre/", object_key="fix").encode()
        assert (
            read_all(MemoryBucket(moved), dataclasses.replace(segment.metadata, custom_metadata=custom)) == segment.log
        )

    @pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
    def test_what_is_gone_is_not_found(self, data: pathlib.Path, suffix: str) -> None:
        """If this fails, Kafka retries for ever what is deleted, or takes it for an empty file."""
        segment, _ = segment_of(data, "plain")
        objects = {key: data for key, data in segment.objects.items() if not key.endswith(f".{suffix}")}
        with fetcher_over(MemoryBucket(objects)) as fetcher:
            if suffix != "indexes":
                with pytest.raises(ObjectNotFoundError):
                    fetcher.fetch_log_segment(segment.metadata, 0).read()
            if suffix != "log":
                with pytest.raises(ObjectNotFoundError):
                    fetcher.fetch_index(segment.metadata, IndexType.OFFSET)

    def test_the_masked_prefix_is_in_no_message(self, data: pathlib.Path) -> None:
        """If this fails, ``key.prefix.mask`` does not keep a prefix out of the logs."""
        segment, keys = segment_of(data, "aes", prefix="secret-")
        log = stored(segment, "log")
        log[100] ^= 1
        bucket = MemoryBucket(segment.objects | {f"{segment.base}.log": bytes(log)})
        with pytest.raises(CorruptObjectError) as raised:
            read_all(bucket, segment.metadata, keys, key_prefix="secret-", key_prefix_mask="true")
        assert "secret-" not in str(raised.value)
        assert "<prefix>/" in str(raised.value)


class TestLeaving:
    """Callers that go, and stores that stall."""

    def test_a_late_download_serves_the_retry(self, data: pathlib.Path) -> None:
        """If this fails, each timeout of a broker throws away what was downloaded, and the retry times out too."""
        segment, keys = segment_of(data, "zstd-aes")
        bucket = MemoryBucket(segment.objects)
        bucket.gate.clear()
        with fetcher_over(
            bucket,
            keys=keys,
            fetch_manifest_cache_get_timeout_ms=50,
            fetch_chunk_cache_get_timeout_ms=50,
            fetch_chunk_cache_class="memory",
            fetch_chunk_cache_size=MIB,
            fetch_prefetch_enabled="false",
        ) as fetcher:
            with pytest.raises(StoreUnavailableError, match=r"manifest.*the download goes on"):
                fetcher.fetch_log_segment(segment.metadata, 0, 100)
            bucket.gate.set()
            with fetcher.fetch_log_segment(segment.metadata, 0, 100) as stream:
                stream.read()
            bucket.gate.clear()
            for _ in range(2):
                with (
                    fetcher.fetch_log_segment(segment.metadata, 100_000, 100_100) as stream,
                    pytest.raises(StoreUnavailableError, match="the download goes on"),
                ):
                    stream.read()
            bucket.gate.set()
            with fetcher.fetch_log_segment(segment.metadata, 100_000, 100_100) as stream:
                assert stream.read() == segment.log[100_000:100_101]
        assert len(bucket.asked("rsm-manifest")) == 1
        assert len(bucket.asked("log")) == 2

    def test_a_failure_is_kept_for_nobody(self, data: pathlib.Path) -> None:
        """If this fails, one reset of a connection makes a chunk unreadable until a restart."""
        segment, keys = segment_of(data, "zstd")
        bucket = MemoryBucket(segment.objects)
        bucket.failures = {
            "rsm-manifest": [StoreUnavailableError("reset")],
            "log": [StoreUnavailableError("reset")],
            "indexes": [StoreUnavailableError("reset")],
        }
        with fetcher_over(bucket, keys=keys, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=MIB) as fetcher:
            for _ in range(2):
                with pytest.raises(StoreUnavailableError, match="reset"):
                    fetcher.fetch_log_segment(segment.metadata, 0).read()
            with pytest.raises(StoreUnavailableError, match="reset"):
                fetcher.fetch_index(segment.metadata, IndexType.OFFSET)
            with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                assert stream.read() == segment.log
            assert (
                fetcher.fetch_index(segment.metadata, IndexType.LEADER_EPOCH).read()
                == segment.parts[IndexType.LEADER_EPOCH]
            )

    def test_forgetting_a_deleted_segment(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, a deleted segment is served from caches for an hour, as by the plugin."""
        segment, keys = segment_of(data, "zstd")
        for cache, more in (("memory", {}), ("disk", {"fetch_chunk_cache_path": tmp_path})):
            bucket = MemoryBucket(dict(segment.objects))
            with fetcher_over(
                bucket, keys=keys, fetch_chunk_cache_class=cache, fetch_chunk_cache_size=MIB, **more
            ) as fetcher:
                with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                    stream.read()
                fetcher.fetch_index(segment.metadata, IndexType.OFFSET)
                bucket.objects.clear()
                fetcher.forget(segment.metadata)
                with pytest.raises(ObjectNotFoundError):
                    fetcher.fetch_log_segment(segment.metadata, 0)
                with pytest.raises(ObjectNotFoundError):
                    fetcher.fetch_index(segment.metadata, IndexType.OFFSET)


def test_a_store_that_stops_halfway_ends_with_an_error(data: pathlib.Path) -> None:
    """If this fails, a consumer takes a failed download for the end of a segment."""
    log = sound_log(12 * MIB // BATCH_BYTES, batch_bytes=BATCH_BYTES)
    segment = make_segment(log).stored(chunk_size=MIB, key_ring=throwaway_keys(data))
    bucket = MemoryBucket(segment.objects)
    with (
        fetcher_over(bucket, keys=throwaway_keys(data)) as fetcher,
        fetcher.fetch_log_segment(segment.metadata, 0) as stream,
    ):
        assert len(stream.read(MIB)) == MIB
        bucket.failures["log"] = [StoreUnavailableError("gone")] * 10
        with pytest.raises(StoreUnavailableError, match="gone"):
            stream.read()
