"""Guards for objects whose threads and connections a fork leaves in the parent process.

A child that used such an object would wait for ever for a thread that it does not have. So an object that owns threads
remembers the process in which it was made, and refuses calls in another. The check is a comparison of integers.
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
    """The process in which an object was made; that is the process which makes the Origin."""

    __slots__ = ("_made_in",)

    def __init__(self) -> None:
        self._made_in = _generation

    @property
    def is_here(self) -> bool:
        """Whether this process is that process."""
        return self._made_in == _generation

    def require(self, what: str) -> None:
        """Raises ForkedProcessError, naming the object, if this process is a fork of that process."""
        if self._made_in != _generation:
            raise ForkedProcessError(
                f"{what} was opened before this process was forked, and its threads stayed in the parent process: "
                "open it after the fork, or start processes by spawn or forkserver"
            )


class SharedRuntime:
    """The threads of a native library, one set for each process: they start with the first use, and survive no fork.

    Args:
        name: Name of the library, and what it does for us.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._used_in: int | None = None

    def enter(self) -> None:
        """Note that the library is used. Raises ForkedProcessError: a parent process used it before the fork."""
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
