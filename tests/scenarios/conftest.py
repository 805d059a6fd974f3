"""What scenarios share: the command, run in this process."""

from __future__ import annotations

from tests.support.command import tierlog as tierlog  # noqa: PLC0414 - a fixture
