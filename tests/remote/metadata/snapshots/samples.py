"""Segments of any shape, and the vectors of the formats."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

TOPIC_ID = Uuid(bytes.fromhex("0123456789abcdef1122334455667788"))
SEGMENT_ID = Uuid(bytes.fromhex("0a0b0c0d0e0f10112021222324252627"))
PARTITION = TopicIdPartition(TOPIC_ID, "orders", 3)
LIVE_STATES = tuple(RemoteLogSegmentState)[:3]

#: The segment of the vectors.
SEGMENT = RemoteLogSegmentMetadata(
    remote_log_segment_id=RemoteLogSegmentId(PARTITION, SEGMENT_ID),
    start_offset=0,
    end_offset=100,
    max_timestamp_ms=1700000000000,
    broker_id=1,
    event_timestamp_ms=1700000000123,
    segment_size_in_bytes=1024,
    segment_leader_epochs=EpochMap({0: 0, 1: 20, 2: 80}),
    custom_metadata=bytes.fromhex("010203"),
    state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    txn_idx_empty=True,
)

_INT64 = st.integers(-(2**63), 2**63 - 1)
_OFFSET = st.integers(0, 2**63 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def segments(
    draw: st.DrawFn,
    partition: TopicIdPartition = PARTITION,
    *,
    states: tuple[RemoteLogSegmentState, ...] = LIVE_STATES,
    plain: bool = False,
) -> RemoteLogSegmentMetadata:
    """Any segment; a plain one has neither custom metadata nor a mark of its transaction index."""
    start, end = sorted((draw(_OFFSET), draw(_OFFSET)))
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(draw(st.binary(min_size=16, max_size=16)))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=draw(_INT64),
        broker_id=draw(_INT32),
        event_timestamp_ms=draw(_INT64),
        segment_size_in_bytes=draw(st.integers(0, 2**31 - 1)),
        segment_leader_epochs=EpochMap(
            draw(st.dictionaries(st.integers(0, 2**31 - 1), _OFFSET, min_size=1, max_size=9))
        ),
        custom_metadata=None if plain else draw(st.none() | st.binary(max_size=40)),
        state=draw(st.sampled_from(states)),
        txn_idx_empty=False if plain else draw(st.booleans()),
    )


def survives_damage(whole: bytes, read: Callable[[bytes], object], *, step: int = 1) -> tuple[int, int]:
    """Read every prefix and flips of single bits: each is read, or a CorruptIndexError inside of the file.

    Returns:
        How many prefixes and how many flips were read.
    """
    prefixes = [whole[:size] for size in range(len(whole))]
    flips = []
    for bit in range(0, 8 * len(whole), step):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        flips.append(bytes(damaged))
    read_ones, places = [], []
    for group in (prefixes, flips):
        count = 0
        for data in group:
            try:
                read(data)
            except CorruptIndexError as error:
                places.append(error.position)
            else:
                count += 1
        read_ones.append(count)
    assert 0 <= min(places) <= max(places) <= len(whole)
    return read_ones[0], read_ones[1]
