"""The state of one producer in a log: its epoch, its last batches, its open transaction, and the verification of it;
and the broker's settings about producers.

Before a producer's first batch of a transaction the broker asks the coordinator whether the partition is part of it.
Meanwhile a marker may end the transaction, and the answer would come too late: the guard that was returned with the
question has to be there still when the batch is appended (KIP-890).

Source: Kafka ProducerStateEntry, BatchMetadata, VerificationStateEntry, VerificationGuard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self, final

from tierlog._native.appends import KnownProducer
from tierlog.arguments import require_flag, require_int64
from tierlog.log.formats.producer_snapshot import ProducerEntry, first_sequence
from tierlog.log.local.log_config import LogDirectoryConfig

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1
_NO_BATCH: Final = (NO_SEQUENCE, -1, 0, NO_TIMESTAMP)
#: An idempotent producer has at most so many in-flight requests (max.in.flight.requests.per.connection).
BATCHES_KEPT: Final = 5
_DEFAULTS: Final = LogDirectoryConfig()


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The broker's settings about producers.

    Args:
        producer_id_expiration_ms: ``producer.id.expiration.ms``.
        transaction_max_timeout_ms: ``transaction.max.timeout.ms``.
        transaction_partition_verification_enable: ``transaction.partition.verification.enable``.

    Raises:
        TypeError: a field is of another type. ValueError: a time that does not fit into 64 bits, or is not above 0.
    """

    producer_id_expiration_ms: int = _DEFAULTS.producer_id_expiration_ms
    transaction_max_timeout_ms: int = _DEFAULTS.transaction_max_timeout_ms
    transaction_partition_verification_enable: bool = _DEFAULTS.transaction_partition_verification_enable

    def __post_init__(self) -> None:
        """Check the fields."""
        require_int64("producer_id_expiration_ms", self.producer_id_expiration_ms, least=1)
        require_int64("transaction_max_timeout_ms", self.transaction_max_timeout_ms, least=1)
        require_flag("transaction_partition_verification_enable", self.transaction_partition_verification_enable)

    @classmethod
    def of(cls, config: LogDirectoryConfig) -> Self:
        """Return the settings of a directory's configuration, with which each of its logs is opened."""
        return cls(
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transaction_partition_verification_enable=config.transaction_partition_verification_enable,
        )


class BatchMetadata(NamedTuple):
    """A data batch that was appended.

    Attributes:
        last_offset: Inclusive.
        offset_delta: Last minus first offset.
        timestamp_ms: The batch's greatest.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return first_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry(KnownProducer):
    """One producer's state. Not thread-safe: it belongs to the log's writer."""

    __slots__ = ()

    @property
    def batches(self) -> tuple[BatchMetadata, ...]:
        """The last data batches of this epoch, at most five, oldest first."""
        return tuple(map(BatchMetadata._make, self.kept()))

    @classmethod
    def of_snapshot(cls, entry: ProducerEntry) -> ProducerStateEntry:
        """Make the entry of a snapshot's: it has the last batch alone."""
        batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
        first_offset = entry.transaction_first_offset
        return cls(
            entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp_ms=entry.timestamp_ms,
            current_txn_first_offset=first_offset if first_offset >= 0 else None,
            batches=(batch,) if entry.has_batch else (),
        )

    def to_snapshot(self) -> ProducerEntry:
        """The entry of a snapshot file."""
        first_offset = self.current_txn_first_offset
        _, last_offset, offset_delta, _ = self.kept()[-1] if self.has_batches else _NO_BATCH
        return ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            last_offset,
            offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )

    def without_batches(self) -> ProducerStateEntry:
        """A copy, for one append: its batches are those of the append."""
        return ProducerStateEntry(
            self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp_ms=self.last_timestamp_ms,
            current_txn_first_offset=self.current_txn_first_offset,
        )

    @property
    def last_sequence(self) -> int:
        """Sequence of the last data batch of this epoch; -1 if none is known."""
        return self.kept()[-1][0] if self.has_batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int | None:
        """Offset of the last record of data of this epoch; None if none is known."""
        last_offset = self.kept()[-1][1] if self.has_batches else -1
        return last_offset if last_offset >= 0 else None

    def find_duplicate(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The batch that has exactly these sequences, if it is one of the last five of this epoch."""
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Take a data batch; of another epoch the batches before are forgotten."""
        self._enter_epoch(producer_epoch)
        self.keep(*batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> None:
        """Take a marker."""
        self._enter_epoch(producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = None
        self.last_timestamp_ms = timestamp_ms

    def begin_epoch(self, producer_epoch: int, timestamp_ms: int) -> None:
        """Take a later epoch of which neither a batch nor a marker is known."""
        if producer_epoch > self.producer_epoch:
            self._enter_epoch(producer_epoch)
            self.last_timestamp_ms = timestamp_ms

    def update(self, appended: ProducerStateEntry) -> None:
        """Take over the changes that an append made to ``without_batches``."""
        self._enter_epoch(appended.producer_epoch)
        for batch in appended.kept():
            self.keep(*batch)
        self.coordinator_epoch = appended.coordinator_epoch
        self.current_txn_first_offset = appended.current_txn_first_offset
        self.last_timestamp_ms = appended.last_timestamp_ms

    def _enter_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.forget_batches()
            self.producer_epoch = producer_epoch


@final
class VerificationGuard:
    """One question to a coordinator: equal to itself alone. None is Kafka's sentinel, which verifies nothing."""

    __slots__ = ()


@dataclass(slots=True)
class VerificationStateEntry:
    """A producer whose next batch begins a transaction, once it is verified.

    Attributes:
        guard: What its append has to bring.
        created_ms: When the question was asked; entries of unanswered questions expire.
        supports_epoch_bump: The producer uses transactions of version 2.
        lowest_sequence: Of the batches that asked: none above is written before it, else the lower one would be out of
            order for ever.
    """

    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    supports_epoch_bump: bool
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def take(self, sequence: int, producer_epoch: int) -> None:
        """Note the request of another batch: the lowest sequence of the latest epoch counts."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
