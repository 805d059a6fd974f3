"""The plan of a request: offsets resolved, segments pruned, ranges cut at batch borders.

Segments outside are never fetched. An index is fetched only where a cut falls inside a segment; transaction indexes and
the newest producer snapshot only for read_committed.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tierlog.errors import ConfigError, DataLossError, TierlogError, first_of
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.scan.pinned_history import PinnedTierHistory
from tierlog.scan.planning.offset_lookup import find_offset_by_timestamp
from tierlog.scan.planning.range_cutting import RangeCutter, WantedOffsets, cut_into
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_range import ScanRange, TaskLimits, group_ranges
from tierlog.scan.scan_request import EARLIEST, LATEST, PerPartition, ScanRequest
from tierlog.scan.transaction_history import find_last_stable_offset

CONCURRENCY = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The offsets [first, end) to read of a partition, and those that the tier holds.

    Attributes:
        earliest_offset, latest_offset: The tier's offsets, end exclusive; for read_committed the end is the last stable
            offset.
    """

    topic: str
    partition: int
    earliest_offset: int
    latest_offset: int
    first_offset: int
    end_offset_exclusive: int


def resolve_bounds(
    tier: Tier, request: ScanRequest, histories: Sequence[PartitionHistory], lose: Callable[[str], None]
) -> tuple[OffsetBounds, ...]:
    """Return the bounds of each partition, in the order of the histories.

    Args:
        tier: For snapshots, and for searches by timestamp.
        request: The request of the scan.
        histories: Of the partitions asked for.
        lose: Called with a text about requested offsets that are missing; it raises where that is an error.

    Raises:
        ConfigError: no record is as late as a starting timestamp, with ``no_match`` "error".
        CorruptDataError, StoreError and their kinds: as reading the log does.
    """

    def resolve(history: PartitionHistory) -> OffsetBounds:
        return _resolve(tier, request, history, lose)

    with tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-bounds") as pool:
        return tuple(run_all(pool, resolve, histories))


def check_named(request: ScanRequest, histories: Sequence[PartitionHistory]) -> None:
    """Raise ConfigError if a mapping names a partition that is not read, or (unless ``clamp_offsets``) lacks one."""
    there = {(history.topic, history.partition) for history in histories}
    for argument, what, hint, mapping in _mappings(request):
        named = {(topic, partition) for topic, partitions in mapping.items() for partition in partitions}
        unknown = sorted(named - there)
        if unknown:
            given = f"{argument} is" if request.clamp_offsets else f"{what} are"
            raise ConfigError(f"{given} given for partitions that are not read: {_listed(unknown)}")
        missing = sorted(there - named)
        if missing and not request.clamp_offsets:
            raise ConfigError(f"{what} by partition must name each that is read, {hint}; missing: {_listed(missing)}")


def _resolve(tier: Tier, request: ScanRequest, history: PartitionHistory, lose: Callable[[str], None]) -> OffsetBounds:
    earliest, latest = history.earliest_offset, history.end_offset_exclusive
    if request.read_committed:
        latest = max(earliest, min(latest, find_last_stable_offset(tier, history)))
    holds = f"{history.topic}-{history.partition}: the tier holds offsets {earliest} to {latest - 1}"

    def clamped(which: str, offset: int) -> int:
        if not earliest <= offset <= latest and not request.clamp_offsets:
            lose(f"{holds}, and the {which} offset is {offset}")
        return min(max(offset, earliest), latest)

    def by_time(timestamp_ms: int) -> int | None:
        found = find_offset_by_timestamp(tier, history, timestamp_ms, end_offset_exclusive=latest)
        return None if found is None or found.offset >= latest else found.offset

    start_ms = _value(request.starting_timestamps, history)
    if start_ms is not None:
        first = by_time(start_ms)
        if first is None and request.no_match == "error":
            raise ConfigError(f"{holds}, none of which is of time {start_ms} ms or later")
        first = latest if first is None else first
    else:
        start = _value(request.starting_offsets, history)
        first = earliest if start in (None, EARLIEST) else clamped("starting", start)
    end_ms = _value(request.ending_timestamps, history)
    if end_ms is not None:
        end = by_time(end_ms)
        end = latest if end is None else end
    else:
        stop = _value(request.ending_offsets, history)
        end = latest if stop in (None, LATEST) else clamped("ending", stop)
    return OffsetBounds(history.topic, history.partition, earliest, latest, first, end)


