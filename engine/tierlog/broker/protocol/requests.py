"""The bytes of a request to its header and its entity.

kio's decoder is ten times as fast as ours, and ends the process for a false count. It gets bytes that a skimmer has
found regular, as clients send them: counts that the bytes left allow, null only where null may be, no tagged fields.
All other bytes go to ``decoding``, which reads them or raises their fault.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import Any, Final, NamedTuple

from kio.index import KioIndexError, load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from tierlog._native.skimming import (
    ARRAY,
    BYTES,
    COMPACT,
    COMPACT_ARRAY,
    LONG,
    NO_TAGS,
    OPTIONAL,
    SHORT,
    Skimmer,
)
from tierlog.broker.protocol.decoding import MAXIMUM_ELEMENTS, Cursor, MalformedRequestError, decoder_of
from tierlog.broker.protocol.entities import LONG_ELEMENTS
from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields

LOGGER = logging.getLogger(__name__)

_START: Final = struct.Struct(">hhih")
#: (kind, argument, whether null is allowed), as of Skimmer.
_Step = tuple[int, int, bool]
#: A request of more bytes, if it is not regular, takes an event loop more than some 10 ms.
_LONG_BYTES: Final = 16 << 10
#: Memory of one element of a request that is worked on, strings and bytes apart. Decoded a partition of Fetch takes up
#: to 288 (CPython 3.11), one of OffsetCommit 227, of ListOffsets 160; the state of a waiting Fetch 350 more.
_ELEMENT_BYTES: Final = 600
#: The most for each byte of a request: OffsetFetch for groups without names is decoded to 25.3, an element having three
#: bytes, and as much again is made of it.
_BYTES_A_BYTE: Final = 64


class RequestHeader(NamedTuple):
    """The header before the body of every request.

    Args:
        api_key: Kafka's number of the API; possibly an unknown one.
        api_version: As the client says; possibly an unknown one, or below zero.
        correlation_id: The number that the response repeats.
        client_id: As the client calls itself; "" if it does not.
        body_position: Of the first byte behind the header.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_position: int


def read_header(frame: memoryview) -> RequestHeader:
    """Read the header of a request, of any API and version.

    A header has tagged fields if the version is a flexible one. A version above the known ones counts as flexible as
    the newest known one, as in Kafka; an unknown API as not flexible.

    Args:
        frame: The request behind its length.

    Raises:
        MalformedRequestError: the bytes are no header.
    """
    try:
        api_key, api_version, correlation_id, client_id_bytes = _START.unpack_from(frame)
    except struct.error:
        raise MalformedRequestError(f"a request of {len(frame)} bytes has no whole header") from None
    cursor = Cursor(frame, _START.size)
    try:
        if client_id_bytes < -1:
            raise MalformedRequestError(f"the client id has a length of {client_id_bytes}")
        client_id = str(cursor.take(max(client_id_bytes, 0)), "utf-8")
        if _is_flexible(api_key, api_version):
            cursor.skip_tagged_fields()
    except MalformedRequestError as error:
        raise MalformedRequestError(f"header of {api_name(api_key)} {api_version}: {error}") from None
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"header of {api_name(api_key)} {api_version}: the client id: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, cursor.position)


def read_body(header: RequestHeader, frame: memoryview) -> Any:
    """Read the body of a request: the entity of kio's module for its API and version.

    Tagged fields that the version does not know are passed over. Bytes behind the body are too, as Kafka does.

    Args:
        header: As ``read_header`` gave it for this frame.
        frame: The request behind its length. The entity holds no reference to it.

    Raises:
        MalformedRequestError: kio has no such API and version, or the bytes are no such request.

    Memory: no more than 250,000 elements of arrays are made.
    """
    return RequestBody(header, frame).read()


class RequestBody:
    """A body that is not decoded yet.

    Args:
        header: As ``read_header`` gave it for this frame.
        frame: The request behind its length.

    Raises:
        MalformedRequestError: kio has no such API and version, or its arrays have more than MAXIMUM_ELEMENTS elements.

    Attributes:
        is_long: Whether its arrays have so many elements that its answer is to be encoded by a thread.
        decoded_bytes: Approximate memory of the decoded request and of its handler: before it is read the possible
            maximum, then the actual one.
    """

    __slots__ = ("_decode", "_entity", "_frame", "_header", "_is_regular", "decoded_bytes", "is_long")

    def __init__(self, header: RequestHeader, frame: memoryview) -> None:
        try:
            self._entity, self._decode = _readers(header.api_key, header.api_version)
        except KioIndexError:
            raise MalformedRequestError(f"{_name(header)}: no such API and version") from None
        self._header = header
        self._frame = frame
        elements = count_regular_elements(self._entity, frame, header.body_position)
        if elements is not None and elements > MAXIMUM_ELEMENTS:
            raise MalformedRequestError(f"{_name(header)}: more than {MAXIMUM_ELEMENTS} elements in all arrays")
        self._is_regular = elements is not None
        self.is_long = len(frame) > _LONG_BYTES if elements is None else elements > LONG_ELEMENTS
        self.decoded_bytes = _decoded_bytes(len(frame), MAXIMUM_ELEMENTS if elements is None else elements)

    def read(self) -> Any:
        """Decode it, as ``read_body``."""
        request = self.read_regular()
        return self.read_slowly() if request is None else request

    def read_regular(self) -> Any:
        """Decode it with kio's decoder, some 30 ms for 250,000 elements; None if only ours may decode it."""
        if self._is_regular:
            try:
                return self._decode(self._frame.toreadonly(), self._header.body_position)[0]
            except Exception:  # noqa: BLE001 - whatever kio's decoder holds against it, ours says whether it is right
                LOGGER.debug("%s: read by the slow decoder", _name(self._header))
                self._is_regular = False
        return None

    def read_slowly(self) -> Any:
        """Decode it with our own decoder, which takes up to a second: in a thread if it ``is_long``."""
        cursor = Cursor(self._frame, self._header.body_position)
        with _malformed(self._header, self._frame):
            request = decoder_of(self._entity).read(cursor)
        self.decoded_bytes = _decoded_bytes(len(self._frame), MAXIMUM_ELEMENTS - cursor.elements_left)
        return request


