"""Ours beside Kafka's UnifiedLog: lives, from a seed, and equal answers, states and files after each step.

``TIERLOG_LIVES`` is how many lives, ``TIERLOG_TURNS`` how long each, ``TIERLOG_SEED`` which. ``TIERLOG_LIFE`` is the
number of one life that is to be lived alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import random
import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

import pytest

from tests.records.vectors import VECTORS
from tests.support import log_differences as rows
from tests.support.checkout import ROOT
from tests.support.line_process import LineProcess, kafka_peer
from tests.support.log_peer import OurLog, files_of
from tests.support.log_turns import START_MS, Command, Told, Turns
from tierlog._native.checksums import crc32c
from tierlog.log.local.recovery.tier_start import TIER_START_FILE
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType


class AskedLog(Protocol):
    """A log that is asked in words."""

    def ask(self, *words: object) -> str: ...


@dataclass
class Pair:
    """The same log twice: Kafka's answers first, then ours, which have to be the same."""

    theirs: AskedLog
    ours: AskedLog
    folder: pathlib.Path
    history: list[str] = field(default_factory=list)
    last: str = ""
    tabled: Counter[str] = field(default_factory=Counter)
    is_damaged: bool = False
    segment_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        self.folders = [self.folder / side / "orders-0" for side in ("theirs", "ours")]

    def ask(self, *words: object) -> str:
        words = self._fitting(words)
        self.history.append(" ".join(map(str, words)))
        told = self.theirs.ask(*words)
        ours = self.ours.ask(*words) if words[0] != "clean" else self._cleaned(words)
        if words[0] == "truncate" and (row := self._row_of_compacted(told, ours)):
            return self._part(row)
        if words[0] in ("leader", "follower") and not told.startswith("taken"):
            if Told.of(told).bases[-1] > Told.of(told).end:
                return self._part(rows.REFUSED)  # Kafka's log takes nothing more, or what lies in front of its segment
            ours = self._caught_up(told, ours)
        for row, differs in ((rows.OVERLAP, rows.batches_overlap), (rows.FALLEN, rows.epochs_fall)):
            if told != ours and ours.startswith("refused -1") and differs(words):
                return self._part(row)
        if words[0] in ("leader", "follower"):
            ours = self._with_recovery_point(told, ours)
        found = rows.row_of_cleaning(told, ours, self.folders[0]) if words[0] == "clean" else None
        if found is not None:
            return self._part(found)
        if words[:2] == ("list", -3) and told.startswith("none") and rows.has_emptied_batch(self.folders[0]):
            self.tabled[rows.EMPTIED] += ours != told
            ours = "none | " + ours.split(" | ", 1)[1]
        if self.is_damaged and words[0] == "clean" and rows.is_of_damage(told, ours):
            return self._part(rows.DAMAGE)  # Kafka's cleaner compares no checksum, and writes the damage anew
        if self.is_damaged and words[0] in ("read", "list", "raise") and rows.is_of_damage(told, ours):
            self.tabled[rows.DAMAGE] += 1
            ours = told.split(" | ", maxsplit=1)[0] + " | " + ours.split(" | ", 1)[1]
        if self.is_damaged and rows.is_watermark_of_damage(told, ours, self.folders[0]):
            return self._part(rows.OFFSETS)
        if words[0] in ("read", "raise"):
            told = self._at_local_start(told)
            ours = self._with_watermark(told, ours, words)
        if words[0] in ("read", "aborted"):
            ours = self._with_more_aborted(told, ours)
        ours = self._with_stable(told, ours)
        assert told == ours, self.explain(told, ours)
        self.last = told
        return told

    def _fitting(self, words: tuple[object, ...]) -> tuple[object, ...]:
        """The command; another one in place of a follower's append that is larger than a segment."""
        if words[0] == "config":
            self._learn(str(words[1]))
        if words[0] == "follower" and len(str(words[1])) // 2 > self.segment_bytes:
            self.tabled[rows.LARGE] += 1
            return "list", -1
        return words

    def _learn(self, config: str) -> None:
        found = re.search(r"internal\.segment\.bytes=(\d+)", config)
        self.segment_bytes = int(found[1]) if found else 1 << 30

    def _cleaned(self, words: tuple[object, ...]) -> str:
        """Our answer to a cleaning, which collects the aborted transactions, and leaves the last batches, that Kafka's
        does where that matters.
        """
        before = Told.of(self.last)
        with contextlib.ExitStack() as as_kafka:
            if rows.collects_ended(self.folders[1], int(str(words[1])), log_start=before.log_start):
                self.tabled[rows.ENDED] += 1
                as_kafka.enter_context(rows.collecting_ended())
            if any(each.last_offset >= before.high for each in before.producers.values()):
                self.tabled[rows.CLEANED_LAST] += 1
                as_kafka.enter_context(rows.keeping_last())
            return self.ours.ask(*words)

    def _row_of_compacted(self, told: str, ours: str) -> str:
        """The row by which alone the answers differ: by transactions that a compaction took, and are open in Kafka's
        log, or by producers of which it left a marker without a record; "": they do not, or otherwise.
        """
        mine = self._with_stable(told, ours)
        if told != ours and rows.with_compacted_ended(told, mine, self.folders[1]) == mine:
            return rows.COMPACTED
        return rows.FENCED if rows.knows_emptied(told, mine, self.folders[1]) else ""

    def _with_stable(self, told: str, ours: str) -> str:
        """Our answer with Kafka's last stable offset where no batch lies between both: it moved to the next one."""
        theirs, mine = Told.of(told).stable, Told.of(ours).stable
        if mine >= theirs or rows.has_batch_within(self.folders[1], mine, theirs):
            return ours
        self.tabled[rows.WATERMARK] += 1
        answer, offsets, rest = ours.split(" | ", maxsplit=2)
        words = offsets.split(" ")
        kafkas, found = told.split(" | ", maxsplit=1)[0].split(" "), answer.split(" ")
        if answer.startswith("read ") and kafkas[:5] + kafkas[6:] == found[:5] + found[6:] and found[3] == "0":
            answer = " ".join(kafkas)  # of nothing: whether the next batch is too large, which lies behind ours
        return " | ".join([answer, " ".join([*words[:2], str(theirs), *words[3:]]), rest])

    def _with_more_aborted(self, told: str, ours: str) -> str:
        """Our answer to a read, with Kafka's list of aborted transactions if that has all of ours: Kafka's search in
        the offset index may miss the entry that it looks for, and then tells of transactions behind what was read.
        """
        theirs, mine = (answer.split(" | ")[0].split(" ") for answer in (told, ours))
        if theirs != mine and rows.hides_aborted(self.folders[0]):
            self.tabled[rows.HIDDEN] += 1
            return told.split(" | ", maxsplit=1)[0] + " | " + ours.split(" | ", 1)[1]
        if theirs[-1] != mine[-1] and set(filter(None, mine[-1].split(","))) < set(theirs[-1].split(",")):
            self.tabled[rows.ABORTED] += 1
            return ours.replace(" ".join(mine), " ".join([*mine[:-1], theirs[-1]]), 1)
        return ours

    def _at_local_start(self, told: str) -> str:
        """Kafka's answer with the high watermark of a tiered log back at the local start: a batch begins in front."""
        high = Told.of(told).high
        if high >= Told.of(told).local_start:
            return told
        self.tabled[rows.TIER_WATERMARK] += 1
        return told.split(" | ", maxsplit=1)[0] + " | " + self.theirs.ask("watermark", high).split(" | ", 1)[1]

    def _with_watermark(self, told: str, ours: str, words: tuple[object, ...]) -> str:
        """Our answer with Kafka's high watermark where that moved to the begin of the batch that ours is in, or of the
        next.
        """
        high, mine = Told.of(told).high, Told.of(ours).high
        was, risen = (re.match(r"was (\d+) ", answer) for answer in (told, ours))
        if told != ours and told.startswith("was ") and high == mine and risen:
            if rows.has_batch_within(self.folders[1], int(risen[1]), int(was[1]) if was else high):
                return ours
            self.tabled[rows.WATERMARK] += 1  # Kafka's had moved to the next batch before it could rise
            return told.split(" | ", maxsplit=1)[0] + " | " + ours.split(" | ", 1)[1]
        if high == mine or not rows.is_begin_of_batch(self.folders[1], high, seen_from=mine):
            return ours
        self.tabled[rows.WATERMARK] += 1
        self.ours.ask("watermark", high)
        if words[0] == "read":
            return self.ours.ask(*words)
        return ours.split(" | ", maxsplit=1)[0] + " | " + self.ours.ask("state").split(" | ", 1)[1]

    def _with_recovery_point(self, told: str, ours: str) -> str:
        """Our answer to an append, flushed where Kafka's was by ``flush.messages``: ours was flushed up to a segment
        that it began behind missing offsets, and has fewer to flush.
        """
        theirs, mine = Told.of(told), Told.of(ours)
        begun = mine.bases[-1] not in Told.of(self.last).bases
        if begun and mine.recovery == mine.bases[-1] and theirs.recovery == theirs.end > mine.recovery:
            self.tabled[rows.GAP] += 1
            return ours.split(" | ", maxsplit=1)[0] + " | " + self.ours.ask("flush").split(" | ", 1)[1]
        return ours

    def _caught_up(self, told: str, ours: str) -> str:
        """Ours, after what Kafka does before it refuses an append: it begins the epoch, and rolls. That it ends the
        verification of producers whose batches passed, ``unverify`` makes up for.
        """
        before, after = (answer.split(" | ", 1)[1].split("|") for answer in (self.last, told))
        epochs = [entry for entry in after[2].split() if entry not in before[2].split()]
        bases = [word.split(":")[0] for word in after[1].split()[len(before[1].split()) :]]
        for entry in epochs:
            self.ours.ask("epoch", *entry.split(":"))
        for base in bases:
            self.ours.ask("roll", base)
        self.tabled[rows.REFUSED] += bool(epochs or bases)
        return ours.split(" | ", maxsplit=1)[0] + " | " + self.ours.ask("state").split(" | ", 1)[1]

    def open(self, command: Command) -> str:
        self._learn(" ".join(map(str, command)))
        self.history.append(" ".join(map(str, command)))
        asked = [(*command[:1], folder, *command[2:]) for folder in self.folders]
        before, snapshots = rows.segments_of(self.folders[1]), rows.snapshots_of(self.folders[1])
        has_compacted = rows.has_compacted(self.folders[0])
        has_later_index = rows.has_later_transaction_index(self.folders[0])
        word = self.folders[1] / TIER_START_FILE
        noted = word.read_bytes() if word.exists() else b""
        told, ours = self.theirs.ask(*asked[0]), self.ours.ask(*asked[1])
        rebuilt = command[6] == 0 or any(offset > Told.of(told).end for offset in snapshots)
        if rows.was_flushed(told, ours) and rows.has_hole(rows.segments_of(self.folders[1])):
            self.tabled[rows.HOLE] += 1
            told = "open | " + self.theirs.ask("flush").split(" | ", 1)[1]
        for row, differs in (
            (rows.HOLE, rows.lost_batches(told, ours)),
            (rows.OFFSETS, told != ours and rows.has_damaged_offsets(before)),
            (rows.LATER_INDEX, has_later_index and told.startswith("refused -1 ") and ours.startswith("open ")),
        ):
            if differs:
                return self._part(row)
        is_refused = has_compacted and told.startswith("refused 48 ")
        if row := rows.COMPACTED if is_refused else self._row_of_compacted(told, ours):
            return self._part(row)
        if not command[6] and rows.is_of_before(told, ours, noted, checkpoint=int(str(command[3]))):
            return self._part(rows.STARTS)
        ours = self._with_stable(told, ours)
        found = rows.rows_of_recovery(told, ours, self.folders[1], rebuilt=rebuilt, is_damaged=self.is_damaged)
        if found:
            return self._part(*found)
        assert told == ours, self.explain(told, ours)
        if rebuilt and rows.kept_snapshots(self.folders[0], self.folders[1], told):
            return self._part(rows.PRODUCERS)
        if rows.begins_later(*self.folders):
            return self._part(rows.COMPACTED)
        self.last = told
        return told

    def _part(self, *found: str) -> str:
        """From here on they are two logs: their life ends."""
        self.tabled.update(found)
        self.drop()
        return "drop | closed"

    def drop(self) -> None:
        """Leave both logs as they are, for the next life."""
        for log in (self.theirs, self.ours):
            if not log.ask("state").endswith("| closed"):
                log.ask("drop")

    def compare_files(self) -> None:
        theirs, ours = map(files_of, self.folders)
        active = max(name for name in theirs if name.endswith(".log")).removesuffix("log")
        for name in (f"{active}index", f"{active}timeindex"):  # ours writes its last entries when they are synced
            written = cast("list[str]", ours.get(name, []))
            if written == cast("list[str]", theirs.get(name, []))[: len(written)]:
                theirs[name] = ours[name] = written
        unlike = sorted(name for name in theirs | ours if theirs.get(name) != ours.get(name))
        assert not unlike, self.explain(*(f"{name}: {side.get(name)}" for name in unlike for side in (theirs, ours)))

    def explain(self, *answers: str) -> str:
        """The last commands, and what both answered."""
        told = [f"    {answer[:1500]}" for answer in answers]
        return "\n".join(["the last commands:", *(line[:1000] for line in self.history[-12:]), "theirs, ours:", *told])


