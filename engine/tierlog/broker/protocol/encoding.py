"""kio's entities to bytes: one encoder a class, made when the class is first met.

Not kio's own: a response with ten thousand partitions takes it 100 ms, this one a fraction; the bytes are the same.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from tierlog.broker.protocol.fields import FIXED_CODES, EntityClass, Shape, WireField, wire_fields
from tierlog.runtime.waiting.side_by_side import LoopShare

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
#: Bytes of encoded elements that are copied at once, into memory that is new, and what that counts for: 0.3 ms.
_COPIED_BYTES: Final = 256 << 10
_COPY_STEPS: Final = 64

Item = TypeVar("Item")

Write = Callable[[bytearray, Any], None]


@dataclass(frozen=True, slots=True)
class EncodedElements:
    """Elements of an array that are bytes already: stands for the tuple of them in an entity.

    Args:
        count: Of the elements.
        data: All of them, as this version has them.
    """

    count: int
    data: bytes | bytearray


class MadeElements(Generic[Item]):
    """Elements of an array that are made as they are encoded: stands for the tuple of them in an entity.

    An answer about ten thousand partitions is never there as a whole, and others have the loop meanwhile.

    Args:
        items: One for each element.
        make: Makes the element of an item.
    """

    __slots__ = ("_items", "_make")

    def __init__(self, items: Collection[Item], make: Callable[[Item], Any]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items)


class EntityEncoder:
    """Encodes one class of entities. Made by ``encoder_of``; immutable."""

    def __init__(self, entity: EntityClass) -> None:
        fields = wire_fields(entity)
        self._name = entity.__name__
        self._is_flexible = bool(entity.__flexible__)
        self._steps = tuple(_steps([f for f in fields if f.tag is None], flexible=self._is_flexible))
        #: Whether an entity has arrays of entities, so that one may take long to write.
        self.has_arrays = any(isinstance(step, _EntitiesStep) for step in self._steps)
        self._end = b"\0" if self._is_flexible else b""
        self._tagged = tuple(
            (field.tag, attrgetter(field.name), field.default, _writer(field, flexible=True))
            for field in fields
            if field.tag is not None
        )

    def write(self, out: bytearray, entity: Any) -> None:
        """Append the bytes of an entity.

        Raises:
            ValueError: a value does not fit its field.
        """
        try:
            for step in self._steps:
                step(out, entity)
            self._write_tagged(out, entity)
        except struct.error as error:
            raise ValueError(f"{self._name}: {error}") from error

    async def write_in_turns(self, out: bytearray, entity: Any, share: LoopShare) -> None:
        """Append an entity's bytes as ``write`` does, and let other tasks run between the elements of its arrays."""
        try:
            for step in self._steps:
                if isinstance(step, _EntitiesStep):
                    await step.write_in_turns(out, entity, share)
                else:
                    step(out, entity)
            self._write_tagged(out, entity)
        except struct.error as error:
            raise ValueError(f"{self._name}: {error}") from error

    def _write_tagged(self, out: bytearray, entity: Any) -> None:
        """Those that are not their defaults; of a class that is not flexible nothing."""
        if not self._tagged:
            out.extend(self._end)
            return
        fields = bytearray()
        count = 0
        for tag, value_of, default, write in self._tagged:
            value = value_of(entity)
            if value != default:
                count += 1
                encoded = bytearray()
                write(encoded, value)
                append_unsigned_varint(fields, tag)
                append_unsigned_varint(fields, len(encoded))
                fields += encoded
        append_unsigned_varint(out, count)
        out += fields


class FixedEncoder:
    """Encodes entities whose fields all have one size, without making them: for answers about thousands of partitions.

    Args:
        entity: A class of kio's, without strings, arrays and tagged fields.
    """

    def __init__(self, entity: EntityClass) -> None:
        fields = wire_fields(entity)
        codes = [field.code for field in fields]
        assert all(code is not None and f.tag is None for f, code in zip(fields, codes, strict=True)), entity
        self._names = tuple(field.name for field in fields)
        self._pack = struct.Struct(">" + "".join(code or "" for code in codes) + "x" * entity.__flexible__).pack

    def encode(self, values: Mapping[str, int]) -> bytes:
        """The bytes of one entity. Of an error its number; values that the version lacks are left out.

        Raises:
            KeyError: a value is missing. struct.error: one does not fit.
        """
        return self._pack(*[values[name] for name in self._names])


@cache
def encoder_of(entity: EntityClass) -> EntityEncoder:
    """The encoder of a class of kio's."""
    return EntityEncoder(entity)


def append_entity(out: bytearray, entity: Any) -> None:
    """Append the bytes of an entity. Raises ValueError, as ``EntityEncoder.write``."""
    kind: EntityClass = type(entity)
    encoder_of(kind).write(out, entity)


async def append_in_turns(out: bytearray, entity: Any, share: LoopShare) -> None:
    """Append an entity's bytes, and let other tasks run meanwhile. Raises ValueError, as ``EntityEncoder.write``."""
    kind: EntityClass = type(entity)
    await encoder_of(kind).write_in_turns(out, entity, share)


def append_unsigned_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint, of a value that is not negative."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _steps(fields: list[WireField], *, flexible: bool) -> list[Write]:
    """What to do for the fields in order: neighbours of fixed size are packed at once."""
    steps: list[Write] = []
    for is_fixed, group in groupby(fields, key=lambda field: field.shape is Shape.ONE and field.code is not None):
        if is_fixed:
            steps.append(_fixed_step(list(group)))
        else:
            steps.extend(_variable_step(field, flexible=flexible) for field in group)
    return steps


