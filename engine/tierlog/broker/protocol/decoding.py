"""Bytes of a peer to kio's entities: one decoder a class, made when the class is first met.

Why not kio's own decoder alone: it asks for the memory that a count names before it looks at the bytes left (a count of
2**31 - 1 ends the process), knows no tagged field of a newer client, and takes null for any array. It reads what
a skimmer found regular (see ``requests``); everything else is read here, and every error is from here.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
import uuid
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields
from tierlog.errors import TierlogError

#: Elements of all arrays of one request together. Kafka 4.4 allows a million in each array; an element of a few bytes
#: becomes an object of a hundred, so what bounds memory is the sum.
MAXIMUM_ELEMENTS: Final = 250_000
#: Tagged fields of all entities of one request together, as Kafka 4.4 bounds those of each.
MAXIMUM_TAGGED_FIELDS: Final = 10_000
#: The longest unsigned varint: 32 bits.
_VARINT_BYTES: Final = 5
_UINT32_MAX: Final = 2**32 - 1


class MalformedRequestError(TierlogError, ValueError):
    """The bytes are no request: the connection is closed, as Kafka does, for nothing behind them can be trusted."""


class Cursor:
    """A position in the bytes of one request, with the limits of the rest."""

    __slots__ = ("data", "elements_left", "end", "position", "tagged_fields_left")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements_left = MAXIMUM_ELEMENTS
        self.tagged_fields_left = MAXIMUM_TAGGED_FIELDS

    def take(self, size_bytes: int) -> memoryview:
        """Take the next bytes. Raises MalformedRequestError: there are fewer."""
        start = self.position
        if size_bytes > self.end - start:
            raise MalformedRequestError(f"{size_bytes} bytes are wanted at {start}, {self.end - start} are left")
        self.position = start + size_bytes
        return self.data[start : self.position]

    def unsigned_varint(self) -> int:
        """Read the next unsigned varint, of at most 32 bits."""
        data, position = self.data, self.position
        value = shift = 0
        last = min(self.end, position + _VARINT_BYTES)
        while position < last:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _UINT32_MAX:
                    break
                self.position = position
                return value
            shift += 7
        raise MalformedRequestError(f"no varint of 32 bits at {self.position}")

    def count(self, size_bytes_min: int, *, flexible: bool) -> int:
        """Read the number of elements of an array, -1 for null, and count it against the limit.

        Args:
            size_bytes_min: Of one element, at least 1.
            flexible: Whether the count is a varint.
        """
        start = self.position
        count = self.unsigned_varint() - 1 if flexible else int.from_bytes(self.take(4), "big", signed=True)
        if count < -1:
            raise MalformedRequestError(f"an array of {count} elements at {start}")
        left = self.end - self.position
        if count > left // size_bytes_min:
            raise MalformedRequestError(f"an array of {count} elements at {start}, {left} bytes are left")
        if count > self.elements_left:
            raise MalformedRequestError(f"more than {MAXIMUM_ELEMENTS} elements in all arrays, with that at {start}")
        self.elements_left -= max(count, 0)
        return count

    def skip_tagged_fields(self) -> None:
        """Pass over unknown tagged fields."""
        for _ in range(self.tagged_field_count()):
            self.unsigned_varint()
            self.take(self.unsigned_varint())

    def tagged_field_count(self) -> int:
        """Read the number of tagged fields that follow."""
        count = self.unsigned_varint()
        if count > self.tagged_fields_left:
            raise MalformedRequestError(f"more than {MAXIMUM_TAGGED_FIELDS} tagged fields at {self.position}")
        self.tagged_fields_left -= count
        return count


Read = Callable[[Cursor], Any]
_Step = Callable[[Cursor, Any], None]
_Set = Callable[[Any, Any], None]


class EntityDecoder:
    """The decoder of one class of entities. Made by ``decoder_of``; immutable."""

    def __init__(self, entity: EntityClass) -> None:
        fields = wire_fields(entity)
        plain = [field for field in fields if field.tag is None]
        self._entity = entity
        self._is_flexible = bool(entity.__flexible__)
        self._steps = tuple(_steps(entity, plain, flexible=self._is_flexible))
        self._tagged = {
            field.tag: (_setter(entity, field.name), _reader(field, flexible=True))
            for field in fields
            if field.tag is not None
        }
        self._defaults = tuple(
            (_setter(entity, field.name), field.default) for field in fields if field.tag is not None
        )
        #: Bytes of the smallest entity; at least 1, so that a count is always bounded by bytes.
        self.size_bytes_min = max(
            1, sum(_size_bytes_min(f, flexible=self._is_flexible) for f in plain) + self._is_flexible
        )

    def read(self, cursor: Cursor) -> Any:
        """Read the entity at a position, which moves behind it.

        Raises:
            MalformedRequestError, struct.error, UnicodeDecodeError, OverflowError: the bytes are no such entity.
        """
        entity = object.__new__(self._entity)
        for step in self._steps:
            step(cursor, entity)
        if self._is_flexible:
            self._read_tagged(cursor, entity)
        return entity

    def _read_tagged(self, cursor: Cursor, entity: Any) -> None:
        for set_field, default in self._defaults:
            set_field(entity, default)
        for _ in range(cursor.tagged_field_count()):
            tag = cursor.unsigned_varint()
            size_bytes = cursor.unsigned_varint()
            start = cursor.position
            cursor.take(size_bytes)
            if tag in self._tagged:
                set_field, read = self._tagged[tag]
                cursor.position = start
                set_field(entity, read(cursor))
                if cursor.position != start + size_bytes:
                    taken = cursor.position - start
                    raise MalformedRequestError(f"tagged field {tag} at {start} has {size_bytes} bytes, not {taken}")


@cache
def decoder_of(entity: EntityClass) -> EntityDecoder:
    """Return the decoder of a class of kio's."""
    return EntityDecoder(entity)


