"""Streams of segments behind the pieces that were sent last: the next piece goes on with one.

A client asks for a range piece by piece, and the server has no state: without this the chunk across two pieces, or a
request to the store, would begin anew where no cache holds it. A stream that nobody goes on with is closed soon.
"""

from __future__ import annotations

import collections
from typing import Final

from tierlog.aio.segment_stream import AsyncSegmentStream
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.runtime.machine.clock import Clock

#: A client that reads on does so at once.
_SECONDS: Final = 2.0

Place = tuple[RemoteLogSegmentId, int]


class ParkedStreams:
    """Streams by segment and position, the oldest first; one each. For the loop's thread.

    Args:
        limit: How many there are at most; the oldest goes.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._streams: collections.OrderedDict[Place, tuple[float, AsyncSegmentStream]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def take(self, place: Place) -> AsyncSegmentStream | None:
        """Return the stream that stands at a place, which is the caller's then."""
        found = self._streams.pop(place, None)
        return None if found is None else found[1]

    def park(self, place: Place, stream: AsyncSegmentStream) -> list[AsyncSegmentStream]:
        """Keep a stream; return those that the caller closes instead."""
        replaced = self.take(place)
        self._streams[place] = self._clock.monotonic_seconds(), stream
        gone = [] if replaced is None else [replaced]
        if len(self._streams) > self._limit:
            gone.append(self._streams.popitem(last=False)[1][1])
        return gone

    def take_expired(self, *, all_of_them: bool = False) -> list[AsyncSegmentStream]:
        """Return the streams that nobody went on with in time, which the caller closes."""
        until = self._clock.monotonic_seconds() - _SECONDS
        gone: list[AsyncSegmentStream] = []
        while self._streams:
            place, (since, stream) = next(iter(self._streams.items()))
            if since > until and not all_of_them:
                break
            del self._streams[place]
            gone.append(stream)
        return gone