def _decoded_bytes(size_bytes: int, elements: int) -> int:
    """Memory of a decoded request: strings and bytes are copies of its own."""
    return size_bytes + min(size_bytes * _BYTES_A_BYTE, elements * _ELEMENT_BYTES)


@contextmanager
def _malformed(header: RequestHeader, frame: memoryview) -> Iterator[None]:
    """Raise MalformedRequestError for whatever the decoder holds against a request's bytes."""
    try:
        yield
    except struct.error:
        text = f"the request of {len(frame)} bytes ends in the midst of a field"
        raise MalformedRequestError(f"{_name(header)}: {text}") from None
    except (MalformedRequestError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedRequestError(f"{_name(header)}: {error}") from None


def _name(header: RequestHeader) -> str:
    return f"{api_name(header.api_key)} {header.api_version}"


@cache
def _readers(api_key: int, api_version: int) -> tuple[EntityClass, Callable[[memoryview, int], tuple[Any, int]]]:
    """Return the class of a version's requests, and kio's decoder of it."""
    entity: EntityClass = load_request_schema(api_key, api_version)
    return entity, entity_reader(entity)


@cache
def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, as ``ListOffsets``; ``API 1234`` for an unknown one."""
    name = api_key_map.get(api_key)
    return f"API {api_key}" if name is None else "".join(word.capitalize() for word in name.split("_"))


def kafka_name(api_key: int) -> str:
    """Return the name of an API as Kafka's enum has it, as ``LIST_OFFSETS``; ``API_1234`` for an unknown one."""
    return api_key_map.get(api_key, f"api_{api_key}").upper()


@cache
def _known_versions(api_key: int) -> range:
    """Return the versions of an API, which have no hole."""
    versions = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else ()
    return range(min(versions), max(versions) + 1) if versions else range(0)


@cache
def _has_flexible_header(api_key: int, api_version: int) -> bool:
    """Whether the header of a known version has tagged fields. Loads that version's module alone."""
    return load_request_schema(api_key, api_version).__flexible__


def _is_flexible(api_key: int, api_version: int) -> bool:
    known = _known_versions(api_key)
    if not known or api_version < known.start:
        return False
    return _has_flexible_header(api_key, min(api_version, known.stop - 1))


def count_regular_elements(entity: EntityClass, data: memoryview, position: int) -> int | None:
    """Count the elements of all arrays, if the bytes from a position on are an entity of that class, without anything
    unusual; MAXIMUM_ELEMENTS + 1 where there are more than MAXIMUM_ELEMENTS; else None.

    Memory: none. Time: as many steps as there are strings and arrays.
    """
    return _skimmer(entity).count_elements(data, position, elements_max=MAXIMUM_ELEMENTS)


@cache
def _skimmer(entity: EntityClass) -> Skimmer:
    return Skimmer(_steps_of(entity))


def _steps_of(entity: EntityClass) -> list[_Step]:
    """Return the fields of an entity: neighbours of fixed size are one step."""
    is_flexible = entity.__flexible__
    steps: list[_Step] = []
    fields = (field for field in wire_fields(entity) if field.tag is None)
    for is_fixed, group in groupby(fields, key=lambda field: field.shape is Shape.ONE and field.code is not None):
        if is_fixed:
            steps.append((BYTES, _fixed_bytes(group), False))
        else:
            for field in group:
                steps += _steps_of_field(field, is_flexible=is_flexible)
    if is_flexible:
        steps.append((NO_TAGS, 0, False))
    return steps


def _fixed_bytes(fields: Iterable[WireField]) -> int:
    return struct.calcsize(">" + "".join(field.code or "" for field in fields))


def _steps_of_field(field: WireField, *, is_flexible: bool) -> list[_Step]:
    if field.shape is Shape.ARRAY:
        element = _steps_of_value(field, is_flexible=is_flexible, is_nullable=False)
        return [(COMPACT_ARRAY if is_flexible else ARRAY, len(element), field.is_nullable), *element]
    value = _steps_of_value(field, is_flexible=is_flexible, is_nullable=field.is_nullable)
    if field.entity is not None and field.is_nullable:
        return [(OPTIONAL, len(value), True), *value]
    return value


def _steps_of_value(field: WireField, *, is_flexible: bool, is_nullable: bool) -> list[_Step]:
    """Make the skimmer's steps of one value of a field, an element where it is an array."""
    if field.entity is not None:
        return _steps_of(field.entity)
    if field.code is not None:
        return [(BYTES, _fixed_bytes([field]), False)]
    if is_flexible:
        return [(COMPACT, 0, is_nullable)]
    return [(SHORT if field.kafka_type == "string" else LONG, 0, is_nullable)]
