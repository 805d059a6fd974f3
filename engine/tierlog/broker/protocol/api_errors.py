"""Errors as Kafka's clients know them."""

from __future__ import annotations

from typing import ClassVar

from kio.schema.errors import ErrorCode

from tierlog.errors import CorruptDataError, ObjectNotFoundError, StoreError, TierlogError


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

    A store that failed is KAFKA_STORAGE_ERROR, which clients retry; bytes that are wrong are CORRUPT_MESSAGE; an object
    that is gone is OFFSET_OUT_OF_RANGE once the listing says so, until then KAFKA_STORAGE_ERROR too.
    """
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, CorruptDataError):
        return ErrorCode.corrupt_message
    if isinstance(error, ObjectNotFoundError | StoreError):
        return ErrorCode.kafka_storage_error
    return ErrorCode.unknown_server_error
