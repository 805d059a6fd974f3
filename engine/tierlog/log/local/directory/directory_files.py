"""A log directory's own files: ``.lock``, ``meta.properties``, the marker of a clean stop, the offset checkpoints.

A broker holds the lock as long as it runs. ``meta.properties`` is checked before anything is changed, and written where
there is none.

Source: Kafka LogManager, CleanShutdownFileHandler, OffsetCheckpointFile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierlog.arguments import require_int, require_text, require_type
from tierlog.errors import ConfigError, CorruptIndexError, StoreError
from tierlog.log.formats.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from tierlog.log.formats.identity_files import (
    CLEAN_SHUTDOWN_BYTES_MAX,
    META_PROPERTIES_BYTES_MAX,
    MetaProperties,
    Uuid,
    encode_clean_shutdown,
    encode_meta_properties,
    parse_clean_shutdown,
    parse_meta_properties,
)
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN, META_PROPERTIES
from tierlog.log.local.log_folder import read_small_file
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The cluster and the broker that a log directory belongs to.

    Args:
        cluster_id: As ``kafka-cluster cluster-id`` prints it.
        node_id: The broker's.
        directory_id: Which of the broker's directories this is. None: whatever is there, or a new one.

    Raises:
        ConfigError: an invalid cluster id, or a node id below 0. TypeError: a field is of another type.
    """

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None

    def __post_init__(self) -> None:
        require_text("cluster_id", self.cluster_id)
        require_int("node_id", self.node_id)
        require_type("directory_id", self.directory_id, (Uuid, type(None)), "a Uuid")
        if _CLUSTER_ID.fullmatch(self.cluster_id) is None:
            raise ConfigError(f"{self.cluster_id!r:.80} is no cluster id: see `kafka-cluster cluster-id`")
        if self.node_id < 0:
            raise ConfigError(f"node id {self.node_id}: 0 or more expected")


def read_identity(files: Files, folder: str) -> MetaProperties | None:
    """Read the ``meta.properties`` of a log directory; None if there is none.

    Raises:
        ConfigError: the file is malformed. StoreError.
    """
    path = f"{folder}/{META_PROPERTIES}"
    try:
        return read_small_file(files, path, parse_meta_properties, limit_bytes=META_PROPERTIES_BYTES_MAX)
    except CorruptIndexError as error:
        raise ConfigError(str(error)) from error


def require_known_version(folder: str, found: MetaProperties) -> None:
    """Raise ConfigError if ``meta.properties`` are of version 0, as an empty file is, too."""
    if found.version == 0:
        raise ConfigError(
            f"{folder}/{META_PROPERTIES}: of version 0, which no broker of today's opens: remove the file"
        )


def check_identity(files: Files, folder: str, identity: DirectoryIdentity) -> MetaProperties | None:
    """Return the identity that is there, if it agrees with the expected one; None if there is none.

    Raises:
        ConfigError: the directory is another broker's or cluster's, or the file is malformed, or of version 0.
        StoreError.
    """
    found = read_identity(files, folder)
    if found is None:
        return None
    require_known_version(folder, found)
    for name, here, wanted in (
        ("cluster.id", found.cluster_id, identity.cluster_id),
        ("node.id", found.node_id, identity.node_id),
        ("directory.id", found.directory_id, identity.directory_id),
    ):
        if here is not None and wanted is not None and here != wanted:
            raise ConfigError(f"{folder}/{META_PROPERTIES}: {name} is {here}, not {wanted}")
    return found


def write_identity(machine: Machine, folder: str, identity: DirectoryIdentity) -> MetaProperties:
    """Write a new ``meta.properties``, durably; a directory id is drawn where none is given. Raises StoreError."""
    directory_id = identity.directory_id or Uuid.random(machine.rng)
    properties = MetaProperties(identity.cluster_id, identity.node_id, directory_id)
    data = encode_meta_properties(properties, written_ms=machine.clock.time_ms())
    machine.files.write_whole(f"{folder}/{META_PROPERTIES}", data)
    return properties


class LastStop(NamedTuple):
    """The last stop of a log directory.

    Attributes:
        was_clean: Whether all of its logs were closed.
        broker_epoch: Of the broker that closed it; None if it is not known.
    """

    was_clean: bool
    broker_epoch: int | None


def take_marker(files: Files, folder: str) -> LastStop:
    """Read the marker and remove it, durably: a crash from now on leaves no clean directory. Raises StoreError."""
    path = f"{folder}/{CLEAN_SHUTDOWN}"
    if files.find(path) is None:
        return LastStop(was_clean=False, broker_epoch=None)
    try:
        broker_epoch = parse_clean_shutdown(files.read_whole(path, limit_bytes=CLEAN_SHUTDOWN_BYTES_MAX))
    except StoreError:  # its being there is what counts
        broker_epoch = None
    files.remove(path)
    files.fsync_directory(folder)
    return LastStop(was_clean=True, broker_epoch=broker_epoch)


def write_marker(files: Files, folder: str, *, broker_epoch: int = -1) -> None:
    """Write the marker, durably; -1 is no epoch. Raises StoreError."""
    files.write_whole(f"{folder}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))


#: (topic, partition).
PartitionKey = tuple[str, int]
PartitionOffsets = Mapping[PartitionKey, int]


class OffsetCheckpointFile:
    """A checkpoint in a log directory. One thread at a time.

    Args:
        files: The file system.
        folder: The log directory.
        name: RECOVERY_POINTS, LOG_STARTS or HIGH_WATERMARKS of ``segment_files``.
    """

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self._files = files
        self.path = f"{folder}/{name}"

    def read(self) -> dict[PartitionKey, int]:
        """Read the offsets, in the file's order; none if there is no file.

        Raises:
            CorruptIndexError: the file is malformed. StoreError.
        """
        return read_small_file(self._files, self.path, parse_offset_checkpoint) or {}

    def write(self, offsets: PartitionOffsets) -> None:
        """Replace the offsets, durably, in the mapping's order. Raises StoreError: the old offsets are there, or the
        new ones, as after a crash.
        """
        self._files.write_whole(self.path, encode_offset_checkpoint(offsets))


class KeptCheckpoint(OffsetCheckpointFile):
    """A checkpoint that is read when it is made, and written when it changes. Raises StoreError.

    Attributes:
        offsets: The checkpoint's content, once it is written; empty where there is no file, or it cannot be read.
        on_disk: The file's offsets, as far as they can be read.
        is_whole: Whether there is a file that can be read.
        fault: Why it cannot be read; None otherwise.
    """

    def __init__(self, files: Files, folder: str, name: str) -> None:
        super().__init__(files, folder, name)
        self.fault: CorruptIndexError | None = None
        self.offsets: dict[PartitionKey, int] = {}
        try:
            self.offsets = self.read()
        except CorruptIndexError as error:
            self.fault = error
        self.is_whole = self.fault is None and files.find(self.path) is not None
        self.on_disk = dict(self.offsets)

    def replace(self, changed: Mapping[PartitionKey, int | None]) -> None:
        """Take other offsets (None: none), and write them if that makes a difference."""
        offsets = dict(self.offsets)
        for key, offset in changed.items():
            if offset is None:
                offsets.pop(key, None)
            else:
                offsets[key] = offset
        self.replace_all(offsets)
        self.offsets = offsets  # threads that look at them see nothing that a crash could take back

    def replace_all(self, offsets: PartitionOffsets) -> None:
        """Have exactly these offsets in the file."""
        if offsets != self.on_disk or not self.is_whole:
            self.write(offsets)
            self.on_disk = dict(offsets)
            self.is_whole = True
