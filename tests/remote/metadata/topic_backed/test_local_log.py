"""The metadata topic in a directory: what MetadataLog demands, and what is left after kills and power cuts."""

from __future__ import annotations

import contextlib
import errno
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.contract.metadata_events import finish, found, listed, segment
from tests.support.metadata_rig import COUNT, rig
from tests.support.metadata_topics import read_topic
from tierlog.errors import ConfigError
from tierlog.records.decoding import decode
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException, Uuid
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, LogBounds, MetadataBatches, OffsetsLostError
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed.local_metadata_log import LocalMetadataLog, LocalMetadataLogs
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk, PowerCut
from tierlog.upkeep.restoring.restore_targets import TopicFolder

WAIT_SECONDS = 30.0
TOPIC_ID = Uuid(bytes(range(16)))


def opened(path: object, partition_count: int = 2, *, machine: Machine | None = None) -> LocalMetadataLog:
    logs = LocalMetadataLogs(str(path), partition_count=partition_count, machine=machine)
    return logs.open(timeout_seconds=WAIT_SECONDS)


def read(log: LocalMetadataLog, positions: dict[int, int], *, max_bytes: int = 1 << 20) -> list[MetadataBatches]:
    return log.read(positions, max_bytes=max_bytes, timeout_seconds=0)


def rows_of(run: MetadataBatches) -> list[tuple[int, bytes]]:
    rows = decode(run.batches)
    return list(zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True))


def values(log: LocalMetadataLog, partition: int = 0, start: int = 0) -> list[tuple[int, bytes]]:
    """All records from an offset on."""
    records: list[tuple[int, bytes]] = []
    while runs := read(log, {partition: start}, max_bytes=1000):
        records += rows_of(runs[0])
        start = runs[0].next_offset
    return records


def test_records_come_back_in_order(tmp_path: pathlib.Path) -> None:
    """A manager that misses an event, or sees one twice, has another table than what it promised."""
    with opened(tmp_path) as log:
        futures = [log.append(1, b"%d" % number) for number in range(500)]
        assert [future.result(WAIT_SECONDS) for future in futures] == list(range(500))
        assert log.bounds([0, 1], timeout_seconds=1) == {0: LogBounds(0, 0), 1: LogBounds(0, 500)}
        assert values(log, 1) == [(number, b"%d" % number) for number in range(500)]
        assert read(log, {0: 0, 1: 500}) == []
        assert log.partition_count == 2
    with pytest.raises(RemoteStorageException, match="closed"):
        log.append(0, b"")
    with pytest.raises(RemoteStorageException, match="closed"):
        read(log, {0: 0})
    log.close()


def test_a_restart_goes_on(tmp_path: pathlib.Path) -> None:
    """Else every start of a broker forgets its tier."""
    with opened(tmp_path) as log:
        identity = log.identity
        log.append(0, b"a").result(WAIT_SECONDS)
    with opened(tmp_path) as log:
        assert log.identity == identity
        assert log.append(0, b"b").result(WAIT_SECONDS) == 1
        assert values(log) == [(0, b"a"), (1, b"b")]
    with opened(tmp_path / "another") as log:
        assert log.identity != identity


def test_records_that_come_together_share_a_batch() -> None:
    """One fsync for each of a thousand segments that finish at once is a minute of a spinning disk."""
    machine, scheduler = ManualScheduler.machine(3)
    with scheduler, opened("/topic", machine=machine) as log:
        futures = [log.append(0, b"x" * 300) for _ in range(400)]
        assert [future.result() for future in futures] == list(range(400))
        (run,) = read(log, {0: 0})
        data, batches = memoryview(run.batches), 0
        while data:
            data, batches = data[12 + int.from_bytes(data[8:12], "big") :], batches + 1
        assert batches < 100


