"""Results of the last runs into the tables of bench/README.md, between their markers. ``python -m bench.report``

A suite that was not run leaves its table as it is.
"""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.side_by_side import Comparison, results_folder

README = pathlib.Path(__file__).with_name("README.md")
#: Suites whose rounds are told in seconds: there the whole of a job is the point, not a rate.
IN_SECONDS = ("spark", "spark_socket", "spark_tier", "spark_counts")
#: Suites where records/s is a column of its own.
IN_RECORDS = ("peers",)
COMMANDS = {
    "spark": "python -m bench.spark",
    "spark_counts": "python -m bench.spark --counts",
    "spark_tier": "python -m bench.spark_tier",
    "spark_objects": "python -m bench.spark_objects",
    "spark_limits": "python -m bench.spark_limits",
    "storage": "python -m bench.storage",
    "fetch_limits": "python -m bench.fetch_limits",
    "many_readers": "python -m bench.many_readers",
    "footprint": "python -m bench.footprint",
    "metadata_table": "python -m bench.metadata_table",
    "local_log": "python -m bench.local_log",
    "replica": "python -m bench.replica",
    "spark_socket": "python -m bench.spark --socket-setting",
}
_HEADINGS = ("workload", "ours", "against", "theirs", "ratio", "least–most", "bar", "")


def rate(size_bytes: int, seconds: float) -> str:
    """GB/s, or MB/s below one."""
    speed = size_bytes / seconds
    return f"{speed / 1e9:.2f} GB/s" if speed >= 1e9 else f"{speed / 1e6:.0f} MB/s"


def records_rate(records: int, seconds: float) -> str:
    """Millions of records a second."""
    return f"{records / seconds / 1e6:.2f} M/s"


def verdict(ratio: float, bar: float | None) -> str:
    """Whether the bar is met, of the ratio as it is shown."""
    if bar is None:
        return ""
    return "met" if round(ratio, 2) >= bar else "**missed**"


def _speed(comparison: Comparison, seconds: Sequence[float], suite: str) -> str:
    median = statistics.median(seconds)
    if suite in IN_SECONDS:
        return f"{median:.2f} s"
    told = rate(comparison.size_bytes, median)
    return f"{told}, {records_rate(comparison.records, median)}" if suite in IN_RECORDS else told


def table(suite: str, comparisons: Sequence[Comparison]) -> str:
    """One row a peer, and the notes of each workload behind the table."""
    rows = ["| " + " | ".join(_HEADINGS) + " |", "|" + " --- |" * len(_HEADINGS)]
    notes = []
    for comparison in comparisons:
        for peer in comparison.against:
            ratio, (least, most) = comparison.ratio(peer), comparison.spread(peer)
            bar = comparison.bars.get(peer)
            cells = [
                f"`{comparison.name}`" if " " not in comparison.name else comparison.name,
                _speed(comparison, comparison.ours, suite),
                peer,
                _speed(comparison, comparison.against[peer], suite),
                f"{ratio:.2f}×",
                f"{least:.2f}–{most:.2f}",
                "" if bar is None else f"≥ {bar:g}",
                verdict(ratio, bar),
            ]
            rows.append("| " + " | ".join(cells) + " |")
        if comparison.notes:
            told = ", ".join(f"{name} {value}" for name, value in comparison.notes.items())
            notes.append(f"- `{comparison.name}`: {comparison.size_bytes / 1e6:.0f} MB; {told}")
    return "\n".join([*rows, *(["", *notes] if notes else [])])


def findings_table(findings: Sequence[Mapping[str, Any]]) -> str:
    """One row a figure that is no speed; it has to be at most its bar, or at least where the row says so."""
    rows = ["| what | measured | value | bar |  |", "|" + " --- |" * 5]
    for row in findings:
        bar = row["bar"]
        least = row.get("least", False)
        met = bar is not None and (row["value"] >= bar if least else row["value"] <= bar)
        told = "" if bar is None else "met" if met else "**missed**"
        limit = "" if bar is None else f"{'≥' if least else '≤'} {bar:g}"
        rows.append(f"| {row['what']} | {row['told']} | {row['value']:.2f} | {limit} | {told} |")
    return "\n".join(rows)


def facts_line(facts: Mapping[str, Any]) -> str:
    """Machine and versions as one paragraph."""
    machine = ", ".join(f"{name}: {value}" for name, value in facts.items() if name != "versions")
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items() if value != "absent")
    return f"{machine}. Versions: {versions}."


def section(suite: str, results: Mapping[str, Any]) -> str:
    """What stands between the markers of a suite."""
    if "findings" in results:
        told = f"`{COMMANDS[suite]}`. {facts_line(results['facts'])}"
        return f"{findings_table(results['findings'])}\n\n<sub>{told}</sub>"
    comparisons = [Comparison(**row) for row in results["comparisons"]]
    command = COMMANDS.get(suite, f"python -m pytest -m bench bench/test_{suite}.py")
    rounds = len(comparisons[0].ours) if comparisons else 0
    told = f"`{command}`; medians of {rounds} rounds, sides in turn. {facts_line(results['facts'])}"
    return f"{table(suite, comparisons)}\n\n<sub>{told}</sub>"


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
        text = replaced(text, path.stem, section(path.stem, json.loads(path.read_text())))
        print(f"{path.stem}: table made anew")
    README.write_text(text)


if __name__ == "__main__":
    main()
