"""One tier: a folder of a bucket (or of a disk) under one layout, its segments and their bytes.

What belongs here: the RemoteStorageManager (``tiered_storage_manager``) and its rooms: ``config``, ``objects`` and
``layouts`` (what lies in a bucket), ``chunks``, ``copy``, ``fetch`` over ``cache`` and ``requests``, and ``tier`` for
who reads without a broker. Why: everything above works on ``StoredSegment`` and untransformed bytes, whoever wrote the
bucket. What does not: which segments belong together and count (``remote.metadata``), what is in them (``records``).

Invariant: no lock is held across a store call; no secret is in a segment, a message or a plan.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.remote.storage.chunks.segment import SegmentEncryption, StoredPart, StoredSegment
    from tierlog.remote.storage.tier.tier import StoredTopic, Tier
    from tierlog.remote.storage.tier.tier_paths import open_tier
else:
    _NAMES = {
        "SegmentEncryption": "tierlog.remote.storage.chunks.segment",
        "StoredPart": "tierlog.remote.storage.chunks.segment",
        "StoredSegment": "tierlog.remote.storage.chunks.segment",
        "StoredTopic": "tierlog.remote.storage.tier.tier",
        "Tier": "tierlog.remote.storage.tier.tier",
        "open_tier": "tierlog.remote.storage.tier.tier_paths",
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = ["SegmentEncryption", "StoredPart", "StoredSegment", "StoredTopic", "Tier", "open_tier"]
