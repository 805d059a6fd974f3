"""Histories of very many segments, for plans: of most its metadata alone is in memory (``ListedSpans``).

A bucket is listed partition by partition, and a partition's descriptions go when its history is known; where metadata
says which segments there are, none is read but those of the newest segments. What is planned is described anew.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tierlog.errors import CorruptDataError, ObjectNotFoundError, TierlogError
from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.metadata.known_rows import KnownRows
from tierlog.remote.metadata.lineage import newest_segment
from tierlog.remote.metadata.listed_spans import ListedSpans, SegmentOrigin, can_list, origin_of
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import Candidate, ListedSegment, SegmentFilter
from tierlog.remote.tier.layouts.plain_segments import plain_numbers
from tierlog.remote.tier.layouts.segment_lookup import KnownLayout
from tierlog.remote.tier.objects.listed_manifest import PlainNumbers
from tierlog.remote.tier.tier import LoadedCandidate, Tier
from tierlog.runtime.machine.scheduling import Future
from tierlog.scan.history import CONCURRENCY, PartitionHistory, TierHistory, by_name
from tierlog.scan.listed_before import ListedBefore
from tierlog.scan.named_topics import NamedTopics
from tierlog.scan.spans import SpanColumns

#: Segments whose descriptions are kept: some ten kilobytes each in memory, half of one in a pipe.
DESCRIBED_MAX: Final = 10_000
_Job = Callable[[], PartitionHistory | None]


class PinnedTierHistory(TierHistory):
    """The partitions of a tier, for plans, whatever their number of segments.

    Up to a number of segments they are those of TierHistory. Of more, the metadata alone is in memory where the layout
    allows that, and what describes them is read when they are planned; then segments that no span uses are left out.

    Args:
        tier: As TierHistory.
        log_start_offsets: As TierHistory.
        faults: As TierHistory.
        described_max: That number.
        previous: The partitions as they were listed before: what has columns there, and is as it was, is not read
            again.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        log_start_offsets: Mapping[str, Mapping[int, int]] | None = None,
        faults: list[TierlogError] | None = None,
        described_max: int = DESCRIBED_MAX,
        previous: Sequence[PartitionHistory] = (),
    ) -> None:
        super().__init__(tier, log_start_offsets=log_start_offsets, faults=faults)
        self._described_max = described_max
        self._before = ListedBefore(previous)

    def partitions(
        self,
        names: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        assigned: Mapping[str, Collection[int]] | None = None,
    ) -> list[PartitionHistory]:
        """Return the partitions as TierHistory does; faults of segments that are not described come when they are read.

        Raises:
            As ``TierHistory.partitions``.
        """
        wanted = None if names is None and assigned is None else NamedTopics(names or (), assigned or {})
        chosen = wanted.pattern if wanted else pattern
        faults: list[TierlogError] | None = None if self._faults is None else []
        jobs = self._jobs(chosen, wanted, faults)
        found = None if jobs is None else _by_partition(_iter_results(self._tier, jobs))
        if found is None:
            return super().partitions(names, pattern=pattern, assigned=assigned)
        if self._faults is not None and faults is not None:
            self._faults.extend(faults)
        ordered = sorted(self.chosen(found, wanted, chosen is not None).items(), key=by_name)
        histories = [history for _, history in ordered]
        return list(map(pinned, histories)) if any(map(_is_pinned, histories)) else histories

    def _jobs(
        self, pattern: str | re.Pattern[str] | None, named: NamedTopics | None, faults: list[TierlogError] | None
    ) -> Iterable[_Job] | None:
        """Return what makes the history of each partition; None where the layout does not allow it."""
        tier, layout = self._tier, self._tier.listing
        if not can_list(tier.layout):
            return None
        if not isinstance(layout, KnownLayout):
            return self._listed_jobs(pattern, named, faults)
        if not isinstance(layout.known, MetadataView) or layout.scope.folder:
            return None
        if layout.known.table.figures.segments <= self._described_max:
            return None
        wanted = SegmentFilter.of(None, pattern, None)
        known = _KnownHistories(tier, layout, layout.known, self, faults)
        partitions = [each for each in layout.known.partitions() if wanted.accepts(each)]
        return (partial(known.history_of, each) for each in partitions if named is None or named.accepts(each))

    def _listed_jobs(
        self, pattern: str | re.Pattern[str] | None, named: NamedTopics | None, faults: list[TierlogError] | None
    ) -> Iterator[_Job]:
        segments, known = 0, self._before.find if len(self._before) else None
        for loaded in self._tier.iter_partitions(
            pattern, faults=faults, described_max=self._described_max, known=known
        ):
            segments += len(loaded)
            if named is None or named.accepts(loaded[0][0].topic_id_partition):
                yield partial(self._of_listed, loaded, faults, pins=segments > self._described_max)

    def _of_listed(
        self, loaded: Sequence[LoadedCandidate], faults: list[TierlogError] | None, *, pins: bool
    ) -> PartitionHistory | None:
        """Return the history of a partition; None if all of its segments are gone meanwhile."""
        listed = [segment for _, segment in loaded if isinstance(segment, ListedSegment)]
        described = [segment for _, segment in loaded if isinstance(segment, StoredSegment)]
        if listed and len({segment.prefix for segment in listed}) == 1:
            origin = SegmentOrigin(
                listed[0].topic_id_partition, self._tier.layout, listed[0].prefix, self._tier.scope.mask
            )
            try:
                if described:
                    return self._of_both(listed, origin, described)
                found = self.plain_history(KnownRows.of_listed(listed), origin)
            except (CorruptDataError, ObjectNotFoundError):  # of the newest segment: what is left decides
                found = None
            if found is not None:
                return _with_plain(found, {each.segment_id: plain_numbers(each) for each in listed})
        if len(described) == len(loaded):
            history = self.history_of(described[0].topic_id_partition, described)
            return pinned(history) if pins else history
        found = self.loaded_history([candidate for candidate, _ in loaded], faults)
        return None if found is None else pinned(found)

    def _of_both(
        self, listed: Sequence[ListedSegment], origin: SegmentOrigin, described: Sequence[StoredSegment]
    ) -> PartitionHistory:
        """Return the history of segments of which some are described: those whose manifests are not as the plugin
        writes them, and that an earlier listing does not have. Raises: as ``plain_history``.
        """
        listed = sorted(listed, key=lambda each: each.manifest.start_offset)  # as the rows are
        rows = KnownRows.of_listed(listed)
        segments = [*described]
        for number, each in enumerate(listed):
            metadata = rows.metadata(number)
            segments.append(
                origin.segment(metadata, last_modified_ms=each.last_modified_ms, footer_size=each.footer_size)
            )
        newest = newest_segment(segments)
        segments = [self._tier.describe_segment(each) if each is newest else each for each in segments]
        history = pinned(self.history_of(origin.topic_id_partition, segments))
        if not _is_pinned(history):
            return history
        plain: dict[bytes, PlainNumbers] = {each.segment_id: plain_numbers(each) for each in listed}
        plain |= {each.metadata.remote_log_segment_id.id: plain_numbers(each) for each in described}
        return _with_plain(history, plain)

    def loaded_history(
        self, candidates: Iterable[Candidate], faults: list[TierlogError] | None
    ) -> PartitionHistory | None:
        """Return the history of a partition out of its segments' descriptions; None if it has none.

        Raises:
            As ``partitions``.
        """
        segments: list[StoredSegment] = []
        for outcome in self._tier.iter_loads(candidates):
            if isinstance(outcome, TierlogError):
                if faults is None:
                    raise outcome
                faults.append(outcome)
            elif outcome is not None:
                segments.append(outcome)
        return self.history_of(segments[0].topic_id_partition, segments) if segments else None

    def plain_history(self, rows: KnownRows, origin: SegmentOrigin) -> PartitionHistory | None:
        """Return a history out of columns; None where values have to be made.

        Raises:
            As ``history_of``; CorruptObjectError, ObjectNotFoundError: the newest segment cannot be described.
        """
        newest = rows.newest_segment(origin)
        if newest is None:
            return None
        newest = self._tier.describe_segment(newest)
        epochs, warnings = self.checkpoint_of(newest)
        lineage = None if epochs is None else rows.lineage(epochs, newest)
        log_start = self.log_start_of(rows.partition)
        return None if lineage is None else PartitionHistory(rows.partition, lineage, log_start, warnings)


