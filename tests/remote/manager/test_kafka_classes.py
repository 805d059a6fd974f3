"""The page of Kafka's test classes names tests that are there."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

from tests.support.checkout import ROOT

PAGE = pathlib.Path(__file__).with_name("kafka_classes.md")
NAMED = re.compile(r"`([a-z_/]+\.py)(?:::([A-Za-z0-9_.]+))?`")


@functools.cache
def names_in(path: pathlib.Path) -> frozenset[str]:
    """The functions and methods of a file, as ``function`` and ``Class.method``."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(found)


def test_named_tests_are_there() -> None:
    """If this fails, a test that stands for one of Kafka's has gone, or has another name."""
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 80
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / "tests" / file).exists() or (name and name not in names_in(ROOT / "tests" / file))
    ]
    assert not missing
