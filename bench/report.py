"""Rows of the last runs into the tables of bench/README.md, between their markers. ``python -m bench.report``

A suite that did not run leaves its table as it is, and a part of one its rows.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from bench.harness import results_folder, table

README = pathlib.Path(__file__).with_name("README.md")


def section(results: Mapping[str, Any], before: str = "") -> str:
    """The text between the markers of a suite, in place of the one before, whose other rows stay."""
    facts = results["facts"]
    machine = ", ".join(f"{name}: {value}" for name, value in facts.items() if name != "versions")
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items() if value != "absent")
    dates = sorted({row["date"] for row in results["rows"]})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    made = table(results["rows"]).splitlines()
    rows = {_name(line): line for line in made[2:]}
    old = [line for line in before.splitlines() if line.startswith("| ") and line not in made[:2]]
    others = [line for line in old if _name(line) not in rows]
    lines = [rows.pop(_name(line), line) for line in old]
    told = "\n".join([*made[:2], *lines, *rows.values()])
    days = sorted(set(re.findall(r"\d{4}-\d\d-\d\d", before.rpartition("<sub>")[2]))) if others else []
    rest = f" Rows that did not run: {' to '.join(dict.fromkeys((days[0], days[-1])))}." if days else ""
    return f"{told}\n\n<sub>{when}. {machine}. Versions: {versions}.{rest}</sub>"


def _name(line: str) -> str:
    return line.split(" | ", 1)[0]


def between(text: str, suite: str) -> str:
    """The present text between the markers of a suite; "" without any."""
    return text.partition(f"<!-- begin {suite} -->")[2].partition(f"<!-- end {suite} -->")[0]


def replaced(text: str, suite: str, made: str) -> str:
    """The text with the suite's section made anew.

    Raises:
        ValueError: the text has no markers for this suite.
    """
    begin, end = f"<!-- begin {suite} -->", f"<!-- end {suite} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no markers {begin} … {end}")
    return f"{head}{begin}\n{made}\n{end}{tail}"


def main() -> None:
    text = README.read_text()
    for path in sorted(results_folder().glob("*.json")):
        made = section(json.loads(path.read_text()), between(text, path.stem))
        text = replaced(text, path.stem, made)
        print(f"{path.stem}: table made anew")
    README.write_text(text)


if __name__ == "__main__":
    main()