def _fixed_step(fields: list[WireField]) -> Write:
    pack = struct.Struct(">" + "".join(field.code or "" for field in fields)).pack
    conversions = tuple(_CONVERSIONS.get(field.kafka_type, _unchanged) for field in fields)
    if len(fields) == 1:
        value_of, convert = attrgetter(fields[0].name), conversions[0]
        return lambda out, entity: out.extend(pack(convert(value_of(entity))))
    values_of = attrgetter(*(field.name for field in fields))
    if all(convert is _unchanged for convert in conversions):
        return lambda out, entity: out.extend(pack(*values_of(entity)))

    def step(out: bytearray, entity: Any) -> None:
        values = zip(conversions, values_of(entity), strict=True)
        out.extend(pack(*[convert(value) for convert, value in values]))

    return step


def _variable_step(field: WireField, *, flexible: bool) -> Write:
    value_of = attrgetter(field.name)
    if field.shape is Shape.ARRAY and field.entity is not None:
        return _EntitiesStep(field, flexible=flexible)
    write = _writer(field, flexible=flexible)

    def step(out: bytearray, entity: Any) -> None:
        write(out, value_of(entity))

    return step


def _unchanged(value: Any) -> Any:
    return value


def _milliseconds(value: datetime.timedelta) -> int:
    return value // _MILLISECOND


def _instant(value: Any) -> int:
    return -1 if value is None else round(value.timestamp() * 1000)


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": lambda value: bytes(16) if value is None else value.bytes,
    "error_code": attrgetter("value"),
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _instant,
}


def _writer(field: WireField, *, flexible: bool) -> Write:
    """Writes the value of a field."""
    if field.shape is Shape.ARRAY:
        return _array_writer(field, flexible=flexible)
    if field.entity is not None:
        return _nullable_entity_writer(field.entity) if field.is_nullable else encoder_of(field.entity).write
    return _value_writer(field.kafka_type, flexible=flexible, is_nullable=field.is_nullable)


def _value_writer(kafka_type: str, *, flexible: bool, is_nullable: bool) -> Write:
    """Writes one value that is no entity."""
    code = FIXED_CODES.get(kafka_type)
    if code is not None:
        pack, convert = struct.Struct(f">{code}").pack, _CONVERSIONS.get(kafka_type, _unchanged)
        return lambda out, value: out.extend(pack(convert(value)))
    is_text = kafka_type == "string"
    length = _INT16 if is_text else _INT32

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not is_nullable:
                raise ValueError("null in a field that cannot be null")
            out.extend(b"\0" if flexible else length.pack(-1))
            return
        data = value.encode() if is_text else value
        if is_text and len(data) > 0x7FFF:
            raise ValueError(f"a string of {len(data)} bytes is longer than strings can be")
        if flexible:
            append_unsigned_varint(out, len(data) + 1)
        else:
            out.extend(length.pack(len(data)))
        out.extend(data)

    return write


def _nullable_entity_writer(entity: EntityClass) -> Write:
    """A byte says whether the entity follows (KIP-893)."""
    write_entity = encoder_of(entity).write

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            write_entity(out, value)

    return write


class _EntitiesStep:
    """Writes a field that is an array of entities."""

    def __init__(self, field: WireField, *, flexible: bool) -> None:
        assert field.entity is not None
        self._value_of = attrgetter(field.name)
        self._write = _array_writer(field, flexible=flexible)
        self._write_count = _count_writer(field, flexible=flexible)
        self._encoder = encoder_of(field.entity)

    def __call__(self, out: bytearray, entity: Any) -> None:
        self._write(out, self._value_of(entity))

    async def write_in_turns(self, out: bytearray, entity: Any, share: LoopShare) -> None:
        values, encoder = self._value_of(entity), self._encoder
        if values is None:
            self._write(out, values)
            return
        self._write_count(out, values)
        if isinstance(values, EncodedElements):
            with memoryview(values.data) as data:
                for start in range(0, len(data), _COPIED_BYTES):
                    out += data[start : start + _COPIED_BYTES]
                    await share.take(_COPY_STEPS)
            return
        for value in values:
            if encoder.has_arrays:
                await encoder.write_in_turns(out, value, share)
            else:
                encoder.write(out, value)
            if share.is_over():
                await share.wait()


def _array_writer(field: WireField, *, flexible: bool) -> Write:
    write_count = _count_writer(field, flexible=flexible)
    write_elements = _elements_writer(field, flexible=flexible)

    def write(out: bytearray, values: Any) -> None:
        write_count(out, values)
        if isinstance(values, EncodedElements):
            out.extend(values.data)
        elif values:
            write_elements(out, values)

    return write


def _count_writer(field: WireField, *, flexible: bool) -> Write:
    is_nullable = field.is_nullable

    def write(out: bytearray, values: Any) -> None:
        if values is None and not is_nullable:
            raise ValueError("null for an array that cannot be null")
        count = -1 if values is None else values.count if isinstance(values, EncodedElements) else len(values)
        if flexible:
            append_unsigned_varint(out, count + 1)
        else:
            out.extend(_INT32.pack(count))

    return write


def _elements_writer(field: WireField, *, flexible: bool) -> Write:
    code = field.code
    if field.entity is None and code is not None and field.kafka_type not in _CONVERSIONS:
        return lambda out, values: out.extend(struct.pack(f">{len(values)}{code}", *values))
    write_one: Write
    if field.entity is not None:
        write_one = encoder_of(field.entity).write
    else:
        write_one = _value_writer(field.kafka_type, flexible=flexible, is_nullable=False)

    def write(out: bytearray, values: Any) -> None:
        for value in values:
            write_one(out, value)

    return write
