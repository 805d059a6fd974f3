"""Whether a segment's id was copied before: by what is in the store, not by what anybody remembers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.remote.tier.layouts.segment_objects import log_index_keys
from tierlog.runtime.stores.protocol.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """A whole segment that is in the store already.

    Args:
        stored_bytes: Of all its objects.
        digest: SHA-256 of its description.
    """

    stored_bytes: int
    digest: bytes


def find_copied_before(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata, description_key: str
) -> CopiedSegment | None:
    """What an earlier copy of this id stored, if all of it is there: described as this segment, each object whole.

    Returns:
        None: nothing, or less than a segment, or not this one.

    Raises:
        StoreError and its kinds: the store does not say.
    """
    lookup = make_lookup(config.layout, key_prefix=config.key_prefix, mask=config.key_prefix_mask)
    try:
        found = look_up(lookup, store, replace(metadata, custom_metadata=None))
        description = memoryview(store.fetch(description_key)).cast("B")
    except (ObjectNotFoundError, CorruptDataError):
        return None
    segment, beside_bytes = found.segment, len(description)
    ends: dict[str, int] = {}
    for part in (segment.log, *(part for _, part in segment.parts)):
        ends[part.key] = max(ends.get(part.key, 0), part.position + part.size_bytes)
    for key, size_bytes in ends.items():
        info = store.find(key)
        if info is None or info.size_bytes != size_bytes:
            return None
    if config.log_index_object_enabled:  # it may have been copied when it was not
        shipped = [store.find(key) for key in log_index_keys(config, replace(metadata, custom_metadata=None))]
        beside_bytes += sum(info.size_bytes for info in shipped if info is not None)
    return CopiedSegment(sum(ends.values()) + beside_bytes, hashlib.sha256(description).digest())
