"""``tierlog.topics`` and ``tierlog.read``: a tier's content, and its records as Arrow, without a broker."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from tierlog.arguments import (
    INT64_MAX,
    INT64_MIN,
    require_flag,
    require_int,
    require_int_map,
    require_ints,
    require_names,
    require_text,
    require_type,
    wrong_type,
)
from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.opening import Config, Metadata, Path, open_path, topic_names
from tierlog.record_reader import RecordReader
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.plan import ScanPlan, plan_scan
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import DEFAULT_COLUMNS, read_scan_range, records_schema
from tierlog.scan.scan_request import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    PerPartition,
    RecordFilter,
    ScanRequest,
    TopicSelection,
)
from tierlog.scan.topic_info import TopicInfo, topic_infos

#: Bytes of a range, which one core decodes at a time: small, so that several pending ones are ordered in little memory.
RANGE_BYTES = 16 << 20
BATCH_BYTES = 2 << 20

#: One topic, several, or all whose whole name matches.
Topics = str | Iterable[str] | re.Pattern[str]

#: By partition where one topic is read, else by topic and partition.
ByPartition = Mapping[int, int] | Mapping[str, Mapping[int, int]]

#: Where to begin or end: an offset, offsets by partition, or a time (a ``pandas.Timestamp`` is a datetime).
Bound = int | ByPartition | str | datetime.datetime | np.datetime64

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MONTHS: Final = {"Y": 12, "M": 1}
#: Units of numpy.datetime64 in a millisecond.
_PER_MS: Final = {
    "W": Fraction(1, 7 * 86_400_000),
    "D": Fraction(1, 86_400_000),
    "h": Fraction(1, 3_600_000),
    "m": Fraction(1, 60_000),
    "s": Fraction(1, 1_000),
    "ms": Fraction(1),
    "us": Fraction(10**3),
    "ns": Fraction(10**6),
    "ps": Fraction(10**9),
    "fs": Fraction(10**12),
    "as": Fraction(10**15),
}


def read(
    path: Path,
    topic: Topics,
    *,
    partitions: Iterable[int] | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Iterable[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    log_start_offsets: ByPartition | None = None,
    verify_checksums: bool = True,
    fail_on_data_loss: bool = True,
    threads: int | None = None,
    machine: Machine | None = None,
) -> RecordReader:
    """Read the records of one topic or of several from a tier, a broker's log directory or one file.

    Args:
        path: ``s3://``, ``gs://``, ``az://``, ``file://`` or a local path.
        topic: Its name; ``<topic id>:<topic>`` where a bucket holds two topics of that name. Several names, or a
            compiled pattern (``re.compile("orders-.*")``) that the whole name must match.
        partitions: The partitions to read, of each topic; None for all.
        start: First offset, or first offset by partition, or a time: then each partition begins at its first record of
            that time or later. If the tier no longer holds that offset, the read begins with the first offset that it
            holds. By partition of several topics: ``{topic: {partition: offset}}``. No offset is negative: None reads
            from the first one. A time is a text of ISO 8601, a ``datetime``, a ``pandas.Timestamp`` or a
            ``numpy.datetime64``; without a zone it is of UTC, as the column ``timestamp`` is, whatever the machine's.
        end: The same, exclusive: 0 reads nothing, None reads to the end.
        columns: Which columns, in which order. There are key, value (binary), topic (string), partition (int32), offset
            (int64), timestamp (timestamp[ms, UTC]), timestampType (int32: 0 CreateTime, 1 LogAppendTime, -1 none),
            headers (list<struct<key: string, value: binary>>), leaderEpoch (int32), segment (string). By default the
            first seven, which are those of Spark's Kafka source.
        isolation_level: ``read_committed`` leaves out aborted transactions, and ends before the first transaction that
            was open when the newest segment was tiered.
        config: The storage plugin's keys, with or without ``rsm.config.``: a mapping, or the path of a file of them
            (``.properties``, JSON, TOML).
        layout: How the objects are laid out, as for ``tierlog.open_tier``.
        metadata: What says which segments count: a broker's log directory with folders of ``__remote_log_metadata``,
            one such folder, or several of them; a snapshot; or ``host:port`` of a running Kafka. Then the bucket is not
            listed, segments whose deletion has begun are no history, and a segment that should be there and is not is
            data loss, at the beginning and the end too.
        metadata_client: Keys of Kafka's client for a running Kafka, such as ``security.protocol``.
        log_start_offsets: Log start offsets by partition, in the form of ``start``. Records below were deleted, which a
            bucket alone cannot show.
        verify_checksums: Check the CRC-32C of every batch.
        fail_on_data_loss: False names damaged and missing data in a log warning and goes on behind it.
        threads: Decoding threads; by default one a core, at most 16.
        machine: The machine that the read runs on; this machine by default.

    Returns:
        A ``pyarrow.RecordBatchReader`` whose batches come by topic, partition, then offset. It streams: memory is
        bounded by about 24 MiB a thread beside the store's windows. Closing it, leaving its ``with`` block or dropping
        it ends the read and its threads, whatever the store does. Nothing is read before the first batch is asked for,
        but the plan is made here, so that a wrong topic or configuration fails here.

    Raises:
        TypeError: an argument is of another type; it is named.
        ConfigError, UnknownTopicError, CorruptDataError, StoreError and their kinds: here while planning, and from the
            reader while reading. ValueError: the reader is closed. ForkedProcessError: it was opened before a fork.

    Thread safety: the reader belongs to one thread at a time; any may close it.
    """
    wanted = DEFAULT_COLUMNS if columns is None else require_names("columns", columns)
    schema = records_schema(wanted)
    reading = reading_of(
        topic,
        partitions=partitions,
        start=start,
        end=end,
        isolation_level=isolation_level,
        log_start_offsets=log_start_offsets,
        verify_checksums=verify_checksums,
        fail_on_data_loss=fail_on_data_loss,
        threads=threads,
    )
    tier = open_path(
        path,
        layout=layout,
        config=config,
        metadata=metadata,
        metadata_client=metadata_client,
        machine=machine,
        list_once=True,
    )
    try:
        plan = plan_scan(tier, reading.request)
        reading.require_some(tier, plan.bounds)
    except BaseException:
        tier.close()
        raise
    return RecordReader(schema, reading.scan(tier, plan, wanted, on_close=tier.close))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a tier, and how: the checked arguments of ``read`` and of ``dataset``.

    Attributes:
        topic: As it was given.
        request: Of all that may be read.
        verify_checksums, threads: As of ``read``.
    """

    topic: Topics
    request: ScanRequest
    verify_checksums: bool
    threads: int | None

    def require_some(self, tier: Tier, found: Collection[object]) -> None:
        """Raise UnknownTopicError: a pattern fits no topic of the tier, or none of its partitions."""
        if isinstance(self.topic, re.Pattern) and not found:
            text = f"no topic, or none of these partitions, fits {self.topic.pattern!r}"
            raise UnknownTopicError(f"{tier.describe()}: {text}")

    def scan(
        self, tier: Tier, plan: ScanPlan, columns: Sequence[str], *, on_close: Callable[[], None] = lambda: None
    ) -> ParallelScan:
        """Begin to read a plan: the batches of its records, when they are asked for."""
        read_range = partial(
            read_scan_range,
            tier,
            columns=columns,
            verify_checksums=self.verify_checksums,
            target_bytes=BATCH_BYTES,
        )
        return ParallelScan(plan.ranges, read_range, threads=self.threads, machine=tier.machine, on_close=on_close)


