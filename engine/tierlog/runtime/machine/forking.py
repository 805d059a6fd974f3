"""What a fork leaves in the parent process: threads and connections, and so whatever waits for them.

A child that goes on using what its parent opened would wait for ever for a thread that it does not have. What owns
threads remembers the process that it was made in, and refuses at once in another. It costs a comparison of integers.
"""

from __future__ import annotations

import os
from typing import Final

from tierlog.errors import ForkedProcessError

#: Forks between the process that imported this module and this one. Only a child's first thread ever changes it.
_generation = 0


def _count_fork() -> None:
    global _generation  # noqa: PLW0603 - a fork changes the whole process
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Origin:
    """The process that something was made in: this one, when the origin is made."""

    __slots__ = ("_made_in",)

    def __init__(self) -> None:
        self._made_in = _generation

    @property
    def is_here(self) -> bool:
        """Whether that is still the process that runs this."""
        return self._made_in == _generation

    def require(self, what: str) -> None:
        """Raises ForkedProcessError, naming what was opened, where this process is a fork of the one of then."""
        if self._made_in != _generation:
            raise ForkedProcessError(
                f"{what} was opened before this process was forked, and its threads stayed in the parent process: "
                "open it after the fork, or start processes by spawn or forkserver"
            )


class SharedRuntime:
    """A native library's threads, of which a process has one set: they begin with the first use, and survive no fork.

    Args:
        name: Of the library, and what it does for us.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._used_in: int | None = None

    def enter(self) -> None:
        """The library is used. Raises ForkedProcessError where a parent of this process used it before the fork."""
        if self._used_in != _generation:
            if self._used_in is not None:
                raise ForkedProcessError(
                    f"{self._name} was used before this process was forked, and its threads stayed in the parent "
                    "process, whatever is opened anew: fork before the first use, or start processes by spawn or "
                    "forkserver"
                )
            self._used_in = _generation


#: The client of object stores.
OBSTORE: Final = SharedRuntime("obstore, which reads buckets,")
