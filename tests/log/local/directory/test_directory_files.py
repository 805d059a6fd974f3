"""Whose a log directory is."""

from __future__ import annotations

import errno

import pytest

from tierlog.errors import ConfigError, CorruptIndexError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.log.formats.identity_files import MetaProperties, Uuid
from tierlog.log.formats.segment_files import RECOVERY_POINTS
from tierlog.log.local.directory.directory_files import (
    DirectoryIdentity,
    KeptCheckpoint,
    OffsetCheckpointFile,
    check_identity,
    read_identity,
    write_identity,
)
from tierlog.log.local.log_folder import lock_directory
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing import FailingDisk


def test_another_brokers_directory_is_refused() -> None:
    """Else two brokers' logs of one partition are taken for one."""
    machine, _ = ManualScheduler.machine(seed=1)
    files = machine.files
    files.make_directories("/logs")
    mine = DirectoryIdentity("cluster", 3)
    assert check_identity(files, "/logs", mine) is None
    written = write_identity(machine, "/logs", mine)
    assert read_identity(files, "/logs") == written
    assert written.directory_id is not None
    assert check_identity(files, "/logs", mine) == written
    assert check_identity(files, "/logs", DirectoryIdentity("cluster", 3, written.directory_id)) == written
    for other, told in (
        (DirectoryIdentity("other", 3), "cluster.id is cluster, not other"),
        (DirectoryIdentity("cluster", 4), "node.id is 3, not 4"),
        (DirectoryIdentity("cluster", 3, Uuid(bytes(16))), "directory.id is "),
    ):
        with pytest.raises(ConfigError) as caught:
            check_identity(files, "/logs", other)
        assert f"/logs/meta.properties: {told}" in str(caught.value)
    for data, told in ((b"version=1\n", "no cluster.id"), (b"version=0\n", "of version 0")):
        files.write_whole("/logs/meta.properties", data)
        with pytest.raises(ConfigError, match=told):
            check_identity(files, "/logs", mine)


def test_a_given_directory_id_is_kept() -> None:
    """Else the cluster looks for the replica in a directory that nobody has."""
    machine, _ = ManualScheduler.machine(seed=1)
    machine.files.make_directories("/logs")
    given = DirectoryIdentity("cluster", 0, Uuid(bytes(range(16))))
    assert write_identity(machine, "/logs", given) == MetaProperties("cluster", 0, Uuid(bytes(range(16))))


@pytest.mark.parametrize(("cluster_id", "node_id"), [("a b", 1), ("a", -1)])
def test_what_no_broker_has(cluster_id: str, node_id: int) -> None:
    """Else a broker refuses its own directory."""
    with pytest.raises(ConfigError):
        DirectoryIdentity(cluster_id, node_id)


def test_one_has_a_directory() -> None:
    """If this fails, two processes append to one log."""
    files = MemoryFiles()
    with pytest.raises(ObjectNotFoundError):
        lock_directory(files, "/logs")
    files.make_directories("/logs")
    with lock_directory(files, "/logs"), pytest.raises(StoreUnavailableError, match="/logs: a broker"):
        lock_directory(files, "/logs")
    assert files.find("/logs/.lock") is not None
    lock_directory(files, "/logs").release()


def test_it_survives_a_crash() -> None:
    """Else a broker reads all logs from the start after a power cut, or believes in what was never flushed."""
    files = MemoryFiles()
    files.make_directories("/logs")
    checkpoint = OffsetCheckpointFile(files, "/logs", RECOVERY_POINTS)
    assert checkpoint.read() == {}
    checkpoint.write({("b", 1): 7, ("a", 0): 9})
    checkpoint = OffsetCheckpointFile(files.crash(), "/logs", RECOVERY_POINTS)
    assert list(checkpoint.read().items()) == [(("b", 1), 7), (("a", 0), 9)]


def test_a_malformed_one_is_named() -> None:
    """Else an operator does not know which of three files is broken."""
    files = MemoryFiles()
    files.make_directories("/logs")
    files.write_whole(f"/logs/{RECOVERY_POINTS}", b"0\n1\nx\n")
    with pytest.raises(CorruptIndexError, match="/logs/recovery-point-offset-checkpoint"):
        OffsetCheckpointFile(files, "/logs", RECOVERY_POINTS).read()


def test_an_offset_that_is_not_on_the_disk_is_seen_by_nobody() -> None:
    """Else a broker that is killed has said that a log is compacted further than its next start believes."""
    files = MemoryFiles()
    files.make_directories("/logs")
    checkpoint = KeptCheckpoint(files, "/logs", "cleaner-offset-checkpoint")
    checkpoint.replace({("orders", 0): 93})
    with FailingDisk(files, errno.EIO, at=1), pytest.raises(StoreError):
        checkpoint.replace({("orders", 0): 279, ("orders", 1): 5})
    assert checkpoint.offsets == {("orders", 0): 93}
    checkpoint.replace({("orders", 0): 279, ("orders", 1): 5})
    checkpoint.replace({("orders", 1): None})
    assert checkpoint.offsets == KeptCheckpoint(files, "/logs", "cleaner-offset-checkpoint").offsets
    assert checkpoint.offsets == {("orders", 0): 279}
