"""Values of a log: the producers' settings that it is opened with, and the answers to appends and reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tierlog.arguments import require_flag, require_int64
from tierlog.log.local.producers.producer_entries import BatchMetadata
from tierlog.log.local.segments.log_slice import LogSlice


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

    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        require_int64("producer_id_expiration_ms", self.producer_id_expiration_ms, least=1)
        require_int64("transaction_max_timeout_ms", self.transaction_max_timeout_ms, least=1)
        require_flag("transaction_partition_verification_enable", self.transaction_partition_verification_enable)


class LogAppendInfo(NamedTuple):
    """What became of an append.

    Attributes:
        first_offset: Of the first record; of a duplicate, of the batch that is in the log already. -1: the bytes held
            nothing to append.
        last_offset: Of the last record, inclusive; -1 as above.
        max_timestamp_ms: The greatest in the append.
        log_append_time_ms: The leader's clock where ``message.timestamp.type`` is LogAppendTime; -1 otherwise.
        log_start_offset: Of the log, after the append.
        size_bytes: How many bytes the log grew by; 0 for a duplicate.
        is_duplicate: Whether the batch was in the log already.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False

    @classmethod
    def of_nothing(cls, log_start_offset: int) -> LogAppendInfo:
        """The answer to bytes that hold no whole batch."""
        return cls(-1, -1, -1, -1, log_start_offset, 0)

    @classmethod
    def of_duplicate(cls, known: BatchMetadata, log_start_offset: int) -> LogAppendInfo:
        """The answer for a batch that is in the log already: where it is."""
        timestamp_ms = known.timestamp_ms
        return cls(
            known.first_offset, known.last_offset, timestamp_ms, timestamp_ms, log_start_offset, 0, is_duplicate=True
        )


class FetchDataInfo(NamedTuple):
    """What a read found.

    Attributes:
        records: Where the bytes lie; None if there is nothing to read yet. They begin with the first byte of the batch
            that holds the offset (or of the next one) and may end inside a batch.
        start_offset: The one asked for.
        segment_base_offset: Of the segment in which the bytes begin.
        position: Where they begin in that segment, bytes.
        first_entry_incomplete: Whether the first batch does not fit into ``max_bytes`` and is handed out in part.
        aborted_transactions: (producer id, first offset) for TXN_COMMITTED; None for other isolations.
    """

    records: LogSlice | None
    start_offset: int
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[tuple[int, int], ...] | None = None
