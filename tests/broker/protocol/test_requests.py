"""Requests of any client, hostile ones too, to values."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from tests.support.api_calls import make_request
from tests.support.kafka_entities import kio_bytes, requests, served_versions
from tierlog.broker.protocol import decoding
from tierlog.broker.protocol import requests as requests_module
from tierlog.broker.protocol.decoding import MAXIMUM_TAGGED_FIELDS, MalformedRequestError
from tierlog.broker.protocol.requests import (
    RequestBody,
    api_name,
    read_body,
    read_header,
)

CORPUS = pathlib.Path(__file__).parents[2] / "fuzz_corpus" / "requests"
METADATA, API_VERSIONS, LIST_OFFSETS, FETCH, DESCRIBE_TOPIC_PARTITIONS, DELETE_GROUPS = 3, 18, 2, 1, 75, 42


def frame_of(
    api_key: int, api_version: int, body: bytes, *, client_id: bytes | None = b"me", tags: bytes = b""
) -> bytes:
    """A request behind its length."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", api_key, api_version, 7, length) + (client_id or b"") + tags + body


def read(frame: bytes) -> Any:
    return read_body(read_header(memoryview(frame)), memoryview(frame))


def framed(request: Any) -> bytes:
    tags = b"\0" if type(request).__flexible__ else b""
    return frame_of(request.__api_key__, request.__version__, kio_bytes(request), tags=tags)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_request_reads_as_it_was_written(data: st.DataObject) -> None:
    """A client's request would mean something else here than on a broker."""
    request = data.draw(requests(*data.draw(st.sampled_from(served_versions()))))
    assert read(framed(request)) == request
    assert entity_reader(type(request))(kio_bytes(request), 0)[0] == request


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_request_reads_the_same_by_the_slow_decoder(data: st.DataObject) -> None:
    """A request with one tagged field that nobody knows would mean something else than without it."""
    request = data.draw(requests(*data.draw(st.sampled_from(served_versions()))))
    frame = memoryview(framed(request))
    assert RequestBody(read_header(frame), frame).read_slowly() == request
    half = frame[: data.draw(st.integers(12, len(frame)))]
    with contextlib.suppress(MalformedRequestError):
        RequestBody(read_header(half), half).read_slowly()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_broken_requests_are_malformed_and_nothing_else(data: st.DataObject) -> None:
    """One client's bytes would end the connection's task, or the process, with an error that nobody expects."""
    request = data.draw(requests(*data.draw(st.sampled_from(served_versions()))))
    frame = bytearray(framed(request))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    with contextlib.suppress(MalformedRequestError):
        entity = read(bytes(frame))
        assert type(entity).__api_key__ == struct.unpack_from(">h", frame)[0]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(served_versions()), st.binary(max_size=60))
def test_any_bytes_are_malformed_or_a_request(version: tuple[int, int], body: bytes) -> None:
    """As above, for bytes that never were a request."""
    with contextlib.suppress(MalformedRequestError):
        entity = read(frame_of(*version, body, tags=b"\0"))
        assert (type(entity).__api_key__, type(entity).__version__) == version


def test_what_the_fuzzer_found() -> None:
    """What was mended once would end a server again."""
    found = sorted(CORPUS.iterdir())
    assert len(found) > 100
    for path in found:
        with contextlib.suppress(MalformedRequestError):
            read(path.read_bytes())


@pytest.mark.parametrize(
    ("api_version", "body"),
    [
        (1, struct.pack(">i", 2**31 - 1) + bytes(1000)),
        (12, b"\xff\xff\xff\xff\x0f" + bytes(1000)),
        (12, b"\xff\xff\xff\xff\x07" + bytes(1000)),
        (1, struct.pack(">i", -2)),
    ],
)
def test_a_count_beyond_the_bytes_is_refused_before_memory_is_asked_for(api_version: int, body: bytes) -> None:
    """Twenty bytes of one client would take all memory: kio's own decoder ends the process."""
    with pytest.raises(MalformedRequestError, match=r"^Metadata 1.*: an array of -?[0-9]+ elements at"):
        read(frame_of(METADATA, api_version, body, tags=b"\0" if api_version == 12 else b""))


