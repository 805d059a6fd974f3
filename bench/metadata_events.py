"""Events of many segments as record batches, and questions about them: the files of :mod:`bench.metadata_table`.

Partition p is partition p % 100 of topic p // 100, whose id is that number. STARTED and FINISHED of each segment stand
in the order of its partition; partitions take turns, 64 at a time. A segment has one to three leader epochs.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator

import numpy as np

from tierlog._native.checksums import crc32c
from tierlog.remote.api import TopicIdPartition, Uuid

PARTITIONS_EACH_TOPIC = 100
SEGMENT_OFFSETS = 1000
#: Offsets of a leader epoch, by partition: so that segments have one, one or two, two or three.
EPOCH_OFFSETS = (5000, 1500, 650)
TURN = 64
BATCH_RECORDS = 1000
FIRST_MS = 1_700_000_000_000
QUESTION = np.dtype([("partition", "<i4"), ("epoch", "<i4"), ("offset", "<i8")])

_BODY = struct.Struct(">qqiqq")
_EPOCH = struct.Struct(">iqx")
_BATCH = struct.Struct(">hiqqqhii")


def partition_of(index: int) -> TopicIdPartition:
    topic, number = divmod(index, PARTITIONS_EACH_TOPIC)
    return TopicIdPartition(Uuid(topic.to_bytes(16, "big")), f"topic-{topic:05}", number)


def _varint(number: int) -> bytes:
    value = number << 1 ^ number >> 63
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def event_values(partitions: int, segments: int) -> Iterator[bytes]:
    """The values of all records, in the order of the topic."""
    heads = []
    for index in range(partitions):
        partition = partition_of(index)
        name = partition.topic.encode()
        head = bytes([len(name) + 1]) + name + partition.topic_id.raw + struct.pack(">ix", partition.partition)
        heads.append((index << 32, head))
    for number in range(segments):
        start, end = number * SEGMENT_OFFSETS, (number + 1) * SEGMENT_OFFSETS - 1
        tail = _BODY.pack(start, end, number % 5, FIRST_MS + start, FIRST_MS + end)
        bodies = []
        for length in EPOCH_OFFSETS:
            epochs = range(start // length, end // length + 1)
            told = b"".join(_EPOCH.pack(epoch, max(start, epoch * length)) for epoch in epochs)
            bodies.append(tail + bytes([len(epochs) + 1]) + told + struct.pack(">ixxx", 100_000_000 + number))
        finished = struct.pack(">xiqxbx", number % 5, FIRST_MS + end, 1)
        for turn in range(0, partitions, TURN):
            ours = range(turn, min(turn + TURN, partitions))
            ids = [struct.pack(">8xQ", heads[index][0] | number) for index in ours]
            for index, segment_id in zip(ours, ids, strict=True):
                yield b"\1\0\0" + heads[index][1] + segment_id + b"\0" + bodies[index % 3]
            for index, segment_id in zip(ours, ids, strict=True):
                yield b"\1\1\0" + heads[index][1] + segment_id + finished


def _batches(values: Iterator[bytes]) -> Iterator[bytes]:
    deltas = [b"\0\0" + _varint(delta) + b"\1" for delta in range(BATCH_RECORDS)]
    first, records = 0, bytearray()
    count = 0
    for value in values:
        fields = deltas[count] + _varint(len(value)) + value + b"\0"
        records += _varint(len(fields)) + fields
        count += 1
        if count == BATCH_RECORDS:
            yield _batch(first, count, records)
            first, count = first + count, 0
            records.clear()
    if count:
        yield _batch(first, count, records)


def _batch(first: int, count: int, records: bytearray) -> bytes:
    now = FIRST_MS + first
    summed = _BATCH.pack(0, count - 1, now, now, -1, -1, -1, count) + records
    head = struct.pack(">qiiBI", first, len(summed) + 9, 0, 2, crc32c(summed))
    return head + summed


def write_events(path: pathlib.Path, partitions: int, segments: int) -> int:
    """Write the batches. Returns how many events are in them."""
    with path.open("wb") as file:
        for batch in _batches(event_values(partitions, segments)):
            file.write(batch)
    return 2 * partitions * segments


def write_questions(path: pathlib.Path, partitions: int, segments: int, count: int) -> None:
    """Write questions of random partitions and offsets with the epoch that wrote them; one in twenty of another one."""
    rng = np.random.default_rng(20261123)
    questions = np.empty(count, QUESTION)
    questions["partition"] = rng.integers(0, partitions, count)
    questions["offset"] = rng.integers(0, segments * SEGMENT_OFFSETS, count)
    questions["epoch"] = questions["offset"] // np.array(EPOCH_OFFSETS)[questions["partition"] % 3]
    questions["epoch"] += rng.integers(0, 20, count) == 0
    path.write_bytes(questions.tobytes())
