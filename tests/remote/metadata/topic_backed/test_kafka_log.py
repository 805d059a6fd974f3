"""The log in a running Kafka, without one: what its configuration says. The rest is in tests/interop."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_source import read_cluster_topic
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs, TopicWishes
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig, read_topic_based_config

pytest.importorskip("confluent_kafka")
PREFIX = "remote.log.metadata."
NOBODY = "127.0.0.1:1"


def config(**given: object) -> TopicBasedConfig:
    keys = {f"{PREFIX}{name.replace('_', '.')}": value for name, value in given.items()}
    return read_topic_based_config({"log.dir": "/x", "broker.id": 4} | keys)


def test_a_cluster_that_is_not_there_may_come() -> None:
    """Brokers and their cluster start together."""
    logs = KafkaMetadataLogs(config(common_client_bootstrap_servers=NOBODY))
    with pytest.raises(RetriableRemoteStorageException, match=r"no answer in time \(.*refused"):
        logs.open(timeout_seconds=0.3)
    with pytest.raises(RetriableRemoteStorageException, match=r"no answer in time \(.*refused"):
        read_cluster_topic(NOBODY, lambda run, where: None, timeout_seconds=0.3)


def test_wrong_keys_are_told_before_anything_is_asked() -> None:
    """A manager would try for two minutes what can never work."""
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers of the Kafka admin is missing$"):
        KafkaMetadataLogs(config())
    with pytest.raises(ConfigError, match=r"^unknown key acknowledge of a Kafka client"):
        KafkaMetadataLogs(config(common_client_bootstrap_servers=NOBODY, producer_acknowledge="all"))
    with pytest.raises(ConfigError, match=r"^linger\.ms is no key of a Kafka consumer$"):
        KafkaMetadataLogs(config(common_client_bootstrap_servers=NOBODY, consumer_linger_ms=5))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 2),
        ({"topic_replication_factor": 1}, 1),
        ({"topic_replication_factor": 1, "topic_min_isr": 2}, 1),
        ({"topic_replication_factor": 3, "topic_min_isr": 3}, 3),
    ],
)
def test_replicas_in_sync_are_never_more_than_there_are(given: dict[str, object], expected: int) -> None:
    """Kafka takes the smaller of the two; a manager with Kafka's own keys must start on one broker as Kafka's does."""
    assert TopicWishes.of(config(**given)).min_insync_replicas == expected
