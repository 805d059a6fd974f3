"""An engine with a fault: the sources of some modules are changed as they are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Final

ENGINE: Final = pathlib.Path(__file__).resolve().parents[3] / "engine"
#: Environment variable of a mutant's name, for test runs (``-p tests.simulation.mutants.planted_run``).
VARIABLE: Final = "TIERLOG_MUTANT"

Change = Callable[[str], str]


class MutantError(ValueError):
    """A mutant is unknown, or its place in the source has gone."""


def plant(name: str) -> None:
    """Have modules of the engine changed when they are imported, in this process. None of them may be there yet.

    Args:
        name: Of a planted fault; ``auto:SEED:NUMBER`` of an automatic one; ``probes``, which change nothing, but note
            what is come by.

    Raises:
        MutantError: it is unknown; its module is imported already.
    """
    changes = find_changes(name)
    there = sorted(changes.keys() & sys.modules.keys())
    if there:
        raise MutantError(f"{name}: {there} imported before it was planted")
    sys.meta_path.insert(0, _Finder(changes))


def find_changes(name: str) -> Mapping[str, Change]:
    """The changes of a mutant, by module. Raises MutantError."""
    if name.startswith("auto:"):
        from tests.simulation.mutants.automatic import draw

        _, seed, number = name.split(":")
        mutation = draw(int(seed), int(number) + 1)[int(number)]
        return {mutation.module: mutation.apply}
    if name == "probes":
        from tests.simulation.mutants.probes import probed

        return probed()
    from tests.simulation.mutants.planted import PLANTED

    if name not in PLANTED:
        raise MutantError(f"no planted fault is named {name}: {', '.join(PLANTED)}")
    changes: dict[str, Change] = {}
    for module in {edit.module for edit in PLANTED[name].edits}:
        edits = [edit for edit in PLANTED[name].edits if edit.module == module]

        def change(text: str, edits: Sequence[object] = tuple(edits)) -> str:
            for edit in edits:
                text = edit.apply(text)  # type: ignore[attr-defined]
            return text

        changes[module] = change
    return changes


def source_of(module: str) -> str:
    """The source of a module of the engine."""
    path = ENGINE / module.replace(".", "/")
    return (path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py").read_text()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the changed modules before anybody else does."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that is changed."""
        if name not in self._changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(name, spec.origin, self._changes[name])
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from changed source, past all caches."""

    def __init__(self, name: str, path: str, change: Change) -> None:
        super().__init__(name, path)
        self._change = change

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the changed source."""
        text = pathlib.Path(self.path).read_text()
        code: types.CodeType = compile(self._change(text), self.path, "exec", dont_inherit=True)
        return code
