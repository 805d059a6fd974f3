"""What writes is refused, at all versions, once and for all."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from tests.support.api_calls import call, make_request
from tests.support.kafka_entities import requests
from tierlog.broker.apis.refusals import CONSUMER_PROTOCOL_TEXT, TEXT, refusals
from tierlog.broker.protocol.api_errors import ApiError

HANDLERS = {handler.api_key: handler for handler in refusals()}
EVERY_VERSION = [(key, version) for key, handler in HANDLERS.items() for version in handler.versions]
#: What is not there is listed: reassignments, quotas, transactions, configurations that somebody has set.
LISTS = (46, 48, 66, 74)
TIMEOUT = datetime.timedelta(seconds=1)


def values(entity: Any, ending: str) -> Iterator[Any]:
    """The values of all fields of that ending, however deep."""
    if isinstance(entity, tuple):
        for one in entity:
            yield from values(one, ending)
    elif dataclasses.is_dataclass(entity):
        for field in dataclasses.fields(entity):
            if field.name.endswith(ending):
                yield getattr(entity, field.name)
            yield from values(getattr(entity, field.name), ending)


def test_every_version_that_there_is_is_refused() -> None:
    """A newer producer would wait for a leader, for minutes, instead of being told."""
    for key, handler in HANDLERS.items():
        assert list(handler.versions) == sorted(schema_name_map[api_key_map[key]]), api_key_map[key]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_refusal_is_one_that_clients_try_again(data: st.DataObject) -> None:
    """A client would write again and again, forever, or take the silence for success."""
    key, version = data.draw(st.sampled_from(EVERY_VERSION))
    request = data.draw(requests(key, version))
    if key == 0 and request.acks == 0:
        return
    answer = call(HANDLERS[key], version, request)
    errors = {error for error in values(answer, "error_code") if isinstance(error, ErrorCode)} - {ErrorCode.none}
    assert not any(error.retriable for error in errors)
    has_items = any(
        getattr(request, f.name) for f in dataclasses.fields(request) if isinstance(getattr(request, f.name), tuple)
    )
    if key in (22, 25, 26, 29, 57) or (has_items and key not in (*LISTS, 0, 21, 24, 28, 43, 45)):
        assert errors, "nothing is refused"
    assert set(values(answer, "error_message")) <= {None, TEXT, CONSUMER_PROTOCOL_TEXT}


@pytest.mark.parametrize("version", HANDLERS[0].versions)
def test_produce(version: int) -> None:
    """A producer would believe that its records are stored."""
    topic_id = uuid.UUID(int=5)
    topics = [{"name": "t", "topic_id": topic_id, "partition_data": [{"index": n, "records": b"x"} for n in (3, 4)]}]
    answer = call(HANDLERS[0], version, make_request(0, version, acks=1, timeout=TIMEOUT, topic_data=topics))
    (topic,) = answer.responses
    assert getattr(topic, "name", "t") == "t"
    assert getattr(topic, "topic_id", topic_id) == topic_id
    refused = ErrorCode.topic_authorization_failed
    assert [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses] == [
        (3, refused, -1),
        (4, refused, -1),
    ]
    if version >= 8:
        assert {p.error_message for p in topic.partition_responses} == {TEXT}


@pytest.mark.parametrize("version", [3, 13])
def test_a_producer_that_wants_no_answer_loses_its_connection(version: int) -> None:
    """It would send records into nothing, for as long as it runs: Kafka closes the connection too."""
    topics = [{"name": "t", "topic_id": None, "partition_data": [{"index": 0, "records": b"x"}]}]
    with pytest.raises(ApiError, match=TEXT):
        call(HANDLERS[0], version, make_request(0, version, acks=0, timeout=TIMEOUT, topic_data=topics))
    assert call(HANDLERS[0], version, make_request(0, version, acks=0, timeout=TIMEOUT, topic_data=[])) is None


def test_the_policy_is_told_with_its_reason() -> None:
    """``kafka-topics --create`` would fail without saying why."""
    answer = call(HANDLERS[19], 7, make_request(19, 7, topics=[new_topic("a"), new_topic("b")]))
    assert [(t.name, t.error_code, t.error_message) for t in answer.topics] == [
        ("a", ErrorCode.policy_violation, TEXT),
        ("b", ErrorCode.policy_violation, TEXT),
    ]
    resources = [{"resource_type": 2, "resource_name": "t", "configs": []}]
    answer = call(HANDLERS[44], 1, make_request(44, 1, resources=resources, validate_only=False))
    assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in answer.responses] == [
        (2, "t", ErrorCode.policy_violation, TEXT)
    ]


@pytest.mark.parametrize("version", HANDLERS[20].versions)
def test_deleting_topics_by_name_and_by_id(version: int) -> None:
    """A tool would report that a topic was deleted."""
    topic_id = uuid.UUID(int=5)
    topics = [{"name": "a", "topic_id": None}, {"name": None, "topic_id": topic_id}]
    request = make_request(20, version, topics=topics, topic_names=["a"], timeout=TIMEOUT)
    answer = call(HANDLERS[20], version, request)
    assert [t.name for t in answer.responses] == (["a", None] if version >= 6 else ["a"])
    assert {t.error_code for t in answer.responses} == {ErrorCode.policy_violation}
    if version >= 6:
        assert [t.topic_id for t in answer.responses] == [None, topic_id]


@pytest.mark.parametrize("version", HANDLERS[24].versions)
def test_partitions_of_transactions(version: int) -> None:
    """A transactional producer would go on as if its transaction had begun."""
    topics = [{"name": "t", "partitions": [1, 2]}]
    ids = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 2}
    old = {f"v3_and_below_{key}": value for key, value in (ids | {"topics": topics}).items()}
    request = make_request(24, version, **old, transactions=[ids | {"topics": topics}])
    answer = call(HANDLERS[24], version, request)
    if version >= 4:
        (transaction,) = answer.results_by_transaction
        assert transaction.transactional_id == "x"
        results = transaction.topic_results
    else:
        results = answer.results_by_topic_v3_and_below
    refused = ErrorCode.transactional_id_authorization_failed
    assert [
        (t.name, [(p.partition_index, p.partition_error_code) for p in t.results_by_partition]) for t in results
    ] == [("t", [(1, refused), (2, refused)])]


@pytest.mark.parametrize(("key", "version"), [each for each in EVERY_VERSION if each[0] in LISTS])
def test_what_is_not_there_is_listed_as_nothing(key: int, version: int) -> None:
    """Consoles ask for transactions, quotas and configurations at once, and show nothing at all if one fails."""
    filters = {"state_filters": ["Ongoing", "Sleeping"], "producer_id_filters": [], "transactional_id_pattern": "["}
    request = make_request(key, version, **filters, topics=None, components=[], strict=False, resource_types=[2])
    answer = call(HANDLERS[key], version, request)
    assert answer.error_code is ErrorCode.none
    lists = ("topics", "entries", "transaction_states", "config_resources")
    assert [getattr(answer, name) for name in lists if hasattr(answer, name)] == [()]
    assert getattr(answer, "unknown_state_filters", ("Sleeping",)) == ("Sleeping",)


@pytest.mark.parametrize("version", HANDLERS[68].versions)
def test_the_consumer_protocol_is_refused_for_good(version: int) -> None:
    """A consumer of librdkafka would wait for ever, without a word, for a server that lacks the API."""
    beats = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": ["t"],
        "topic_partitions": None,
    }
    answer = call(HANDLERS[68], version, make_request(68, version, **beats))
    assert (answer.error_code, answer.error_message) == (ErrorCode.unsupported_version, CONSUMER_PROTOCOL_TEXT)
    assert (answer.member_id, answer.assignment) == (None, None)


def new_topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
