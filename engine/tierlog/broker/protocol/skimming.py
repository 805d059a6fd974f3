"""Whether the bytes of a request are regular: then kio's decoder, fifteen times as fast as ours, may be let at them.

Regular are requests as clients send them: counts that the bytes left allow, null only where null may be, no tagged
fields; and not too many elements for one turn of the loop. Of what is not regular nothing is said here: ``decoding``
reads it, or says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Final

from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields

#: From a position to the one behind what is skipped; it may lie behind the end. Raises IrregularError, IndexError.
#: The elements of arrays that may still come are the list's one item.
Skip = Callable[[memoryview, int, list[int]], int]

#: Elements of all arrays of one request together: skimming and kio's decoder take some 5 ms for so many, if each topic
#: has one partition. A request for five thousand partitions of topics of their own has as many.
REGULAR_ELEMENTS_MAX: Final = 10_000


class IrregularError(Exception):
    """Something that only the slow decoder decides about. Never leaves ``regular_elements``."""


def regular_elements(entity: EntityClass, data: memoryview, position: int) -> int | None:
    """How many elements all arrays have, if the bytes from a position on are an entity of that class, without anything
    unusual; else None.

    Memory: none. Time: as many steps as there are strings and arrays.
    """
    left = [REGULAR_ELEMENTS_MAX]
    try:
        is_whole = _skip_entity(entity)(data, position, left) <= len(data)
    except (IrregularError, IndexError):
        return None
    return REGULAR_ELEMENTS_MAX - left[0] if is_whole else None


@cache
def _skip_entity(entity: EntityClass) -> Skip:
    steps = [*_steps(_untagged(entity), flexible=entity.__flexible__)]
    if entity.__flexible__:
        steps.append(_skip_no_tagged_fields)

    def skip(data: memoryview, position: int, left: list[int]) -> int:
        for step in steps:
            position = step(data, position, left)
        return position

    return skip


def _untagged(entity: EntityClass) -> list[WireField]:
    return [field for field in wire_fields(entity) if field.tag is None]


def _skip_no_tagged_fields(data: memoryview, position: int, _left: list[int]) -> int:
    if data[position]:
        raise IrregularError
    return position + 1


def _steps(fields: list[WireField], *, flexible: bool) -> list[Skip]:
    """What to do for the fields in order: neighbours of fixed size are skipped at once."""
    steps: list[Skip] = []
    for is_fixed, group in groupby(fields, key=lambda field: field.shape is Shape.ONE and field.code is not None):
        if is_fixed:
            steps.append(_skip_bytes(_fixed_bytes(list(group))))
        else:
            steps.extend(_skip_field(field, flexible=flexible) for field in group)
    return steps


def _fixed_bytes(fields: list[WireField]) -> int:
    return struct.calcsize(">" + "".join(field.code or "" for field in fields))


def _skip_bytes(size_bytes: int) -> Skip:
    return lambda _, position, _left: position + size_bytes


def _skip_field(field: WireField, *, flexible: bool) -> Skip:
    if field.shape is Shape.ARRAY:
        return _skip_array(field, flexible=flexible)
    if field.entity is not None:
        return _skip_nullable(field.entity) if field.is_nullable else _skip_entity(field.entity)
    if flexible:
        return _skip_compact(is_nullable=field.is_nullable)
    return _skip_prefixed(2 if field.kafka_type == "string" else 4, is_nullable=field.is_nullable)


def _skip_nullable(entity: EntityClass) -> Skip:
    skip_entity = _skip_entity(entity)

    def skip(data: memoryview, position: int, left: list[int]) -> int:
        return skip_entity(data, position + 1, left) if data[position] < 0x80 else position + 1

    return skip


def _skip_compact(*, is_nullable: bool) -> Skip:
    def skip(data: memoryview, position: int, _left: list[int]) -> int:
        length, position = _varint(data, position)
        if length == 0:
            if not is_nullable:
                raise IrregularError
            return position
        return position + length - 1

    return skip


def _skip_prefixed(length_bytes: int, *, is_nullable: bool) -> Skip:
    null = (1 << 8 * length_bytes) - 1

    def skip(data: memoryview, position: int, _left: list[int]) -> int:
        start = position + length_bytes
        length = int.from_bytes(data[position:start], "big")
        if length > null >> 1:
            if length == null and is_nullable:
                return start
            raise IrregularError
        return start + length

    return skip


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """(value, position behind it) of a varint of at most three bytes: longer ones are no lengths of requests' parts."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    second = data[position + 1]
    value = value & 0x7F | (second & 0x7F) << 7
    if second < 0x80:
        return value, position + 2
    third = data[position + 2]
    if third >= 0x80:
        raise IrregularError
    return value | third << 14, position + 3


def _skip_array(field: WireField, *, flexible: bool) -> Skip:
    skip_elements = _skip_elements(field, flexible=flexible)
    is_nullable = field.is_nullable

    def skip(data: memoryview, position: int, left: list[int]) -> int:
        if flexible:
            count, position = _varint(data, position)
            count -= 1
        else:
            count = int.from_bytes(data[position : position + 4], "big", signed=True)
            position += 4
        if count < 0:
            if count != -1 or not is_nullable:
                raise IrregularError
            return position
        left[0] -= count
        if count > len(data) - position or left[0] < 0:  # of elements that have a byte at least
            raise IrregularError
        return skip_elements(data, position, count, left) if count else position

    return skip


def _skip_elements(field: WireField, *, flexible: bool) -> Callable[[memoryview, int, int, list[int]], int]:
    if field.entity is None and field.code is not None:
        size_bytes = struct.calcsize(f">{field.code}")
        return lambda _, position, count, _left: position + count * size_bytes
    if field.entity is None:
        skip_one = _skip_compact(is_nullable=False)
        if not flexible:
            skip_one = _skip_prefixed(2 if field.kafka_type == "string" else 4, is_nullable=False)
        return _repeated(skip_one)
    fields = _untagged(field.entity)
    if all(one.shape is Shape.ONE and one.code is not None for one in fields):
        return _skip_fixed_entities(_fixed_bytes(fields), flexible=flexible)
    return _repeated(_skip_entity(field.entity))


def _skip_fixed_entities(size_bytes: int, *, flexible: bool) -> Callable[[memoryview, int, int, list[int]], int]:
    """Entities of one size: of all of them at once the places of tagged fields are looked at."""
    if not flexible:
        return lambda _, position, count, _left: position + count * size_bytes
    step = size_bytes + 1

    def skip(data: memoryview, position: int, count: int, _left: list[int]) -> int:
        if bytes(data[position + size_bytes : position + count * step : step]) != bytes(count):
            raise IrregularError
        return position + count * step

    return skip


def _repeated(skip_one: Skip) -> Callable[[memoryview, int, int, list[int]], int]:
    def skip(data: memoryview, position: int, count: int, left: list[int]) -> int:
        for _ in range(count):
            position = skip_one(data, position, left)
        return position

    return skip
