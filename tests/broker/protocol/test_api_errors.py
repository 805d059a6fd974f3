"""The errors that clients get for faults of this side."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tierlog.broker.protocol.api_errors import ApiError, error_code_of
from tierlog.errors import (
    ArchivedObjectError,
    CorruptObjectError,
    EncryptionKeyError,
    NoThreadError,
    ObjectNotFoundError,
    StorePermissionError,
    StoreUnavailableError,
    UnknownTopicError,
)
from tierlog.remote.api import RetriableRemoteStorageException


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.fenced_leader_epoch), ErrorCode.fenced_leader_epoch),
        (UnknownTopicError("t"), ErrorCode.unknown_topic_or_partition),
        (CorruptObjectError("no JSON"), ErrorCode.corrupt_message),
        (StoreUnavailableError("timed out"), ErrorCode.kafka_storage_error),
        (StorePermissionError("403"), ErrorCode.kafka_storage_error),
        (ObjectNotFoundError("gone"), ErrorCode.kafka_storage_error),
        (NoThreadError("none"), ErrorCode.kafka_storage_error),
        (RetriableRemoteStorageException("closed"), ErrorCode.kafka_storage_error),
        (TimeoutError(), ErrorCode.request_timed_out),
        (EncryptionKeyError("k1"), ErrorCode.unknown_server_error),
        (ArchivedObjectError("restore it first"), ErrorCode.unknown_server_error),
        (RuntimeError("a bug"), ErrorCode.unknown_server_error),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else type(value).__name__,
)
def test_codes(error: Exception, code: ErrorCode) -> None:
    """A consumer would retry forever what cannot be mended, or stop for what passes."""
    assert error_code_of(error) is code


def test_an_error_without_a_text_is_called_by_its_code() -> None:
    """Logs would have an empty line."""
    assert str(ApiError(ErrorCode.fenced_leader_epoch)) == "fenced_leader_epoch"
    assert str(ApiError(ErrorCode.invalid_request, "why")) == "why"
