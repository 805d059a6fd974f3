"""A bucket of many small segments, as the plugin stores them without transforms, for the replica's start and memory."""

from __future__ import annotations

import pathlib

from tests.support.batches import Batch
from tests.support.buckets import Bucket

VALUE = b"v" * 200
BATCHES = 4


def many_segments(root: pathlib.Path, *, partitions: int, segments: int, topics: int = 10) -> int:
    """Write a bucket of ``topics`` topics that share the partitions evenly.

    Returns:
        The end offset of each partition, exclusive.
    """
    for number in range(partitions):
        bucket = Bucket(root, f"topic-{number % topics}", number // topics)
        for segment in range(segments):
            first = segment * BATCHES
            batches = [
                Batch(first + each, (VALUE,), 0, timestamp_ms=1_700_000_000_000 + first) for each in range(BATCHES)
            ]
            bucket.segment(f"s{number}-{segment}", batches, lineage={0: 0})
    return segments * BATCHES


def large_segment(root: pathlib.Path, *, size_bytes: int = 8 << 20) -> int:
    """Write a topic ``large-0`` of one segment of batches of 16 KiB. Returns its end offset, exclusive."""
    count = size_bytes // (16 << 10)
    batches = [Batch(each, (bytes(16 << 10),), 0, timestamp_ms=1_700_000_000_000 + each) for each in range(count)]
    Bucket(root, "large-0", index_interval_bytes=4096).segment("large", batches, lineage={0: 0})
    return count