def _value(given: PerPartition | None, history: PartitionHistory) -> int | None:
    if given is None or isinstance(given, int):
        return given
    return given.get(history.topic, {}).get(history.partition)


def _mappings(request: ScanRequest) -> Iterable[tuple[str, str, str, Mapping[str, Mapping[int, int]]]]:
    """The mappings that count, since timestamps win over offsets: the argument of ``tierlog.read``, Spark's words, the
    word for no bound, the mapping.
    """
    for argument, offsets, timestamps, neutral in (
        ("start", request.starting_offsets, request.starting_timestamps, f"{EARLIEST}, earliest"),
        ("end", request.ending_offsets, request.ending_timestamps, f"{LATEST}, latest"),
    ):
        if timestamps is None:
            if not isinstance(offsets, int):
                yield argument, f"{argument}ing offsets", f"if only by {neutral}", offsets
        elif not isinstance(timestamps, int):
            yield argument, f"{argument}ing timestamps", "or there is one timestamp for all", timestamps


def _listed(partitions: Sequence[tuple[str, int]]) -> str:
    return first_of([f"{topic}-{partition}" for topic, partition in partitions], 10)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The ranges of a scan.

    Attributes:
        ranges: By topic, partition and offset; of about even size.
        bounds: What each partition's request came to.
        warnings: Things that are missing or not certain, naming objects; not empty data only because of retention.
        layout: Of the tier: for the executors, so that they need not look again.
        grouped: The ranges put together into tasks, in order.
    """

    ranges: tuple[ScanRange, ...]
    bounds: tuple[OffsetBounds, ...]
    warnings: tuple[str, ...]
    layout: str
    grouped: tuple[tuple[ScanRange, ...], ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the original logs."""
        return sum(scan_range.size_bytes for scan_range in self.ranges)

    def tasks(self) -> list[tuple[ScanRange, ...]]:
        """Return the ranges put together into tasks, in order."""
        return list(self.grouped)


