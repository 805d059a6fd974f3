"""Which partition of the metadata topic has the records of a user partition.

The topic's name is no part of it: a partition keeps its place when its topic is made anew only if the id is kept.

Source: Kafka RemoteLogMetadataTopicPartitioner, Utils#murmur2; TopicIdPartition#hashCode of its storage module.
"""

from __future__ import annotations

import struct
from typing import Final

from tierlog.remote.api import TopicIdPartition

_MASK: Final = 0xFFFFFFFF
_MIX: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def metadata_partition(partition: TopicIdPartition, partition_count: int) -> int:
    """The metadata partition of a user partition, in 0 … ``partition_count`` - 1.

    Raises:
        ValueError: the count is below 1.
    """
    if partition_count < 1:
        raise ValueError(f"{partition_count} metadata partitions: at least 1 expected")
    most, least = struct.unpack(">QQ", partition.topic_id.raw)
    folded = 1
    for number in (_folded(least), _folded(most), partition.partition):
        folded = (31 * folded + number) & _MASK
    return (_murmur2(folded) & 0x7FFFFFFF) % partition_count


def _folded(number: int) -> int:
    """Java's Long.hashCode of 64 bits."""
    return (number ^ number >> 32) & _MASK


def _murmur2(word: int) -> int:
    """Kafka's murmur2 of four big-endian bytes."""
    word = struct.unpack("<I", struct.pack(">I", word))[0]
    word = word * _MIX & _MASK
    word = (word ^ word >> 24) * _MIX & _MASK
    hashed = ((_SEED ^ 4) * _MIX & _MASK) ^ word
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15
