"""Which tests one worker of pytest-xdist runs."""

from __future__ import annotations

import pytest


def test_a_file_is_run_by_one_worker(request: pytest.FixtureRequest) -> None:
    """Otherwise each of four workers starts Spark, every server, and all that a module shares: twice the processor's
    time, and nothing else tells.
    """
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("this is no worker of --dist loadgroup")
    assert request.node.nodeid.endswith("@tests/test_worker_groups")
