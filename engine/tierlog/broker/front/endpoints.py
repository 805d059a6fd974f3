"""The endpoints of brokers in answers: found without decoding the rest, and written anew.

A walker is made of kio's schema of an answer and version. It passes over all other fields, stops behind the last place
where an endpoint may stand, and gives the bytes to be replaced: the others stay where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from kio.index import load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from tierlog.broker.protocol.decoding import Cursor, MalformedRequestError, decoder_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.fetch_response import unsigned_varint
from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields
from tierlog.broker.protocol.requests import api_name

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NODE_IDS: Final = ("node_id", "broker_id")
#: The first versions whose answers name brokers that clients connect to: Produce, Fetch, Metadata, FindCoordinator,
#: DescribeCluster, ShareFetch, ShareAcknowledge.
_OF_BROKERS: Final = {0: 10, 1: 16, 3: 0, 10: 0, 60: 0, 78: 0, 79: 0}
#: The first versions whose answers name endpoints of controllers, which no port stands for: Vote, BeginQuorumEpoch,
#: EndQuorumEpoch, DescribeQuorum, FetchSnapshot, UpdateRaftVoter. (A test looks through all of kio's schemas.)
_NAMES_OTHERS_FROM: Final = {52: 1, 53: 1, 54: 1, 55: 2, 59: 1, 82: 0}
#: Fields with the addresses that applications give themselves (Kafka Streams): they are no broker's.
_OF_APPLICATIONS: Final = frozenset(("user_endpoint",))

#: (node id, host, port) -> (host, port) that a client is told.
EndpointOf = Callable[[int, str, int], tuple[str, int]]


class Edit(NamedTuple):
    """Bytes from ``start`` to ``end``, exclusive, and those that take their place."""

    start: int
    end: int
    replacement: bytes


_Walk = Callable[[Cursor, EndpointOf, list[Edit]], None]


@cache
def passable_versions(api_key: int) -> range:
    """Return the versions of an API whose answers name no endpoint but those that are found here. Loads no schema.

    Versions below those that kio has count too: none that is as old names one. Of an API that kio has not there is
    none.
    """
    if api_key not in api_key_map:
        return range(0)
    newest = max(schema_name_map[api_key_map[api_key]])
    return range(min(newest + 1, _NAMES_OTHERS_FROM.get(api_key, newest + 1)))


@cache
def walker_of(api_key: int, api_version: int) -> EndpointWalker | None:
    """Return the walker of an answer's version; None where it names no endpoint."""
    first = _OF_BROKERS.get(api_key)
    if first is None or api_version < first or api_version not in schema_name_map[api_key_map[api_key]]:
        return None
    return EndpointWalker(api_key, api_version, load_response_schema(api_key, api_version))


class EndpointWalker:
    """The walker of one answer and version. Made by ``walker_of``; immutable."""

    def __init__(self, api_key: int, api_version: int, entity: EntityClass) -> None:
        self._name = f"an answer of {api_name(api_key)} {api_version}"
        self._walk = _entity_walk(entity, is_last=True)

    def edits(self, data: memoryview, position: int, endpoint_of: EndpointOf) -> list[Edit]:
        """Return what is to be replaced, in order.

        Args:
            data: The answer.
            position: Of the first byte behind its header.
            endpoint_of: Called for each endpoint. Where no broker is named (a node id below 0, no host) it is not.

        Raises:
            MalformedResponseError: the bytes are no such answer.
        """
        found: list[Edit] = []
        try:
            self._walk(Cursor(data, position), endpoint_of, found)
        except struct.error:
            raise MalformedResponseError(f"{self._name}: {len(data)} bytes end in the midst of a field") from None
        except (MalformedRequestError, UnicodeDecodeError) as error:
            raise MalformedResponseError(f"{self._name}: {error}") from None
        return found


