"""What ``tierlog copy --output json`` printed, as metadata: enough to register the copies without looking at them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """One line.

    Args:
        metadata: In state COPY_SEGMENT_FINISHED; None for a segment that was not copied.
        name: Of the object, or of the source where there is none.
        error: Why it was not copied.
    """

    metadata: RemoteLogSegmentMetadata | None
    name: str
    error: str | None = None


def read_copied(lines: Iterable[str]) -> Iterator[CopiedSegment]:
    """The segments of some lines, in their order; empty lines are skipped.

    Raises:
        ConfigError: a line is not what this version of the command prints; it is named by its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _segment(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as cause:
            text = f"line {number} is no segment of `tierlog copy --output json`: {cause!r:.200}"
            raise ConfigError(text) from cause


def _segment(told: dict[str, Any]) -> CopiedSegment:
    if told["state"] == "failed":
        return CopiedSegment(None, str(told["source"]), str(told["error"]))
    if told["state"] not in ("copied", "present"):
        raise ValueError(f"state {told['state']!r:.40}")
    custom = told["customMetadata"]
    if not 0 <= told["sizeBytes"] <= _INT32_MAX:
        raise ValueError(f"size {told['sizeBytes']!r:.40}")
    partition = TopicIdPartition(Uuid.from_text(told["topicId"]), told["topic"], told["partition"])
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid.from_text(told["segmentId"])),
        start_offset=told["startOffset"],
        end_offset=told["endOffset"],
        max_timestamp_ms=told["maxTimestamp"],
        broker_id=told["brokerId"],
        event_timestamp_ms=told["eventTimestamp"],
        segment_size_in_bytes=told["sizeBytes"],
        segment_leader_epochs={int(epoch): start for epoch, start in told["leaderEpochs"].items()},
        custom_metadata=None if custom is None else base64.b64decode(custom, validate=True),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=told["txnIndexEmpty"],
    )
    return CopiedSegment(metadata, str(told["object"]))
