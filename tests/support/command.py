"""The ``tierlog`` command: as a process of its own, or in this one where only what it prints matters."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.checkout import IN_CHECKOUT, ROOT
from tests.support.golden import config_of
from tierlog.cli.app import application

#: What the installed script does.
START = "from tierlog.cli import main; main()"


@dataclass(frozen=True)
class Outcome:
    """How the command ended and what it printed."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[dict[str, object]]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-c", START, *map(str, arguments)]


def environment(**extra: str) -> dict[str, str]:
    """With the checkout's sources first, as pytest has them; nothing to add where a wheel is tested."""
    sources = [str(ROOT / "engine")] if IN_CHECKOUT else []
    path = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path} | extra


def run_process(
    *arguments: object, limit: Callable[[], None] | None = None, stdout: int | None = None, **extra: str
) -> Outcome:
    """The command as a process. ``limit`` runs in the child before it starts."""
    done = subprocess.run(
        command_line(*arguments),
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        env=environment(**extra),
        preexec_fn=limit,
        timeout=120,
        check=False,
    )
    return Outcome(done.returncode, done.stdout or b"", done.stderr.decode())


def run_here(capture: pytest.CaptureFixture[bytes], arguments: Sequence[object]) -> Outcome:
    """The command in this process: fast, with the same printing and exit code."""
    capture.readouterr()
    logger = logging.getLogger("tierlog")
    level = logger.level
    try:
        with pytest.raises(SystemExit) as ending:
            application()([str(argument) for argument in arguments], prog_name="tierlog")
    finally:
        logger.setLevel(level)  # a command sets it for its process: the next test of this one would miss log lines
        logging.captureWarnings(False)
    printed = capture.readouterr()
    return Outcome(int(ending.value.code or 0), printed.out, printed.err.decode())


def config_file(run: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """``--config FILE`` of a golden run, or nothing where it needs none."""
    keys = config_of(run)
    if not keys:
        return []
    path = folder / f"{run.name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return ["--config", str(path)]


def properties(path: pathlib.Path, **keys: object) -> pathlib.Path:
    path.write_text("".join(f"rsm.config.{key.replace('_', '.')}={value}\n" for key, value in keys.items()))
    return path


def made_disk(root: pathlib.Path, tierlog: Run) -> pathlib.Path:
    """A log directory of one partition: five segments of three messages, the last one active; one producer."""
    bucket = Bucket(root / "made")
    for number in range(5):
        base = 3 * number
        bucket.segment(f"u{number}", [message(base + at, f"m{base + at}", 0) for at in range(3)], lineage={0: 0})
    assert tierlog("export", root / "made", "orders", root / "disk").code == 0
    shutil.rmtree(root / "made")
    return root / "disk"


@pytest.fixture
def tierlog(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs the command in this process and says how it ended."""

    def run(*arguments: object) -> Outcome:
        return run_here(capfdbinary, arguments)

    return run