def edited(data: memoryview, edits: Sequence[Edit]) -> tuple[list[memoryview | bytes], int]:
    """Return the buffers of a frame with edits in it, its length at the front corrected, and their size."""
    buffers: list[memoryview | bytes] = [b""]
    position, size_bytes = _INT32.size, 0
    for edit in edits:
        buffers += (data[position : edit.start], edit.replacement)
        size_bytes += edit.start - position + len(edit.replacement)
        position = edit.end
    buffers.append(data[position:])
    size_bytes += len(data) - position
    buffers[0] = _INT32.pack(size_bytes)
    return buffers, size_bytes + _INT32.size


# ---- what a schema has


def _is_endpoint(entity: EntityClass) -> bool:
    return {"host", "port"} <= {field.name for field in wire_fields(entity)}


def _has_endpoints(entity: EntityClass) -> bool:
    return _is_endpoint(entity) or any(_holds_endpoints(field) for field in wire_fields(entity))


def _holds_endpoints(field: WireField) -> bool:
    return field.entity is not None and field.name not in _OF_APPLICATIONS and _has_endpoints(field.entity)


def _begins_endpoint(fields: Sequence[WireField]) -> bool:
    """Whether a broker's id, its host and its port come first."""
    names = [field.name for field in fields[:3]]
    return len(names) == 3 and names[0] in _NODE_IDS and names[1:] == ["host", "port"]


def _fixed_bytes(field: WireField) -> int:
    """Return the bytes of a field's value where it has one size, else 0."""
    return struct.calcsize(f">{field.code}") if field.shape is Shape.ONE and field.code is not None else 0


# ---- walks


def _entity_walk(entity: EntityClass, *, is_last: bool) -> _Walk:
    """Make the walk over an entity; if it is the last one, up to its last endpoint alone."""
    fields = wire_fields(entity)
    flexible = bool(entity.__flexible__)
    plain = [field for field in fields if field.tag is None]
    tagged = {field.tag: field for field in fields if field.tag is not None and _holds_endpoints(field)}
    steps: list[_Walk] = []
    last = 0
    while plain:
        if _begins_endpoint(plain):
            steps.append(_endpoint_step(flexible=flexible))
            plain = plain[3:]
            last = len(steps)
        elif size_bytes := _fixed_bytes(plain[0]):
            plain = plain[1:]
            while plain and not _begins_endpoint(plain) and (more_bytes := _fixed_bytes(plain[0])):
                size_bytes += more_bytes
                plain = plain[1:]
            steps.append(_fixed_step(size_bytes))
        else:
            steps.append(_field_step(plain[0], flexible=flexible))
            if _holds_endpoints(plain[0]):
                last = len(steps)
            plain = plain[1:]
    if flexible:
        steps.append(_tags_step(tagged))
        if tagged:
            last = len(steps)
    kept = tuple(steps[:last] if is_last else steps)

    def walk(cursor: Cursor, endpoint_of: EndpointOf, found: list[Edit]) -> None:
        for step in kept:
            step(cursor, endpoint_of, found)

    return walk


def _field_step(field: WireField, *, flexible: bool) -> _Walk:
    """Walk over a field whose values differ in size."""
    if field.shape is Shape.ARRAY:
        return _array_step(field, flexible=flexible)
    if field.entity is not None:
        inner = _entity_walk(field.entity, is_last=False)
        return _optional_step(inner) if field.is_nullable else inner
    return _bytes_step(is_text=field.kafka_type == "string", flexible=flexible)


def _fixed_step(size_bytes: int) -> _Walk:
    def step(cursor: Cursor, _of: EndpointOf, _found: list[Edit]) -> None:
        cursor.take(size_bytes)

    return step


def _bytes_step(*, is_text: bool, flexible: bool) -> _Walk:
    length_bytes = 2 if is_text else 4

    def step(cursor: Cursor, _of: EndpointOf, _found: list[Edit]) -> None:
        cursor.take(max(_length(cursor, length_bytes, flexible=flexible), 0))

    return step


