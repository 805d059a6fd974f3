"""Endpoints in answers: every one is found, and the bytes around them stay what they are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from tests.support.kafka_entities import kio_bytes, responses
from tierlog.broker.front.endpoints import edited, iter_endpoint_versions, passable_versions, walker_of
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.fields import Shape, wire_fields

VERSIONS = list(iter_endpoint_versions())
#: In front of the bodies below: a length and a correlation id.
HEAD = struct.pack(">ii", 0, 7)


def told(node_id: int, host: str, port: int) -> tuple[str, int]:
    """Another endpoint for each, longer than a byte of a varint can say for some."""
    return f"front-{host[:5]}-{'x' * (node_id % 150)}", (port + node_id) % 60_000


def changed(entity: Any) -> Any:
    """An entity with its endpoints changed, by decoding all of it."""
    values: dict[str, Any] = {}
    names = {field.name for field in wire_fields(type(entity))}
    for field in wire_fields(type(entity)):
        value = getattr(entity, field.name)
        if field.entity is not None and field.shape is Shape.ARRAY and value:
            value = tuple(changed(each) for each in value)
        elif field.entity is not None and field.shape is Shape.ONE and value is not None:
            value = changed(value)
        values[field.name] = value
    node_id = values.get("node_id", values.get("broker_id", -1))
    if {"host", "port"} <= names and node_id >= 0 and values["host"]:
        values["host"], values["port"] = told(node_id, values["host"], values["port"])
    return type(entity)(**values)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_edits_are_what_decoding_and_encoding_gives(api_key: int, version: int, data: st.DataObject) -> None:
    """A wrong byte here is an address at which no client arrives, or an answer that none can read."""
    entity = data.draw(responses(api_key, version))
    body = kio_bytes(entity)
    frame = memoryview(HEAD + body)
    walker = walker_of(api_key, version)
    assert walker is not None
    buffers, size_bytes = edited(frame, walker.edits(frame, len(HEAD), told))
    got = b"".join(buffers)
    assert len(got) == size_bytes
    assert got == struct.pack(">ii", size_bytes - 4, 7) + kio_bytes(changed(entity))


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_hostile_answers_are_one_error(api_key: int, version: int, data: st.DataObject) -> None:
    """Truncated or changed bytes: a typed error, or edits within the bytes; never an endless walk or another error."""
    body = bytearray(kio_bytes(data.draw(responses(api_key, version))))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from((0, 0x7F, 0x80, 0xFF)))
    frame = memoryview(HEAD + bytes(body[: data.draw(st.integers(0, len(body)))]))
    walker = walker_of(api_key, version)
    assert walker is not None
    try:
        edits = walker.edits(frame, len(HEAD), told)
    except MalformedResponseError:
        return
    ends = [0, *(position for edit in edits for position in (edit.start, edit.end)), len(frame)]
    assert ends == sorted(ends)


def test_an_array_without_end_costs_nothing() -> None:
    """A count of 2**31 - 1 is refused by the bytes that are left, and not walked."""
    for version in (8, 9):
        walker = walker_of(3, version)
        assert walker is not None
        count = struct.pack(">i", 2**31 - 1) if version < 9 else b"\xff\xff\xff\xff\x07"
        with pytest.raises(MalformedResponseError, match="an array of"):
            walker.edits(memoryview(HEAD + bytes(4) + count + bytes(100)), len(HEAD), told)


def test_no_broker_is_not_renamed() -> None:
    """FindCoordinator without a coordinator names node -1 at no host: clients look for just that."""
    none = {"error_code": ErrorCode.coordinator_not_available, "error_message": None}
    entity = entities_of(10, 3).response(**none, node_id=-1, host="", port=-1)
    walker = walker_of(10, 3)
    assert walker is not None
    assert walker.edits(memoryview(HEAD + kio_bytes(entity)), len(HEAD), told) == []


def test_every_endpoint_of_kios_schemas_is_known() -> None:
    """A new API or version that names hosts is refused to pass until it is looked at: whatever has a host and a port
    is a broker's endpoint that is found, an application's own, or of a version that clients are not offered.
    """
    own = {"streams_group_heartbeat", "streams_group_describe"}
    for api_key, name in api_key_map.items():
        for version in schema_name_map[name]:
            entity = load_response_schema(api_key, version)
            walker = walker_of(api_key, version)
            passes = version in passable_versions(api_key)
            if not _has_host_and_port(entity):
                assert walker is None, (name, version)
                assert passes, (name, version)
            else:
                assert walker is not None or name in own or not passes, (name, version)


def test_what_is_found_is_a_broker() -> None:
    """A host and a port behind another id would be rewritten to a port of no broker, or stay as they are."""
    for api_key, version in VERSIONS:
        assert all(
            names[:3] in (["node_id", "host", "port"], ["broker_id", "host", "port"])
            for names in _endpoint_fields(load_response_schema(api_key, version))
        ), (api_key, version)


def _endpoint_fields(entity: Any) -> list[list[str]]:
    """The names of the fields from the id on, of each entity that has a host and a port."""
    fields = wire_fields(entity)
    names = [field.name for field in fields]
    found = [names[max(names.index("host") - 1, 0) :]] if {"host", "port"} <= set(names) else []
    for field in fields:
        if field.entity is not None:
            found += _endpoint_fields(field.entity)
    return found


def _has_host_and_port(entity: Any) -> bool:
    fields = wire_fields(entity)
    names = {field.name for field in fields}
    return {"host", "port"} <= names or any(
        _has_host_and_port(field.entity) for field in fields if field.entity is not None
    )


def test_versions_that_name_other_endpoints_do_not_pass() -> None:
    """DescribeQuorum names the controllers' listeners from version 2 on; brokers' APIs pass as kio has them."""
    assert passable_versions(55) == range(2)
    assert passable_versions(82) == range(0)
    assert passable_versions(1_000) == range(0)
    assert passable_versions(3)[-1] == max(schema_name_map["metadata"])