def reading_of(
    topic: Topics,
    *,
    partitions: Iterable[int] | None,
    start: Bound | None,
    end: Bound | None,
    isolation_level: IsolationLevel,
    log_start_offsets: ByPartition | None,
    verify_checksums: bool,
    fail_on_data_loss: bool,
    threads: int | None,
) -> Reading:
    """Check the arguments of ``read``. Raises TypeError, ConfigError."""
    topics, record_filter = _topics(topic, partitions)
    starting, starting_ms = _bound("start", start, topics)
    ending, ending_ms = _bound("end", end, topics)
    request = ScanRequest(
        topics,
        starting_offsets=EARLIEST if starting is None else starting,
        ending_offsets=LATEST if ending is None else ending,
        starting_timestamps=starting_ms,
        ending_timestamps=ending_ms,
        no_match="latest",
        clamp_offsets=True,
        record_filter=record_filter,
        isolation_level=_isolation_level(isolation_level),
        log_start_offsets=_by_topic("log_start_offsets", log_start_offsets or {}, topics),
        max_bytes_per_range=RANGE_BYTES,
        fail_on_data_loss=require_flag("fail_on_data_loss", fail_on_data_loss),
    )
    return Reading(topic, request, require_flag("verify_checksums", verify_checksums), _workers(threads))


