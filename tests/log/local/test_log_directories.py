"""LogDirectories: several disks of one broker, which logs lie where, and what one failing disk costs."""

from __future__ import annotations

import contextlib
import errno
import gc
import pathlib

import pytest

from tests.support.living_logs import batch_of
from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.identity_files import MetaProperties, Uuid, encode_meta_properties, parse_meta_properties
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN, META_PROPERTIES, RECOVERY_POINTS
from tierlog.log.local.directory.directory_files import DirectoryIdentity
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import DirectoryInUseError, LogClosedError, LogOfflineError
from tierlog.log.local.log_metrics import LogDirectoriesMetrics
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing import FailingDisk

PATHS = ["/a", "/b", "/c"]
MINE = DirectoryIdentity("cluster", 3)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def machine(files: MemoryFiles) -> Machine:
    return Machine(files=files)


def append(log: UnifiedLog, *values: bytes) -> None:
    log.append_as_leader(batch_of(*values), leader_epoch=0)


def changed_beside_a_move(seed: int, config: LogConfig, *, is_end: bool) -> list[UnifiedLog]:
    """Change a topic's configuration while the move of its log begins, or ends; the log, and its future one."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, LogDirectories.open(PATHS, machine=machine, runs_tasks=False) as directories:
        assert directories.log("orders", 0).parent_dir == "/a"

        def begin() -> None:
            directories.begin_move("orders", 0, "/b")

        def end() -> None:
            assert directories.finish_move("orders", 0) is not None

        if is_end:
            begin()
        move = scheduler.start(end if is_end else begin, name="mover")
        change = scheduler.start(lambda: directories.update_config("orders", config), name="metadata")
        move.result()
        change.result()
        logs = [*directories.logs.values(), *directories.future_logs.values()]
        directories.cancel_move("orders", 0)  # ends the pause of its cleaning while there are tasks
        return logs


def properties(files: MemoryFiles, path: str) -> MetaProperties:
    return parse_meta_properties(files.read_whole(f"{path}/{META_PROPERTIES}"))


def put_properties(files: MemoryFiles, path: str, found: MetaProperties) -> None:
    files.make_directories(path)
    files.write_whole(f"{path}/{META_PROPERTIES}", encode_meta_properties(found, written_ms=0))


class TestOwner:
    """One broker's directories, and no other's."""

    def test_new_directories_get_an_id_each(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a controller cannot tell on which disk a partition lies."""
        with LogDirectories.open(PATHS, machine=machine, identity=MINE):
            pass
        found = [properties(files, path) for path in PATHS]
        assert {(each.cluster_id, each.node_id) for each in found} == {("cluster", 3)}
        ids = [each.directory_id for each in found]
        assert None not in ids
        assert len(set(ids)) == 3
        with LogDirectories.open(PATHS, machine=machine) as directories:
            assert [each.properties for each in directories.online] == found
            assert ids[1] is not None
            assert directories.directory_of(ids[1]) is directories.online[1]
            assert directories.directory_of(Uuid(b"x" * 16)) is None

    def test_a_directory_that_was_added_takes_the_others_owner(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a disk that replaced a broken one stays nobody's, and its id is lost at each start."""
        put_properties(files, "/a", MetaProperties("cluster", 3, None))
        LogDirectories.open(PATHS, machine=machine).close()
        assert properties(files, "/c").node_id == 3
        assert properties(files, "/a").directory_id is not None
        assert properties(files, "/a").directory_id != properties(files, "/c").directory_id

    @pytest.mark.parametrize(
        ("second", "text"),
        [
            (MetaProperties("other", 3, None), r"Invalid cluster\.id in: /b/meta\.properties"),
            (MetaProperties("cluster", 4, None), "Stored node id 4 doesn't match previous node id 3"),
            (MetaProperties("cluster", 3, Uuid(b"1" * 16)), "Duplicate directory ID"),
            (MetaProperties("cluster", 3, Uuid(bytes(15) + b"\x01")), "Invalid reserved directory ID"),
        ],
    )
    def test_two_owners(self, files: MemoryFiles, machine: Machine, second: MetaProperties, text: str) -> None:
        """If this fails, a broker serves a disk that was pulled out of another one."""
        put_properties(files, "/a", MetaProperties("cluster", 3, Uuid(b"1" * 16)))
        put_properties(files, "/b", second)
        before = files.read_whole(f"/b/{META_PROPERTIES}")
        with pytest.raises(ConfigError, match=text):
            LogDirectories.open(PATHS, machine=machine)
        assert files.read_whole(f"/b/{META_PROPERTIES}") == before
        assert files.find("/c") is None

    def test_anothers_directories(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a broker with a wrong node.id takes over its neighbour's logs."""
        put_properties(files, "/a", MetaProperties("cluster", 4, None))
        with pytest.raises(ConfigError, match="Stored node id 4"):
            LogDirectories.open(PATHS, machine=machine, identity=MINE)

    def test_one_process(self, machine: Machine) -> None:
        """If this fails, two processes write into one log, or a refusal keeps the locks of the others."""
        with (
            LogDirectory.open("/b", machine=machine),
            pytest.raises(DirectoryInUseError, match="/b: a broker"),
        ):
            LogDirectories.open(PATHS, machine=machine)
        LogDirectories.open(PATHS, machine=machine).close()

    @pytest.mark.parametrize("paths", [[], ["/a", "/a/"], ["/a", "/x/../a"]])
    def test_paths_that_are_none(self, machine: Machine, paths: list[str]) -> None:
        """If this fails, one disk counts as two."""
        with pytest.raises(ConfigError, match="log directory"):
            LogDirectories.open(paths, machine=machine)


class TestPlaces:
    """In which directory a log lies."""

    def test_a_new_log_goes_where_the_fewest_are(self, machine: Machine) -> None:
        """If this fails, one disk fills while the others are empty."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            for partition in range(7):
                directories.log("orders", partition)
            counts = [len(each.logs) for each in directories.online]
            assert sorted(counts) == [2, 2, 3]
            assert len(directories.logs) == 7
            again = {key: directories.log(*key) for key in directories.logs}
            assert again == directories.logs

    def test_a_log_that_is_assigned(self, machine: Machine) -> None:
        """If this fails, a partition is not on the disk that its operator or the controller chose."""
        with LogDirectories.open(PATHS, machine=machine, identity=MINE) as directories:
            third = directories.online[2]
            assert third.properties is not None
            for partition in range(3):
                log = directories.log("orders", partition, directory_id=third.properties.directory_id)
                assert log.parent_dir == "/c"
            with pytest.raises(ConfigError, match="no log directory that works has the id"):
                directories.log("orders", 9, directory_id=Uuid(b"x" * 16))

    def test_a_log_in_two_directories(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, which of two logs is served is a matter of luck; a refused start leaves the disks clean."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            append(directories.log("orders", 0), b"a")
        for path in ("/b", "/c"):
            files.make_directories(f"{path}/orders-0")
        with pytest.raises(ConfigError, match="Duplicate log directories for orders-0 are found in both /a and /b"):
            LogDirectories.open(PATHS, machine=machine)
        assert all(files.find(f"{path}/{CLEAN_SHUTDOWN}") is not None for path in PATHS)
        files.make_directories(f"/b/bills-0.{'0' * 32}-future")
        files.make_directories(f"/b/bills-0.{'1' * 32}-future")
        with pytest.raises(ConfigError, match="Duplicate log directories found: "):
            LogDirectories.open(["/b"], machine=machine)

    def test_all_are_loaded_beside_each_other(self) -> None:
        """If this fails, a start takes as long as all disks together, or loses a log."""
        machine, scheduler = ManualScheduler.machine(seed=4)
        with scheduler:
            with LogDirectories.open(PATHS, machine=machine) as directories:
                for partition in range(9):
                    append(directories.log("orders", partition), b"x" * partition)
            with LogDirectories.open(PATHS, machine=machine) as directories:
                found = directories.load_logs(configs={"orders": LogConfig(segment_bytes=300)})
                assert set(found) == {("orders", partition) for partition in range(9)}
                assert {log.config.segment_bytes for log in found.values()} == {300}
                assert {log.recovery_report.batches_checked for log in found.values()} == {0}
            assert scheduler.unfinished == []

    def test_deleting(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a deleted topic stays on one of the disks."""
        with LogDirectories.open(PATHS, machine=machine, runs_tasks=False) as directories:
            log = directories.log("orders", 0)
            assert directories.delete_log("orders", 0)
            assert not directories.delete_log("orders", 0)
            assert files.find(log.folder) is None
            assert directories.logs == {}
            assert directories.log("orders", 0).log_end_offset == 0

    def test_a_changed_configuration(self, machine: Machine) -> None:
        """If this fails, retention of a topic goes by what it was at the start."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            logs = [directories.log("orders", 0), directories.log("orders", 1), directories.log("bills", 0)]
            directories.update_config("orders", LogConfig(retention_ms=7))
            assert [log.config.retention_ms == 7 for log in logs] == [True, True, False]

    @pytest.mark.parametrize("is_end", [False, True])
    def test_a_configuration_that_changes_while_a_log_moves(self, is_end: bool) -> None:
        """If this fails, retention of a log that has moved goes by what it was before, until the topic's next change;
        or the change ends with an error, and the topic's other logs miss it.
        """
        config = LogConfig(retention_ms=7)
        for seed in range(20):
            logs = changed_beside_a_move(seed, config, is_end=is_end)
            assert [each.config for each in logs] == [config] * (1 if is_end else 2)


class TestStops:
    """Each directory was closed cleanly, or was not."""

    def test_a_clean_stop(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, each start reads all logs again."""
        directories = LogDirectories.open(PATHS, machine=machine)
        for partition in range(3):
            append(directories.log("orders", partition), b"a")
        directories.close(broker_epoch=9)
        for path in PATHS:
            assert b'"brokerEpoch":9' in files.read_whole(f"{path}/{CLEAN_SHUTDOWN}")
            assert files.read_whole(f"{path}/{RECOVERY_POINTS}").startswith(b"0\n1\norders ")
        directories.close()
        for call in (lambda: directories.log("orders", 0), lambda: directories.log("orders", 5)):
            with pytest.raises(LogClosedError):
                call()

    def test_a_power_cut(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a crash is taken for a clean stop on one of the disks."""
        directories = LogDirectories.open(PATHS, machine=machine)
        for partition in range(3):
            append(directories.log("orders", partition), b"a")
        left = files.crash()
        with pytest.raises(LogOfflineError):
            directories.close()
        with LogDirectories.open(PATHS, machine=Machine(files=left)) as directories:
            assert [each.last_stop.was_clean for each in directories.online] == [False] * 3
            assert len(directories.load_logs()) == 3


class TestFailures:
    """One disk that fails, and the others."""

    def test_a_directory_that_cannot_be_opened(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, one broken disk keeps a broker from starting, or hides a partition behind an empty new log."""
        with LogDirectories.open(PATHS, machine=machine, identity=MINE) as directories:
            for partition in range(3):
                append(directories.log("orders", partition), b"a")
        told: list[str] = []
        with FailingDisk(files, errno.EIO, at=1, kinds=set(DiskOperation), inside="/b", lasting=True):
            directories = LogDirectories.open(PATHS, machine=machine, identity=MINE, on_offline=told.append)
            assert told == ["/b"]
            assert [each.path for each in directories.online] == ["/a", "/c"]
            assert list(directories.offline) == ["/b"]
            directories.cordoned = ["/a"]
            found = LogDirectoriesMetrics(directories).registry.get_sample_value
            offline = [found("tierlog_log_log_directory_offline", {"log_directory": path}) for path in PATHS]
            assert offline == [0, 1, 0]
            assert found("tierlog_log_offline_log_directory_count") == 1
            assert found("tierlog_log_cordoned_log_directory_count") == 1
            directories.cordoned = ()
            assert len(directories.load_logs()) == 2
            with pytest.raises(LogOfflineError, match=r"Can not create log for orders-7 .* /b are offline"):
                directories.log("orders", 7)
            assert directories.log("orders", 7, is_new=True).parent_dir in ("/a", "/c")
            with pytest.raises(LogOfflineError, match="/b: the log directory is offline"):
                directories.directory("/b")
            with pytest.raises(ConfigError, match="Log dir /d is not found"):
                directories.directory("/d")
            directories.close()
        assert files.find(f"/a/{CLEAN_SHUTDOWN}") is not None
        with LogDirectories.open(PATHS, machine=machine, identity=MINE) as directories:
            assert len(directories.load_logs()) == 4

    @pytest.mark.parametrize("content", [b"version=7\n", b"", b"\xff\xfe", b"version=1\nnode.id=3\n"])
    def test_properties_that_cannot_be_read(self, files: MemoryFiles, machine: Machine, content: bytes) -> None:
        """If this fails, a torn meta.properties takes the broker down, or is overwritten."""
        files.make_directories("/b")
        files.write_whole(f"/b/{META_PROPERTIES}", content)
        with LogDirectories.open(PATHS, machine=machine, identity=MINE) as directories:
            assert list(directories.offline) == ["/b"]
        assert files.read_whole(f"/b/{META_PROPERTIES}") == content

    def test_a_directory_that_fails_later(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, one broken disk takes the partitions of all others offline."""
        told: list[str] = []
        directories = LogDirectories.open(PATHS, machine=machine, on_offline=told.append)
        logs = {directories.log("orders", each).parent_dir: directories.log("orders", each) for each in range(3)}
        with FailingDisk(files, errno.EIO, at=1, inside="/b", lasting=True):
            with pytest.raises(LogOfflineError):
                append(logs["/b"], b"a")
            assert told == ["/b"]
            assert set(directories.logs) == {(log.topic, log.partition) for at, log in logs.items() if at != "/b"}
            with pytest.raises(LogOfflineError):
                directories.log("orders", logs["/b"].partition)
            append(logs["/a"], b"a")
            directories.checkpoint()
            directories.close()
        assert [files.find(f"{path}/{CLEAN_SHUTDOWN}") is not None for path in PATHS] == [True, False, True]

    @pytest.mark.parametrize("path", [None, "/a", "/c"])
    def test_a_move_into_a_directory_that_fails(self, machine: Machine, path: str | None) -> None:
        """If this fails, the log that was to move is neither retained nor compacted until the next start, and fills the
        disk that is left.
        """
        config = LogConfig(segment_bytes=200, retention_bytes=0, file_delete_delay_ms=0)
        with LogDirectories.open(PATHS, machine=machine, config=config, runs_tasks=False) as directories:
            log = directories.log("orders", 0)
            for _ in range(5):
                append(log, b"x" * 100)
            assert directories.begin_move("orders", 0, "/b") is not None
            directories.directory("/b").take_offline(StoreError("the disk is broken"))
            if path is None:
                assert not directories.cancel_move("orders", 0)
            elif path == log.parent_dir:
                assert directories.begin_move("orders", 0, path) is None
            else:
                with pytest.raises(LogOfflineError, match="directories /b are offline"):
                    directories.begin_move("orders", 0, path)
            directories.directory("/a").cleaner_manager.retain(log)
            assert len(log.log_segments()) == 1

    def test_a_temporary_file_of_a_crash_goes(self, files: MemoryFiles, machine: Machine) -> None:
        """Where no log lies any more nothing would write the checkpoint again, and replace it."""
        LogDirectories.open(PATHS, machine=machine).close()
        files.put(f"/a/{RECOVERY_POINTS}.tierlog-part", b"half")
        LogDirectories.open(PATHS, machine=machine).close()
        assert files.find(f"/a/{RECOVERY_POINTS}.tierlog-part") is None

    def test_no_file_stays_open_of_a_directory_that_failed(self, files: MemoryFiles, machine: Machine) -> None:
        """The error is kept as long as the directories are: if it keeps its frames too, they hold the file."""
        directories = LogDirectories.open(PATHS[:1], machine=machine)
        log = directories.log("orders", 0)
        append(log, b"a")
        with FailingDisk(files, errno.EIO, at=1, kinds={DiskOperation.FSYNC}, lasting=True):
            with pytest.raises(LogOfflineError):
                log.flush()
            directories.close()
        gc.collect()
        assert list(directories.offline) == PATHS[:1]
        assert files.open_paths() == []

    def test_segments_that_could_not_be_renamed_are_closed(self, files: MemoryFiles, machine: Machine) -> None:
        """They are none of the log's any more, whose files are closed with it, nor removed later (seed 140142)."""
        config = LogConfig(segment_bytes=200, retention_bytes=0)
        directories = LogDirectories.open(PATHS[:1], machine=machine, config=config)
        log = directories.log("orders", 0)
        for _ in range(10):
            append(log, b"a" * 50)
        log.update_high_watermark(10)
        assert len(log.log_segments()) > 3
        with FailingDisk(files, errno.EIO, at=2, kinds={DiskOperation.RENAME}, lasting=True):
            with pytest.raises(LogOfflineError):
                log.delete_old_segments()
            directories.close()
        gc.collect()
        assert log.is_closed
        assert files.open_paths() == []

    def test_a_log_that_cannot_be_loaded(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a damaged log takes more than its disk offline."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            places = {each: directories.log("orders", each).parent_dir for each in range(6)}
        broken = places[0]
        with FailingDisk(
            files, errno.EIO, at=1, kinds={DiskOperation.READ}, inside=f"{broken}/orders-0/", lasting=True
        ):
            for name in ("leader-epoch-checkpoint", "00000000000000000000.snapshot"):
                files.put(f"{broken}/orders-0/{name}", b"0\n0\n")
            directories = LogDirectories.open(PATHS, machine=machine)
            found = directories.load_logs()
            assert list(directories.offline) == [broken]
            assert {partition for _, partition in found} == {each for each, path in places.items() if path != broken}
            directories.close()

    def test_all_fail(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a broker without a disk goes on, and answers with nothing."""
        with (
            FailingDisk(files, errno.EIO, at=1, kinds=set(DiskOperation), lasting=True),
            pytest.raises(LogOfflineError, match="all log directories in /a, /b, /c have failed"),
        ):
            LogDirectories.open(PATHS, machine=machine)
        directories = LogDirectories.open(PATHS, machine=machine)
        for each in directories.online:
            each.take_offline(StoreError("gone"))
        for call in (lambda: directories.log("orders", 0, is_new=True), directories.load_logs):
            with pytest.raises(LogOfflineError, match="all log directories"):
                call()
        directories.close()

    def test_a_new_log_when_the_emptiest_disk_fails(self, files: MemoryFiles, machine: Machine) -> None:
        """If this fails, a topic cannot be made because of one disk."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            for partition in range(2):
                directories.log("orders", partition)
            emptiest = min(directories.online, key=lambda each: each.log_count).path
            with FailingDisk(files, errno.EIO, at=1, inside=emptiest, lasting=True):
                assert directories.log("orders", 2, is_new=True).parent_dir != emptiest
            assert list(directories.offline) == [emptiest]


class TestDescriptions:
    """DescribeLogDirs."""

    def test_what_lies_where(self, machine: Machine) -> None:
        """If this fails, kafka-log-dirs shows other sizes than the disks have."""
        with LogDirectories.open(PATHS, machine=machine) as directories:
            log = directories.log("orders", 0)
            append(log, b"x" * 100)
            directories.online[1].take_offline(StoreError("gone"))
            first, second, third = directories.describe()
            assert [each.path for each in (first, second, third)] == PATHS
            assert str(second.error) == "gone"
            assert (second.logs, second.total_bytes, second.usable_bytes) == ((), -1, -1)
            (found,) = first.logs + third.logs
            assert (found.topic, found.partition, found.size_bytes) == ("orders", 0, log.size())
            assert (found.offset_lag, found.is_future) == (0, False)
            assert first.total_bytes >= first.usable_bytes > 0

    def test_on_a_real_disk(self, tmp_path: pathlib.Path) -> None:
        """If this fails, the simulated disk is the only one that tells its size."""
        paths = [str(tmp_path / name) for name in "ab"]
        with LogDirectories.open(paths) as directories:
            append(directories.log("orders", 0), b"a")
            for each in directories.describe():
                assert each.total_bytes > each.usable_bytes > 0
        with LogDirectories.open(paths) as directories, contextlib.suppress(LogOfflineError):
            assert directories.load_logs()["orders", 0].log_end_offset == 1
