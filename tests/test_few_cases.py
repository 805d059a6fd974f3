"""Which cases of a test `make test` leaves to `make test-more`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.checkout import ROOT, needs_checkout

pytestmark = [needs_checkout, pytest.mark.more]
TEST = "tests/scenarios/test_power_cuts.py"
NAME = "test_the_power_may_go_at_any_moment"


def collected(marks: str, name: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", marks]
    done = subprocess.run([*command, f"{TEST}::{name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {line.partition("::")[2] for line in done.stdout.splitlines() if line.startswith(TEST)}


def test_every_case_is_run_by_one_of_them() -> None:
    """Otherwise a case that `make test` leaves out is run by nobody, or one that a developer names is deselected."""
    few, others = collected("not more", NAME), collected("more", NAME)
    assert len(few) == 2
    assert not few & others
    assert few | others == collected("", NAME)
    assert collected("not more", max(others)) == {max(others)}
