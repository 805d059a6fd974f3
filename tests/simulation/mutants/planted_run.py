"""A plugin of pytest: the tests run over an engine with the mutant that the environment names."""

from __future__ import annotations

import os

from tests.simulation.mutants.planting import VARIABLE, plant

if VARIABLE in os.environ:
    plant(os.environ[VARIABLE])
