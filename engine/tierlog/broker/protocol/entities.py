"""Entities of kio without naming their version: a handler names the fields, and a version takes those that it has."""

from __future__ import annotations

import dataclasses
import datetime
from functools import cache
from types import ModuleType
from typing import Any, Final

from kio.index import load_payload_module
from kio.static.constants import EntityType
from kio.static.protocol import ResponsePayload

_NO_TIME: Final = datetime.timedelta(0)


class Entities:
    """Makes the response of one API at one version, and the entities in it. Made by ``entities_of``; immutable."""

    def __init__(self, module: ModuleType) -> None:
        self._classes = {
            name: (entity, frozenset(field.name for field in dataclasses.fields(entity)))
            for name, entity in vars(module).items()
            if isinstance(entity, type) and dataclasses.is_dataclass(entity)
        }
        kinds = {name: getattr(entity, "__type__", None) for name, (entity, _) in self._classes.items()}
        self._response = next((name for name, kind in kinds.items() if kind is EntityType.response), "")

    def has(self, name: str, field: str | None = None) -> bool:
        """Whether this version has an entity of a name (with a field)."""
        found = self._classes.get(name)
        return found is not None and (field is None or field in found[1])

    def entity_class(self, name: str) -> Any:
        """The class of a name. Raises KeyError: this version has no such entity."""
        return self._classes[name][0]

    def make(self, name: str, /, **values: object) -> Any:
        """An entity of a name. Values of fields that this version lacks are left out; what is not given has the
        protocol's default.

        Raises:
            KeyError: this version has no such entity. TypeError: a field without a default is missing.
        """
        entity, fields = self._classes[name]
        return entity(**{field: value for field, value in values.items() if field in fields})

    def response(self, **values: object) -> ResponsePayload:
        """The response itself, as ``make``; where it has a throttle time, that is none unless given."""
        payload: ResponsePayload = self.make(self._response, **{"throttle_time": _NO_TIME} | values)
        return payload


@cache
def entities_of(api_key: int, api_version: int) -> Entities:
    """The entities of the responses of an API at a version. Raises kio's UnknownEntity for one that it lacks."""
    return Entities(load_payload_module(api_key, api_version, EntityType.response))


def field_of(request: Any, name: str, default: Any = None) -> Any:
    """A field of a request, or a default where its version lacks it."""
    return getattr(request, name, default)
