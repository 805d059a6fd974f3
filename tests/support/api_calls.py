"""Requests to handlers as a client makes them: encoded, decoded, answered, encoded, and read with kio's reader."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from tests.support.kafka_entities import kio_bytes
from tests.support.loops import run_on
from tierlog.broker.handling import Handler, RequestContext, may_read_all
from tierlog.broker.protocol.fields import Shape, wire_fields
from tierlog.broker.protocol.requests import read_body, read_header
from tierlog.broker.protocol.responses import encode_prefix, encode_response
from tierlog.serving.response_writer import Reply


def context_of(api_version: int, may_read: Callable[[str], bool] = may_read_all) -> RequestContext:
    return RequestContext(
        api_version=api_version,
        client_id="me",
        principal="User:ANONYMOUS",
        client_host="127.0.0.1",
        connection_id=1,
        advertised_host="replica.example",
        advertised_port=9092,
        may_read=may_read,
    )


def make_request(api_key: int, api_version: int, **values: Any) -> Any:
    """A request; nested ones as dicts and lists, as ``{"topics": [{"name": "t"}]}``."""
    return _made(load_request_schema(api_key, api_version), values)


def _made(entity: Any, values: dict[str, Any]) -> Any:
    fields = {field.name: field for field in wire_fields(entity)}
    made = {}
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            continue
        if field.entity is not None and isinstance(value, dict):
            made[name] = _made(field.entity, value)
        elif field.shape is Shape.ARRAY and value is not None:
            made[name] = tuple(_made(field.entity, one) if isinstance(one, dict) else one for one in value)
        else:
            made[name] = value
    return entity(**made)


def call(handler: Handler, api_version: int, request: Any, *, may_read: Callable[[str], bool] = may_read_all) -> Any:
    """What a client that may read some topics reads of a handler's answer. Fails for bytes that are left over."""
    tags = b"\0" if type(request).__flexible__ else b""
    frame = struct.pack(">hhih", handler.api_key, api_version, 7, 2) + b"me" + tags + kio_bytes(request)
    header = read_header(memoryview(frame))

    async def main() -> Any:
        return await handler.handle(read_body(header, memoryview(frame)), context_of(api_version, may_read))

    answer = run_on("asyncio", main)
    if answer is None:
        return None
    if isinstance(answer, Reply):
        encoded = encode_prefix(header, answer.size_bytes) + b"".join(map(bytes, answer.buffers))
    else:
        encoded = encode_response(header, answer)
    size_bytes, correlation_id = struct.unpack_from(">ii", encoded)
    assert (size_bytes, correlation_id) == (len(encoded) - 4, 7)
    start = 9 if load_response_schema(handler.api_key, api_version).__header_schema__.__flexible__ else 8
    response, read_bytes = entity_reader(load_response_schema(handler.api_key, api_version))(encoded, start)
    assert start + read_bytes == len(encoded), "bytes are left over"
    return response
