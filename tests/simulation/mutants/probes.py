"""Which statements with mutants a run comes by: probes are planted in front of them, as mutants are.

A mutant in a statement that a test or a seed does not come by cannot be caught by it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial

from tests.simulation.mutants.automatic import changes, modules
from tests.simulation.mutants.planting import Change

#: Name under which the changed modules are planted.
PROBES = "probes"
_NOTE = "_come_by"
#: Module and line of the statements that this process has come by.
passed: set[tuple[str, int]] = set()


def come_by(module: str, line: int) -> None:
    """Note that a statement is about to run."""
    passed.add((module, line))


def probed() -> Mapping[str, Change]:
    """The changes that plant probes in all modules that have mutants."""
    return {module: partial(_probe, module) for module in modules()}


def _probe(module: str, text: str) -> str:
    tree = ast.parse(text)
    _Probes(module).visit(tree)
    start = next(at for at, each in enumerate(tree.body) if not _has_to_be_first(each))
    tree.body[start:start] = ast.parse(f"from {__name__} import come_by as {_NOTE}").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _has_to_be_first(statement: ast.stmt) -> bool:
    return (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)) or (
        isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )


class _Probes(ast.NodeVisitor):
    """Puts a call in front of each statement that has mutants."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lines = {each.line for each in changes(module)}

    def generic_visit(self, node: ast.AST) -> None:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [new for each in statements for new in self._with_probe(each)])

    def _with_probe(self, statement: ast.stmt) -> list[ast.stmt]:
        if statement.lineno not in self._lines:
            return [statement]
        return [*ast.parse(f"{_NOTE}({self._module!r}, {statement.lineno})").body, statement]