def live(pair: Pair, rng: random.Random, *, turns: int) -> Iterator[tuple[str, str]]:
    """Have both logs live so many turns; (command, answer) as they come. It ends early where both refuse to open,
    or where recovery is known to leave two different logs.
    """
    life = Turns(rng, tiered=rng.random() < 0.25)
    pair.ask("time", life.now)
    config = life.config()
    for folder in pair.folders:
        shutil.rmtree(folder, ignore_errors=True)
    answer = pair.open(life.opening("-", config=config, clean=False))
    for _ in range(turns):
        life.learn(answer)
        if rng.random() < 0.06:
            config, answer = life.config(), _reopen(pair, life, config)
            yield "open", answer
            if Told.find(answer) is None:
                return
        else:
            command = life.turn()
            if command[0] == "config":
                config = str(command[1])
                pair.ask("flush")  # flush.messages may become less
            if command[0] == "clean":
                pair.ask("flush")  # ours does, before it removes an older record
            answer = pair.ask(*command)
            yield str(command[0]), answer
            if Told.find(answer) is None:
                return
            if command[0] == "follower" and answer.startswith("refused"):
                pair.ask("unverify")
        pair.compare_files()
        life.learn(answer)
        for question in life.questions():
            answer = pair.ask(*question)
            yield str(question[0]), answer
            if Told.find(answer) is None:
                return
    pair.ask("close")
    pair.compare_files()


