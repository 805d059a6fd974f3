"""A limit and the calls compared with it, timed in turn; ratios; saved runs; facts of the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tierlog._native.checksums import crc32c_implementation
from tierlog._native.codecs import library_version
from tierlog._version import __version__
from tierlog.errors import ConfigError, StoreError
from tierlog.records.batch_table import CODEC_NAMES
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import Files

ROUNDS_MIN = 3
_CPUINFO = "/proc/cpuinfo"
_MIB = 1 << 20
_SAVED_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """Something to time.

    Attributes:
        name: Name of the workload.
        action: One round of it.
        size_bytes: Bytes that one round handles.
        records: Records in them; 0 if there are none.
    """

    name: str
    action: Callable[[], object]
    size_bytes: int
    records: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The timing of a task.

    Attributes:
        name, size_bytes, records: Those of the task.
        seconds: Duration of each round.
        limit: Name of the limit that it is compared with; None for a limit itself.
        ratio: Its median speed divided by the limit's; None for a limit.
        notes: Other figures, such as GETs per GiB.
    """

    name: str
    size_bytes: int
    records: int
    seconds: tuple[float, ...]
    limit: str | None = None
    ratio: float | None = None
    notes: Mapping[str, float] | None = None

    @property
    def bytes_per_second(self) -> float:
        """Speed of the median round."""
        return self.size_bytes / statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Duration of the slowest round divided by the median's, less one: 0.1 is ten percent."""
        return max(self.seconds) / statistics.median(self.seconds) - 1

    def to_json(self) -> dict[str, Any]:
        """Return the measurement as it is printed and saved."""
        median = statistics.median(self.seconds)
        return {
            "name": self.name,
            "bytes": self.size_bytes,
            "records": self.records,
            "seconds": [round(each, 6) for each in self.seconds],
            "bytesPerSecond": round(self.bytes_per_second),
            "recordsPerSecond": round(self.records / median) if self.records else None,
            "limit": self.limit,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "notes": dict(self.notes or {}),
        }


def measure(
    clock: Clock, limit: Task, ours: Sequence[Task], *, rounds: int, budget_seconds: float
) -> list[Measurement]:
    """Time the limit and the calls compared with it in turn, so that a busy machine slows both.

    Args:
        clock: Source of monotonic time.
        limit: The limit, timed first in every round.
        ours: The calls compared with it; may be empty.
        rounds: The most rounds. A round before them warms up and does not count.
        budget_seconds: After this time no further round begins, but ROUNDS_MIN rounds (or ``rounds``, if less) always
            run.

    Returns:
        The limit's measurement, then those of the calls.
    """
    tasks = [limit, *ours]
    seconds: list[list[float]] = [[] for _ in tasks]
    start = clock.monotonic_seconds()
    for number in range(rounds + 1):
        if number > ROUNDS_MIN and clock.monotonic_seconds() - start > budget_seconds:
            break
        for task, taken in zip(tasks, seconds, strict=True):
            before = clock.monotonic_seconds()
            task.action()
            if number:
                # A clock that did not move gives no speed; the round was shorter than its resolution.
                taken.append(max(clock.monotonic_seconds() - before, 1e-9))
    first, *rest = (
        Measurement(task.name, task.size_bytes, task.records, tuple(taken))
        for task, taken in zip(tasks, seconds, strict=True)
    )
    return [first, *(_held_against(first, each) for each in rest)]


def _held_against(limit: Measurement, ours: Measurement) -> Measurement:
    ratio = ours.bytes_per_second / limit.bytes_per_second
    return Measurement(ours.name, ours.size_bytes, ours.records, ours.seconds, limit.name, ratio)


def read_saved(path: str, files: Files) -> dict[str, float]:
    """Read the bytes per second by name, of a run that ``--output json`` printed.

    Raises:
        ConfigError: the file holds no such run. StoreError and its kinds: it cannot be read.
    """
    try:
        found = json.loads(files.read_whole(path, limit_bytes=_SAVED_BYTES_MAX))
        return {str(each["name"]): float(each["bytesPerSecond"]) for each in found["measurements"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"--compare {path}: no saved run of `tierlog bench --output json` ({error})") from error


def change(now: Measurement, saved: Mapping[str, float]) -> float | None:
    """Speed now divided by the saved speed, less one; None if the saved run lacks the measurement."""
    before = saved.get(now.name)
    return None if not before or before < 0 else now.bytes_per_second / before - 1


def machine_facts(machine: Machine) -> dict[str, str | int]:
    """Return the facts that a speed depends on, without names of hosts or paths."""
    return {
        "tierlog": __version__,
        "processor": _processor(machine.files),
        "cores": machine.scheduler.cores,
        "memoryMiB": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "crc32c": crc32c_implementation(),
        **{f"{name}Library": version for i, name in enumerate(CODEC_NAMES) if (version := library_version(i))},
        "arrowPool": pa.default_memory_pool().backend_name,
    }


def _processor(files: Files) -> str:
    """Return the name of the processor, if Linux has it; else the architecture."""
    start = bytearray(4096)
    try:
        with files.open_read(_CPUINFO) as file:
            count = file.read_into(start, position=0)
    except StoreError:
        return platform.machine()
    for line in bytes(start[:count]).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