@pytest.mark.parametrize("limit", [2000, 40_000])
def test_elements_of_all_arrays_together_are_bounded(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of some megabytes would become gigabytes of objects."""
    monkeypatch.setattr(decoding, "MAXIMUM_ELEMENTS", limit)
    monkeypatch.setattr(requests_module, "MAXIMUM_ELEMENTS", limit)
    topics = struct.pack(">i", limit) + bytes(2 * limit)
    assert len(read(frame_of(METADATA, 1, topics)).topics) == limit
    with pytest.raises(MalformedRequestError, match=f"more than {limit} elements"):
        read(frame_of(METADATA, 1, struct.pack(">i", limit + 1) + bytes(2 * limit + 2)))
    many = limit // 9
    topic = b"\0\1t" + struct.pack(">i", 9) + bytes(9 * 16)
    with pytest.raises(MalformedRequestError, match=f"more than {limit} elements"):
        read(frame_of(LIST_OFFSETS, 4, struct.pack(">ibi", -1, 0, many) + topic * many))


def test_elements_beside_a_tagged_field_are_bounded() -> None:
    """As above, where our own decoder reads: the skimmer passes no tagged field."""
    names = b"\1" * 250_001
    count = bytes([250_002 & 0x7F | 0x80, 250_002 >> 7 & 0x7F | 0x80, 250_002 >> 14])
    body = count + names + b"\1\x63\0"
    frame = memoryview(frame_of(DELETE_GROUPS, 2, body, tags=b"\0"))
    with pytest.raises(MalformedRequestError, match="more than 250000 elements"):
        RequestBody(read_header(frame), frame).read()


def test_a_request_with_too_many_elements_is_refused_before_it_is_decoded() -> None:
    """Half a second of the processor for nothing, as often as a client likes."""
    frame = memoryview(frame_of(METADATA, 1, struct.pack(">i", 250_001) + bytes(2 * 250_001)))
    with pytest.raises(MalformedRequestError, match=r"^Metadata 1: more than 250000 elements in all arrays"):
        RequestBody(read_header(frame), frame)


def test_tagged_fields_are_bounded() -> None:
    """A request of many empty tagged fields would hold the loop for seconds."""
    many = MAXIMUM_TAGGED_FIELDS + 1
    tags = bytes([many & 0x7F | 0x80, many >> 7]) + b"\x63\0" * many
    with pytest.raises(MalformedRequestError, match=r"more than 10000 tagged fields"):
        read(frame_of(METADATA, 12, b"\0\0\0" + tags, tags=b"\0"))
    with pytest.raises(MalformedRequestError, match=r"^header of Metadata 12: more than 10000 tagged fields"):
        read(frame_of(METADATA, 12, b"\0\0\0\0", tags=tags))


def test_tagged_fields_of_newer_clients_are_passed_over() -> None:
    """A client that knows more than this server could not talk to it."""
    request = read(frame_of(METADATA, 12, b"\0\1\0" + b"\2\x05\x02ab\x90\x4e\0", tags=b"\1\x07\3abc"))
    assert (request.topics, request.allow_auto_topic_creation) == (None, True)


def test_a_known_tagged_field_has_the_size_that_it_says() -> None:
    """Two readings of one request: what follows the field would be read from another place."""
    body = struct.pack(">iiibii", 500, 1, 1, 0, 0, -1) + b"\1\1\1"
    assert read(frame_of(FETCH, 18, body + b"\1\0\2\2a", tags=b"\0")).cluster_id == "a"
    with pytest.raises(MalformedRequestError, match=r"tagged field 0 at .* has 3 bytes, not 2"):
        read(frame_of(FETCH, 18, body + b"\1\0\3\2aZ", tags=b"\0"))


def test_null_where_nothing_may_be_null_is_refused() -> None:
    """A handler would loop over None."""
    body = struct.pack(">iiibii", 500, 1, 1, 0, 0, -1)
    with pytest.raises(MalformedRequestError, match=r"^Fetch 18: topics at [0-9]+ is null"):
        read(frame_of(FETCH, 18, body + b"\0\1\1\0", tags=b"\0"))
    with pytest.raises(MalformedRequestError, match=r"^Metadata 1: name at 16 has a length of -1"):
        read(frame_of(METADATA, 1, struct.pack(">ih", 1, -1)))
    assert read(frame_of(METADATA, 1, struct.pack(">i", -1))).topics is None
    assert read(frame_of(DESCRIBE_TOPIC_PARTITIONS, 0, b"\1\0\0\0\5\xff\0", tags=b"\0")).cursor is None


def test_text_that_is_not_utf8_is_refused() -> None:
    """A topic's name would be something else in each answer."""
    with pytest.raises(MalformedRequestError, match=r"^Metadata 1: 'utf-8' codec"):
        read(frame_of(METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"))
    with pytest.raises(MalformedRequestError, match=r"^header of Metadata 1: the client id"):
        read_header(memoryview(frame_of(METADATA, 1, b"", client_id=b"\xff")))


def test_frames_in_buffers_that_can_be_written_to() -> None:
    """A server that reads into one buffer again and again would pay the slow decoder for every request."""
    frame = bytearray(frame_of(METADATA, 12, b"\0\1\0\0", tags=b"\0"))
    header = read_header(memoryview(frame))
    request = read_body(header, memoryview(frame))
    frame[:] = b"\xff" * len(frame)
    assert request.topics is None
    frame.clear()  # nothing holds it


def test_a_header_is_readable_whatever_its_api_and_version() -> None:
    """A client that asks for ApiVersions of a version to come would get no list of versions, and give up."""
    header = read_header(memoryview(frame_of(API_VERSIONS, 99, b"rest", tags=b"\1\5\2ab")))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 99, 7, "me")
    assert frame_of(API_VERSIONS, 99, b"rest", tags=b"\1\5\2ab")[header.body_position :] == b"rest"
    with pytest.raises(MalformedRequestError, match=r"^ApiVersions 99: no such API and version"):
        read(frame_of(API_VERSIONS, 99, b"", tags=b"\0"))
    assert read_header(memoryview(frame_of(1234, -3, b""))).api_version == -3
    with pytest.raises(MalformedRequestError, match=r"^API 1234 0: no such API and version"):
        read(frame_of(1234, 0, b""))


def test_a_client_without_a_name() -> None:
    """Clients may be nameless, in flexible versions too: the name is never a compact string."""
    header = read_header(memoryview(frame_of(METADATA, 12, b"", client_id=None, tags=b"\0")))
    assert (header.client_id, header.body_position) == ("", 11)


@pytest.mark.parametrize("length", range(10))
def test_half_a_header_is_malformed(length: int) -> None:
    """The length came, the rest did not."""
    with pytest.raises(MalformedRequestError, match=r"has no whole header"):
        read_header(memoryview(frame_of(METADATA, 1, b"")[:length]))


@pytest.mark.parametrize("length", [-2, 3, 0x7FFF])
def test_a_client_id_of_an_impossible_length(length: int) -> None:
    """The body would be read from within the header, or from outside the request."""
    with pytest.raises(MalformedRequestError, match=r"^header of Metadata 1: "):
        read_header(memoryview(struct.pack(">hhih", METADATA, 1, 7, length) + b"me"))


def test_names_of_apis() -> None:
    """Logs and metrics would name other APIs than Kafka's documents do."""
    assert [api_name(key) for key in (0, 3, 23, 75, 999)] == [
        "Produce",
        "Metadata",
        "OffsetForLeaderEpoch",
        "DescribeTopicPartitions",
        "API 999",
    ]


def fetched(number: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("fetch_offset", "log_start_offset"), 10**12 + number)
    names = ("partition", "current_leader_epoch", "last_fetched_epoch", "partition_max_bytes")
    return numbers | {name: 1000 * position + number for position, name in enumerate(names, 1)}


FETCH_FIELDS = {"session_id": 0, "session_epoch": -1, "rack_id": "", "forgotten_topics_data": (), "replica_id": -1}
GROUP_FIELDS = {"group_id": "g", "member_id": "m", "generation_id_or_member_epoch": 1, "group_instance_id": None}
COMMITTED = {"committed_offset": 10**12, "committed_leader_epoch": 7777, "committed_metadata": "a"}
#: The longest for its bytes or its elements, of the APIs that name partitions: (API, version, fields) by elements.
LONG_REQUESTS: dict[str, Any] = {
    "fetch": lambda n: (1, 11, FETCH_FIELDS | {"topics": [{"topic": "t", "partitions": list(map(fetched, range(n)))}]}),
    "list-offsets": lambda n: (2, 6, {"topics": [{"name": "", "partitions": ()}] * n, "replica_id": -1}),
    "metadata": lambda n: (3, 8, {"topics": [{"name": ""}] * n}),
    "commit": lambda n: (
        8,
        8,
        GROUP_FIELDS
        | {"topics": [{"name": f"{i}", "partitions": [COMMITTED | {"partition_index": i}]} for i in range(n)]},
    ),
    "offsets of groups": lambda n: (
        9,
        8,
        {"groups": [{"group_id": "", "topics": [{"name": "", "partition_indexes": ()}]}] * n, "require_stable": True},
    ),
    "offsets": lambda n: (
        9,
        5,
        {"group_id": "g", "topics": [{"name": "t", "partition_indexes": range(1000, n + 1000)}]},
    ),
    "delete-groups": lambda n: (42, 2, {"groups_names": [f"{number}" for number in range(n)]}),
}


@pytest.mark.few(15)
@pytest.mark.parametrize("count", [0, 1, 100, 4_000, 20_000])
@pytest.mark.parametrize("name", LONG_REQUESTS)
def test_what_decoding_takes_is_known_before(name: str, count: int) -> None:
    """Requests would take more memory than all of them together may, or wait though there is plenty."""
    api_key, version, fields = LONG_REQUESTS[name](count)
    flags = {"isolation_level": 0, "allow_auto_topic_creation": False}
    flags |= dict.fromkeys(("include_cluster_authorized_operations", "include_topic_authorized_operations"), False)
    times = {"timeout": datetime.timedelta(0), "max_wait": datetime.timedelta(0), "min_bytes": 1, "max_bytes": 1}
    frame = memoryview(framed(make_request(api_key, version, **flags, **times, **fields)))
    header = read_header(frame)
    RequestBody(header, frame).read()  # what is loaded at the first request is loaded
    body = RequestBody(header, frame)
    most_bytes = body.decoded_bytes

    tracemalloc.start()
    try:
        request = body.read()
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del request
    assert taken_bytes < body.decoded_bytes + 4_000
    assert body.decoded_bytes <= most_bytes <= 65 * len(frame)
