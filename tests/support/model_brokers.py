"""Brokers as a front asks them: leaders, offsets and epochs of partitions that a test changes, stalls and loses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import entities_of
from tierlog.remote.api import Uuid


@dataclass
class ModelPartition:
    """One partition of the model.

    Attributes:
        epochs: (leader epoch, first offset), ascending.
    """

    leader: int = 1
    leader_epoch: int = 3
    log_start_offset: int = 0
    high_watermark: int = 1000
    last_stable_offset: int = 1000
    earliest_local_offset: int = 500
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(3, 0)])

    def end_of(self, epoch: int) -> tuple[int, int]:
        """As a broker answers OffsetForLeaderEpoch."""
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        found = [number for number, (one, _) in enumerate(self.epochs) if one <= epoch]
        if not found:
            return epoch, self.epochs[0][1]
        following = self.epochs[found[-1] + 1 :]
        return self.epochs[found[-1]][0], following[0][1] if following else self.high_watermark


class ModelBrokers:
    """``AskedBrokers`` over a model.

    Attributes:
        partitions: By topic and number.
        ids: Of the topics.
        asked: (node, API, partitions) of each question that was answered or failed.
        stalled: Nodes that do not answer until they leave it; ``None`` is the node that answers for all.
        away: Nodes whose connections fail.
        secret: Topics that the front may not describe.
    """

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], ModelPartition] = {}
        self.ids: dict[str, Uuid] = {}
        self.asked: list[tuple[int | None, int, int]] = []
        self.stalled: set[int | None] = set()
        self.away: set[int | None] = set()
        self.secret: set[str] = set()
        self._moved = asyncio.Event()

    def add(self, topic: str, partition: int = 0, **values: Any) -> ModelPartition:
        """Add a partition, and its topic if it is new."""
        self.ids.setdefault(topic, Uuid(f"id of {topic}".encode()[:16].ljust(16, b".")))
        return self.partitions.setdefault((topic, partition), ModelPartition(**values))

    def go_on(self) -> None:
        """Let stalled nodes answer."""
        self.stalled.clear()
        self._moved.set()

    async def ask(
        self,
        node_id: int | None,
        api_key: int,
        versions: range,
        make: Callable[[int], RequestPayload],
        *,
        seconds: float,
    ) -> Any:
        """As of ``AskedBrokers``, at the newest version that is allowed."""
        assert seconds > 0
        version = versions[-1]
        request: Any = make(version)
        topics = list(request.topics)
        names = sum(len(getattr(topic, "partitions", ())) or 1 for topic in topics)
        self.asked.append((node_id, api_key, names))
        while node_id in self.stalled:
            self._moved.clear()
            await self._moved.wait()
        if node_id in self.away:
            raise UpstreamError(f"broker {node_id} is away")
        entities = entities_of(api_key, version)
        if api_key == 3:
            return entities.response(
                brokers=(),
                controller_id=1,
                cluster_id="model",
                error_code=ErrorCode.none,
                topics=tuple(self._described(entities, topic.name) for topic in topics),
            )
        answer = self._offset if api_key == 2 else self._epoch_end
        return entities.response(topics=tuple(answer(entities, topic, request, node_id) for topic in topics))

    def _described(self, entities: Any, name: str) -> Any:
        topic_id = None if name in self.secret else self.ids.get(name)
        error = ErrorCode.unknown_topic_or_partition if topic_id is None else ErrorCode.none
        return entities.make(
            "MetadataResponseTopic",
            error_code=ErrorCode.topic_authorization_failed if name in self.secret else error,
            name=name,
            topic_id=None if topic_id is None else uuid.UUID(bytes=topic_id.raw),
            is_internal=False,
            partitions=tuple(
                entities.make(
                    "MetadataResponsePartition",
                    error_code=ErrorCode.none,
                    partition_index=number,
                    leader_id=one.leader,
                    leader_epoch=one.leader_epoch,
                    replica_nodes=(one.leader,),
                    isr_nodes=(one.leader,),
                    offline_replicas=(),
                )
                for (topic, number), one in self.partitions.items()
                if topic == name and topic_id is not None
            ),
        )

    def _offset(self, entities: Any, topic: Any, request: Any, node_id: int | None) -> Any:
        answers = []
        for asked in topic.partitions:
            one = self.partitions[topic.name, asked.partition_index]
            end = one.last_stable_offset if request.isolation_level else one.high_watermark
            offset = {-1: end, -2: one.log_start_offset, -4: one.earliest_local_offset}[asked.timestamp]
            error = ErrorCode.none if one.leader == node_id else ErrorCode.not_leader_or_follower
            answers.append(
                entities.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=asked.partition_index,
                    error_code=error,
                    timestamp=-1,
                    offset=offset if error is ErrorCode.none else -1,
                )
            )
        return entities.make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(answers))

    def _epoch_end(self, entities: Any, topic: Any, request: Any, node_id: int | None) -> Any:
        del request
        answers = []
        for asked in topic.partitions:
            one = self.partitions[topic.topic, asked.partition]
            epoch, end = one.end_of(asked.leader_epoch)
            is_leader = one.leader == node_id
            answers.append(
                entities.make(
                    "EpochEndOffset",
                    error_code=ErrorCode.none if is_leader else ErrorCode.not_leader_or_follower,
                    partition=asked.partition,
                    leader_epoch=epoch if is_leader else -1,
                    end_offset=end if is_leader else -1,
                )
            )
        return entities.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(answers))
