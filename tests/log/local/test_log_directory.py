"""LogDirectory: whose it is, what it knows of its logs, how it is left, and what it does by itself."""

from __future__ import annotations

import contextlib
import pathlib
import shutil

import pytest

from tests.support.batches import Batch, encode
from tests.support.forked import told_by_fork
from tests.support.living_logs import batch_of
from tierlog.errors import ConfigError, StoreError, StoreUnavailableError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.segment_files import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tierlog.log.local.directory.directory_files import DirectoryIdentity
from tierlog.log.local.log_config import LogConfig, LogDirectoryConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import InconsistentTopicIdError, LogClosedError, LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

LOGS = "/logs"
MARKER = f"{LOGS}/.kafka_cleanshutdown"
#: Small segments, so that retention has something to do.
SMALL = LogConfig(segment_bytes=300, file_delete_delay_ms=1000)


@pytest.fixture
def machine() -> Machine:
    return Machine(files=MemoryFiles())


def test_nobody_opens_a_log_beside_the_directory_that_has_it(tmp_path: pathlib.Path) -> None:
    """Else a tool that opens one partition writes into the log of a broker that runs."""
    folder = str(tmp_path / "logs" / "orders-0")
    with LogDirectory.open(str(tmp_path / "logs")) as directory:
        append(directory.log("orders", 0), b"one")
        for other in (folder, f"{folder}/", str(tmp_path / "logs" / "new-0")):
            with pytest.raises(StoreUnavailableError, match="has this log directory open"):
                UnifiedLog.open(other)
        assert not (tmp_path / "logs" / "new-0").exists()
    with UnifiedLog.open(folder, had_clean_shutdown=True) as log:
        assert log.log_end_offset == 1


def append(log: UnifiedLog, *values: bytes, timestamp_ms: int = 1_700_000_000_000) -> None:
    log.append_as_leader(batch_of(*values, timestamp_ms=timestamp_ms), leader_epoch=0)


def text(files: Files, name: str) -> str:
    return files.read_whole(f"{LOGS}/{name}").decode()


def put_hole(files: Files, name: str) -> None:
    """A log with offset 0 in one segment and 5 in the next, all of it on the disk."""
    files.make_directories(f"{LOGS}/{name}")
    for offset in (0, 5):
        files.write_whole(f"{LOGS}/{name}/{offset:020d}.log", encode(Batch(offset)))


def crashed(machine: Machine, directory: LogDirectory) -> MemoryFiles:
    """What a power cut leaves, while a directory is open."""
    assert isinstance(machine.files, MemoryFiles)
    files = machine.files.crash()
    with pytest.raises(LogOfflineError):
        directory.close()
    return files


