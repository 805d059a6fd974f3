"""A log directory whose machine loses power, or whose disk fails, at each of its operations: what the next start finds.

One log's own crashes are in the scenarios; here several come and go, are cut, flushed and checkpointed together.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.crashed_log import copy_of
from tests.support.living_logs import batch_of
from tierlog.errors import StoreError
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN, RECOVERY_POINTS
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk, PowerCut

LOGS = "/logs"
MARKER = f"{LOGS}/{CLEAN_SHUTDOWN}"
TOPICS = ("a", "b", "c")
STEPS = 45
CONFIG = LogConfig(segment_bytes=400)


@dataclass
class Written:
    """What one log was given.

    Attributes:
        ever: The values that were ever written at an offset, since the log was made last.
        now: The present ones.
        safe: Up to where they must survive, exclusive.
        start: Where the log starts at least.
        start_max: Where it starts at most.
        may_be_gone: Whether a deletion has begun.
    """

    ever: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    now: list[bytes] = field(default_factory=list)
    safe: int = 0
    start: int = 0
    start_max: int = 0
    may_be_gone: bool = False


class Life:
    """A random use of a directory, until its end or that of its disk."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine = machine
        self._rng = random.Random(seed)
        self._serial = 0
        self.logs: dict[str, Written] = {}
        self.is_closed = False
        self.directory: LogDirectory | None = None

    def run(self) -> None:
        """Raises StoreError: the disk, or the power, has failed."""
        self.directory = directory = LogDirectory.open(LOGS, machine=self._machine, config=CONFIG, runs_tasks=False)
        for _ in range(STEPS):
            topic = self._rng.choice(TOPICS)
            step = self._rng.choices(
                [self.append, self.flush, self.cut, self.raise_start, self.delete, self.checkpoint],
                [12, 2, 3, 1, 1, 2],
            )[0]
            step(directory, topic)
        directory.close()
        self.is_closed = True

    def log(self, directory: LogDirectory, topic: str) -> tuple[UnifiedLog, Written]:
        written = self.logs.setdefault(topic, Written())
        return directory.log(topic, 0), written

    def append(self, directory: LogDirectory, topic: str) -> None:
        log, written = self.log(directory, topic)
        self._serial += 1
        value = b"%d of %s %s" % (self._serial, topic.encode(), b"x" * self._rng.randrange(120))
        written.ever[len(written.now)].add(value)
        written.now.append(value)
        log.append_as_leader(batch_of(value), leader_epoch=0)

    def flush(self, directory: LogDirectory, topic: str) -> None:
        log, written = self.log(directory, topic)
        log.flush()
        written.safe = len(written.now)

    def cut(self, directory: LogDirectory, topic: str) -> None:
        log, written = self.log(directory, topic)
        offset = self._rng.randint(log.log_start_offset, len(written.now))
        written.safe = min(written.safe, offset)
        del written.now[offset:]
        log.truncate_to(offset)

    def raise_start(self, directory: LogDirectory, topic: str) -> None:
        log, written = self.log(directory, topic)
        offset = self._rng.randint(log.log_start_offset, log.high_watermark)
        written.start_max = offset
        log.maybe_increment_log_start_offset(offset, "a test")
        directory.checkpoint()
        written.start = offset

    def delete(self, directory: LogDirectory, topic: str) -> None:
        _, written = self.log(directory, topic)
        written.may_be_gone = True
        directory.delete_log(topic, 0)
        del self.logs[topic]

    def checkpoint(self, directory: LogDirectory, topic: str) -> None:
        directory.checkpoint()


