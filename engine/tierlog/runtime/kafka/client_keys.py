"""The Java client's configuration keys as librdkafka's.

Operators have Java's keys in their brokers' files; librdkafka has other names for some, no counterpart for some, and
none for a JVM's own. An unknown key is an error that names it, and a key without meaning here is named in the log:
nothing is dropped in silence. Security keys are :mod:`tierlog.runtime.kafka.security_keys`.

Source: Kafka 4.3 AdminClientConfig, ProducerConfig, ConsumerConfig; librdkafka 2.16 CONFIGURATION.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tierlog.config_keys import nearest_name
from tierlog.errors import ConfigError
from tierlog.runtime.kafka.security_keys import SECURITY_KEYS, security_settings

_log = logging.getLogger(__name__)

Role = Literal["admin", "producer", "consumer"]

_ALL: Final = frozenset({"admin", "producer", "consumer"})
_PRODUCER: Final = frozenset({"producer"})
_CONSUMER: Final = frozenset({"consumer"})


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of one client of librdkafka.

    Attributes:
        values: librdkafka's keys and values. They hold secrets: never shown.
        call_seconds: How long a call that has no deadline of its own may take (``default.api.timeout.ms``).
        delivery_seconds: How long a record is tried (``delivery.timeout.ms``).
    """

    values: Mapping[str, str | int | bool] = field(repr=False)
    call_seconds: float
    delivery_seconds: float


@dataclass(frozen=True, slots=True)
class _Key:
    roles: frozenset[str]
    name: str = ""
    translate: Callable[[str], str] | None = None


def _plain(roles: frozenset[str], *names: str) -> dict[str, _Key]:
    return {name: _Key(roles, name) for name in names}


def _servers(text: str) -> str:
    servers = [part.strip() for part in text.split(",") if part.strip()]
    if not servers:
        raise ValueError("no host:port")
    return ",".join(servers)


def _buffer_size(text: str) -> str:
    return "0" if int(text) == -1 else text  # the system's default