def _setter(entity: EntityClass, name: str) -> _Set:
    """Set a field of a frozen entity under construction: by its slot, at a third of the dataclass's own price."""
    setter: _Set = entity.__dict__[name].__set__
    return setter


def _steps(entity: EntityClass, fields: list[WireField], *, flexible: bool) -> list[_Step]:
    """Make the decoding steps of the fields, in order: neighbours of fixed size are unpacked at once."""
    steps: list[_Step] = []
    for is_fixed, group in groupby(fields, key=lambda field: field.shape is Shape.ONE and field.code is not None):
        if is_fixed:
            steps.append(_fixed_step(entity, list(group)))
        else:
            steps.extend(_variable_step(entity, field, flexible=flexible) for field in group)
    return steps


def _fixed_step(entity: EntityClass, fields: list[WireField]) -> _Step:
    layout = struct.Struct(">" + "".join(field.code or "" for field in fields))
    unpack, size_bytes = layout.unpack_from, layout.size
    setters = tuple(_converting(_setter(entity, field.name), field.kafka_type) for field in fields)

    def step(cursor: Cursor, entity: Any) -> None:
        for set_field, value in zip(setters, unpack(cursor.data, cursor.position), strict=True):
            set_field(entity, value)
        cursor.position += size_bytes

    return step


def _variable_step(entity: EntityClass, field: WireField, *, flexible: bool) -> _Step:
    set_field = _setter(entity, field.name)
    read = _reader(field, flexible=flexible)

    def step(cursor: Cursor, entity: Any) -> None:
        set_field(entity, read(cursor))

    return step


def _converting(set_field: _Set, kafka_type: str) -> _Set:
    convert = _CONVERSIONS.get(kafka_type)
    if convert is None:
        return set_field

    def converted(entity: Any, value: Any) -> None:
        set_field(entity, convert(value))

    return converted


def _duration(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds)


def _uuid(data: bytes) -> uuid.UUID | None:
    """Read an id; Kafka's zero id is None, as in kio."""
    return uuid.UUID(bytes=data) if any(data) else None


