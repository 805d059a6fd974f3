"""The machine that code runs on, as one argument: its clocks, chance, threads and files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tierlog.runtime.machine.clock import LOOP_TIMERS, Clock, SystemClock, Timers
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.machine.randomness import Rng, SystemRng
from tierlog.runtime.machine.scheduling import Scheduler
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler

Shared = TypeVar("Shared")


class Process:
    """Objects that exist once in a process, whoever asks for them: for example what bounds its memory."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without any, as a fork of this process must: the existing objects are the parent's."""
        self._lock = threading.Lock()
        self._things: dict[str, Any] = {}

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """The object of a name, made by the first who asks for it. ``make`` must not wait for anything."""
        with self._lock:
            if name not in self._things:
                self._things[name] = make()
            thing: Shared = self._things[name]
            return thing


#: The one that runs this.
THIS_PROCESS = Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THIS_PROCESS.forget)


@dataclass(frozen=True, slots=True)
class Machine:
    """Clock, randomness, threads, files and process; by default those of this machine and this process.

    Attributes:
        timers: The clock of the event loop that runs the caller; by default the loop's own.
    """

    clock: Clock = field(default_factory=SystemClock)
    rng: Rng = field(default_factory=SystemRng)
    scheduler: Scheduler = field(default_factory=ThreadScheduler)
    files: Files = field(default_factory=PosixFiles)
    process: Process = THIS_PROCESS
    timers: Timers = LOOP_TIMERS