class PreparedScan:
    """A scan whose bounds are known and whose ranges are cut as they are iterated: made by ``prepare_scan``.

    Attributes:
        bounds: What each partition's request came to.
        warnings: So far: taking the ranges can add to it.
        layout: Of the tier.
        wanted: The offsets that it reads of each partition.
        limits: Of ranges and tasks, with the estimated size of all.
    """

    def __init__(self, tier: Tier, request: ScanRequest, histories: Sequence[PartitionHistory] | None) -> None:
        self._tier = tier
        self._request = request
        self.warnings: list[str] = []
        self.layout = tier.layout
        self._histories = self._chosen(histories)
        self.bounds = resolve_bounds(tier, request, self._histories, self._lose)
        self.wanted = [
            wanted
            for history, bounds in zip(self._histories, self.bounds, strict=True)
            if (wanted := self._offsets_of(history, bounds)) is not None
        ]
        self.limits = _limits_of(request, self.wanted, self.warnings.append)

    def iter_ranges(self) -> Iterator[ScanRange]:
        """Yield the ranges by topic, partition and offset; never many in memory, perhaps fewer than the requested
        tasks.

        Raises:
            DataLossError, CorruptDataError, StoreError and their kinds: an object that is needed is damaged, or cannot
                be fetched.
        """
        return self._cutter().iter_ranges(self.wanted)

    def iter_tasks(self) -> Iterator[tuple[ScanRange, ...]]:
        """Yield ranges put together into tasks, in order; as many as the request asks for at least.

        Raises:
            As ``iter_ranges``.
        """
        least = self._request.min_partitions
        if least is None:
            return group_ranges(self.iter_ranges(), self.limits)
        ranges = cut_into(self._cutter(), self.wanted, least)
        return group_ranges(ranges, replace(self.limits, min_tasks=least, ranges=len(ranges)))

    def plan(self) -> ScanPlan:
        """Take all ranges. Raises: as ``iter_ranges``."""
        tasks = tuple(self.iter_tasks())
        ranges = tuple(scan_range for task in tasks for scan_range in task)
        for warning in self.warnings:
            _logger.info("%s: %s", self._tier.describe(), warning)
        return ScanPlan(ranges, self.bounds, tuple(self.warnings), self.layout, tasks)

    def counted_by_footers(self) -> tuple[int, PreparedScan]:
        """Return the count of the records that footers know of, and the same scan of the others.

        Raises:
            As ``answered_by_footers``.
        """
        fields: tuple[SummaryField, ...] = ("count",)
        found, rest = self.answered_by_footers(fields)
        return sum(each.count for each in found.values()), rest

    def answered_by_footers(
        self, fields: Collection[SummaryField]
    ) -> tuple[dict[tuple[str, int], RecordSummary], PreparedScan]:
        """Answer what footers say of the records, without reading any.

        Args:
            fields: The facts that are needed.

        Returns:
            The summary of each partition (topic, number), and the same scan of the records that no footer knows of.

        Raises:
            EncryptionKeyError, StoreError and their kinds: a footer cannot be fetched.
        """
        if not any(wanted.may_have_footers for wanted in self.wanted):
            return {}, self
        found: dict[tuple[str, int], RecordSummary] = {}
        left: list[WantedOffsets] = []
        for wanted, answer in self._cutter().iter_answers(self.wanted, fields):
            history = wanted.history
            found.setdefault((history.topic, history.partition), RecordSummary()).add(answer.summary)
            for first, end in answer.left:
                if left and left[-1].history is history and left[-1].end_offset_exclusive == first:
                    left[-1] = replace(left[-1], end_offset_exclusive=end)
                else:
                    left.append(WantedOffsets(history, first, end))
        rest = copy.copy(self)
        rest.wanted, rest.limits = left, _limits_of(self._request, left, self.warnings.append)
        return found, rest

    def _cutter(self) -> RangeCutter:
        limits = self.limits
        return RangeCutter(
            self._tier, self._request, limits.max_bytes, limits.max_records, self._lose, self.warnings.append
        )

    def _chosen(self, pinned: Sequence[PartitionHistory] | None) -> list[PartitionHistory]:
        if pinned is None:
            histories, left_out = list_histories(self._tier, self._request)
            self.warnings.extend(left_out)
        else:
            histories = list(pinned)
        self.warnings.extend(warning for each in histories for warning in each.warnings)
        check_named(self._request, histories)
        chosen = self._request.record_filter
        return [each for each in histories if chosen.admits(each.topic, each.partition)]

    def _lose(self, text: str, cause: TierlogError | None = None) -> None:
        """Report something that should be there and is not: the scan fails, or goes on and says so."""
        if self._request.fail_on_data_loss:
            raise cause or DataLossError(text)
        self.warnings.append(text)

    def _offsets_of(self, history: PartitionHistory, bounds: OffsetBounds) -> WantedOffsets | None:
        """Return the offsets to read of a partition; None for nothing."""
        chosen = self._request.record_filter
        first = max(bounds.first_offset, chosen.first_offset)
        end = min(bounds.end_offset_exclusive, chosen.end_offset_exclusive)
        if first >= end:
            return None
        for gap in history.gaps:
            if gap.first_offset < end and gap.end_offset_exclusive > first:
                missing = f"offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}"
                self._lose(f"{history.topic}-{history.partition}: {missing} are in no segment of the tier")
        return WantedOffsets(history, first, end)


