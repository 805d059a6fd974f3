"""The offsets of a stream: of each partition the next one, in the JSON of Spark's Kafka source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pyspark_tierlog.options.offset_options import INT32_MAX, INT64_MAX, TopicPartition
from tierlog.errors import ConfigError

StreamOffsets = Mapping[TopicPartition, int]
"""Topic and partition to the offset that comes next."""

JsonOffsets = dict[str, dict[str, int]]
"""Topic to partition to offset, as Spark's Kafka source writes them: ``{"orders": {"0": 23}}``."""


def to_json(offsets: StreamOffsets) -> JsonOffsets:
    """Return offsets as JSON, by topic and partition."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), offset in sorted(offsets.items()):
        found[topic][str(partition)] = offset
    return dict(found)


def from_json(value: object) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint. Raises ConfigError: it is of another source."""
    found: dict[TopicPartition, int] = {}
    if not isinstance(value, Mapping):
        raise _foreign(value)
    for topic, partitions in value.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise _foreign(value)
        for partition, offset in partitions.items():
            if not isinstance(partition, str) or not (partition.isascii() and partition.isdigit()):
                raise _foreign(value)
            if type(offset) is not int or not 0 <= offset <= INT64_MAX or int(partition) > INT32_MAX:
                raise _foreign(value)
            found[topic, int(partition)] = offset
    return found


def by_topic(offsets: StreamOffsets) -> dict[str, dict[int, int]]:
    """Return offsets as a scan request takes them."""
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (topic, partition), offset in offsets.items():
        found[topic][partition] = offset
    return dict(found)


def _foreign(value: object) -> ConfigError:
    return ConfigError(f'the checkpoint\'s offsets are not of a topic, as {{"orders":{{"0":23}}}}: {str(value)[:200]}')
