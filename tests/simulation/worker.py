"""A process that runs one seed after the other, each in a child of its own, and the campaign's side of it.

The process has imported everything; a child begins as its copy, so that a run costs no start. It has a PYTHONHASHSEED
of its own, and is replaced after some runs by one with another.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
from typing import IO, Final, cast

from tests.simulation.settings import Settings
from tests.support.checkout import ROOT

#: Runs of one worker.
RUNS_MAX: Final = 25
RUN_SECONDS_MAX: Final = 300
#: Of the processor, for a run of a mutant: it may go round in circles.
MUTANT_SECONDS_MAX: Final = 90


class Worker:
    """A worker process, as the campaign sees it.

    Args:
        hash_seed: Its PYTHONHASHSEED.
        mutant: Name of a mutant that its engine has; None: the engine as it is.

    Attributes:
        settings: Of the run that is under way; None: it is idle.
        runs: How many it began.
    """

    def __init__(self, hash_seed: int, mutant: str | None = None) -> None:
        environment = os.environ | {
            "PYTHONHASHSEED": str(hash_seed),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPYCACHEPREFIX": str(ROOT / "build/pycache"),  # each module is compiled once
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        arguments = [sys.executable, "-m", "tests.simulation.worker", *([mutant] if mutant else [])]
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.settings: Settings | None = None
        self.runs = 0

    def begin(self, settings: Settings) -> None:
        """Begin a run."""
        self.settings = settings
        self.runs += 1
        line = settings.to_json().replace("\n", " ")
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    @property
    def answers(self) -> IO[str]:
        """The pipe that has a line for each run that ended: an Outcome."""
        return cast("IO[str]", self.process.stdout)

    def close(self) -> None:
        """End the process, and the run that is under way."""
        self.process.kill()
        self.process.wait()
        self.answers.close()
        assert self.process.stdin is not None
        self.process.stdin.close()


def _answer(settings: Settings, *, is_mutant: bool) -> str:
    """Run in a child; return its Outcome as JSON."""
    from tests.simulation.outcome import Outcome, run

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            if is_mutant:
                resource.setrlimit(resource.RLIMIT_CPU, (MUTANT_SECONDS_MAX, MUTANT_SECONDS_MAX))
            with os.fdopen(writer, "w") as pipe:
                pipe.write(run(settings).to_json())
                pipe.write("\n" + " ".join(sys.modules))
            status = 0
        except BrokenPipeError:
            status = 1  # who asked has ended meanwhile
        except BaseException:  # noqa: BLE001 - a child of a copy never returns into its parent's code
            traceback.print_exc()
        finally:
            os._exit(status)  # no finalizer of what the run abandoned
    os.close(writer)
    parts: list[bytes] = []
    is_late = False
    while not is_late:
        is_late = not select.select([reader], [], [], RUN_SECONDS_MAX)[0]
        part = b"" if is_late else os.read(reader, 1 << 20)
        if not part:
            break
        parts.append(part)
    if is_late:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if is_late:
        return Outcome.endless(settings, RUN_SECONDS_MAX).to_json()
    if status != 0 or not parts:
        return Outcome.ended(settings, f"its process ended with status {status}").to_json()
    outcome, _, modules = b"".join(parts).decode().partition("\n")
    _import_all(modules.split())
    return outcome


def _import_all(modules: list[str]) -> None:
    """Import what a run imported: the next ones begin with it."""
    for name in modules:
        if name.startswith("tierlog.") or "." not in name:
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # "__main__" and its like
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve runs until the pipe of settings ends."""
    if len(sys.argv) > 1:
        from tests.simulation.mutants.planting import plant

        plant(sys.argv[1])  # before anything of the engine is imported
    import tests.simulation.judge
    import tests.simulation.world  # noqa: F401 - children begin with all of it

    for line in sys.stdin:
        print(_answer(Settings.from_json(line), is_mutant=len(sys.argv) > 1), flush=True)


if __name__ == "__main__":
    main()
