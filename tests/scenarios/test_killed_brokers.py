"""Brokers with a tier in a process that is killed, half of the times while it starts."""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.scenarios.killed_brokers import verified
from tests.support.checkout import ROOT


def killed(root: pathlib.Path, seconds: float, *, opened: bool) -> None:
    """A child lives for so long, from its start on or from when everything is open, and is killed."""
    code = f"from tests.scenarios.killed_brokers import live; live({str(root)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout:
        if opened:
            assert child.stdout.readline() == b"open\n"
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)


def campaign(root: pathlib.Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(kills):
        killed(root, rng.uniform(0.3, 2.0), opened=number % 2 == 0)
        if number % 10 == 9:
            verified(root)
    counts = verified(root).counts
    assert counts["copy_errors"] == 0
    rows = (root / "oracle").read_text()
    assert rows.count("\nC ") > kills
    assert "\nG " in rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_kills_lose_nothing(tmp_path: pathlib.Path, seed: int) -> None:
    """Twenty kills each, two hundred in all: every broker serves what was committed, from disk and tier."""
    campaign(tmp_path, 20, seed)
