"""The request of a scan: topics, where to begin and end, what to leave out. Values only, checked when made.

The words are those of Spark's Kafka source, since most requests come from there; ``tierlog.read`` and the command use
the same request with ``clamp_offsets``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from tierlog.remote.tier.tier import StoredTopic

#: In place of an offset: the first one of the tier.
EARLIEST = -2
#: In place of an offset: behind the last one of the tier.
LATEST = -1

#: One number for all partitions, or topic -> partition -> number.
PerPartition = int | Mapping[str, Mapping[int, int]]

IsolationLevel = Literal["read_uncommitted", "read_committed"]
NoMatch = Literal["error", "latest"]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_OFFSET_MAX: Final = 2**63 - 2
_WITH_ID: Final = re.compile(r"([A-Za-z0-9_-]{22}):(.+)")


class TopicName(NamedTuple):
    """A name, and the topic id that was given with it; None for any."""

    topic_id: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse any text as a name; a text that begins with 22 characters of an id and a colon has that id."""
        found = _WITH_ID.fullmatch(text)
        return cls(found[1], found[2]) if found else cls(None, text)

    def accepts(self, partition: TopicIdPartition) -> bool:
        """Whether a partition is of this topic."""
        return partition.topic == self.name and self.topic_id in (None, str(partition.topic_id))

    def __str__(self) -> str:
        return self.name if self.topic_id is None else f"{self.topic_id}:{self.name}"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The selected topics: exactly one of the three attributes is set.

    Attributes:
        names: Topic names; ``<topic id>:<topic>`` picks one of two topics of the same name.
        pattern: A regular expression, compiled or not, that the whole name must match.
        assigned: Topic to its partitions.
    """

    names: tuple[str, ...] = ()
    pattern: str | re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum((bool(self.names), self.pattern is not None, bool(self.assigned))) != 1:
            raise ConfigError("topics are given by exactly one of: names, a pattern, partitions assigned by topic")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(f"the topic pattern {self.pattern!r} is malformed: {error}") from error

    @classmethod
    def of_names(cls, names: Iterable[str]) -> TopicSelection:
        return cls(names=tuple(dict.fromkeys(names)))

    @classmethod
    def matching(cls, pattern: str | re.Pattern[str]) -> TopicSelection:
        return cls(pattern=pattern)

    @classmethod
    def assign(cls, partitions: Mapping[str, Iterable[int]]) -> TopicSelection:
        return cls(assigned={topic: tuple(dict.fromkeys(wanted)) for topic, wanted in partitions.items()})


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Bounds that every record of the result satisfies, all at once: a query engine's pushed-down filters.

    Attributes:
        topics: Only these, by their names alone; None for all.
        partitions: Only these (a range is one of numbers that may not all exist); None for all.
        first_offset, end_offset_exclusive: Bounds of the offset, in every partition.
        first_timestamp_ms, end_timestamp_exclusive_ms: Bounds of the record's timestamp (-1 if it has none).
    """

    partitions: frozenset[int] | range | None = None
    first_offset: int = 0
    end_offset_exclusive: int = _INT64_MAX
    first_timestamp_ms: int = _INT64_MIN
    end_timestamp_exclusive_ms: int = _INT64_MAX
    topics: frozenset[str] | None = None

    def admits(self, topic: str, partition: int) -> bool:
        """Whether records of a partition can be in the result."""
        wanted_topic = self.topics is None or topic in self.topics
        return wanted_topic and (self.partitions is None or partition in self.partitions)

    @property
    def bounds_time(self) -> bool:
        return self.first_timestamp_ms > _INT64_MIN or self.end_timestamp_exclusive_ms < _INT64_MAX


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """One batch read of a tier.

    Attributes:
        topics: Which topics and partitions.
        starting_offsets: First offset wanted: EARLIEST, a number, or by topic and partition (with -2, and every
            partition named, as Spark asks).
        ending_offsets: End, exclusive: LATEST, a number, or by topic and partition (with -1).
        starting_timestamps, ending_timestamps: Milliseconds; the first record of that time or later, as Kafka's
            offsetsForTimes finds it, begins (ends, exclusive) the read. They win over the offsets.
        no_match: Where no record is as late as a starting timestamp: fail, or begin at the end. A missing match of an
            ending timestamp always means the end.
        clamp_offsets: Offsets outside of the tier's are moved to its first or last, and partitions that a mapping does
            not name are read whole. Otherwise the first is data loss, the second an error.
        record_filter: See RecordFilter.
        isolation_level: read_committed leaves out aborted transactions and what lies behind the last stable offset.
        log_start_offsets: Topic -> partition -> log start offset, which a bucket alone cannot know: records below are
            cut.
        max_bytes_per_range: Target size of a range, in bytes of the original log.
        min_partitions: As many tasks at least, if there is enough to divide; None to leave it.
        max_partitions: At most so many tasks: ranges and tasks become larger than the limits beside it say; None to
            leave it.
        max_records_per_partition: At most so many offsets in a task; None to leave it.
        fail_on_data_loss: Offsets, segments or batches that are gone or damaged fail the scan; else they are named in a
            warning and left out.
    """

    topics: TopicSelection
    starting_offsets: PerPartition = EARLIEST
    ending_offsets: PerPartition = LATEST
    starting_timestamps: PerPartition | None = None
    ending_timestamps: PerPartition | None = None
    no_match: NoMatch = "error"
    clamp_offsets: bool = False
    record_filter: RecordFilter = RecordFilter()
    isolation_level: IsolationLevel = "read_uncommitted"
    log_start_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    max_bytes_per_range: int = 128 << 20
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        _check_choice("isolation_level", self.isolation_level, ("read_uncommitted", "read_committed"))
        _check_choice("no_match", self.no_match, ("error", "latest"))
        _check_offsets("starting", self.starting_offsets, special=EARLIEST, refused=LATEST)
        _check_offsets("ending", self.ending_offsets, special=LATEST, refused=EARLIEST)
        for name in ("max_bytes_per_range", "min_partitions", "max_partitions", "max_records_per_partition"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is at least 1, not {value}")
        if self.min_partitions and self.max_partitions and self.min_partitions > self.max_partitions:
            raise ConfigError(f"min_partitions {self.min_partitions} is above max_partitions {self.max_partitions}")

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def _check_offsets(which: str, offsets: PerPartition, *, special: int, refused: int) -> None:
    values = [offsets] if isinstance(offsets, int) else [o for parts in offsets.values() for o in parts.values()]
    names = {EARLIEST: "earliest (-2)", LATEST: "latest (-1)"}
    for value in values:
        if value == refused:
            raise ConfigError(f"{which} offsets of a batch read cannot be {names[refused]}")
        if value < 0 and value != special:
            raise ConfigError(f"{which} offset {value} is neither an offset nor {names[special]}")


def parse_log_starts(values: Iterable[str]) -> dict[int | None, int]:
    """Log start offsets as people write them: ``OFFSET`` for all partitions, or ``PARTITION:OFFSET`` for one.

    Returns:
        Offsets by partition; under None that of all others. Later ones win.

    Raises:
        ConfigError: malformed.
    """
    starts: dict[int | None, int] = {}
    for value in values:
        match = re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", value)
        if match is None or int(match[2]) > _OFFSET_MAX:
            raise ConfigError(f"log start {value!r}: expected OFFSET or PARTITION:OFFSET")
        starts[None if match[1] is None else int(match[1])] = int(match[2])
    return starts


def log_starts_by_topic(starts: Mapping[int | None, int], topics: Iterable[StoredTopic]) -> dict[str, dict[int, int]]:
    """Log start offsets of these topics, as a request takes them; those below were deleted, which no bucket shows.

    Args:
        starts: By partition; under None that of all partitions that are not named.
        topics: The topics that they are of.
    """
    named = {partition: offset for partition, offset in starts.items() if partition is not None}
    found: dict[str, dict[int, int]] = {}
    for stored in topics if starts else ():
        everywhere = {partition: starts[None] for partition in stored.partitions if None in starts}
        found[stored.name] = found.get(stored.name, {}) | everywhere | named
    return found