def _error_code(number: int) -> ErrorCode:
    """Read an error of an answer; one that kio does not know yet is an unknown one."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": _error_code,
    "uuid": _uuid,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
}


def _reader(field: WireField, *, flexible: bool) -> Read:
    """A function that reads the value of a field."""
    if field.shape is Shape.ARRAY:
        return _ArrayReader(field, flexible=flexible).read
    if field.entity is not None:
        return _nullable_entity_reader(field.entity) if field.is_nullable else decoder_of(field.entity).read
    if field.code is not None:
        return _fixed_reader(field)
    return _bytes_reader(field, flexible=flexible)


def _fixed_reader(field: WireField) -> Read:
    layout = struct.Struct(f">{field.code}")
    convert = _CONVERSIONS.get(field.kafka_type)

    def read(cursor: Cursor) -> Any:
        (value,) = layout.unpack(cursor.take(layout.size))
        return convert(value) if convert else value

    return read


def _bytes_reader(field: WireField, *, flexible: bool) -> Read:
    """Strings, and bytes under their names."""
    name, is_nullable, is_text = field.name, field.is_nullable, field.kafka_type == "string"
    length_bytes = 2 if is_text else 4

    def read(cursor: Cursor) -> Any:
        start = cursor.position
        if flexible:
            size_bytes = cursor.unsigned_varint() - 1
        else:
            size_bytes = int.from_bytes(cursor.take(length_bytes), "big", signed=True)
        if size_bytes < 0:
            if size_bytes == -1 and is_nullable:
                return None
            raise MalformedRequestError(f"{name} at {start} has a length of {size_bytes}")
        if is_text and size_bytes > 0x7FFF:
            raise MalformedRequestError(f"{name} at {start} has a length of {size_bytes}, above that of a string")
        data = cursor.take(size_bytes)
        return str(data, "utf-8") if is_text else bytes(data)

    return read


def _nullable_entity_reader(entity: EntityClass) -> Read:
    """A byte says whether the entity follows (KIP-893): below zero for null."""
    decoder = decoder_of(entity)

    def read(cursor: Cursor) -> Any:
        return decoder.read(cursor) if cursor.take(1)[0] < 0x80 else None

    return read


class _ArrayReader:
    """Reads one array."""

    def __init__(self, field: WireField, *, flexible: bool) -> None:
        self._name = field.name
        self._is_nullable = field.is_nullable
        self._is_flexible = flexible
        self._decoder = None if field.entity is None else decoder_of(field.entity)
        self._unpacked = ""
        element = dataclasses.replace(field, shape=Shape.ONE, is_nullable=False, tag=None)
        self._size_bytes_min = _size_bytes_min(element, flexible=flexible)
        if self._decoder is None and field.code is not None and field.kafka_type not in _CONVERSIONS:
            self._unpacked = field.code
        else:
            self._read_one = _reader(element, flexible=flexible)

    def read(self, cursor: Cursor) -> tuple[Any, ...] | None:
        """Read the elements; None for null."""
        count = self._count(cursor)
        if count < 0:
            return None
        if self._unpacked:
            return self._unpack(cursor, count)
        read = self._read_one
        return tuple([read(cursor) for _ in range(count)])

    def _count(self, cursor: Cursor) -> int:
        start = cursor.position
        count = cursor.count(self._size_bytes_min, flexible=self._is_flexible)
        if count < 0 and not self._is_nullable:
            raise MalformedRequestError(f"{self._name} at {start} is null")
        return count

    def _unpack(self, cursor: Cursor, count: int) -> tuple[Any, ...]:
        return struct.unpack(f">{count}{self._unpacked}", cursor.take(count * self._size_bytes_min))


def _size_bytes_min(field: WireField, *, flexible: bool) -> int:
    """Return the bytes of a field's smallest value."""
    if field.shape is Shape.ARRAY:
        return 1 if flexible else 4
    if field.entity is not None:
        return 1 if field.is_nullable else decoder_of(field.entity).size_bytes_min
    if field.code is not None:
        return struct.calcsize(f">{field.code}")
    if flexible:
        return 1
    return 2 if field.kafka_type == "string" else 4
