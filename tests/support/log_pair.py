"""The same log twice, Kafka's and ours, that live the same life and have to tell the same."""

from __future__ import annotations

import itertools
import pathlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

from tests.support.log_peer import files_of
from tests.support.log_turns import Command, Told, Turns


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
    more_aborted: int = 0
    parted: int = 0

    def __post_init__(self) -> None:
        self.folders = [self.folder / side / "orders-0" for side in ("theirs", "ours")]

    def ask(self, *words: object) -> str:
        self.history.append(" ".join(map(str, words)))
        told = self.theirs.ask(*words)
        ours = self.ours.ask(*words)
        if words[0] in ("leader", "follower") and not told.startswith("taken"):
            ours = self._caught_up(told, ours)
        if words[0] == "read":
            ours = self._with_watermark(told, self._with_more_aborted(told, ours))
        assert told == ours, self.explain(told, ours)
        self.last = told
        return told

    def _with_more_aborted(self, told: str, ours: str) -> str:
        """Our answer to a read, with Kafka's list of aborted transactions if that has all of ours: Kafka's search in
        the offset index may miss the entry that it looks for, and then tells of transactions behind what was read.
        """
        theirs, mine = (answer.split(" | ")[0].split(" ") for answer in (told, ours))
        if theirs[-1] != mine[-1] and set(filter(None, mine[-1].split(","))) < set(theirs[-1].split(",")):
            self.more_aborted += 1
            return ours.replace(" ".join(mine), " ".join([*mine[:-1], theirs[-1]]), 1)
        return ours

    def _with_watermark(self, told: str, ours: str) -> str:
        """Our answer to a read, with Kafka's high watermark where that has moved to where a batch begins."""
        high = Told.of(told).high
        if high == Told.of(ours).high:
            return ours
        self.ours.ask("watermark", high)
        return ours.split(" | ", maxsplit=1)[0] + " | " + self.ours.ask("state").split(" | ", 1)[1]

    def _caught_up(self, told: str, ours: str) -> str:
        """Ours, after what Kafka does before it refuses an append: it begins the epoch, and rolls."""
        before, after = (answer.split(" | ", 1)[1].split("|") for answer in (self.last, told))
        for entry in [entry for entry in after[2].split() if entry not in before[2].split()]:
            self.ours.ask("epoch", *entry.split(":"))
        for base in [word.split(":")[0] for word in after[1].split()[len(before[1].split()) :]]:
            self.ours.ask("roll", base)
        return ours.split(" | ", maxsplit=1)[0] + " | " + self.ours.ask("state").split(" | ", 1)[1]

    def open(self, command: Command) -> str:
        self.history.append(" ".join(map(str, command)))
        asked = [(*command[:1], folder, *command[2:]) for folder in self.folders]
        told, ours = self.theirs.ask(*asked[0]), self.ours.ask(*asked[1])
        if _lost_batches(told, ours) or _found_epochs(told, ours):
            self.parted += 1
            return self.ask("drop")  # from here on they are two logs
        assert told == ours, self.explain(told, ours)
        self.last = told
        return told

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


def _lost_batches(told: str, ours: str) -> bool:
    """Whether a crash left a hole in front of a segment: ours then ends there, and Kafka's log keeps the hole."""
    theirs, mine = Told.of(told), Told.of(ours)
    behind = [base for base in theirs.bases if base >= mine.end]
    return (
        mine.end < theirs.end and bool(behind) and behind[0] > mine.end and theirs.bases[: -len(behind)] == mine.bases
    )


def _found_epochs(told: str, ours: str) -> bool:
    """Whether ours alone took the epochs from the batches: the checkpoint was cut to a log start that was lost."""
    theirs, mine = (answer.split("|") for answer in (told, ours))
    unlike = [at for at, (one, other) in enumerate(zip(theirs, mine, strict=False)) if one != other]
    return unlike == [3] and not theirs[3].split() and mine[3].split()[0].split(":")[1] == mine[1].split()[0]


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
            answer = pair.ask(*command)
            yield str(command[0]), answer
        pair.compare_files()
        life.learn(answer)
        for question in life.questions():
            yield str(question[0]), pair.ask(*question)
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
