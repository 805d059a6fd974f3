"""The event loops of the managers' tests."""

from __future__ import annotations

import pathlib
import zlib

import pytest

from tests.support.loops import LOOPS


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """The test runs on each loop, in ``make test`` or in ``make test-more``."""
    name: str = request.param
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test runs on one loop in ``make test``, on the other in ``make test-more``; which one is drawn by its name, so
    that each has about half of them.
    """
    here, names = str(pathlib.Path(__file__).parent), list(LOOPS)
    for item in items:
        loop = getattr(getattr(item, "callspec", None), "params", {}).get("loop")
        if loop is not None and item.path.is_relative_to(here):
            drawn = zlib.crc32(item.nodeid.replace(loop, "").encode()) % len(names)
            if loop != names[drawn]:
                item.add_marker(pytest.mark.more)
