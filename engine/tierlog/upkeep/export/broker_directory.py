"""What a broker wants in a log directory beside the partitions' folders, so that it opens it as its own.

``meta.properties`` says whose directory it is: a broker refuses to start over one of another cluster or node. The
offset checkpoints say how far each log is known to be right, and the file of a clean stop that all of them are: without
these a broker reads every log again before it starts. An export has checked every checksum, and has it all on the disk.

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
    """Where an exported directory goes.

    Args:
        cluster_id: As ``kafka-cluster cluster-id`` prints it.
        node_id: Of the broker that gets the directory.
        topic_id: That the topic has there; None for the one that it has in the tier.
        directory_id: Of the log directory whose place it takes: the cluster looks for a replica in the directory that
            it is assigned to, and has no leader for it as long as that is gone. None for a new one.

    Raises:
        ConfigError: no cluster id, or a node id below 0.
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
        machine: Its files; its chance, for the directory's id.
        folder: Made if it is not there.
        target: Whose it is.
    """

    def __init__(self, machine: Machine, folder: str, target: TargetCluster) -> None:
        self._files: Files = machine.files
        self._rng = machine.rng
        self._folder = folder
        self._target = target

    def prepare(self) -> None:
        """Before anything is written: what is there is unclean from here on, as long as something is missing.

        Raises:
            ConfigError: the directory is another broker's, or another cluster's.
        """
        found = self._properties()
        wanted = {"cluster.id": self._target.cluster_id, "node.id": str(self._target.node_id)}
        if self._target.directory_id is not None:
            wanted["directory.id"] = str(self._target.directory_id)
        for name, value in wanted.items():
            if found and found.get(name, value) != value:
                raise ConfigError(f"{self._path(META_PROPERTIES)}: {name} is {found[name]}, not {value}")
        self._files.make_directories(self._folder)
        if self._files.find(self._path(CLEAN_SHUTDOWN)) is not None:
            self._files.remove(self._path(CLEAN_SHUTDOWN))

    def finish(self, logs: Iterable[LogExtent]) -> None:
        """After the logs: the checkpoints of these beside those of others, then that all of it is clean."""
        extents = list(logs)
        ends = {(each.topic, each.partition): each.end_offset_exclusive for each in extents}
        starts = {(each.topic, each.partition): each.start_offset for each in extents}
        self._merge(RECOVERY_POINTS, ends)
        self._merge(HIGH_WATERMARKS, ends)
        self._merge(LOG_STARTS, starts)
        if not self._properties():
            lines = {
                "version": "1",
                "cluster.id": self._target.cluster_id,
                "node.id": str(self._target.node_id),
                "directory.id": str(self._target.directory_id or Uuid.random(self._rng)),
            }
            text = "".join(f"{name}={value}\n" for name, value in lines.items())
            self._files.write_whole(self._path(META_PROPERTIES), text.encode())
        self._files.write_whole(self._path(CLEAN_SHUTDOWN), _CLEAN)

    def _properties(self) -> dict[str, str]:
        if self._files.find(self._path(META_PROPERTIES)) is None:
            return {}
        text = self._files.read_whole(self._path(META_PROPERTIES)).decode("utf-8", "replace")
        found = dict(parse_properties(text))
        if not found:
            raise ConfigError(f"{self._path(META_PROPERTIES)}: says nothing: remove it, or give another destination")
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