def _length(cursor: Cursor, length_bytes: int, *, flexible: bool) -> int:
    """Read the length of a string or of bytes, -1 for null."""
    start = cursor.position
    if flexible:
        size_bytes = cursor.unsigned_varint() - 1
    else:
        size_bytes = int.from_bytes(cursor.take(length_bytes), "big", signed=True)
    if size_bytes < -1:
        raise MalformedRequestError(f"a length of {size_bytes} at {start}")
    return size_bytes


def _optional_step(inner: _Walk) -> _Walk:
    def step(cursor: Cursor, endpoint_of: EndpointOf, found: list[Edit]) -> None:
        if cursor.take(1)[0] < 0x80:
            inner(cursor, endpoint_of, found)

    return step


def _array_step(field: WireField, *, flexible: bool) -> _Walk:
    if field.entity is None and field.code is not None:
        return _fixed_array_step(struct.calcsize(f">{field.code}"), flexible=flexible)
    if field.entity is not None:
        inner, least_bytes = _entity_walk(field.entity, is_last=False), decoder_of(field.entity).size_bytes_min
    else:
        is_text = field.kafka_type == "string"
        inner, least_bytes = _bytes_step(is_text=is_text, flexible=flexible), 1 if flexible else 2

    def step(cursor: Cursor, endpoint_of: EndpointOf, found: list[Edit]) -> None:
        for _ in range(cursor.count(least_bytes, flexible=flexible)):
            inner(cursor, endpoint_of, found)

    return step


def _fixed_array_step(size_bytes: int, *, flexible: bool) -> _Walk:
    def step(cursor: Cursor, _of: EndpointOf, _found: list[Edit]) -> None:
        cursor.take(size_bytes * max(cursor.count(size_bytes, flexible=flexible), 0))

    return step


def _endpoint_step(*, flexible: bool) -> _Walk:
    """Walk over a node id, a host and a port."""

    def step(cursor: Cursor, endpoint_of: EndpointOf, found: list[Edit]) -> None:
        (node_id,) = _INT32.unpack(cursor.take(_INT32.size))
        start = cursor.position
        size_bytes = _length(cursor, _INT16.size, flexible=flexible)
        host = str(cursor.take(max(size_bytes, 0)), "utf-8")
        (port,) = _INT32.unpack(cursor.take(_INT32.size))
        if node_id < 0 or not host:
            return
        told_host, told_port = endpoint_of(node_id, host, port)
        text = told_host.encode()
        length = unsigned_varint(len(text) + 1) if flexible else _INT16.pack(len(text))
        found.append(Edit(start, cursor.position, length + text + _INT32.pack(told_port)))

    return step


def _tags_step(tagged: dict[int, WireField]) -> _Walk:
    """Walk over tagged fields; those that hold endpoints get their new size."""
    inner = {tag: _field_step(field, flexible=True) for tag, field in tagged.items()}

    def step(cursor: Cursor, endpoint_of: EndpointOf, found: list[Edit]) -> None:
        for _ in range(cursor.tagged_field_count()):
            tag = cursor.unsigned_varint()
            size_position = cursor.position
            size_bytes = cursor.unsigned_varint()
            start = cursor.position
            cursor.take(size_bytes)
            if tag not in inner:
                continue
            cursor.position = start
            edits: list[Edit] = []
            inner[tag](cursor, endpoint_of, edits)
            if cursor.position != start + size_bytes:
                taken = cursor.position - start
                raise MalformedRequestError(f"tagged field {tag} at {start} has {size_bytes} bytes, not {taken}")
            longer = sum(len(edit.replacement) - (edit.end - edit.start) for edit in edits)
            found.append(Edit(size_position, start, unsigned_varint(size_bytes + longer)))
            found += edits

    return step


def iter_endpoint_versions() -> Iterator[tuple[int, int]]:
    """Yield (API, version) of all answers in which brokers' endpoints may stand. Loads no schema."""
    for api_key, first in sorted(_OF_BROKERS.items()):
        versions = schema_name_map[api_key_map[api_key]]
        yield from ((api_key, version) for version in range(max(first, min(versions)), max(versions) + 1))
