"""A plugin of pytest: the tests run over an engine with the mutant that the environment names.

Are it probes, what each test comes by is written to the file that the environment names.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest

from tests.simulation.mutants.planting import VARIABLE, plant
from tests.simulation.mutants.probes import PROBES, passed
from tests.simulation.mutants.reach import RECORD_VARIABLE, Passed

if VARIABLE in os.environ:
    plant(os.environ[VARIABLE])


class _Recorder:
    """Records what each test that passes comes by, fixtures and imports before the first one included."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._always: frozenset[tuple[str, int]] = frozenset()
        self._tests: dict[str, dict[str, Any]] = {}
        self._seconds = 0.0
        self._has_passed = True

    def pytest_collection_finish(self) -> None:
        self._always = frozenset(passed)

    def pytest_runtest_logstart(self) -> None:
        passed.clear()
        self._seconds, self._has_passed = 0.0, True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        self._has_passed = self._has_passed and report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._has_passed:
            self._tests[nodeid] = Passed(self._always | passed, round(self._seconds, 3)).to_json()

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._tests))


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(VARIABLE) == PROBES:
        config.pluginmanager.register(_Recorder(pathlib.Path(os.environ[RECORD_VARIABLE])))
