"""Ours beside Kafka's UnifiedLog: lives, from a seed, and equal answers, states and files after each step.

``TIERLOG_LIVES`` is how many lives, ``TIERLOG_TURNS`` how long each, ``TIERLOG_SEED`` which. ``TIERLOG_LIFE`` is the
number of one life that is to be lived alone.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import struct
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.records.vectors import VECTORS
from tests.support import log_differences as rows
from tests.support.checkout import ROOT
from tests.support.line_process import LineProcess, kafka_peer
from tests.support.log_pair import Pair, live
from tests.support.log_peer import OurLog
from tests.support.log_turns import START_MS, Command
from tierlog._native.checksums import crc32c
from tierlog.records.builder import RecordBatchBuilder

pytestmark = pytest.mark.interop

LIVES = int(os.environ.get("TIERLOG_LIVES", "120"))
TURNS = int(os.environ.get("TIERLOG_TURNS", "60"))
SEED = os.environ.get("TIERLOG_SEED", "14")
LIFE = os.environ.get("TIERLOG_LIFE")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    with kafka_peer(tmp_path_factory.mktemp("classes")) as peer:
        yield peer


def test_a_log_lives_as_kafkas_does(theirs: LineProcess, tmp_path: pathlib.Path) -> None:
    """Appends, refusals, rolls, retention, truncation, tiering, clean stops, crashes, damage, each over its own files
    or the other's: where an answer or a file differs, replicas come apart, or a broker opens another log than we left.
    """
    seen: Counter[str] = Counter()
    tabled: Counter[str] = Counter()
    differ: list[str] = []
    for number in range(LIVES) if LIFE is None else [int(LIFE)]:
        pair = Pair(theirs, OurLog(), tmp_path)
        try:
            for kind, answer in live(pair, random.Random(f"{SEED}-{number}"), turns=TURNS):
                words = answer.split(" ")
                seen[" ".join([kind, *words[: 1 + (words[0] == "refused")]])] += 1
        except AssertionError as error:
            differ.append(f"life {number}: {error}")
            pair.drop()
        tabled += pair.tabled
    print(f"{seen.total()} answers; rows of the table:", dict(tabled))
    assert not differ, "\n".join([f"{len(differ)} of {LIVES} lives differ", *differ])
    assert all(count < seen.total() / 50 for count in tabled.values()), tabled
    if LIFE is None and LIVES * TURNS >= 5000:
        assert all(seen[f"leader refused {error}"] for error in (2, 32, 45, 47, 48, 52, 87)), seen
        assert all(seen[kind] > 20 for kind in ("leader taken", "leader duplicate", "follower taken")), seen
        assert all(seen[kind] > 20 for kind in ("retention gone", "truncate done", "read refused 1", "list found")), (
            seen
        )
        assert seen["open open"] > 20, seen


ENDS_BEFORE_IT_BEGINS = struct.pack(">i", -1)


def sent(base_offset: int, *values: bytes, delta: bytes = b"") -> str:
    """A batch of a leader of epoch 4, in hexadecimal digits; with another last offset delta."""
    builder = RecordBatchBuilder(base_offset, leader_epoch=4)
    for value in values:
        builder.append(b"key", value, timestamp_ms=START_MS)
    batch = bytearray(builder.build())
    batch[23 : 23 + len(delta)] = delta
    batch[17:21] = crc32c(memoryview(bytes(batch))[21:]).to_bytes(4, "big")
    return batch.hex()


@pytest.mark.parametrize(
    ("row", "commands", "kafkas", "ours"),
    [
        (rows.OVERLAP, [("follower", sent(0, b"a", b"b") + sent(1, b"b", b"c"), 4)], "taken 0 2 ", "refused -1 "),
        (
            rows.DELTA,
            [("follower", sent(0, b"a") + sent(5, b"b", delta=ENDS_BEFORE_IT_BEGINS), 4)],
            "taken 0 4 ",
            "refused -1 ",
        ),
        (rows.OLD_FORMAT, [("leader", VECTORS["v1.none"], 0, "CLIENT", 0, 0)], "taken 0 1 ", "refused 87 "),
        (rows.FIRST_OFFSET, [("follower", VECTORS["v0.none"], 4)], "taken -1 101 ", "taken 100 101 "),
        (
            rows.LOG_END,
            [("restart", 2**63 - 2, "-"), ("leader", sent(0, b"a", b"b"), 4, "CLIENT", 0, 0), ("state",)],
            f"refused -1  | {2**63 - 2} -1 {2**63 - 2} {2**63 - 2} {-(2**63)} ",
            f"state | {2**63 - 2} -1 {2**63 - 2} {2**63 - 2} {2**63 - 2} ",
        ),
    ],
    ids=lambda value: value if value in rows.ROWS else "",
)
def test_a_row_that_no_life_meets(
    theirs: LineProcess, tmp_path: pathlib.Path, row: str, commands: list[Command], kafkas: str, ours: str
) -> None:
    """A row of docs/local-log.md that is no longer true misleads whoever compares a replica with a broker's."""
    for log, name, answer in ((theirs, "theirs", kafkas), (OurLog(), "ours", ours)):
        folder = tmp_path / name / "orders-0"
        folder.mkdir(parents=True)
        log.ask("time", START_MS)
        log.ask("open", folder, "internal.segment.bytes=3000;retention.ms=-1", 0, 0, 0, 0, "-", 0, 0)
        told = [log.ask(*command) for command in commands][-1]
        log.ask("drop")
        assert told.startswith(answer), (row, name, told)


def test_every_row_is_in_the_table() -> None:
    """Else a difference is tolerated here that the page does not tell."""
    page = (ROOT / "docs" / "local-log.md").read_text().split("## Where it differs from Kafka's")[1].split("\n## ")[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")][2:] == list(
        rows.ROWS
    )
