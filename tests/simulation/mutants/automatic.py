"""Mutants that a seed draws: one small change of a function of the manager, replication or a lineage.

Comparisons are turned, numbers are one more or one less, conditions are negated, "and" is "or", a call whose answer
nobody takes is dropped.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.simulation.mutants.planting import ENGINE, source_of

#: Rooms and modules that are changed, and the tests of each.
ROOMS: Final = {
    "tierlog.remote.manager": "tests/remote/manager",
    "tierlog.replication": "tests/replication",
    "tierlog.remote.metadata.lineage": "tests/remote/metadata",
    "tierlog.log.formats.leader_epochs": "tests/log/formats",
    "tierlog.log.local.leader_epoch_cache": "tests/log/local",
}
_TURNED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: Calls that only tell: dropping one changes nothing that a test could see.
_TELLING: Final = ("_log", "mark", "metrics", "_show", "observe")


class Mutation(NamedTuple):
    """One change.

    Attributes:
        number: Of the change among all of its module.
        text: Where it is, and what it does.
    """

    module: str
    number: int
    text: str

    def apply(self, text: str) -> str:
        """Return the module's source with the change."""
        tree = ast.parse(text)
        change = _Change(self.number)
        changed = change.visit(tree)
        assert change.text, f"{self.module} has no change {self.number}"
        return ast.unparse(ast.fix_missing_locations(changed))

    @property
    def tests(self) -> str:
        """The folder of the room's own tests."""
        return next(tests for room, tests in ROOMS.items() if self.module.startswith(room))


class _Change(ast.NodeTransformer):
    """Walks a module, and makes the change of a number; -1 makes none.

    Attributes:
        count: How many changes the module has.
        text: Of the change that was made.
        texts: Of all, by number.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.count = 0
        self.text = ""
        self.texts: list[str] = []

    def _is_it(self, node: ast.AST, text: str) -> bool:
        where = f"line {getattr(node, 'lineno', 0)}: {text}"
        self.texts.append(where)
        found = self.count == self._wanted
        self.count += 1
        if found:
            self.text = where
        return found

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            turned = _TURNED[type(operator)]
            if self._is_it(node, f"{ast.unparse(node)}: {type(operator).__name__} is {turned.__name__}"):
                node.ops[at] = turned()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._is_it(node, f"{ast.unparse(node)}: 'and' and 'or' are exchanged"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if self._is_it(node, f"if {ast.unparse(node.test)}: negated"):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_step = isinstance(node.right, ast.Constant) and node.right.value == 1
        if is_step and isinstance(node.op, ast.Add | ast.Sub) and self._is_it(node, f"{ast.unparse(node)}: off by one"):
            return node.left
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        call = node.value
        if not isinstance(call, ast.Call) or any(each in ast.unparse(call.func) for each in _TELLING):
            return node
        if self._is_it(node, f"{ast.unparse(call)[:90]}: dropped"):
            return ast.Pass()
        return node


def _modules() -> Iterator[str]:
    for room in ROOMS:
        path = ENGINE / room.replace(".", "/")
        if path.is_dir():
            for each in sorted(path.glob("*.py")):
                if each.stem not in ("__init__", "manager_metrics", "manager_config", "manager_health"):
                    yield f"{room}.{each.stem}"
        else:
            yield room


def draw(seed: int, count: int) -> list[Mutation]:
    """Draw mutants by a seed; the same seed gives the same ones while the sources stay."""
    every = []
    for module in _modules():
        change = _Change(-1)
        change.visit(ast.parse(source_of(module)))
        every += [Mutation(module, number, text) for number, text in enumerate(change.texts)]
    return random.Random(seed).sample(every, count)
