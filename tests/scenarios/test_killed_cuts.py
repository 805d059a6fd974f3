"""A process that follows a log and cuts it, again and again, is killed: what the next one finds."""

from __future__ import annotations

import itertools
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.batches import Batch, encode
from tests.support.checkout import ROOT
from tests.support.living_logs import served
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.upkeep import verify

KEY: Final = ("orders", 0)
CONFIG: Final = LogConfig(segment_bytes=1500, retention_ms=-1, file_delete_delay_ms=0)
PRODUCERS: Final = (7, 8, 9)


@dataclass(frozen=True)
class Seen:
    """A log as its readers, its followers and its coordinator see it."""

    data: bytes
    epochs: tuple[tuple[int, int], ...]
    open_since: dict[int, int]
    aborted: tuple[tuple[int, int, int], ...]
    stable: int


def seen(log: UnifiedLog) -> Seen:
    log.update_high_watermark(log.log_end_offset)
    read = log.read(log.last_stable_offset, max_bytes=1, isolation=FetchIsolation.TXN_COMMITTED)
    assert not read.records
    return Seen(
        served(log),
        tuple((entry.epoch, entry.start_offset) for entry in log.leader_epoch_cache.epochs),
        {entry.producer_id: entry.transaction_first_offset for entry in log.open_transactions()},
        tuple(log.collect_aborted_transactions(0, log.log_end_offset)),
        log.last_stable_offset,
    )


def expected(batches: Sequence[Batch]) -> Seen:
    """A log of these batches."""
    epochs: dict[int, int] = {}
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for batch in batches:
        epochs.setdefault(batch.epoch, batch.base_offset)
        if batch.marker is None:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        elif (first := open_since.pop(batch.producer_id)) >= 0 and batch.marker == "abort":
            aborted.append((batch.producer_id, first, batch.base_offset))
    end_offset = batches[-1].last_offset + 1 if batches else 0
    data = b"".join(map(encode, batches))
    return Seen(data, tuple(epochs.items()), open_since, tuple(aborted), min([*open_since.values(), end_offset]))


def iter_turns() -> Iterator[tuple[Batch | int, list[Batch]]]:
    """Batches of three transactional producers and their coordinator, in epoch after epoch, each of which ends with a
    cut: (a batch or the offset of a cut, the log behind it).
    """
    rng = random.Random(5)
    log: list[Batch] = []
    for epoch in itertools.count():
        for _ in range(rng.randrange(4, 12)):
            producer, offset = rng.choice(PRODUCERS), log[-1].last_offset + 1 if log else 0
            ends = producer in expected(log).open_since and rng.random() < 0.5
            values = (b"",) if ends else (b"%d" % epoch + b"x" * rng.randrange(200),) * rng.randrange(1, 4)
            log = [
                *log,
                Batch(
                    offset,
                    values,
                    epoch,
                    producer_id=producer,
                    producer_epoch=0,
                    transactional=True,
                    marker=rng.choice(["commit", "abort"]) if ends else None,
                ),
            ]
            yield log[-1], log
        kept = max(0, len(log) - rng.randrange(1, 12))
        cut_to = log[kept].base_offset
        log = log[:kept]
        yield cut_to, log


def take_turns(folder: str) -> None:
    """Append and cut until the process is killed; print each turn that is done."""
    with LogDirectory.open(folder, config=CONFIG) as directory:
        log = directory.log(*KEY)
        for number, (turn, _) in enumerate(iter_turns()):
            if isinstance(turn, int):
                assert log.truncate_to(turn)
            else:
                log.append_as_follower(bytearray(encode(turn)), leader_epoch=turn.epoch)
            if number % 40 == 39:
                directory.checkpoint()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


def killed(folder: pathlib.Path, kill: int) -> None:
    """A child is killed: the log is that of the last turn, or of the next, or has a part of what a cut removes."""
    code = f"from tests.scenarios.test_killed_cuts import take_turns; take_turns({str(folder)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    machine = Machine()
    with child, child.stdout:
        told = child.stdout.readline()
        machine.clock.sleep(0.0137 * (kill + 1))
        child.send_signal(signal.SIGKILL)
        told = (told + child.stdout.read()).rpartition(b"\n")[0]
    done = int(told.splitlines()[-1])
    turns = list(itertools.islice(iter_turns(), done + 2))
    before, (turn, behind) = turns[-2][1], turns[-1]
    with LogDirectory.open(str(folder), machine=machine, config=CONFIG) as directory:
        found = seen(directory.log(*KEY))
    between = range(len(behind), len(before) + 1) if isinstance(turn, int) else range(0)
    assert found in [expected(before), expected(behind), *(expected(before[:count]) for count in between)]
    result = verify(str(folder))
    assert (result.faults, result.errors) == (0, 0), result.findings


@pytest.mark.parametrize("kill", [2, 11])
def test_the_process_may_be_killed(tmp_path: pathlib.Path, kill: int) -> None:
    """If this fails, a follower that is killed while it is cut has a branch that no leader has, or the wrong open
    transactions.
    """
    killed(tmp_path, kill)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(20))
def test_the_process_may_be_killed_at_any_time(tmp_path: pathlib.Path, kill: int) -> None:
    """Twenty kills, at twenty times."""
    killed(tmp_path, kill)
