"""The errors of a log: Kafka's names and codes for refused appends, and the states in which every call fails."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tierlog.errors import StoreError, StoreUnavailableError, TierlogError


class KafkaError(enum.IntEnum):
    """Error codes of Kafka's protocol, those that a log can answer. Source: Kafka Errors."""

    UNKNOWN_SERVER_ERROR = -1
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109


@dataclass(frozen=True, slots=True)
class RecordError:
    """The error of one record of a batch, as a produce response has it.

    Attributes:
        batch_index: Index of the record in its batch.
    """

    batch_index: int
    message: str


class AppendRefusedError(TierlogError, ValueError):
    """The log refuses these bytes; nothing has changed, and the log goes on.

    Attributes:
        error: The broker's error code.
        record_errors: The errors of single records (1,000 at most).
    """

    def __init__(self, error: KafkaError, text: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(f"{error.name}: {text}")
        self.error = error
        self.text = text
        self.record_errors = record_errors

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error, self.text, self.record_errors)


class OffsetOutOfRangeError(TierlogError, LookupError):
    """The log does not hold the wanted offset.

    Attributes:
        error: The broker's error code.
        offset: The one asked for.
        log_start_offset: Where the log began then.
        local_log_start_offset: Where it began here then; above its start if it began in the tier.
        log_end_offset: Where it ended then, exclusive.
    """

    error = KafkaError.OFFSET_OUT_OF_RANGE

    def __init__(
        self, text: str, *, offset: int, log_start_offset: int, log_end_offset: int, local_log_start_offset: int = 0
    ) -> None:
        has = f"the log has {log_start_offset} … {log_end_offset}"
        if local_log_start_offset > log_start_offset:
            has += f", here from {local_log_start_offset} on"
        super().__init__(f"{text}: offset {offset}, {has}")
        self.text = text
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = local_log_start_offset
        self.log_end_offset = log_end_offset

    @property
    def is_in_tier(self) -> bool:
        """Whether the tier has the offset: consumers read it there, followers begin behind it."""
        return self.log_start_offset <= self.offset < self.local_log_start_offset

    def __reduce__(self) -> tuple[object, ...]:
        names = ("offset", "log_start_offset", "log_end_offset", "local_log_start_offset")
        offsets = {name: getattr(self, name) for name in names}
        return partial(type(self), self.text, **offsets), ()


class LogOfflineError(StoreError):
    """The log failed to read, write or sync a file and is offline: every later call ends with the same error.

    Open the log anew, once the cause is gone: that recovers it. The cause is the ``__cause__`` of the first.

    Attributes:
        error: The broker's error code.
    """

    error = KafkaError.KAFKA_STORAGE_ERROR


class LogClosedError(TierlogError, ValueError):
    """The log, or the directory that it belongs to, was closed."""


class DirectoryInUseError(StoreUnavailableError):
    """A broker, or another process, has the log directory open."""


class LogTruncatedError(TierlogError, LookupError):
    """Bytes that a read returned are no longer in the log: it was truncated meanwhile. Read again."""

    retriable: ClassVar[bool] = True


class LogCleaningAbortedError(TierlogError):
    """A cleaning ends: its log is to be shortened, moved or deleted, or its cleaner closes. Nothing went wrong."""


class LogBusyError(TierlogError, TimeoutError):
    """A cleaning of the log did not end in time, so that the log could not be changed. Try again."""

    retriable: ClassVar[bool] = True


class InconsistentTopicIdError(TierlogError, ValueError):
    """The folder belongs to another topic of the same name, which was deleted and made anew.

    Attributes:
        error: The broker's error code.
    """

    error = KafkaError.INCONSISTENT_TOPIC_ID
