"""A process that commits offsets until it is killed, and says which ones it was told are durable.

    python -m tests.support.group_writer DIRECTORY COMMITS [KILL_AT]

Each line of stdout is "GROUP OFFSET": this group's offset was answered. With KILL_AT the process kills itself at that
step of the store's work, counted over all commits: each statement, each end of a transaction and each answer is one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tierlog.broker.groups.database_store import DatabaseStore, open_group_store
from tierlog.broker.groups.stored_state import CommittedOffset, DeleteGroup, SaveGroup, SaveOffsets, StoredGroup
from tierlog.runtime.machine import Machine
from tierlog.runtime.sqlite.database import Database, Step

GROUPS = 4


class DeadlyDatabase(Database):
    """A Database that kills the process at a step."""

    def __init__(self, database: Database, kill_at: int) -> None:
        self._database = database
        self._kill_at = kill_at
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, steps: Iterable[Step]) -> None:
        self._database.commit(self._counted(steps))
        self.step()

    def _counted(self, steps: Iterable[Step]) -> Iterator[Step]:
        for step in steps:
            self.step()
            yield step
        self.step()

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(statement)

    def close(self) -> None:
        self._database.close()


def main(directory: str, commits: int, kill_at: int = -1) -> None:
    store = open_group_store(Machine(), directory)
    assert isinstance(store, DatabaseStore)
    deadly = DeadlyDatabase(store._database, kill_at)
    store._database = deadly
    left = threading.Semaphore(0)

    def answered(then: Callable[[], None], error: Exception | None) -> None:
        assert error is None, error
        deadly.step()
        then()
        deadly.step()
        left.release()

    def told(group_id: str, offset: int) -> None:
        os.write(1, f"{group_id} {offset}\n".encode())

    for number in range(1, commits + 1):
        group_id = f"group-{number % GROUPS}"
        offset = CommittedOffset(number, -1, "", 0)
        places = [("orders", partition, offset) for partition in range(3)]
        store.write([SaveOffsets(group_id, places)], partial(answered, partial(told, group_id, number)))
        if number % 10 == 0:
            store.write([SaveGroup(StoredGroup(group_id, number, "consumer", None, None, 0))], partial(answered, int))
            store.write([DeleteGroup("nobody")], partial(answered, int))
    for _ in range(commits + 2 * (commits // 10)):
        left.acquire()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:]))
