"""All that happens to logs while they are compacted, at once, in the orders that seeds find."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from tests.log.local.compaction.test_compaction_crashes import CLEANER, CONFIG, LOGS, Written, append, iter_records
from tierlog.log.local.log_config import CleanerConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogClosedError
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

TWO: CleanerConfig = dataclasses.replace(
    CLEANER,
    log_cleaner_threads=2,
    log_cleaner_dedupe_buffer_size=4 << 20,
    log_cleaner_io_max_bytes_per_second=20_000.0,
)
PARTITIONS = 2
TURNS = 25


def own(machine: Machine, directory: LogDirectory, partition: int, written: Written, rng: random.Random) -> None:
    """The log's one writer: appends, cuts, mostly behind the high watermark, closes, deletes and begins anew."""
    for _ in range(TURNS):
        log = directory.log("orders", partition)
        turn = rng.random()
        if turn < 0.55:
            append(log, written, rng, rng.randint(1, 6))
        elif turn < 0.7:
            log.update_high_watermark(rng.randint(log.high_watermark, log.log_end_offset))
        elif turn < 0.85:
            if turn > 0.78:  # by an unclean election: older records of what is cut may have gone
                written.flushed = -1
            least = log.high_watermark if turn <= 0.78 else log.log_start_offset
            borders = [border for border in written.borders if border >= least]
            cut_to = rng.choice(sorted(borders)) if borders else log.log_end_offset
            log.truncate_to(cut_to)
            written.now = {at: known for at, known in written.now.items() if at < cut_to}
            written.borders = {border for border in written.borders if border <= cut_to}
        elif turn < 0.9:
            log.close()
        elif turn < 0.93:
            directory.delete_log("orders", partition)
            written.now, written.borders, written.flushed = {}, set(), 0
        elif turn < 0.96:
            log.update_config(dataclasses.replace(CONFIG, cleanup_policy=frozenset(("delete",)), retention_ms=-1))
        else:
            log.update_config(CONFIG)
        machine.clock.sleep(rng.random())


def disturb(machine: Machine, directory: LogDirectory, rng: random.Random) -> None:
    """What others do: retention, checkpoints, flushes, rolls, and an operator who changes the cleaner."""
    cleaner = directory.cleaner
    assert cleaner is not None
    for _ in range(TURNS):
        for log in directory.logs.values():
            calls: list[Callable[[], object]] = [
                log.flush,
                log.roll,
                log.delete_old_segments,
                lambda log=log: directory.cleaner_manager.retain(log),
                directory.checkpoint,
                lambda: cleaner.reconfigure(rng.choice([TWO, CLEANER])),
            ]
            try:
                rng.choice(calls)()
            except LogClosedError:
                pass  # by its owner, just now
        machine.clock.sleep(rng.random())


def check(seed: int) -> None:
    machine, scheduler = ManualScheduler.machine(seed)
    rngs = [random.Random(f"{seed}-{number}") for number in range(PARTITIONS + 1)]
    written = [Written() for _ in range(PARTITIONS)]
    with (
        scheduler,
        LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=TWO, is_sole_replica=False) as directory,
    ):
        tasks = [
            scheduler.start(lambda n=n: own(machine, directory, n, written[n], rngs[n]), name=f"owner {n}")
            for n in range(PARTITIONS)
        ]
        tasks.append(scheduler.start(lambda: disturb(machine, directory, rngs[-1]), name="others"))
        for task in tasks:
            task.result(10_000)
        manager = directory.cleaner_manager
        logs = [directory.log("orders", partition) for partition in range(PARTITIONS)]
        for log in logs:
            log.update_config(CONFIG)
            log.update_high_watermark(log.log_end_offset)
        for _ in range(400):
            dirty = [each for each in manager.find_dirty_logs(machine.clock.time_ms()) if each.cleanable_bytes]
            if not dirty and all(manager.states.is_free((log.topic, log.partition)) for log in logs):
                break
            machine.clock.sleep(0.5)
        else:
            raise AssertionError(f"seed {seed}: {dirty}")
        for log, known in zip(logs, written, strict=True):
            records = list(iter_records(log))
            assert known.has(records, 0 if known.flushed < 0 else log.log_end_offset), (
                f"seed {seed}, partition {log.partition}"
            )
            clean = [key for offset, key, _ in records if offset < log.active_segment.base_offset]
            assert len(clean) == len(set(clean)), f"seed {seed}, partition {log.partition}"
        assert not manager.uncleanable
        assert not directory.is_offline
        assert directory.cleaner is not None
        assert directory.cleaner.dead_thread_count == 0
    assert scheduler.unfinished == []


@pytest.mark.parametrize("seed", [*range(5), 130])
def test_all_at_once(seed: int) -> None:
    """If this fails, a compacted log loses a key's latest record, keeps older ones for ever, or stands still."""
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_all_at_once_again(seed: int) -> None:
    """As above, in more orders."""
    check(seed)
