"""One error for a deletion of many objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tierlog.errors import StoreError, StorePermissionError, StoreUnavailableError

_NAMED_MAX: Final = 5


def deletion_error(place: str, failed: Mapping[str, StoreError]) -> StoreError:
    """What could not be removed, and why: retriable only if trying again can help with all of it.

    Args:
        place: The store.
        failed: Key → why; not empty.
    """
    named = "; ".join(f"{key}: {error}" for key, error in list(failed.items())[:_NAMED_MAX])
    more = f"; and {len(failed) - _NAMED_MAX} more" if len(failed) > _NAMED_MAX else ""
    text = f"{place}: {len(failed)} objects could not be removed: {named}{more}"
    errors = failed.values()
    if all(isinstance(error, StoreUnavailableError) for error in errors):
        return StoreUnavailableError(text)
    if all(isinstance(error, StorePermissionError) for error in errors):
        return StorePermissionError(text)
    return StoreError(text)
