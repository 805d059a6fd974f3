"""Whose a log directory is."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.log.formats.meta_properties import MetaProperties
from tierlog.log.local.directory.directory_identity import (
    DirectoryIdentity,
    check_identity,
    read_identity,
    write_identity,
)
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler


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
        (DirectoryIdentity("cluster", 3, bytes(16)), "directory.id is "),
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
    given = DirectoryIdentity("cluster", 0, bytes(range(16)))
    assert write_identity(machine, "/logs", given) == MetaProperties("cluster", 0, bytes(range(16)))


@pytest.mark.parametrize(("cluster_id", "node_id", "directory_id"), [("a b", 1, None), ("a", -1, None), ("a", 1, b"x")])
def test_what_no_broker_has(cluster_id: str, node_id: int, directory_id: bytes | None) -> None:
    """Else a broker refuses its own directory."""
    with pytest.raises(ConfigError):
        DirectoryIdentity(cluster_id, node_id, directory_id)
