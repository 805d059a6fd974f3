"""The keys of the topic-backed metadata manager."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs
from tierlog.remote.metadata.topic_backed.topic_based_config import read_topic_based_config

LOG_DIR = {"log.dir": "/var/lib/kafka"}
BASE = "remote.log.metadata."


def test_kafkas_defaults() -> None:
    """If this fails, a broker that is moved here makes another topic, or waits otherwise, than it did."""
    config = read_topic_based_config(LOG_DIR)
    assert config.topic_num_partitions == 50
    assert config.topic_replication_factor == 3
    assert config.topic_retention_ms == -1
    assert config.topic_min_isr == 2
    assert config.consume_wait_ms == 120_000
    assert config.initialization_retry_max_timeout_ms == 120_000
    assert config.initialization_retry_interval_ms == 100
    assert not config.kafka_semantics
    assert config.topic_local_dir is None


def test_keys_as_a_brokers_file_has_them() -> None:
    """Kafka cuts the prefix; another embedder of the manager may not."""
    given = {
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "remote.log.metadata.consume.wait.ms": 1000,
        "remote.log.metadata.kafka.semantics": True,
        "remote.log.metadata.manager.class.name": "org.example.Manager",
        "broker.id": 7,
        "cluster.id": "abc",
        "num.network.threads": 3,
        "remote.log.metadata.topic.min.isr": None,
    }
    config = read_topic_based_config(LOG_DIR | given)
    assert (config.broker_id, config.cluster_id, config.log_dir) == (7, "abc", "/var/lib/kafka")
    assert (config.topic_num_partitions, config.consume_wait_ms, config.topic_min_isr) == (5, 1000, 2)
    assert config.kafka_semantics


def test_keys_of_the_three_clients() -> None:
    """What is set for one of them wins over what is set for all."""
    given = {
        f"{BASE}common.client.bootstrap.servers": "a:9092",
        f"{BASE}common.client.reconnect.backoff.ms": "100",
        f"{BASE}producer.reconnect.backoff.ms": "200",
        f"{BASE}consumer.fetch.max.bytes": "10",
    }
    config = read_topic_based_config(LOG_DIR | given)
    pytest.importorskip("confluent_kafka")
    logs = KafkaMetadataLogs(config)
    clients = (logs._producer.values, logs._consumer.values, logs._admin.values)
    assert [values["bootstrap.servers"] for values in clients] == ["a:9092"] * 3
    assert [values["reconnect.backoff.ms"] for values in clients] == ["200", "100", "100"]
    assert [values.get("fetch.max.bytes") for values in clients] == [None, "10", None]
    assert "a:9092" not in repr(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({f"{BASE}topic.num.partitions": 0}, "at least 1"),
        ({f"{BASE}topic.replication.factor": "0"}, "at least 1"),
        ({f"{BASE}topic.min.isr": 0}, "at least 1"),
        ({f"{BASE}topic.retention.ms": 0}, "-1, or a time above 0"),
        ({f"{BASE}topic.retention.ms": -2}, "at least -1"),
        ({f"{BASE}consume.wait.ms": -1}, "at least 0"),
        ({f"{BASE}consume.wait.ms": "soon"}, "Not a number"),
        ({f"{BASE}initialization.retry.interval.ms": -1}, "at least 0"),
        ({f"{BASE}topic.num.partition": 5}, f"{BASE}topic.num.partitions"),
        ({f"{BASE}kafka.semantics": "perhaps"}, "true or false"),
        ({"rlmm.config.broker.id": 1, "broker.id": 2}, "given twice"),
    ],
)
def test_what_is_refused(given: dict[str, object], said: str) -> None:
    """A key that is passed over in silence is found when the topic is wrong."""
    with pytest.raises(ConfigError, match=said):
        read_topic_based_config(LOG_DIR | given)


def test_log_dir_is_needed() -> None:
    """Without it every start reads the whole topic."""
    with pytest.raises(ConfigError, match=r"log\.dir"):
        read_topic_based_config({})
