"""Deletions of many objects from a store that does not answer."""

from __future__ import annotations

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.protocol.store_writer import delete_each

KEYS = [f"k{number}" for number in range(100)]


def test_a_store_that_does_not_answer_is_not_asked_for_each_key() -> None:
    """A minute of tries for each of a thousand keys is a night: `orphans --delete`, or a close, would wait for it."""
    clock, asked, failed = ManualClock(), list[str](), dict[str, StoreError]()

    def stall(key: str) -> None:
        asked.append(key)
        clock.advance(63)
        raise StoreUnavailableError(f"{key}: no answer")

    delete_each(KEYS, stall, clock, failed)
    assert asked == KEYS[:1]
    assert list(failed) == KEYS
    assert all(isinstance(error, StoreUnavailableError) for error in failed.values())


def test_all_are_tried_where_the_store_answers() -> None:
    """One key that is throttled, refused or gone says nothing of the others."""
    clock, failed = ManualClock(), dict[str, StoreError]()
    deleted: list[str] = []
    errors: dict[str, StoreError] = {
        "k3": StoreUnavailableError("503"),
        "k4": StorePermissionError("403"),
        "k5": ObjectNotFoundError("404"),
    }

    def delete(key: str) -> None:
        clock.advance(0.2)
        if key in errors:
            raise errors[key]
        deleted.append(key)

    delete_each(KEYS, delete, clock, failed)
    assert list(failed) == ["k3", "k4"]
    assert deleted == [key for key in KEYS if key not in errors]
