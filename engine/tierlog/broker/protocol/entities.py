"""Entities of kio without naming their version: a handler names the fields, and a version takes those that it has.

Elements of long arrays are made as they are encoded; topic ids are kio's on one side and ours on the other.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from kio.index import load_payload_module
from kio.static.constants import EntityType
from kio.static.protocol import RequestPayload, ResponsePayload

from tierlog.broker.protocol.fields import EntityClass, Shape, wire_fields
from tierlog.remote.api import ZERO_UUID, Uuid

Item = TypeVar("Item")

_NO_TIME: Final = datetime.timedelta(0)
#: An answer, or a request, of more elements in all its arrays takes an event loop more than some 10 ms.
LONG_ELEMENTS: Final = 1_000


class Entities:
    """The maker of one API's response at one version, or of its request, and of the entities in it. Made by
    ``entities_of`` and ``request_entities_of``; immutable.
    """

    def __init__(self, module: ModuleType) -> None:
        self._classes = {
            name: (entity, frozenset(field.name for field in dataclasses.fields(entity)))
            for name, entity in vars(module).items()
            if isinstance(entity, type) and dataclasses.is_dataclass(entity)
        }
        kinds = {name: getattr(entity, "__type__", None) for name, (entity, _) in self._classes.items()}
        payloads = (EntityType.response, EntityType.request)
        self._payload = next((name for name, kind in kinds.items() if kind in payloads), "")

    def has(self, name: str, field: str | None = None) -> bool:
        """Whether this version has an entity of a name (with a field)."""
        found = self._classes.get(name)
        return found is not None and (field is None or field in found[1])

    def make(self, name: str, /, **values: object) -> Any:
        """Make an entity of a name. Values of fields that this version lacks are left out; other fields have the
        protocol's default.

        Raises:
            KeyError: this version has no such entity. TypeError: a field without a default is missing.
        """
        entity, fields = self._classes[name]
        return entity(**{field: value for field, value in values.items() if field in fields})

    def response(self, **values: object) -> ResponsePayload:
        """Return the response itself, as ``make``; where it has a throttle time, that is none unless given."""
        payload: ResponsePayload = self.make(self._payload, **{"throttle_time": _NO_TIME} | values)
        return payload

    def request(self, **values: object) -> RequestPayload:
        """Return the request itself, as ``make``."""
        payload: RequestPayload = self.make(self._payload, **values)
        return payload


@cache
def entities_of(api_key: int, api_version: int) -> Entities:
    """Return the entities of the responses of an API at a version. Raises kio's UnknownEntity for a version that it
    lacks.
    """
    return Entities(load_payload_module(api_key, api_version, EntityType.response))


@cache
def request_entities_of(api_key: int, api_version: int) -> Entities:
    """Return the entities of the requests of an API at a version. Raises as ``entities_of``."""
    return Entities(load_payload_module(api_key, api_version, EntityType.request))


def field_of(request: Any, name: str, default: Any = None) -> Any:
    """Return a field of a request, or a default where its version lacks it."""
    return getattr(request, name, default)


class MadeElements(Generic[Item]):
    """Elements of an array that are made as they are encoded, in place of a tuple of them in an entity.

    An answer about a hundred thousand partitions is never in memory as a whole. A thread may encode it, so that
    ``make`` reads values that do not change any more.

    Args:
        items: One for each element.
        make: Makes the element of an item.
        nested: How many elements the arrays of all elements have together.
    """

    __slots__ = ("_items", "_make", "elements")

    def __init__(self, items: Collection[Item], make: Callable[[Item], Any], *, nested: int = 0) -> None:
        self._items = items
        self._make = make
        self.elements = len(items) + nested

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items)


def count_elements(entity: Any) -> int:
    """Count the elements of all arrays of an entity together."""
    count = 0
    for name in _arrays_of(_class_of(entity)):
        values = getattr(entity, name)
        if isinstance(values, MadeElements):
            count += values.elements
        elif values:
            count += len(values)
            if _arrays_of(_class_of(values[0])):
                count += sum(map(count_elements, values))
    return count


def _class_of(value: Any) -> EntityClass:
    return type(value)


@cache
def _arrays_of(kind: EntityClass) -> tuple[str, ...]:
    """The names of an entity's arrays; none of a number or a string."""
    if not dataclasses.is_dataclass(kind):
        return ()
    entity: EntityClass = kind
    return tuple(field.name for field in wire_fields(entity) if field.shape is Shape.ARRAY)


def topic_id_of(wire_id: uuid.UUID | None) -> Uuid:
    """Return the id of a request's field; ZERO_UUID where kio says None."""
    return ZERO_UUID if wire_id is None else Uuid(wire_id.bytes)


def wire_id_of(topic_id: Uuid) -> uuid.UUID | None:
    """Return the id for a response's field; None for ZERO_UUID, which kio writes as zeros."""
    return None if topic_id == ZERO_UUID else uuid.UUID(bytes=topic_id.raw)
