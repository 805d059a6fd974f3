"""The code of the page for embedders, and the lines of the README for them, as they stand there."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT, needs_checkout

pytestmark = needs_checkout

FOLDER = pathlib.Path("main-plain", "local-before", "broker1", "fx-txn-0")


@pytest.fixture
def tier(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "tier"
    folder.mkdir()
    return folder


def code_of(page: str, heading: str) -> str:
    """The Python block below a heading."""
    _, found, behind = (ROOT / page).read_text().partition(f"\n## {heading}\n")
    assert found, f"{page} has no {heading}"
    block = re.search(r"```python\n(.*?)```", behind, re.DOTALL)
    assert block is not None
    return block[1]


def run(code: str, *, data: pathlib.Path, tier: pathlib.Path) -> list[str]:
    """Its output, with a broker's folder and an empty tier in the places that the page names."""
    folder = tier.parent / "orders-0"
    if not folder.exists():
        shutil.copytree(data / FOLDER, folder)
    assert "/var/lib/kafka/data/orders-0" in code
    placed = code.replace("/var/lib/kafka/data/orders-0", str(folder)).replace("/mnt/tier", str(tier))
    done = subprocess.run([sys.executable, "-W", "error", "-c", placed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_the_thirty_lines(data: pathlib.Path, tier: pathlib.Path) -> None:
    """They are the first thing that an embedder runs; if they fail, nothing else is believed on the page."""
    code = code_of("docs/embedding.md", "Thirty lines")
    lines = run(code, data=data, tier=tier)
    assert [line.split()[0] for line in lines] == ["0", "310", "654", "993", "1309", "5.0"]
    assert not [path for path in tier.rglob("*") if path.is_file()]
    assert len([line for line in code.splitlines() if line]) <= 40


def test_the_thirty_lines_of_metadata(data: pathlib.Path, tier: pathlib.Path) -> None:
    """The same for the metadata manager; its snapshot lies beside the partitions' folders."""
    code = code_of("docs/embedding-metadata.md", "Thirty lines")
    placed = code.replace('"log.dir": "/var/lib/kafka/data"', f'"log.dir": {str(tier.parent)!r}')
    assert placed != code
    lines = run(placed, data=data, tier=tier)
    assert [list(map(int, line.split())) for line in lines] == [[1613, 326474], [654, 992, 65124], [0]]
    assert not [path for path in tier.rglob("*") if path.is_file()]
    assert len([line for line in code.partition("\ntopic = ")[2].splitlines() if line]) <= 40


def test_the_sixty_lines_of_a_broker(tier: pathlib.Path) -> None:
    """A broker that tiers, reads back, restarts and expires: what does not run here runs in nobody's."""
    code = code_of("docs/embedding-manager.md", "A broker in sixty lines")
    (tier.parent / "broker").mkdir()
    (tier.parent / "broker" / "data").mkdir()
    placed = code.replace("/var/lib/broker", str(tier.parent / "broker")).replace("/mnt/tier", str(tier))
    command = [sys.executable, "-W", "error", "-c", placed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines() == ["0 27 30", "30 0", "b'00'", "True"]
    assert len([line for line in code.partition("\nclass ")[2].splitlines() if line]) <= 60


def test_the_lines_for_event_loops(data: pathlib.Path, tier: pathlib.Path) -> None:
    """The same for an embedder with a loop."""
    configs = re.search(r"configs = \{.*?\n\}\n", code_of("docs/embedding.md", "Thirty lines"), re.DOTALL)
    assert configs is not None
    lines = run(configs[0] + code_of("docs/embedding.md", "Event loops"), data=data, tier=tier)
    assert sum(map(int, lines)) == (data / FOLDER / f"{0:020d}.log").stat().st_size
    assert not [path for path in tier.rglob("*") if path.is_file()]


def test_the_lines_of_the_first_page(data: pathlib.Path, tier: pathlib.Path) -> None:
    """A broker's author decides by these whether to read on."""
    lines = run(code_of("README.md", "In a broker"), data=data, tier=tier)
    assert len(lines) == 5
    assert len({path.stem for path in tier.rglob("*") if path.is_file()}) == 5
