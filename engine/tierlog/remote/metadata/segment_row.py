"""A segment as the table hands it out: the KIP's value, of which fields are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields
from operator import attrgetter
from typing import Any, Final, NoReturn

import numpy as np

from tierlog._native.segments import SegmentCopy
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)

_NAMES: Final = tuple(each.name for each in fields(RemoteLogSegmentMetadata))
_SPECIAL: Final[Mapping[str, Callable[[SegmentCopy], object]]] = {
    "remote_log_segment_id": lambda copy: RemoteLogSegmentId(copy.partition, Uuid(copy.segment_id)),
    "segment_leader_epochs": lambda copy: EpochMap(copy.segment_leader_epochs),
    "state": lambda copy: RemoteLogSegmentState(copy.state),
}
_FIELDS: Final[Mapping[str, Callable[[SegmentCopy], object]]] = {
    name: _SPECIAL.get(name, attrgetter(name)) for name in _NAMES
}

#: Segments, one a row (``tierlog._native.segments.SEGMENT_DTYPE``): ``columns.start_offset`` is a column. Offsets are
#: inclusive; times are milliseconds, -1 for none; ``state`` has the numbers of RemoteLogSegmentState;
#: ``custom_metadata_size`` is -1 where there is none.
SegmentColumns = np.recarray[Any, np.dtype[np.void]]


class SegmentRow(RemoteLogSegmentMetadata):
    """The metadata of one segment at the time of the lookup: a copy that no later event changes.

    It stands for the plain value: equal to it both ways, with its hash and its text; it is pickled, copied and replaced
    as that. The table makes these; calling the class makes a plain value.

    Thread safety: any number of threads.
    """

    # A field is in the slot that the plain class has for it once it was asked for; before, the slot is empty.
    __slots__ = ("_copy",)
    _copy: SegmentCopy

    def __new__(cls, *args: Any, **kwargs: Any) -> RemoteLogSegmentMetadata:  # type: ignore[misc]
        return RemoteLogSegmentMetadata(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        make = _FIELDS.get(name)
        if make is None:
            raise AttributeError(f"{RemoteLogSegmentMetadata.__name__} has no attribute {name!r}")
        value = make(self._copy)
        object.__setattr__(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    @property
    def topic_id_partition(self) -> Any:
        return self._copy.partition

    def plain(self) -> RemoteLogSegmentMetadata:
        """Return the same as the plain value."""
        return _plain_of(*(getattr(self, name) for name in _NAMES))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteLogSegmentMetadata):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _NAMES)

    __hash__ = RemoteLogSegmentMetadata.__hash__

    def __repr__(self) -> str:
        return repr(self.plain())

    def __reduce__(self) -> tuple[object, ...]:
        return (_plain_of, tuple(getattr(self, name) for name in _NAMES))


def _plain_of(*values: Any) -> RemoteLogSegmentMetadata:
    """Return the plain value of its fields in their order; pickled rows name this."""
    return RemoteLogSegmentMetadata(**dict(zip(_NAMES, values, strict=True)))
