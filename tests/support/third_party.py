"""A broker whose managers share no line with ours, in threads, over files."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.folder_manager import FolderStorageManager
from tests.support.living_logs import batch_of
from tests.support.tiered_log import TIERED, TOPIC_ID
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.remote_log_manager import RemoteLogManager

PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)


@dataclass(frozen=True, slots=True)
class ThirdPartyBroker:
    """A broker of one partition, whose log has closed segments of ten offsets. A test closes the manager."""

    manager: RemoteLogManager
    log: UnifiedLog
    metadata: DictMetadataManager
    tier: pathlib.Path

    @property
    def stored_files(self) -> list[pathlib.Path]:
        return [each for each in self.tier.rglob("*") if each.is_file()]


@contextlib.contextmanager
def third_party_broker(
    folder: pathlib.Path, *, segments: int, storage: FolderStorageManager | None = None
) -> Iterator[ThirdPartyBroker]:
    """A broker in a folder, with another storage manager than the plain one if a test wants it."""
    storage, metadata, tier = storage or FolderStorageManager(), DictMetadataManager(), folder / "tier"
    tier.mkdir()
    (folder / "logs").mkdir()
    storage.configure({"folder": str(tier)})
    with LogDirectory.open(str(folder / "logs"), config=TIERED, remote_log_enabled=True, runs_tasks=False) as directory:
        log = directory.log("orders", 0, topic_id=TOPIC_ID)
        log.assign_epoch_start_offset(0, 0)
        for _ in range(segments):
            log.append_as_leader(batch_of(*[b"value"] * 10), leader_epoch=0)
            log.roll()
        manager = RemoteLogManager(
            RemoteLogManagerConfig(task_interval_ms=10, task_retry_backoff_ms=10),
            broker_id=1,
            storage=storage,
            metadata=metadata,
            find_log={PARTITION: log}.get,
        )
        yield ThirdPartyBroker(manager, log, metadata, tier)
