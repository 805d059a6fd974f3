"""Producers and transactions of one log: duplicates, batches out of order, the end of readable records.

A state machine without files: the log feeds it batches in offset order, twice each: ``prepare`` refuses an append or
returns its changes, ``apply`` makes them once the bytes are in the log. Snapshots come in and go out as values.

The last stable offset is the first offset of a transaction that is open, or whose marker is not below the high
watermark yet; a reader of committed records ends in front of it.

Source: Kafka ProducerStateManager, UnifiedLog#analyzeAndValidateProducerState (docs/formats/log-files.md).
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from tierlog._native.appends import KnownProducers
from tierlog.arguments import require_flag, require_int32, require_int64
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import (
    AppendOrigin,
    CompletedTransaction,
    ProducerAppend,
    ProducerBatch,
)
from tierlog.log.local.producers.producer_entries import (
    NO_PRODUCER_ID,
    BatchMetadata,
    ProducerSettings,
    ProducerStateEntry,
    VerificationGuard,
    VerificationStateEntry,
)

#: An open transaction is late when its producer has been silent for the longest timeout and this.
LATE_TRANSACTION_BUFFER_MS: Final = 300_000


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index.

    Attributes:
        last_offset: Of the abort marker.
        last_stable_offset: First offset of the earliest other transaction that was open then, else behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """The last record of a producer: a cleaner leaves its batch in the log, for its sequence and its epoch.

    Attributes:
        last_data_offset: None where no batch of data is known, but for a marker.
    """

    last_data_offset: int | None
    producer_epoch: int


@dataclass(slots=True)
class PreparedAppend:
    """The changes of an append.

    Attributes:
        duplicate: The batch that is in the log already: nothing is to be appended, and its offsets are the answer.
        completed: The transactions that end, in offset order.
    """

    duplicate: BatchMetadata | None = None
    completed: list[CompletedTransaction] = field(default_factory=list)
    appends: dict[int, ProducerAppend] = field(default_factory=dict)
    verified: list[int] = field(default_factory=list)


class ProducerState:
    """The producers of one log.

    Args:
        settings: The broker's; None: Kafka's defaults.

    Attributes:
        snapshot_offset: That of the last snapshot written or loaded.

    Not thread-safe: it belongs to the log's writer.
    """

    def __init__(self, settings: ProducerSettings | None = None) -> None:
        self._settings = settings or ProducerSettings()
        self._expiration_ms = self._settings.producer_id_expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, VerificationStateEntry] = {}
        #: First offset → producer id. A transaction begins behind all that are open: the first key is the least. It is
        #: an OrderedDict, since a dict looks for its first key past all keys that were deleted before it.
        self._open: OrderedDict[int, int] = OrderedDict()
        #: (first offset, marker's offset) of those that ended and may be behind the high watermark, ascending.
        self._unreplicated: list[tuple[int, int]] = []
        #: The state that a native append checks and changes: whether a batch continues its producer.
        self.known = KnownProducers(self._producers, self._verifications, end_offset=0)
        self.snapshot_offset = 0

    @property
    def end_offset(self) -> int:
        """Behind the last batch that was applied."""
        return self.known.end_offset

    @end_offset.setter
    def end_offset(self, offset: int) -> None:
        self.known.end_offset = offset

    def anew(self) -> ProducerState:
        """Make an empty one with the same settings."""
        return ProducerState(self._settings)

    # ---- look-ups

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        """The producers by id, as a view that changes with the log."""
        return MappingProxyType(self._producers)

    def last_records(self) -> dict[int, LastRecord]:
        """The last record of each producer, by its id (Kafka lastRecordsOfActiveProducers)."""
        return {i: LastRecord(entry.last_data_offset, entry.producer_epoch) for i, entry in self._producers.items()}

    def last_records_below(self, offset: int, earlier: Callable[[], Iterable[ProducerEntry]]) -> dict[int, LastRecord]:
        """The last record of each producer in front of an offset, by its id.

        Args:
            offset: Of what may be cut.
            earlier: The producers as they were at or in front of it; asked for those of which no batch in front of it
                is known any more.
        """
        found = self.last_records()
        unknown: set[int] = set()
        for producer_id, record in found.items():
            if record.last_data_offset is None or record.last_data_offset < offset:
                continue
            kept = [batch.last_offset for batch in self._producers[producer_id].batches if batch.last_offset < offset]
            if kept:
                found[producer_id] = record._replace(last_data_offset=kept[-1])
            else:
                unknown.add(producer_id)
        for entry in earlier() if unknown else ():
            if entry.producer_id in unknown:
                last_offset = entry.last_offset if entry.has_batch else None
                found[entry.producer_id] = LastRecord(last_offset, entry.producer_epoch)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known, and no transaction waits for the high watermark."""
        return not self._producers and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the earliest open transaction."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not replicated: readers of committed records end
        there.
        """
        if not self._open and not self._unreplicated:
            return None  # in logs without transactions, asked with each append
        undecided = self.first_undecided_offset
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def open_transactions(self) -> tuple[ProducerEntry, ...]:
        """The producers that have an open transaction, in the order of its first offset."""
        return tuple(self._producers[producer_id].to_snapshot() for producer_id in self._open.values())

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer of exactly this epoch has a transaction open."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the earliest open transaction should have been ended by its coordinator long ago."""
        producer_id = next(iter(self._open.values()), None)
        entry = None if producer_id is None else self._producers.get(producer_id)
        late_ms = self._settings.transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return entry is not None and entry.last_timestamp_ms > 0 and now_ms - entry.last_timestamp_ms > late_ms

    # ---- verification

    def begin_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard for the first batch of a transaction, once its coordinator says yes; None if the producer's
        transaction is open already, and nothing has to be verified.

        Raises:
            AppendRefusedError: INVALID_PRODUCER_EPOCH. TypeError, ValueError: an argument is of another type, or does
                not fit into Kafka's field.
        """
        producer_id, sequence = require_int64("producer_id", producer_id), require_int32("sequence", sequence)
        producer_epoch = require_int32("producer_epoch", producer_epoch)
        require_flag("supports_epoch_bump", supports_epoch_bump)
        self._check_known_epoch(producer_id, producer_epoch)
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = VerificationStateEntry(
                created_ms=now_ms,
                lowest_sequence=sequence,
                producer_epoch=producer_epoch,
                supports_epoch_bump=supports_epoch_bump,
            )
            self._verifications[producer_id] = entry
        entry.take(sequence, producer_epoch)
        return entry.guard

    # ---- appends

    def prepare(
        self,
        batches: Iterable[ProducerBatch],
        *,
        origin: AppendOrigin,
        guard: VerificationGuard | None = None,
        transaction_version: int | None = None,
    ) -> PreparedAppend:
        """Compute the changes of appending these batches. Nothing changes yet.

        Args:
            batches: In offset order; those without a producer id are passed over.
            origin: How much of them is checked.
            guard: The guard that ``begin_verification`` returned for this append.
            transaction_version: Of the markers among them.

        Raises:
            AppendRefusedError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
                TRANSACTION_COORDINATOR_FENCED, UNKNOWN_SERVER_ERROR: a broker's marker without its version.
        """
        prepared = PreparedAppend()
        for batch in batches:
            if batch.producer_id <= NO_PRODUCER_ID:
                continue
            known = self._producers.get(batch.producer_id)
            if origin is AppendOrigin.CLIENT and known is not None:
                found = known.find_duplicate(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if found is not None:
                    return PreparedAppend(duplicate=found)
            if origin is not AppendOrigin.REPLICATION and batch.is_transactional:
                self._check_verified(batch, guard)
            append = prepared.appends.get(batch.producer_id)
            if append is None:
                verification = self._verifications.get(batch.producer_id)
                append = ProducerAppend(batch.producer_id, known, origin=origin, verification=verification)
                prepared.appends[batch.producer_id] = append
            completed = append.add(batch, transaction_version=transaction_version)
            if completed is not None:
                prepared.completed.append(completed)
            if batch.is_transactional and self._ends_verification(batch):
                prepared.verified.append(batch.producer_id)
        return prepared

    def apply(self, prepared: PreparedAppend, *, end_offset: int) -> list[AbortedTransaction]:
        """Take what ``prepare`` said, now that the batches are in the log; the entries for the transaction index, which
        the log writes before it goes on.

        Args:
            prepared: Of the append that was written; once.
            end_offset: Behind the last offset of the append.
        """
        begun: list[tuple[int, int]] = []
        for producer_id, append in prepared.appends.items():
            known = self._producers.get(producer_id)
            if known is None:
                self._producers[producer_id] = append.updated
            else:
                known.update(append.updated)
            begun += [(first_offset, producer_id) for first_offset in append.begun]
        self._open.update(sorted(begun))  # the producers of one append begin theirs in any order
        for producer_id in prepared.verified:
            self._verifications.pop(producer_id, None)
        aborted = [entry for entry in map(self._complete, prepared.completed) if entry is not None]
        self.end_offset = end_offset
        return aborted

    def replay(self, batches: Sequence[ProducerBatch], *, end_offset: int) -> list[AbortedTransaction]:
        """Take batches that are in the log: at recovery, one after the other, whatever they say."""
        aborted: list[AbortedTransaction] = []
        for batch in batches:
            prepared = self.prepare((batch,), origin=AppendOrigin.REPLICATION)
            aborted += self.apply(prepared, end_offset=batch.last_offset + 1)
        self.end_offset = end_offset
        return aborted

    def take_run(
        self, appended: Sequence[ProducerStateEntry], *, begun: Sequence[tuple[int, int]], end_offset: int
    ) -> None:
        """Apply batches that are in the log and end no transaction, folded to their changes of each producer.

        Args:
            appended: By the producers' first batches in the run: epoch, timestamp, open transaction and last batches as
                they are behind it. A producer whose batches of an earlier epoch are in the run too comes twice: first
                with that epoch, and without batches.
            begun: (first offset, producer id) of the transactions that begin in the run, ascending.
            end_offset: Behind the run.
        """
        for entry in appended:
            known = self._producers.get(entry.producer_id)
            if known is None:
                self._producers[entry.producer_id] = entry
            else:
                known.update(entry)
            if entry.current_txn_first_offset is not None:
                self._verifications.pop(entry.producer_id, None)
        for first_offset, producer_id in begun:
            self._open[first_offset] = producer_id
        self.end_offset = end_offset

    def hold_batches(self, producer_ids: Iterable[int], held: dict[int, ProducerStateEntry | None]) -> None:
        """Have what is replayed next of these producers count as one append: their batches of before go into ``held``,
        until ``join_batches``. Those that are in it already stay as they are.
        """
        for producer_id in producer_ids:
            if producer_id in held:
                continue
            held[producer_id] = known = self._producers.get(producer_id)
            if known is not None:
                self._producers[producer_id] = known.without_batches()

    def join_batches(self, held: Mapping[int, ProducerStateEntry | None]) -> None:
        """Put what was replayed behind the batches that were held."""
        for producer_id, known in held.items():
            if known is not None:
                known.update(self._producers[producer_id])
                self._producers[producer_id] = known

    # ---- the log moves

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below."""
        if self._unreplicated:
            self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= high_watermark]

    def on_log_start(self, log_start_offset: int, *, latest_snapshot_offset: int | None) -> None:
        """The log begins later now. Producers stay, even those whose records went."""
        self.on_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        self.snapshot_offset = log_start_offset if latest_snapshot_offset is None else latest_snapshot_offset

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been silent for too long and have no transaction open, and unanswered questions;
        return the number of forgotten producers.
        """
        expired = [i for i, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id in [i for i, v in self._verifications.items() if now_ms - v.created_ms >= self._expiration_ms]:
            del self._verifications[producer_id]
        return len(expired)

    def forget_transaction(self, producer_id: int) -> None:
        """Take a producer's open transaction for ended: nothing of it is in the log any more."""
        entry = self._producers[producer_id]
        if entry.current_txn_first_offset is not None:
            del self._open[entry.current_txn_first_offset]
            entry.current_txn_first_offset = None

    def restart(self, offset: int, *, snapshot_offset: int = 0) -> None:
        """Forget all producers and transactions: the log is empty from this offset on, or is replayed from it."""
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = offset
        self.snapshot_offset = snapshot_offset

    # ---- snapshots

    @property
    def snapshot_is_due(self) -> bool:
        """Whether anything was appended since the last snapshot."""
        return self.end_offset > self.snapshot_offset

    def snapshot(self) -> list[ProducerEntry]:
        """The producers at ``end_offset``, for :func:`encode_producer_snapshot`; the writer sets
        ``snapshot_offset``.
        """
        return [entry.to_snapshot() for entry in self._producers.values()]

    def load(self, snapshot: ProducerSnapshot, *, offset: int, now_ms: int) -> None:
        """Begin with a snapshot, without the producers that have expired since.

        Raises:
            CorruptIndexError: a producer is in it twice, or two have a transaction from the same offset. Nothing has
                changed.
        """
        loaded = [ProducerStateEntry.of_snapshot(stored) for stored in snapshot.entries]
        loaded = [entry for entry in loaded if not self._is_expired(entry, now_ms)]
        producers = {entry.producer_id: entry for entry in loaded}
        begun = [(e.current_txn_first_offset, e.producer_id) for e in loaded if e.current_txn_first_offset is not None]
        opened = OrderedDict(sorted(begun))
        if len(producers) != len(loaded) or len(opened) != len(begun):
            raise CorruptIndexError("a producer, or the begin of a transaction, is there twice", fault="BAD_ENTRY")
        self.restart(offset, snapshot_offset=offset)
        self._producers.update(producers)
        self._open = opened

    # ---- inside

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp_ms >= self._expiration_ms

    def _check_known_epoch(self, producer_id: int, producer_epoch: int) -> None:
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.producer_epoch:
            text = f"producer {producer_id}: epoch {producer_epoch}, below {known.producer_epoch}"
            raise AppendRefusedError(KafkaError.INVALID_PRODUCER_EPOCH, text)

    def _check_verified(self, batch: ProducerBatch, guard: VerificationGuard | None) -> None:
        """A transactional batch needs an open transaction, or the guard of a question that was answered."""
        if self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        self._check_known_epoch(batch.producer_id, batch.producer_epoch)
        if not self._settings.transaction_partition_verification_enable or batch.is_control:
            return
        entry = self._verifications.get(batch.producer_id)
        if entry is None or guard is not entry.guard:
            text = f"producer {batch.producer_id}: a batch of a transaction that is not open and was not verified"
            raise AppendRefusedError(KafkaError.INVALID_TXN_STATE, text)

    def _ends_verification(self, batch: ProducerBatch) -> bool:
        """All but a marker of version 2 of the epoch that asks: it ends the transaction before that one."""
        entry = self._verifications.get(batch.producer_id)
        return entry is not None and not (
            entry.supports_epoch_bump and batch.is_control and batch.producer_epoch == entry.producer_epoch
        )

    def _complete(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        # Kafka passes over this producer's next one too, which a follower's append may have: it would hide that one.
        others = (first for first in self._open if first != completed.first_offset)
        stable = next(others, completed.last_offset + 1)
        del self._open[completed.first_offset]
        insort(self._unreplicated, (completed.first_offset, completed.last_offset))
        if not completed.is_aborted:
            return None
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
