"""Why ``cat`` shows no record, in words: which offsets each partition holds, and which were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_bounds import OffsetBounds
from tierlog.scan.scan_request import LATEST, ScanRequest

#: Partitions that are spoken of one by one.
PARTITIONS_MAX = 5


def empty_answer(
    request: ScanRequest, histories: Sequence[PartitionHistory], bounds: Sequence[OffsetBounds], *, searched: bool
) -> Iterator[str]:
    """One line for each of the first few partitions, and one for the others.

    Args:
        request: The request.
        histories: Histories of the partitions that were asked for.
        bounds: The request's offsets in the partitions that it did not filter out.
        searched: Whether records were left out by a search in their content.
    """
    if not histories:
        yield "no record: there is no such topic here"
        return
    if not bounds:
        numbers = sorted({history.partition for history in histories})
        yield f"no record: none of the partitions asked for is here; there are {', '.join(map(str, numbers[:20]))}"
        return
    by_partition = {(history.topic, history.partition): history for history in histories}
    for each in bounds[:PARTITIONS_MAX]:
        reason = _reason(request, by_partition[each.topic, each.partition], each, searched)
        yield f"no record of {each.topic}-{each.partition}: {reason}"
    if len(bounds) > PARTITIONS_MAX:
        yield f"no record of {len(bounds) - PARTITIONS_MAX} more partitions"


def _reason(request: ScanRequest, history: PartitionHistory, bounds: OffsetBounds, searched: bool) -> str:
    end = history.end_offset_exclusive
    first, stop = _asked(request.starting_offsets, history), _asked(request.ending_offsets, history)
    if history.log_start_offset >= end:
        return f"all of it, up to offset {end - 1}, lies below the log start offset {history.log_start_offset}"
    holds = f"it holds offsets {bounds.earliest_offset} to {end - 1}"
    if first >= end:
        return f"{holds}, and offset {first} is beyond its end"
    if stop != LATEST and stop <= bounds.earliest_offset:
        start = "the log start offset" if history.log_start_offset == bounds.earliest_offset else "its first offset"
        return f"{holds}, and offset {stop}, where to end, is not above {start}"
    if stop != LATEST and first >= stop:
        return f"it would begin at offset {first} and end before {stop}"
    if max(first, bounds.earliest_offset) >= bounds.latest_offset:
        undecided = f"from offset {bounds.latest_offset} on it is undecided (a transaction is open)"
        return f"{holds}, and {undecided}: read_committed ends there"
    read = f"of its offsets {bounds.first_offset} to {bounds.end_offset_exclusive - 1}"
    if searched:
        return f"{read} none matches"
    if request.record_filter.bounds_time:
        return f"{read} none has a record of that time"
    kinds = "markers, aborted or cleaned away" if request.read_committed else "markers or cleaned away"
    return f"{read} all are {kinds}"


def _asked(offsets: int | Mapping[str, Mapping[int, int]], history: PartitionHistory) -> int:
    if isinstance(offsets, int):
        return offsets
    return offsets.get(history.topic, {}).get(history.partition, -1)
