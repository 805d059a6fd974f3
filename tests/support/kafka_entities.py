"""Random requests and responses of any API and version, as kio has them."""

from __future__ import annotations

import datetime
import io
import uuid
from functools import cache
from typing import Any

import hypothesis.strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from tierlog.broker.protocol.fields import Shape, WireField, wire_fields

#: APIs between brokers and controllers, whose entities kio cannot make defaults of; no server here has them.
_RAFT = {52, 53, 54, 55, 58, 59, 80, 81, 82}

_NUMBERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(2**45), 2**45).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**41).map(lambda ms: datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


@cache
def served_versions() -> list[tuple[int, int]]:
    """(API key, version) of everything between clients and brokers that kio has."""
    return [
        (key, version)
        for key, name in sorted(api_key_map.items())
        for version in sorted(schema_name_map[name])
        if key not in _RAFT
    ]


def requests(api_key: int, api_version: int) -> st.SearchStrategy[Any]:
    """Any request of an API and version."""
    return entities(load_request_schema(api_key, api_version))


def responses(api_key: int, api_version: int) -> st.SearchStrategy[Any]:
    """Any response of an API and version."""
    return entities(load_response_schema(api_key, api_version))


@cache
def entities(entity: Any) -> st.SearchStrategy[Any]:
    """Any entity of a class of kio's."""
    return st.builds(entity, **{field.name: _values(field) for field in wire_fields(entity)})


def _values(field: WireField) -> st.SearchStrategy[Any]:
    one = _one(field)
    if field.shape is Shape.ARRAY:
        one = st.lists(one, max_size=3).map(tuple)
    if field.is_nullable and field.kafka_type != "uuid" and not (field.tag is not None and field.entity is None):
        one = st.none() | one
    return one


def _one(field: WireField) -> st.SearchStrategy[Any]:
    if field.entity is not None:
        return entities(field.entity)
    if field.kafka_type == "uuid":
        return st.none() | st.binary(min_size=16, max_size=16).filter(any).map(lambda data: uuid.UUID(bytes=data))
    return _NUMBERS[field.kafka_type]


def kio_bytes(entity: Any) -> bytes:
    """The bytes of an entity as kio writes them."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()
