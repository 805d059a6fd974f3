"""The objects of one segment in a listing, and whether all of them exist."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentId
from tierlog.remote.tier.layouts.kafka import DESCRIPTION_BYTES_MAX, describe_kafka
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.tier.objects.object_keys import (
    FOOTER,
    LOCAL_TIERED_NEEDED_SUFFIXES,
    LOG,
    NEEDED_SUFFIXES,
    PARSERS,
    TRANSACTION_INDEX,
    ObjectKey,
)
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, UnfinishedUpload
from tierlog.runtime.waiting.threads import run_all

#: Layout → the part that makes a segment whole (None: all of them do), and those that it needs.
DESCRIPTIONS: Final[dict[str, str | None]] = {"aiven": "rsm-manifest", "kafka": "segment.json", "local-tiered": None}
_NEEDED: Final = {
    "aiven": frozenset((LOG, "indexes")),
    "kafka": NEEDED_SUFFIXES,
    "local-tiered": LOCAL_TIERED_NEEDED_SUFFIXES,
}
_BATCH: Final = 250
_CONCURRENCY: Final = 16


@dataclass(slots=True)
class ObjectGroup:
    """The objects of one segment path, and uploads under way to them."""

    key: ObjectKey
    path: str
    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    uploads: list[UnfinishedUpload] = field(default_factory=list)

    @property
    def segment_id(self) -> RemoteLogSegmentId | None:
        key = self.key
        return None if key.segment_id is None else RemoteLogSegmentId(key.topic_id_partition, key.segment_id)

    @property
    def newest_ms(self) -> int:
        """When the newest object was written, or upload begun; a footer, which may come years later, tells nothing of
        the segment's copy where there are others.
        """
        copied = [info for suffix, info in self.objects.items() if suffix != FOOTER] or self.objects.values()
        times = [info.last_modified_ms for info in copied]
        return max(times + [upload.started_ms for upload in self.uploads])


def listed_key(tier: Tier, full_key: str) -> ObjectKey | None:
    """Parse a key of the store within a tier; None for a foreign one, and for one below another prefix."""
    prefix = tier.scope.key_prefix
    key = PARSERS[tier.layout](full_key[len(prefix) :])
    return None if key is None or (prefix and key.prefix) else key


class Wholeness:
    """The check which objects a segment lacks. One thread.

    Args:
        tier: The tier of the objects; its descriptions are read where the listing is not enough.
    """

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._store = tier.store
        self._description = DESCRIPTIONS[tier.layout]
        self._wanting: set[str] = set()

    def look(self, groups: Iterable[ObjectGroup]) -> None:
        """Read the descriptions of segments without a transaction index, which not every segment has.

        Raises:
            StoreError and its kinds.

        Cost: in the kafka layout one small request for each such segment, several at a time; in others none.
        """
        if self._tier.layout != "kafka":
            return
        asked = (g for g in groups if self._description in g.objects and TRANSACTION_INDEX not in g.objects)
        with self._tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-orphans") as pool:
            while batch := list(itertools.islice(asked, _BATCH)):
                found = run_all(pool, self._wants_transactions, batch)
                self._wanting.update(itertools.compress((group.path for group in batch), found))

    def _wants_transactions(self, group: ObjectGroup) -> bool:
        scope, description = self._tier.scope, group.objects["segment.json"]
        if group.segment_id is None or description.size_bytes > DESCRIPTION_BYTES_MAX:
            return False
        try:
            segment = describe_kafka(
                self._store.fetch(description.key),
                folder=f"{group.path}/",
                identity=group.segment_id,
                name=scope.name,
                prefix=scope.key_prefix,
            )
        except (CorruptDataError, ObjectNotFoundError):
            return False  # the verifier names damage, and a deleted object lacks everything
        return segment.part(IndexType.TRANSACTION) is not None

    def is_whole(self, group: ObjectGroup) -> bool:
        """Whether a group is a segment with all of its objects."""
        if self._description is not None and self._description not in group.objects:
            return False
        return not self.lacking(group)

    def lacking(self, group: ObjectGroup) -> list[str]:
        """Return suffixes of the objects that a segment needs and lacks."""
        lacking = sorted(_NEEDED[self._tier.layout] - group.objects.keys())
        if lacking and self._tier.layout == "aiven" and self._description in group.objects:
            lacking = self._lacking_of_manifest(group, lacking)
        return lacking + ([TRANSACTION_INDEX] if group.path in self._wanting else [])

    def _lacking_of_manifest(self, group: ObjectGroup, lacking: list[str]) -> list[str]:
        """Suffixes that the manifest needs and the listing lacks: some stores hold no object of 0 bytes."""
        description = group.objects["rsm-manifest"]
        if description.size_bytes > MANIFEST_BYTES_MAX:
            return lacking
        try:
            manifest = parse_manifest(self._store.fetch(description.key), where=group.path)
        except (CorruptDataError, ObjectNotFoundError):
            return lacking
        sizes = {
            "log": manifest.chunk_index.object_size_bytes,
            "indexes": max((position + size for _, position, size in manifest.indexes), default=0),
        }
        return [suffix for suffix in lacking if sizes[suffix]]
