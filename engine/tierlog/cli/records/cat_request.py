"""The request of ``cat``: its options as a scan, ``--grep``, and in words why there is no record."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tierlog.cli.records.record_lines import joined_headers
from tierlog.cli.times import parse_moment
from tierlog.errors import ConfigError
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.plan import OffsetBounds
from tierlog.scan.scan_request import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    RecordFilter,
    ScanRequest,
    TopicSelection,
)

#: Bytes that are decoded in one piece: few, so that little is decoded ahead of the printing.
RANGE_BYTES = 16 << 20
#: The columns that a search looks into.
SEARCHED_COLUMNS = ("key", "value", "headers")
#: Partitions without a record that are named one by one.
PARTITIONS_MAX = 5
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def scan_request(
    *,
    topics: TopicSelection,
    partitions: Collection[int] | None,
    first_offset: int | None,
    end_offset_exclusive: int | None,
    since: str | None,
    until: str | None,
    isolation_level: IsolationLevel,
    log_start_offsets: Mapping[str, Mapping[int, int]],
    fail_on_data_loss: bool,
    now_ms: int,
) -> ScanRequest:
    """Make the scan request of one ``cat``. Raises ConfigError: bounds that cannot be."""
    chosen = RecordFilter(
        partitions=frozenset(partitions) if partitions else None,
        first_timestamp_ms=parse_moment(since, "--since", _INT64_MIN, now_ms=now_ms),
        end_timestamp_exclusive_ms=parse_moment(until, "--until", _INT64_MAX, now_ms=now_ms),
    )
    return ScanRequest(
        topics=topics,
        starting_offsets=EARLIEST if first_offset is None else first_offset,
        ending_offsets=LATEST if end_offset_exclusive is None else end_offset_exclusive,
        clamp_offsets=True,
        record_filter=chosen,
        isolation_level=isolation_level,
        log_start_offsets=log_start_offsets,
        max_bytes_per_range=RANGE_BYTES,
        fail_on_data_loss=fail_on_data_loss,
    )


class RecordSearch:
    """Records whose key, value or a header (as ``name=value``) matches somewhere, by bytes.

    Raises:
        ConfigError: the pattern is not a regular expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._search = re.compile(pattern.encode("utf-8", "surrogateescape")).search
        except re.error as error:
            raise ConfigError(f"--grep {pattern!r}: {error}") from error

    def matching(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, from batches with SEARCHED_COLUMNS; empty batches are dropped."""
        search = self._search
        for rows in found:
            triples = zip(
                rows.column("key").to_pylist(),
                rows.column("value").to_pylist(),
                joined_headers(rows.column("headers")),
                strict=True,
            )
            chosen = [
                place
                for place, (key, value, headers) in enumerate(triples)
                if (key is not None and search(key))
                or (value is not None and search(value))
                or any(search(header) for header in headers)
            ]
            if chosen:
                yield rows if len(chosen) == rows.num_rows else rows.take(chosen)


def empty_answer(
    request: ScanRequest, histories: Sequence[PartitionHistory], bounds: Sequence[OffsetBounds], *, searched: bool
) -> Iterator[str]:
    """Yield one line for each of the first few partitions, and one for the others.

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
