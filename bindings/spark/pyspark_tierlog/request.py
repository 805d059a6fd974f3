"""Scan requests of ``tierlog.scan`` from options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_tierlog.options.java_patterns import name_pattern
from pyspark_tierlog.options.offset_options import EARLIEST_OFFSET, LATEST_OFFSET, PartitionNumbers
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions

#: The filter that all records pass.
EVERYTHING: Final = RecordFilter()
_WORDS = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}


def scan_request(options: ReadOptions, record_filter: RecordFilter = EVERYTHING) -> ScanRequest:
    """Make the scan request of a batch read's options, the same for each of their paths. Raises ConfigError: it cannot
    begin where they say.
    """
    return replace(
        _request(options),
        starting_offsets=_offsets(options.first_offsets()),
        ending_offsets=_offsets(options.ending_offsets),
        starting_timestamps=_timestamps(options.starting_timestamp, options.starting_offsets_by_timestamp),
        ending_timestamps=_timestamps(options.ending_timestamp, options.ending_offsets_by_timestamp),
        record_filter=record_filter,
    )


def first_request(options: ReadOptions) -> ScanRequest:
    """Make the request that says where a stream begins; LATEST among its starting offsets counts as EARLIEST."""
    start: int | dict[str, dict[int, int]] = EARLIEST_OFFSET
    if isinstance(options.starting_offsets, Mapping):
        given = options.starting_offsets.items()
        start = _by_topic({each: EARLIEST_OFFSET if offset == LATEST_OFFSET else offset for each, offset in given})
    return replace(
        _request(options),
        starting_offsets=start,
        starting_timestamps=_timestamps(options.starting_timestamp, options.starting_offsets_by_timestamp),
    )


def stream_request(
    options: ReadOptions,
    start: dict[str, dict[int, int]],
    end: dict[str, dict[int, int]],
    record_filter: RecordFilter = EVERYTHING,
) -> ScanRequest:
    """Make the request of one batch of a stream, or of the tier's part of a read that brokers answer too."""
    return replace(_request(options), starting_offsets=start, ending_offsets=end, record_filter=record_filter)


def _request(options: ReadOptions) -> ScanRequest:
    records = options.table == "records"
    return ScanRequest(
        topics=topic_selection(options),
        no_match=options.starting_offsets_by_timestamp_strategy,
        # A batch is a row as it lies in the log, whole: aborted or not, and never in two tasks.
        isolation_level=options.isolation_level if records else "read_uncommitted",
        log_start_offsets=log_start_offsets(options),
        max_bytes_per_range=options.max_bytes_per_partition,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
        max_records_per_partition=options.max_records_per_partition if records else None,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def scan_requests(
    options: ReadOptions, sizes: Sequence[int], record_filter: RecordFilter = EVERYTHING
) -> list[ScanRequest]:
    """Make the scan request for each path; the paths share the number of tasks in proportion to their ``sizes`` in
    bytes.
    """
    request = scan_request(options, record_filter)
    if len(sizes) == 1:
        return [request]
    most = [max(1, options.max_partitions * size // max(1, sum(sizes))) for size in sizes]
    fewest = request.min_partitions
    return [
        replace(request, max_partitions=share, min_partitions=None if fewest is None else min(fewest, share))
        for share in most
    ]


def tier_config(options: ReadOptions) -> dict[str, str]:
    """Return the keys that open the bucket. ``rsm.config.file`` stays a path: every process reads the file itself."""
    config = {key: value.get_secret_value() for key, value in options.storage_config.items()}
    return config if options.rsm_config_file is None else config | {"rsm.config.file": options.rsm_config_file}


def broker_keys(options: ReadOptions) -> dict[str, str]:
    """Return the keys of Kafka's client that read from brokers."""
    keys = {key: value.get_secret_value() for key, value in options.broker_client.items()}
    return keys | {"isolation.level": options.isolation_level}


def topic_selection(options: ReadOptions) -> TopicSelection:
    """Return the topics and partitions of ``subscribe``, ``subscribePattern`` or ``assign``."""
    if options.assign is not None:
        partitions: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(options.assign):
            partitions[topic].append(partition)
        return TopicSelection.assign(partitions)
    if options.subscribe is not None:
        return TopicSelection.of_names(options.subscribe)
    return TopicSelection.matching(name_pattern(options.subscribe_pattern or ""))


def _offsets(bound: str | PartitionNumbers) -> int | dict[str, dict[int, int]]:
    return _by_topic(bound) if isinstance(bound, Mapping) else _WORDS[bound]


def _timestamps(for_all: int | None, bound: PartitionNumbers | None) -> int | dict[str, dict[int, int]] | None:
    if for_all is not None:
        return for_all
    return None if bound is None else _by_topic(bound)


def log_start_offsets(options: ReadOptions) -> dict[str, dict[int, int]]:
    """Return the log start offsets of the options. Earliest (-2) adds nothing: the bucket shows that by itself."""
    bound = options.log_start_offset
    if not isinstance(bound, Mapping):
        return {}
    return _by_topic({partition: offset for partition, offset in bound.items() if offset != EARLIEST_OFFSET})


def _by_topic(numbers: PartitionNumbers) -> dict[str, dict[int, int]]:
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (topic, partition), number in numbers.items():
        found[topic][partition] = number
    return dict(found)
