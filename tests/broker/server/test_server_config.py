"""The settings of a server: what a file may set, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from tierlog.broker.server.server_config import ServerConfig
from tierlog.config_keys import read_values, rows
from tierlog.errors import ConfigError

KEYS = {row.name: field for field, row in rows(ServerConfig).items()}


def read_server_config(properties: dict[str, str]) -> ServerConfig:
    return ServerConfig(**read_values(ServerConfig, properties))


def test_every_limit_can_be_set_by_a_file() -> None:
    """An operator with slow clients, or hostile ones, could change nothing but the code."""
    config = read_server_config({key: str(number) for number, key in enumerate(KEYS, 7)})
    assert [getattr(config, field) for field in KEYS.values()] == list(range(7, 7 + len(KEYS)))
    not_limits = ("host", "port", "advertised", "security", "ssl", "sasl_enabled", "sasl_users", "user_topics")
    fields = [field.name for field in dataclasses.fields(ServerConfig) if not field.name.startswith(not_limits)]
    assert set(fields) == set(KEYS.values())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("request.deadline.ms", "0"),
        ("request.deadline.ms", "-1"),
        ("request.deadline.ms", "2147483648"),
        ("response.deadline.ms", "1e3"),
        ("authentication.deadline.ms", ""),
        ("requests.at.work.max", "many"),
        ("stop.grace.ms", "\u0661"),
        ("queued.max.request.bytes", "-2"),
        ("queued.max.request.bytes", "0"),
    ],
)
def test_a_value_that_cannot_be_is_an_error(key: str, value: str) -> None:
    """A server that started with another limit than the one in its file would be a surprise at the worst time."""
    with pytest.raises(ConfigError, match=key.replace(".", "[._]")):
        read_server_config({key: value})


def test_memory_of_requests_may_be_large_or_without_a_bound() -> None:
    """It is a long in Kafka's configuration; files of brokers have it."""
    assert read_server_config({"queued.max.request.bytes": "-1"}).queued_max_request_bytes == -1
    assert read_server_config({"queued.max.request.bytes": "8589934592"}).queued_max_request_bytes == 8 << 30
