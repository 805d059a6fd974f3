"""Produce requests spelled out, for batches that no client would send: with a producer id that the log knows.

Source: Kafka ProduceRequest, version 8.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_PRODUCE, _VERSION = 0, 8


class Produced(NamedTuple):
    error: int
    base_offset: int


def produce(
    bootstrap: str, topic: str, partition: int, batch: bytes, *, transactional_id: str | None = None
) -> Produced:
    """Send one batch, acks=all, and take the answer."""
    host, _, port = bootstrap.partition(":")
    body = _text(transactional_id) + struct.pack(">hii", -1, 30_000, 1) + _text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", _PRODUCE, _VERSION, 7) + _text("tierlog-tests") + body
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    name_end = 4 + 4 + 2 + len(topic.encode())  # correlation id, one topic, its name
    error, base_offset = struct.unpack_from(">hq", answer, name_end + 4 + 4)  # one partition, its number
    return Produced(error, base_offset)


def _text(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()
