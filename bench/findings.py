"""Figures that are no speed against one peer: a value, what it is made of, and the bar it has to keep."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.machine import facts
from bench.report import findings_table
from bench.side_by_side import results_folder, with_kept


@dataclass
class Findings:
    """Rows of the table: a value has to be at most its bar, or at least."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, what: str, told: str, value: float, bar: float | None, *, least: bool = False) -> None:
        """One row; it is told on stderr at once."""
        bar = None if bar is None else round(bar, 3)
        row = {"what": what, "told": told, "value": round(value, 3), "bar": bar, "least": least}
        self.rows.append(row)
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr, flush=True)

    def save(self, suite: str, versions: Mapping[str, str]) -> pathlib.Path:
        """Leave the rows for ``bench.report``, and print the table."""
        told = {**facts(), "versions": {**facts()["versions"], **versions}}
        path = results_folder() / f"{suite}.json"
        rows = with_kept(path, "findings", "what", self.rows)
        path.write_text(json.dumps({"facts": told, "findings": rows}, indent=1) + "\n")
        print(findings_table(self.rows), flush=True)
        return path


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """Median, least and most of the rounds: ``5 (4–7)``."""
    low, high = format(min(values), form), format(max(values), form)
    return f"{format(statistics.median(values), form)} ({low}–{high})"


def ratios(ours: Sequence[float], theirs: Sequence[float], form: str = ".2f") -> str:
    """Least and most of single rounds, ours by theirs."""
    each = [one / other for one, other in zip(ours, theirs, strict=True)]
    return f"{format(min(each), form)}–{format(max(each), form)}"
