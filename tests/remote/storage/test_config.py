"""The RSM's configuration: every way a key can come, and every way it can be wrong."""

from __future__ import annotations

import json
import logging
import pathlib

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.storage.config import read_tier_config
from tierlog.runtime.memory_files import MemoryFiles

PAIRS = {
    "encryption.key.pairs": "K1, k2",
    "encryption.key.pairs.K1.private.key.file": "/keys/1.pem",
    "encryption.key.pairs.K1.public.key.file": "/keys/1.pub",
    "encryption.key.pairs.k2.private.key.file": "/keys/2.pem",
}


@pytest.mark.parametrize("prefix", ["", "rsm.", "rsm.config.", "RSM.Config."])
def test_keys_with_and_without_the_brokers_prefix(prefix: str) -> None:
    """If this fails, a set that works on the broker is refused here."""
    config = read_tier_config({f"{prefix}{key}": value for key, value in ({"key.prefix": "p/"} | PAIRS).items()})
    assert config.key_prefix == "p/"
    assert config.private_key_files == {"K1": "/keys/1.pem", "k2": "/keys/2.pem"}


def test_keys_that_spark_lower_cased_keep_their_ids() -> None:
    """If this fails, segments under key ids with capitals cannot be read from Spark."""
    config = read_tier_config({key.lower(): value for key, value in PAIRS.items()})
    assert config.private_key_files == {"K1": "/keys/1.pem", "k2": "/keys/2.pem"}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"key.prefix": "a", "Key.Prefix": "b"}, "Key.Prefix are one key"),
        ({"rsm.config.key.prefix": "a", "key.prefix": "b"}, "one key"),
        ({"encryption.key.pairs": "k,K"}, "differ in case"),
        ({"encryption.key.pairs": "k"}, "missing encryption.key.pairs.k.private.key.file"),
        ({"encryption.key.pairs": "k", "encryption.key.pairs.j.private.key.file": "x"}, "pairs.k.private.key.file"),
        ({"encryption.key.pairs.j.private.key.file": "x"}, "lists no key id"),
        ({"key.prefx": "a"}, "unknown key key.prefx; the nearest known one is key.prefix"),
        ({"storage.s3.regoin": "a"}, "storage.s3.region"),
        ({"key.prefix.mask": "yes please"}, "key.prefix.mask"),
    ],
)
def test_what_is_wrong_is_said(keys: dict[str, str], told: str) -> None:
    """If this fails, a misspelt key is ignored in silence, as the plugin does."""
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        read_tier_config(keys)


def test_secret_values_are_not_quoted() -> None:
    """If this fails, a password shows up in a message or a repr."""
    config = read_tier_config({"storage.aws.secret.access.key": "s3cret", "store.secret_access_key": "s3cret2"})
    assert "s3cret" not in repr(config)
    with pytest.raises(ConfigError) as caught:
        read_tier_config({"storage.aws.secret.acces.key": "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_the_brokers_other_keys_are_accepted(fixtures: pathlib.Path) -> None:
    """If this fails, the golden runs' own configurations do not open their buckets."""
    for run in ("main-plain", "heuristic", "custom-meta", "local-tiered"):
        read_tier_config(json.loads((fixtures / run / "config.json").read_text())["rsm"])
    assert read_tier_config({"fetch.chunk.cache.size": "-1", "iceberg.catalog.uri": "x"}).key_prefix == ""


def test_the_documented_key_that_the_plugin_never_read_warns(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, nobody learns why nothing is found below storage.key.prefix."""
    with caplog.at_level(logging.WARNING):
        assert read_tier_config({"storage.key.prefix": "p/"}).key_prefix == ""
    assert "storage.key.prefix is ignored" in caplog.text


class TestFile:
    """``rsm.config.file``."""

    def read(self, name: str, text: str, **given: str) -> str:
        files = MemoryFiles()
        files.put(name, text.encode())
        return read_tier_config({"rsm.config.file": name} | given, files=files).key_prefix

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("/a.properties", "broker.id=1\n# rsm.config.key.prefix=no\nrsm.config.key.prefix = tier/\n"),
            ("/a.properties", "rsm.config.key.\\\n  prefix: tier/"),
            ("/a.properties", "remote.log.storage.manager.impl.prefix=my.\nmy.key.prefix=tier/"),
            ("/a.json", '{"rsm.config.key.prefix": "tier/", "broker.id": 1}'),
            ("/a.json", '{"rsm": {"config": {"key": {"prefix": "tier/"}}}}'),
            ("/a.toml", "[rsm.config]\nkey.prefix = 'tier/'\nkey.prefix2 = 1\n".replace("key.prefix2 = 1\n", "")),
        ],
    )
    def test_every_form(self, name: str, text: str) -> None:
        """If this fails, a broker's own file cannot be used."""
        assert self.read(name, text) == "tier/"

    def test_given_keys_win(self) -> None:
        """If this fails, an option on the command line does nothing."""
        given = {"key.prefix": "mine/"}
        assert self.read("/a.properties", "rsm.config.key.prefix=tier/", **given) == "mine/"

    @pytest.mark.parametrize(
        ("name", "text", "told"),
        [
            ("/a.properties", "key.prefix=tier/", "none of its keys"),
            ("/a.json", "{", "a.json"),
            ("/a.json", "[1]", "top level"),
            ("/a.json", "[" * 100_000, "a.json"),
            ("/a.toml", "= 1", "a.toml"),
            ("/a.properties", "rsm.config.key.prefix=\\u12", "escape"),
            ("/a.properties", "rsm.config.key.prefix=1\nrsm.config.key.prefix=2", "twice"),
        ],
    )
    def test_files_that_cannot_be_read(self, name: str, text: str, told: str) -> None:
        """If this fails, a broken file is a traceback, or an empty configuration."""
        with pytest.raises(ConfigError, match=told):
            self.read(name, text)

    def test_a_file_that_is_not_there(self) -> None:
        """If this fails, a mistyped path reads as no configuration."""
        with pytest.raises(ConfigError, match="/nowhere"):
            read_tier_config({"rsm.config.file": "/nowhere"}, files=MemoryFiles())
