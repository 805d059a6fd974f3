"""Values to the bytes that clients read."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from tests.support.kafka_entities import kio_bytes, responses, served_versions
from tierlog.broker.protocol.entities import MadeElements, count_elements, entities_of
from tierlog.broker.protocol.requests import RequestHeader
from tierlog.broker.protocol.responses import encode_body, encode_prefix, encode_response

API_VERSIONS = 18


def header_of(api_key: int, api_version: int) -> RequestHeader:
    return RequestHeader(api_key, api_version, correlation_id=-5, client_id="", body_position=10)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_response_has_the_bytes_that_kio_gives_it(data: st.DataObject) -> None:
    """Clients would read another answer than the handler gave."""
    response = data.draw(responses(*data.draw(st.sampled_from(served_versions()))))
    header = header_of(response.__api_key__, response.__version__)
    encoded = encode_response(header, response)
    body = kio_bytes(response)
    assert encoded == encode_prefix(header, len(body)) + body
    assert entity_reader(type(response))(body, 0)[0] == response


def test_the_header_of_every_version() -> None:
    """A client would take the first byte of an answer for its header's, or the other way round."""
    for api_key, api_version in served_versions():
        prefix = encode_prefix(header_of(api_key, api_version), 100)
        assert struct.unpack_from(">ii", prefix) == (len(prefix) - 4 + 100, -5)
        flexible = load_response_schema(api_key, api_version).__flexible__
        assert prefix[8:] == (b"\0" if flexible and api_key != API_VERSIONS else b""), (api_key, api_version)


def test_api_versions_of_an_unknown_version_is_answered_with_version_0() -> None:
    """A client of a version to come could not read which versions there are."""
    payload = entities_of(18, 0).make("ApiVersionsResponse", error_code=ErrorCode.unsupported_version, api_keys=())
    assert encode_response(header_of(18, 99), payload) == struct.pack(">iihi", 10, -5, 35, 0)


def test_elements_that_are_made_as_they_are_encoded() -> None:
    """The large answers would be others than those made of values; or the loop would encode them."""
    e = entities_of(3, 12)

    def response(partitions: Any) -> Any:
        topic = e.make(
            "MetadataResponseTopic",
            error_code=ErrorCode.none,
            name="t",
            topic_id=None,
            is_internal=False,
            partitions=partitions,
        )
        none = datetime.timedelta(0)
        return e.make("MetadataResponse", throttle_time=none, brokers=(), cluster_id=None, topics=(topic, topic))

    partitions = tuple(
        e.make(
            "MetadataResponsePartition",
            error_code=ErrorCode.none,
            partition_index=number,
            leader_id=0,
            replica_nodes=(0,),
            isr_nodes=(),
            offline_replicas=(),
        )
        for number in range(200)
    )
    header = header_of(3, 12)
    made = MadeElements(partitions, lambda partition: partition)
    assert encode_response(header, response(made)) == encode_response(header, response(partitions))
    assert encode_prefix(header, len(encode_body(response(made)))) + encode_body(response(made)) == encode_response(
        header, response(partitions)
    )
    for each in (partitions, MadeElements(partitions, lambda partition: partition, nested=200)):
        assert count_elements(response(each)) == 2 + 2 * 2 * 200, "replicas count, where they are told"
    assert count_elements(response(None)) == 2


def test_what_does_not_fit_is_an_error_here() -> None:
    """Clients would read a cut number or a string of a wrong length, and everything behind it from a wrong place."""
    e = entities_of(36, 0)
    good = {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b""}
    with pytest.raises(SerialError, match="too long"):
        encode_response(header_of(36, 0), e.make("SaslAuthenticateResponse", **good | {"error_message": "x" * 32768}))
    with pytest.raises(TypeError, match="None"):
        encode_response(header_of(36, 0), e.make("SaslAuthenticateResponse", **good | {"auth_bytes": None}))
    e = entities_of(18, 0)
    version = e.make("ApiVersion", api_key=40000, min_version=0, max_version=0)
    answer = e.make("ApiVersionsResponse", error_code=ErrorCode.none, api_keys=(version,))
    with pytest.raises(struct.error):
        encode_response(header_of(18, 0), answer)
