"""Faults of a snapshot file, found by the readers of records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tierlog.errors import CorruptIndexError, CorruptRecordError


@contextlib.contextmanager
def as_snapshot_faults(position: int = 0) -> Iterator[None]:
    """A block whose CorruptRecordError, and ValueError of a value that cannot be, is a CorruptIndexError.

    Args:
        position: Of the record's first byte in the file.
    """
    try:
        yield
    except CorruptRecordError as fault:
        raise CorruptIndexError(
            fault.text,
            fault=fault.fault,
            position=position + max(0, fault.position),
            expected=fault.expected,
            found=fault.found,
        ) from fault
    except ValueError as fault:
        if isinstance(fault, CorruptIndexError):
            raise
        raise CorruptIndexError(str(fault), fault="BAD_ENTRY", position=position) from fault
