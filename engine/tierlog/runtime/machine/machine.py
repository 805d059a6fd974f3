"""The machine that code runs on, as one argument: its clocks, chance, threads and files."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierlog.runtime.machine.clock import LOOP_TIMERS, Clock, SystemClock, Timers
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.machine.process import THIS_PROCESS, Process
from tierlog.runtime.machine.randomness import Rng, SystemRng
from tierlog.runtime.machine.scheduling import Scheduler
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler


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
