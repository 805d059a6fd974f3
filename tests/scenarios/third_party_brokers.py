"""Brokers whose storage managers and metadata managers share no line with ours: both contract examples.

Their storage manager reads the files of segments by their paths, so that the brokers have real files; time and threads
are simulated all the same. A broker that would lose its power is stopped: a process cannot leave the locks of its own
files behind. Nothing optional of the two interfaces is there.
"""

from __future__ import annotations

import pathlib
from typing import Any

from tests.contract.dict_metadata_manager import DictMetadataManager, Tables
from tests.contract.folder_manager import FolderStorageManager
from tests.scenarios.two_brokers import Cluster
from tests.support.tiered_brokers import Broker
from tierlog.log.formats.identity_files import Uuid
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import Rng


class ThirdPartyCluster(Cluster):
    """Such brokers below a folder."""

    def __init__(self, seed: int = 1, *, root: pathlib.Path, **more: Any) -> None:
        self.root = root
        self._tables = Tables()
        self._files = Machine().files
        (root / "tier").mkdir()
        super().__init__(seed, **more)

    def disk_of(self, broker_id: int) -> Files:
        return self._files

    def path_of(self, broker_id: int) -> str:
        return str(self.root / f"broker-{broker_id}")

    def storage_of(self, broker: Broker) -> RemoteStorageManager:
        storage = FolderStorageManager()
        storage.configure({"folder": str(self.root / "tier")})
        return storage

    def metadata_of(self, broker: Broker) -> RemoteLogMetadataManager:
        metadata = DictMetadataManager(self._tables)
        metadata.configure({})
        return metadata

    def lose_power(self, broker: int, rng: Rng) -> None:
        self.brokers[broker].stop()

    def stored_ids(self) -> set[Uuid]:
        return {Uuid.from_text(path.name) for path in (self.root / "tier").iterdir() if path.suffix != ".new"}