class TestStops:
    """Clean and unclean."""

    def test_a_clean_stop(self, machine: Machine) -> None:
        """If this fails, each start reads all logs again, or a broker does over what we left."""
        with LogDirectory.open(LOGS, machine=machine) as directory:
            assert not directory.last_stop.was_clean
            append(directory.log("orders", 1), b"a", b"b")
            append(directory.log("bills", 0), b"c")
            assert machine.files.find(MARKER) is None
        assert machine.files.read_whole(MARKER) == b'{"version":0,"brokerEpoch":-1}'
        assert text(machine.files, RECOVERY_POINTS) == "0\n2\norders 1 2\nbills 0 1\n"
        assert text(machine.files, HIGH_WATERMARKS) == "0\n2\norders 1 2\nbills 0 1\n"
        assert text(machine.files, LOG_STARTS) == "0\n0\n"
        with LogDirectory.open(LOGS, machine=machine) as directory:
            assert directory.last_stop == (True, -1)
            assert machine.files.find(MARKER) is None
            log = directory.log("orders", 1)
            assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (2, 2, 2)
            assert log.recovery_report.batches_checked == 0
        assert machine.files.find(MARKER) is not None  # what was not loaded is as whole as before

    def test_an_unclean_stop_stays_unclean_until_all_logs_are_loaded(self, machine: Machine) -> None:
        """If this fails, a torn tail that nobody looked at counts as checked."""
        directory = LogDirectory.open(LOGS, machine=machine)
        for partition in (0, 1):
            append(directory.log("orders", partition), b"a")
        files = crashed(machine, directory)
        machine = Machine(files=files)
        files.make_directories(f"{LOGS}/remote-log-index-cache")
        files.make_directories(f"{LOGS}/__cluster_metadata-0")
        files.make_directories(f"{LOGS}/stray-0.{'0' * 32}-stray")
        files.make_directories(f"{LOGS}/lost+found")
        with LogDirectory.open(LOGS, machine=machine) as directory:
            directory.log("orders", 0)
        assert files.find(MARKER) is None
        with LogDirectory.open(LOGS, machine=machine) as directory:
            assert set(directory.load_logs()) == {("orders", 0), ("orders", 1)}
        assert files.find(MARKER) is not None

    def test_the_marker_tells_the_broker_epoch(self, machine: Machine) -> None:
        """If this fails, a controller cannot tell whether a broker lost data."""
        LogDirectory.open(LOGS, machine=machine).close(broker_epoch=42)
        directory = LogDirectory.open(LOGS, machine=machine)
        assert directory.last_stop == (True, 42)
        directory.close()
        machine.files.write_whole(MARKER, b"")  # of an older broker
        directory = LogDirectory.open(LOGS, machine=machine)
        assert directory.last_stop == (True, None)
        directory.close()
        directory.close()

    def test_a_crash_while_it_is_open_is_unclean(self, machine: Machine) -> None:
        """If this fails, a crash right after a start is taken for a clean stop."""
        LogDirectory.open(LOGS, machine=machine).close()
        files = crashed(machine, LogDirectory.open(LOGS, machine=machine))
        with LogDirectory.open(LOGS, machine=Machine(files=files)) as directory:
            assert not directory.last_stop.was_clean

    def test_after_its_end(self, machine: Machine) -> None:
        """If this fails, a log is opened in a directory that another process has by then."""
        directory = LogDirectory.open(LOGS, machine=machine)
        log = directory.log("orders", 0)
        directory.close()
        for call in (lambda: directory.log("orders", 0), directory.checkpoint, directory.load_logs):
            with pytest.raises(LogClosedError):
                call()
        with pytest.raises(LogClosedError):
            append(log, b"a")