def _by_partition(histories: Iterable[PartitionHistory | None]) -> dict[TopicIdPartition, PartitionHistory] | None:
    """Return histories by partition; None if one comes twice: then the listing is in no order, and each segment has to
    be in memory.
    """
    found: dict[TopicIdPartition, PartitionHistory] = {}
    for history in histories:
        if history is not None and found.setdefault(history.topic_id_partition, history) is not history:
            return None
    return found


def _iter_results(tier: Tier, jobs: Iterable[_Job]) -> Iterator[PartitionHistory | None]:
    """Yield the results of jobs, of which each has a small request to make: some at once, if there is latency."""
    if tier.store.is_local:
        yield from (job() for job in jobs)
        return
    with tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-history") as pool:
        waiting: deque[Future[PartitionHistory | None]] = deque()
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > CONCURRENCY:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _is_pinned(history: PartitionHistory) -> bool:
    return isinstance(history.lineage.spans, ListedSpans | SpanColumns)


def pinned(history: PartitionHistory) -> PartitionHistory:
    """Return a history with its spans as columns, without segments that none uses; as it is where columns cannot hold
    them.
    """
    lineage = history.lineage
    if _is_pinned(history):
        return history
    try:
        origin = origin_of(lineage.newest)
    except ValueError:
        return history
    spans = ListedSpans.of(lineage.spans, origin)
    if spans is None:
        return history
    segments = [span.segment for span in lineage.spans]
    plain: dict[bytes, PlainNumbers] = {
        each.metadata.remote_log_segment_id.id: plain_numbers(each) for each in segments
    }
    return _with_plain(replace(history, lineage=replace(lineage, spans=spans, unreferenced=())), plain)


