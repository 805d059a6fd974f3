"""The topics that consumers subscribe to, read from what they send when they join.

Source: ConsumerProtocolSubscription.json of Kafka 4.3; version 0, which all later ones begin with: int16 version,
int32 count of topics, then each as int16 length and UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions; None if one cannot be read: then nobody knows what the group reads."""
    topics: set[str] = set()
    try:
        for metadata in subscriptions:
            topics.update(_topics(memoryview(metadata)))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: memoryview) -> list[str]:
    version, count = _COUNT.unpack_from(metadata)
    position = _COUNT.size
    if version < 0 or not 0 <= count <= (len(metadata) - position) // _LENGTH.size:
        raise ValueError("not a subscription")
    topics = []
    for _ in range(count):
        [length] = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if not 0 <= length <= len(metadata) - position:
            raise ValueError("not a subscription")
        topics.append(str(metadata[position : position + length], "utf-8"))
        position += length
    return topics
