"""The process: its shared objects, its closable resources, the objects that a fork of it must not use, and its standard
streams.

A fork leaves threads and connections in the parent process: a child that used an object which has some would wait for
ever. So such an object remembers the process in which it was made, and refuses calls in another. The check is a
comparison of integers.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, Final, Self, TypeVar

from tierlog.errors import ForkedProcessError

Shared = TypeVar("Shared")

#: Forks between the process that imported this module and this one. Only a child's first thread ever changes it.
_generation = 0


def _count_fork() -> None:
    global _generation  # noqa: PLW0603 - a fork changes the whole process
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Process:
    """Objects that exist once in a process: for example its memory budget."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without any, as a fork of this process must: the existing objects are the parent's."""
        self._lock = threading.Lock()
        self._things: dict[str, Any] = {}

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """Return the object of a name, made by the first call. ``make`` must not wait for anything."""
        with self._lock:
            if name not in self._things:
                self._things[name] = make()
            thing: Shared = self._things[name]
            return thing


#: The process that runs this code.
THIS_PROCESS = Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THIS_PROCESS.forget)


class Closeable:
    """An object that holds something until it is closed; a ``with`` block closes it at its end."""

    def close(self) -> None:
        """Release all resources; idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        """Raise ForkedProcessError, naming the object, if this process is a fork of that process."""
        if self._made_in != _generation:
            raise ForkedProcessError(
                f"{what} was opened before this process was forked, and its threads stayed in the parent process: "
                "open it after the fork, or start processes by spawn or forkserver"
            )


class SharedRuntime:
    """The threads of a native library, one set for each process: they start with the first use, and survive no fork.

    Args:
        name: Name of the library, and its use here.
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


def point_at_nothing(descriptor: int) -> None:
    """Point a descriptor at nothing: reading from it ends at once, bytes that are written to it are dropped."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def claim_pipes(*, out_buffer_bytes: int) -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output under other descriptors, for a protocol that nothing else may write into.

    From here on descriptor 0 is empty, and descriptor 1 goes to standard error.
    """
    given = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb", buffering=out_buffer_bytes)
    point_at_nothing(0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return given, out
