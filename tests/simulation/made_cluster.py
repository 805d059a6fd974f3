"""A cluster made by hand, for the judge's histories."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.facts import ClusterView, ProducerView, ReplicaView, TopicFacts, Violation
from tests.simulation.judge import ClusterJudge
from tests.simulation.messages import Partition
from tests.simulation.trace import Trace
from tests.support.batches import Batch, encode

TOPIC_ID = bytes(range(16))
PARTITION = Partition("orders", 0)
SEGMENT = bytes([7] * 16)
FACTS = TopicFacts(
    partitions=1,
    replicas=((1, 2),),
    min_insync_replicas=1,
    is_compacted=False,
    is_tiered=True,
    is_copy_disabled=False,
    segment_bytes=1000,
    retention_ms=-1,
    retention_bytes=-1,
    local_retention_ms=-2,
    local_retention_bytes=-2,
    flush_messages=1 << 60,
    delete_retention_ms=20_000,
    topic_id=TOPIC_ID,
)


class MadeCluster:
    """A cluster made by hand, and the judge of it.

    Attributes:
        replicas: By broker; ``change`` replaces one's values.
        logs: By broker: the batches of its local log.
        stored: The store's objects.
    """

    def __init__(self, facts: TopicFacts = FACTS) -> None:
        self.judge = ClusterJudge(Trace())
        self.now_ms = 1_000_000
        self.stored: dict[str, int] = {}
        self.open: dict[str, int] = {}
        self.files: dict[int, list[str]] = {}
        self.logs: dict[int, list[bytes]] = {1: [], 2: []}
        self.producers: dict[int, dict[int, ProducerView]] = {1: {}, 2: {}}
        self.replicas = {
            1: ReplicaView(1, PARTITION, "leader", 0, 0, 0, 0, 0, 0, ((0, 0),), frozenset((1, 2)), -1, ((0, 0),)),
            2: ReplicaView(2, PARTITION, "follower", 0, 0, 0, 0, 0, 0, ((0, 0),), frozenset(), -1, ((0, 0),)),
        }
        self.judge.begin(
            ClusterView(
                replicas=lambda: list(self.replicas.values()),
                replica=lambda broker, partition: self.replicas.get(broker),
                values=lambda broker, partition: self.replicas.get(broker),
                clock_ms=lambda broker: self.replicas[broker].clock_ms,
                log_start=lambda broker, partition: self.replicas[broker].log_start_offset,
                log_bytes=lambda broker, partition: b"".join(self.logs[broker]),
                stored=lambda: self.stored,
                metadata=list,
                open_resources=lambda: self.open,
                files=lambda: self.files,
                producers=lambda broker, partition: self.producers[broker],
            ),
            self.now_ms,
        )
        self.judge.broker_started(1, 0, self.now_ms)
        self.judge.broker_started(2, 0, self.now_ms)
        self.judge.topic_changed("orders", 0, facts, self.now_ms)
        self.elect(0, 1)
        self._numbers = 0

    def change(self, broker: int, **values: Any) -> None:
        """A replica has other values; the judge looks."""
        view = self.replicas[broker]
        self.replicas[broker] = view._replace(**({"clock_ms": self.now_ms} | values))

    def look(self) -> None:
        """The judge looks at both replicas; their clocks are right."""
        for broker in self.replicas:
            self.change(broker)
        self.judge.step(frozenset((1, 2)), self.now_ms)

    def elect(self, epoch: int, leader: int, *, is_unclean: bool = False, in_sync: tuple[int, ...] = (1, 2)) -> None:
        self.judge.elected(PARTITION, epoch, leader, frozenset(in_sync), is_unclean, self.now_ms)

    def send(self, *values: bytes | None, keys: tuple[bytes | None, ...] = (), transaction: str | None = None) -> int:
        """A producer sends; its batch's number."""
        self._numbers += 1
        records = tuple(zip(keys or (None,) * len(values), values, strict=True))
        self.judge.sent(
            "producer",
            self._numbers,
            PARTITION,
            records,
            acks=-1,
            is_idempotent=True,
            transaction=transaction,
            now_ms=self.now_ms,
        )
        return self._numbers

    def acknowledge(self, number: int, offset: int, epoch: int = 0) -> None:
        self.judge.acknowledged("producer", number, offset, False, self.now_ms, epoch)

    def append(self, *batches: Batch, brokers: tuple[int, ...] = (1, 2)) -> None:
        """Batches are in the logs of brokers, committed."""
        for broker in brokers:
            self.logs[broker] += [encode(each) for each in batches]
            end = batches[-1].last_offset + 1
            self.change(broker, log_end_offset=end, high_watermark=end, last_stable_offset=end)

    def poll(self, offset: int, *batches: Batch, is_committed: bool = False, broker: int = 1, **more: Any) -> None:
        """A broker serves a consumer."""
        data = b"".join(encode(each) for each in batches)
        self.judge.served(broker, PARTITION, offset, data, False, self.now_ms)
        values = {"high_watermark": 1000, "last_stable_offset": 1000, "log_start_offset": 0, "aborted": ()}
        self.judge.polled(
            "consumer",
            PARTITION,
            broker=broker,
            offset=offset,
            is_committed=is_committed,
            data=data,
            is_remote=False,
            now_ms=self.now_ms,
            **(values | more),
        )

    def write(self, *values: bytes, at: int, epoch: int = 0, **more: Any) -> Batch:
        """A batch that is sent, appended everywhere and acknowledged."""
        number = self.send(*values, keys=more.get("keys", ()))
        batch = Batch(at, values, epoch, timestamp_ms=self.now_ms, **more)
        self.append(batch)
        self.acknowledge(number, at, epoch)
        return batch

    # ---- the tier

    def copy(
        self,
        start: int,
        end: int,
        epochs: dict[int, int],
        *states: int,
        segment_id: bytes = SEGMENT,
        newest_ms: int = 0,
    ) -> None:
        """A segment goes through states, and has its objects from FINISHED on."""
        for state in states:
            if state == 0:
                value = _added(segment_id, start, end, epochs, newest_ms)
            else:
                head = b"\1\1\0" + _partition() + segment_id + b"\0" + struct.pack(">iq", 1, 0)
                value = head + b"\0" + bytes([state, 0])
            if state == 1:
                for part in ("log", "indexes", "rsm-manifest"):
                    self.put(segment_id, start, part)
            self.judge.metadata_appended(1, 0, value, self.now_ms)

    def remove_partition(self, *states: int) -> None:
        """The removal of the partition from the tier goes through states."""
        for state in states:
            value = b"\1\2\0" + _partition() + struct.pack(">iqb", 1, 0, state) + b"\0"
            self.judge.metadata_appended(1, 0, value, self.now_ms)

    def put(self, segment_id: bytes, start: int, part: str, life: int = 0) -> str:
        name = base64.urlsafe_b64encode(segment_id).decode().rstrip("=")
        key = f"orders-x/0/{start:020d}-{name}.{part}"
        self.stored[key] = 1
        self.judge.object_put(key, 1, 1, life, self.now_ms)
        return key


def _partition() -> bytes:
    return b"\7orders" + TOPIC_ID + struct.pack(">i", 0) + b"\0"


def _added(segment_id: bytes, start: int, end: int, epochs: dict[int, int], newest_ms: int) -> bytes:
    each = b"".join(struct.pack(">iq", epoch, first) + b"\0" for epoch, first in epochs.items())
    head = b"\1\0\0" + _partition() + segment_id + b"\0" + struct.pack(">qqiqq", start, end, 1, newest_ms, 0)
    return head + bytes([len(epochs) + 1]) + each + struct.pack(">i", 100) + b"\0\0\0"


@contextmanager
def breaks(invariant: int, anomaly: str) -> Iterator[None]:
    with pytest.raises(Violation) as found:
        yield
    assert (found.value.invariant, found.value.anomaly) == (invariant, anomaly)
