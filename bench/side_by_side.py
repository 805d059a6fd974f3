"""Two sides of one claim, run in turn: peer, ours, peer, ours …; so that what the machine does meanwhile hits both."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

ROUNDS = 5
ROOT = pathlib.Path(__file__).resolve().parent.parent


def results_folder() -> pathlib.Path:
    """Where runs leave their numbers for ``bench.report``."""
    folder = pathlib.Path(os.environ.get("TIERLOG_BENCH_RESULTS") or ROOT / "out" / "bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scaled(size_bytes: int) -> int:
    """The size times TIERLOG_BENCH_SCALE (1 by default): small ones only show that everything runs."""
    return max(1 << 20, int(size_bytes * float(os.environ.get("TIERLOG_BENCH_SCALE", "1"))))


@dataclass(slots=True)
class Comparison:
    """Seconds of ours and of each peer, round by round, over the same bytes.

    Attributes:
        name: Says the workload.
        ours: Seconds of each round.
        against: Peer to its seconds of the same rounds.
        bars: Peer to the least that our speed divided by its speed has to be.
        size_bytes: What one round reads, bytes as they lie in the log or, of a codec, as they come out of it.
        records: In them; 0 where records are no matter.
        notes: What else belongs into the table: GETs per GiB, peak of Arrow's memory, CPU seconds.
    """

    name: str
    ours: list[float]
    against: dict[str, list[float]]
    bars: dict[str, float]
    size_bytes: int
    records: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    def ratio(self, peer: str) -> float:
        """Our speed through the peer's, of the medians."""
        return statistics.median(self.against[peer]) / statistics.median(self.ours)

    def spread(self, peer: str) -> tuple[float, float]:
        """The same of single rounds, the least and the most."""
        each = [theirs / ours for theirs, ours in zip(self.against[peer], self.ours, strict=True)]
        return min(each), max(each)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def timed(action: Callable[[], object]) -> float:
    """Wall seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def save(name: str, comparisons: Sequence[Comparison], *, facts: Mapping[str, Any]) -> pathlib.Path:
    """One file of results for the report."""
    path = results_folder() / f"{name}.json"
    rows = with_kept(path, "comparisons", "name", [comparison.to_json() for comparison in comparisons])
    path.write_text(json.dumps({"facts": dict(facts), "comparisons": rows}, indent=1) + "\n")
    return path


def with_kept(path: pathlib.Path, kind: str, named: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows; with TIERLOG_BENCH_ADD=1 behind those of an earlier run of the same suite that they do not replace."""
    if os.environ.get("TIERLOG_BENCH_ADD") != "1" or not path.exists():
        return rows
    new = {row[named] for row in rows}
    return [row for row in json.loads(path.read_text())[kind] if row[named] not in new] + rows