def _with_plain(history: PartitionHistory, plain: Mapping[bytes, PlainNumbers]) -> PartitionHistory:
    """Return a history of ListedSpans with the descriptions of its plain segments."""
    spans = history.lineage.spans
    listed = spans.listed if isinstance(spans, SpanColumns) else spans
    assert isinstance(listed, ListedSpans)
    return replace(history, lineage=replace(history.lineage, spans=SpanColumns.of(listed, plain)))


@dataclass(frozen=True, slots=True)
class _KnownHistories:
    """Histories by metadata, of segments that are not looked at."""

    tier: Tier
    layout: KnownLayout
    view: MetadataView
    histories: PinnedTierHistory
    faults: list[TierlogError] | None

    def history_of(self, partition: TopicIdPartition) -> PartitionHistory | None:
        """Return the history of a partition; None if it has no segments."""
        scope = self.layout.scope
        origin = SegmentOrigin(partition, self.layout.name, scope.key_prefix, scope.mask)
        try:
            return self._plain(partition, origin) or self._by_values(partition, origin)
        except (CorruptDataError, ObjectNotFoundError, ValueError):
            # The newest segment is damaged or gone, or names no keys: what is left decides, and says what is wrong.
            found = self.histories.loaded_history(self.layout.candidates_of(partition), self.faults)
            return None if found is None else pinned(found)

    def _plain(self, partition: TopicIdPartition, origin: SegmentOrigin) -> PartitionHistory | None:
        rows = KnownRows.of_table(self.view.table, partition, has_footers=self.layout.has_footers)
        return None if rows is None else self.histories.plain_history(rows, origin)

    def _by_values(self, partition: TopicIdPartition, origin: SegmentOrigin) -> PartitionHistory | None:
        segments = [self._segment(origin, metadata) for metadata in self.view.readable(partition)]
        if not segments:
            return None
        newest = newest_segment(segments)
        described = [self.tier.describe_segment(each) if each is newest else each for each in segments]
        return pinned(self.histories.history_of(partition, described))

    def _segment(self, origin: SegmentOrigin, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        footer_size = -1 if self.layout.has_footers else None
        return origin.segment(metadata, last_modified_ms=metadata.event_timestamp_ms, footer_size=footer_size)
