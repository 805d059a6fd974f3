"""One producer's batches in one append: checked against its state, which changes only when they are in the log.

Source: Kafka ProducerAppendInfo, AppendOrigin, CompletedTxn.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import AssignedBatch, Marker, find_marker, sequence_after
from tierlog.arguments import require_int32, require_type
from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_entries import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    BatchMetadata,
    ProducerStateEntry,
    VerificationGuard,
    VerificationStateEntry,
)
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL

_log = logging.getLogger(__name__)

#: Markers of this version come with an epoch above that of the transaction's batches.
TRANSACTION_VERSION_2: Final = 2
PRODUCER_EPOCH_MAX: Final = 2**15 - 1


class AppendOrigin(enum.Enum):
    """The origin of a batch, which decides on its checks."""

    CLIENT = "client"
    """A produce request: everything."""
    COORDINATOR = "coordinator"
    """A broker's own: offset commits, which have no sequences, and markers. Epochs are checked."""
    REPLICATION = "replication"
    """A leader that has checked it, or the log itself at recovery: what is wrong is logged, and only a batch of no
    transaction while one is open is refused.
    """


def require_append(origin: object, guard: object, transaction_version: object) -> None:
    """Check the arguments of an append. Raises TypeError. ValueError: the version does not fit into 32 bits."""
    require_type("origin", origin, AppendOrigin, "an AppendOrigin")
    require_type("verification_guard", guard, (VerificationGuard, type(None)), "a VerificationGuard")
    if transaction_version is not None:
        require_int32("transaction_version", transaction_version)


class ProducerBatch(NamedTuple):
    """A batch of a producer, with the offsets that it has or gets.

    Attributes:
        base_sequence: -1 where there are none.
        max_timestamp_ms: The batch's greatest.
        is_control: A control batch; ``marker`` is None then where compaction emptied it, and the reason to refuse the
            batch where it is no marker.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    is_transactional: bool = False
    is_control: bool = False
    marker: Marker | AppendRefusedError | None = None

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.last_offset - self.base_offset)


class CompletedTransaction(NamedTuple):
    """A transaction that has batches in this log and ends with a marker.

    Attributes:
        last_offset: Of the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerAppend:
    """The batches of one producer in one append.

    Args:
        current: Its state before; None if it is not known. It is not changed.
        verification: Of its next transaction, while that is not begun.

    Attributes:
        updated: Its state after the batches so far.
        begun: First offsets of the transactions that they begin.
    """

    __slots__ = ("_current", "_origin", "_verification", "begun", "updated")

    def __init__(
        self,
        producer_id: int,
        current: ProducerStateEntry | None,
        *,
        origin: AppendOrigin,
        verification: VerificationStateEntry | None = None,
    ) -> None:
        self._current = current or ProducerStateEntry(producer_id)
        self._origin = origin
        self._verification = verification
        self.updated = self._current.without_batches()
        self.begun: list[int] = []

    def add(self, batch: ProducerBatch, *, transaction_version: int | None = None) -> CompletedTransaction | None:
        """Check a batch and add it; return the transaction that it ends, if that has batches.

        Args:
            batch: With the offsets that it has or gets.
            transaction_version: Of the coordinator that sent a marker; a broker's own marker needs it.

        Raises:
            AppendRefusedError: the append must not take place.
        """
        if not batch.is_control:
            self._add_data(batch)
            return None
        if batch.marker is None:
            # Compaction left it for its epoch alone, which Kafka forgets: with it, who was fenced would write again.
            self.updated.begin_epoch(batch.producer_epoch, batch.max_timestamp_ms)
            return None
        if isinstance(batch.marker, AppendRefusedError):
            raise batch.marker
        return self._add_marker(batch, batch.marker, transaction_version)

    def _add_data(self, batch: ProducerBatch) -> None:
        self._check_epoch(batch, transaction_version=0)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(batch)
        updated = self.updated
        delta = batch.last_offset - batch.base_offset
        metadata = BatchMetadata(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp_ms)
        updated.add_batch(batch.producer_epoch, metadata)
        if updated.current_txn_first_offset is not None and not batch.is_transactional:
            raise self._refused(KafkaError.INVALID_TXN_STATE, batch, "a batch of no transaction while one is open")
        if updated.current_txn_first_offset is None and batch.is_transactional:
            updated.current_txn_first_offset = batch.base_offset
            self.begun.append(batch.base_offset)

    def _add_marker(
        self, batch: ProducerBatch, marker: Marker, transaction_version: int | None
    ) -> CompletedTransaction | None:
        if transaction_version is None:
            if self._origin is not AppendOrigin.REPLICATION:
                raise self._refused(KafkaError.UNKNOWN_SERVER_ERROR, batch, "a marker without its transaction version")
            transaction_version = 0  # the leader knew it, and checked more than this
        self._check_epoch(batch, transaction_version=transaction_version)
        updated = self.updated
        if marker.coordinator_epoch < updated.coordinator_epoch:
            text = f"coordinator epoch {marker.coordinator_epoch}, the last was {updated.coordinator_epoch}"
            self._refuse(KafkaError.TRANSACTION_COORDINATOR_FENCED, batch, text)
        first_offset = updated.current_txn_first_offset
        updated.end_transaction(batch.producer_epoch, marker.coordinator_epoch, marker.timestamp)
        if first_offset is None:
            return None  # no batch of it is in this log: nothing waits for its end
        return CompletedTransaction(batch.producer_id, first_offset, batch.base_offset, not marker.is_commit)

    def _check_epoch(self, batch: ProducerBatch, *, transaction_version: int) -> None:
        """Check that a marker of version 2 has a later epoch than its transaction's batches; of any other kind, no
        earlier one.
        """
        epoch, known = batch.producer_epoch, self.updated.producer_epoch
        if epoch > known or (epoch == known and transaction_version < TRANSACTION_VERSION_2):
            return
        if epoch == known and (self.updated.current_txn_first_offset is None or epoch == PRODUCER_EPOCH_MAX):
            return  # the coordinator sent the marker again: its answer was lost
        relation = "below" if epoch < known else "that of the open transaction,"
        self._refuse(KafkaError.INVALID_PRODUCER_EPOCH, batch, f"epoch {epoch}, {relation} {known}")

    def _check_sequence(self, batch: ProducerBatch) -> None:
        first, current, updated, asked = batch.base_sequence, self._current, self.updated, self._verification
        if asked is not None:
            if first > asked.lowest_sequence:
                raise self._out_of_order(batch, f"a batch of {asked.lowest_sequence} is being verified")
            if asked.supports_epoch_bump and first != 0 and not current.batches:
                raise self._out_of_order(batch, "a producer of transactions v2 that is not known begins with 0")
        if batch.producer_epoch != updated.producer_epoch:
            if first != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(batch, f"epoch {batch.producer_epoch} is new and begins with 0")
            return
        if current.producer_epoch == NO_PRODUCER_EPOCH:
            return  # its records were deleted: any sequence goes on
        last = NO_SEQUENCE
        if updated.batches:
            last = updated.last_sequence
        elif batch.producer_epoch == current.producer_epoch:
            last = current.last_sequence
        if first != last + 1 and not (first == 0 and last == SEQUENCE_MAX):
            raise self._out_of_order(batch, f"the last was {last}")

    def _out_of_order(self, batch: ProducerBatch, why: str) -> AppendRefusedError:
        text = f"sequence {batch.base_sequence}: {why}"
        return self._refused(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, batch, text)

    def _refuse(self, error: KafkaError, batch: ProducerBatch, why: str) -> None:
        """Raise a leader's refusal; a replicated batch is only logged."""
        refused = self._refused(error, batch, why)
        if self._origin is not AppendOrigin.REPLICATION:
            raise refused
        _log.warning("replicated all the same: %s", refused)

    def _refused(self, error: KafkaError, batch: ProducerBatch, why: str) -> AppendRefusedError:
        return AppendRefusedError(error, f"producer {batch.producer_id} at offset {batch.base_offset}: {why}")


