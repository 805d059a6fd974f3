"""The sending half of a producer: a queue for each partition, sequences, resends; as Kafka's client does it.

An idempotent producer has up to five batches of a partition under way. A batch that has to be sent again goes out when
it is the first of those, and with its sequence; one that is given up leaves a hole, and once nothing else is under way
the producer goes on in its next epoch, from sequence 0.

Source: Kafka Sender, TransactionManager, RecordAccumulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.client import REQUEST_TIMEOUT_MS, RETRY_MS, Client, broker_name
from tests.simulation.messages import Partition, Produce, Produced
from tierlog.records.builder import RecordBatchBuilder

Records = tuple[tuple[bytes | None, bytes | None], ...]

UNDER_WAY_MAX: Final = 5
DELIVERY_TIMEOUT_MS: Final = 20_000
_NO_SEQUENCE: Final = -1
_SEQUENCES: Final = 1 << 31
#: The batch is sent again.
RETRIABLE: Final = frozenset(
    (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "CORRUPT_MESSAGE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
    )
)
#: The batch may have been appended all the same. So it may with no answer, and where the network doubles requests.
_UNCERTAIN: Final = frozenset(
    (
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_OR_FOLLOWER",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
    )
)
#: The batch is wrong in itself: no leader takes it, however often it comes.
_WRONG: Final = frozenset(("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD"))
_CODECS: Final = ("none", "none", "none", "lz4", "zstd", "snappy", "gzip")


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch of a producer, until it is acknowledged or given up.

    Attributes:
        number: Among those of its producer, as the judge counts them.
        sequence: Of its first record; -1 = none yet.
        producer: Producer id and epoch that the sequence belongs to.
        data: As it is sent; empty before that.
        attempts: How often it was sent.
        is_uncertain: An attempt may have been appended although it was not acknowledged.
        was_next: Whether all in front of it was acknowledged when it was sent last.
    """

    number: int
    partition: Partition
    records: Records
    deadline_ms: int
    transaction: str | None
    sequence: int = _NO_SEQUENCE
    producer: tuple[int, int] = (-1, -1)
    data: bytes = b""
    attempts: int = 0
    is_uncertain: bool = False
    was_next: bool = False

    @property
    def next_sequence(self) -> int:
        return (self.sequence + len(self.records)) % _SEQUENCES


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition.

    Attributes:
        waiting: To be sent, in their order; those with a sequence were sent before.
        unfinished: Those with a sequence that are neither acknowledged nor given up, in their order.
        producer: Producer id and epoch that sequences are given of.
        acknowledged_sequence: The sequence behind the last batch that was acknowledged.
        is_known: A batch of this epoch was acknowledged: the leader knows the producer. Until then one is under way:
            of a producer that it does not know a leader takes any sequence as the first.
        has_hole: A batch with a sequence was given up.
        is_paused: A resend waits for its time.
    """

    producer: tuple[int, int]
    waiting: deque[SentBatch] = field(default_factory=deque)
    unfinished: list[SentBatch] = field(default_factory=list)
    under_way: int = 0
    sequence: int = 0
    acknowledged_sequence: int = 0
    is_known: bool = False
    has_hole: bool = False
    is_paused: bool = False

    def begin(self, producer: tuple[int, int]) -> None:
        """Go on in another epoch."""
        self.producer = producer
        self.sequence = self.acknowledged_sequence = 0
        self.has_hole = self.is_known = False


class Sender:
    """The batches of one producer on their way.

    Args:
        client: The node that sends.
        name: The producer's, for the judge.
        acks: -1, 0 or 1.
        is_idempotent: Whether it has sequences; the producer id must be given before anything is sent.
        transactional_id: Of a transactional producer, which begins its epochs itself.
        on_given_up: Called for each batch that is given up, with the error.

    Attributes:
        producer: Producer id and epoch.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        acks: int,
        is_idempotent: bool,
        transactional_id: str | None = None,
        on_given_up: Callable[[SentBatch, str], None] = lambda _batch, _error: None,
        on_settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self.name = name
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._transactional_id = transactional_id
        self._on_given_up = on_given_up
        self._on_settled = on_settled
        self.producer = (-1, -1)
        self._queues: dict[Partition, PartitionQueue] = {}
        self._numbers = 0
        self._codec = client.chance.one_of(_CODECS)
        self._doubles = "doubles" in client.settings.faults

    # ---- for the producer

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Go on with another id or epoch; nothing may be under way."""
        assert self.is_idle
        self.producer = producer_id, producer_epoch
        for queue in self._queues.values():
            queue.begin(self.producer)

    def send(self, partition: Partition, records: Records, transaction: str | None = None) -> None:
        """Queue a batch."""
        deadline_ms = self._client.now_ms + DELIVERY_TIMEOUT_MS
        batch = SentBatch(self._numbers, partition, records, deadline_ms, transaction)
        self._numbers += 1
        queue = self._queues.setdefault(partition, PartitionQueue(self.producer))
        queue.waiting.append(batch)
        self._pump(queue)

    def drop_waiting(self) -> None:
        """Give up what was never sent: its transaction is to be aborted."""
        for queue in list(self._queues.values()):
            for batch in [each for each in queue.waiting if not each.attempts]:
                queue.waiting.remove(batch)

    @property
    def backlog(self) -> int:
        """How many batches are neither acknowledged nor given up."""
        return sum(queue.under_way + len(queue.waiting) for queue in self._queues.values())

    @property
    def is_idle(self) -> bool:
        return not self.backlog

    @property
    def has_holes(self) -> bool:
        """Whether sequences were given up, so that a transactional producer needs its next epoch."""
        return any(queue.has_hole for queue in self._queues.values())

    # ---- sending

    def _pump(self, queue: PartitionQueue) -> None:
        """Send what may be sent."""
        while queue.waiting and not queue.is_paused:
            self._close_hole(queue)
            batch = queue.waiting[0]
            if self._is_over(batch):
                queue.waiting.popleft()
                self._give_up(queue, batch, "expired")
                continue
            leader, _ = self._client.known.leader(batch.partition)
            if leader is None:
                self._pause(queue)
                return
            if not self._may_send(queue, batch):
                return
            queue.waiting.popleft()
            self._send(queue, batch, leader)

    def _is_over(self, batch: SentBatch) -> bool:
        return self._client.now_ms >= batch.deadline_ms or self._client.known.is_gone(batch.partition)

    def _may_send(self, queue: PartitionQueue, batch: SentBatch) -> bool:
        if queue.under_way >= UNDER_WAY_MAX:
            return False
        if not self._is_idempotent:
            return True
        if batch.sequence != _NO_SEQUENCE:
            return queue.unfinished[0] is batch
        if queue.has_hole or (queue.unfinished and queue.producer != self.producer):
            return False
        return len(queue.unfinished) < (UNDER_WAY_MAX if queue.is_known else 1)

    def _send(self, queue: PartitionQueue, batch: SentBatch, leader: int) -> None:
        if self._is_idempotent and batch.sequence == _NO_SEQUENCE:
            if queue.producer != self.producer:
                queue.begin(self.producer)
            batch.sequence, batch.producer = queue.sequence, queue.producer
            queue.sequence = batch.next_sequence
            queue.unfinished.append(batch)
        if not batch.attempts:
            batch.data = self._data_of(batch)
            self._client.judge.sent(
                self.name,
                batch.number,
                batch.partition,
                batch.records,
                acks=self._acks,
                is_idempotent=self._is_idempotent,
                transaction=batch.transaction,
                now_ms=self._client.now_ms,
            )
        batch.attempts += 1
        batch.was_next = batch.sequence == queue.acknowledged_sequence
        queue.under_way += 1
        request = Produce(
            batch.partition,
            batch.data,
            self._acks,
            timeout_ms=REQUEST_TIMEOUT_MS,
            transactional_id=self._transactional_id,
        )
        timeout_ms = REQUEST_TIMEOUT_MS + 500 if self._acks else 50
        then = self._unanswered if not self._acks else self._answered
        self._client.ask(broker_name(leader), request, lambda answer: then(queue, batch, answer), timeout_ms=timeout_ms)

    def _data_of(self, batch: SentBatch) -> bytes:
        producer_id, producer_epoch = batch.producer
        builder = RecordBatchBuilder(
            0,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.sequence,
            transactional=self._transactional_id is not None,
        )
        for key, value in batch.records:
            builder.append(key, value, timestamp_ms=self._client.now_ms)
        return builder.build()

    # ---- answers

    def _unanswered(self, queue: PartitionQueue, batch: SentBatch, _: Produced | None) -> None:
        """With acks=0 nobody answers."""
        queue.under_way -= 1
        self._client.judge.acknowledged(self.name, batch.number, -1, False, self._client.now_ms)
        self._go_on(queue)

    def _answered(self, queue: PartitionQueue, batch: SentBatch, answer: Produced | None) -> None:
        queue.under_way -= 1
        if answer is None or answer.error in RETRIABLE:
            batch.is_uncertain |= answer is None or answer.error in _UNCERTAIN or self._doubles
            self._send_again(queue, batch)
        elif answer.error in (None, "DUPLICATE_SEQUENCE_NUMBER"):
            self._acknowledge(queue, batch, answer)
        elif answer.error == "OUT_OF_ORDER_SEQUENCE_NUMBER" and self._comes_too_early(queue, batch):
            batch.is_uncertain |= self._doubles
            self._send_again(queue, batch)
        else:
            self._give_up(queue, batch, answer.error)
        self._go_on(queue)

    def _comes_too_early(self, queue: PartitionQueue, batch: SentBatch) -> bool:
        """Whether a batch in front of it may have been on its way still: else the broker has lost what was
        acknowledged. Kafka asks when the answer comes: on its connections answers keep their order.
        """
        return not queue.has_hole and not batch.was_next

    def _send_again(self, queue: PartitionQueue, batch: SentBatch) -> None:
        at = 0
        while at < len(queue.waiting) and queue.waiting[at].attempts and queue.waiting[at].number < batch.number:
            at += 1
        queue.waiting.insert(at, batch)
        self._pause(queue)

    def _pause(self, queue: PartitionQueue) -> None:
        """Wait, and ask who leads, before anything of the partition is sent."""
        if not queue.is_paused:
            queue.is_paused = True
            self._client.after(RETRY_MS, lambda: self._client.known.refresh(lambda: self._resume(queue)))

    def _resume(self, queue: PartitionQueue) -> None:
        queue.is_paused = False
        self._go_on(queue)

    def _acknowledge(self, queue: PartitionQueue, batch: SentBatch, answer: Produced) -> None:
        if self._is_idempotent:
            queue.unfinished.remove(batch)
            queue.acknowledged_sequence = batch.next_sequence
            queue.is_known = True
        may_be_older = batch.is_uncertain
        self._client.judge.acknowledged(
            self.name, batch.number, answer.base_offset, may_be_older, self._client.now_ms, answer.leader_epoch
        )

    def _give_up(self, queue: PartitionQueue, batch: SentBatch, error: str) -> None:
        if batch.sequence != _NO_SEQUENCE:
            queue.unfinished.remove(batch)
            queue.has_hole = True
        if batch.attempts:
            is_uncertain = batch.is_uncertain or error in _UNCERTAIN or self._doubles
            is_final = error in _WRONG or not is_uncertain
            self._client.judge.refused(self.name, batch.number, error, is_final, self._client.now_ms)
        self._on_given_up(batch, error)

    def _close_hole(self, queue: PartitionQueue) -> None:
        """Go on in the next epoch behind batches that were given up, unless a later one shows that they arrived."""
        if queue.has_hole and not queue.unfinished and self._transactional_id is None:
            queue.has_hole = False
            if queue.sequence != queue.acknowledged_sequence:
                self.producer = self.producer[0], self.producer[1] + 1
                queue.begin(self.producer)

    def _go_on(self, queue: PartitionQueue) -> None:
        self._pump(queue)
        if self.is_idle:
            self._on_settled()
