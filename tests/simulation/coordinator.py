"""The transaction coordinator of a simulated cluster: Kafka's states, durable and always there.

Versions 1 and 2 of transactions (KIP-890): with version 2 the producer's epoch rises at the end of each transaction,
and markers carry the risen one.

Source: Kafka TransactionCoordinator, TransactionMetadata, TransactionMarkerChannelManager.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.client import RETRY_MS, Chance, KnownLeaders, Network, broker_name
from tests.simulation.facts import Judge
from tests.simulation.messages import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkerWritten,
    Partition,
    ProducerIdGiven,
    TransactionAnswer,
    VerifyTransaction,
    WriteMarker,
)
from tests.simulation.settings import Settings

NAME: Final = "coordinator"
_EPOCH_MAX: Final = 2**15 - 1
_MARKER_TIMEOUT_MS: Final = 2_500
_TIMEOUT_CHECK_MS: Final = 1_000
#: The partition is no more: its marker goes nowhere.
_GONE: Final = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
_FENCED: Final = ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")

Answer = Callable[[object], None]


class State(enum.Enum):
    """Of a transactional id. Kafka's Dead does not occur: no id expires."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(slots=True)
class TransactionMetadata:
    """What the coordinator knows of a transactional id.

    Attributes:
        marker_producer: Producer id and epoch of the markers of the transaction that is being ended.
        ended_by: Producer id and epoch of the EndTransaction that ended the last transaction: its answer may be lost.
        transaction: The judge's name of the open transaction, or of the last one.
        begun_ms: When the open transaction began.
        unmarked: Partitions whose marker is not written yet.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: State = State.EMPTY
    marker_producer: tuple[int, int] = (-1, -1)
    ended_by: tuple[int, int] = (-1, -1)
    partitions: set[Partition] = field(default_factory=set)
    transaction: str = ""
    begun_ms: int = 0
    unmarked: set[Partition] = field(default_factory=set)


class Coordinator:
    """The coordinator's node.

    Attributes:
        marker_delay_ms: How long markers are held back after a decision, at most: the nemesis sets it.
        answer_delay_ms: How long answers of EndTransaction are held back, at most.
        epoch: Of the coordinator: it rises with each failover.
    """

    def __init__(
        self, settings: Settings, network: Network, judge: Judge, count: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._count = count
        self._network = network
        self._judge = judge
        self._chance = Chance(settings.rng(NAME))
        self._known = KnownLeaders(NAME, network)
        self._ids: dict[str, TransactionMetadata] = {}
        self._producer_ids = itertools.count(1_000)
        self._decided: set[str] = set()
        self._is_bumping = settings.transaction_version == 2
        self.marker_delay_ms = 0
        self.answer_delay_ms = 0
        self.epoch = 0
        self._is_away = False
        network.serve(NAME, self._handle)
        network.after(_TIMEOUT_CHECK_MS, self._abort_late_ones)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and none is being ended."""
        return not any(each.state is State.ONGOING or each.state.is_prepared for each in self._ids.values())

    def _note_late(self, request: EndTransaction | WriteMarker) -> None:
        """Count what ends a transaction when the next one of its producer is open: it was delayed, or came twice."""
        for known in self._ids.values():
            if known.producer_id == request.producer_id and known.state is State.ONGOING:
                is_end = isinstance(request, EndTransaction)
                ended = known.ended_by if is_end else known.marker_producer
                if ended == (request.producer_id, request.producer_epoch):
                    self._count(f"{'ends of transactions' if is_end else 'markers'} behind the next transaction")

    def note_marker(self, marker: WriteMarker) -> None:
        """A leader has got a marker."""
        self._note_late(marker)

    def _handle(self, source: str, request: Any, answer: Answer) -> None:
        if self._is_away:
            return
        if isinstance(request, EndTransaction):
            self._note_late(request)
        match request:
            case InitProducerId():
                answer(self._init(request))
            case AddPartitions():
                answer(TransactionAnswer(self._add(request)))
            case VerifyTransaction():
                answer(TransactionAnswer(self._verify(request)))
            case EndTransaction():
                found = self._end(request)
                if self.answer_delay_ms:
                    self._network.after(self._chance.below(self.answer_delay_ms) + 1, lambda: answer(found))
                else:
                    answer(found)
            case _:
                raise AssertionError(f"{source} asks the coordinator: {request}")

    # ---- failover

    def fail_over(self, away_ms: int) -> None:
        """Another broker becomes the coordinator, after a time in which nobody answers: it has all that was decided,
        and writes, in the next epoch, the markers that are missing. What the old one held back it sends all the same.
        """
        self.epoch += 1
        self._is_away = True
        self._network.after(away_ms, self._take_over)

    def _take_over(self) -> None:
        self._is_away = False
        for known in self._ids.values():
            for partition in sorted(known.unmarked) if known.state.is_prepared else ():
                self._send_marker(known, self._marker_of(known, partition))

    # ---- requests

    def _init(self, request: InitProducerId) -> ProducerIdGiven:
        name = request.transactional_id
        if name is None:
            return ProducerIdGiven(None, next(self._producer_ids), 0)
        known = self._ids.get(name)
        if known is None:
            epoch = self._settings.first_producer_epoch
            known = self._ids[name] = TransactionMetadata(name, next(self._producer_ids), epoch)
            return ProducerIdGiven(None, known.producer_id, known.producer_epoch)
        if known.state.is_prepared:
            return ProducerIdGiven("CONCURRENT_TRANSACTIONS")
        if known.state is State.ONGOING:
            self._fence(known)
            return ProducerIdGiven("CONCURRENT_TRANSACTIONS")
        self._bump(known)
        known.state = State.EMPTY
        return ProducerIdGiven(None, known.producer_id, known.producer_epoch)

    def _bump(self, known: TransactionMetadata) -> None:
        """Give the producer its next epoch; the last one is the coordinator's own, to fence with."""
        if known.producer_epoch >= _EPOCH_MAX - 1:
            known.producer_id, known.producer_epoch = next(self._producer_ids), 0
        else:
            known.producer_epoch += 1

    def _fence(self, known: TransactionMetadata) -> None:
        """Abort the open transaction in a newer epoch."""
        known.producer_epoch += 1
        known.ended_by = -1, -1
        self._decide(known, is_commit=False, marker_epoch=known.producer_epoch)

    def _refusal(self, producer_id: int, producer_epoch: int, known: TransactionMetadata | None) -> str | None:
        if known is None or known.producer_id != producer_id:
            return "INVALID_PRODUCER_ID_MAPPING"
        return None if known.producer_epoch == producer_epoch else "PRODUCER_FENCED"

    def _add(self, request: AddPartitions) -> str | None:
        known = self._ids.get(request.transactional_id)
        refusal = self._refusal(request.producer_id, request.producer_epoch, known)
        if refusal is not None or known is None:
            return refusal
        if known.state.is_prepared:
            return "CONCURRENT_TRANSACTIONS"
        if known.state is not State.ONGOING:
            known.state = State.ONGOING
            known.begun_ms = self._network.now_ms
            known.partitions = set()
            known.transaction = ""
        if request.transaction not in self._decided:  # else a late copy: Kafka cannot tell, and opens one
            known.transaction = request.transaction
        known.partitions |= set(request.partitions)
        return None

    def _verify(self, request: VerifyTransaction) -> str | None:
        known = self._ids.get(request.transactional_id)
        refusal = self._refusal(request.producer_id, request.producer_epoch, known)
        if refusal is not None or known is None:
            return refusal
        if known.state.is_prepared:
            return "CONCURRENT_TRANSACTIONS"
        is_in = known.state is State.ONGOING and request.partition in known.partitions
        return None if is_in else "TRANSACTION_ABORTABLE"

    def _end(self, request: EndTransaction) -> TransactionAnswer:
        known = self._ids.get(request.transactional_id)
        is_again = self._is_bumping and known is not None and self._is_ended_by(request, known)
        if not is_again:
            refusal = self._refusal(request.producer_id, request.producer_epoch, known)
            if refusal is not None:
                return TransactionAnswer(refusal)
        assert known is not None
        if known.state.is_prepared:
            is_same = (known.state is State.PREPARE_COMMIT) == request.is_commit
            return TransactionAnswer("CONCURRENT_TRANSACTIONS" if is_same else "INVALID_TXN_STATE")
        if known.state is State.ONGOING:
            self._decide_for(request, known)
            return TransactionAnswer(None, known.producer_id, known.producer_epoch)
        ended = State.COMPLETE_COMMIT if request.is_commit else State.COMPLETE_ABORT
        if known.state is ended and (is_again or not self._is_bumping):
            return TransactionAnswer(None, known.producer_id, known.producer_epoch)
        if self._is_bumping and not request.is_commit and not is_again:  # nothing was added to it
            self._bump(known)
            known.state = State.COMPLETE_ABORT
            known.ended_by = request.producer_id, request.producer_epoch
            return TransactionAnswer(None, known.producer_id, known.producer_epoch)
        return TransactionAnswer("INVALID_TXN_STATE")

    def _is_ended_by(self, request: EndTransaction, known: TransactionMetadata) -> bool:
        """Whether the last transaction was ended by this request's first copy: its answer was lost."""
        is_ended = known.state not in (State.EMPTY, State.ONGOING)
        return is_ended and known.ended_by == (request.producer_id, request.producer_epoch)

    def _decide_for(self, request: EndTransaction, known: TransactionMetadata) -> None:
        marker_epoch = known.producer_epoch + self._is_bumping
        known.ended_by = request.producer_id, request.producer_epoch
        if self._is_bumping:
            self._bump(known)
        self._decide(known, is_commit=request.is_commit, marker_epoch=marker_epoch, producer_id=request.producer_id)

    # ---- the end of a transaction

    def _decide(
        self, known: TransactionMetadata, *, is_commit: bool, marker_epoch: int, producer_id: int | None = None
    ) -> None:
        known.state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        known.marker_producer = (known.producer_id if producer_id is None else producer_id, marker_epoch)
        known.unmarked = set(known.partitions)
        if known.transaction:
            self._decided.add(known.transaction)
            self._judge.transaction_decided(known.transaction, is_commit, self._network.now_ms)
        for partition in sorted(known.partitions):
            delay_ms = self._chance.below(self.marker_delay_ms) if self.marker_delay_ms else 0
            self._send_later(known, self._marker_of(known, partition), delay_ms)

    def _marker_of(self, known: TransactionMetadata, partition: Partition) -> WriteMarker:
        return WriteMarker(
            partition,
            *known.marker_producer,
            coordinator_epoch=self.epoch,
            is_commit=known.state is State.PREPARE_COMMIT,
            transaction_version=self._settings.transaction_version,
        )

    def _send_later(self, known: TransactionMetadata, marker: WriteMarker, delay_ms: int) -> None:
        self._network.after(delay_ms, lambda: self._send_marker(known, marker))

    def _send_marker(self, known: TransactionMetadata, marker: WriteMarker) -> None:
        """Send a marker: an earlier coordinator does, too, which has not heard that it is none any more."""
        partition, is_old = marker.partition, marker.coordinator_epoch != self.epoch
        if not is_old and partition not in known.unmarked:
            return
        leader, _ = self._known.leader(partition)
        if leader is None:
            if self._known.is_gone(partition):
                self._marked(known, partition)
            else:
                self._known.refresh(lambda: self._send_later(known, marker, RETRY_MS))
            return
        if is_old:
            self._count("markers of an earlier coordinator")
        self._network.call(
            NAME,
            broker_name(leader),
            marker,
            lambda answer: self._on_written(known, marker, answer),
            timeout_ms=_MARKER_TIMEOUT_MS,
            is_connection=not self._is_bumping,
        )

    def _on_written(self, known: TransactionMetadata, marker: WriteMarker, answer: MarkerWritten | None) -> None:
        partition = marker.partition
        if marker.coordinator_epoch != self.epoch:
            return  # the present one has sent its own
        if answer is not None and answer.error is None:
            self._marked(known, partition)
        elif answer is not None and answer.error in _FENCED:
            self._marked(known, partition)  # Kafka gives up too: a newer epoch has ended it
        elif answer is not None and answer.error in _GONE and self._known.is_gone(partition):
            self._marked(known, partition)
        else:
            self._known.refresh(lambda: self._send_later(known, marker, RETRY_MS))

    def _marked(self, known: TransactionMetadata, partition: Partition) -> None:
        if partition not in known.unmarked:
            return
        known.unmarked.discard(partition)
        if not known.unmarked:
            is_commit = known.state is State.PREPARE_COMMIT
            known.state = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT

    def _abort_late_ones(self) -> None:
        now_ms = self._network.now_ms
        for known in self._ids.values():
            if self._is_away:
                break
            if known.state is State.ONGOING and now_ms - known.begun_ms > self._settings.transaction_timeout_ms:
                self._fence(known)
        self._network.after(_TIMEOUT_CHECK_MS, self._abort_late_ones)
