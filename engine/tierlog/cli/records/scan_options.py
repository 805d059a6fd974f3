"""The options of ``cat`` as a scan request: offsets, times, log start offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tierlog.cli.times import parse_moment
from tierlog.scan.scan_request import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    RecordFilter,
    ScanRequest,
    TopicSelection,
)

#: What is decoded in one piece: small, so that what is ahead of the printing stays small.
RANGE_BYTES = 16 << 20
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
    """The scan request of one ``cat``. Raises ConfigError: bounds that cannot be."""
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
