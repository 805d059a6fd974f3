"""Transactional producers: over several partitions, several on every partition, zombies that are fenced by epoch."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.client import RETRY_MS, Client, Network
from tests.simulation.coordinator import NAME as COORDINATOR
from tests.simulation.facts import Judge
from tests.simulation.messages import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    Partition,
    ProducerIdGiven,
    TransactionAnswer,
)
from tests.simulation.producers import Values
from tests.simulation.sender import Sender, SentBatch
from tests.simulation.settings import Settings

_ABORT_RATE: Final = 0.25
_ZOMBIE_RATE: Final = 0.08
_STALL_RATE: Final = 0.03
_EMPTY_RATE: Final = 0.05
#: The coordinator is asked again.
_RETRIABLE: Final = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE")


class TransactionalProducer(Client):
    """A transactional id, and the producers that use it one after the other, or at once.

    Args:
        topics: That it writes to.
        is_keyed: Its records are for compacted topics.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        network: Network,
        judge: Judge,
        *,
        topics: tuple[str, ...],
        is_keyed: bool = False,
    ) -> None:
        super().__init__(name, settings, network, judge)
        self.topics = topics
        self.is_keyed = is_keyed
        self._lives = 0
        self._instances: list[Instance] = []

    @property
    def is_idle(self) -> bool:
        return all(each.is_over for each in self._instances)

    def begin(self) -> None:
        """Begin another producer with the id; those before are fenced."""
        if self.is_stopped:
            return
        self._instances = [each for each in self._instances if not each.is_over]
        self._lives += 1
        instance = Instance(self, self._lives)
        self._instances.append(instance)
        instance.begin()

    def over(self) -> None:
        """One of the producers has ended: it was fenced, or has failed."""
        if not self.is_stopped and all(each.is_over for each in self._instances):
            self.after(RETRY_MS, self.begin)


class Instance:
    """One producer of a transactional id.

    Attributes:
        is_over: It does nothing any more.
    """

    def __init__(self, client: TransactionalProducer, life: int) -> None:
        self._client = client
        self._id = client.name
        self._name = f"{client.name}/{life}"
        self._chance = client.chance
        values = Values(self._name, client.chance)
        # No tombstones: the judge finds the transaction of a record by its value.
        self._records = values.keyed_values if client.is_keyed else values.records
        self._sender = Sender(
            client,
            self._name,
            acks=-1,
            is_idempotent=True,
            transactional_id=self._id,
            on_given_up=self._given_up,
            on_settled=self._settled,
        )
        self.is_over = False
        self._count = 0
        self._transaction = ""
        self._added: set[Partition] = set()
        self._batches_left = 0
        self._must_abort = False
        self._is_ending = False

    # ---- its epoch

    def begin(self) -> None:
        """Ask for the producer id and its next epoch."""
        self._client.ask(COORDINATOR, InitProducerId(self._id), self._initialized)

    def _initialized(self, answer: ProducerIdGiven | None) -> None:
        if answer is None or answer.error in _RETRIABLE:
            self._client.after(RETRY_MS, self.begin)
        elif answer.error is not None:
            self._end_life()
        else:
            self._sender.begin_epoch(answer.producer_id, answer.producer_epoch)
            self._pause()

    def _pause(self) -> None:
        client = self._client
        if client.is_stopped:
            self._end_life()
        else:
            client.after(self._chance.around(client.settings.produce_interval_ms), self._begin_transaction)

    def _end_life(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._client.over()

    # ---- a transaction

    def _begin_transaction(self) -> None:
        client = self._client
        client.known.refresh_at_times()
        partitions = client.known.partitions(client.topics)
        if client.is_stopped or not partitions:
            self._pause()
            return
        self._count += 1
        self._transaction = f"{self._name}:{self._count}"
        self._added = set()
        self._must_abort = self._is_ending = False
        self._batches_left = self._chance.between(1, 6)
        wanted = {self._chance.one_of(partitions) for _ in range(self._chance.between(1, 3))}
        self._add(tuple(sorted(wanted)))
        if self._chance.happens(_ZOMBIE_RATE):
            client.after(self._chance.between(1, 300), client.begin)

    def _add(self, partitions: tuple[Partition, ...]) -> None:
        request = AddPartitions(self._id, *self._sender.producer, partitions, self._transaction)

        def added(answer: TransactionAnswer | None) -> None:
            if answer is None or answer.error in _RETRIABLE:
                self._client.after(RETRY_MS, lambda: self._add(partitions))
            elif answer.error is not None:
                self._fail()
            else:
                self._added |= set(partitions)
                if self._chance.happens(_EMPTY_RATE):
                    self._batches_left = 0
                self._send_next()

        self._client.ask(COORDINATOR, request, added)

    def _send_next(self) -> None:
        """Send the transaction's next batch; end it behind the last one."""
        if self.is_over or self._is_ending:
            return
        if not self._batches_left or self._must_abort:
            self._is_ending = True
            if self._sender.is_idle:
                self._settled()
            return
        self._batches_left -= 1
        self._sender.send(self._chance.one_of(sorted(self._added)), self._records(), self._transaction)
        interval_ms = self._client.settings.produce_interval_ms
        self._client.after(self._chance.one_of((1, 1, interval_ms)), self._send_next)

    def _given_up(self, _: SentBatch, __: str) -> None:
        if not self._must_abort:
            self._must_abort = True
            self._sender.drop_waiting()

    def _settled(self) -> None:
        """All batches are acknowledged or given up."""
        if not self._is_ending or self.is_over:
            return
        self._is_ending = False
        is_commit = not self._must_abort and not self._chance.happens(_ABORT_RATE)
        delay_ms = 1
        if self._chance.happens(_STALL_RATE):
            delay_ms = self._client.settings.transaction_timeout_ms + self._chance.below(2_000)
        self._client.after(delay_ms, lambda: self._end(is_commit=is_commit))

    def _end(self, *, is_commit: bool) -> None:
        request: Any = EndTransaction(self._id, *self._sender.producer, is_commit)

        def ended(answer: TransactionAnswer | None) -> None:
            if answer is None or answer.error in _RETRIABLE:
                self._client.after(RETRY_MS, lambda: self._end(is_commit=is_commit))
            elif answer.error is not None:
                self._fail()
            else:
                self._ended(answer, "committed" if is_commit else "aborted")

        is_first_version = self._client.settings.transaction_version == 1
        self._client.ask(COORDINATOR, request, ended, is_connection=is_first_version)

    def _ended(self, answer: TransactionAnswer, outcome: str) -> None:
        self._client.judge.transaction_ended(self._transaction, outcome, self._client.now_ms)
        if self._client.settings.transaction_version == 2:
            self._sender.begin_epoch(answer.producer_id, answer.producer_epoch)
            self._pause()
        elif self._sender.has_holes:
            self.begin()
        else:
            self._pause()

    def _fail(self) -> None:
        """The producer is fenced, or its transaction was ended for it."""
        self._client.judge.transaction_ended(self._transaction, "unknown", self._client.now_ms)
        self._end_life()
