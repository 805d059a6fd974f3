"""The same seeds, without faults, over the machine's files and over those in memory: equal answers, equal bytes.

Else the simulator, whose files are in memory, proves nothing of the machine's.
"""

from __future__ import annotations

import pathlib
import random
from dataclasses import replace

import pytest

from tests.support.living_logs import contents
from tests.support.log_peer import OurLog
from tests.support.log_turns import Command, Told, Turns
from tests.support.log_workload import POLICIES, LogLife
from tierlog.runtime.machine.clock import SystemClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles


class Twins:
    """One log on a disk and in memory, asked the same."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "orders-0"
        # Times of change count, where a segment is empty: a disk has them of the machine's clock.
        self.on_disk, self.in_memory = OurLog(), OurLog(MemoryFiles(SystemClock()))

    def ask(self, command: Command) -> str:
        answer = self.on_disk.ask(*command)
        assert self.in_memory.ask(*command) == answer, command
        return answer

    def compare(self) -> None:
        found = [contents(each.machine.files, str(self.folder)) for each in (self.on_disk, self.in_memory)]
        assert found[0] == found[1]

    def damage(self, life: Turns) -> None:
        """Do to both what a crash, or a hand, does to a folder."""
        life.damage(self.folder)
        files = MemoryFiles(SystemClock())
        for name, data in contents(PosixFiles(), str(self.folder)).items():
            files.put(f"{self.folder}/{name}", data)
        self.in_memory.machine = replace(self.in_memory.machine, files=files)


def live(twins: Twins, rng: random.Random, *, turns: int) -> int:
    """Have both live so many turns; how many appends were taken."""
    life = Turns(rng, tiered=rng.random() < 0.25)
    twins.ask(("time", life.now))
    config = life.config()
    answer = twins.ask(life.opening(twins.folder, config=config, clean=False))
    taken = 0
    for _ in range(turns):
        life.learn(answer)
        if rng.random() < 0.08:
            clean = rng.random() < 0.5
            twins.ask(("close",))
            if not clean:
                twins.damage(life)
            config = life.config()
            answer = twins.ask(life.opening(twins.folder, config=config, clean=clean))
        else:
            command = life.turn()
            answer = twins.ask(command)
            config = str(command[1]) if command[0] == "config" else config
            taken += answer.startswith("taken")
        if Told.find(answer) is None:
            break
        for question in life.questions():
            twins.ask(question)
        twins.compare()
    return taken


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_log_is_the_same_in_memory(tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, a log in memory answers or writes something else than one on a disk."""
    rng = random.Random(f"alike {seed}")
    assert sum(live(Twins(tmp_path / str(number)), rng, turns=40) for number in range(3)) >= 10


def tree(files: Files, folder: str) -> dict[str, bytes | None]:
    """Path below the folder → the bytes of each file, None for a folder."""
    found: dict[str, bytes | None] = {}
    for entry in files.iter_directory(folder):
        if entry.is_directory:
            found |= {
                entry.name: None,
                **{f"{entry.name}/{name}": data for name, data in tree(files, entry.path).items()},
            }
        else:
            found[entry.name] = files.read_whole(entry.path)
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_directory_is_the_same_in_memory(tmp_path: pathlib.Path, policy: str) -> None:
    """If this fails, a broker's directory in memory has other files than one on a disk, or at other times."""
    for seed in (1, 2):
        seen: list[list[object]] = []
        logs = str(tmp_path / f"{policy}-{seed}")
        for files in (PosixFiles(), MemoryFiles()):
            machine, scheduler = ManualScheduler.machine(seed, files)
            files.make_directories(logs)
            with scheduler:
                life = LogLife(seed, policy, machine, logs=logs)
                life.open()
                turns: list[object] = []
                for _ in range(12):
                    life.run(10)
                    turns += [life.log.offsets, tree(files, logs)]
                life.directory.close()
                seen.append([*turns, tree(files, logs)])
        assert len(seen[0]) == 25
        assert seen[0] == seen[1]
