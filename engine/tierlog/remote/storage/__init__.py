"""One tier: a folder of a bucket (or of a disk) under one layout, its segments and their bytes.

What belongs here: object keys and layouts, manifests, chunk transforms undone (decryption, decompression), joined
ranged reads. Why: everything above works on ``StoredSegment`` and untransformed bytes, whoever wrote the bucket.
What does not: which segments belong together and count (``remote.metadata``), what is in the bytes (``records``).

Invariant: no lock is held across a store call; no secret is in a segment, a message or a plan.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.remote.storage.opening import open_tier
    from tierlog.remote.storage.segment import SegmentEncryption, StoredPart, StoredSegment
    from tierlog.remote.storage.tier import StoredTopic, Tier
else:
    _NAMES = {
        "SegmentEncryption": "tierlog.remote.storage.segment",
        "StoredPart": "tierlog.remote.storage.segment",
        "StoredSegment": "tierlog.remote.storage.segment",
        "StoredTopic": "tierlog.remote.storage.tier",
        "Tier": "tierlog.remote.storage.tier",
        "open_tier": "tierlog.remote.storage.opening",
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = ["SegmentEncryption", "StoredPart", "StoredSegment", "StoredTopic", "Tier", "open_tier"]
