"""The ``meta.properties`` of all directories of one broker, which must agree before anything is changed.

A directory without the file, or whose file has no directory id, is completed by the others; one whose file cannot be
read is offline; two that contradict each other keep the broker from starting.

Source: Kafka MetaPropertiesEnsemble, KafkaRaftServer#initializeLogDirs (KIP-858).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.identity_files import MetaProperties, Uuid
from tierlog.log.formats.segment_files import META_PROPERTIES
from tierlog.log.local.directory.directory_files import DirectoryIdentity, read_identity, require_known_version
from tierlog.runtime.machine import Machine

#: Ids below this one name no directory (Kafka DirectoryId: unassigned, lost, migrating, and room for more).
_RESERVED_BELOW: Final = 100


def is_reserved(directory_id: Uuid) -> bool:
    """Whether an id is one that Kafka gives to no directory."""
    return int.from_bytes(directory_id.raw, "big") < _RESERVED_BELOW


class MetaPropertiesEnsemble:
    """The properties of the directories of one broker, as they were found.

    Args:
        machine: Has the files.
        paths: The directories; one that does not exist has no properties.

    Attributes:
        properties: By directory; None where there is no file.
        errors: By directory, of those whose file cannot be read: they are offline.
    """

    def __init__(self, machine: Machine, paths: Iterable[str]) -> None:
        self.properties: dict[str, MetaProperties | None] = {}
        self.errors: dict[str, Exception] = {}
        self._machine = machine
        for path in paths:
            try:
                found = read_identity(machine.files, path)
                if found is not None:
                    require_known_version(path, found)
                self.properties[path] = found
            except (ConfigError, StoreError) as error:
                self.errors[path] = error

    def identities(self, owner: DirectoryIdentity | None) -> dict[str, DirectoryIdentity | None]:
        """Return the identity of each directory that can be read, with new ids for those that have none; None for all
        where neither the caller nor a directory knows the owner.

        Args:
            owner: Cluster and broker that they must have; None: any, but one.

        Raises:
            ConfigError: two directories have different owners, or one id, or an id that Kafka gives to none.
        """
        cluster_id, node_id = (None, None) if owner is None else (owner.cluster_id, owner.node_id)
        ids: dict[Uuid, str] = {}
        for path, found in self.properties.items():
            if found is None:
                continue
            where = f"{path}/{META_PROPERTIES}"
            if cluster_id not in (None, found.cluster_id) and found.cluster_id is not None:
                raise ConfigError(f"Invalid cluster.id in: {where}. Expected {cluster_id}, but read {found.cluster_id}")
            if node_id not in (None, found.node_id) and found.node_id is not None:
                raise ConfigError(f"Stored node id {found.node_id} doesn't match previous node id {node_id} in {where}")
            cluster_id = found.cluster_id if cluster_id is None else cluster_id
            node_id = found.node_id if node_id is None else node_id
            if found.directory_id is not None:
                self._note_id(found.directory_id, path, ids)
        if cluster_id is None or node_id is None:
            return dict.fromkeys(self.properties)
        return {
            path: DirectoryIdentity(cluster_id, node_id, self._id_of(path, found, ids))
            for path, found in self.properties.items()
        }

    def _note_id(self, directory_id: Uuid, path: str, ids: dict[Uuid, str]) -> None:
        if is_reserved(directory_id):
            raise ConfigError(f"Invalid reserved directory ID {directory_id} found in {path}")
        known = ids.setdefault(directory_id, path)
        if known != path:
            raise ConfigError(
                f"Duplicate directory ID {directory_id} found: it is the ID of {known}, but also of {path}"
            )

    def _id_of(self, path: str, found: MetaProperties | None, ids: dict[Uuid, str]) -> Uuid:
        directory_id = None if found is None else found.directory_id
        while directory_id is None or ids.setdefault(directory_id, path) != path:
            directory_id = Uuid.random(self._machine.rng)  # never a reserved one
        return directory_id
