"""Responses to bytes: the length, the header, the body."""

from __future__ import annotations

import io
import struct
from functools import cache
from typing import Final

from kio.index import load_response_schema
from kio.serial import entity_writer
from kio.static.protocol import ResponsePayload

from tierlog.broker.protocol.requests import RequestHeader

_PLAIN: Final = struct.Struct(">ii")
#: Behind the correlation id: no tagged fields.
_FLEXIBLE: Final = struct.Struct(">iix")
_LENGTH_BYTES: Final = 4


def encode_response(header: RequestHeader, payload: ResponsePayload) -> bytes:
    """Encode a response: its length, its header and itself.

    Args:
        header: Of the request.
        payload: Its class says which header it has (of ApiVersions always version 0), not the request's version: an
            unknown version is answered with a payload of another one.

    Raises:
        What kio's encoder raises for a payload that does not fit the protocol.
    """
    prefix = _FLEXIBLE if payload.__header_schema__.__flexible__ else _PLAIN
    out = io.BytesIO(bytes(prefix.size))
    out.seek(prefix.size)
    entity_writer(type(payload))(out, payload)
    with out.getbuffer() as encoded:
        prefix.pack_into(encoded, 0, len(encoded) - _LENGTH_BYTES, header.correlation_id)
    return out.getvalue()


def encode_body(payload: ResponsePayload) -> bytes:
    """Encode the bytes of a response behind its header. Raises as ``encode_response``."""
    out = io.BytesIO()
    entity_writer(type(payload))(out, payload)
    return out.getvalue()


def encode_prefix(header: RequestHeader, body_size_bytes: int) -> bytes:
    """Encode the length and the header of a response whose body follows as it is.

    Args:
        header: Of the request, of an API and version that kio has.
        body_size_bytes: Of the bytes that follow.
    """
    prefix = _FLEXIBLE if _has_tagged_fields(header.api_key, header.api_version) else _PLAIN
    return prefix.pack(prefix.size - _LENGTH_BYTES + body_size_bytes, header.correlation_id)


@cache
def _has_tagged_fields(api_key: int, api_version: int) -> bool:
    """Whether the header of a response ends with tagged fields."""
    return load_response_schema(api_key, api_version).__header_schema__.__flexible__
