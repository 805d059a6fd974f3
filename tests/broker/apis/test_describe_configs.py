"""DescribeConfigs as clients see it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.describe_configs import DescribeConfigsHandler

TOPIC, BROKER, LOGGERS, METRICS, GROUP = 2, 4, 8, 16, 32
ALL_VERSIONS = DescribeConfigsHandler.versions


#: What the replica makes true of every topic, with Kafka's types of the keys.
TOPIC_CONFIGS = {
    "cleanup.policy": ("delete", 7),
    "compression.type": ("producer", 2),
    "min.insync.replicas": ("1", 3),
    "remote.storage.enable": ("true", 1),
    "retention.bytes": ("-1", 5),
    "retention.ms": ("-1", 5),
}


def ask(version: int, *resources: tuple[int, str], keys: list[str] | None = None, asks_more: bool = False) -> Any:
    topics = MemoryCatalog()
    topics.add("orders")
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources]
    request = make_request(32, version, resources=asked, include_synonyms=asks_more, include_documentation=asks_more)
    answer = call(DescribeConfigsHandler(topics, ServerIdentity("cluster", 5, "rack-a")), version, request)
    assert [(one.resource_type, one.resource_name) for one in answer.results] == list(dict.fromkeys(resources))
    return answer.results


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_topics(version: int) -> None:
    """MirrorMaker copies what is not a default to other clusters: a guess would become their configuration."""
    (result,) = ask(version, (TOPIC, "orders"))
    assert {c.name: c.value for c in result.configs} == {name: value for name, (value, _) in TOPIC_CONFIGS.items()}
    assert all(c.read_only and not c.is_sensitive and c.config_source == 5 for c in result.configs)
    if version >= 3:
        assert {c.name: c.config_type for c in result.configs} == {
            name: kind for name, (_, kind) in TOPIC_CONFIGS.items()
        }
        assert {c.documentation for c in result.configs} == {None}
    (result,) = ask(version, (TOPIC, "orders"), keys=["cleanup.policy", "segment.bytes"], asks_more=True)
    assert [c.name for c in result.configs] == ["cleanup.policy"]
    if version >= 3:
        assert [c.documentation for c in result.configs] == ["Kafka copies no compacted topic to a tier."]
    assert [(s.name, s.value, s.source) for c in result.configs for s in c.synonyms] == [
        ("cleanup.policy", "delete", 5)
    ]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_the_broker(version: int) -> None:
    """Tools ask the broker for its limits before they begin."""
    (result,) = ask(version, (BROKER, "5"))
    configs = {c.name: c.value for c in result.configs}
    assert configs["node.id"] == configs["broker.id"] == "5"
    assert (configs["broker.rack"], configs["auto.create.topics.enable"]) == ("rack-a", "false")
    empty = ask(version, (BROKER, ""), (LOGGERS, "5"), (METRICS, "m"), (GROUP, "g"))
    assert [(one.error_code, one.configs) for one in empty] == [(ErrorCode.none, ())] * 4


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_what_is_not_there(version: int) -> None:
    """A misspelled topic would look like one without configuration."""
    told = ask(version, (TOPIC, "gone"), (TOPIC, "a b"), (BROKER, "6"), (BROKER, "x"), (LOGGERS, ""), (99, "x"))
    assert [one.error_code for one in told] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
        *([ErrorCode.invalid_request] * 4),
    ]
    assert all(one.configs == () for one in told)
    assert told[2].error_message == "the one broker here is 5, not '6'"


def test_a_resource_is_answered_once() -> None:
    """A name of a few bytes, again and again, would fill the memory with what is said of it."""
    first, second = ask(4, (TOPIC, "orders"), (BROKER, "5"), (TOPIC, "orders"), (TOPIC, "orders"))
    assert (len(first.configs), second.resource_type) == (len(TOPIC_CONFIGS), BROKER)
