"""What the leaders of a running cluster would do with restored segments.

A leader deletes each segment whose leader epochs all lie before the first epoch of its own log, in the next run of its
expiration task (Kafka's RemoteLogManager, "leader-epoch-cache truncation"), and what ends below its log start offset.
The log of a topic that was made anew is empty, and a leader of an empty log forgets every epoch but its own: it deletes
what the tier has of the lost topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.runtime.kafka.topic_admin import LeaderLog, TopicAdmin

#: For messages: the one way to restore what a running leader would delete.
ORDER: Final = (
    "restore in this order: raise the leader epochs of the topics while they are empty, stop the brokers, "
    "`tierlog copy --map` (for Aiven's plugin), `tierlog export --last-segment`, `tierlog restore --to FOLDER/`, move "
    "both into the log directories, start (docs/disaster-recovery.md, part 4)"
)


def find_leader_logs(
    topics: TopicAdmin, partitions: Iterable[TopicIdPartition], *, timeout_seconds: float
) -> dict[TopicIdPartition, LeaderLog]:
    """The logs of those partitions that the cluster has, under the same topic id, by their leaders' answers.

    Raises:
        StoreUnavailableError: a leader does not answer within the time, which is that of each topic.
        StorePermissionError: a topic may not be described. StoreError.
    """
    found: dict[TopicIdPartition, LeaderLog] = {}
    for topic, asked in itertools.groupby(sorted(partitions, key=lambda each: each.topic), lambda each: each.topic):
        known = topics.describe_topic(topic, timeout_seconds=timeout_seconds)
        if known is None:
            continue
        led = {
            each.partition: each
            for each in asked
            if str(each.topic_id) == known.topic_id and each.partition < len(known.replicas)
        }
        logs = topics.leader_logs(topic, list(led), timeout_seconds=timeout_seconds)
        found |= {led[number]: log for number, log in logs.items()}
    return found


def find_reason_to_delete(log: LeaderLog, metadata: RemoteLogSegmentMetadata) -> str | None:
    """Why the leader of a log deletes a segment, or cannot find it; None if the segment stays."""
    last_epoch = max(metadata.segment_leader_epochs)
    if log.start_offset == log.end_offset:
        return "its log there is empty"
    if metadata.end_offset < log.start_offset or (log.first_epoch is not None and last_epoch < log.first_epoch):
        epoch = "" if log.first_epoch is None else f" with leader epoch {log.first_epoch}"
        return f"its log there begins at offset {log.start_offset}{epoch}"
    if log.last_epoch is not None and last_epoch > log.last_epoch:
        return f"its leader is of epoch {log.last_epoch}, and a segment of {last_epoch}"
    return None
