"""The machine that code runs on, as one argument: clock, randomness, threads, files, buffers.

What belongs here: a small protocol for each of them (``Clock``, ``Rng``, ``Scheduler``, ``Files``) and its
implementation for this machine; ``Machine`` holds all of them. What does not: stores (``runtime.stores``), and the same
from a seed (``runtime.simulated``).
"""

from tierlog.runtime.machine.machine import Machine
from tierlog.runtime.machine.process import THIS_PROCESS, Process

__all__ = ["THIS_PROCESS", "Machine", "Process"]
