"""What is regular goes to kio's decoder, which ends the process for what is not."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from tests.support.api_calls import make_request
from tests.support.kafka_entities import kio_bytes, requests, served_versions
from tierlog._native.skimming import ARRAY, BYTES, Skimmer
from tierlog.broker.protocol.decoding import MAXIMUM_ELEMENTS, Cursor, MalformedRequestError, decoder_of
from tierlog.broker.protocol.fields import EntityClass, wire_fields
from tierlog.broker.protocol.requests import count_regular_elements


def is_regular(entity: EntityClass, data: memoryview, position: int) -> bool:
    return count_regular_elements(entity, data, position) is not None


def by_kio(entity: EntityClass, data: bytes) -> Any:
    try:
        return entity_reader(entity)(data, 0)[0]
    except Exception:  # noqa: BLE001 - what it raises is many things
        return None


def by_us(entity: EntityClass, data: bytes) -> Any:
    try:
        return decoder_of(entity).read(Cursor(memoryview(data)))
    except (MalformedRequestError, struct.error, UnicodeDecodeError, OverflowError):
        return None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_both_decoders_read_the_same_of_what_is_regular(data: st.DataObject) -> None:
    """A request would mean one thing to the fast decoder and another to the slow one."""
    version = data.draw(st.sampled_from(served_versions()))
    encoded = bytearray(kio_bytes(data.draw(requests(*version))))
    for _ in range(data.draw(st.integers(0, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    del encoded[data.draw(st.integers(0, len(encoded))) :]
    entity: EntityClass = load_request_schema(*version)
    if is_regular(entity, memoryview(bytes(encoded)), 0):
        fast = by_kio(entity, bytes(encoded))
        assert fast is None or fast == by_us(entity, bytes(encoded))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_clients_send_is_regular(data: st.DataObject) -> None:
    """Every request would pay for the slow decoder."""
    request = data.draw(requests(*data.draw(st.sampled_from(served_versions()))))
    kind: EntityClass = type(request)
    is_tagged = any(field.tag is not None for field in wire_fields(kind))
    encoded = kio_bytes(request)
    if not is_tagged:
        assert is_regular(type(request), memoryview(encoded), 0) or _has_nested_tags(request)
        assert not is_regular(type(request), memoryview(encoded[:-1]), 0) or not encoded


def _has_nested_tags(request: Any) -> bool:
    def tagged(entity: EntityClass) -> bool:
        return any(f.tag is not None or (f.entity is not None and tagged(f.entity)) for f in wire_fields(entity))

    return tagged(type(request))


@pytest.mark.parametrize(
    "size", [0, 1, 126, 127, 128, 16382, 16383, 16384, 40_000, MAXIMUM_ELEMENTS, MAXIMUM_ELEMENTS + 1]
)
def test_lengths_of_all_sizes(size: int) -> None:
    """Longer names, or longer lists, would be slow; or a length of two bytes would be read as one."""
    request = make_request(3, 12, topics=[{"name": "n" * min(size, 32767), "topic_id": None}], **FLAGS)
    assert is_regular(type(request), memoryview(kio_bytes(request)), 0)
    assert count_regular_elements(type(request), memoryview(metadata_bytes(size)), 0) == size


def metadata_bytes(count: int) -> bytes:
    """A Metadata request of as many topics without a name, as kio writes it: kio takes seconds for the largest."""
    topic = bytes(16) + b"\1\0"
    return varint(count + 1) + topic * count + b"\1\0\0"


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def test_the_bytes_of_many_topics_are_those_of_kio() -> None:
    """Else the sizes above are those of no request."""
    for count in (0, 1, 126, 127, 1000):
        names = [{"name": "", "topic_id": None}] * count
        assert metadata_bytes(count) == kio_bytes(make_request(3, 12, topics=names, **FLAGS))


@pytest.mark.parametrize(("topics", "partitions"), [(2, MAXIMUM_ELEMENTS // 2), (MAXIMUM_ELEMENTS // 2 + 1, 1)])
def test_elements_of_all_arrays_count(topics: int, partitions: int) -> None:
    """A client would make the server hold as many objects as it likes."""

    def counted(per_topic: int) -> int | None:
        topic = b"\0\1t" + struct.pack(">i", per_topic) + bytes(12 * per_topic)
        body = struct.pack(">ii", -1, topics) + topic * topics
        return count_regular_elements(load_request_schema(2, 1), memoryview(body), 0)

    assert counted(partitions) == MAXIMUM_ELEMENTS + 1
    assert counted(partitions // 2) == topics + topics * (partitions // 2)


FLAGS = {"include_topic_authorized_operations": False}


@pytest.mark.parametrize(
    ("api_key", "version", "data"),
    [
        (3, 1, struct.pack(">i", 2**31 - 1)),
        (3, 1, struct.pack(">i", 5) + bytes(4)),
        (3, 12, b"\xff\xff\xff\xff\x0f\0\0\0"),
        (3, 12, b"\xff\xff\x7f\0\0\0"),
        (3, 12, b"\1\1\1\1\5\0"),
        (1, 13, struct.pack(">iiiibii", -1, 500, 1, 1, 0, 0, -1) + b"\0\1\1\0"),
        (22, 0, b"\x80\0"),
    ],
)
def test_what_is_not_regular(api_key: int, version: int, data: bytes) -> None:
    """The decoder of kio would end the process, refuse what Kafka takes, or give None to loop over."""
    assert not is_regular(load_request_schema(api_key, version), memoryview(data), 0)


@pytest.mark.parametrize("steps", [[(BYTES, -1, False)], [(BYTES, 2**32, False)], [(-1, 0, False)]])
def test_a_step_that_does_not_fit_is_an_error(steps: list[tuple[int, int, bool]]) -> None:
    """A number that is cut off would be a program for other bytes."""
    with pytest.raises(OverflowError):
        Skimmer(steps)


def test_a_position_is_within_the_bytes() -> None:
    """Memory of others would be read."""
    skimmer = Skimmer([(BYTES, 1, False)])
    assert skimmer.count_elements(b"ab", 1, elements_max=0) == 0
    assert skimmer.count_elements(b"ab", 2, elements_max=0) is None
    assert skimmer.count_elements(b"ab", 3, elements_max=0) is None
    with pytest.raises(OverflowError):
        skimmer.count_elements(b"ab", -1, elements_max=0)


def test_more_elements_than_a_limit_are_told_from_bytes_that_are_none() -> None:
    """A request that is too long would be decoded all the same."""
    skimmer = Skimmer([(ARRAY, 1, False), (BYTES, 1, False)])
    assert skimmer.count_elements(b"\0\0\0\2ab", 0, elements_max=2) == 2
    assert skimmer.count_elements(b"\0\0\0\2ab", 0, elements_max=1) == 2
    assert skimmer.count_elements(b"\0\0\0\3ab", 0, elements_max=1) is None
