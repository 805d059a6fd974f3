"""The wire types of the fields of kio's entities, read off the dataclasses once for the decoder and the encoder."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

#: A class of kio's entities. (mypy holds that ``type[Any]`` has no hash, so that nothing could be cached by it.)
EntityClass: TypeAlias = Any

#: Wire types of one size, as ``struct`` names them behind ">".
FIXED_CODES: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


class Shape(enum.Enum):
    """The number of values that a field holds."""

    ONE = "one"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of an entity.

    Args:
        name: Of the dataclass's field.
        shape: One value or an array of them.
        kafka_type: The wire type of the value, or of each of the array's; "" for an entity.
        entity: The class of the value, or of each of the array's; None for others.
        is_nullable: Whether the field itself may be null: null elements exist for uuids alone, as zeros.
        tag: Of a tagged field; None for others.
        default: The value that stands for a tagged field which is not there; ``dataclasses.MISSING`` of other fields.
    """

    name: str
    shape: Shape
    kafka_type: str
    entity: EntityClass | None
    is_nullable: bool
    tag: int | None
    default: Any

    @property
    def code(self) -> str | None:
        """The ``struct`` code of one value, where values have one size."""
        return FIXED_CODES.get(self.kafka_type)


@cache
def wire_fields(entity: EntityClass) -> tuple[WireField, ...]:
    """Return the fields of an entity's class, in the order of the wire; tagged ones last, by tag."""
    found = [_wire_field(field) for field in dataclasses.fields(entity)]
    tagged = sorted((field for field in found if field.tag is not None), key=lambda field: field.tag or 0)
    return (*(field for field in found if field.tag is None), *tagged)


def _wire_field(field: dataclasses.Field[Any]) -> WireField:
    kind, is_nullable = _without_none(field.type)
    shape = Shape.ONE
    if get_origin(kind) is tuple:
        shape = Shape.ARRAY
        kind, _ = _without_none(get_args(kind)[0])
    entity = kind if dataclasses.is_dataclass(kind) else None
    return WireField(
        name=field.name,
        shape=shape,
        kafka_type="" if entity else field.metadata["kafka_type"],
        entity=entity,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )


def _without_none(kind: Any) -> tuple[Any, bool]:
    """Return a type without its None, and whether it had one."""
    if get_origin(kind) in (UnionType, Union):
        rest = [part for part in get_args(kind) if part is not NoneType]
        return rest[0], len(rest) < len(get_args(kind))
    return kind, False
