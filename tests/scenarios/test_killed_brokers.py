"""Brokers with a tier in a process that is killed, half of the times while it starts."""

from __future__ import annotations

import pathlib

import pytest

from tests.scenarios.killed_brokers import run_kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_kills_lose_nothing(tmp_path: pathlib.Path, seed: int) -> None:
    """Twenty kills each, two hundred in all: every broker serves what was committed, from disk and tier."""
    run_kills(tmp_path, 20, seed)
