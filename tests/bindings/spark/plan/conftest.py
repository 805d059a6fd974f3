"""One planner's process for the tests of a file that only ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.planner import PlannerChild


@pytest.fixture(scope="session")
def child() -> Iterator[PlannerChild]:
    """The process; whoever would end it, or count what it holds, starts one of its own."""
    with PlannerChild() as made:
        yield made