def records(log: UnifiedLog) -> dict[int, bytes]:
    """Offset to value of all that can be read."""
    found: dict[int, bytes] = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        read = log.read(at, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        if not read.records:
            break  # a crash may leave a gap in what was never flushed, in front of an empty segment: so in Kafka
        data = read.records[0].read()
        rows = decode(data, columns=("offset", "value"), from_offset=at)
        found |= dict(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
        at = max(found) + 1
    return found


@contextlib.contextmanager
def machine_over(files: MemoryFiles, seed: int) -> Iterator[Machine]:
    machine, scheduler = ManualScheduler.machine(seed, files)
    with scheduler:
        yield machine


def lived(files: MemoryFiles, seed: int) -> Life:
    """A life, which may end early."""
    with machine_over(files, seed) as machine:
        life = Life(machine, seed)
        with contextlib.suppress(StoreError):
            life.run()
        if life.directory is not None and not life.is_closed:
            with contextlib.suppress(StoreError):
                life.directory.close()
    return life


def check_next_start(files: MemoryFiles, life: Life, seed: int) -> None:
    """All that was promised is there, nothing that was deleted is, and the start after that finds the same."""
    was_clean = files.find(MARKER) is not None
    contents = []
    for _ in range(2):
        with (
            machine_over(files, seed) as machine,
            LogDirectory.open(LOGS, machine=machine, config=CONFIG, runs_tasks=False) as directory,
        ):
            found = {topic: records(log) for (topic, _), log in directory.load_logs().items()}
            for topic, values in found.items():
                written = life.logs.get(topic, Written())
                log = directory.log(topic, 0)
                assert all(value in written.ever[offset] for offset, value in values.items())
                assert all(log.log_start_offset <= offset < log.log_end_offset for offset in values)
                assert log.log_start_offset >= written.start
            for topic, written in life.logs.items():
                if written.may_be_gone:
                    continue
                safe = written.now if was_clean else written.now[: written.safe]
                if topic not in found:
                    assert not safe
                    continue
                start = directory.log(topic, 0).log_start_offset
                assert start <= written.start_max
                assert directory.log(topic, 0).log_end_offset >= len(safe)
                assert all(found[topic][at] == safe[at] for at in range(start, len(safe)))
        contents.append(found)
    assert contents[0] == contents[1]
    check_made_anew(files, [topic for topic in TOPICS if topic not in contents[0]], seed)


def check_made_anew(files: MemoryFiles, topics: list[str], seed: int) -> None:
    """Logs that are gone begin at 0 when they are made again, and still do so after another crash."""
    for _ in range(2):
        with machine_over(files, seed) as machine:
            directory = LogDirectory.open(LOGS, machine=machine, config=CONFIG, runs_tasks=False)
            for topic in topics:
                log = directory.log(topic, 0)
                assert (log.log_start_offset, log.recovery_point) == (0, 0), topic
                for _ in range(12):  # above where any log of before started
                    log.append_as_leader(batch_of(b"anew"), leader_epoch=0)
        files = copy_of(files)


def changes_of(seed: int) -> int:
    """How many changes of the disk a whole life makes."""
    files = MemoryFiles()
    counting = PowerCut(files, at=0, seed=seed)
    assert lived(files, seed).is_closed
    return counting.seen


def check_power_cut(seed: int, at: int) -> None:
    files = MemoryFiles()
    cut = PowerCut(files, at=at, seed=seed * 1000 + at)
    life = lived(files, seed)
    check_next_start(cut.cut(), life, seed)


def check_failure(seed: int, at: int, code: int) -> None:
    files = MemoryFiles()
    with FailingDisk(files, code, at=at, seed=seed * 1000 + at, lasting=code != errno.EIO) as failing:
        life = lived(files, seed)
        assert failing.failed
    check_next_start(files, life, seed)


def test_a_whole_life() -> None:
    """If this fails, so do all others here."""
    for seed in range(10):
        files = MemoryFiles()
        life = lived(files, seed)
        assert life.is_closed
        assert files.find(MARKER) is not None
        for written in life.logs.values():
            written.safe = len(written.now)
        check_next_start(files, life, seed)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes(seed: int) -> None:
    """If this fails, a power cut costs what was flushed, brings back what was deleted, or marks a torn log as whole."""
    rng = random.Random(seed)
    for at in sorted(rng.sample(range(1, changes_of(seed) + 1), 25)):
        check_power_cut(seed, at)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_the_disk_fails(code: int) -> None:
    """If this fails, a disk that failed once is believed, or its directory cannot be opened once it is mended."""
    rng = random.Random(code)
    for at in sorted(rng.sample(range(1, changes_of(7) + 1), 15)):
        check_failure(7, at, code)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_each_change(seed: int) -> None:
    """As the tests above, at every change of the disk."""
    for at in range(1, changes_of(seed) + 1):
        check_power_cut(seed, at)
        check_failure(seed, at, errno.EIO)


@pytest.mark.parametrize("offset", [2, 4])
def test_a_truncation_lowers_the_recovery_point_first(offset: int) -> None:
    """If this fails, a power cut between a truncation and its checkpoint leaves a log of which more is believed
    than was ever synced.
    """
    for at in itertools.count(1):
        files = MemoryFiles()
        with (
            contextlib.suppress(LogOfflineError, StoreError),
            LogDirectory.open(LOGS, machine=Machine(files=files), config=CONFIG, runs_tasks=False) as directory,
        ):
            log = directory.log("orders", 0)
            for number in range(12):
                log.append_as_leader(batch_of(b"%d" % number + b"x" * 60), leader_epoch=0)
            log.flush()
            directory.checkpoint()
            power = PowerCut(files, at=at, seed=at)
            log.truncate_to(offset) if offset == 2 else log.truncate_fully_and_start_at(offset)
        if power.left is None:
            break
        left = Machine(files=power.left)
        point = int(left.files.read_whole(f"{LOGS}/{RECOVERY_POINTS}").decode().split()[-1])
        with LogDirectory.open(LOGS, machine=left, config=CONFIG, runs_tasks=False) as directory:
            assert point == offset or directory.log("orders", 0).log_end_offset == 12, f"cut at change {at}"
    assert at > 10


def test_a_gap_behind_a_cut_stays_after_a_kill() -> None:
    """If this fails, a kill after a truncation into a batch loses all that was appended since: the log's end lies
    behind its last record then, and the next segment begins there.
    """
    files = MemoryFiles()
    with LogDirectory.open(LOGS, machine=Machine(files=files), runs_tasks=False) as directory:
        log = directory.log("orders", 0)
        log.append_as_leader(batch_of(b"a", b"b"), leader_epoch=0)
        log.append_as_leader(batch_of(b"c", b"d", b"e"), leader_epoch=0)
        log.truncate_to(4)
        assert (log.log_end_offset, log.roll().base_offset) == (4, 4)
        log.append_as_leader(batch_of(b"f"), leader_epoch=0)
        killed = Machine(files=copy_of(files))
    with LogDirectory.open(LOGS, machine=killed, runs_tasks=False) as directory:
        log = directory.log("orders", 0)
        assert [segment.base_offset for segment in log.log_segments()] == [0, 4]
        assert log.log_end_offset == 5


def test_a_recovery_point_behind_the_logs_end_is_lowered() -> None:
    """If this fails, a log that a crash made shorter is believed, unread, up to where it once was synced."""
    files = MemoryFiles()
    files.make_directories(f"{LOGS}/orders-0")
    files.write_whole(f"{LOGS}/orders-0/{0:020}.log", bytes(batch_of(b"a", b"b")))
    files.write_whole(f"{LOGS}/{RECOVERY_POINTS}", b"0\n1\norders 0 9\n")
    with LogDirectory.open(LOGS, machine=Machine(files=files), runs_tasks=False) as directory:
        assert directory.log("orders", 0).log_end_offset == 2
        assert files.read_whole(f"{LOGS}/{RECOVERY_POINTS}") == b"0\n1\norders 0 2\n"
