"""Mutants that a seed draws: one small change of a function of the manager, replication or a lineage.

Comparisons are turned, numbers are one more or one less, conditions are negated, "and" is "or", one of several
conditions is left out, "min" is "max", True is False, and a statement that only has an effect is dropped. Left alone
are assertions, messages of errors, logging, metrics and marks, annotations, and what runs once, at an import: changing
them changes nothing that a caller could see, or everything at once.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tests.simulation.mutants.planting import ENGINE, source_of

#: Rooms and modules that are changed, and the tests of each.
ROOMS: Final = {
    "tierlog.remote.manager": ("tests/remote/manager",),
    "tierlog.replication": ("tests/replication",),
    "tierlog.remote.metadata.lineage": ("tests/remote/metadata/test_lineage.py",),
    "tierlog.log.formats.leader_epochs": ("tests/log/formats", "tests/log/local"),
    "tierlog.log.local.leader_epoch_cache": ("tests/log/local",),
}
#: Modules of these rooms that only tell: metrics, tables of keys, figures for operators.
_TELLING_MODULES: Final = ("__init__", "manager_metrics", "manager_config", "manager_health")
#: Names in calls that only tell.
_TELLING: Final = frozenset(("_log", "mark", "metrics", "observe", "show"))
_TELLING_FUNCTIONS: Final = ("__repr__", "__str__", "_show")
#: Arguments that guard against mistakes of this code, and that no caller sees.
_GUARDS: Final = frozenset(("strict", "name"))
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
#: Turning one of these negates it.
_NEGATED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_EXCHANGED: Final = {"min": "max", "max": "min"}


class Mutation(NamedTuple):
    """One change.

    Attributes:
        number: Of the change among all of its module.
        line: Where the statement begins that is changed, or whose head is.
        text: In which function it is, and what it does; no other change of the module has the same.
    """

    module: str
    number: int
    line: int
    text: str

    def apply(self, text: str) -> str:
        """Return the module's source with the change."""
        tree = ast.parse(text)
        changed = Changes(self.number).visit(tree)
        return ast.unparse(ast.fix_missing_locations(changed))

    @property
    def tests(self) -> tuple[str, ...]:
        """The folders, or files, of the room's own tests."""
        return next(tests for room, tests in ROOMS.items() if self.module.startswith(room))

    @property
    def place(self) -> str:
        return f"{self.module} line {self.line}, {self.text}"