#: The columns that batches of producers are made of.
PRODUCER_COLUMNS: Final = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "attributes",
    "position",
    "size_bytes",
    "record_count",
)
#: Faults of a marker that Kafka has no error for.
_UNKNOWN: Final = frozenset(("BAD_ENTRY", "BAD_CODEC"))


def producer_batch_of(batch: AssignedBatch, data: memoryview) -> ProducerBatch:
    """Make a leader's batch."""
    is_control = bool(batch.attributes & CONTROL)
    return ProducerBatch(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        bool(batch.attributes & TRANSACTIONAL),
        is_control,
        _marker_of(data, batch.record_count) if is_control else None,
    )


def producer_batches_of(columns: Mapping[str, NDArray[np.generic]], data: memoryview) -> list[ProducerBatch]:
    """Return the batches of a run that have a producer, in offset order.

    Args:
        columns: Of ``scan_batches``.
        data: The bytes that they describe; positions count from its start.
    """

    def marker_of(position: int, size_bytes: int, record_count: int) -> Marker | AppendRefusedError | None:
        return _marker_of(data[position : position + size_bytes], record_count)

    return [batch for _, batch in iter_producer_batches(columns, marker_of)]


def iter_producer_batches(
    columns: Mapping[str, NDArray[np.generic]],
    marker_of: Callable[[int, int, int], Marker | AppendRefusedError | None],
) -> Iterator[tuple[int, ProducerBatch]]:
    """(position, batch) of those that have a producer, in offset order. ``marker_of`` is given position, size in bytes
    and number of records of a control batch when that is next.
    """
    rows = np.flatnonzero(columns["producer_id"].astype(np.int64) >= 0)
    table = zip(*(columns[name][rows].tolist() for name in PRODUCER_COLUMNS), strict=True)
    for producer_id, epoch, sequence, base, last, timestamp_ms, attributes, position, size_bytes, count in table:
        is_control, is_transactional = bool(attributes & CONTROL), bool(attributes & TRANSACTIONAL)
        marker = marker_of(position, size_bytes, count) if is_control else None
        yield (
            position,
            ProducerBatch(producer_id, epoch, sequence, base, last, timestamp_ms, is_transactional, is_control, marker),
        )


def _marker_of(data: memoryview, record_count: int) -> Marker | AppendRefusedError | None:
    """Return the marker of a control batch; None where compaction emptied it; else why it is refused in its turn: as
    Kafka refuses a malformed record, and control records of other kinds from a producer.
    """
    try:
        marker = find_marker(data)
    except CorruptRecordError as cause:
        error = KafkaError.UNKNOWN_SERVER_ERROR if cause.fault in _UNKNOWN else KafkaError.INVALID_RECORD
        refused = AppendRefusedError(error, f"a control record of a producer: {cause}")
        refused.__cause__ = cause
        return refused
    if marker is None and record_count:
        text = "a control record of a producer that ends no transaction"
        return AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, text)
    return marker
