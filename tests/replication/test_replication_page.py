"""The code of the page about replication, as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.checkout import ROOT, needs_checkout
from tierlog import replication

pytestmark = needs_checkout

PAGE = ROOT / "docs" / "replication.md"


def test_the_page_runs() -> None:
    """It is the first thing that an embedder runs; if it fails she believes nothing else."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    assert len([line for line in block[1].splitlines() if line]) <= 36
    done = subprocess.run([sys.executable, "-W", "error", "-c", block[1]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    acted, read = done.stdout.splitlines()
    assert acted == "[Completed(token='produce 1', error=None)]"
    assert read.startswith("1 ")


def test_the_page_names_what_is_public() -> None:
    """A name that is imported and not exported fails; a state that is not drawn is found by nobody."""
    text = PAGE.read_text()
    for imported in re.findall(r"from tierlog\.replication import (.+)", text):
        assert {name.strip() for name in imported.split(",")} <= set(replication.__all__)
    assert [state.name for state in replication.FollowerState if state.name not in text] == []