class Changes(ast.NodeTransformer):
    """Walks a module, and makes the change of a number; -1 makes none.

    Attributes:
        found: Line and text of each change that the module has, by number.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._names: list[str] = []  # of classes and functions around
        self._functions = 0
        self._line = 0  # of the innermost statement
        self._texts: Counter[str] = Counter()
        self.found: list[tuple[int, str]] = []

    def _is_it(self, node: ast.AST, what: str) -> bool:
        """Count a change of a node, and say whether it is the wanted one."""
        if not self._functions:
            return False
        words = " ".join(ast.unparse(node).split())
        words = words if len(words) <= 90 else words[:87] + "..."
        text = f"{'.'.join(self._names)}: {words}: {what}"
        self._texts[text] += 1
        times = self._texts[text]
        self.found.append((self._line, text if times == 1 else f"{text} ({times})"))
        return len(self.found) - 1 == self._wanted

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.stmt):
            changed: ast.AST = super().visit(node)
            return changed
        outer, self._line = self._line, node.lineno
        changed = super().visit(node)
        self._line = outer
        return changed

    # What is left alone, or for a part.

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name.startswith(_TELLING_FUNCTIONS):
            return node
        self._names.append(node.name)
        self._functions += 1
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        self._functions -= 1
        self._names.pop()
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = self.visit(node.guard) if node.guard else None  # type: ignore[assignment]
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return node if node.arg in _GUARDS else self.generic_visit(node)

    # Statements.

    def _dropped(self, node: ast.stmt) -> ast.AST:
        return ast.Pass() if self._is_it(node, "dropped") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not isinstance(node.value, ast.Call) or _tells(node.value):
            return node
        self.generic_visit(node)
        return self._dropped(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(_tells(each) for each in node.targets):
            return node
        node.value = self.visit(node.value)  # type: ignore[assignment]
        has_effect = all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets)
        return self._dropped(node) if has_effect and "__init__" not in self._names else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value else None  # type: ignore[assignment]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        node.value = self.visit(node.value)  # type: ignore[assignment]
        return self._dropped(node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        return self._dropped(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._dropped(node)

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        return self._dropped(node)

    def visit_Break(self, node: ast.Break) -> ast.AST:
        return self._dropped(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return self._dropped(node) if node.value is None else self.generic_visit(node)

    # Conditions.

    def _condition(self, test: ast.expr, head: str) -> ast.expr:
        """The condition that takes the place of one: the same, changed inside, negated."""
        if isinstance(test, ast.Constant):
            return test
        is_negated_by_turning = (
            isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _NEGATED)
        )
        if not is_negated_by_turning and self._is_it(test, f"negated {head}"):
            return ast.UnaryOp(ast.Not(), test)
        changed: ast.expr = self.visit(test)  # type: ignore[assignment]
        return changed

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._condition(node.test, "if")
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        node.orelse = [self.visit(each) for each in node.orelse]  # type: ignore[misc]
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self._condition(node.test, "while")
        node.body = [self.visit(each) for each in node.body]  # type: ignore[misc]
        node.orelse = [self.visit(each) for each in node.orelse]  # type: ignore[misc]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._condition(node.test, "if")
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)  # type: ignore[assignment]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)  # type: ignore[assignment]
        node.ifs = [self._condition(each, "if") for each in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if self._is_it(node, f"'{word}' is '{other}'"):
            node.op = ast.Or() if word == "and" else ast.And()
        for at, value in enumerate(node.values):
            if self._is_it(node, f"without '{ast.unparse(value)[:60]}'"):
                values = node.values[:at] + node.values[at + 1 :]
                return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            turned = _TURNED[type(operator)]
            if self._is_it(node, f"{type(operator).__name__} is {turned.__name__}"):
                node.ops[at] = turned()
        return node

    # Values.

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        is_step = isinstance(node.right, ast.Constant) and node.right.value == 1
        if not is_step or not isinstance(node.op, ast.Add | ast.Sub):
            return self.generic_visit(node)
        node.left = self.visit(node.left)  # type: ignore[assignment]
        return node.left if self._is_it(node, "off by one") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _tells(node):
            return node
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _EXCHANGED and self._is_it(node, f"{name} is {_EXCHANGED[name]}"):
            node.func = ast.Name(_EXCHANGED[name], ast.Load())
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return ast.Constant(not node.value) if self._is_it(node, f"is {not node.value}") else node
        if isinstance(node.value, int) and node.value in (0, 1, 2):
            return ast.Constant(node.value + 1) if self._is_it(node, f"is {node.value + 1}") else node
        return node


def _tells(node: ast.AST) -> bool:
    """Whether a call, or the target of an assignment, is of logging, metrics or marks."""
    while True:
        match node:
            case ast.Call(func=inner) | ast.Subscript(value=inner):
                node = inner
            case ast.Attribute(value=inner, attr=name):
                if name in _TELLING or name.startswith("_show"):
                    return True
                node = inner
            case ast.Name(id=name):
                return name in _TELLING or name.startswith("_show")
            case _:
                return False


def modules() -> Iterator[str]:
    """The modules that are changed."""
    for room in ROOMS:
        path = ENGINE / room.replace(".", "/")
        if path.is_dir():
            yield from (
                f"{room}.{each.stem}" for each in sorted(path.glob("*.py")) if each.stem not in _TELLING_MODULES
            )
        else:
            yield room


@cache
def changes(module: str) -> list[Mutation]:
    """Every change of a module."""
    change = Changes(-1)
    change.visit(ast.parse(source_of(module)))
    return [Mutation(module, number, line, text) for number, (line, text) in enumerate(change.found)]


def draw(seed: int, count: int) -> list[Mutation]:
    """Draw mutants by a seed.

    The same seed gives the same ones while the sources stay, and mostly the same ones when they change elsewhere: which
    are drawn is decided for each by a hash. Fewer are the first of more.
    """
    every = [each for module in modules() for each in changes(module)]

    def order(mutation: Mutation) -> bytes:
        return hashlib.sha256(f"{seed} {mutation.module} {mutation.text}".encode()).digest()

    return sorted(every, key=order)[:count]
