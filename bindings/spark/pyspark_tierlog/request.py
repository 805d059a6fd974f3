"""Scan requests of ``tierlog.scan`` from options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_tierlog.options.java_patterns import name_pattern
from pyspark_tierlog.options.offset_options import EARLIEST_OFFSET, LATEST_OFFSET, PartitionNumbers
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions

_EVERYTHING = RecordFilter()
_WORDS = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}


def scan_request(options: ReadOptions, record_filter: RecordFilter = _EVERYTHING) -> ScanRequest:
    """Make the scan request of the options, the same for each of their paths."""
    records = options.table == "records"
    return ScanRequest(
        topics=topic_selection(options),
        starting_offsets=_offsets(options.starting_offsets),
        ending_offsets=_offsets(options.ending_offsets),
        starting_timestamps=_timestamps(options.starting_timestamp, options.starting_offsets_by_timestamp),
        ending_timestamps=_timestamps(options.ending_timestamp, options.ending_offsets_by_timestamp),
        no_match=options.starting_offsets_by_timestamp_strategy,
        record_filter=record_filter,
        # A batch is a row as it lies in the log, whole: aborted or not, and never in two tasks.
        isolation_level=options.isolation_level if records else "read_uncommitted",
        log_start_offsets=_log_start_offsets(options.log_start_offset),
        max_bytes_per_range=options.max_bytes_per_partition,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
        max_records_per_partition=options.max_records_per_partition if records else None,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def scan_requests(
    options: ReadOptions, sizes: Sequence[int], record_filter: RecordFilter = _EVERYTHING
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


def _log_start_offsets(bound: str | PartitionNumbers | None) -> dict[str, dict[int, int]]:
    """Return the log start offsets of the option. Earliest (-2) adds nothing, since the bucket shows that by itself."""
    if not isinstance(bound, Mapping):
        return {}
    return _by_topic({partition: offset for partition, offset in bound.items() if offset != EARLIEST_OFFSET})


def _by_topic(numbers: PartitionNumbers) -> dict[str, dict[int, int]]:
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (topic, partition), number in numbers.items():
        found[topic][partition] = number
    return dict(found)
