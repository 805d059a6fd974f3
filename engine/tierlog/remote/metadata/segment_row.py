"""A segment as the table hands it out: the KIP's value, of which fields are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields
from operator import attrgetter
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

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


class SegmentRow(RemoteLogSegmentMetadata):
    """What is known of one segment, as it was when the table was asked: a copy that no later event changes.

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
        """The same as the plain value."""
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
    """The plain value of its fields in their order; pickled rows name this."""
    return RemoteLogSegmentMetadata(**dict(zip(_NAMES, values, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class SegmentColumns:
    """Segments, one a row; copied out of the table, so that no later event changes them.

    Attributes:
        rows: The rows (``tierlog._native.segments.SEGMENT_DTYPE``), of which the columns below are views. Offsets are
            inclusive; times are milliseconds, -1 for none; ``state`` has the numbers of RemoteLogSegmentState;
            ``custom_metadata_size`` is -1 where there is none.
        found: bool[n]. A row of a question that nothing answers is False, and zeros. Of a listing all are True.
    """

    rows: NDArray[np.void]
    found: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def segment_id(self) -> NDArray[np.uint8]:
        """uint8[n, 16]."""
        return self.rows["segment_id"]

    @property
    def start_offset(self) -> NDArray[np.int64]:
        return self.rows["start_offset"]

    @property
    def end_offset(self) -> NDArray[np.int64]:
        return self.rows["end_offset"]

    @property
    def max_timestamp_ms(self) -> NDArray[np.int64]:
        return self.rows["max_timestamp_ms"]

    @property
    def event_timestamp_ms(self) -> NDArray[np.int64]:
        return self.rows["event_timestamp_ms"]

    @property
    def broker_id(self) -> NDArray[np.int32]:
        return self.rows["broker_id"]

    @property
    def segment_size_in_bytes(self) -> NDArray[np.int32]:
        return self.rows["segment_size_in_bytes"]

    @property
    def state(self) -> NDArray[np.uint8]:
        return self.rows["state"]

    @property
    def txn_idx_empty(self) -> NDArray[np.bool_]:
        return self.rows["txn_idx_empty"]

    @property
    def epoch_count(self) -> NDArray[np.uint32]:
        return self.rows["epoch_count"]

    @property
    def custom_metadata_size(self) -> NDArray[np.int64]:
        """Bytes; -1 where there is none."""
        return self.rows["custom_metadata_size"]