def _reopen(pair: Pair, life: Turns, config: str) -> str:
    """Stop both and start them again: each over its own files or the other's, after a clean stop or a crash."""
    rng = life.rng
    clean, swapped = life.index_bytes < 4096 or rng.random() < 0.4, rng.random() < 0.5
    if clean:
        life.learn(pair.ask("flush"))
        pair.ask("close")
        pair.compare_files()
        if swapped:
            _swap(*pair.folders)
        life.told = Told(**{**life.told.__dict__, "recovery": life.told.end})
        return pair.open(life.opening("-", config=config, clean=True))
    source = pair.folders[int(swapped)]
    kept = pair.folder / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(source, kept)
    pair.ask("drop")
    done = [life.damage(kept) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    pair.is_damaged |= "flip" in done
    pair.history.append(f"damage {done}, files of {'ours' if swapped else 'theirs'}")
    for folder in pair.folders:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    return pair.open(life.opening("-", config=config, clean=False))


def _swap(one: pathlib.Path, other: pathlib.Path) -> None:
    aside = one.with_name("aside")
    for source, target in itertools.pairwise((one, aside)):
        source.rename(target)
    other.rename(one)
    aside.rename(other)


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
    together: Counter[int] = Counter()
    differ: list[str] = []
    for number in range(LIVES) if LIFE is None else [int(LIFE)]:
        pair = Pair(theirs, OurLog(), tmp_path)
        try:
            for kind, answer in live(pair, random.Random(f"{SEED}-{number}"), turns=TURNS):
                words = answer.split(" ")
                seen[" ".join([kind, *words[: 1 + (words[0] == "refused")]])] += 1
                open_ones = [p for p in Told.of(answer).producers.values() if p.transaction_first_offset >= 0]
                together[len(open_ones)] += 1
        except AssertionError as error:
            differ.append(f"life {number}: {error}")
            print(differ[-1], flush=True)
            pair.drop()
        tabled += pair.tabled
    print(f"{seen.total()} answers, {seen['clean cleaned']} compactions; rows of the table:", dict(tabled))
    print("transactions open at once:", dict(together))
    assert not differ, "\n".join([f"{len(differ)} of {LIVES} lives differ", *differ])
    assert LIFE is not None or all(count < seen.total() / 50 for count in tabled.values()), tabled
    if LIFE is None and LIVES * TURNS >= 5000:
        assert all(seen[f"leader refused {error}"] for error in (2, 32, 45, 47, 48, 52, 87)), seen
        assert all(seen[kind] > 20 for kind in ("leader taken", "leader duplicate", "follower taken")), seen
        assert all(seen[kind] > 20 for kind in ("retention gone", "truncate done", "read refused 1", "list found")), (
            seen
        )
        assert seen["open open"] > 20, seen
        assert seen["fromtier done"] > 10, seen
        assert sum(answers for several, answers in together.items() if several > 1) > seen.total() / 5, together


ENDS_BEFORE_IT_BEGINS = struct.pack(">i", -1)


def sent(base_offset: int, *values: bytes, key: bytes = b"key", delta: bytes = b"", epoch: int = 4) -> str:
    """A batch of a leader, in hexadecimal digits; with another last offset delta."""
    builder = RecordBatchBuilder(base_offset, leader_epoch=epoch)
    for value in values:
        builder.append(key, value, timestamp_ms=START_MS)
    batch = bytearray(builder.build())
    batch[23 : 23 + len(delta)] = delta
    batch[17:21] = crc32c(memoryview(bytes(batch))[21:]).to_bytes(4, "big")
    return batch.hex()


#: An index of three entries, and one for each batch.
SMALL_INDEX = "cleanup.policy=compact;internal.segment.bytes=3000;index.interval.bytes=0;segment.index.bytes=24"
FIVE_BATCHES = "".join(sent(offset, b"a", key=b"%d" % offset) for offset in range(1, 6))


def of_producer(base_offset: int, sequence: int, *, transactional: bool, producer_id: int = 7) -> str:
    builder = RecordBatchBuilder(
        base_offset,
        leader_epoch=4,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )
    builder.append(b"key %d" % base_offset, b"", timestamp_ms=START_MS)
    return builder.build().hex()


def aborted_by(base_offset: int) -> str:
    """The marker of producer 7 that its transaction is aborted."""
    marker = build_end_transaction_marker(
        base_offset,
        ControlRecordType.ABORT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=START_MS,
        leader_epoch=4,
    )
    return marker.hex()


#: Two transactions of one producer, and another one's behind them.
TWO_ABORTED = "".join(
    of_producer(offset, offset // 2, transactional=True) + aborted_by(offset + 1) for offset in (0, 2)
) + of_producer(4, 0, transactional=True, producer_id=8)


@pytest.mark.parametrize(
    ("row", "commands", "kafkas", "ours"),
    [
        (rows.OVERLAP, [("follower", sent(0, b"a", b"b") + sent(1, b"b", b"c"), 4)], "taken 0 2 ", "refused -1 "),
        (rows.FALLEN, [("follower", sent(0, b"a") + sent(1, b"b", epoch=3), 4)], "taken 0 1 ", "refused -1 "),
        (
            rows.DELTA,
            [("follower", sent(0, b"a") + sent(5, b"b", delta=ENDS_BEFORE_IT_BEGINS), 4)],
            "taken 0 4 ",
            "refused -1 ",
        ),
        (
            rows.FULL_INDEX,
            [("config", SMALL_INDEX), ("follower", sent(0, b"a"), 4), ("roll",), ("follower", FIVE_BATCHES, 4)],
            "refused -1  | 0 -1 0 0 1 ",
            "taken 1 5 ",
        ),
        (
            rows.FULL_INDEX,
            [
                ("follower", sent(0, b"a") + FIVE_BATCHES, 4),
                ("roll",),
                ("config", SMALL_INDEX),
                ("clean", 0, 6, 240, 700),
            ],
            "refused -1 ",
            "cleaned 6 ",
        ),
        (
            rows.HIDDEN,
            [("follower", TWO_ABORTED, 4), ("aborted", 2, 3)],
            "aborted | ",
            "aborted 7:2:3 | ",
        ),
        (rows.LARGE, [("follower", sent(0, bytes(4000)), 4)], "refused 18 ", "taken 0 0 "),
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


@pytest.mark.parametrize(
    ("transactional", "kafkas", "ours"),
    [(False, "refused 48 ", "open | 0 -1 6 6 6 "), (True, "open | 0 -1 3 6 6 ", "open | 0 -1 4 6 6 ")],
    ids=["a batch of no transaction follows", "another transaction follows"],
)
def test_a_transaction_that_a_compaction_took(
    theirs: LineProcess, tmp_path: pathlib.Path, transactional: bool, kafkas: str, ours: str
) -> None:
    """The snapshot of before its marker says that it is open; the marker went after the last of its records."""
    marker = build_end_transaction_marker(
        2,
        ControlRecordType.COMMIT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=START_MS,
        leader_epoch=4,
    )
    config = "internal.segment.bytes=600;cleanup.policy=compact;delete.retention.ms=1000"
    commands: list[Command] = [
        ("follower", sent(0, bytes(300), key=b"fills the segment"), 4),
        ("follower", of_producer(1, 0, transactional=True), 4),
        ("roll",),
        ("follower", marker.hex() + sent(3, bytes(300), key=b"key 1"), 4),
        ("follower", of_producer(4, 1, transactional=transactional), 4),
        ("roll",),
        ("follower", sent(5, b""), 4),
        ("watermark", 6),
        ("flush",),
        *[("clean", 0, 5, 2400, 5000)] * 2,
        ("time", START_MS + 1001),
        ("clean", 0, 5, 2400, 5000),
        ("drop",),
    ]
    for log, name, answer in ((theirs, "theirs", kafkas), (OurLog(), "ours", ours)):
        folder = tmp_path / name / "orders-0"
        folder.mkdir(parents=True)
        log.ask("time", START_MS)
        log.ask("open", folder, config, 0, 0, 0, 0, "-", 0, 0)
        for command in commands:
            log.ask(*command)
        assert rows.has_compacted(folder)
        told = log.ask("open", folder, config, 0, 2, 6, 0, "-", 0, 0)
        if Told.find(told) is not None:
            log.ask("drop")
        assert told.startswith(answer), (name, told)


def test_every_row_is_in_the_table() -> None:
    """Else a difference is tolerated here that the page does not tell."""
    page = (ROOT / "docs" / "local-log.md").read_text().split("## Where it differs from Kafka's")[1].split("\n## ")[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")][2:] == list(
        rows.ROWS
    )
