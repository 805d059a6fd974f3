"""The RSM's configuration: every way a key can come, and every way it can be wrong."""

from __future__ import annotations

import json
import pathlib

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import KNOWN_KEYS, read_storage_config
from tierlog.remote.config.storage_keys import STORAGE_KEYS

PAIRS = {
    "encryption.key.pairs": "K1, k2",
    "encryption.key.pairs.K1.private.key.file": "/keys/1.pem",
    "encryption.key.pairs.K1.public.key.file": "/keys/1.pub",
    "encryption.key.pairs.k2.private.key.file": "/keys/2.pem",
}


@pytest.mark.parametrize("prefix", ["", "rsm.", "rsm.config.", "RSM.Config."])
def test_keys_with_and_without_the_brokers_prefix(prefix: str) -> None:
    """If this fails, a set that works on the broker is refused here."""
    config = read_storage_config({f"{prefix}{key}": value for key, value in ({"key.prefix": "p/"} | PAIRS).items()})
    assert config.key_prefix == "p/"
    assert config.private_key_files == {"K1": "/keys/1.pem", "k2": "/keys/2.pem"}


def test_keys_that_spark_lower_cased_keep_their_ids() -> None:
    """If this fails, segments under key ids with capitals cannot be read from Spark."""
    config = read_storage_config({key.lower(): value for key, value in PAIRS.items()})
    assert config.private_key_files == {"K1": "/keys/1.pem", "k2": "/keys/2.pem"}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"key.prefix": "a", "Key.Prefix": "b"}, "Key.Prefix are one key"),
        ({"rsm.config.key.prefix": "a", "key.prefix": "b"}, "one key"),
        ({"encryption.key.pairs": "k,K"}, "differ in case"),
        ({"encryption.key.pairs": "k"}, 'configuration "encryption.key.pairs.k.private.key.file"'),
        ({"encryption.key.pairs": "k", "encryption.key.pairs.j.private.key.file": "x"}, "pairs.k.private.key.file"),
        ({"encryption.key.pairs.j.private.key.file": "x"}, "lists no key id"),
        ({"key.prefx": "a"}, "unknown key key.prefx; the nearest known one is key.prefix"),
        ({"storage.s3.regoin": "a"}, "storage.s3.region"),
        (
            {"key.prefix.mask": "yes"},
            "Invalid value yes for configuration key.prefix.mask: Expected value",
        ),
        ({"fetch.chunk.cache.sizes": "1"}, "fetch.chunk.cache.size"),
        ({"storage.rooot": "/a"}, "nearest known one is storage.root"),
        ({"tierlog.layout": "aiven"}, "layout"),
    ],
)
def test_what_is_wrong_is_said(keys: dict[str, str], told: str) -> None:
    """If this fails, a misspelt key is ignored in silence, as the plugin does."""
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        read_storage_config(keys)


def test_secret_values_are_not_quoted() -> None:
    """If this fails, a password shows up in a message or a repr."""
    secrets = ["storage.aws.secret.access.key", "storage.aws.access.key.id", "storage.aws.session.token"]
    secrets += ["storage.gcs.credentials.json", "storage.azure.connection.string"]
    secrets += ["storage.proxy.username", "storage.proxy.password", "store.secret_access_key"]
    given = dict.fromkeys(secrets, "s3cret") | {"storage.proxy.host": "h", "storage.proxy.port": "1"}
    config = read_storage_config(given)
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(config)
    assert config.storage_aws_access_key_id is not None
    assert config.storage_aws_access_key_id.get_secret_value() == "s3cret"
    for wrong in ({"storage.aws.secret.acces.key": "s3cret"}, {"storage.azure.sas.token": "s3cret"}):
        with pytest.raises(ConfigError) as caught:
            read_storage_config(given | wrong)
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(ConfigError, match=r"Invalid value for configuration storage\.aws\.session\.token"):
        read_storage_config(given | {"storage.aws.session.token": ""})


@pytest.mark.parametrize(
    "key", ["compression.enabled", "chunk.size", "compression.type", "storage.backend.class", "fetch.chunk.cache.class"]
)
@pytest.mark.parametrize("secret", ["CANARY-s3cr3t-CANARY", "wJalrXUtnFEMIK7MDENGbPxRf", "hunter", "eyJ0.eyJ1.x-_"])
def test_a_secret_at_the_wrong_key_is_not_quoted(key: str, secret: str) -> None:
    """A password that slipped a line down in a file would be in the broker's log, and in whatever collects it."""
    with pytest.raises(ConfigError, match=r"Invalid value for configuration|[Uu]nknown") as caught:
        read_storage_config({"chunk.size": "1024"} | {key: secret})
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"chunk.size": 1024}, "chunk_size", 1024),
        ({"chunk.size": " 1024 "}, "chunk_size", 1024),
        ({"compression.enabled": True}, "compression_enabled", True),
        ({"compression.enabled": "TRUE"}, "compression_enabled", True),
        ({"custom.metadata.fields.include": ["REMOTE_SIZE"]}, "custom_metadata_fields_include", ("REMOTE_SIZE",)),
        ({"custom.metadata.fields.include": "  "}, "custom_metadata_fields_include", ()),
        ({"broker.id": 5}, "broker_id", 5),
        ({"upload.part.size": None}, "upload_part_size", None),
    ],
)
def test_values_come_as_text_or_as_they_are(given: dict[str, object], field: str, value: object) -> None:
    """If this fails, what a broker hands to configure (or TOML, or a test) is refused, or taken for something else."""
    assert getattr(read_storage_config(given), field) == value


def test_every_key_that_a_store_understands_is_known() -> None:
    """If this fails, a store option that exists is refused as a misspelling before the store sees it."""
    assert set(KNOWN_KEYS) >= STORAGE_KEYS


def test_keys_of_a_third_partys_store_go_to_it() -> None:
    """If this fails, a store of another kind cannot have options of its own."""
    given = {"storage.backend.class": "my_stores.HdfsStore", "storage.hdfs.uri": "hdfs://n:9000", "key.prefix": "a"}
    assert read_storage_config(given).other_storage_keys == {"storage.hdfs.uri": "hdfs://n:9000"}
    with pytest.raises(ConfigError, match=r"storage\.hdfs\.uri"):
        read_storage_config({"storage.hdfs.uri": "hdfs://n:9000"})


def test_the_brokers_other_keys_are_accepted(fixtures: pathlib.Path) -> None:
    """If this fails, the golden runs' own configurations do not open their buckets."""
    for run in ("main-plain", "heuristic", "custom-meta", "local-tiered"):
        read_storage_config(json.loads((fixtures / run / "config.json").read_text())["rsm"])
    assert read_storage_config({"fetch.chunk.cache.size": "-1", "iceberg.catalog.uri": "x"}).key_prefix == ""
