"""The plugin's layout: what makes a segment, what its manifest may leave out, and whose manifest it is."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog.errors import CorruptObjectError, SizeLimitError, TierlogError
from tierlog.remote.tier import StoredSegment, open_tier
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX

LINEAGE = {0: 0, 2: 5}


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path / "bucket")
    made.segment("a", [message(offset, "v", 0) for offset in range(5)], lineage=LINEAGE)
    made.segment("b", [message(offset, "v", 2) for offset in range(5, 9)], lineage=LINEAGE)
    return made


def listed(bucket: Bucket) -> list[StoredSegment]:
    with open_tier(str(bucket.root), layout="aiven") as tier:
        return list(tier.iter_segments())


def rewrite(bucket: Bucket, name: str, **members: object) -> None:
    path = bucket.path(name, "rsm-manifest")
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


def test_an_upload_without_its_manifest_is_no_segment(bucket: Bucket) -> None:
    """If this fails, what a killed broker left behind is read as data."""
    bucket.path("b", "rsm-manifest").unlink()
    (bucket.root / "junk").write_text("x")
    with open_tier(str(bucket.root)) as tier:
        assert [segment.start_offset for segment in tier.iter_segments()] == [0]
        assert tier.foreign_objects == 3


def test_sizes_of_manifest_and_listing_stand_side_by_side(bucket: Bucket) -> None:
    """If this fails, verify cannot tell a truncated object without reading it."""
    path = bucket.path("a", "log")
    whole = len(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-3])
    bucket.path("b", "log").unlink()
    first, second = listed(bucket)
    assert (first.log.size_bytes, first.log.object_size_bytes) == (whole, whole - 3)
    assert second.log.object_size_bytes == -1


@pytest.mark.parametrize("description", [{"whatever": 1}, None, [], {"startOffset": -1}])
def test_a_segment_that_its_manifest_does_not_describe(bucket: Bucket, description: object) -> None:
    """If this fails, segments of writers that leave the description out have no end, no epochs, or do not exist."""
    wanted = listed(bucket)
    for name in "ab":
        rewrite(bucket, name, remoteLogSegmentMetadata=description)
    for segment, known in zip(listed(bucket), wanted, strict=True):
        assert segment.metadata.remote_log_segment_id == known.metadata.remote_log_segment_id
        assert (segment.start_offset, segment.end_offset) == (known.start_offset, known.end_offset)
        assert segment.metadata.max_timestamp_ms == known.metadata.max_timestamp_ms
        assert segment.metadata.segment_leader_epochs == known.metadata.segment_leader_epochs


def test_the_same_for_a_compressed_and_encrypted_one(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, the end is looked for in the stored bytes instead of the broker's."""
    run = data / "zstd-aes"
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        wanted = list(tier.iter_segments())
    for path in (run / "objects").rglob("*.*"):
        copy = tmp_path / path.relative_to(run / "objects")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        if path.suffix == ".rsm-manifest":
            manifest = json.loads(path.read_text())
            del manifest["remoteLogSegmentMetadata"]
            copy.write_text(json.dumps(manifest))
    with open_tier(str(tmp_path), config=config_of(run)) as tier:
        for segment, known in zip(tier.iter_segments(), wanted, strict=True):
            assert segment.end_offset == known.end_offset
            assert segment.metadata.max_timestamp_ms == known.metadata.max_timestamp_ms
            assert segment.metadata.segment_leader_epochs == known.metadata.segment_leader_epochs


def test_a_damaged_log_without_a_description_is_never_left_out(bucket: Bucket) -> None:
    """If this fails, records behind the damage are pruned away, and a read is shorter in silence."""
    rewrite(bucket, "a", remoteLogSegmentMetadata=None)
    path = bucket.path("a", "log")
    path.write_bytes(path.read_bytes()[:-40] + b"\xff" * 40)
    first = listed(bucket)[0]
    assert first.end_offset >= 2**31 - 1
    assert first.metadata.max_timestamp_ms == 2**63 - 1


def test_the_manifest_of_another_segment(bucket: Bucket) -> None:
    """If this fails, a manifest that was copied to the wrong key gives one segment's bytes as another's."""
    bucket.path("a", "rsm-manifest").write_bytes(bucket.path("b", "rsm-manifest").read_bytes())
    faults: list[TierlogError] = []
    with open_tier(str(bucket.root)) as tier:
        kept = list(tier.iter_segments(faults=faults))
        assert [segment.start_offset for segment in kept] == [5]
        assert "another segment" in str(faults[0])
        with pytest.raises(CorruptObjectError, match="another segment"):
            list(tier.iter_segments())


def test_an_endless_manifest_is_not_fetched(bucket: Bucket) -> None:
    """If this fails, one object can fill the memory of every reader."""
    with bucket.path("a", "rsm-manifest").open("r+b") as file:
        file.truncate(MANIFEST_BYTES_MAX + 1)
    with pytest.raises(SizeLimitError, match="rsm-manifest"):
        listed(bucket)


def test_keys_with_other_digits(bucket: Bucket) -> None:
    """If this fails, segments that a broker in an Arabic locale copied are not read."""
    for path in list(bucket.root.rglob("*00000-*")):
        digits = "".join(chr(0x660 + int(digit)) for digit in path.name[:20])
        path.rename(path.with_name(digits + path.name[20:]))
    assert [segment.start_offset for segment in listed(bucket)] == [0, 5]
    with open_tier(str(bucket.root)) as tier:
        first = next(tier.iter_segments())
        assert sum(len(window) for _, window in tier.iter_log_windows(first)) == first.size_bytes


def test_an_empty_log(tmp_path: pathlib.Path) -> None:
    """If this fails, a segment without a byte, which some stores do not even hold, is an error."""
    bucket = Bucket(tmp_path)
    bucket.segment("a", [message(0, "v", 0)], lineage={0: 0})
    path = bucket.path("a", "rsm-manifest")
    manifest = json.loads(path.read_text())
    manifest["chunkIndex"] |= {"originalFileSize": 0, "finalTransformedChunkSize": 0}
    path.write_text(json.dumps(manifest))
    bucket.path("a", "log").unlink()
    with open_tier(str(tmp_path)) as tier:
        segment = next(tier.iter_segments())
        assert segment.size_bytes == 0
        assert list(tier.iter_log_windows(segment)) == []
