"""Which description counts as a segment's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fetchers import MemoryBucket
from tests.support.segments import BucketSegment, make_segment, sound_log
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata


@pytest.fixture
def segment() -> BucketSegment:
    return make_segment(sound_log(10)).stored()


def renamed(metadata: RemoteLogSegmentMetadata, topic: str) -> RemoteLogSegmentMetadata:
    """The metadata of the same segment as if its topic had another name."""
    identity = metadata.remote_log_segment_id
    partition = TopicIdPartition(metadata.topic_id_partition.topic_id, topic, metadata.topic_id_partition.partition)
    return replace(metadata, remote_log_segment_id=RemoteLogSegmentId(partition, identity.id))


def test_a_manifest_under_its_own_key_is_of_that_partition(segment: BucketSegment) -> None:
    """If this fails, objects that somebody put under another partition's keys are served as that partition's."""
    asked = renamed(segment.metadata, "payments")
    moved = {key.replace("orders-", "payments-", 1): data for key, data in segment.objects.items()}
    lookup = make_lookup("aiven", key_prefix="", mask=False)
    with pytest.raises(CorruptObjectError, match="the manifest is of another segment"):
        look_up(lookup, MemoryBucket(moved), asked)  # type: ignore[arg-type]
    assert look_up(lookup, MemoryBucket(segment.objects), segment.metadata).segment.metadata == segment.metadata  # type: ignore[arg-type]


def test_a_manifest_that_custom_metadata_names_may_be_of_an_older_name(segment: BucketSegment) -> None:
    """If this fails, what was copied before a topic got its name is lost to it."""
    custom = SegmentCustomMetadata(object_key=segment.base).encode()
    asked = replace(renamed(segment.metadata, "payments"), custom_metadata=custom)
    lookup = make_lookup("aiven", key_prefix="", mask=False)
    assert look_up(lookup, MemoryBucket(segment.objects), asked).segment.size_bytes == len(segment.log)  # type: ignore[arg-type]


def test_a_named_manifest_is_still_of_that_segment(segment: BucketSegment) -> None:
    """If this fails, custom metadata of one segment makes another's bytes out of it."""
    other = make_segment(segment.log, name="b").stored()
    custom = SegmentCustomMetadata(object_key=other.base).encode()
    asked = replace(segment.metadata, custom_metadata=custom)
    lookup = make_lookup("aiven", key_prefix="", mask=False)
    with pytest.raises(CorruptObjectError, match="the manifest is of another segment"):
        look_up(lookup, MemoryBucket(other.objects), asked)  # type: ignore[arg-type]
