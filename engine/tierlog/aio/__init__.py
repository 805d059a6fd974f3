"""The storage manager for programs on an event loop: the same calls, awaited.

What belongs here: what turns blocking calls, and reads that wait for nobody, into awaitables, on asyncio's loop and on
uvloop's. Why: a broker with one loop thread must neither block it nor pay a thread for each fetch. What does not: a
loop of its own (none is started here, none is remembered: whichever runs the caller is used), nor what a segment is.

Here and in ``runtime`` (the write half of buckets) alone asyncio is known.
"""

from tierlog.aio.segment_stream import AsyncSegmentStream
from tierlog.aio.storage_manager import AsyncStorageManager

__all__ = ["AsyncSegmentStream", "AsyncStorageManager"]