def _kilobytes(text: str) -> str:
    return str(max(int(text) // 1024, 1))


KNOWN_KEYS: Final[dict[str, _Key]] = {
    "bootstrap.servers": _Key(_ALL, "bootstrap.servers", _servers),
    "client.id": _Key(_ALL, "client.id"),
    "request.timeout.ms": _Key(_ALL, "socket.timeout.ms"),
    "default.api.timeout.ms": _Key(_ALL),
    "receive.buffer.bytes": _Key(_ALL, "socket.receive.buffer.bytes", _buffer_size),
    "send.buffer.bytes": _Key(_ALL, "socket.send.buffer.bytes", _buffer_size),
    **_plain(
        _ALL,
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
    ),
    **_plain(
        _PRODUCER,
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
    ),
    "retries": _Key(frozenset({"producer", "admin"}), "retries"),
    "buffer.memory": _Key(_PRODUCER, "queue.buffering.max.kbytes", _kilobytes),
    "max.request.size": _Key(_PRODUCER, "message.max.bytes"),
    **_plain(_CONSUMER, "check.crcs", "client.rack", "fetch.min.bytes", "group.id", "isolation.level"),
    "fetch.max.bytes": _Key(_CONSUMER, "fetch.max.bytes"),
    "fetch.max.wait.ms": _Key(_CONSUMER, "fetch.wait.max.ms"),
    "max.partition.fetch.bytes": _Key(_CONSUMER, "max.partition.fetch.bytes"),
}

#: Keys without meaning outside of a JVM, or with one partition and offset named in every call: named in the log.
_MEANINGLESS: Final = frozenset({
    "auto.include.jmx.reporter", "bootstrap.controllers", "interceptor.classes", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "partitioner.class",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.ignore.keys",
    "max.block.ms", "metadata.max.idle.ms", "max.poll.records", "max.poll.interval.ms", "heartbeat.interval.ms",
    "session.timeout.ms", "partition.assignment.strategy", "group.instance.id", "group.protocol",
    "group.remote.assignor", "auto.commit.interval.ms", "socket.connection.setup.timeout.max.ms",
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "allow.auto.create.topics",
    "internal.leave.group.on.close", "config.providers", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
})  # fmt: skip

#: Kafka's own manager sets these whatever is configured, and so do we.
_FIXED: Final[dict[str, dict[str, str]]] = {
    "admin": {},
    "producer": {"acks": "all", "enable.idempotence": "true", "key.serializer": "", "value.serializer": ""},
    "consumer": {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "exclude.internal.topics": "false",
        "key.deserializer": "",
        "value.deserializer": "",
    },
}

#: Java's back-off, with which a broker that comes back is found within a second.
_RECONNECT: Final[dict[str, str | int | bool]] = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1000}
#: Defaults for librdkafka, beneath the configured values. Sizes bound the memory that a hostile or a full topic can
#: make us hold.
_DEFAULTS: Final[dict[str, dict[str, str | int | bool]]] = {
    "admin": {**_RECONNECT, "log.connection.close": False},
    "producer": {
        **_RECONNECT,
        "log.connection.close": False,
        "linger.ms": 0,
        "queue.buffering.max.kbytes": 32 * 1024,
        "delivery.timeout.ms": 120_000,
        "socket.keepalive.enable": True,
    },
    "consumer": {
        **_RECONNECT,
        "log.connection.close": False,
        "check.crcs": True,
        "isolation.level": "read_uncommitted",
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.wait.max.ms": 500,
        "fetch.error.backoff.ms": 100,
        "socket.keepalive.enable": True,
    },
}
#: Values for librdkafka that override the configured ones.
_OURS: Final[dict[str, dict[str, str | int | bool]]] = {
    "admin": {},
    "producer": {"acks": "all", "enable.idempotence": True, "allow.auto.create.topics": False},
    "consumer": {
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
    },
}


def client_settings(
    role: Role, common: Mapping[str, str], own: Mapping[str, str] | None = None, *, client_id: str
) -> ClientSettings:
    """Check and translate the keys of one client.

    Args:
        role: Which client.
        common: Java's keys for all three clients; those that only another one has are passed over.
        own: Java's keys of this client, over the common ones.
        client_id: How the client names itself to the brokers, whatever is configured.

    Raises:
        ConfigError: an unknown key (the nearest known one is named), a key of another client, a key that only a JVM can
            obey, or a malformed value. Values that may be secret are not quoted.
    """
    own = {} if own is None else own
    keys = {name: value for name, value in common.items() if name in own or _is_for(role, name)} | dict(own)
    for name in own:
        if not _is_for(role, name):
            raise ConfigError(f"{name} is no key of a Kafka {role}")
    values: dict[str, str | int | bool] = dict(_DEFAULTS[role])
    if role == "consumer":
        values["group.id"] = client_id
    for name, value in keys.items():
        key = KNOWN_KEYS.get(name)
        if key is not None and key.name:
            values[key.name] = _translated(name, key, value)
        elif name in _MEANINGLESS:
            _log.warning("%s has no meaning for the Kafka %s of Tierlog, and is passed over", name, role)
        elif name in _FIXED[role]:
            _tell_fixed(role, name, value)
    values |= security_settings({name: value for name, value in keys.items() if name in SECURITY_KEYS})
    if "bootstrap.servers" not in values:
        raise ConfigError(f"bootstrap.servers of the Kafka {role} is missing")
    values |= _OURS[role] | {"client.id": client_id}
    return ClientSettings(
        values=values,
        call_seconds=_seconds(keys, "default.api.timeout.ms", 60_000),
        delivery_seconds=_seconds(keys, "delivery.timeout.ms", 120_000),
    )


def _is_for(role: Role, name: str) -> bool:
    """Whether a client has a key. Raises ConfigError: no client has it."""
    key = KNOWN_KEYS.get(name)
    if key is not None:
        return role in key.roles
    if name in SECURITY_KEYS or name in _MEANINGLESS:
        return True
    if any(name in fixed for fixed in _FIXED.values()):
        return name in _FIXED[role]
    nearest = nearest_name(name, (*KNOWN_KEYS, *SECURITY_KEYS, *_MEANINGLESS))
    raise ConfigError(f"unknown key {name} of a Kafka client; the nearest known one is {nearest}")


def _translated(name: str, key: _Key, value: str) -> str:
    if key.translate is None:
        return value.strip()
    try:
        return key.translate(value.strip())
    except ValueError as cause:
        raise ConfigError(f"{name}: {value!r} is not a value of it: {cause}") from None


def _tell_fixed(role: Role, name: str, value: str) -> None:
    fixed = _FIXED[role][name]
    if fixed and value.strip().lower() != fixed and not (name == "acks" and value.strip() == "-1"):
        _log.warning("%s=%s of the Kafka %s is passed over: it is always %s", name, value, role, fixed)


def _seconds(keys: Mapping[str, str], name: str, default_ms: int) -> float:
    text = keys.get(name, str(default_ms)).strip()
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ConfigError(f"{name}: {text!r} is no number of milliseconds from 1 on")
    return int(text) / 1000
