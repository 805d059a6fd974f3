"""What the sdist contains."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from setuptools.command.egg_info import FileList

from tests.support.checkout import ROOT, needs_checkout

pytestmark = needs_checkout

#: What setuptools adds by itself.
ALWAYS = {"LICENSE", "MANIFEST.in", "pyproject.toml", "setup.py"}


def test_the_sdist_has_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that builds from the sdist could not test what it ships, nor ship its pages."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git here: this is an unpacked sdist")
    monkeypatch.chdir(ROOT)
    files = FileList()
    for line in pathlib.Path("MANIFEST.in").read_text().splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    found = {name.removeprefix("./") for name in files.files}
    tracked = {name for name in listed.stdout.splitlines() if pathlib.Path(name).is_file()}
    assert tracked - ALWAYS - found == set()
    assert not [name for name in found if name.endswith((".so", ".jar", ".pyc")) or "/target/" in name]
