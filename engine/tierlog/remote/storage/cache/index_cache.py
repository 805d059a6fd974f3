"""The parts of segments beside their logs: a broker asks for three of them in a row, so they come in one request."""

from __future__ import annotations

from typing import Any, Final

from tierlog.errors import CorruptObjectError, ObjectNotFoundError
from tierlog.remote.api import IndexType
from tierlog.remote.storage.cache.manifest_cache import LoadingCache
from tierlog.remote.storage.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment, open_part, part_name
from tierlog.remote.tier.layouts.segment_lookup import UNKNOWN_SIZE
from tierlog.remote.tier.objects.segment_bounds import without_preallocation
from tierlog.runtime.waiting.waits import SharedLoad, Waits

#: Parts that lie side by side are fetched together up to this size.
TOGETHER_BYTES_MAX: Final = 2 << 20
#: More than any part of a segment has: an object of unknown size is read up to its end.
_WHOLE_BYTES: Final = 1 << 31

_Key = tuple[str, IndexType]


class IndexCache(LoadingCache[_Key, bytes]):
    """Indexes of segments, fetched together."""

    def __init__(self, requests: StoreRequests, *more: Any, **limits: Any) -> None:
        super().__init__(requests, *more, **limits)
        self._count_hit = requests.metrics.counting("cache_hits_total", "indexes")
        self._count_hit_bytes = requests.metrics.counting("cache_hit_bytes_total", "indexes")

    def find(self, segment: StoredSegment, index_type: IndexType) -> bytes | None:
        """Return a part's bytes as the broker had them if they are cached; b"" for an empty one. Of the zeros behind an
        active segment's index one entry is left. This does not wait.

        Raises:
            ObjectNotFoundError: there is no such part.
        """
        part = segment.part(index_type)
        if part is None:
            raise ObjectNotFoundError(f"{segment.name}: the segment has no {index_type.value} index")
        if part.size_bytes == 0:
            return b""
        found = self._cache.find((segment.log.key, index_type))
        if found is not None:
            self._count_hit()
            self._count_hit_bytes(len(found))
        return found

    def fetch(self, segment: StoredSegment, index_type: IndexType) -> Waits[bytes]:
        """Return a part's bytes as the broker had them, which ``find`` did not have.

        Raises:
            ObjectNotFoundError: its object is gone. CorruptObjectError: shorter than described, or not authentic.
            EncryptionKeyError. StoreUnavailableError: not there in time. StoreError and its kinds.
        """
        self._metrics.add("cache_misses_total", label="indexes")
        load, is_new = self._under_way.join((segment.log.key, index_type))
        if is_new:
            self._begin(load, segment, index_type)
        return (yield from self._loaded(load, f"the {index_type.value} index of {segment.name}"))

    def _begin(self, load: SharedLoad[_Key, bytes], segment: StoredSegment, index_type: IndexType) -> None:
        known = self._cache.find((segment.log.key, index_type), again=True)
        if known is not None:
            self._under_way.land(load, known)  # it came with another one meanwhile
            return
        part = segment.part(index_type)
        assert part is not None, "find has looked"
        is_exact = part.size_bytes != UNKNOWN_SIZE
        start, end = _run_around(segment, part) if is_exact else (0, _WHOLE_BYTES)
        name = part_name(segment, part)

        def land(stored: memoryview) -> None:
            self._under_way.land(load, self._opened_all(segment, index_type, part, stored, start))

        def read() -> None:
            self._end(load, lambda: land(self._requests.read_here(part.key, start, end, name, is_exact=is_exact)))

        def came(answer: memoryview | BaseException) -> None:
            if isinstance(answer, BaseException):
                self._under_way.fail(load, answer)
            else:
                self._under_way.continue_in(self._pool, load, lambda: self._end(load, lambda: land(answer)))

        if self._requests.store.is_local:
            load.offer(read)
            return
        self._requests.start(
            ReadRequest(
                part.key,
                start,
                end,
                name=name,
                lane=Lane.DESCRIPTIONS,
                turn=segment.log.key,
                on_answer=came,
                is_exact=is_exact,
                before=lambda _: self._requests.note_sent(load),
            )
        )

    def _opened_all(
        self, segment: StoredSegment, index_type: IndexType, part: StoredPart, stored: memoryview, start: int
    ) -> bytes:
        """Open and cache the wanted part and those that came with it; return the first."""
        if part.size_bytes == UNKNOWN_SIZE:
            data = bytes(stored)
            self._keep(segment, index_type, data)
            return data
        end = start + len(stored)
        data = self._open(segment, index_type, part, stored, start)
        for kind, other in segment.parts:
            if other is not part and _lies_within(other, part, start, end):
                try:
                    self._keep(segment, kind, self._open(segment, kind, other, stored, start))
                except CorruptObjectError:
                    continue  # raised for the caller that wants that part
        self._keep(segment, index_type, data)
        return data

    def _open(
        self, segment: StoredSegment, index_type: IndexType, part: StoredPart, stored: memoryview, start: int
    ) -> bytes:
        own = stored[part.position - start : part.position - start + part.size_bytes]
        data = bytes(open_part(self._key_ring, segment, part, own))
        return data if segment.closed else without_preallocation(index_type, data, leaves_mark=True)

    def _keep(self, segment: StoredSegment, index_type: IndexType, data: bytes) -> None:
        self._cache.put((segment.log.key, index_type), data, len(data))

    def forget(self, log_key: str) -> None:
        """Drop the indexes of a segment that is gone."""
        self._cache.remove_where(lambda key: key[0] == log_key)


def _run_around(segment: StoredSegment, part: StoredPart) -> tuple[int, int]:
    """The range to read in a part's object: that of all parts in it, if these are small."""
    own = [other for _, other in segment.parts if other.key == part.key and other.size_bytes > 0]
    start = min(other.position for other in own)
    end = max(other.position + other.size_bytes for other in own)
    if end - start > TOGETHER_BYTES_MAX:
        return part.position, part.position + part.size_bytes
    return start, end


def _lies_within(other: StoredPart, part: StoredPart, start: int, end: int) -> bool:
    return (
        other.key == part.key
        and other.size_bytes > 0
        and start <= other.position
        and other.position + other.size_bytes <= end
    )
