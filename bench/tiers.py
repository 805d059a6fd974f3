"""A topic as the Aiven plugin stores it without transforms: .log, .indexes and .rsm-manifest, in chunks of 4 MiB."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator

from bench.logs import BenchLog
from tests.support.buckets import leader_epochs, producer_snapshot, topic_uuid

CHUNK_BYTES = 4 << 20


def tiered_objects(log: BenchLog, *, topic: str, segments: int) -> Iterator[tuple[str, bytes]]:
    """(key, bytes) of every object; the log is cut at batch borders into about even segments.

    Args:
        log: Partition 0 of the topic.
        topic: The topic's name.
        segments: Number of segments.
    """
    table = log.table
    cuts = [len(table) * number // segments for number in range(segments + 1)]
    ends = [0, *table.end_positions.tolist()]
    for first, behind in itertools.pairwise(cuts):
        data = log.data[ends[first] : ends[behind]]
        start, end = int(table.base_offset[first]), int(table.last_offset[behind - 1])
        latest = int(table.max_timestamp[first:behind].max())
        offsets = b"".join(
            struct.pack(">ii", int(table.last_offset[i]) - start, ends[i] - ends[first])
            for i in range(first + 1, behind)
        )
        parts = {
            "offset": offsets,
            "timestamp": struct.pack(">qi", latest, end - start),
            "producerSnapshot": producer_snapshot({}),
            "leaderEpoch": leader_epochs({0: 0}, end + 1),
        }
        key = f"{topic}-{topic_uuid(topic)}/0/{start:020d}-{topic_uuid(str(start))}"
        yield f"{key}.log", data
        yield f"{key}.indexes", b"".join(parts.values())
        yield f"{key}.rsm-manifest", _manifest(topic, parts, size=len(data), start=start, end=end, latest=latest)


def _manifest(topic: str, parts: dict[str, bytes], *, size: int, start: int, end: int, latest: int) -> bytes:
    positions: dict[str, dict[str, int] | None] = {"transaction": None}
    at = 0
    for part, data in parts.items():
        positions[part] = {"position": at, "size": len(data)}
        at += len(data)
    last_chunk = size - (size - 1) // CHUNK_BYTES * CHUNK_BYTES
    made = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": CHUNK_BYTES,
            "originalFileSize": size,
            "transformedChunkSize": CHUNK_BYTES,
            "finalTransformedChunkSize": last_chunk,
        },
        "segmentIndexes": positions,
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": topic_uuid(topic),
                    "topicPartition": {"topic": topic, "partition": 0},
                },
                "id": topic_uuid(str(start)),
            },
            "startOffset": start,
            "endOffset": end,
            "maxTimestampMs": latest,
            "brokerId": 1,
            "eventTimestampMs": latest,
            "segmentLeaderEpochs": {"0": start},
            "txnIdxEmpty": True,
        },
    }
    return json.dumps(made).encode()
