"""Whose a log directory is: ``meta.properties``, checked before anything is changed, written where there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tierlog.arguments import require_int, require_text, require_type
from tierlog.errors import ConfigError, CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.meta_properties import (
    FILE_SIZE_BYTES_MAX,
    MetaProperties,
    encode_meta_properties,
    parse_meta_properties,
)
from tierlog.log.formats.segment_files import META_PROPERTIES
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: The digit "-" of URL-safe base64.
_DASH: Final = 62


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The cluster and the broker that a log directory belongs to.

    Args:
        cluster_id: As ``kafka-cluster cluster-id`` prints it.
        node_id: The broker's.
        directory_id: 16 bytes: which of the broker's directories this is. None: whatever is there, or a new one.

    Raises:
        ConfigError: an invalid cluster id, or a node id below 0. TypeError: a field is of another type.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None

    def __post_init__(self) -> None:
        require_text("cluster_id", self.cluster_id)
        require_int("node_id", self.node_id)
        require_type("directory_id", self.directory_id, (bytes, type(None)), "16 bytes")
        if _CLUSTER_ID.fullmatch(self.cluster_id) is None:
            raise ConfigError(f"{self.cluster_id!r:.80} is no cluster id: see `kafka-cluster cluster-id`")
        if self.node_id < 0:
            raise ConfigError(f"node id {self.node_id}: 0 or more expected")
        if self.directory_id is not None and len(self.directory_id) != 16:
            raise ConfigError(f"a directory id of {len(self.directory_id)} bytes: 16 expected")


def read_identity(files: Files, folder: str) -> MetaProperties | None:
    """The ``meta.properties`` of a log directory; None if there is none.

    Raises:
        ConfigError: the file is malformed. StoreError.
    """
    path = f"{folder}/{META_PROPERTIES}"
    try:
        return parse_meta_properties(files.read_whole(path, limit_bytes=FILE_SIZE_BYTES_MAX))
    except ObjectNotFoundError:
        return None
    except CorruptIndexError as error:
        raise ConfigError(f"{path}: {error}") from error


def check_identity(files: Files, folder: str, identity: DirectoryIdentity) -> MetaProperties | None:
    """What is there, if it agrees with what is expected; None if nothing is.

    Raises:
        ConfigError: the directory is another broker's or cluster's, or the file is malformed, or of version 0.
        StoreError.
    """
    found = read_identity(files, folder)
    if found is None:
        return None
    if found.version == 0:
        raise ConfigError(
            f"{folder}/{META_PROPERTIES}: of version 0, which no broker of today's opens: remove the file"
        )
    expected = MetaProperties(identity.cluster_id, identity.node_id, identity.directory_id)
    for name, here, wanted in (
        ("cluster.id", found.cluster_id, expected.cluster_id),
        ("node.id", found.node_id, expected.node_id),
        ("directory.id", found.directory_id_text, expected.directory_id_text),
    ):
        if here is not None and wanted is not None and here != wanted:
            raise ConfigError(f"{folder}/{META_PROPERTIES}: {name} is {here}, not {wanted}")
    return found


def write_identity(machine: Machine, folder: str, identity: DirectoryIdentity) -> MetaProperties:
    """Write a new ``meta.properties``, durably; a directory id is drawn where none is given. Raises StoreError."""
    directory_id = identity.directory_id or _new_directory_id(machine)
    properties = MetaProperties(identity.cluster_id, identity.node_id, directory_id)
    data = encode_meta_properties(properties, written_ms=machine.clock.time_ms())
    machine.files.write_whole(f"{folder}/{META_PROPERTIES}", data)
    return properties


def _new_directory_id(machine: Machine) -> bytes:
    """A random UUID as Kafka draws it (Uuid#randomUuid): its text never begins with "-"."""
    while True:
        drawn = bytearray(machine.rng.secret_bytes(16))
        drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80
        if drawn[0] >> 2 != _DASH:
            return bytes(drawn)
