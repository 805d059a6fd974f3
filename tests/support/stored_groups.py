"""A store of groups, written to and opened again."""

from __future__ import annotations

import pathlib
import threading

from tests.support.waiting import LIMIT_SECONDS
from tierlog.broker.groups.database_store import open_group_store
from tierlog.broker.groups.stored_state import Change, GroupStore, StoredState
from tierlog.runtime.machine import Machine


def write(store: GroupStore, *changes: Change) -> Exception | None:
    """Write, and wait for what becomes of it."""
    done = threading.Event()
    told: list[Exception | None] = []
    store.write(changes, lambda error: (told.append(error), done.set()))  # type: ignore[func-returns-value]
    assert done.wait(LIMIT_SECONDS)
    [error] = told
    return error


def reopened(folder: pathlib.Path) -> StoredState:
    """What a state directory holds."""
    store = open_group_store(Machine(), str(folder))
    try:
        return store.load()
    finally:
        store.close()
