"""A directory whose logs are compacted, cut and appended to, and whose machine loses power at any of its operations."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tierlog.errors import StoreError
from tierlog.log.local.log_config import CleanerConfig, LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode, scan
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

LOGS = "/logs"
KEY = ("orders", 0)
CONFIG = LogConfig(
    cleanup_policy=frozenset(("compact",)), segment_bytes=500, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0
)
CLEANER = CleanerConfig(log_cleaner_backoff_ms=1000, log_cleaner_dedupe_buffer_size=2 << 20)


@dataclass
class Written:
    """What the log was given.

    Attributes:
        now: (key, value) by offset, as the log is.
        borders: Where its batches end.
        before: The same, as it was in front of a cut that goes on.
        flushed: Up to where it survives. What was not flushed may be lost in any part: of a compacted log, whose
            offsets have gaps, nothing says that a segment is missing.
    """

    now: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    borders: set[int] = field(default_factory=set)
    before: dict[int, tuple[bytes, bytes]] | None = None
    flushed: int = 0

    def has(self, records: list[tuple[int, bytes, bytes]], durable_to: int) -> bool:
        """Whether these are records of the log, as it is or as it was, with the latest of each key in front of an
        offset, or a later one.
        """
        ends = {key: offset for offset, key, _ in records}
        for view in [self.now] if self.before is None else [self.now, self.before]:
            latest = {key: at for at, (key, _) in sorted(view.items()) if at < durable_to}
            if all(view.get(offset) == (key, value) for offset, key, value in records) and all(
                ends.get(key, -1) >= at for key, at in latest.items()
            ):
                return True
        return False


def append(log: UnifiedLog, written: Written, rng: random.Random, batches: int) -> None:
    for number in range(batches):
        builder = RecordBatchBuilder(0, codec=rng.choice(["none", "lz4"]))
        first = log.log_end_offset
        for offset in range(first, first + rng.randint(1, 3)):
            written.now[offset] = b"key-%d" % rng.randint(0, 6), b"%d-%d-%d" % (offset, number, rng.randint(0, 2**40))
            builder.append(*written.now[offset], timestamp_ms=1_700_000_000_000)
        log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        written.borders.add(log.log_end_offset)


def wait_until_cleaned(machine: Machine, directory: LogDirectory, log: UnifiedLog) -> None:
    manager = directory.cleaner_manager
    for _ in range(100):
        dirty = [each for each in manager.find_dirty_logs(machine.clock.time_ms()) if each.cleanable_bytes]
        if log.is_offline or (not dirty and manager.states.is_free(KEY)):
            return
        machine.clock.sleep(0.5)
    raise AssertionError(f"cleaned up to {manager.cleaner_offset(KEY)}")


def opened(machine: Machine, config: CleanerConfig | None = None) -> LogDirectory:
    return LogDirectory.open(
        LOGS,
        machine=machine,
        config=CONFIG,
        cleaner_config=config,
        runs_tasks=config is not None,
        is_sole_replica=False,
    )


def live(files: MemoryFiles, seed: int, written: Written) -> None:
    """Appends, cleanings in front of the high watermark, and cuts behind it."""
    rng = random.Random(seed)
    machine, scheduler = ManualScheduler.machine(seed, files)
    with (
        scheduler,
        contextlib.suppress(LogOfflineError, StoreError),
        opened(machine, CLEANER) as directory,
    ):
        log = directory.log(*KEY)
        for _ in range(3):
            append(log, written, rng, 12)
            if rng.random() < 0.5:
                log.flush()
                written.flushed = log.log_end_offset
            log.update_high_watermark(rng.randint(log.high_watermark, log.log_end_offset))
            if rng.random() < 0.7:
                wait_until_cleaned(machine, directory, log)
            else:
                machine.clock.sleep(rng.random() * 2)
            if rng.random() < 0.7:
                cut_to = rng.choice(sorted(border for border in written.borders if border >= log.high_watermark))
                written.before = written.now
                written.flushed = min(written.flushed, cut_to)
                log.truncate_to(cut_to)
                written.now = {at: known for at, known in written.now.items() if at < log.log_end_offset}
                written.before = None
                written.borders = {border for border in written.borders if border <= cut_to}
        append(log, written, rng, 6)


def iter_records(log: UnifiedLog) -> Iterator[tuple[int, bytes, bytes]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        if not found.records:
            return
        data = found.records[0].read()
        rows = decode(data, from_offset=offset)
        yield from zip(*(rows.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True)
        offset = int(scan(data).last_offset[-1]) + 1  # its last record may have gone


def check(left: MemoryFiles, written: Written, at: int) -> None:
    """Nothing of the latest is lost, and nothing counts as compacted that is not; the cleaner goes on."""
    machine, scheduler = ManualScheduler.machine(at, left)
    with scheduler:
        _check(machine, written, at)


def _check(machine: Machine, written: Written, at: int) -> None:
    with opened(machine) as directory:
        log = directory.log(*KEY)
        records, end_offset = list(iter_records(log)), log.log_end_offset
        assert end_offset >= written.flushed, f"cut at change {at}"
        clean_to = directory.cleaner_manager.cleaner_offset(KEY) or 0
        assert written.has(records, max(written.flushed, clean_to)), f"cut at change {at}"
        keys = [key for offset, key, _ in records if offset < clean_to]
        assert len(keys) == len(set(keys)), f"cut at change {at}: clean up to {clean_to}"
    with opened(machine, CLEANER) as directory:
        log = directory.log(*KEY)
        log.update_high_watermark(end_offset)
        wait_until_cleaned(machine, directory, log)
        latest = {key: value for _, key, value in iter_records(log)}
        assert latest == {key: value for _, key, value in records}, f"cut at change {at}"
        assert not directory.cleaner_manager.uncleanable
        assert not directory.is_offline


def check_power_cut(seed: int, at: int) -> int:
    """Cut in front of a change of the disk; the number of changes that there are without."""
    files, written = MemoryFiles(), Written()
    power = PowerCut(files, at=at, seed=seed * 1000 + at)
    at_cut: list[Written] = []
    cut = power.cut

    def remember() -> MemoryFiles:
        at_cut.append(dataclasses.replace(written, now=dict(written.now)))
        return cut()

    power.cut = remember  # type: ignore[method-assign]
    live(files, seed, written)
    if power.left is not None:
        check(power.left, at_cut[0], at)
    return power.seen


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes(seed: int) -> None:
    """If this fails, a power cut loses the latest record of a key, or leaves older ones of it for ever."""
    changes = check_power_cut(seed, 0)
    rng = random.Random(seed)
    for at in sorted(rng.sample(range(1, changes + 1), 15)):
        check_power_cut(seed, at)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_each_change(seed: int) -> None:
    """As above, at every change of the disk."""
    for at in range(1, check_power_cut(seed, 0) + 1):
        check_power_cut(seed, at)