def _limits_of(request: ScanRequest, offsets: Iterable[WantedOffsets], warn: Callable[[str], None]) -> TaskLimits:
    """Choose the limits: smaller ranges for more tasks, larger ones for fewer."""
    total_bytes = total_records = 0
    for wanted in offsets:
        size_bytes, records = wanted.estimated(request.record_filter.first_timestamp_ms)
        total_bytes += size_bytes
        total_records += records
    max_bytes, max_records = request.max_bytes_per_range, request.max_records_per_partition
    if request.min_partitions is not None:
        max_bytes = max(1, min(max_bytes, -(-total_bytes // request.min_partitions)))
    if request.max_partitions is not None:
        max_bytes = max(max_bytes, -(-total_bytes // request.max_partitions))
        fewest = -(-total_records // request.max_partitions)
        if max_records is not None and max_records < fewest:
            at_most = f"at most {request.max_partitions} tasks are allowed"
            warn(f"tasks are of up to {fewest} offsets, not {max_records}: {at_most}")
            max_records = fewest
    return TaskLimits(
        max_bytes,
        max_records,
        request.max_partitions,
        total_bytes=total_bytes,
        total_records=total_records,
    )


def prepare_scan(
    tier: Tier, request: ScanRequest, *, histories: Sequence[PartitionHistory] | None = None
) -> PreparedScan:
    """Plan a scan whose ranges are iterated one by one: the plan of ``plan_scan`` without all of it in memory.

    Raises:
        As ``plan_scan``, but errors of the fetches that cut segments are raised where the ranges are iterated.
    """
    return PreparedScan(tier, request, histories)


def plan_scan(tier: Tier, request: ScanRequest, *, histories: Sequence[PartitionHistory] | None = None) -> ScanPlan:
    """Plan a read of a tier as it is listed now, or as it was.

    Args:
        tier: Stays the caller's.
        request: The request of the scan.
        histories: The partitions of ``request.topics`` as an earlier ``TierHistory`` gave them: nothing is listed, so
            that several plans see one set of segments.

    Raises:
        UnknownTopicError: a topic or partition named in the request is not in the tier.
        ConfigError: the request contradicts the tier (a partition without an offset, a topic with two ids).
        DataLossError: offsets asked for are not in the tier, and ``fail_on_data_loss``.
        CorruptDataError, StoreError and their kinds: an object that is needed is damaged, or cannot be fetched.

    Thread safety: any number of threads. Cost: one listing, the manifests of the topics, one checkpoint a partition,
    one index for each segment that is cut.
    """
    return prepare_scan(tier, request, histories=histories).plan()


def list_histories(
    tier: Tier, request: ScanRequest, *, pinned: bool = False, previous: Sequence[PartitionHistory] = ()
) -> tuple[list[PartitionHistory], list[str]]:
    """List the partitions of a request, and the faults of those that were left out because data loss is allowed.

    Args:
        tier: Stays the caller's.
        request: Its topics count.
        pinned: For plans alone, and perhaps of very many segments: see PinnedTierHistory.
        previous: As PinnedTierHistory has it.

    Raises:
        UnknownTopicError, ConfigError, CorruptDataError, StoreError and their kinds: as ``TierHistory.partitions``.
    """
    faults: list[TierlogError] | None = None if request.fail_on_data_loss else []
    starts = request.log_start_offsets
    history = (
        PinnedTierHistory(tier, log_start_offsets=starts, faults=faults, previous=previous)
        if pinned
        else TierHistory(tier, log_start_offsets=starts, faults=faults)
    )
    histories = history.partitions(
        request.topics.names or None, pattern=request.topics.pattern, assigned=request.topics.assigned or None
    )
    return histories, [f"left out: {fault}" for fault in faults or ()]