def topics(
    path: Path,
    topic: Topics | None = None,
    *,
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> list[TopicInfo]:
    """List the topics of a tier, a broker's log directory or one file, with their partitions, offsets, sizes and times.

    Args:
        path: As for ``read``.
        topic: Only these: a name, several names, or a compiled pattern that the whole name must match; None for all.
        config: As for ``read``.
        layout: As for ``read``.
        metadata: As for ``read``.
        metadata_client: As for ``read``.
        machine: As for ``read``.

    Returns:
        The topics by name, then topic id; none if a pattern matches none, or there are none.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError, UnknownTopicError, CorruptDataError,
        StoreError and their kinds.

    Cost: one listing, one small request for each segment's description, and one for each partition.
    """
    names, pattern = None, None
    if isinstance(topic, re.Pattern):
        require_type("the pattern of topic", topic.pattern, str, "one of str")
        pattern = topic
    elif topic is not None:
        names = topic_names(topic)
    with open_path(
        path,
        layout=layout,
        config=config,
        metadata=metadata,
        metadata_client=metadata_client,
        machine=machine,
        list_once=True,
    ) as tier:
        return topic_infos(TierHistory(tier).partitions(names, pattern=pattern))


def _topics(topic: Topics, partitions: Iterable[int] | None) -> tuple[TopicSelection, RecordFilter]:
    numbers = None if partitions is None else require_ints("partitions", partitions)
    if isinstance(topic, re.Pattern):
        require_type("the pattern of topic", topic.pattern, str, "one of str")
        return TopicSelection.matching(topic), RecordFilter(partitions=None if numbers is None else frozenset(numbers))
    names = topic_names(topic)
    if numbers is None:
        return TopicSelection.of_names(names), RecordFilter()
    return TopicSelection.assign(dict.fromkeys(names, numbers)), RecordFilter()


def _bound(which: str, given: Bound | None, topics: TopicSelection) -> tuple[PerPartition | None, int | None]:
    """(offsets, timestamp in ms): at most one of them is given."""
    if given is None:
        return None, None
    if isinstance(given, str | datetime.datetime | np.datetime64):
        return None, _timestamp_ms(which, given)
    if isinstance(given, Mapping):
        return _by_topic(which, given, topics), None
    try:
        number = require_int(which, given)
    except TypeError:
        raise wrong_type(which, given, "an int, a mapping of ints by partition, or a time") from None
    return _offset(which, number), None


def _timestamp_ms(which: str, given: str | datetime.datetime | np.datetime64) -> int:
    """Return the first millisecond since 1970 that is not before the time.

    Raises:
        ConfigError: a text that is not ISO 8601, NaT, or a time whose milliseconds no int64 holds.
    """
    if isinstance(given, str):
        try:
            moment: datetime.datetime | np.datetime64 = datetime.datetime.fromisoformat(given)
        except ValueError:
            raise ConfigError(f"{which} {given[:80]!r} is no time of ISO 8601, as 2022-06-12T02:13:30Z is") from None
    else:  # pandas.Timestamp is a datetime; only its own conversion has its nanoseconds
        moment = getattr(given, "to_datetime64", lambda: given)()
    if isinstance(moment, np.datetime64):
        milliseconds = _ceil_ms(which, moment)
    else:
        aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=datetime.UTC)
        milliseconds = -(-(aware - _EPOCH) // datetime.timedelta(milliseconds=1))
    if not INT64_MIN <= milliseconds <= INT64_MAX:
        raise ConfigError(f"{which} {given} is out of range: its milliseconds since 1970 do not fit into 64 bits")
    return milliseconds


def _ceil_ms(which: str, given: np.datetime64) -> int:
    """Round up to ms by exact arithmetic: numpy's own conversion wraps around. Raises ConfigError: NaT, or no unit."""
    if np.isnat(given):
        raise ConfigError(f"{which} is NaT, which is no time")
    unit, step = np.datetime_data(given.dtype)
    number = int(given.astype(np.int64)) * step
    if unit in _MONTHS:
        months = number * _MONTHS[unit]
        year, month = divmod(months, 12)
        if not 1 <= 1970 + year <= 9999:
            raise ConfigError(f"{which} {given} is out of range: years are 1 to 9999")
        number, unit = (datetime.date(1970 + year, month + 1, 1) - _EPOCH.date()).days, "D"
    if unit not in _PER_MS:
        raise ConfigError(f"{which} is a numpy.datetime64 without a unit")
    per_ms = _PER_MS[unit]
    return -(-number * per_ms.denominator // per_ms.numerator)


def _offset(name: str, number: int) -> int:
    """Return the offset. Negative ones are refused: Spark's words for earliest and latest are no offsets here."""
    if number < 0:
        raise ConfigError(f"{name} is an offset, at least 0, not {number}")
    return number


def _by_topic(name: str, given: ByPartition, topics: TopicSelection) -> dict[str, dict[int, int]]:
    """Return offsets by partition, for one topic or by topic, as one mapping by topic and partition."""
    require_type(name, given, Mapping, "a mapping of int by partition")
    if any(isinstance(value, Mapping) for value in given.values()):
        return {
            require_text(f"each key of {name}", key): _offsets(f"{name}[{key!r}]", value)
            for key, value in given.items()
        }
    names = [each[23:] if each[22:23] == ":" else each for each in (*topics.names, *topics.assigned)]
    if given and len(names) != 1:
        raise ConfigError(f"{name} by partition is for one topic; for more give {{topic: {{partition: offset}}}}")
    return {names[0]: _offsets(name, given)} if given else {}


def _offsets(name: str, given: object) -> dict[int, int]:
    numbers = require_int_map(name, given)
    return {partition: _offset(f"{name}[{partition}]", number) for partition, number in numbers.items()}


def _isolation_level(given: IsolationLevel) -> IsolationLevel:
    require_text("isolation_level", given)
    return given


def _workers(threads: int | None) -> int | None:
    if threads is not None and require_int("threads", threads) < 1:
        raise ConfigError(f"threads is at least 1, not {threads}")
    return threads
