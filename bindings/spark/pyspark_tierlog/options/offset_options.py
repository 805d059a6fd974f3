"""The JSON and the numbers of Spark's Kafka options: offsets, timestamps, assignments, sizes, times.

Each function takes the option's text and raises ``ValueError`` with a message that shows the right form; the option's
name is put in front by :mod:`pyspark_tierlog.options.source_options`. Forms and special values are those of Spark's
Kafka source (``JsonUtils``, ``KafkaOffsetRangeLimit``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

TopicPartition = tuple[str, int]
"""Topic name and partition number."""

PartitionNumbers = Mapping[TopicPartition, int]
"""An offset, or a timestamp in ms since 1970, for each partition."""

_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_SIZE_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h|d|)", re.IGNORECASE)
_DURATION_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_partition_numbers(text: str, *, example: str) -> PartitionNumbers:
    """Read ``{"topic": {"0": 23}}``: one number for each topic and partition.

    Raises:
        ValueError: not of that form, or a partition is named twice.
    """
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(text, example=example).items():
        if not isinstance(partitions, dict):
            raise _wrong_form(text, example)
        for name, number in partitions.items():
            if type(number) is not int or not -(2**63) <= number <= INT64_MAX:
                raise ValueError(f"topic {topic!r}, partition {name!r}: {number!r} is not a 64-bit integer")
            key = (topic, _partition_number(name, topic=topic))
            if key in numbers:
                raise ValueError(f"topic {topic!r}, partition {key[1]} is named twice")
            numbers[key] = number
    if not numbers:
        raise ValueError(f"names no partition; expected e.g. {example}")
    return MappingProxyType(numbers)


def parse_offsets(text: str) -> str | PartitionNumbers:
    """Read ``earliest``, ``latest``, or an offset for each partition (-2 earliest, -1 latest).

    Raises:
        ValueError: not of that form.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    offsets = parse_partition_numbers(text, example='{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    for (topic, partition), offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise ValueError(
                f"{topic}-{partition}: offset {offset} is below 0 and neither -1 (latest) nor -2 (earliest)"
            )
    return offsets


def parse_timestamps(text: str) -> PartitionNumbers:
    """Read a timestamp for each partition, milliseconds since 1970.

    Raises:
        ValueError: not of that form, or a timestamp is negative.
    """
    timestamps = parse_partition_numbers(text, example='{"topicA":{"0":1735689600000,"1":1735689600000}}')
    for (topic, partition), timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"{topic}-{partition}: timestamp {timestamp} is negative")
    return timestamps


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """Read ``{"topicA":[0,1],"topicB":[2]}``.

    Raises:
        ValueError: not of that form, or it names no partition.
    """
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    chosen: set[TopicPartition] = set()
    for topic, partitions in _json_object(text, example=example).items():
        if not isinstance(partitions, list):
            raise _wrong_form(text, example)
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= INT32_MAX:
                raise ValueError(f"topic {topic!r}: {partition!r} is not a partition number")
            chosen.add((topic, partition))
    if not chosen:
        raise ValueError(f"names no partition; expected e.g. {example}")
    return frozenset(chosen)


def parse_names(text: str) -> tuple[str, ...]:
    """Read a comma list; blanks around names do not count, empty names and repeated ones are dropped, and the order
    stays.

    Raises:
        ValueError: it names nothing.
    """
    names = tuple(dict.fromkeys(_names(text)))
    if not names:
        raise ValueError("names nothing")
    return names


def parse_columns(text: str) -> tuple[str, ...]:
    """Read a comma list as :func:`parse_names` does, of names that a table cannot have twice.

    Raises:
        ValueError: it names nothing, or a name twice.
    """
    given = _names(text)
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise ValueError(f"names {', '.join(twice)} twice")
    return parse_names(text)


def parse_flag(text: str) -> bool:
    """Read ``true`` or ``false`` in any case, as Spark's Kafka source does; nothing else is accepted.

    Raises:
        ValueError: neither.
    """
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text!r}")
    return word == "true"


def parse_duration_ms(text: str) -> int:
    """Read a time as Spark does: a number with ``ms``, ``s``, ``m``, ``min``, ``h`` or ``d``; milliseconds without.

    Raises:
        ValueError: not of that form, or 0.
    """
    match = _DURATION.fullmatch(text.strip())
    duration_ms = int(match[1]) * _DURATION_MS[match[2].lower()] if match else 0
    if not 0 < duration_ms <= INT64_MAX:
        raise ValueError(f"expected a time above 0 as 500ms, 30s, 15m or 1h, got {text!r}")
    return duration_ms


def parse_size_bytes(text: str) -> int:
    """Read a number of bytes, with Spark's suffixes where wanted: ``134217728``, ``128m``, ``128 MiB``, ``1g``.

    Raises:
        ValueError: not of that form, or 0.
    """
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(match[1]) * 1024 ** _SIZE_POWERS[match[2].lower()] if match else 0
    if not 0 < size_bytes <= INT64_MAX:
        raise ValueError(f"expected a size above 0 as 134217728, 128m or 1g, got {text!r}")
    return size_bytes


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _partition_number(name: str, *, topic: str) -> int:
    if not (name.isascii() and name.isdigit()) or int(name) > INT32_MAX:
        raise ValueError(f"topic {topic!r}: {name!r} is not a partition number")
    return int(name)


def _wrong_form(text: str, example: str) -> ValueError:
    return ValueError(f"expected e.g. {example}, got {text!r}")


def _json_object(text: str, *, example: str) -> dict[str, object]:
    def without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(f"a key appears twice in {text!r}")
        return found

    try:
        value = json.loads(text, object_pairs_hook=without_duplicates)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _wrong_form(text, example) from error
    if not isinstance(value, dict):
        raise _wrong_form(text, example)
    return value
