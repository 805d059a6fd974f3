"""What the tests of the command share: the command, run in this process."""

from __future__ import annotations

from tests.support.command import tierlog as tierlog  # noqa: PLC0414 - a fixture