def test_a_read_has_a_bound(tmp_path: pathlib.Path) -> None:
    """One batch at least, or it would stand still for ever; and never a part of one."""
    with opened(tmp_path) as log:
        for _ in range(5):
            log.append(0, b"x" * 1000).result(WAIT_SECONDS)
        (run,) = read(log, {0: 0}, max_bytes=2500)
        assert run.next_offset == 2
        (run,) = read(log, {0: 2}, max_bytes=1)
        assert (run.next_offset, decode(run.batches).column("offset").to_pylist()) == (3, [2])


def test_a_record_that_is_too_large(tmp_path: pathlib.Path) -> None:
    """It is refused alone: what came with it is stored, and the log goes on."""
    with opened(tmp_path) as log:
        futures = [log.append(0, value) for value in (b"a", bytes(2 << 20), b"b")]
        with pytest.raises(RemoteStorageException, match="MESSAGE_TOO_LARGE"):
            futures[1].result(WAIT_SECONDS)
        assert [futures[at].result(WAIT_SECONDS) for at in (0, 2)] == [0, 1]
        assert values(log) == [(0, b"a"), (1, b"b")]


def test_offsets_that_are_lost(tmp_path: pathlib.Path) -> None:
    """A snapshot of another directory: a manager that went on would have a hole."""
    with opened(tmp_path) as log:
        log.append(0, b"a").result(WAIT_SECONDS)
        with pytest.raises(OffsetsLostError, match="holds offsets 0 to 1, and 2"):
            read(log, {0: 2})
        with pytest.raises(RemoteStorageException, match="no 2"):
            read(log, {2: 0})


