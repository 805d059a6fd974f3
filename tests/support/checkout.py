"""The checkout that the tests lie in, for tests of the sources themselves; absent when a wheel is tested on its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "engine" / "tierlog").is_dir()
needs_checkout = pytest.mark.skipif(not IN_CHECKOUT, reason="tests of the sources: this is an installed wheel")

BINDING = ROOT / "bindings" / "spark" / "pyspark_tierlog"
PYTHON_ROOTS = (ROOT / "engine" / "tierlog", BINDING)


BIN = pathlib.Path(sys.executable).parent


def run_tool(program: str, *arguments: str) -> None:
    """Runs a tool of this very environment over the checkout; its complaints are the message of the failure."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    found = shutil.which(program, path=path)
    if found is None:
        pytest.fail(f"{program} is not installed (extra dev)", pytrace=False)
    sources = os.pathsep.join([str(ROOT / "engine"), str(BINDING.parent)])
    done = subprocess.run(
        [found, *arguments],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{program} {' '.join(arguments)}\n{done.stdout[-6000:]}{done.stderr[-2000:]}", pytrace=False)
