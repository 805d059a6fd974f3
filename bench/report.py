"""Rows of the last runs into the tables of bench/README.md, between their markers. ``python -m bench.report``

A suite that did not run leaves its table as it is.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from bench.harness import results_folder, table

README = pathlib.Path(__file__).with_name("README.md")


def section(results: Mapping[str, Any]) -> str:
    """The text between the markers of a suite."""
    facts = results["facts"]
    machine = ", ".join(f"{name}: {value}" for name, value in facts.items() if name != "versions")
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items() if value != "absent")
    dates = sorted({row["date"] for row in results["rows"]})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"{table(results['rows'])}\n\n<sub>{when}. {machine}. Versions: {versions}.</sub>"


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
        text = replaced(text, path.stem, section(json.loads(path.read_text())))
        print(f"{path.stem}: table made anew")
    README.write_text(text)


if __name__ == "__main__":
    main()
