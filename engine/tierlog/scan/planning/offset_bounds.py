"""What a request's starting and ending points come to, as offsets of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tierlog.errors import ConfigError
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.scheduling import run_all
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_lookup import find_offset_by_timestamp
from tierlog.scan.scan_request import EARLIEST, LATEST, PerPartition, ScanRequest
from tierlog.scan.transaction_history import find_last_stable_offset

CONCURRENCY = 16


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The offsets [first, end) that are read of a partition, of those that the tier holds.

    Attributes:
        earliest_offset, latest_offset: What the tier holds, end exclusive; for read_committed the end is the last
            stable offset.
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
    """The bounds of each partition, in the order of the histories.

    Args:
        tier: For snapshots, and for searches by timestamp.
        request: What is asked.
        histories: Of the partitions asked for.
        lose: Told of offsets that were asked for and are not there; it raises where that is an error.

    Raises:
        ConfigError: no record is as late as a starting timestamp, with ``no_match`` "error".
        CorruptDataError, StoreError and their kinds: as reading the log does.
    """

    def resolve(history: PartitionHistory) -> OffsetBounds:
        return _resolve(tier, request, history, lose)

    with tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-bounds") as pool:
        return tuple(run_all(pool, resolve, histories))


def check_named(request: ScanRequest, histories: Sequence[PartitionHistory]) -> None:
    """Raises ConfigError: a mapping names a partition that is not read, or (unless ``clamp_offsets``) lacks one."""
    there = {(history.topic, history.partition) for history in histories}
    for what, hint, mapping in _mappings(request):
        named = {(topic, partition) for topic, partitions in mapping.items() for partition in partitions}
        unknown = sorted(named - there)
        if unknown:
            raise ConfigError(f"{what} are given for partitions that are not read: {_listed(unknown)}")
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


def _mappings(request: ScanRequest) -> Iterable[tuple[str, str, Mapping[str, Mapping[int, int]]]]:
    """The mappings that count, since timestamps win over offsets: name, the word for no bound, the mapping."""
    for which, offsets, timestamps, neutral in (
        ("starting", request.starting_offsets, request.starting_timestamps, f"{EARLIEST}, earliest"),
        ("ending", request.ending_offsets, request.ending_timestamps, f"{LATEST}, latest"),
    ):
        if timestamps is None:
            if not isinstance(offsets, int):
                yield f"{which} offsets", f"if only by {neutral}", offsets
        elif not isinstance(timestamps, int):
            yield f"{which} timestamps", "or there is one timestamp for all", timestamps


def _listed(partitions: Sequence[tuple[str, int]]) -> str:
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:10]) + more
