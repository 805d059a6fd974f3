"""The managers for programs on an event loop: the same calls, awaited.

What belongs here: awaitables made of blocking calls and of reads that hold no thread, on asyncio's loop and on
uvloop's. Why: a broker with one loop thread must neither block it nor pay a thread for each fetch. What does not: a
loop of our own (none is started or remembered: a call uses the loop that runs it), or knowledge of segments.

Only this room, ``broker.server`` and ``runtime`` (the write half of buckets) import asyncio.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.aio.log_manager import AsyncRemoteLogManager
    from tierlog.aio.metadata_manager import AsyncLogMetadataManager
    from tierlog.aio.segment_stream import AsyncSegmentStream
    from tierlog.aio.storage_manager import AsyncStorageManager
else:
    # A server waits and reads by this room, and has no use for the managers.
    _NAMES = {
        "tierlog.aio.log_manager": ("AsyncRemoteLogManager",),
        "tierlog.aio.metadata_manager": ("AsyncLogMetadataManager",),
        "tierlog.aio.segment_stream": ("AsyncSegmentStream",),
        "tierlog.aio.storage_manager": ("AsyncStorageManager",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = ["AsyncLogMetadataManager", "AsyncRemoteLogManager", "AsyncSegmentStream", "AsyncStorageManager"]
