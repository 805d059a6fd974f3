"""Brokers with a tier that are killed, over a real Kafka's metadata topic: it goes on while they are away."""

from __future__ import annotations

import pathlib

import pytest

from tests.scenarios.killed_brokers import run_kills
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import broker

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("seed", range(5))
def test_kills_lose_nothing(tmp_path: pathlib.Path, seed: int) -> None:
    """Twenty kills each, a hundred in all: every broker serves what was committed, from disk and tier."""
    needs_a_broker()
    folders = kafka, brokers = tmp_path / "kafka", tmp_path / "brokers"
    for each in folders:
        each.mkdir()
    with broker.running(kafka, heap="512m") as found:
        run_kills(brokers, 20, seed, bootstrap=found.bootstrap)
