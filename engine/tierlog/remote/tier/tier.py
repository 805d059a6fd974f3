"""A tier: the content of a bucket prefix, as segments and their untransformed bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError, ObjectNotFoundError, SizeLimitError, TierlogError
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX, BatchRun, BatchRuns
from tierlog.remote.api import IndexType, Uuid
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import StoredSegment, fetch_part, iter_windows
from tierlog.remote.tier.layouts.listing import (
    EVERYTHING,
    Candidate,
    Layout,
    ListedSegment,
    Scope,
    SegmentFilter,
    footer_place,
)
from tierlog.remote.tier.layouts.segment_lookup import SegmentLookup, look_up, make_lookup
from tierlog.remote.tier.objects.object_keys import SEGMENT_PATHS
from tierlog.remote.tier.tier_footers import TierFooters
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import find_small_reads
from tierlog.runtime.waiting.threads import OrderedCalls

#: Store calls that one tier has under way at once.
CONCURRENCY = 16
#: Window of a local disk: small enough to be decoded while it is in the processor's cache.
LOCAL_WINDOW_BYTES = 2 << 20
#: Window of an object store: large enough that the latency of a GET does not count.
REMOTE_WINDOW_BYTES = 8 << 20
REMOTE_PREFETCH = 3


@dataclass(frozen=True, slots=True, order=True)
class StoredTopic:
    """A topic as the keys of a tier show it. ``topic_id`` is ZERO_UUID where the layout has none."""

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]


#: Descriptions that are read together, and the largest that is.
_TOGETHER: Final = 256
_SMALL_BYTES_MAX: Final = 32 << 10
_Read = tuple[Candidate, Buffer | None]
#: A candidate, and what was read of it.
LoadedCandidate = tuple[Candidate, ListedSegment | StoredSegment]


class Tier(Closeable):
    """One folder of a store under one layout. Made by ``open_tier``; a context manager.

    Attributes:
        url: Of the store, as ``open_store`` takes it: keys of segments are relative to it. "" if unknown.
        scope: Where in the store the segments are.
        footers: Those of its segments.

    Thread safety: any number of threads; nothing is locked across a store call. Iterators belong to one thread each.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: Layout,
        *,
        key_ring: KeyRing | None = None,
        machine: Machine | None = None,
        url: str = "",
        scope: Scope | None = None,
        listed: Iterable[ObjectInfo] | None = None,
        footers_elsewhere: ObjectStore | None = None,
    ) -> None:
        self.url = url
        self.scope = scope or Scope()
        self._store = store
        self._layout = layout
        self._key_ring = key_ring or KeyRing({})
        self._machine = machine or Machine()
        self._listed = listed
        self._calls = OrderedCalls(CONCURRENCY, self._machine, "the tier")
        self.footers = TierFooters(store, self._key_ring, self._machine, elsewhere=footers_elsewhere)

    @property
    def layout(self) -> str:
        """Name of the layout, as ``open_tier`` takes it: give it to an executor, so that it need not look again."""
        return self._layout.name

    @property
    def listing(self) -> Layout:
        """The layout that lists and describes the tier's segments."""
        return self._layout

    @property
    def store(self) -> ObjectStore:
        return self._store

    @property
    def key_ring(self) -> KeyRing:
        """The keys of its encrypted segments."""
        return self._key_ring

    @property
    def machine(self) -> Machine:
        """The machine that the tier's work runs on."""
        return self._machine

    @property
    def foreign_objects(self) -> int:
        """Objects of the last listing that belong to no whole segment: foreign keys, incomplete uploads."""
        return self._layout.foreign_objects

    def describe(self) -> str:
        """Return the tier's URL and layout for messages, without secrets."""
        return f"{self._store.describe()} ({self.layout})"

    def topics(self, candidates: Iterable[Candidate] | None = None) -> tuple[StoredTopic, ...]:
        """Return the topics that keys name, by name and id.

        Args:
            candidates: The segments of an earlier listing; None lists, and reads nothing else.
        """
        found: dict[tuple[str, Uuid], set[int]] = {}
        for candidate in self.find_candidates() if candidates is None else candidates:
            partition = candidate.topic_id_partition
            found.setdefault((partition.topic, partition.topic_id), set()).add(partition.partition)
        return tuple(
            StoredTopic(name, topic_id, tuple(sorted(found[name, topic_id]))) for name, topic_id in sorted(found)
        )

    def iter_segments(
        self,
        topic: str | None = None,
        topic_pattern: str | re.Pattern[str] | None = None,
        *,
        partitions: Collection[int] | None = None,
        faults: list[TierlogError] | None = None,
    ) -> Iterator[StoredSegment]:
        """Yield the whole segments of the tier, by topic, partition, start offset and segment id.

        The listing comes first, then the descriptions of the wanted segments (manifests, checkpoints, index ends),
        several at a time; nothing of other topics is fetched. Uploads that never became whole are no segments.

        Args:
            topic: One topic by name.
            topic_pattern: A regular expression that the whole name must match; excludes ``topic``.
            partitions: Only these.
            faults: Where errors of single segments go, which are then left out; None raises the first.

        Raises:
            CorruptObjectError: a manifest is unreadable or belongs to another segment; names its key.
            ObjectNotFoundError: an object of a listed segment is gone; names the segment's age.
            EncryptionKeyError: only of a segment whose manifest lacks its description, which is then in its bytes.
            ConfigError: both a topic and a pattern. StoreError and its kinds.
        """
        candidates = self.find_candidates(SegmentFilter.of(topic, topic_pattern, partitions))
        with closing(self.iter_loads(candidates)) as loads:
            for outcome in loads:
                if isinstance(outcome, TierlogError):
                    if faults is None:
                        raise outcome
                    faults.append(outcome)
                elif outcome is not None:
                    yield outcome

    def find_candidates(
        self, wanted: SegmentFilter | None = None, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """Yield the whole segments of a listing, as its keys show them, ordered as ``iter_segments``.

        Args:
            wanted: The segments to find; None for all.
            objects: Listed objects; then nothing is listed here, and at most the small file is fetched that says the
                topic id of a log directory's partition.

        Raises:
            StoreError and its kinds.
        """
        if objects is None:
            objects = self._take_listed()
        return self._layout.find_candidates(wanted or EVERYTHING, objects)

    def iter_partitions(
        self,
        topic_pattern: str | re.Pattern[str] | None,
        *,
        faults: list[TierlogError] | None,
        described_max: int = 0,
        known: Callable[[Candidate], ListedSegment | None] | None = None,
    ) -> Iterator[list[LoadedCandidate]]:
        """Yield the whole segments of ``iter_segments``, those of one partition after another's, each with its
        candidate.

        A partition comes as soon as its listing has ended, in the order of the listing: never all of a tier is in
        memory, as long as the store lists a folder's objects one after another; where it does not, a partition comes
        again.

        Args:
            topic_pattern: As ``iter_segments``.
            faults: As ``iter_segments``.
            described_max: So many are described, the others looked at as their layout can.
            known: Finds segments that need not be looked at; then none is described.

        Raises:
            As ``iter_segments``; of a ListedSegment faults come when it is described.
        """
        candidates = self._layout.find_as_listed(SegmentFilter.of(None, topic_pattern, None), self._take_listed())

        looks = self._iter_looks(candidates, described_max) if known is None else self._iter_unknown(candidates, known)
        with closing(looks) as loads:
            found: list[LoadedCandidate] = []
            for outcome in loads:
                if isinstance(outcome, TierlogError):
                    if faults is None:
                        raise outcome
                    faults.append(outcome)
                    continue
                candidate, segment = outcome
                if segment is None:
                    continue
                if found and found[-1][0].topic_id_partition != candidate.topic_id_partition:
                    yield found
                    found = []
                found.append((candidate, segment))
            if found:
                yield found

    def _iter_looks(
        self, candidates: Iterator[Candidate], described_max: int
    ) -> Generator[tuple[Candidate, ListedSegment | StoredSegment | None] | TierlogError]:
        """Yield each candidate with what ``load`` finds of the first ones, and ``load_listed`` of the others; or an
        error.
        """

        def load(candidate: Candidate) -> tuple[Candidate, StoredSegment | None]:
            return candidate, self._layout.load(candidate)

        def look(read: _Read) -> tuple[Candidate, ListedSegment | StoredSegment | None]:
            candidate, description = read
            return candidate, self._layout.load_listed(candidate, description)

        yield from self._calls.map(load, itertools.islice(candidates, described_max), ahead=self._ahead)
        together = find_small_reads(self._store)
        if together is None:
            yield from self._calls.map(look, ((each, None) for each in candidates), ahead=self._ahead)
            return

        def read(group: Sequence[Candidate]) -> list[_Read]:
            described = [self._layout.described_by(each) for each in group]
            if any(info is None or info.size_bytes > _SMALL_BYTES_MAX for info in described):
                return [(each, None) for each in group]
            infos = [info for info in described if info is not None]
            found = together.fetch_small([info.key for info in infos], [info.size_bytes + 1 for info in infos])
            return list(zip(group, found, strict=True))

        groups = iter(lambda: list(itertools.islice(candidates, _TOGETHER)), [])
        with closing(self._calls.iter_ahead(read, groups, ahead=1)) as reads:
            for each in reads:
                yield from self._calls.map(look, each, ahead=0)

    def _iter_unknown(
        self, candidates: Iterator[Candidate], known: Callable[[Candidate], ListedSegment | None]
    ) -> Generator[tuple[Candidate, ListedSegment | StoredSegment | None] | TierlogError]:
        """Yield each candidate with the segment that is known of it, or what ``load_listed`` finds; or an error."""

        def look(candidate: Candidate) -> tuple[Candidate, ListedSegment | StoredSegment | None]:
            return candidate, self._layout.load_listed(candidate)

        for group in iter(lambda: list(itertools.islice(candidates, _TOGETHER)), []):
            found = [known(each) for each in group]
            unknown = [each for each, segment in zip(group, found, strict=True) if segment is None]
            with closing(self._calls.map(look, unknown, ahead=self._ahead)) as looks:
                for candidate, segment in zip(group, found, strict=True):
                    yield next(looks) if segment is None else (candidate, segment)

    def _take_listed(self) -> Iterable[ObjectInfo] | None:
        """Return the objects that opening the tier may have listed just now, once."""
        listed, self._listed = self._listed, None
        return listed

    def iter_loads(self, candidates: Iterable[Candidate]) -> Generator[StoredSegment | TierlogError | None]:
        """Yield, for each candidate in order, the result or the error of ``load``.

        Args:
            candidates: Of this tier. Of a local disk they are loaded in the calling thread, else so many at once that
                latency does not count.
        """
        return self._calls.map(self._layout.load, candidates, ahead=self._ahead)

    def iter_looks(
        self, candidates: Iterable[Candidate]
    ) -> Generator[ListedSegment | StoredSegment | TierlogError | None]:
        """Yield, for each candidate in order, what its layout finds of its metadata alone (``Layout.load_listed``), or
        the error: of several at once, as ``iter_loads`` does.
        """
        with closing(self._iter_looks(iter(candidates), 0)) as looks:
            for outcome in looks:
                yield outcome if isinstance(outcome, TierlogError) else outcome[1]

    @property
    def _ahead(self) -> int:
        return 0 if self._store.is_local else 2 * CONCURRENCY

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Load the segment of listed objects: its description is fetched.

        Returns:
            None if it is gone since it was listed, or there is nothing to read in it.

        Raises:
            As ``iter_segments``, for this segment.
        """
        return self._layout.load(candidate)

    def describe_segment(self, segment: StoredSegment) -> StoredSegment:
        """Read what describes a segment of which only the metadata is known (``StoredSegment.is_described``).

        Returns:
            The described segment; one that is described already, as it is.

        Raises:
            CorruptObjectError: unreadable, of another segment or size. SizeLimitError.
            ObjectNotFoundError: it is gone; names the segment's age. StoreError and its kinds.

        Cost: one small request.
        """
        if segment.is_described:
            return segment
        prefix = segment.log.key.partition(SEGMENT_PATHS[segment.layout](segment.metadata))[0]
        lookup = _lookup(segment.layout, prefix, segment.name != segment.log.key)
        with self._aged(segment):
            found = look_up(lookup, self._store, segment.metadata)
        listed = segment.footer
        digest = footer_place(None, found.description, unlisted=listed is not None)
        footer = None if listed is None or digest is None else replace(digest, size_bytes=listed.size_bytes)
        return replace(found.segment, last_modified_ms=segment.last_modified_ms, footer=footer)

    def fetch_index(self, segment: StoredSegment, index_type: IndexType) -> bytes | memoryview | None:
        """Return a part of a segment beside its log, decrypted: the bytes that the broker had.

        Returns:
            None if the part is known to be absent (always possible for TRANSACTION; for the others where a layout
            lacks them); b"" for an empty one, without a request.

        Raises:
            CorruptObjectError: shorter than its description says, or not authentic.
            ObjectNotFoundError: the object is gone; names the segment's age.
            EncryptionKeyError: no key of the ring opens it. StoreError and its kinds.
        """
        segment = self.describe_segment(segment)
        with self._aged(segment):
            return fetch_part(self._store, self._key_ring, segment, segment.part(index_type))

    def iter_log_windows(
        self,
        segment: StoredSegment,
        start_position: int = 0,
        end_position_exclusive: int | None = None,
        *,
        window_bytes: int | None = None,
        prefetch: int | None = None,
        store: ObjectStore | None = None,
    ) -> Generator[tuple[int, memoryview]]:
        """Yield the untransformed bytes of a range of the log, in order, contiguous, as (position, bytes).

        Neighbouring chunks come in one GET a window; ``prefetch`` windows are fetched while one is used. Memory:
        (prefetch + 2) windows, each at least one chunk. Closing the iterator cancels the pending ones. A window is the
        caller's for as long as it holds it.

        Args:
            segment: Of this tier.
            start_position: First byte, in the untransformed log.
            end_position_exclusive: Behind the last byte; None is the end of what counts.
            window_bytes: About the size of one window; by default 2 MiB on a local disk, else 8 MiB.
            prefetch: By default 0 for plain local files, else 3.
            store: Read from in place of the tier's own: a wrapper that counts the requests of this read.

        Raises:
            ValueError: not 0 <= start <= end <= ``segment.size_bytes``.
            CorruptObjectError: the object is shorter than described, a chunk is not authentic or does not decompress to
                its size; with the position in the object and the values expected and found.
            ObjectNotFoundError: the object is gone; names the segment's age.
            EncryptionKeyError: no key of the ring opens it. StoreError and its kinds.
        """
        end = segment.size_bytes if end_position_exclusive is None else end_position_exclusive
        if not 0 <= start_position <= end <= segment.size_bytes:
            raise ValueError(
                f"range {start_position} … {end} is not within the {segment.size_bytes} bytes of {segment.name}"
            )
        windows = self._windows(self.describe_segment(segment), start_position, end, window_bytes, prefetch, store)
        return self._iter_aged(segment, windows)

    def _windows(
        self,
        segment: StoredSegment,
        start_position: int,
        end_position_exclusive: int,
        window_bytes: int | None,
        prefetch: int | None,
        store: ObjectStore | None,
    ) -> Generator[tuple[int, memoryview]]:
        """Iterate windows like ``iter_log_windows``, of a checked range."""
        plain_local = self._store.is_local and not segment.transformed
        window = window_bytes or (LOCAL_WINDOW_BYTES if self._store.is_local else REMOTE_WINDOW_BYTES)
        ahead = (0 if plain_local else REMOTE_PREFETCH) if prefetch is None else prefetch
        return iter_windows(
            store or self._store,
            self._key_ring,
            self._calls,
            segment,
            start_position=start_position,
            end_position_exclusive=end_position_exclusive,
            window_bytes=window,
            prefetch=ahead,
        )

    def _iter_aged(
        self, segment: StoredSegment, windows: Generator[tuple[int, memoryview]]
    ) -> Generator[tuple[int, memoryview]]:
        with self._aged(segment):
            yield from windows

    def _aged(self, segment: StoredSegment) -> _Aged:
        return _Aged(segment, self._machine.clock)

    def close(self) -> None:
        """Wait for pending calls and release threads and the store; idempotent."""
        self._calls.close()
        self.footers.close()
        self._store.close()


@lru_cache(maxsize=16)
def _lookup(layout: str, key_prefix: str, mask: bool) -> SegmentLookup:
    """Make a lookup, which has no state, once for neighbouring segments."""
    return make_lookup(layout, key_prefix=key_prefix, mask=mask)


class _Aged:
    """A block that adds the segment and its age to "not found": retention may have deleted it since it was listed."""

    def __init__(self, segment: StoredSegment, clock: Clock) -> None:
        self._segment = segment
        self._clock = clock

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ObjectNotFoundError):
            age_ms = max(0, self._clock.time_ms() - self._segment.last_modified_ms)
            told = ObjectNotFoundError(
                f"{self._segment.name}: gone since it was listed (retention may have deleted it; it was written "
                f"{_in_words(age_ms)} ago): {error}"
            )
            raise told from error


def _in_words(age_ms: int) -> str:
    minutes, hours, days = age_ms // 60_000, age_ms // 3_600_000, age_ms // 86_400_000
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


CONTROL_ATTRIBUTE = 0x20
TRANSACTIONAL_ATTRIBUTE = 0x10


def iter_batch_runs(
    tier: Tier,
    segment: StoredSegment,
    start_position: int = 0,
    end_position_exclusive: int | None = None,
    *,
    verify_crc: bool = False,
    window_bytes: int | None = None,
) -> Iterator[BatchRun]:
    """Scan a range of a log that begins at a batch border.

    Raises:
        CorruptRecordError: a header is malformed, or the range ends inside a batch; the batches before it were given.
        SizeLimitError: a batch claims more than 256 MiB.
        CorruptObjectError, StoreError and its kinds: as ``Tier.iter_log_windows``.
    """
    windows = tier.iter_log_windows(segment, start_position, end_position_exclusive, window_bytes=window_bytes)
    with closing(windows):
        runs = BatchRuns((window for _, window in windows), verify_crc=verify_crc, end_position=start_position)
        yield from runs
    if runs.broken is not None:
        raise runs.broken.located(segment.place)
    if runs.oversized:
        text = f"a batch claims {runs.rest_size_bytes} bytes, more than the limit of {BATCH_SIZE_BYTES_MAX}"
        raise SizeLimitError(text, fault="OVER_LIMIT", position=runs.end_position, where=segment.place)
    if runs.rest:
        text = f"the log ends inside a batch, after {len(runs.rest)} of its bytes"
        raise CorruptRecordError(text, fault="TRUNCATED", position=runs.end_position, where=segment.place)
