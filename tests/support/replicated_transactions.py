"""Transactional producers over the replicas of one partition: open, ended, fenced by a newer epoch, with late markers.

The coordinator sends a marker until it is replicated, to whoever believes that it leads; a producer that is refused
begins anew in a newer epoch. What a replica must know of them is read from its batches, by going through the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.support.expected_log import ExpectedBatch, Producer, Transactions, replayed
from tests.support.golden import ROW_COLUMNS
from tests.support.log_consumer import consume, fetches, number
from tests.support.replicas import Replica
from tests.support.replication_machine import REPLICAS, ReplicationMachine
from tierlog._native.appends import find_marker
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.replication import ReplicationError

PRODUCERS: Final = (11, 12, 13, 14)
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_OFFSET = ROW_COLUMNS.index("offset")

producers = st.sampled_from(PRODUCERS)
leaders = st.integers(0, 2)
endings = st.lists(
    st.tuples(producers, st.sampled_from(("stays open", "commits", "aborts", "is fenced"))),
    min_size=2,
    max_size=4,
    unique_by=lambda ending: ending[0],
)


@dataclass
class Marker:
    """The end of a transaction, until it is replicated.

    Attributes:
        place: (offset, leader epoch) at which it was written last; None: it has not been.
    """

    kind: ControlRecordType
    epoch: int
    place: tuple[int, int] | None = None


@dataclass
class TransactionalProducer:
    """A producer, as its coordinator knows it."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    marker: Marker | None = None

    def fence(self) -> None:
        """Begin anew in a newer epoch; an open transaction is aborted first."""
        if self.marker is None and self.is_open:
            self.marker = Marker(ControlRecordType.ABORT, self.epoch + 1)
        elif self.marker is None:
            self.epoch, self.sequence = self.epoch + 1, 0

    def end(self) -> None:
        """Take word that the marker is replicated."""
        assert self.marker is not None
        if self.marker.epoch > self.epoch:
            self.epoch, self.sequence = self.marker.epoch, 0
        self.is_open, self.marker = False, None


@dataclass
class ReplicaBatches:
    """The batches of a replica, taken apart, and what follows from them."""

    batches: list[ExpectedBatch] = field(default_factory=list)
    transactions: Transactions = field(default_factory=Transactions)

    @classmethod
    def of(cls, replica: Replica) -> ReplicaBatches:
        found: list[ExpectedBatch] = []
        for whole, _ in fetches(replica.log, 0, FetchIsolation.LOG_END, max_bytes=1 << 20):
            for batch in whole:
                marker = find_marker(batch) if number(batch, 21, 2) & _CONTROL else None
                sender = Producer(
                    number(batch, 43, 8),
                    number(batch, 51, 2),
                    number(batch, 53, 4),
                    bool(number(batch, 21, 2) & _TRANSACTIONAL),
                    None if marker is None else ("commit" if marker.is_commit else "abort"),
                )
                count = number(batch, 23, 4) + 1
                found.append(ExpectedBatch(number(batch, 0, 8), batch, (0,) * count, number(batch, 12, 4), sender))
        return cls(found, replayed(found))

    def committed_values(self, end_offset: int) -> list[int]:
        """Offsets of the data below an offset whose transactions were not aborted."""
        aborted = self.transactions.aborted
        return [
            offset
            for batch in self.batches
            if batch.producer.marker is None and batch.last_offset < end_offset
            for offset in range(batch.base_offset, batch.last_offset + 1)
            if not any(
                batch.producer.transactional and producer == batch.producer.producer_id and first <= offset < last
                for producer, first, last in aborted
            )
        ]


