"""The machine that code runs on, as one argument: its clock, chance, threads and files."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierlog.runtime.chance import Rng, SystemRng
from tierlog.runtime.clock import Clock, SystemClock
from tierlog.runtime.files import Files
from tierlog.runtime.posix_files import PosixFiles
from tierlog.runtime.scheduling import Scheduler, ThreadScheduler


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is of it; by default this machine."""

    clock: Clock = field(default_factory=SystemClock)
    rng: Rng = field(default_factory=SystemRng)
    scheduler: Scheduler = field(default_factory=ThreadScheduler)
    files: Files = field(default_factory=PosixFiles)
