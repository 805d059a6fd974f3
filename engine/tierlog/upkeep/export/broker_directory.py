"""The files beside the partitions' folders that a broker needs to open a log directory as its own.

``meta.properties`` says whose directory it is: a broker refuses to start over one of another cluster or node. The
offset checkpoints say up to where each log is known to be right, and the file of a clean stop says that all logs are
closed: without these a broker reads every log again before it starts. An export has checked every checksum, and
everything is on the disk.

Source: Kafka MetaProperties, OffsetCheckpointFile, CleanShutdownFileHandler (docs/formats/log-files.md, A broker's log
directory).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError, CorruptIndexError
from tierlog.log.formats.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from tierlog.remote.api import ZERO_UUID, Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.properties import parse_properties

META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
#: Kafka reads the broker's epoch out of it; -1 is none, which is what it takes for a file that it cannot read.
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_CLEAN: Final = b'{"version":0,"brokerEpoch":-1}'
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
        if _CLUSTER_ID.fullmatch(self.cluster_id) is None:
            raise ConfigError(f"{self.cluster_id!r:.80} is no cluster id: see `kafka-cluster cluster-id`")
        if self.node_id < 0:
            raise ConfigError(f"node id {self.node_id}: 0 or more expected")
        if self.topic_id == ZERO_UUID:
            raise ConfigError("the topic id of a cluster's topic is not all zero")


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
        target: The broker that gets it; None for a directory of nobody yet, which has no meta.properties.
    """

    def __init__(self, machine: Machine, folder: str, target: TargetCluster | None) -> None:
        self._files: Files = machine.files
        self._rng = machine.rng
        self._folder = folder
        self._target = target

    def prepare(self) -> None:
        """Check the directory, and mark it as not cleanly closed until ``finish``. Called before anything is written.

        Raises:
            ConfigError: the directory is another broker's, or another cluster's.
        """
        found = self._properties()
        for name, value in self._identity().items():
            if found and found.get(name, value) != value:
                raise ConfigError(f"{self._path(META_PROPERTIES)}: {name} is {found[name]}, not {value}")
        self._files.make_directories(self._folder)
        if self._files.find(self._path(CLEAN_SHUTDOWN)) is not None:
            self._files.remove(self._path(CLEAN_SHUTDOWN))

    def finish(self, logs: Iterable[LogExtent]) -> None:
        """Add the logs to the checkpoints, and mark the directory as cleanly closed. Called after the logs were
        written.
        """
        extents = list(logs)
        ends = {(each.topic, each.partition): each.end_offset_exclusive for each in extents}
        starts = {(each.topic, each.partition): each.start_offset for each in extents}
        self._merge(RECOVERY_POINTS, ends)
        self._merge(HIGH_WATERMARKS, ends)
        self._merge(LOG_STARTS, starts)
        if self._target is not None and not self._properties():
            lines = {"version": "1", "directory.id": str(Uuid.random(self._rng))} | self._identity()
            text = "".join(f"{name}={value}\n" for name, value in lines.items())
            self._files.write_whole(self._path(META_PROPERTIES), text.encode())
        self._files.write_whole(self._path(CLEAN_SHUTDOWN), _CLEAN)

    def _identity(self) -> dict[str, str]:
        """The lines of meta.properties that say whose directory it is."""
        if self._target is None:
            return {}
        lines = {"cluster.id": self._target.cluster_id, "node.id": str(self._target.node_id)}
        if self._target.directory_id is not None:
            lines["directory.id"] = str(self._target.directory_id)
        return lines

    def _properties(self) -> dict[str, str]:
        if self._files.find(self._path(META_PROPERTIES)) is None:
            return {}
        text = self._files.read_whole(self._path(META_PROPERTIES)).decode("utf-8", "replace")
        found = dict(parse_properties(text))
        if not found:
            raise ConfigError(f"{self._path(META_PROPERTIES)}: no properties in it: remove it, or give another DEST")
        return found

    def _merge(self, name: str, offsets: dict[tuple[str, int], int]) -> None:
        path = self._path(name)
        known: dict[tuple[str, int], int] = {}
        if self._files.find(path) is not None:
            try:
                known = parse_offset_checkpoint(self._files.read_whole(path))
            except CorruptIndexError as error:
                raise error.located(path) from None
        self._files.write_whole(path, encode_offset_checkpoint(known | offsets))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
