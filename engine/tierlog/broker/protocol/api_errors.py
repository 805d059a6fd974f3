"""Errors as Kafka's clients know them, and the answer to a request of any API that is one error.

Kafka has a method an API for that answer (``AbstractRequest#getErrorResponse``). They follow a pattern: each thing that
was asked for is named again, with the error, unless the answer has room for one error for all of them. What does not
follow it stands in tables here.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.protocol.entities import MadeElements
from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields
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
    """An error for a client: one of Kafka's error codes, with a text where the API has room for one.

    Attributes:
        code: Kafka's error; its ``retriable`` says what clients make of it.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, code: ErrorCode, text: str = "") -> None:
        super().__init__(text or code.name)
        self.code = code
        self.text = text


def error_code_of(error: BaseException) -> ErrorCode:
    """Return the client's error for one of ours.

    A store that failed is KAFKA_STORAGE_ERROR, which clients retry in silence; bytes that are wrong are
    CORRUPT_MESSAGE; an object that is gone is KAFKA_STORAGE_ERROR too, until the listing says that its offsets are. A
    fault that has to be mended by hand (a key, an archived object) is UNKNOWN_SERVER_ERROR, like faults of Kafka's
    tier: consumers report it and go on with their other partitions. The server's log has the reason.
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

_METADATA, _FIND_COORDINATOR, _DESCRIBE_GROUPS, _DELETE_TOPICS, _DESCRIBE_CONFIGS = 3, 10, 15, 20, 32
_ELECT_LEADERS, _ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS, _ALTER_QUOTAS = 43, 45, 46, 49
#: APIs that repeat the requested names beside an error for all of them.
_BOTH: Final = frozenset({_METADATA, _ELECT_LEADERS, _ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS, _ALTER_QUOTAS})
#: APIs that answer the error's general text instead of the specific one, and those that answer none.
_GENERAL_TEXT: Final = frozenset({_FIND_COORDINATOR, _DESCRIBE_CONFIGS, _ALTER_QUOTAS})
_NO_TEXT: Final = frozenset({_DESCRIBE_GROUPS, _DELETE_TOPICS})
_FETCH: Final = 1
#: From this version on Fetch names nothing beside its error.
_FETCH_ALONE_SINCE: Final = 13
#: Fields that name the subject of an answer's element, and their other names in requests.
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("topic", "topic_id", "partition", "index", "group_id", "key", "transactional_id", "session_id", "feature"), ()
    ),
    **dict.fromkeys(("resource_type", "resource_name", "entity_type", "entity_name"), ()),
    "name": ("topic",),
    "partition_id": (),
    "partition_index": ("partition",),
    "user": ("name",),
}
#: Arrays of answers about the server or created objects, not about the requested ones; and an API whose answers are.
_OF_THE_SERVER: Final = frozenset({"brokers", "configs"})
_DESCRIBE_LOG_DIRS: Final = 35
#: Fields that may be null and are empty instead.
_NEVER_NULL: Final = frozenset({"metadata", "records"})
#: The values that mean "unknown".
_UNKNOWN: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "datetime_i64": None,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
}


@dataclass(frozen=True, slots=True)
class _Error:
    code: ErrorCode
    text: str | None
    names_all: bool


def error_answer(request: Any, code: ErrorCode, *, text: str, general_text: str) -> ResponsePayload:
    """Make the answer that is an error for all of a request.

    Args:
        request: Of kio's module for its API and version.
        code: The error.
        text: What happened, for APIs that have room for a text.
        general_text: The error's meaning, which some APIs answer instead.
    """
    api_key = request.__api_key__
    told = None if api_key in _NO_TEXT else general_text if api_key in _GENERAL_TEXT else text
    names_all = api_key in _BOTH or (api_key == _FETCH and request.__version__ < _FETCH_ALONE_SINCE)
    schema = load_response_schema(api_key, request.__version__)
    source = None if api_key == _DESCRIBE_LOG_DIRS else request
    payload: ResponsePayload = _made(schema, source, _Error(code, told, names_all))
    return payload


def refusal(request: Any, code: ErrorCode, text: str) -> ResponsePayload:
    """Make the answer that names all that was asked for, each with an error; of ``none`` an answer that names nothing.

    Args:
        request: Of kio's module for its API and version.
        code: The error.
        text: For answers that have room for one.
    """
    schema = load_response_schema(request.__api_key__, request.__version__)
    is_error = code is not ErrorCode.none
    payload: ResponsePayload = _made(schema, request, _Error(code, text if is_error else None, names_all=is_error))
    return payload


def _made(entity: EntityClass, source: Any, error: _Error) -> Any:
    fields = [field for field in wire_fields(entity) if field.tag is None]
    has_error = any(field.name == "error_code" for field in fields)
    is_alone = has_error and not error.names_all
    return entity(**{field.name: _value(field, source, error, is_alone=is_alone) for field in fields})


def _value(field: WireField, source: Any, error: _Error, *, is_alone: bool) -> Any:
    if field.shape is Shape.ARRAY:
        entity = field.entity
        if entity is None or is_alone or field.name in _OF_THE_SERVER:
            return ()
        return MadeElements(_asked(source, field.name), lambda item: _made(entity, item, error))
    if field.name in ("error_code", "partition_error_code"):
        return error.code
    if field.name == "error_message":
        return error.text
    if field.name in _KEYS:
        if isinstance(source, str | int):
            return source
        for name in (field.name, *_KEYS[field.name]):
            if hasattr(source, name):
                return getattr(source, name)
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.is_nullable and field.name not in _NEVER_NULL:
        return None
    return _UNKNOWN.get(field.kafka_type, -1)


def _asked(source: Any, name: str) -> Sequence[Any]:
    """Return the elements of a request's array that an array of the answer repeats; ``name`` is the answer's array."""
    if not dataclasses.is_dataclass(source):
        return ()
    kind: EntityClass = type(source)
    arrays = {field.name: getattr(source, field.name) for field in wire_fields(kind) if field.shape is Shape.ARRAY}
    if name in arrays:
        return arrays[name] or ()
    return next((each for each in arrays.values() if each), ())
