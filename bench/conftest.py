"""What the suites share: the mark, the rounds in turn, and a file of results for the report."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.machine import facts
from bench.side_by_side import ROUNDS, Comparison, save, timed

HERE = pathlib.Path(__file__).resolve().parent
_suites = pytest.StashKey[dict[str, list[Comparison]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_suites] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.bench)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for suite, comparisons in session.config.stash[_suites].items():
        print(f"\nresults in {save(suite, comparisons, facts=facts())}")


@pytest.fixture
def compare(request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> Callable[..., Comparison]:
    """Times ours through pytest-benchmark and each peer in front of every round of ours.

    Arguments: ``ours``, ``against`` (peer to what it does), ``bars``, ``size_bytes``, ``records``, ``notes``. What the
    peers return after the rounds may be a number: then it is the seconds that they measured themselves.
    """

    def run(
        ours: Callable[[], object],
        against: Mapping[str, Callable[[], object]],
        *,
        size_bytes: int,
        bars: Mapping[str, float] | None = None,
        records: int = 0,
        notes: Mapping[str, Any] | None = None,
    ) -> Comparison:
        theirs: dict[str, list[float]] = {name: [] for name in against}

        def peers() -> None:
            for name, action in against.items():
                theirs[name].append(timed_or_told(action))

        ours()
        peers()
        for seconds in theirs.values():
            seconds.clear()
        benchmark.pedantic(ours, setup=peers, rounds=ROUNDS, iterations=1)
        name = request.node.name.removeprefix("test_")
        taken = list(benchmark.stats.stats.data)
        made = Comparison(name, taken, theirs, dict(bars or {}), size_bytes, records, dict(notes or {}))
        benchmark.extra_info.update({"bytes": size_bytes, "records": records, **made.notes})
        benchmark.extra_info.update({f"speed against {peer}": round(made.ratio(peer), 2) for peer in theirs})
        suite = request.node.path.stem.removeprefix("test_")
        request.config.stash[_suites].setdefault(suite, []).append(made)
        return made

    return run


def timed_or_told(action: Callable[[], object]) -> float:
    """Wall seconds of the action, or the seconds that it measured itself (a peer in a process of its own)."""
    told: list[object] = []
    seconds = timed(lambda: told.append(action()))
    return told[0] if isinstance(told[0], float) else seconds
