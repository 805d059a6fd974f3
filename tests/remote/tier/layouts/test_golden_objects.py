"""Every golden bucket written again by us, from the bytes that the broker had: the plugin's objects must come out."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.golden import config_of
from tierlog._native.codecs import library_version
from tierlog.remote.api import IndexType
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.remote.tier.chunks.key_ring import SegmentEncryption, SegmentKey, read_key_ring
from tierlog.remote.tier.layouts.segment_objects import AivenObjects, StoredLog
from tierlog.remote.tier.objects.manifest import Manifest, parse_manifest
from tierlog.runtime.machine import Machine

RUNS = ["main-plain", "zstd", "aes", "zstd-aes", "custom-meta", "heuristic", "plain-4m"]
COMMITTED_RUNS = ["main-plain", "zstd-aes"]
ZSTD = 4
#: The plugin used libzstd 1.5.7; others may pack otherwise, and then what is unpacked is compared.
SAME_ZSTD = library_version(ZSTD) == "1.5.7"


def write_again(
    tier: Tier, segment: StoredSegment, config: StorageConfig, key: SegmentKey | None
) -> tuple[AivenObjects, bytes, bytes]:
    """(plan, log object, manifest), as a copy would store them."""
    log = b"".join(bytes(window) for _, window in tier.iter_log_windows(segment))
    parts = {kind: data for kind in IndexType if (data := tier.fetch_index(segment, kind)) is not None}
    plan = AivenObjects(
        config,
        segment.metadata,
        {kind: bytes(data) for kind, data in parts.items()},
        compression=segment.compression,
        segment_key=key,
        rng=Machine().rng,
    )
    stored = b"".join(chunks := list(iter_chunks(plan, log, config.chunk_size)))
    sizes = [len(chunk) for chunk in chunks] if segment.compression else None
    return plan, stored, plan.description(StoredLog(len(stored), sizes))


def iter_chunks(plan: AivenObjects, log: bytes, chunk_size: int) -> Iterator[bytes]:
    for start in range(0, len(log), chunk_size):
        chunk = log[start : start + chunk_size]
        if plan.assembler is None:
            yield chunk
            continue
        out = bytearray(plan.assembler.stored_bound(len(chunk)))
        yield bytes(out[: plan.assembler.transform(chunk, out, iv=plan.new_iv())])


def members_of(manifest: bytes, *, same_codec: bool) -> dict[str, object]:
    """Members but for what is drawn by chance, and what an older libzstd packs otherwise."""
    members: dict[str, object] = json.loads(manifest)
    if "encryption" in members:
        members["encryption"] = sorted(members["encryption"])  # type: ignore[call-overload]
    if not same_codec:
        assert members["chunkIndex"].pop("transformedChunks")  # type: ignore[attr-defined]
    return members


def opener_of(cipher: AESGCM | None, encryption: SegmentEncryption | None) -> Callable[[bytes], bytes]:
    if cipher is None or encryption is None:
        return lambda unit: unit
    return lambda unit: cipher.decrypt(unit[:12], unit[12:], encryption.aad)


def units_of(manifest: Manifest, log: bytes, indexes: bytes) -> list[bytes]:
    """The stored chunks and indexes, each by itself."""
    size = manifest.chunk_index.original_file_size
    places = [(int(v["transformed_position"]), int(v["transformed_size"])) for v in manifest.chunk_index.views(0, size)]
    chunks = [log[position : position + size] for position, size in places]
    return chunks + [indexes[position : position + size] for _, position, size in manifest.indexes if size]


def check_segment(run: pathlib.Path, tier: Tier, segment: StoredSegment, config: StorageConfig) -> None:
    objects = run / "objects"
    ring = read_key_ring(config, Machine(), writing=True)
    key = ring.new_segment_key() if config.encryption_enabled else None
    assert (key is not None) == (segment.encryption is not None)
    plan, log, manifest = write_again(tier, segment, config, key)
    assert plan.log_key == segment.log.key
    assert plan.description_key == segment.log.key.removesuffix("log") + "rsm-manifest"
    ((indexes_key, indexes),) = plan.small_objects()
    theirs = (objects / plan.description_key).read_bytes()
    their_log, their_indexes = (objects / plan.log_key).read_bytes(), (objects / indexes_key).read_bytes()
    same_codec = not segment.compression or SAME_ZSTD
    assert members_of(manifest, same_codec=same_codec) == members_of(theirs, same_codec=same_codec)
    assert list(json.loads(manifest)) == list(json.loads(theirs))
    assert len(indexes) == len(their_indexes)
    if key is None and same_codec:
        assert (manifest, log, indexes) == (theirs, their_log, their_indexes)
        return
    mine = units_of(parse_manifest(manifest, where="mine"), log, indexes)
    other = units_of(parse_manifest(theirs, where="theirs"), their_log, their_indexes)
    open_mine = opener_of(ring.cipher(key.encryption) if key else None, key.encryption if key else None)
    open_other = opener_of(
        tier._key_ring.cipher(segment.encryption) if segment.encryption else None, segment.encryption
    )
    for place, (unit, their_unit) in enumerate(zip(mine, other, strict=True)):
        plain, their_plain = open_mine(unit), open_other(their_unit)
        is_frame = segment.compression and place < len(mine) - sum(1 for _, part in segment.parts if part.size_bytes)
        if not is_frame or same_codec:
            assert plain == their_plain
            continue
        frame, their_frame = (zstandard.get_frame_parameters(each) for each in (plain, their_plain))
        assert (frame.content_size, frame.has_checksum) == (their_frame.content_size, their_frame.has_checksum)
        assert zstandard.decompress(plain) == zstandard.decompress(their_plain)
    assert len(log) <= 1.005 * len(their_log) + 16 * len(mine)


def check_run(run: pathlib.Path) -> None:
    given = config_of(run)
    config = read_storage_config(given)
    count = 0
    with open_tier(str(run / "objects"), config=given) as tier:
        for segment in tier.iter_segments():
            check_segment(run, tier, segment, config)
            count += 1
    assert count > 2


@pytest.mark.parametrize("run", RUNS)
def test_golden_buckets_written_again(fixtures: pathlib.Path, run: str) -> None:
    """If this fails, brokers with the plugin cannot read what we tier.

    Manifests, plain objects and, with the plugin's libzstd, compressed ones are compared byte for byte, encrypted ones
    unit by unit by what is in them.
    """
    check_run(fixtures / run)


@pytest.mark.parametrize("run", COMMITTED_RUNS)
def test_committed_buckets_written_again(data: pathlib.Path, run: str) -> None:
    """The same where the whole golden data is absent."""
    check_run(data / run)
