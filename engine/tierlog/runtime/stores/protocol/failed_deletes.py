"""One error for a deletion of many objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.clock import Clock

_NAMED_MAX: Final = 5
_UNANSWERED_SECONDS: Final = 60.0


def delete_each(
    keys: Iterable[str], delete: Callable[[str], object], clock: Clock, failed: dict[str, StoreError]
) -> None:
    """Remove objects by one request each; what is not there is fine, what cannot be removed is entered in ``failed``.

    A store that has not answered for a minute is not asked for each of the others, a minute each: they fail likewise.
    """
    began = clock.monotonic_seconds()
    gone: StoreUnavailableError | None = None
    for key in keys:
        if gone is not None and clock.monotonic_seconds() - began > _UNANSWERED_SECONDS:
            failed[key] = gone
            continue
        try:
            delete(key)
        except ObjectNotFoundError:
            continue
        except StoreError as error:
            failed[key] = error
            gone = error if isinstance(error, StoreUnavailableError) else gone


def deletion_error(place: str, failed: Mapping[str, StoreError]) -> StoreError:
    """The error that says what could not be removed, and why; retriable if trying again can help with all of it.

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
