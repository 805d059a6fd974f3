"""One tier: a folder of a bucket (or of a disk) under one layout, its segments and their bytes.

What belongs here: opening one (``tier_paths``), its topics, partitions and segments (``tier``), the objects of a bucket
(``layouts``, ``objects``) and the pieces of a stored file (``chunks``); the log segments of a broker's disk
(``closed_segments``). Why: everything above works on ``StoredSegment`` and untransformed bytes, whichever program wrote
the bucket. What does not: the RemoteStorageManager (``remote.storage``), the segments' lineage (``remote.metadata``),
their records (``records``).

Invariant: no lock is held across a store call; no secret is in a segment, a message or a plan.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.remote.tier.chunks.key_ring import SegmentEncryption
    from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment
    from tierlog.remote.tier.tier import StoredTopic, Tier
    from tierlog.remote.tier.tier_paths import open_tier
else:
    _NAMES = {
        "tierlog.remote.tier.chunks.stored_segment": ("SegmentEncryption", "StoredPart", "StoredSegment"),
        "tierlog.remote.tier.tier": ("StoredTopic", "Tier"),
        "tierlog.remote.tier.tier_paths": ("open_tier",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = ["SegmentEncryption", "StoredPart", "StoredSegment", "StoredTopic", "Tier", "open_tier"]
