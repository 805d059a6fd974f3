"""Whether the bytes of a request are regular: then kio's decoder, fifteen times as fast as ours, may be let at them.

Regular are requests as clients send them: counts that the bytes left allow, null only where null may be, no tagged
fields; and not too many elements for one turn of the loop. Of what is not regular nothing is said here: ``decoding``
reads it, or says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Final

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
from tierlog.broker.protocol.fields import EntityClass, Shape, WireField, wire_fields

#: (kind, argument, whether null is allowed), as of Skimmer.
_Step = tuple[int, int, bool]

#: Elements of all arrays of one request together: kio's decoder takes some 5 ms for so many, if each topic has one
#: partition. A request for five thousand partitions of topics of their own has as many.
REGULAR_ELEMENTS_MAX: Final = 10_000


def regular_elements(entity: EntityClass, data: memoryview, position: int) -> int | None:
    """How many elements all arrays have, if the bytes from a position on are an entity of that class, without anything
    unusual; else None.

    Memory: none. Time: as many steps as there are strings and arrays.
    """
    return _skimmer(entity).count_elements(data, position, elements_max=REGULAR_ELEMENTS_MAX)


@cache
def _skimmer(entity: EntityClass) -> Skimmer:
    return Skimmer(_steps_of(entity))


def _steps_of(entity: EntityClass) -> list[_Step]:
    """The fields of an entity: neighbours of fixed size are one step."""
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
    """One value of a field, an element where it is an array."""
    if field.entity is not None:
        return _steps_of(field.entity)
    if field.code is not None:
        return [(BYTES, _fixed_bytes([field]), False)]
    if is_flexible:
        return [(COMPACT, 0, is_nullable)]
    return [(SHORT if field.kafka_type == "string" else LONG, 0, is_nullable)]
