"""What the tests of the command share."""

from __future__ import annotations

import pytest

from tests.support.command import Outcome, Run, run_here


@pytest.fixture
def tierlog(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs the command in this process and says how it ended."""

    def run(*arguments: object) -> Outcome:
        return run_here(capfdbinary, arguments)

    return run
