"""The folders of a bucket that hold one partition each, found level by level.

A bucket is walked by folders, since a store promises no order of a listing: so the objects of one partition come
together, whatever the store, and no more than a few partitions are held at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.tier.tier import Tier

_ID: Final = r"[A-Za-z0-9_-]{22}"
_BY_TOPIC: Final = re.compile(rf"(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>\d{{1,10}})/")
_BY_PARTITION: Final = re.compile(
    rf"(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<partition>\d{{1,10}})-(?P<topic_id>{_ID})/"
)
#: Layouts that are buckets: what a broker's manager reads.
FOLDERS: Final = {"aiven": _BY_TOPIC, "kafka": _BY_TOPIC, "local-tiered": _BY_PARTITION}
_INT32_MAX: Final = 2**31 - 1
#: Folders below each other that are looked into: a key has at most 1,024 bytes, a key.prefix a few levels.
_DEPTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """One partition's folder.

    Args:
        key: As the store has it, ending with "/".
        lead: What stands before the name of the topic: the key prefix.
        topic_id_partition: The partition, by the name of the folder.
    """

    key: str
    lead: str
    topic_id_partition: TopicIdPartition


class PartitionFolders:
    """The folders of partitions of one bucket; each iteration lists anew, lazily.

    Args:
        tier: The bucket; the caller closes it.
        wanted: Whether a partition is.

    Raises:
        ConfigError: the tier is no bucket.

    Cost: one listing request for each folder above those of partitions.
    """

    def __init__(self, tier: Tier, wanted: Callable[[TopicIdPartition], bool]) -> None:
        if tier.layout not in FOLDERS:
            raise ConfigError(f"{tier.describe()}: metadata is restored from a bucket")
        self._store = tier.store
        self._pattern = FOLDERS[tier.layout]
        self._scope = tier.scope
        self._wanted = wanted

    def __iter__(self) -> Iterator[PartitionFolder]:
        """Depth first. Raises StoreError and its kinds."""
        prefix = self._scope.key_prefix
        start = self._scope.folder or prefix[: prefix.rfind("/") + 1]
        found = self._read(start)
        if found is not None:
            if self._wanted(found.topic_id_partition):
                yield found
            return
        yield from self._below(start, _DEPTH_MAX)

    def _below(self, folder: str, depth: int) -> Iterator[PartitionFolder]:
        prefix = self._scope.key_prefix
        for child in self._store.list_folder(folder).folders:
            if not child.startswith(prefix[: len(child)]):
                continue
            found = self._read(child)
            if found is None:
                if depth:
                    yield from self._below(child, depth - 1)
            elif self._wanted(found.topic_id_partition):
                yield found

    def _read(self, folder: str) -> PartitionFolder | None:
        prefix = self._scope.key_prefix
        if not folder.startswith(prefix):
            return None
        matched = self._pattern.fullmatch(folder[len(prefix) :])
        if matched is None or (prefix and matched["lead"]) or int(matched["partition"]) > _INT32_MAX:
            return None
        topic_id = Uuid.from_text(matched["topic_id"])
        partition = TopicIdPartition(topic_id, matched["topic"], int(matched["partition"]))
        return PartitionFolder(folder, prefix or matched["lead"], partition)

    def of_topic_id(self, folder: PartitionFolder, topic_id: Uuid) -> PartitionFolder:
        """The folder of the same partition under another topic id, whether it exists or not."""
        was = folder.topic_id_partition
        own = folder.key[len(folder.lead) :].replace(f"-{was.topic_id}/", f"-{topic_id}/")
        return PartitionFolder(folder.lead + own, folder.lead, TopicIdPartition(topic_id, was.topic, was.partition))
