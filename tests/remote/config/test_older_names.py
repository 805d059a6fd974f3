"""Older and never-read spellings: accepted, and told."""

from __future__ import annotations

import logging

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import read_storage_config


@pytest.mark.parametrize(
    ("older", "todays", "value"),
    [
        ("segment.manifest.cache.size", "fetch.manifest.cache.size", "5"),
        ("chunk.cache.size", "fetch.chunk.cache.size", "6"),
        ("chunk.cache.retention.ms", "fetch.chunk.cache.retention.ms", "-1"),
    ],
)
def test_older_spellings_work_and_are_told(
    older: str, todays: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, a broker that was set up in 2023 loses its cache settings in silence."""
    with caplog.at_level(logging.WARNING):
        config = read_storage_config({f"rsm.config.{older}": value})
    assert getattr(config, todays.replace(".", "_")) == int(value)
    assert f"{older} is an older spelling: it is called {todays} today" in caplog.text
    with pytest.raises(ConfigError, match="are one key"):
        read_storage_config({older: value, todays: "77"})
    assert read_storage_config({older: value, todays: value}) == config


def test_a_misspelt_older_key_is_told_by_todays_name() -> None:
    """If this fails, a typing error below an older prefix is ignored."""
    with pytest.raises(
        ConfigError, match=r"fetch\.chunk\.cache\.sise; the nearest known one is fetch\.chunk\.cache\.size"
    ):
        read_storage_config({"chunk.cache.sise": "1"})


def test_the_documented_key_that_the_plugin_never_read_warns(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, nobody learns why nothing is found below storage.key.prefix."""
    with caplog.at_level(logging.WARNING):
        assert read_storage_config({"storage.key.prefix": "p/"}).key_prefix == ""
    assert "storage.key.prefix is ignored" in caplog.text
    assert "key.prefix" in caplog.text
