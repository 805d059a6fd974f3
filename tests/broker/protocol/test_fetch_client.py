"""What we ask a broker is what kio reads, and what it answers is read as kio reads it, records as views."""

from __future__ import annotations

import uuid
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from tests.broker.protocol.test_fetch_response import (
    VERSIONS,
    endpoints,
    int32s,
    int64s,
    names,
    topics,
    written_by_kio,
)
from tierlog.broker.protocol.fetch_client import (
    MalformedResponseError,
    WantedPartition,
    WantedTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from tierlog.broker.protocol.fetch_response import FetchableTopic, NodeEndpoint, encode_fetch_response

FETCH: Final = 1


def body_of(version: int, **answer: Any) -> bytes:
    return b"".join(encode_fetch_response(version, **answer)[0])


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(session_id=int32s, error=st.sampled_from([0, 70]), wanted=topics, nodes=endpoints, throttle_ms=int32s.map(abs))
def test_an_answer_is_passed_on_as_it_came(
    version: int,
    session_id: int,
    error: int,
    wanted: list[FetchableTopic],
    nodes: list[NodeEndpoint],
    throttle_ms: int,
) -> None:
    """Otherwise a client of the front learns something else than a client of the broker."""
    throttle_ms = min(throttle_ms, 2**31 - 1)
    body = written_by_kio(version, session_id, error, wanted, nodes, throttle_ms)
    answer = parse_fetch_response(version, memoryview(body))
    assert (
        body_of(
            version,
            session_id=answer.session_id,
            error_code=answer.error_code,
            topics=answer.topics,
            node_endpoints=answer.node_endpoints,
            throttle_time_ms=answer.throttle_time_ms,
        )
        == body
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            for view in partition.records:
                assert isinstance(view, memoryview)
                assert view.obj is body, "records are not copied"


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60)
@given(wanted=topics, nodes=endpoints, data=st.data())
def test_wrong_bytes_are_one_error(
    version: int, wanted: list[FetchableTopic], nodes: list[NodeEndpoint], data: st.DataObject
) -> None:
    """Otherwise a broker's fault, or a stranger's server, ends more than one connection."""
    body = bytearray(body_of(version, topics=wanted, node_endpoints=nodes))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (body, body[:cut], body + b"\0"):
        try:
            answer = parse_fetch_response(version, memoryview(bytes(damaged)))
        except MalformedResponseError:
            continue
        assert sum(len(topic.partitions) for topic in answer.topics) <= len(damaged)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_everything_takes_no_memory(version: int) -> None:
    """Otherwise eight bytes end the server."""
    count = b"\xff\xff\xff\xff\x0f" if version >= 12 else b"\x7f\xff\xff\xff"
    head = bytes(4 if version < 7 else 10)
    with pytest.raises(MalformedResponseError, match="elements"):
        parse_fetch_response(version, memoryview(head + count + bytes(100)))


wanted_topics = st.lists(
    st.builds(
        WantedTopic,
        names,
        st.binary(min_size=16, max_size=16).filter(any),
        st.lists(st.builds(WantedPartition, int32s, int32s, int64s, int32s, int32s), max_size=4),
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(wanted=wanted_topics, numbers=st.tuples(int32s, int32s, int32s), is_committed=st.booleans(), rack=names)
def test_kio_reads_what_is_asked(
    version: int, wanted: list[WantedTopic], numbers: tuple[int, int, int], is_committed: bool, rack: str
) -> None:
    """Otherwise the broker reads another request than was meant."""
    wait_ms, min_bytes, max_bytes = numbers
    body = encode_fetch_request(
        version,
        wanted,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        is_read_committed=is_committed,
        rack_id=rack,
    )
    request: Any
    request, read = entity_reader(load_request_schema(FETCH, version))(body, 0)
    assert read == len(body)
    assert getattr(request, "replica_id", -1) == -1
    if version >= 15:
        assert request.replica_state.replica_id == -1
    assert round(request.max_wait.total_seconds() * 1000) == wait_ms
    assert (request.min_bytes, request.max_bytes, request.isolation_level) == (min_bytes, max_bytes, is_committed)
    if version >= 7:
        assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, -1, ())
    if version >= 11:
        assert request.rack_id == rack
    assert [topic.topic if version < 13 else topic.topic_id for topic in request.topics] == [
        topic.name if version < 13 else uuid.UUID(bytes=topic.topic_id) for topic in wanted
    ]
    asked = [partition for topic in request.topics for partition in topic.partitions]
    for ours, theirs in zip([one for topic in wanted for one in topic.partitions], asked, strict=True):
        told = [theirs.partition, ours.current_leader_epoch, theirs.fetch_offset, ours.last_fetched_epoch]
        if version >= 9:
            told[1] = theirs.current_leader_epoch
        if version >= 12:
            told[3] = theirs.last_fetched_epoch
        assert WantedPartition(*told, theirs.partition_max_bytes) == ours
        if version >= 5:
            assert theirs.log_start_offset == -1


def test_a_newer_brokers_tagged_field_is_passed_over() -> None:
    """Otherwise an upgrade of the brokers ends all clients of the front."""
    one = FetchableTopic("orders", b"1" * 16, [])
    body = body_of(17, topics=[one], node_endpoints=[NodeEndpoint(3, "host", 9092, "r")])
    position = len(body_of(17, topics=[one])) - 1
    assert body[position : position + 2] == b"\x01\x00", "one tagged field, number 0"
    newer = body[:position] + b"\x02" + body[position + 1 :] + b"\x09\x03abc"
    answer = parse_fetch_response(17, memoryview(newer))
    assert answer.node_endpoints == [NodeEndpoint(3, "host", 9092, "r")]
