"""The files beside the partitions' folders that a broker needs to open a log directory as its own.

``meta.properties`` says whose directory it is: a broker refuses to start over one of another cluster or node. The
offset checkpoints say up to where each log is known to be right, and the file of a clean stop says that all logs are
closed: without these a broker reads every log again before it starts. An export has checked every checksum, and
everything is on the disk.

Source: Kafka MetaProperties, OffsetCheckpointFile, CleanShutdownFileHandler (docs/formats/log-files.md, A broker's log
directory).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tierlog.errors import ConfigError
from tierlog.log.formats.segment_files import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tierlog.log.local.directory.directory_files import (
    DirectoryIdentity,
    OffsetCheckpointFile,
    check_identity,
    read_identity,
    take_marker,
    write_identity,
    write_marker,
)
from tierlog.remote.api import ZERO_UUID, Uuid
from tierlog.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """The cluster and the broker that get an exported directory.

    Args:
        cluster_id: As ``kafka-cluster cluster-id`` prints it.
        node_id: Id of the broker that gets the directory.
        topic_id: The topic's id in that cluster; None for its id in the tier.
        directory_id: Id of the log directory that this one replaces: the cluster looks for a replica in the directory
            to which it is assigned, and without that directory the replica has no leader. None makes a new id.

    Raises:
        ConfigError: an invalid cluster id, or a node id below 0.
    """

    cluster_id: str
    node_id: int
    topic_id: Uuid | None = None
    directory_id: Uuid | None = None

    def __post_init__(self) -> None:
        if self.topic_id == ZERO_UUID:
            raise ConfigError("the topic id of a cluster's topic is not all zero")
        DirectoryIdentity(self.cluster_id, self.node_id)  # which checks both

    @property
    def identity(self) -> DirectoryIdentity:
        """The cluster, the node and the id that the directory gets."""
        return DirectoryIdentity(self.cluster_id, self.node_id, self.directory_id)


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The offsets of one log of the directory."""

    topic: str
    partition: int
    start_offset: int
    end_offset_exclusive: int


class BrokerDirectory:
    """One log directory, for one broker.

    Args:
        machine: Has the files, and the randomness of the directory's id.
        folder: The directory; made if it does not exist.
        target: The broker that gets it; None for a directory without an owner, which has no meta.properties.
    """

    def __init__(self, machine: Machine, folder: str, target: TargetCluster | None) -> None:
        self._machine = machine
        self._folder = folder
        self._identity = None if target is None else target.identity

    def prepare(self) -> None:
        """Check the directory, and mark it as not cleanly closed until ``finish``. Called before anything is written.

        Raises:
            ConfigError: the directory is another broker's, or another cluster's.
        """
        files = self._machine.files
        if self._identity is None:
            read_identity(files, self._folder)
        else:
            check_identity(files, self._folder, self._identity)
        files.make_directories(self._folder)
        take_marker(files, self._folder)

    def finish(self, logs: Iterable[LogExtent]) -> None:
        """Add the logs to the checkpoints, and mark the directory as cleanly closed. Called after the logs were
        written.
        """
        extents = list(logs)
        ends = {(each.topic, each.partition): each.end_offset_exclusive for each in extents}
        starts = {(each.topic, each.partition): each.start_offset for each in extents}
        for name, offsets in ((RECOVERY_POINTS, ends), (HIGH_WATERMARKS, ends), (LOG_STARTS, starts)):
            checkpoint = OffsetCheckpointFile(self._machine.files, self._folder, name)
            checkpoint.write(dict(sorted((checkpoint.read() | offsets).items())))
        if self._identity is not None and read_identity(self._machine.files, self._folder) is None:
            write_identity(self._machine, self._folder, self._identity)
        write_marker(self._machine.files, self._folder)
