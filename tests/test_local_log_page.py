"""The code of the page about the local log, as it stands there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

from tests.support.checkout import ROOT, needs_checkout

pytestmark = needs_checkout

PAGE = "docs/local-log.md"
PLACE = "/var/lib/broker/data"


def blocks() -> dict[str, str]:
    """The Python below each heading."""
    sections = re.split(r"^## (.+)\n", (ROOT / PAGE).read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
        if block is not None:
            found[heading] = block[1]
    return found


def run(code: str, folder: pathlib.Path) -> list[str]:
    """What it prints, with a directory of the test's in the place that the page names."""
    assert PLACE in code
    placed = code.replace(PLACE, str(folder))
    done = subprocess.run([sys.executable, "-W", "error", "-c", placed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_the_page_runs(tmp_path: pathlib.Path) -> None:
    """They are the first thing that an embedder runs, one after the other; if one fails, nothing else is believed."""
    found = blocks()
    assert list(found) == ["Thirty lines", "Sending without copying", "Event loops"]
    _, _, used = found["Thirty lines"].partition("\n\n\n")
    assert len([line for line in used.splitlines() if line]) <= 33
    said = run(found["Thirty lines"], tmp_path)
    assert said == ["0 1", "2 2", "CORRUPT_MESSAGE 2", "b'one' b'two' b'three'", "1"]
    assert (tmp_path / ".kafka_cleanshutdown").is_file()
    assert run(found["Sending without copying"], tmp_path) == ["0 True"]
    (size,) = run(found["Event loops"], tmp_path)
    assert int(size) > 61


def test_the_page_names_every_public_name() -> None:
    """A name that is exported and documented nowhere is found by nobody; the reverse fails."""
    from tierlog.log import local

    text = (ROOT / PAGE).read_text()
    for imported in re.findall(r"from tierlog\.log\.local import (.+)", text):
        assert {name.strip() for name in imported.split(",")} <= set(local.__all__)
    errors = {name for name in local.__all__ if name.endswith("Error") and name not in ("KafkaError", "RecordError")}
    assert {name for name in errors if f"`{name}`" not in text} == set()
