"""What a cleaner takes of a log, beside Kafka's LogCleanerManager over the same bytes.

``TIERLOG_LIVES`` is how many logs, ``TIERLOG_SEED`` which.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.line_process import LineProcess, kafka_peer
from tests.support.living_logs import batch_of
from tests.support.log_peer import OurLog
from tests.support.log_turns import START_MS, Told
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType

pytestmark = pytest.mark.interop

LIVES = int(os.environ.get("TIERLOG_LIVES", "25"))
SEED = os.environ.get("TIERLOG_SEED", "14")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    with kafka_peer(tmp_path_factory.mktemp("classes")) as peer:
        yield peer


class Life:
    """One log, in a folder of each side. Lags are short beside what passes between two turns."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = START_MS
        self.sequences: Counter[int] = Counter()
        self.open: set[int] = set()

    def config(self) -> str:
        rng = self.rng
        lag = rng.choice([0, 0, 1, 5000, 30_000])
        latest = rng.choice([2**63 - 1, lag + 1, lag + 5000, lag + 60_000])
        policy = rng.choice(["compact", "compact,delete"])
        words = {"cleanup.policy": policy, "min.compaction.lag.ms": lag, "max.compaction.lag.ms": latest}
        words |= {"internal.segment.bytes": rng.choice([300, 700, 2000]), "message.timestamp.after.max.ms": 2**62}
        return ";".join(f"{name}={value}" for name, value in words.items())

    def turn(self, told: Told) -> tuple[object, ...]:
        rng = self.rng
        kind = rng.choices(
            ("append", "transaction", "marker", "time", "roll", "start", "config", "cut", "raise"),
            weights=(20, 5, 5, 8, 2, 2, 2, 1, 8),
        )[0]
        if kind == "time":
            self.now_ms += rng.choice([1, 900, 9000, 40_000, -5000])
            return "time", self.now_ms
        if kind == "marker" and self.open:
            producer = self.open.pop()
            marker = build_end_transaction_marker(
                0, rng.choice([ControlRecordType.COMMIT, ControlRecordType.ABORT]),
                producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.now_ms,
            )  # fmt: skip
            return "leader", bytes(marker).hex(), 0, "COORDINATOR", 1, 0
        if kind == "transaction":
            producer = rng.randint(1, 3)
            self.open.add(producer)
            sequence, self.sequences[producer] = self.sequences[producer], self.sequences[producer] + 1
            return self._append(transactional=True, producer_id=producer, base_sequence=sequence)
        if kind == "start":
            return "start", rng.randint(0, told.high)
        if kind == "cut" and not self.open:
            self.sequences.clear()
            return "restart", rng.randint(0, told.end + 5), "-"
        simple = {"roll": ("roll",), "config": ("config", self.config()), "raise": ("raise", told.end)}
        return simple[kind] if kind in simple else self._append()

    def _append(self, **facts: int) -> tuple[object, ...]:
        rng = self.rng
        timestamp_ms = rng.choice([self.now_ms, self.now_ms, self.now_ms - rng.randint(0, 50_000), 0, -1, 2**41])
        values = [b"v" * rng.randint(0, 150) for _ in range(rng.randint(1, 3 if not facts else 1))]
        data = batch_of(*values, timestamp_ms=timestamp_ms, **facts)  # type: ignore[arg-type]
        return "leader", data.hex(), 0, "CLIENT", 1, 0


def test_a_cleaner_takes_what_kafkas_takes(theirs: LineProcess, tmp_path: pathlib.Path) -> None:
    """If this fails, records go that a consumer still has a right to, or an operator's lag is not kept."""
    seen: Counter[str] = Counter()
    for number in range(LIVES):
        rng = random.Random(f"{SEED}-{number}")
        life, ours = Life(rng), OurLog()
        config = life.config()
        folders = [tmp_path / side / f"{number}" / "orders-0" for side in ("theirs", "ours")]
        for side, folder in zip((theirs, ours), folders, strict=True):
            folder.mkdir(parents=True)
            side.ask("time", life.now_ms)
            side.ask("open", folder, config, 0, 0, 0, 0, "-", 0, 0)
        told = Told()
        for _ in range(80):
            words = life.turn(told)
            theirs.ask(*words)
            told = Told.of(ours.ask(*words))
            theirs.ask("state")
            for checkpoint in ("-", rng.randint(0, told.end + 2), rng.randint(told.log_start, told.end)):
                answers = [side.ask("cleanable", checkpoint).split(" | ")[0] for side in (theirs, ours)]
                assert answers[0] == answers[1], f"life {number}, {' '.join(map(str, words))[:60]}, {checkpoint}"
                _, first, uncleanable, reset, _, _, cleanable, delay = answers[0].split()
                seen["reset"] += reset == "1"
                seen["cleanable"] += cleanable != "0"
                seen["nothing"] += first == uncleanable
                seen["due"] += delay != "0"
        for side in (theirs, ours):
            side.ask("close")
    print(dict(seen))
    assert min(seen[kind] for kind in ("reset", "cleanable", "nothing", "due")) > LIVES * 5, seen
