"""Answers of another server to entities, and requests to it as bytes: the server as a client."""

from __future__ import annotations

import io
import struct
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierlog.broker.protocol.decoding import MAXIMUM_ELEMENTS, Cursor, MalformedRequestError, decoder_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.requests import api_name, count_regular_elements

_HEADER: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")


def encode_request_head(
    api_key: int, api_version: int, correlation_id: int, client_id: str, *, body_size_bytes: int
) -> bytes:
    """Encode the length and the header of a request whose body follows as it is. ``client_id``: at most 32,767 bytes
    of UTF-8.
    """
    name = client_id.encode()
    tags = b"\0" if load_request_schema(api_key, api_version).__flexible__ else b""
    size_bytes = _HEADER.size + len(name) + len(tags) + body_size_bytes
    head = _HEADER.pack(api_key, api_version, correlation_id, len(name))
    return b"".join((_LENGTH.pack(size_bytes), head, name, tags))


def encode_request_body(request: Any) -> bytes:
    """Encode a request, an entity of kio's, without its header. Raises what kio's encoder raises."""
    out = io.BytesIO()
    entity_writer(type(request))(out, request)
    return out.getvalue()


def body_position(api_key: int, api_version: int, frame: memoryview) -> int:
    """Return where the body of an answer begins, which has its length before it.

    Raises:
        MalformedResponseError: it has no whole header.
    """
    cursor = Cursor(frame, _LENGTH.size)
    try:
        cursor.take(4)
        if _has_flexible_header(api_key, api_version):
            cursor.skip_tagged_fields()
    except MalformedRequestError as error:
        raise MalformedResponseError(f"header of an answer of {api_name(api_key)} {api_version}: {error}") from None
    return cursor.position


def decode_answer(api_key: int, api_version: int, data: memoryview, position: int = 0) -> Any:
    """Decode an answer whose body begins at a position: the entity of kio's module for the API and version, which holds
    no reference to the bytes. Bytes behind the body are passed over. In a thread where it may have thousands of
    elements.

    Raises:
        MalformedResponseError: the bytes are no such answer, or have more than 250,000 elements in all arrays.
    """
    entity = load_response_schema(api_key, api_version)
    elements = count_regular_elements(entity, data, position)
    name = f"an answer of {api_name(api_key)} {api_version}"
    if elements is not None and elements > MAXIMUM_ELEMENTS:
        raise MalformedResponseError(f"{name}: more than {MAXIMUM_ELEMENTS} elements in all arrays")
    if elements is not None:
        try:
            return entity_reader(entity)(data.toreadonly(), position)[0]
        except Exception:  # noqa: BLE001, S110 - whatever kio's decoder holds against it, ours says whether it is right
            pass
    try:
        return decoder_of(entity).read(Cursor(data, position))
    except struct.error:
        raise MalformedResponseError(f"{name}: {len(data)} bytes end in the midst of a field") from None
    except (MalformedRequestError, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise MalformedResponseError(f"{name}: {error}") from None


@cache
def _has_flexible_header(api_key: int, api_version: int) -> bool:
    return load_response_schema(api_key, api_version).__header_schema__.__flexible__
