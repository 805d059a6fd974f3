"""Our encoder of Fetch responses writes what kio's writes, at every version."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import struct
import uuid
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i32Timedelta

from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.fetch_response import (
    FetchablePartition,
    FetchableTopic,
    NodeEndpoint,
    encode_fetch_response,
    unsigned_varint,
)

FETCH: Final = 1
VERSIONS: Final = range(4, 19)

int16s = st.integers(0, 130)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
pieces = st.lists(st.binary(min_size=1, max_size=200), max_size=4)
#: A pair of -1 is what the protocol has for "not told", which kio leaves out.
epochs = st.none() | st.tuples(st.integers(0, 2**31 - 1), int64s)
leaders = st.none() | st.tuples(st.integers(0, 2**31 - 1), int32s)
names = st.text(st.characters(codec="utf-8"), max_size=40)
endpoints = st.lists(
    st.builds(NodeEndpoint, int32s, st.text(max_size=30), int32s, st.none() | st.text(max_size=9)), max_size=3
)


@st.composite
def partitions(draw: st.DrawFn) -> FetchablePartition:
    records = draw(pieces)
    return FetchablePartition(
        draw(int32s),
        draw(st.sampled_from([0, 1, 3, 74, 75])),
        draw(int64s),
        draw(int64s),
        draw(int64s),
        records=[memoryview(piece) for piece in records],
        size_bytes=sum(map(len, records)),
        aborted_transactions=draw(st.none() | st.lists(st.tuples(int64s, int64s), max_size=3)),
        diverging_epoch=draw(epochs),
        current_leader=draw(leaders),
        preferred_read_replica=draw(st.just(-1) | int32s),
    )


topics = st.lists(
    st.builds(
        FetchableTopic,
        names,
        st.binary(min_size=16, max_size=16).filter(any),
        st.lists(partitions(), max_size=4) | st.just([FetchablePartition(5, 0, 9, 8, 7)] * 130),
    ),
    max_size=3,
)


def written_by_kio(
    version: int,
    session_id: int,
    error: int,
    wanted: list[FetchableTopic],
    nodes: list[NodeEndpoint],
    throttle_ms: int = 0,
) -> bytes:
    entities = entities_of(FETCH, version)

    def partition(one: FetchablePartition) -> Any:
        told: dict[str, Any] = {}
        if one.diverging_epoch and entities.has("EpochEndOffset"):
            epoch, end_offset = one.diverging_epoch
            told["diverging_epoch"] = entities.make("EpochEndOffset", epoch=epoch, end_offset=end_offset)
        if one.current_leader and entities.has("LeaderIdAndEpoch"):
            leader, epoch = one.current_leader
            told["current_leader"] = entities.make("LeaderIdAndEpoch", leader_id=leader, leader_epoch=epoch)
        aborted = one.aborted_transactions
        return entities.make(
            "PartitionData",
            partition_index=one.partition_index,
            error_code=ErrorCode(one.error_code),
            high_watermark=one.high_watermark,
            last_stable_offset=one.last_stable_offset,
            log_start_offset=one.log_start_offset,
            aborted_transactions=None
            if aborted is None
            else tuple(entities.make("AbortedTransaction", producer_id=p, first_offset=o) for p, o in aborted),
            preferred_read_replica=one.preferred_read_replica,
            records=Records(b"".join(one.records)),
            **told,
        )

    answer = entities.make(
        "FetchResponse",
        throttle_time=i32Timedelta.parse(datetime.timedelta(milliseconds=throttle_ms)),
        error_code=ErrorCode(error),
        session_id=session_id,
        responses=tuple(
            entities.make(
                "FetchableTopicResponse",
                topic=topic.name,
                topic_id=uuid.UUID(bytes=topic.topic_id),
                partitions=tuple(partition(one) for one in topic.partitions),
            )
            for topic in wanted
        ),
        node_endpoints=tuple(
            entities.make("NodeEndpoint", node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in nodes
        )
        if entities.has("NodeEndpoint")
        else (),
    )
    out = io.BytesIO()
    entity_writer(load_response_schema(FETCH, version))(out, answer)
    return out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(
    session_id=int32s,
    error=st.sampled_from([0, 70, 71]),
    wanted=topics,
    nodes=endpoints,
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_writes_what_kio_writes(
    version: int,
    session_id: int,
    error: int,
    wanted: list[FetchableTopic],
    nodes: list[NodeEndpoint],
    throttle_ms: int,
) -> None:
    """Otherwise a client reads other fields than were meant, or fails on an answer."""
    buffers, size = encode_fetch_response(
        version,
        session_id=session_id,
        error_code=error,
        topics=wanted,
        node_endpoints=nodes,
        throttle_time_ms=throttle_ms,
    )
    encoded = b"".join(buffers)
    assert size == len(encoded)
    assert encoded == written_by_kio(version, session_id, error, wanted, nodes, throttle_ms)


@pytest.mark.parametrize("version", [11, 12, 13, 18])
def test_records_of_all_sizes_beside_each_other(version: int) -> None:
    """Most partitions with records are written in one piece with the end of the one before: a byte too many or too few
    there, or a length of the wrong number of bytes, and a client reads garbage from then on.
    """
    chance = random.Random(version)
    sizes = (0, 1, 126, 127, 128, 16382, 16383, 16384, 16385, 2**21 - 3, 2**21 - 2, 2**21 - 1, 2**21)
    data = memoryview(bytes(2**21))
    others: list[dict[str, Any]] = [
        {"aborted_transactions": ()},
        {"aborted_transactions": [(1, 2)]},
        {"diverging_epoch": (1, 2), "current_leader": (3, 4)},
    ]
    answered = []
    for number in range(80):
        size = chance.choice(sizes) if number % 8 else 20_000
        plain = FetchablePartition(number, 0, 9, 8, 7, [data[:size]] if size else [], size)
        answered.append(plain._replace(**chance.choice([{}, {}, {}, *others])))
    wanted = [FetchableTopic("a", b"1" * 16, answered[:50]), FetchableTopic("b", b"2" * 16, answered[50:])]
    buffers, size = encode_fetch_response(version, topics=wanted)
    encoded = b"".join(buffers)
    assert size == len(encoded)
    assert encoded == written_by_kio(version, 0, 0, wanted, [])


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_are_passed_through_as_they_are(version: int) -> None:
    """Otherwise every answer copies its records, which costs more than all the rest of it."""
    views = [memoryview(bytes([number]) * 300) for number in range(5)]
    answered = [
        FetchablePartition(0, 0, 1, 1, 0, views[:2], 600),
        FetchablePartition(1, 0, 1, 1, 0),
        FetchablePartition(2, 0, 1, 1, 0, views[2:], 900, [(1, 2)]),
    ]
    buffers, size = encode_fetch_response(version, topics=[FetchableTopic("orders", b"1" * 16, answered)])
    passed = [buffer for buffer in buffers if isinstance(buffer, memoryview)]
    assert all(ours is theirs for ours, theirs in zip(passed, views, strict=True))
    assert size == sum(len(memoryview(buffer)) for buffer in buffers)
    assert len(buffers) - len(views) == (3 if version >= 12 else 2), "small fields between two records are one piece"


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 2**31, 2**32 - 1])
def test_varints_are_kafkas(value: int) -> None:
    """Otherwise records of that size end somewhere else for the client."""
    encoded = unsigned_varint(value)
    assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(encoded)) == value


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_read_it_back(version: int) -> None:
    """Otherwise both writers could be wrong alike."""
    one = FetchablePartition(3, 0, 100, 90, 5, [memoryview(b"batch")], 5, [(7, 55)])
    buffers, _ = encode_fetch_response(version, session_id=11, topics=[FetchableTopic("orders", b"1" * 16, [one])])
    schema = load_response_schema(FETCH, version)
    raw = b"".join(buffers)
    answer: Any
    answer, read = entity_reader(schema)(raw, 0)
    assert read == len(raw)
    (topic,) = answer.responses
    (partition,) = topic.partitions
    told = dataclasses.asdict(partition)
    assert (told["partition_index"], told["high_watermark"], told["last_stable_offset"]) == (3, 100, 90)
    assert bytes(partition.records) == b"batch"
    assert told.get("log_start_offset", 5) == 5
    assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions] == [(7, 55)]


def test_numbers_that_do_not_fit_are_refused() -> None:
    """Otherwise a wrong number would be cut to another one that the client believes."""
    with pytest.raises(struct.error):
        encode_fetch_response(12, topics=[FetchableTopic("orders", b"1" * 16, [FetchablePartition(2**31, 0, 0, 0, 0)])])
