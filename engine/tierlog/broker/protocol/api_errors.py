"""Errors as Kafka's clients know them."""

from __future__ import annotations

from typing import ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.errors import (
    ArchivedObjectError,
    CorruptDataError,
    EncryptionKeyError,
    ForkedProcessError,
    NoThreadError,
    PoolClosedError,
    StoreError,
    TierlogError,
    UnknownTopicError,
)
from tierlog.remote.api import RemoteStorageException


class ApiError(TierlogError):
    """What a client is told: one of Kafka's error codes, with a text where the API has room for one.

    Attributes:
        code: Kafka's error; its ``retriable`` says what clients make of it.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, code: ErrorCode, text: str = "") -> None:
        super().__init__(text or code.name)
        self.code = code
        self.text = text


def error_code_of(error: BaseException) -> ErrorCode:
    """The error that a client is told for one of ours.

    A store that failed is KAFKA_STORAGE_ERROR, which clients retry in silence; bytes that are wrong are
    CORRUPT_MESSAGE; an object that is gone is KAFKA_STORAGE_ERROR too, until the listing says that its offsets are.
    What somebody has to mend by hand (a key, an archived object) is UNKNOWN_SERVER_ERROR, as Kafka tells what went
    wrong in its tier: consumers report it and go on with their other partitions. The server's log has the reason.
    """
    if isinstance(error, ApiError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.unknown_server_error)


#: The first that fits.
_CODES: Final[tuple[tuple[type[BaseException], ErrorCode], ...]] = (
    (UnknownTopicError, ErrorCode.unknown_topic_or_partition),
    (EncryptionKeyError, ErrorCode.unknown_server_error),
    (ArchivedObjectError, ErrorCode.unknown_server_error),
    (CorruptDataError, ErrorCode.corrupt_message),
    (RemoteStorageException, ErrorCode.kafka_storage_error),
    (StoreError, ErrorCode.kafka_storage_error),
    (PoolClosedError, ErrorCode.kafka_storage_error),
    (ForkedProcessError, ErrorCode.kafka_storage_error),
    (NoThreadError, ErrorCode.kafka_storage_error),
    (TimeoutError, ErrorCode.request_timed_out),
)