def test_reads_wait_and_are_woken() -> None:
    """A broker that stops does not wait a second for it, and one that waits does not spin."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler, opened("/topic", machine=machine) as log:

        def reading(seconds: float) -> list[MetadataBatches]:
            return log.read({0: 0, 1: 0}, max_bytes=100, timeout_seconds=seconds)

        began = machine.clock.monotonic_seconds()
        assert reading(5) == []
        assert machine.clock.monotonic_seconds() == began + 5
        log.wake()
        assert reading(5) == []
        machine.scheduler.start(log.wake, name="waker")
        assert reading(5) == []
        appending = machine.scheduler.pool(1, name="appender").submit(lambda: log.append(1, b"a"))
        assert [run.partition for run in reading(5)] == [1]
        assert appending.result().result() == 0
        assert machine.clock.monotonic_seconds() == began + 5
        machine.scheduler.start(log.close, name="closer")
        with pytest.raises(RemoteStorageException, match="closed"):
            log.read({0: 0}, max_bytes=100, timeout_seconds=5)


# ---- what the topic is


def test_another_number_of_partitions(tmp_path: pathlib.Path) -> None:
    """Every record would be looked for in another partition: segments are lost, and their data deleted as orphans."""
    opened(tmp_path, 3).close()
    for count in (2, 4):
        with pytest.raises(ConfigError, match="has 3 partitions"):
            opened(tmp_path, count)
    opened(tmp_path, 3).close()


def test_a_first_start_that_was_cut_short(tmp_path: pathlib.Path) -> None:
    """It is ended by the next start, with the same id and number; any other number is an error there too."""
    with opened(tmp_path, 3) as log:
        identity = log.identity
    shutil.rmtree(tmp_path / f"{METADATA_TOPIC}-0")
    shutil.rmtree(tmp_path / f"{METADATA_TOPIC}-1")
    with pytest.raises(ConfigError, match="has 3 partitions"):
        opened(tmp_path, 2)
    with opened(tmp_path, 3) as log:
        assert log.identity == identity
        assert log.append(0, b"a").result(WAIT_SECONDS) == 0


def test_partitions_of_two_topics(tmp_path: pathlib.Path) -> None:
    """A folder that was put there by hand, or a restore over an older one."""
    for name in ("a", "b"):
        opened(tmp_path / name, 2).close()
    shutil.rmtree(tmp_path / "a" / f"{METADATA_TOPIC}-1")
    (tmp_path / "b" / f"{METADATA_TOPIC}-1").rename(tmp_path / "a" / f"{METADATA_TOPIC}-1")
    with pytest.raises(ConfigError, match="2 topics"):
        opened(tmp_path / "a", 2)


def test_a_directory_that_is_in_use(tmp_path: pathlib.Path) -> None:
    """Two writers of one log leave a file that nobody can read. The second may come when the first has gone."""
    with opened(tmp_path), pytest.raises(RetriableRemoteStorageException):
        opened(tmp_path)
    opened(tmp_path).close()


# ---- what is left


def test_a_full_disk_is_one_error_for_all() -> None:
    """What a failed write left in the file is not known: going on would be a promise about it. A start recovers."""
    machine, scheduler = ManualScheduler.machine(1, MemoryFiles(capacity_bytes=200_000))
    with scheduler:
        log = opened("/topic", machine=machine)
        stored = 0
        while (error := log.append(0, bytes(5000)).exception()) is None:
            stored += 1
        for call in (
            lambda: log.append(1, b""),
            lambda: log.bounds([1], timeout_seconds=0),
            lambda: read(log, {1: 0}),
        ):
            with pytest.raises(RemoteStorageException, match="offline"):
                call()
        log.close()
        assert stored > 10
        assert "offline" in str(error)
        disk = machine.files
        assert isinstance(disk, MemoryFiles)
        disk._disk.capacity_bytes = 1 << 30
        with opened("/topic", machine=machine) as log:
            assert len(values(log)) in (stored, stored + 1)
            log.append(0, b"a").result()


@pytest.mark.parametrize("seed", range(40))
def test_power_cuts_lose_nothing_that_was_told(seed: int) -> None:
    """Neither to the appender, nor to a reader: a snapshot made of what was read fits what is left."""
    machine, scheduler = ManualScheduler.machine(seed)
    rng = SeededRng(seed)
    with scheduler:
        log = opened("/topic", machine=machine)
        futures: list[Future[int]] = []
        seen: list[tuple[int, bytes]] = []
        for _ in range(1 + rng.integer_below(20)):
            futures.append(log.append(0, b"%d" % len(futures)))
            seen = [record for run in read(log, {0: 0}) for record in rows_of(run)]  # and then the power goes
        told = [future.result() for future in futures if future.done()]
        disk = machine.files
        assert isinstance(disk, MemoryFiles)
        left = disk.crash(rng)
        with opened("/topic", machine=_with(machine, left)) as log:
            after = values(log)
            assert after[: len(seen)] == seen
            assert [offset for offset, _ in after][: len(told)] == told
            assert after == [(number, b"%d" % number) for number in range(len(after))]
            assert log.append(0, b"more").result() == len(after)


def story(machine: Machine, told: list[object]) -> None:
    """A first start, appends, a clean stop, another start; what was told goes to ``told``, the identity first."""
    with opened("/topic", machine=machine) as log:
        told.append(log.identity)
        for number in range(4):
            offset = log.append(0, b"%d" % number).result()
            told.append(offset)
    with opened("/topic", machine=machine) as log:
        assert log.identity == told[0]
        told.append(log.append(0, b"4").result())


Disk = Callable[[MemoryFiles, int], PowerCut | FailingDisk]
#: What befalls the disk at its n-th change.
FAULTS: dict[str, Disk] = {
    "no power": lambda files, at: PowerCut(files, at=at, seed=at),
    "an error": lambda files, at: FailingDisk(files, errno.EIO, at=at, seed=at),
    "full": lambda files, at: FailingDisk(files, errno.ENOSPC, at=at, lasting=True, seed=at),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_faults_at_every_change_of_the_disk(fault: str, step: int) -> None:
    """A start that fails halfway, and one that is repaired: the topic is the same one, with all that was told."""
    for at in range(1, 1000, step):
        machine, scheduler = ManualScheduler.machine(at)
        disk = machine.files
        assert isinstance(disk, MemoryFiles)
        told: list[object] = []
        with scheduler:
            struck = FAULTS[fault](disk, at)
            with contextlib.suppress(RemoteStorageException):
                story(machine, told)
            if struck.seen < at:
                break
            disk.mend()
            left = struck.left if isinstance(struck, PowerCut) else disk
            assert left is not None
            with opened("/topic", machine=_with(machine, left)) as log:
                assert told[:1] in ([], [log.identity])
                assert [offset for offset, _ in values(log)][: max(len(told) - 1, 0)] == told[1:]
                assert log.append(1, b"more").result() == 0
    assert at > 50


@pytest.mark.parametrize("seed", range(10))
def test_a_manager_after_a_power_cut(seed: int) -> None:
    """A broker that knows a segment as copied has deleted its own: the manager has to know of it for ever."""
    rng = SeededRng(seed)
    with rig(seed) as made:
        made.logs = LocalMetadataLogs("/metadata", partition_count=COUNT, machine=made.machine)
        manager = made.leader(snapshot_interval_ms=100 * rng.integer_below(20))
        copied = rng.integer_below(12)
        for number in range(1, copied + 1):
            finish(manager, segment(number, 10 * number, 10 * number + 9))
            made.machine.clock.sleep(0.1)
        manager.add_remote_log_segment_metadata(segment(copied + 1, 900, 909))
        disk = made.machine.files
        assert isinstance(disk, MemoryFiles)
        made.machine = _with(made.machine, disk.crash(rng))
        made.logs = LocalMetadataLogs("/metadata", partition_count=COUNT, machine=made.machine)
        manager = made.leader()
        assert listed(manager, 0)[:copied] == list(range(1, copied + 1))
        assert [found(manager, 0, 10 * number) for number in range(1, copied + 1)] == list(range(1, copied + 1))
        finish(manager, segment(50, 500, 509))


def _with(machine: Machine, files: MemoryFiles) -> Machine:
    return Machine(machine.clock, machine.rng, machine.scheduler, files, machine.process)


APPENDING = """
import sys
from tierlog.remote.metadata.topic_backed.local_metadata_log import LocalMetadataLogs
log = LocalMetadataLogs(sys.argv[1], partition_count=2).open(timeout_seconds=9)
number = log.bounds([0], timeout_seconds=9)[0].end_offset
while True:
    futures = [log.append(0, b"%d" % (number + ahead)) for ahead in range(7)]
    number = futures[-1].result(9) + 1
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_told(tmp_path: pathlib.Path) -> None:
    """A process that dies has told the broker that a segment is copied; the local one may be deleted by then."""
    records: list[tuple[int, bytes]] = []
    for _ in range(3):
        command = [sys.executable, "-c", APPENDING, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(20)]
            process.send_signal(signal.SIGKILL)
            told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        with opened(tmp_path) as log:
            records = values(log)
            assert len(records) >= told[-1]
            assert records == [(number, b"%d" % number) for number in range(len(records))]
    assert len(records) > 300


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID], ids=["without an id", "with an id"])
def test_a_restored_topic_is_taken_over(tmp_path: pathlib.Path, topic_id: Uuid | None) -> None:
    """`tierlog restore` makes the metadata of a lost cluster anew: this is a way to serve it without a Kafka."""
    folder = tmp_path / "restored"
    writer = TopicFolder(str(folder), partition_count=3, machine=Machine(), topic_id=topic_id)
    for number in range(5):
        writer.add(segment(number, 10 * number, 10 * number + 9), started_ms=1)
    writer.finish()
    counts = []
    for _ in range(2):
        with opened(folder, 3) as log:
            assert topic_id is None or log.identity == str(topic_id)
            ends = [bounds.end_offset for bounds in log.bounds(range(3), timeout_seconds=1).values()]
            log.append(ends.index(max(ends)), encode_record(segment(9, 90, 99))).result(WAIT_SECONDS)
            counts.append(sum(ends))
    assert counts == [10, 11]
    assert len(read_topic([folder]).begun) == 6


def test_a_directory_as_readers_of_tiers_have_it(tmp_path: pathlib.Path) -> None:
    """`tierlog` reads it as it reads a broker's: for the worst day, and for --metadata."""
    with opened(tmp_path) as log:
        log.append(1, encode_record(segment(1, 0, 9))).result(WAIT_SECONDS)
    assert len(read_topic([tmp_path]).begun) == 1
