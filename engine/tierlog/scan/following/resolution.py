"""The history of one listed partition: its segments loaded, their lineage found, or the error.

Segments that a scan leaves out and names, a server must not leave out in silence: a consumer would pass over the
records and never know. A segment that cannot be described may be missing only where another one holds its offsets and
it cannot be the newest leader's, which would say which part of the others counts; a segment whose log is gone also
where retention may have deleted it: below all that are whole. The newest segments do not go while older ones are left.
Offsets that no segment holds are passed over only when none can be late: see ``Held``.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

import xxhash

from tierlog.errors import ObjectNotFoundError, StoreError, TierlogError
from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.metadata.lineage import Gap, Lineage, newest_segment
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.file_parts import described, fetch_epochs, id_of, whole_object
from tierlog.remote.tier.layouts.listing import Candidate
from tierlog.remote.tier.layouts.segment_lookup import KnownCandidate
from tierlog.remote.tier.objects.object_keys import LOG
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.cancelling import require_wanted
from tierlog.scan.following.tier_listing import ListedPartition, TierKeys
from tierlog.scan.history import PartitionHistory, TierHistory

_log = logging.getLogger(__name__)

#: Memory of a history, of each of its segments, and of each chunk of a compressed one.
_HISTORY_BYTES: Final = 4096
_SEGMENT_BYTES: Final = 2048
_CHUNK_BYTES: Final = 12

#: By a digest of the objects as they were listed: the segment that was made of them.
LoadedSegments = Mapping[bytes, StoredSegment]


@dataclass(frozen=True, slots=True)
class Held:
    """Whole segments that are not served yet, since those in front of them are missing.

    Brokers copy in the order of offsets, but a bucket may fill in another one: its objects may themselves be copies of
    another bucket's, and a listing takes its time. A consumer that had passed over the gap would never come back.

    Args:
        gap: The missing offsets.
        until_ms: When it counts as lost, ms since 1970.
    """

    gap: Gap
    until_ms: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """A partition, resolved.

    Args:
        listed: Of which listing.
        history: What counts; None if nothing of the partition is left.
        loaded: Segments that the next resolution need not load again.
        held: What counts later.
        size_bytes: Memory of the history and of its prepared views, as measured.
        digest: Of all that the history is made of: equal where histories are.
    """

    listed: ListedPartition | None
    history: PartitionHistory | None
    loaded: LoadedSegments
    held: Held | None = None
    size_bytes: int = 0
    digest: bytes = b""

    @classmethod
    def of(
        cls, listed: ListedPartition, history: PartitionHistory, loaded: LoadedSegments, held: Held | None = None
    ) -> Resolution:
        """Return a resolution that has a history. Cost: a look at each segment, so that it is not for an event loop."""
        size = _HISTORY_BYTES + _SEGMENT_BYTES * len(loaded)
        for segment in loaded.values():
            if segment.chunk_index is not None and segment.compression:
                size += _CHUNK_BYTES * segment.chunk_index.chunk_count
        lineage, gap = history.lineage, None if held is None else held.gap
        digest = xxhash.xxh3_128(b"".join(sorted(loaded)))
        digest.update(repr((lineage.epochs, lineage.empty_at, history.log_start_offset, gap)).encode())
        return cls(listed, history, loaded, held, size, digest.digest())


#: What lies behind a gap is held back until it is so old: copies between buckets take no longer, says S3's promise for
#: its replication.
LATE_MS: Final = 15 * 60 * 1000
#: How often a partition is listed again while its objects vanish under the reader.
_LISTINGS_MAX: Final = 3


class Resolver:
    """Resolves partitions.

    Args:
        source: Where candidates come from, and their tier.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.

    Thread safety: any number of threads.
    """

    def __init__(self, source: TierKeys, log_start_offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._tier = source.tier
        self._source = source
        self._log_start_offsets = log_start_offsets

    def resolve_partition(
        self,
        listed: ListedPartition,
        before: Resolution | None = None,
        *,
        relist: bool = False,
        served_end_offset: int = 0,
        describes: bool = True,
    ) -> Resolution:
        """Make the history of a partition.

        Args:
            listed: As it was listed last.
            before: The resolution before, whose segments are reused, and the history itself if nothing changed.
            relist: List it again first.
            served_end_offset: Without a resolution before: up to where one has been served that was evicted. What
                lies below is not held back.
            describes: Read what describes the segments; False: as little as their source needs, and faults of the rest
                come when they are read. Only of layouts whose segments are found by their metadata.

        Raises:
            StoreError and its kinds, CorruptDataError and its kinds, EncryptionKeyError: nothing can be said of the
            partition.
        """
        now: ListedPartition | None = listed
        for attempt in range(_LISTINGS_MAX):
            is_last = attempt + 1 == _LISTINGS_MAX
            if relist or attempt:
                now = self._source.relist(listed)
                is_last = is_last or now is listed
            if now is None:
                break
            found = self._load(now, before, describes=describes)
            # Objects that are gone since they were listed are no loss, and missing ones may be there by now: list anew.
            if found.vanished and not is_last:
                continue
            resolution = self._resolution(now, found, before, served_end_offset)
            if resolution.held is None:
                return resolution
            if relist or attempt or is_last:
                _log_held(resolution, before)
                return resolution
        return Resolution(None, None, {})

    def _resolution(
        self, listed: ListedPartition, found: _Found, before: Resolution | None, served_end_offset: int
    ) -> Resolution:
        if not found.segments:
            if found.faults:
                raise found.faults[0][1]
            if found.empty is not None and not (found.lost or found.vanished):
                return Resolution.of(listed, _empty_history(self._tier, found.empty), {})
            return Resolution(listed, None, {})
        segments = list(found.segments.values())
        is_whole = not (found.faults or found.lost or found.vanished)
        is_same = before is not None and before.loaded.keys() == found.segments.keys()
        if before is not None and is_whole and is_same and before.held is None:
            return replace(before, listed=listed)
        partition = listed.topic_id_partition
        # Without a list of faults: a checkpoint that no key opens is an error, not a guess at what counts.
        tier_history = TierHistory(self._tier, log_start_offsets=self._log_start_offsets)
        history = tier_history.history_of(partition, segments)
        _require_covered(history, found, has_late_segments=self._source.has_late_segments)
        if before is not None and before.history is not None and self._source.has_late_segments:
            _require_no_way_back(before.history, history)
        held = self._held(history, before, served_end_offset) if self._source.has_late_segments else None
        if held is not None:
            if before is not None and is_same and before.held == held:
                return replace(before, listed=listed)
            # As the bucket was before: a leader of which nothing is served says nothing yet of what counts.
            segments = [each for each in segments if each.start_offset < held.gap.first_offset]
            history = tier_history.history_of(partition, segments)
        for warning in history.warnings:
            _log.warning("%s: %s", partition, warning)
        return Resolution.of(listed, history, found.segments, held)

    def _held(self, history: PartitionHistory, before: Resolution | None, served_end_offset: int) -> Held | None:
        """Return the segments to hold back: those not served yet behind the first gap that may still be filled; else
        None.
        """
        if not history.gaps:
            return None
        served = set()
        if before is not None and before.history is not None:
            served = {span.segment.metadata.remote_log_segment_id for span in before.history.spans}
        behind = {span.first_offset: span.segment for span in history.lineage.spans}
        now_ms = self._tier.machine.clock.time_ms()
        for gap in history.gaps:
            segment = behind[gap.end_offset_exclusive]
            until_ms = segment.last_modified_ms + LATE_MS
            is_served = segment.metadata.remote_log_segment_id in served or segment.start_offset < served_end_offset
            if not is_served and now_ms < until_ms:
                return Held(gap, min(until_ms, now_ms + LATE_MS))
        return None

    def _load(self, listed: ListedPartition, before: Resolution | None, *, describes: bool) -> _Found:
        found = _Found()
        wanted: list[bytes] = []
        candidates: dict[bytes, Candidate] = {}
        loaded = before.loaded if before else {}
        for candidate in self._source.find_candidates(listed):
            if candidate.objects and LOG not in candidate.objects:
                found.lost.append(candidate)
                continue
            digest = _digest(candidate)
            candidates[digest] = candidate
            known = loaded.get(digest)
            if known is not None:
                found.segments[digest] = known
            else:
                wanted.append(digest)
        unknown = [candidates[digest] for digest in wanted]
        with closing(self._iter_loads(unknown) if describes else self._iter_looks(unknown)) as loads:
            for digest, outcome in zip(wanted, loads, strict=True):
                require_wanted()  # of files of this machine, whose reads are not cancelled
                candidate = candidates[digest]
                if isinstance(outcome, StoredSegment):
                    found.segments[digest] = outcome
                elif outcome is None and _may_be_empty(candidate, self._tier.layout):
                    found.empty = candidate
                elif outcome is None or isinstance(outcome, ObjectNotFoundError):
                    found.vanished.append(candidate)
                elif isinstance(outcome, StoreError):
                    raise outcome
                else:
                    found.faults.append((candidate, outcome))
        if not describes:
            self._describe_newest(found, candidates)
        return found

    def _describe_newest(self, found: _Found, candidates: Mapping[bytes, Candidate]) -> None:
        """Describe the newest segment, whose checkpoint says what counts of the others: one that cannot be described is
        missed as if each had been.

        Args:
            found: Changed in place.
            candidates: By digest.
        """
        while found.segments:
            newest = newest_segment(list(found.segments.values()))
            digest = next(each for each, segment in found.segments.items() if segment is newest)
            try:
                found.segments[digest] = self._tier.describe_segment(newest)
            except ObjectNotFoundError:
                found.vanished.append(candidates[digest])
            except StoreError:
                raise
            except TierlogError as error:
                found.faults.append((candidates[digest], error))
            else:
                return
            del found.segments[digest]

    def _iter_loads(self, candidates: Sequence[Candidate]) -> Generator[StoredSegment | TierlogError | None]:
        """Load like ``Tier.iter_loads``; the first one in this thread: a partition whose objects stall then occupies
        none of the threads that load segments for all partitions.
        """
        for candidate in candidates[:1]:
            try:
                yield self._tier.load(candidate)
            except TierlogError as error:
                yield error
        yield from self._tier.iter_loads(candidates[1:])

    def _iter_looks(self, candidates: Sequence[Candidate]) -> Generator[StoredSegment | TierlogError | None]:
        yield from self._source.looks(candidates)


def _log_held(resolution: Resolution, before: Resolution | None) -> None:
    """Log held-back segments once."""
    held, listed = resolution.held, resolution.listed
    if held is None or listed is None:
        return
    if before is None or before.held is None or before.held.gap != held.gap:
        _log.warning(
            "%s: offsets %d … %d are missing; what lies behind is served with them, or when it is %d minutes old",
            listed.topic_id_partition,
            held.gap.first_offset,
            held.gap.end_offset_exclusive - 1,
            LATE_MS // 60_000,
        )


@dataclass(slots=True)
class _Found:
    """The segments that a partition's candidates became.

    Attributes:
        segments: By the digest of their objects.
        faults: What cannot be described.
        lost: Segments that were listed without their log.
        vanished: Segments that were listed with it, and are gone.
        empty: The last segment, if it has no record yet.
    """

    segments: dict[bytes, StoredSegment] = field(default_factory=dict)
    faults: list[tuple[Candidate, TierlogError]] = field(default_factory=list)
    lost: list[Candidate] = field(default_factory=list)
    vanished: list[Candidate] = field(default_factory=list)
    empty: Candidate | None = None


def _empty_history(tier: Tier, candidate: Candidate) -> PartitionHistory:
    """Return the history of a partition that has a log and no record, as a broker's disk has some: without a span.

    Args:
        tier: Of the segment.
        candidate: The partition's last segment, in which there is nothing to read.

    Raises:
        CorruptIndexError: the leader-epoch checkpoint is malformed. StoreError and its kinds.
    """
    log, start = candidate.objects[LOG], candidate.start_offset
    epochs = fetch_epochs(tier.store, candidate.objects.get(LEADER_EPOCH_CHECKPOINT))
    metadata = described(
        RemoteLogSegmentId(candidate.topic_id_partition, id_of(log.key)),
        start_offset=start,
        end_offset=start,
        max_timestamp_ms=-1,
        size_bytes=0,
        epochs={0: start},
        modified_ms=log.last_modified_ms,
        txn_idx_empty=True,
    )
    segment = StoredSegment(
        metadata=metadata, layout=tier.layout, name=log.key, log=whole_object(log), parts=(), closed=False
    )
    return PartitionHistory(candidate.topic_id_partition, Lineage(epochs, (), (), (), segment, empty_at=start))


def _may_be_empty(candidate: Candidate, layout: str) -> bool:
    """Whether a segment may be empty: the active one of a log directory, or a file."""
    return layout == "file" or (layout == "log-dir" and candidate.next_start_offset is None)


def _digest(candidate: Candidate) -> bytes:
    """Return the digest of all inputs of a segment's description."""
    named = (candidate.segment_path, candidate.start_offset, candidate.next_start_offset)
    digest = xxhash.xxh3_128(repr(named).encode())
    for suffix, info in sorted(candidate.objects.items()):
        digest.update(repr((suffix, info.key, info.size_bytes, info.last_modified_ms)).encode())
    return digest.digest()


