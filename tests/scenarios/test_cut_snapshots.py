"""A manager's snapshot and its committed offsets, when the power goes at any access to the disk or a kill comes.

What is found afterwards is the snapshot of before or the new one, whole; and the committed offsets are not ahead of it.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

import pytest

from tests.remote.metadata.table.segments import FINISHED, ORDERS, run_of, segment, update
from tests.support.committed_offsets import (
    FILE_NAME,
    encode_committed_offsets,
    parse_committed_offsets,
    positions_of,
)
from tierlog.errors import StoreError
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, read_snapshot, write_snapshot
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

SNAPSHOT = "/log/_rlmm_snapshot"
OFFSETS = f"/log/{FILE_NAME}"
POINTS = 320
ROUNDS = 4
KILLS = 20


def save(table: SegmentTable, position: int, machine: Machine, folder: str = "/log") -> None:
    """As a manager does: the snapshot, and then how far it has consumed."""
    write_snapshot(f"{folder}/_rlmm_snapshot", table, SnapshotState("topic", 1, {0: position}), machine=machine)
    machine.files.write_whole(f"{folder}/{FILE_NAME}", encode_committed_offsets({0: position - 1}))


def lived(table: SegmentTable, round_number: int) -> int:
    """One more round of events; the position behind them."""
    numbers = range(10 * round_number, 10 * round_number + 10)
    records = [segment(number, number * 10, number * 10 + 9, custom=b"x" * (number % 50)) for number in numbers]
    changes = [update(number, FINISHED) for number in numbers if number % 10 < 7]
    events = [*records, *changes]
    assert table.apply(run_of(events, first=17 * round_number)).error is None
    return 17 * (round_number + 1)


def find_saved(machine: Machine, folder: str = "/log") -> tuple[int, int, int]:
    """(position of the snapshot, its segments, committed position); 0 for what is not there."""
    position = segments = committed = 0
    if machine.files.find(f"{folder}/_rlmm_snapshot") is not None:
        table, state = read_snapshot(f"{folder}/_rlmm_snapshot", machine=machine)
        with table:
            position, segments = state.positions[0], table.figures.segments
            readable = table.find(ORDERS, 0, 10 * (segments - 10) + 5)
            assert readable is not None, "a segment that was finished is not readable"
    if machine.files.find(f"{folder}/{FILE_NAME}") is not None:
        committed = positions_of(parse_committed_offsets(machine.files.read_whole(f"{folder}/{FILE_NAME}"))).get(0, 0)
    return position, segments, committed


def run_until_cut(seed: int, cut: int) -> tuple[PowerCut, list[tuple[int, int]]]:
    """Rounds of events and saves; the power goes at a change, or not. What was saved is (position, segments)."""
    files = MemoryFiles()
    files.make_directories("/log")
    machine, scheduler = ManualScheduler.machine(seed, files)
    saved = [(0, 0)]
    with scheduler, SegmentTable(machine=machine) as table:
        table.assign(ORDERS)
        power = PowerCut(files, at=cut, seed=seed)
        for number in range(ROUNDS):
            saved.append((lived(table, number), table.figures.segments))
            try:
                save(table, saved[-1][0], machine)
            except StoreError:
                assert power.left is not None
                break
    return power, saved


def test_the_power_may_go_at_any_change() -> None:
    """If this fails, a broker starts from a snapshot that never was, or misses the events behind it for good."""
    changes = run_until_cut(0, 0)[0].seen
    cuts = [1 + point * changes // POINTS for point in range(POINTS)]
    old = new = lost = 0
    for seed, cut in enumerate(cuts):
        power, saved = run_until_cut(seed, cut)
        machine, scheduler = ManualScheduler.machine(seed, power.cut())
        with scheduler:
            position, segments, committed = find_saved(machine)
        assert (position, segments) in saved[-2:], (seed, cut, "neither the snapshot of before nor the new one")
        assert committed <= position, (seed, cut, "events between the snapshot and the committed offset are lost")
        old += (position, segments) == saved[-2]
        new += (position, segments) == saved[-1]
        lost += committed < position
    assert min(old, new, lost) > POINTS // 20


@pytest.mark.slow
def test_the_process_may_be_killed_at_any_moment(tmp_path: pathlib.Path) -> None:
    """The same by SIGKILL, on a real disk, while snapshots are written one after another."""
    machine = Machine()
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        folder.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.test_cut_snapshots", str(folder)],
            stdout=subprocess.PIPE,
            cwd=pathlib.Path(__file__).parents[2],
        )
        assert child.stdout is not None
        with child, child.stdout:
            for _ in range(1 + kill % 5):
                told = child.stdout.readline()
            machine.clock.sleep(0.0007 * kill)
            child.send_signal(signal.SIGKILL)
            told = (told + child.stdout.read()).rstrip().splitlines()[-1]
        done = int(told)
        position, segments, committed = find_saved(machine, str(folder))
        assert position >= done, "a snapshot that was written is gone"
        assert segments * 17 == position * 10
        assert done <= committed <= position


def save_for_ever(folder: str) -> None:
    machine = Machine()
    with SegmentTable(machine=machine) as table:
        table.assign(ORDERS)
        for number in range(10_000):
            position = lived(table, number)
            save(table, position, machine, folder)
            print(position, flush=True)


if __name__ == "__main__":
    save_for_ever(sys.argv[1])
