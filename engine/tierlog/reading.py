"""``tierlog.read``: the records of a topic as a stream of Arrow, without Spark and without a broker."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from functools import partial

from tierlog.errors import ConfigError
from tierlog.record_reader import RecordReader
from tierlog.remote.manager.parallel_scan import ParallelScan
from tierlog.remote.manager.scan_plan import plan_scan
from tierlog.remote.manager.scan_read import DEFAULT_COLUMNS, read_scan_range, records_schema
from tierlog.remote.manager.scan_request import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    PerPartition,
    ScanRequest,
    TopicSelection,
)
from tierlog.remote.storage import open_tier
from tierlog.runtime.machine import Machine

#: A range is what one core decodes at a time: small, so that several under way keep their order in little memory.
RANGE_BYTES = 16 << 20
BATCH_BYTES = 2 << 20

#: Where to begin or end: an offset, offsets by partition, or a time.
Bound = int | Mapping[int, int] | datetime.datetime

Config = Mapping[str, str] | str | os.PathLike[str]


def read(
    path: str | os.PathLike[str],
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    config: Config | None = None,
    layout: str = "auto",
    log_start_offsets: Mapping[int, int] | None = None,
    verify_checksums: bool = True,
    fail_on_data_loss: bool = True,
    threads: int | None = None,
    machine: Machine | None = None,
) -> RecordReader:
    """Read the records of a topic from a tier, a broker's log directory or one file.

    Args:
        path: ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``file://`` or a local path.
        topic: Its name; ``<topic id>:<topic>`` where a bucket holds two topics of that name.
        partitions: Only these.
        start: First offset, or first offset by partition, or a time with a time zone: then each partition begins at its
            first record of that time or later. What the tier does not hold is not waited for: the read begins with
            the first offset that is there.
        end: The same, exclusive.
        columns: In the order wanted, of key, value (binary), topic (string), partition (int32), offset (int64),
            timestamp (timestamp[ms, UTC]), timestampType (int32: 0 CreateTime, 1 LogAppendTime, -1 none), headers
            (list<struct<key: string, value: binary>>), leaderEpoch (int32), segment (string). By default the first
            seven, which are those of Spark's Kafka source.
        isolation_level: ``read_committed`` leaves out aborted transactions, and ends before the first one that was open
            when the newest segment was tiered.
        config: The storage plugin's keys, with or without ``rsm.config.``: a mapping, or the path of a file of them
            (``.properties``, JSON, TOML).
        layout: As ``tierlog.open_tier``.
        log_start_offsets: By partition; what lies below was deleted, which a bucket alone cannot know.
        verify_checksums: Check the CRC-32C of every batch.
        fail_on_data_loss: False names damaged and missing data in a log warning and goes on behind it.
        threads: Decoding threads; by default one a core, at most 16.
        machine: What it runs on; by default this one.

    Returns:
        A ``pyarrow.RecordBatchReader`` whose batches come by partition, then offset. It streams: memory is bounded by
        about 24 MiB a thread beside what the store's windows take. Closing it, leaving its ``with`` block or dropping
        it ends the read and its threads, whatever the store does. Nothing is read before the first batch is asked for,
        but the plan is made here, so that a wrong topic or configuration fails here.

    Raises:
        ConfigError, UnknownTopicError, CorruptDataError, StoreError and their kinds: here while planning, and from the
            reader while reading. ValueError: the reader is closed. ForkedProcessError: it was opened before a fork.

    Thread safety: the reader belongs to one thread at a time; any may close it.
    """
    wanted = tuple(DEFAULT_COLUMNS if columns is None else columns)
    schema = records_schema(wanted)
    request = _request(topic, partitions, start, end, isolation_level, log_start_offsets, fail_on_data_loss)
    keys = {"rsm.config.file": os.fspath(config)} if isinstance(config, str | os.PathLike) else config
    tier = open_tier(os.fspath(path), layout=layout, config=keys, machine=machine)
    try:
        plan = plan_scan(tier, request)
    except BaseException:
        tier.close()
        raise
    scan = ParallelScan(
        plan.ranges,
        partial(read_scan_range, tier, columns=wanted, verify_checksums=verify_checksums, target_bytes=BATCH_BYTES),
        threads=threads,
        machine=tier.machine,
        on_close=tier.close,
    )
    return RecordReader(schema, scan)


def _request(
    topic: str,
    partitions: Sequence[int] | None,
    start: Bound | None,
    end: Bound | None,
    isolation_level: IsolationLevel,
    log_start_offsets: Mapping[int, int] | None,
    fail_on_data_loss: bool,
) -> ScanRequest:
    topics = TopicSelection.of_names([topic]) if partitions is None else TopicSelection.assign({topic: partitions})
    name = topic[23:] if topic[22:23] == ":" else topic
    starting, starting_ms = _bound("start", start, name)
    ending, ending_ms = _bound("end", end, name)
    return ScanRequest(
        topics,
        starting_offsets=EARLIEST if starting is None else starting,
        ending_offsets=LATEST if ending is None else ending,
        starting_timestamps=starting_ms,
        ending_timestamps=ending_ms,
        no_match="latest",
        clamp_offsets=True,
        isolation_level=isolation_level,
        log_start_offsets={name: log_start_offsets} if log_start_offsets else {},
        max_bytes_per_range=RANGE_BYTES,
        fail_on_data_loss=fail_on_data_loss,
    )


def _bound(which: str, given: Bound | None, topic: str) -> tuple[PerPartition | None, int | None]:
    """(offsets, timestamp in ms), at most one of them."""
    if isinstance(given, datetime.datetime):
        if given.tzinfo is None:
            raise ConfigError(f"{which} is a time without a time zone: {given.isoformat()}")
        since = given - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        # Rounded up: the first millisecond that is not before the time given.
        return None, -(-since // datetime.timedelta(milliseconds=1))
    if isinstance(given, Mapping):
        return {topic: dict(given)}, None
    return given, None
