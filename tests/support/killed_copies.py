"""Copies in a process that is killed by SIGKILL at a chosen step: a step is one call of the file system.

Run as ``python -m tests.support.killed_copies`` it reads lines of JSON, forks a child for each, which copies and dies,
and answers how that ended. One process for all of them: a fork takes milliseconds, Python's start most of a second.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.checkout import ROOT
from tests.support.closed_segments import ClosedSegment

#: Calls of Files, and of files opened for writing, that count as a step; a write is torn in the middle.
STEPS = ("open_read", "open_update", "rename", "remove", "make_directories", "fsync_directory", "try_lock")


@dataclass(frozen=True)
class Death:
    """How a child ended.

    Args:
        killed: At its step; else it finished.
        copied: The copy returned before the end.
    """

    killed: bool
    copied: bool


class Fate:
    """Counts steps and ends the process at one of them."""

    def __init__(self, step: int) -> None:
        self._left = step

    def step(self) -> bool:
        """Whether this is the one."""
        self._left -= 1
        return self._left == 0

    def strike(self) -> None:
        if self.step():
            self.die()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class DoomedFile:
    """A file being written; half of the doomed write reaches it."""

    def __init__(self, file: Any, fate: Fate) -> None:
        self._file = file
        self._fate = fate

    def write_at(self, data: Any, *, position: int) -> None:
        view = memoryview(data).cast("B")
        if self._fate.step():
            self._file.write_at(view[: len(view) // 2], position=position)
            self._fate.die()
        self._file.write_at(view, position=position)

    def fsync(self) -> None:
        self._fate.strike()
        self._file.fsync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class DoomedFiles:
    """The machine's files until the chosen step."""

    def __init__(self, files: Any, fate: Fate) -> None:
        self._files = files
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in STEPS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fate.strike()
            made = found(*args, **kwargs)
            return DoomedFile(made, self._fate) if name == "open_update" else made

        return call


def copy_and_die(order: Mapping[str, Any]) -> None:
    """In the child: copy the segment, dying at the step."""
    from dataclasses import replace

    from tierlog.remote.storage.copy import log_copy
    from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
    from tierlog.runtime.machine import Machine

    log_copy._LOCAL_PART_BYTES = 4_000  # type: ignore[misc]
    log_copy._BUNDLE_BYTES = 4_000  # type: ignore[misc]
    segment: ClosedSegment = pickle.loads(pathlib.Path(order["segment"]).read_bytes())
    fate = Fate(order["step"])
    machine = Machine()
    machine = replace(machine, files=DoomedFiles(machine.files, fate))  # type: ignore[arg-type]
    manager = TieredStorageManager(machine=machine)
    manager.configure(order["keys"])
    if order["what"] == "copy":
        manager.copy_log_segment_data(segment.metadata, segment.data)
    else:
        manager.delete_log_segment_data(segment.finished())
    manager.close()


def main() -> None:
    import tierlog.remote.storage.tiered_storage_manager  # noqa: F401 - before the forks, once

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                copy_and_die(order)
            except BaseException as error:  # noqa: BLE001 - the parent is told, and nothing else may run
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"signal": os.WTERMSIG(status), "code": status >> 8}), flush=True)


class Killer:
    """The process that forks; ``run`` one order at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, what: str, segment: pathlib.Path, keys: Mapping[str, object], step: int) -> Death:
        """Copy or delete, and die at the step if it comes to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"what": what, "segment": str(segment), "keys": dict(keys), "step": step}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer["code"] != 2, "the child raised: see its standard error"
        return Death(killed=answer["signal"] == signal.SIGKILL, copied=answer["signal"] == 0)


@contextmanager
def killer() -> Iterator[Killer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed_copies"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")])},
    )
    try:
        yield Killer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


if __name__ == "__main__":
    main()