def _require_covered(history: PartitionHistory, found: _Found, *, has_late_segments: bool) -> None:
    """Raises the error of the first segment that cannot be read and whose offsets no other holds, or that may say of
    those others that they do not count.
    """
    lineage = history.lineage

    def is_covered(start_offset: int) -> bool:
        if any(gap.end_offset_exclusive > start_offset for gap in lineage.gaps):
            return False  # the segment's end is unknown: the gap may be its
        return lineage.earliest_offset <= start_offset < lineage.end_offset_exclusive

    for candidate, error in found.faults:
        if not is_covered(candidate.start_offset) or (has_late_segments and _may_be_newest(candidate, history)):
            raise error
    for candidate in (*found.lost, *found.vanished):
        start = candidate.start_offset
        if start >= lineage.earliest_offset and not is_covered(start):
            raise ObjectNotFoundError(
                f"{candidate.segment_path}: a segment is gone that retention would not have taken"
            )
    for candidate in found.vanished:
        if isinstance(candidate, KnownCandidate) and _is_newer(candidate, lineage.newest):
            raise ObjectNotFoundError(
                f"{candidate.segment_path}: the metadata has it as the newest, and it is not there"
            )
    if has_late_segments:
        for candidate in found.vanished:  # it was there in each listing, so that no broker deletes it
            if candidate.start_offset >= lineage.earliest_offset and _may_be_newest(candidate, history):
                raise ObjectNotFoundError(f"{candidate.segment_path}: a segment is listed, and is not there")


