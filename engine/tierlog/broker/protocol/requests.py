"""The bytes of a request to its header and its entity."""

from __future__ import annotations

import dataclasses
import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

from kio.index import KioIndexError, load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from tierlog.broker.protocol.decoding import MAXIMUM_ELEMENTS, Cursor, MalformedRequestError, decoder_of
from tierlog.broker.protocol.fields import EntityClass, Shape, wire_fields
from tierlog.broker.protocol.skimming import regular_elements
from tierlog.runtime.waiting.side_by_side import LoopShare

__all__ = [
    "MalformedRequestError",
    "RequestBody",
    "RequestHeader",
    "api_name",
    "kafka_name",
    "let_go",
    "read_body",
    "read_body_in_turns",
    "read_header",
]

LOGGER = logging.getLogger(__name__)

_START: Final = struct.Struct(">hhih")
#: Requests up to here may go to kio's decoder, which nothing interrupts.
REGULAR_BYTES_MAX: Final = 1 << 20
#: Memory of one element of a request that is worked on, strings and bytes apart. Decoded a partition of Fetch takes up
#: to 288 (CPython 3.11), one of OffsetCommit 227, of ListOffsets 160; what a Fetch makes of it while it waits 350 more.
_ELEMENT_BYTES: Final = 600
#: The most for each byte of a request: OffsetFetch for groups without names is decoded to 25.3, an element having three
#: bytes, and as much again is made of it.
_BYTES_A_BYTE: Final = 64


class RequestHeader(NamedTuple):
    """What stands before the body of every request.

    Args:
        api_key: Kafka's number of the API; one that nobody knows is possible.
        api_version: As the client says; it may be one that nobody knows, and below zero.
        correlation_id: What the response repeats.
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

    A header has tagged fields if the version is a flexible one. Of a version above those known it is taken for as
    flexible as the newest known one, as Kafka does; of an unknown API for not flexible.

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
        frame: The request behind its length. The entity keeps no hold of it.

    Raises:
        MalformedRequestError: kio has no such API and version, or the bytes are no such request.

    Memory: no more than 250,000 elements of arrays are made.
    """
    return RequestBody(header, frame).read()


async def read_body_in_turns(header: RequestHeader, frame: memoryview, share: LoopShare) -> Any:
    """Decode a request as ``read_body`` does, and let other tasks run between its elements."""
    return await RequestBody(header, frame).read_in_turns(share)


class RequestBody:
    """A body that is not decoded yet.

    Args:
        header: As ``read_header`` gave it for this frame.
        frame: The request behind its length.

    Raises:
        MalformedRequestError: kio has no such API and version.

    Attributes:
        decoded_bytes: Memory of what decoding makes of it, and its handler of that, about: before it is read the most
            that is possible, then what it is.
    """

    __slots__ = ("_decode", "_entity", "_frame", "_header", "_is_regular", "decoded_bytes")

    def __init__(self, header: RequestHeader, frame: memoryview) -> None:
        try:
            self._entity, self._decode = _readers(header.api_key, header.api_version)
        except KioIndexError:
            raise MalformedRequestError(f"{_name(header)}: no such API and version") from None
        self._header = header
        self._frame = frame
        size_bytes = len(frame)
        elements = None
        if size_bytes <= REGULAR_BYTES_MAX:
            elements = regular_elements(self._entity, frame, header.body_position)
        self._is_regular = elements is not None
        self.decoded_bytes = _decoded_bytes(size_bytes, MAXIMUM_ELEMENTS if elements is None else elements)

    def read(self) -> Any:
        """Decode it, as ``read_body``."""
        request = self.read_regular()
        if request is not None:
            return request
        cursor = Cursor(self._frame, self._header.body_position)
        with _malformed(self._header, self._frame):
            return decoder_of(self._entity).read(cursor)

    async def read_in_turns(self, share: LoopShare) -> Any:
        """Decode it as ``read`` does, and let other tasks run between its elements."""
        request = self.read_regular()
        if request is not None:
            return request
        cursor = Cursor(self._frame, self._header.body_position)
        with _malformed(self._header, self._frame):
            request = await decoder_of(self._entity).read_in_turns(cursor, share)
        self.decoded_bytes = _decoded_bytes(len(self._frame), MAXIMUM_ELEMENTS - cursor.elements_left)
        return request

    def read_regular(self) -> Any:
        """What kio's decoder makes of it, at once; None if only ours may be let at it."""
        if self._is_regular:
            try:
                return self._decode(self._frame.toreadonly(), self._header.body_position)[0]
            except Exception:  # noqa: BLE001 - whatever kio's decoder holds against it, ours says whether it is right
                LOGGER.debug("%s: read by the slow decoder", _name(self._header))
                self._is_regular = False
        return None


def _decoded_bytes(size_bytes: int, elements: int) -> int:
    """Memory of a decoded request: strings and bytes are copies of its own."""
    made_bytes, most_bytes = elements * _ELEMENT_BYTES, size_bytes * _BYTES_A_BYTE
    return size_bytes + (min(most_bytes, made_bytes))


async def let_go(objects: list[Any], share: LoopShare) -> None:
    """Forget requests, or parts of them, that nobody else has: element by element, as the end of a hundred thousand at
    once holds the loop for 10 ms. The list is empty then.
    """
    while objects:
        one = objects.pop()
        kind: EntityClass = type(one)
        for name in _arrays_of(kind):
            objects.extend(getattr(one, name) or ())
        await share.take()


@cache
def _arrays_of(kind: EntityClass) -> tuple[str, ...]:
    """The arrays of an entity; of a number or a string none."""
    if not dataclasses.is_dataclass(kind):
        return ()
    entity: EntityClass = kind
    return tuple(field.name for field in wire_fields(entity) if field.shape is Shape.ARRAY)


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
    """The class of a version's requests, and kio's decoder of it."""
    entity: EntityClass = load_request_schema(api_key, api_version)
    return entity, entity_reader(entity)


@cache
def api_name(api_key: int) -> str:
    """Kafka's name of an API, as ``ListOffsets``; ``API 1234`` for an unknown one."""
    name = api_key_map.get(api_key)
    return f"API {api_key}" if name is None else "".join(word.capitalize() for word in name.split("_"))


def kafka_name(api_key: int) -> str:
    """The name of an API as Kafka's enum has it, as ``LIST_OFFSETS``; ``API_1234`` for an unknown one."""
    return api_key_map.get(api_key, f"api_{api_key}").upper()


@cache
def _known_versions(api_key: int) -> range:
    """The versions of an API, which have no hole."""
    versions = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else ()
    return range(min(versions), max(versions) + 1) if versions else range(0)


@cache
def _has_flexible_header(api_key: int, api_version: int) -> bool:
    """Whether the header of a version that there is has tagged fields. Loads that version's module alone."""
    return load_request_schema(api_key, api_version).__flexible__


def _is_flexible(api_key: int, api_version: int) -> bool:
    known = _known_versions(api_key)
    if not known or api_version < known.start:
        return False
    return _has_flexible_header(api_key, min(api_version, known.stop - 1))
