"""The configuration of the topic-backed metadata manager: Kafka's ``rlmm.config.*`` keys, and ours.

Kafka hands its manager these keys without the prefix; with it they are accepted too. Keys of Kafka's clients
(``remote.log.metadata.common.client.*``, ``.producer.*``, ``.consumer.*``, ``.admin.*``) are stored as they are, for
the log that is a Kafka. Source: Kafka TopicBasedRemoteLogMetadataManagerConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from pydantic import ConfigDict, field_validator
from pydantic.dataclasses import dataclass

from tierlog.arguments import require_text, require_type
from tierlog.config_keys import Int32, key, nearest_name, rows
from tierlog.errors import ConfigError
from tierlog.remote.config.validation import read_value, validated

PREFIX: Final = "rlmm.config."
_UNDER: Final = "remote.log.metadata."
COMMON_CLIENT: Final = f"{_UNDER}common.client."
PRODUCER: Final = f"{_UNDER}producer."
CONSUMER: Final = f"{_UNDER}consumer."
ADMIN: Final = f"{_UNDER}admin."
_CLIENTS: Final = (COMMON_CLIENT, PRODUCER, CONSUMER, ADMIN)
#: The RemoteLogManager's, which a broker's file has beside the manager's own.
_PASSED_OVER: Final = (f"{_UNDER}manager.", f"{_UNDER}custom.metadata.")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TopicBasedConfig:
    """The configuration; immutable. A field is a key with "_" for each ".". Made by ``read_topic_based_config``.

    Attributes:
        client_keys: Keys of Kafka's clients, whole, as text; they may hold secrets.
    """

    broker_id: Int32 = key("This broker.", default=0, minimum=-1)
    cluster_id: str = key("The cluster, for messages.", default="")
    log_dir: str | None = key("Where the snapshot is kept from which the next start begins. Needed.", not_empty=True)
    topic_replication_factor: int = key(
        "Replicas of the topic, where it is made here.", default=3, under=_UNDER, minimum=1, maximum=32767
    )
    topic_num_partitions: Int32 = key(
        "Partitions of the topic; it is an error if it has another number.", default=50, under=_UNDER, minimum=1
    )
    topic_retention_ms: int = key(
        "How long the topic keeps its records, where it is made here; -1 for ever.",
        default=-1,
        under=_UNDER,
        minimum=-1,
    )
    topic_min_isr: Int32 = key(
        "The topic's `min.insync.replicas`, where it is made here; never more than its replicas.",
        default=2,
        under=_UNDER,
        minimum=1,
    )
    topic_local_dir: str | None = key(
        "Directory in which this process keeps the topic by itself, alone, without a Kafka; then no key of a client "
        "is needed. Without it the topic is that of `bootstrap.servers`.",
        under=_UNDER,
        own=True,
        not_empty=True,
    )
    consume_wait_ms: int = key(
        "How long a call waits until this broker has consumed its own event.", default=120_000, under=_UNDER, minimum=0
    )
    initialization_retry_max_timeout_ms: int = key(
        "How long opening the topic is tried; then the manager has failed for good.",
        default=120_000,
        under=_UNDER,
        minimum=0,
    )
    initialization_retry_interval_ms: int = key(
        "The first pause between two tries to open the topic; later ones grow.", default=100, under=_UNDER, minimum=0
    )
    kafka_semantics: bool = key(
        "Answer as Kafka 4.3 does where segments overlap, with the offsets that it loses, and take the states of a "
        "partition's removal in any order.",
        default=False,
        under=_UNDER,
        own=True,
    )
    snapshot_interval_ms: int = key(
        "How often a snapshot is written, if anything has changed; 0 for only at the end.",
        default=600_000,
        under=_UNDER,
        own=True,
        minimum=0,
    )
    close_wait_ms: int = key(
        "How long closing waits for the last snapshot.", default=30_000, under=_UNDER, own=True, minimum=0
    )
    client_keys: dict[str, str] = field(default_factory=dict, repr=False)

    _read = field_validator("*", mode="before")(classmethod(read_value))


#: Field by key.
_KNOWN: Final = {row.name: field for field, row in rows(TopicBasedConfig).items()}


def read_topic_based_config(given: Mapping[str, object]) -> TopicBasedConfig:
    """Check a configuration.

    Args:
        given: Keys, with or without ``rlmm.config.``, and values. A value of None counts as not given. Keys outside of
            ``remote.log.metadata.`` other than the broker's three are passed over, as a broker hands on many.

    Raises:
        ConfigError: an unknown key of the manager's (the nearest known one is named), a malformed value, two values for
            one key, or no ``log.dir``. TypeError: no mapping, or a key that is no str.
    """
    values: dict[str, str] = {}
    for given_key, value in require_type("configs", given, Mapping, "a mapping").items():
        if value is None:
            continue
        name = require_text("each key of configs", given_key).strip().removeprefix(PREFIX)
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if values.setdefault(name, text) != text:
            raise ConfigError(f"{name} is given twice, and the values differ")
    clients = {name: value for name, value in values.items() if name.startswith(_CLIENTS)}
    known = {_KNOWN[name]: value for name, value in values.items() if name in _KNOWN}
    for name in values.keys() - clients.keys() - _KNOWN.keys():
        if name.startswith(_UNDER) and not name.startswith(_PASSED_OVER):
            raise ConfigError(f"unknown key {name}; the nearest known one is {nearest_name(name, _KNOWN)}")
    config = validated(TopicBasedConfig, known | {"client_keys": clients})
    if config.topic_retention_ms == 0:
        raise ConfigError(f"Invalid value 0 for configuration {_UNDER}topic.retention.ms: -1, or a time above 0")
    if config.log_dir is None:
        raise ConfigError('Missing required configuration "log.dir" which has no default value.')
    return config