def _require_no_way_back(before: PartitionHistory, now: PartitionHistory) -> None:
    """Check the order of deletions. Raises ObjectNotFoundError where the newest segments have gone and older ones are
    left.

    Retention deletes the oldest ones first, and a log that is cut goes on under a newer leader: it is a topic that is
    being deleted, in the store's order, or a loss. The rest may be of a branch that was cut off.
    """
    known, found = before.lineage.newest.metadata, now.lineage.newest.metadata
    newest_epoch = max(found.segment_leader_epochs)
    known_epoch = max(known.segment_leader_epochs)
    if newest_epoch < known_epoch or (newest_epoch == known_epoch and found.end_offset < known.end_offset):
        raise ObjectNotFoundError(
            f"{now.topic_id_partition}: the segments up to offset {known.end_offset} of leader epoch {known_epoch} are"
            f" gone, and older ones are left, up to offset {found.end_offset} of leader epoch {newest_epoch}"
        )


def _is_newer(candidate: KnownCandidate, newest: StoredSegment) -> bool:
    """Whether a segment that is gone would say what counts of the others."""
    known, found = candidate.metadata, newest.metadata
    if known is None:
        return False
    ranks = [(max(each.segment_leader_epochs), each.end_offset) for each in (known, found)]
    return ranks[0] > ranks[1]


def _may_be_newest(candidate: Candidate, history: PartitionHistory) -> bool:
    """Whether a segment that cannot be read may be the first one of a leader after all that can be read: those which
    cover it would then be of a branch that its leader cut off.

    It is older where the log went on behind it, and did so when no leader before that one copied any more.
    """
    written_ms = max(info.last_modified_ms for info in candidate.objects.values())
    return not any(
        span.segment.start_offset > candidate.start_offset and span.segment.last_modified_ms >= written_ms + LATE_MS
        for span in history.lineage.spans
    )