class TransactionsMachine(ReplicationMachine):
    """The replicas, and several producers with transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = {producer: TransactionalProducer(producer) for producer in PRODUCERS}
        self.known: dict[int, tuple[object, ReplicaBatches]] = {}

    # ---- producers and their coordinator

    @rule(at=leaders, producer=producers, count=st.integers(1, 2))
    def produce_in_a_transaction(self, at: int, producer: int, count: int) -> None:
        """A producer that is refused, for what a failover lost of it, begins anew."""
        sender = self.producers[producer]
        if sender.marker is None and self._send(at, sender, epoch=sender.epoch, sequence=sender.sequence, count=count):
            sender.sequence += count
            sender.is_open = True

    @rule(at=leaders, producer=producers)
    def produce_as_a_zombie(self, at: int, producer: int) -> None:
        """A producer of an earlier epoch sends all the same: refused where the newer epoch is known."""
        sender = self.producers[producer]
        broker = self._leader(at)
        if sender.epoch == 0 or broker is None:
            return
        state = self._batches(self.replicas[broker]).transactions.producers.get(producer)
        taken = self._send(at, sender, epoch=sender.epoch - 1, sequence=0, count=1, is_zombie=True)
        assert not taken or state is None or state.epoch < sender.epoch, f"producer {producer} was fenced"

    @rule(producer=producers, commits=st.booleans())
    def end_a_transaction(self, producer: int, commits: bool) -> None:
        """The coordinator decides, and its marker is on its way."""
        sender = self.producers[producer]
        if sender.is_open and sender.marker is None:
            sender.marker = Marker(ControlRecordType.COMMIT if commits else ControlRecordType.ABORT, sender.epoch)

    @rule(producer=producers)
    def fence(self, producer: int) -> None:
        """Another instance of the producer begins."""
        self.producers[producer].fence()

    @rule(at=leaders, producer=producers)
    def send_marker(self, at: int, producer: int) -> None:
        """The marker arrives, perhaps once more, perhaps at a leader that is none any more."""
        marker, broker = self.producers[producer].marker, self._leader(at)
        if marker is None or broker is None:
            return
        replica = self.replicas[broker]
        data = build_end_transaction_marker(
            0,
            marker.kind,
            producer_id=producer,
            producer_epoch=marker.epoch,
            coordinator_epoch=0,
            timestamp_ms=self.clock.time_ms(),
        )
        try:
            info = replica.leader.append(
                bytearray(data),
                required_acks=1,
                now_ms=self.clock.time_ms(),
                origin=AppendOrigin.COORDINATOR,
                transaction_version=1,
            )
        except (AppendRefusedError, ReplicationError):
            return
        marker.place = info.first_offset, replica.leader.leader_epoch
        self._act(replica)

    @rule(at=leaders, endings=endings)
    def transact(self, at: int, endings: list[tuple[int, str]]) -> None:
        """Several producers at once, and their markers: Hypothesis seldom draws the steps of it in a row."""
        for producer, _ in endings:
            self.produce_in_a_transaction(at, producer, 1)
        for producer, ending in endings:
            if ending == "is fenced":
                self.fence(producer)
            elif ending != "stays open":
                self.end_a_transaction(producer, ending == "commits")
            self.send_marker(at, producer)

    @rule(at=leaders, endings=endings)
    def transact_and_replicate(self, at: int, endings: list[tuple[int, str]]) -> None:
        """The transaction ends, and nothing fails."""
        self.transact(at, endings)
        self.go_well(2)

    @rule(endings=endings, others=endings, at=leaders)
    def fail_over(self, endings: list[tuple[int, str]], others: list[tuple[int, str]], at: int) -> None:
        """Transactions that one leader alone has, an election, and the next leader's: what is cut had several open."""
        self.go_well(2)
        self.transact(at, endings)
        for broker in REPLICAS:
            self.prefer(broker)
        for broker in REPLICAS[1:]:
            while self.replicas[broker].is_up and self.news[broker]:
                self.hear(broker)
        self.transact(at + 1, others)

    def _leader(self, at: int) -> int | None:
        return self._one(at, lambda each: each.is_up and each.leader.is_leading)

    def _send(
        self, at: int, sender: TransactionalProducer, *, epoch: int, sequence: int, count: int, is_zombie: bool = False
    ) -> bool:
        """Send a batch to whoever believes that it leads; whether it was taken."""
        broker = self._leader(at)
        if broker is None:
            return False
        replica, now_ms = self.replicas[broker], self.clock.time_ms()
        builder = RecordBatchBuilder(
            0, producer_id=sender.producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        for _ in range(count):
            builder.append(None, b"%d by %d" % (next(self.values), broker), timestamp_ms=now_ms)
        data = bytearray(builder.build())
        try:
            guard = replica.log.begin_transaction_verification(
                sender.producer_id, sequence=sequence, producer_epoch=epoch, supports_epoch_bump=False
            )
            replica.leader.append(data, required_acks=1, now_ms=now_ms, verification_guard=guard)
        except AppendRefusedError:
            if not is_zombie:
                sender.is_open = True  # perhaps of what was lost: its coordinator aborts it
                sender.fence()
            return False
        self._act(replica)
        return True

    # ---- what must hold

    def _batches(self, replica: Replica) -> ReplicaBatches:
        state = (replica.epoch, replica.log.log_end_offset, tuple(replica.epochs.items()))
        known = self.known.get(replica.broker_id)
        if known is None or known[0] != state:
            known = self.known[replica.broker_id] = (state, ReplicaBatches.of(replica))
        return known[1]

    @invariant()
    def transactions_hold(self) -> None:
        for sender in self.producers.values():
            if sender.marker is not None and sender.marker.place is not None:
                offset, epoch = sender.marker.place
                if self.committed.get(offset, (None,))[0] == epoch:
                    sender.end()
        up = [replica for replica in self.replicas.values() if replica.is_up]
        for replica in up:
            self._check(replica, self._batches(replica))
        for replica in up[1:]:
            self._compare(up[0], replica)

    def _check(self, replica: Replica, found: ReplicaBatches) -> None:
        """A replica knows what its batches say, and readers of committed records see them alone."""
        log, transactions = replica.log, found.transactions
        known = {
            entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
            for entry in log._contents.producers.snapshot()
        }
        assert known == {
            producer: (memory.epoch, memory.last_sequence, memory.transaction_first_offset)
            for producer, memory in transactions.producers.items()
        }, f"producers of broker {replica.broker_id}"
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        assert stable <= high_watermark <= log.log_end_offset, f"{stable}, {high_watermark}"
        open_offset = transactions.first_open_offset
        assert open_offset is None or stable <= open_offset, f"{stable} is behind an open transaction"
        undecided = [first for _, first, last in transactions.ended if last >= high_watermark]
        assert stable >= min([high_watermark, *undecided, *([] if open_offset is None else [open_offset])])
        aborted = log.collect_aborted_transactions(0, log.log_end_offset) if log.log_end_offset else []
        assert sorted(aborted) == sorted(transactions.aborted), f"aborted of broker {replica.broker_id}"
        seen = [row[_OFFSET] for row in consume(log, isolation="read_committed")]
        assert seen == found.committed_values(stable), f"committed records of broker {replica.broker_id}"

    def _compare(self, one: Replica, other: Replica) -> None:
        """Below both last stable offsets readers of committed records get the same."""
        stable = min(one.log.last_stable_offset, other.log.last_stable_offset)
        told = [
            {
                entry
                for _, aborted in fetches(replica.log, 0, FetchIsolation.TXN_COMMITTED, max_bytes=1 << 20)
                for entry in aborted
                if entry[1] < stable
            }
            for replica in (one, other)
        ]
        assert told[0] == told[1], f"aborted below {stable}"
        if one.log.log_end_offset == other.log.log_end_offset and one.epochs == other.epochs:
            opened = [replica.log.open_transactions() for replica in (one, other)]
            assert opened[0] == opened[1], "open transactions of equal logs"
