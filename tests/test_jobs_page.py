"""The code of the page about jobs from Python, as it stands there, in its order."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT, needs_checkout
from tierlog import upkeep

pytestmark = needs_checkout

PAGE = "docs/jobs.md"


@pytest.fixture
def places(tmp_path: pathlib.Path, data: pathlib.Path) -> dict[str, str]:
    """The page's names, and what stands for each here."""
    return {
        "/var/kafka/logs": str(data / "main-plain" / "local-before" / "broker1"),
        "s3://bucket/prefix": str(tmp_path / "bucket"),
        "/export": str(tmp_path / "export"),
        "/restored.snapshot": str(tmp_path / "restored.snapshot"),
        '"orders"': '"fx-txn"',
    }


def run(code: str, places: dict[str, str]) -> list[str]:
    """The output of the page's code."""
    for name, here in places.items():
        code = code.replace(name, here)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_the_page_runs(places: dict[str, str]) -> None:
    """These lines are copied into somebody's nightly job; one that fails is noticed at night."""
    blocks = re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL | re.MULTILINE)
    said = {heading: run(code, places) for heading, code in blocks}
    assert list(said) == ["Copy, then verify", "Footers", "Export", "Orphans", "Restore"]
    before, behind = said["Footers"]
    assert before.split() == [said["Copy, then verify"][0].split()[0], "0"]
    assert behind.split()[::2] == [before.split()[0], "0"]
    copied, offsets, checked = said["Copy, then verify"]
    segments, active, is_whole = copied.split()
    assert (int(segments) > 1, active, is_whole) == (True, "1", "True")
    assert offsets.startswith("[(0, ")
    assert checked.startswith(f"True {segments} ")
    assert said["Export"] == [f"fx-txn 0 {segments} 0 0"]
    objects, whole, orphans = said["Orphans"][0].split()
    assert (int(objects) > int(segments), whole, orphans) == (True, segments, "0")
    assert said["Restore"] == [f"{segments} 1 {segments} {{}}", "['fx-txn']"]


def test_the_page_names_every_job() -> None:
    """A function that is exported and documented nowhere is found by nobody; one that is documented and not exported
    fails.
    """
    named = set(re.findall(r"tierlog\.upkeep\.(\w+)", (ROOT / PAGE).read_text()))
    assert named <= set(upkeep.__all__)
    assert {name for name in upkeep.__all__ if name.islower()} <= named