class TestWhose:
    """One process, one broker."""

    def test_one_process(self, machine: Machine) -> None:
        """If this fails, two processes append to one log."""
        with (
            LogDirectory.open(LOGS, machine=machine),
            pytest.raises(StoreUnavailableError, match="has this log directory open"),
        ):
            LogDirectory.open(LOGS, machine=machine)
        LogDirectory.open(LOGS, machine=machine).close()

    def test_one_broker(self, machine: Machine) -> None:
        """If this fails, a broker takes another's logs for its own; a refusal must not keep the lock."""
        mine = DirectoryIdentity("cluster", 3)
        with LogDirectory.open(LOGS, machine=machine, identity=mine) as directory:
            written = directory.properties
            assert written is not None
            assert (written.cluster_id, written.node_id) == ("cluster", 3)
        with pytest.raises(ConfigError, match=r"node\.id is 3, not 4"):
            LogDirectory.open(LOGS, machine=machine, identity=DirectoryIdentity("cluster", 4))
        for identity in (mine, None):
            with LogDirectory.open(LOGS, machine=machine, identity=identity) as directory:
                assert directory.properties == written

    def test_a_fork_is_told(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a child hangs, or writes into its parent's logs."""
        with LogDirectory.open(str(tmp_path)) as directory:
            directory.log("orders", 0)
            told = told_by_fork(lambda: directory.log("orders", 1), directory.close)
            assert told[0].startswith("ForkedProcessError: the log directory ")
            assert told[1] == "None"
        assert (tmp_path / ".kafka_cleanshutdown").exists()


class TestLogs:
    """Which logs, and how they come and go."""

    def test_one_log_of_a_partition(self, machine: Machine) -> None:
        """If this fails, a partition has two writers, or another topic's data."""
        with LogDirectory.open(LOGS, machine=machine, config=SMALL) as directory:
            log = directory.log("orders", 0, topic_id=Uuid(b"1" * 16))
            assert directory.log("orders", 0) is log
            assert log.config == SMALL
            assert directory.log("orders", 1, config=LogConfig()).config == LogConfig()
            assert set(directory.logs) == {("orders", 0), ("orders", 1)}
            with pytest.raises(InconsistentTopicIdError):
                directory.log("orders", 0, topic_id=Uuid(b"2" * 16))
            append(log, b"a")
            log.close()
            assert set(directory.logs) == {("orders", 1)}
            again = directory.log("orders", 0)
            assert again is not log
            assert (again.log_end_offset, again.high_watermark) == (1, 1)
            assert not directory.is_offline

    @pytest.mark.parametrize(
        ("topic", "partition"), [("", 0), ("..", 0), ("../x", 0), ("a b", 0), ("a" * 250, 0), ("a", -1), ("a", 2**31)]
    )
    def test_what_kafka_has_no_topic_of(self, machine: Machine, topic: str, partition: int) -> None:
        """If this fails, a topic's name leads out of the directory."""
        with LogDirectory.open(LOGS, machine=machine) as directory, pytest.raises(ConfigError):
            directory.log(topic, partition)

    def test_deleting(self) -> None:
        """If this fails, a deleted topic comes back, or one that was made anew has old records."""
        machine, scheduler = ManualScheduler.machine(seed=1)
        with scheduler, LogDirectory.open(LOGS, machine=machine, config=SMALL) as directory:
            append(directory.log("orders", 0), b"a")
            directory.checkpoint()
            assert not directory.delete_log("orders", 7)
            assert directory.delete_log("orders", 0)
            assert text(machine.files, RECOVERY_POINTS) == "0\n0\n"
            assert directory.log("orders", 0).log_end_offset == 0
            gone = [each.path for each in machine.files.iter_directory(LOGS) if each.name.endswith("-delete")]
            assert len(gone) == 1
            machine.clock.sleep(2)
            assert machine.files.find(gone[0]) is None
            assert machine.files.find(f"{LOGS}/orders-0") is not None

    def test_a_deletion_that_was_interrupted_ends(self, machine: Machine) -> None:
        """If this fails, a disk fills with logs that were deleted before a restart."""
        directory = LogDirectory.open(LOGS, machine=machine)
        append(directory.log("a" * 249, 0), b"a")
        directory.delete_log("a" * 249, 0)
        directory.close()
        names = [each.name for each in machine.files.iter_directory(LOGS) if each.is_directory]
        assert len(names) == 1
        assert len(names[0]) == 255
        LogDirectory.open(LOGS, machine=machine, runs_tasks=False).close()
        assert [each.name for each in machine.files.iter_directory(LOGS) if each.is_directory] == []

    @pytest.mark.parametrize("name", [LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS])
    def test_a_deletion_whose_checkpoints_were_not_written(self, machine: Machine, name: str) -> None:
        """If this fails, a topic that is made anew behind a crash begins where the deleted one did: a follower passes
        over its first records, and leads without them.
        """
        LogDirectory.open(LOGS, machine=machine, runs_tasks=False).close()
        left = b"0\n2\nbills 0 57\norders 0 57\n"
        machine.files.write_whole(f"{LOGS}/{name}", left)
        machine.files.make_directories(f"{LOGS}/bills-0")
        with LogDirectory.open(LOGS, machine=machine, runs_tasks=False) as directory:
            assert text(machine.files, name) == "0\n1\nbills 0 57\n"
            log = directory.log("orders", 0)
            assert (log.log_start_offset, log.recovery_point, log.high_watermark, log.log_end_offset) == (0, 0, 0, 0)
            assert directory.cleaner_manager.cleaner_offset(("orders", 0)) is None

    @pytest.mark.parametrize("seed", range(10))
    def test_several_at_a_time(self, seed: int) -> None:
        """If this fails, two loads of one partition make two logs, or a start takes as long as all loads together."""
        machine, scheduler = ManualScheduler.machine(seed)
        with scheduler:
            with LogDirectory.open(LOGS, machine=machine) as directory:
                for partition in range(5):
                    append(directory.log("orders", partition), b"x" * partition)
            with LogDirectory.open(LOGS, machine=machine) as directory:
                found: list[UnifiedLog] = []
                calls = [
                    machine.scheduler.start(lambda: found.append(directory.log("orders", 3)), name=f"t{n}")
                    for n in range(3)
                ]
                assert len(directory.load_logs()) == 5
                for call in calls:
                    call.result()
                assert set(found) == {directory.log("orders", 3)}

    @pytest.mark.parametrize("seed", range(30))
    def test_everything_at_once(self, seed: int) -> None:
        """If this fails, two threads that load, delete and checkpoint wait for each other, or share a folder."""
        machine, scheduler = ManualScheduler.machine(seed)

        def use(number: int) -> None:
            for step in range(4):
                with contextlib.suppress(LogClosedError):
                    log = directory.log("orders", (number + step) % 2)
                    append(log, b"x" * 150)
                    if number == 0:
                        directory.delete_log(log.topic, log.partition)
                    (directory.checkpoint if number == 1 else log.flush)()

        with scheduler:
            directory = LogDirectory.open(LOGS, machine=machine, config=SMALL)
            calls = [machine.scheduler.start(lambda n=n: use(n), name=f"t{n}") for n in range(3)]  # type: ignore[misc]
            machine.clock.sleep(0.001 * (seed % 3))
            directory.close()
            for call in calls:
                call.result()
            assert scheduler.unfinished == []
            assert not directory.is_offline
            with LogDirectory.open(LOGS, machine=machine, config=SMALL) as directory:
                assert directory.last_stop.was_clean
                for key, log in directory.load_logs().items():
                    assert log.recovery_report.batches_checked == 0, key


class TestCheckpoints:
    """What is written of the logs."""

    def test_logs_that_are_not_open_keep_their_lines(self, machine: Machine) -> None:
        """If this fails, a log that nobody used today is read from its start tomorrow."""
        for folder in ("z-0", "a-1"):
            machine.files.make_directories(f"{LOGS}/{folder}")
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
            machine.files.write_whole(f"{LOGS}/{name}", b"0\n2\nz 0 5\na 1 6\n")
        with LogDirectory.open(LOGS, machine=machine) as directory:
            append(directory.log("m", 0), b"a")
            directory.checkpoint()
            assert text(machine.files, HIGH_WATERMARKS) == "0\n3\nz 0 5\na 1 6\nm 0 1\n"
        assert text(machine.files, RECOVERY_POINTS) == "0\n3\nz 0 5\na 1 6\nm 0 1\n"
        assert text(machine.files, LOG_STARTS) == "0\n2\nz 0 5\na 1 6\n"

    def test_a_start_that_the_first_segment_does_not_tell(self, machine: Machine) -> None:
        """If this fails, deleted records are back after a restart."""
        with LogDirectory.open(LOGS, machine=machine, remote_log_enabled=True) as directory:
            log = directory.log("orders", 0)
            append(log, b"a", b"b", b"c")
            log.maybe_increment_log_start_offset(2, "a test")
            directory.log("tiered", 0, config=LogConfig(remote_storage_enable=True))
        assert text(machine.files, LOG_STARTS) == "0\n2\norders 0 2\ntiered 0 0\n"
        with LogDirectory.open(LOGS, machine=machine) as directory:
            assert directory.log("orders", 0).log_start_offset == 2

    def test_malformed_ones_count_as_empty(self, machine: Machine) -> None:
        """If this fails, a broken checkpoint keeps a directory closed that Kafka opens."""
        with LogDirectory.open(LOGS, machine=machine) as directory:
            append(directory.log("orders", 0), b"a")
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
            machine.files.write_whole(f"{LOGS}/{name}", b"0\n7\nx\n")
        with LogDirectory.open(LOGS, machine=machine) as directory:
            assert directory.log("orders", 0).log_end_offset == 1
        assert text(machine.files, RECOVERY_POINTS) == "0\n1\norders 0 1\n"
        assert text(machine.files, LOG_STARTS) == "0\n0\n"

    def test_a_new_directory_knows_that_nothing_was_flushed(self, machine: Machine) -> None:
        """If this fails, the first power cut of a new directory may leave a log with a hole."""
        directory = LogDirectory.open(LOGS, machine=machine)
        assert text(machine.files, RECOVERY_POINTS) == "0\n0\n"
        files = crashed(machine, directory)
        assert text(files, RECOVERY_POINTS) == "0\n0\n"
        put_hole(files, "orders-0")
        with LogDirectory.open(LOGS, machine=Machine(files=files)) as directory:
            assert directory.log("orders", 0).log_end_offset == 1

    @pytest.mark.parametrize("lost", [None, b"0\n7\nx\n"], ids=["missing", "malformed"])
    def test_lost_recovery_points_cost_nothing_behind_a_hole(self, machine: Machine, lost: bytes | None) -> None:
        """If this fails, a lost file, or one that is written anew too early, deletes records that were flushed: those
        of the log that is open, of another one, or after a second crash.
        """
        for partition in range(2):
            put_hole(machine.files, f"orders-{partition}")
        if lost is not None:
            machine.files.write_whole(f"{LOGS}/{RECOVERY_POINTS}", lost)
        directory = LogDirectory.open(LOGS, machine=machine, runs_tasks=False)
        assert directory.log("orders", 0).log_end_offset == 6
        assert directory.log("bills", 0).log_end_offset == 0
        directory.delete_log("bills", 0)
        directory.checkpoint()
        files = crashed(machine, directory)
        assert (text(files, RECOVERY_POINTS).encode() if files.find(f"{LOGS}/{RECOVERY_POINTS}") else None) == lost
        machine = Machine(files=files)
        directory = LogDirectory.open(LOGS, machine=machine, runs_tasks=False)
        assert {log.log_end_offset for log in directory.load_logs().values()} == {6}
        directory.checkpoint()
        files = crashed(machine, directory)
        lines = text(files, RECOVERY_POINTS).splitlines()
        assert (lines[:2], sorted(lines[2:])) == (["0", "2"], ["orders 0 6", "orders 1 6"])  # as the logs were loaded
        with LogDirectory.open(LOGS, machine=Machine(files=files)) as directory:
            assert {log.log_end_offset for log in directory.load_logs().values()} == {6}

    def test_lost_recovery_points_of_logs_that_are_deleted(self, machine: Machine) -> None:
        """If this fails, one deleted log keeps the others' recovery points from ever being written again."""
        put_hole(machine.files, "orders-0")
        with LogDirectory.open(LOGS, machine=machine, runs_tasks=False) as directory:
            append(directory.log("bills", 0), b"a")
            assert machine.files.find(f"{LOGS}/{RECOVERY_POINTS}") is None
            directory.delete_log("orders", 0)
            directory.log("bills", 0).flush()
            directory.checkpoint()
            assert text(machine.files, RECOVERY_POINTS) == "0\n1\nbills 0 1\n"

    def test_a_truncation_lowers_the_recovery_point(self, machine: Machine) -> None:
        """If this fails, a crash after a truncation leaves records unread that were never flushed."""
        with LogDirectory.open(LOGS, machine=machine, runs_tasks=False) as directory:
            log = directory.log("orders", 0)
            for value in (b"a", b"b", b"c"):
                append(log, value)
            log.flush()
            directory.checkpoint()
            assert text(machine.files, RECOVERY_POINTS) == "0\n1\norders 0 3\n"
            log.truncate_to(2)
            assert text(machine.files, RECOVERY_POINTS) == "0\n1\norders 0 2\n"
            log.truncate_fully_and_start_at(1)
            assert text(machine.files, RECOVERY_POINTS) == "0\n1\norders 0 1\n"

    @pytest.mark.parametrize("seed", range(20))
    def test_a_crash_after_a_truncation(self, seed: int) -> None:
        """If this fails, what was appended after a truncation, and torn by a crash, is believed unread."""
        files = MemoryFiles()
        with ManualScheduler(seed, switch_rate=0.0) as scheduler:  # nothing that is left for later is done yet
            machine = Machine(scheduler.clock, SeededRng(seed), scheduler, files)
            directory = LogDirectory.open(LOGS, machine=machine, config=SMALL)
            log = directory.log("orders", 0)
            for number in range(12):
                append(log, b"old %d" % number + b"x" * 60)
            log.flush()
            directory.checkpoint()
            log.truncate_to(2)
            for number in range(12):
                append(log, b"new %d" % number + b"x" * 60)
            files = files.crash(SeededRng(seed))
        with LogDirectory.open(LOGS, machine=Machine(files=files), config=SMALL, runs_tasks=False) as directory:
            log, at = directory.log("orders", 0), 0
            while at < log.log_end_offset:
                found = next(iter(log.read(at, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END).records), None)
                if found is None:
                    break
                at = decode(found.read(), from_offset=at)["offset"][-1].as_py() + 1
            assert at >= 2


class TestByItself:
    """The periodic work, by Kafka's intervals."""

    def test_retention_flushes_and_checkpoints(self) -> None:
        """If this fails, a disk fills, or a crash costs more than the intervals promise."""
        machine, scheduler = ManualScheduler.machine(seed=3)
        config = LogConfig(segment_bytes=300, retention_ms=60_000, flush_ms=5_000, file_delete_delay_ms=1_000)
        intervals = LogDirectoryConfig(
            log_flush_scheduler_interval_ms=10_000, log_initial_task_delay_ms=1_000, producer_id_expiration_ms=50_000
        )
        with (
            scheduler,
            LogDirectory.open(LOGS, machine=machine, config=config, directory_config=intervals) as directory,
        ):
            log = directory.log("orders", 0)
            for _ in range(4):
                append(log, b"x" * 150, timestamp_ms=machine.clock.time_ms())
            machine.clock.sleep(6)
            assert text(machine.files, HIGH_WATERMARKS) == "0\n1\norders 0 4\n"
            machine.clock.sleep(6)
            assert log.recovery_point == 4
            machine.clock.sleep(50)
            assert text(machine.files, RECOVERY_POINTS) == "0\n1\norders 0 4\n"
            machine.clock.sleep(320)
            assert log.log_start_offset == 4
            names = [each.name for each in machine.files.iter_directory(log.folder)]
            assert not [name for name in names if name.endswith(".deleted")]
            assert text(machine.files, LOG_STARTS) == "0\n0\n"

    def test_nothing_stays(self) -> None:
        """If this fails, a closed directory goes on writing."""
        machine, scheduler = ManualScheduler.machine(seed=3)
        with scheduler:
            with LogDirectory.open(LOGS, machine=machine) as directory:
                directory.log("orders", 0)
                machine.clock.sleep(100)
            assert scheduler.unfinished == []


class TestFailures:
    """One disk, one fate."""

    def test_one_log_takes_all_offline(self, machine: Machine) -> None:
        """If this fails, a broker goes on with a disk of which it knows that it fails, or marks it clean."""
        directory = LogDirectory.open(LOGS, machine=machine)
        broken, other = directory.log("orders", 0), directory.log("orders", 1)
        append(broken, b"a")
        broken.take_offline(StoreError("the disk is broken"))
        assert directory.is_offline
        for call in (
            lambda: append(other, b"a"),
            lambda: directory.log("orders", 2),
            directory.checkpoint,
            directory.load_logs,
            lambda: directory.delete_log("orders", 1),
        ):
            with pytest.raises(LogOfflineError, match="the disk is broken"):
                call()
        directory.close()
        assert machine.files.find(MARKER) is None
        with LogDirectory.open(LOGS, machine=machine) as directory:  # the cause is gone
            directory.load_logs()
        assert machine.files.find(MARKER) is not None

    def test_a_full_disk_at_a_checkpoint(self) -> None:
        """If this fails, a stop that could not be written down counts as clean."""
        files = MemoryFiles(capacity_bytes=100_000)
        directory = LogDirectory.open(LOGS, machine=Machine(files=files))
        directory.log("orders", 0)
        with files.open_update("/filler") as filler:
            filler.append(bytes(files.free_bytes("/")))
        with pytest.raises(LogOfflineError, match=r"[Nn]o space left"):
            directory.checkpoint()
        assert directory.is_offline
        directory.close()
        files.remove("/filler")
        assert files.find(MARKER) is None
        LogDirectory.open(LOGS, machine=Machine(files=files)).close()

    def test_closing_that_fails_frees_the_lock(self) -> None:
        """If this fails, a failed stop needs a restart of the machine."""
        files = MemoryFiles(capacity_bytes=100_000)
        directory = LogDirectory.open(LOGS, machine=Machine(files=files))
        directory.log("orders", 0)
        with files.open_update("/filler") as filler:
            filler.append(bytes(files.free_bytes("/")))
        with pytest.raises(LogOfflineError):
            directory.close()
        files.remove("/filler")
        assert files.find(MARKER) is None
        LogDirectory.open(LOGS, machine=Machine(files=files)).close()

    def test_a_log_that_cannot_be_loaded(self, machine: Machine) -> None:
        """If this fails, what Kafka takes offline is served with a lineage that nobody can read."""
        with LogDirectory.open(LOGS, machine=machine) as directory:
            append(directory.log("orders", 0), b"a")
        machine.files.write_whole(f"{LOGS}/orders-0/leader-epoch-checkpoint", b"garbage")
        directory = LogDirectory.open(LOGS, machine=machine)
        with pytest.raises(LogOfflineError, match="leader-epoch-checkpoint"):
            directory.log("orders", 0)
        assert directory.is_offline
        directory.close()


def test_what_brokers_left(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a real broker's directory is refused here, or its checkpoints are others after a stop of ours."""
    found = sorted(path.parent for path in fixtures.glob("*/*/meta.properties"))
    if not found:
        pytest.skip("the full golden data have them")
    for number, source in enumerate(found):
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = {name: (folder / name).read_bytes() for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)}
        with LogDirectory.open(str(folder)) as directory:
            assert directory.properties is not None
            directory.checkpoint()
            assert {name: (folder / name).read_bytes() for name in before} == before
            logs = directory.load_logs()
            assert logs
        if source.name == "broker-after-stop":
            after = dict(line.rsplit(" ", 1) for line in (folder / RECOVERY_POINTS).read_text().splitlines()[2:])
            stopped = dict(line.rsplit(" ", 1) for line in before[RECOVERY_POINTS].decode().splitlines()[2:])
            assert {name: after[name] for name in stopped if name in after} == stopped
        shutil.rmtree(folder)
