"""Brokers with a tier through everything that may happen to them: nothing that was committed is lost or seen twice.

Each run repeats from its seed: ``campaign(seed)`` of ``tests/scenarios/tiered_campaign.py``.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.scenarios.third_party_brokers import ThirdPartyCluster
from tests.scenarios.tiered_campaign import campaign

#: What has to have happened in the seeds of a test together, or they show nothing.
WANTED = (
    "appends",
    "aborts",
    "elections",
    "crashes",
    "wipes",
    "lineages lost",
    "reads in the tier",
    "searches",
    "copy_bytes",
    "builds",
    "aborted transactions",
)


def counted(seeds: range, **more: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += campaign(seed, **more).counts
    missing = [name for name in (*WANTED, "topics deleted", "delete_requests") if not counts[name]]
    assert not missing, f"nothing of {missing} happened"
    return counts


def test_two_brokers() -> None:
    """If this fails, a reader loses committed records, or is given some of another branch."""
    counted(range(4, 6))


@pytest.fixture
def quick_folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder in memory, where the machine has one: these runs wait for fsyncs alone."""
    memory = pathlib.Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="tierlog-") as folder:
        yield pathlib.Path(folder)


def third_partys(root: pathlib.Path, seeds: range, **more: Any) -> None:
    """Brokers lose nothing over managers of a third party's, on real files."""
    for seed in seeds:
        folder = root / str(seed)
        folder.mkdir()
        made = campaign(seed, cluster_type=partial(ThirdPartyCluster, root=folder), **more)
        missing = [name for name in WANTED if not made.counts[name]]
        assert not missing, f"nothing of {missing} happened"


def test_brokers_with_third_partys_managers(quick_folder: pathlib.Path) -> None:
    """If this fails, a manager that has nothing optional loses records, or serves a dead branch."""
    third_partys(quick_folder, range(4, 5))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3000, 3040, 10))
@pytest.mark.parametrize("brokers", [2, 3])
def test_brokers_with_third_partys_managers_for_long(quick_folder: pathlib.Path, first: int, brokers: int) -> None:
    """Brokers lose nothing by many seeds, two brokers and three."""
    third_partys(quick_folder, range(first, first + 10), brokers=brokers, steps=3000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
@pytest.mark.parametrize("brokers", [2, 3])
def test_brokers_for_long(first: int, brokers: int) -> None:
    """Brokers lose nothing by many seeds, two brokers and three."""
    counted(range(first, first + 20), brokers=brokers)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1050, 10))
def test_many_partitions(first: int) -> None:
    """The same of twenty partitions."""
    counted(range(first, first + 10), partitions=20, steps=4000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 2040, 10))
def test_as_kafka(first: int) -> None:
    """The same with Kafka's behaviour where Tierlog's differs: no election here is unclean, which is where it loses."""
    counted(range(first, first + 10), as_kafka=True)
