"""Defaults, ranges and what keys demand of each other: the plugin's."""

from __future__ import annotations

import json
import logging
import pathlib
import re

import pytest

from tests.support.checkout import ROOT, needs_checkout
from tierlog.config_keys import rows
from tierlog.errors import ConfigError
from tierlog.remote.config import KNOWN_KEYS, read_storage_config, storage_keys
from tierlog.remote.config.keys import AzureKeys, GcsKeys, S3Keys

FILES = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
WHOLE = {"chunk.size": "4194304", "storage.backend.class": FILES, "storage.root": "/tier"}
PAIR = {
    "encryption.key.pairs": "k1",
    "encryption.key.pairs.k1.private.key.file": "/k1",
    "encryption.key.pairs.k1.public.key.file": "/k1.pub",
}
# The plugin's keys and their defaults.
DEFAULTS: dict[str, object] = {
    "key.prefix": "",
    "key.prefix.mask": False,
    "compression.enabled": False,
    "compression.heuristic.enabled": False,
    "encryption.enabled": False,
    "custom.metadata.fields.include": (),
    "upload.rate.limit.bytes.per.second": None,
    "metrics.num.samples": 2,
    "metrics.sample.window.ms": 30000,
    "metrics.recording.level": "INFO",
    "segment.format": "kafka",
    "structure.provider.class": None,
    "iceberg.namespace": None,
    "iceberg.catalog.class": None,
    "iceberg.catalog.cache.enabled": True,
    "iceberg.catalog.cache.expiration.ms": 600000,
    "fetch.manifest.cache.size": 1000,
    "fetch.manifest.cache.retention.ms": 3600000,
    "fetch.manifest.cache.get.timeout.ms": 10000,
    "fetch.manifest.cache.thread.pool.size": 0,
    "fetch.indexes.cache.size": 10485760,
    "fetch.indexes.cache.retention.ms": 600000,
    "fetch.indexes.cache.get.timeout.ms": 10000,
    "fetch.indexes.cache.thread.pool.size": 0,
    "fetch.chunk.cache.class": None,
    "fetch.chunk.cache.prefetch.max.size": 0,
    "fetch.chunk.cache.retention.ms": 600000,
    "fetch.chunk.cache.get.timeout.ms": 10000,
    "fetch.chunk.cache.thread.pool.size": 0,
    "storage.s3.endpoint.url": None,
    "storage.s3.path.style.access.enabled": None,
    "storage.s3.multipart.upload.part.size": 26214400,
    "storage.s3.storage.class": "STANDARD",
    "storage.s3.api.call.timeout": None,
    "storage.s3.api.call.attempt.timeout": None,
    "storage.s3.legacy.md5.plugin.enabled": False,
    "storage.aws.access.key.id": None,
    "storage.aws.secret.access.key": None,
    "storage.aws.session.token": None,
    "storage.aws.credentials.file": None,
    "storage.aws.credentials.provider.class": None,
    "storage.aws.certificate.check.enabled": True,
    "storage.aws.checksum.check.enabled": False,
    "storage.gcs.endpoint.url": None,
    "storage.gcs.resumable.upload.chunk.size": 26214400,
    "storage.gcs.credentials.default": None,
    "storage.gcs.credentials.json": None,
    "storage.gcs.credentials.path": None,
    "storage.azure.account.name": None,
    "storage.azure.account.key": None,
    "storage.azure.sas.token": None,
    "storage.azure.connection.string": None,
    "storage.azure.endpoint.url": None,
    "storage.azure.upload.block.size": 26214400,
    "storage.proxy.username": None,
    "storage.proxy.password": None,
    "storage.overwrite.enabled": False,
}


def refused(keys: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        read_storage_config(keys).check_for_broker()
    return str(caught.value)


def test_the_plugins_defaults() -> None:
    """If this fails, a broker that moves over behaves otherwise than with the plugin, with the same file."""
    config = read_storage_config({})
    assert {key: getattr(config, KNOWN_KEYS[key]) for key in DEFAULTS} == DEFAULTS


def test_every_field_has_its_keys_name() -> None:
    """If this fails, a reader of the code cannot find a key's use by its name."""
    odd = {"custom_metadata_bytes_max": "remote.log.metadata.custom.metadata.max.bytes"}
    assert {f: k for k, f in KNOWN_KEYS.items() if f != k.replace(".", "_")} == odd


def test_the_golden_brokers_configurations_are_whole(fixtures: pathlib.Path) -> None:
    """If this fails, a configuration that a real broker ran with is refused."""
    for run in ("main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta"):
        given = json.loads((fixtures / run / "config.json").read_text())["rsm"]
        if "FileSystemStorage" in given["rsm.config.storage.backend.class"]:
            given["rsm.config.storage.root"] = "/tier"  # the golden data leave paths out
        config = read_storage_config(given | {"broker.id": 1})
        config.check_for_broker()
        assert config.chunk_size == int(given["rsm.config.chunk.size"])


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("chunk.size", "0", "Invalid value 0 for configuration chunk.size: Value must be at least 1"),
        ("chunk.size", "1073741824", "Value must be no more than 1073741823"),
        ("chunk.size", "4m", "Invalid value 4m for configuration chunk.size: Not a number"),
        ("chunk.size", "1.5", "Not a number"),
        ("upload.rate.limit.bytes.per.second", "1048575", "Value must be at least 1048576"),
        ("custom.metadata.fields.include", "remote_size", "must be one of: REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY"),
        ("metrics.recording.level", "debug", "must be one of: INFO, DEBUG, TRACE"),
        ("fetch.chunk.cache.thread.pool.size", "1025", "no more than 1024"),
        ("fetch.manifest.cache.size", "-2", "at least -1"),
        ("storage.s3.multipart.upload.part.size", "5242879", "at least 5242880"),
        ("storage.s3.multipart.upload.part.size", "2147483640", "no more than 2147483639"),
        ("storage.s3.storage.class", "Standard", "must be one of: STANDARD, "),
        ("storage.s3.endpoint.url", "ftp://a", "URL"),
        ("storage.s3.bucket.name", "", "non-empty"),
        ("storage.aws.access.key.id", "", "Invalid value for configuration storage.aws.access.key.id"),
        ("storage.gcs.resumable.upload.chunk.size", "262145", "multiple of 262144"),
        ("storage.azure.upload.block.size", "102399", "at least 102400"),
        ("segment.format", "iceberg", "segment.format=iceberg is not supported"),
        ("segment.format", "parquet", "must be one of: kafka, iceberg"),
        ("layout", "plain", "must be one of: aiven, kafka"),
        ("compression.level", "23", "no more than 22"),
        ("encryption.enabled", "1", "Expected value to be either true or false"),
    ],
)
def test_values_out_of_range_are_refused_in_kafkas_words(key: str, value: str, told: str) -> None:
    """If this fails, a broker starts with a value that breaks its first copy."""
    assert told in refused({key: value})


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"compression.heuristic.enabled": "true"}, "compression.enabled must be enabled"),
        ({"encryption.enabled": "true", "encryption.key.pair.id": "k2"} | PAIR, "Encryption key 'k2' must be provided"),
        ({"encryption.key.pairs": "k1,eu:k2"}, "'eu:k2': no ':' may be in an id"),
        ({"layout": "kafka", "compression.enabled": "true"}, "compression.enabled cannot be set with layout=kafka"),
        ({"layout": "kafka", "encryption.enabled": "true"}, "encryption.enabled cannot be set with layout=kafka"),
        ({"fetch.chunk.cache.class": "memory"}, '"fetch.chunk.cache.size"'),
        ({"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.size": "1"}, '"fetch.chunk.cache.path"'),
        ({"storage.aws.access.key.id": "a"}, "must be defined together"),
        ({"storage.aws.secret.access.key": "a"}, "must be defined together"),
        (
            {
                "storage.aws.access.key.id": "a",
                "storage.aws.secret.access.key": "a",
                "storage.aws.credentials.file": "f",
            },
            "not both",
        ),
        (
            {"storage.aws.credentials.provider.class": "instance", "storage.aws.credentials.file": "f"},
            "not both",
        ),
        ({"storage.gcs.credentials.default": "true", "storage.gcs.credentials.path": "f"}, "Only one of"),
        ({"storage.azure.connection.string": "c", "storage.azure.account.name": "a"}, "cannot be set together"),
        ({"storage.proxy.host": "h"}, '"storage.proxy.port"'),
        ({"storage.proxy.host": "h", "storage.proxy.port": "1", "storage.proxy.username": "u"}, "defined together"),
        ({"storage.s3.server.side.encryption.kms.key.id": "k"}, "must be aws:kms"),
    ],
)
def test_contradictions_are_found_whatever_the_use(keys: dict[str, str], told: str) -> None:
    """If this fails, one of two keys that exclude each other wins in silence."""
    with pytest.raises(ConfigError) as caught:
        read_storage_config(keys)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, 'Missing required configuration "chunk.size" which has no default value.'),
        ({"chunk.size": "1"}, '"storage.backend.class"'),
        ({"layout": "kafka"}, '"storage.backend.class"'),
        ({"chunk.size": "1", "storage.backend.class": "s3"}, '"storage.s3.bucket.name"'),
        ({"chunk.size": "1", "storage.backend.class": "s3", "storage.s3.bucket.name": "b"}, '"storage.s3.region"'),
        ({"chunk.size": "1", "storage.backend.class": "gcs", "storage.gcs.bucket.name": "b"}, "One of storage.gcs."),
        (
            {"chunk.size": "1", "storage.backend.class": "azure", "storage.azure.container.name": "c"},
            "storage.azure.account.name and/or storage.azure.sas.token must be set",
        ),
        ({"chunk.size": "1", "storage.backend.class": "filesystem"}, '"storage.root"'),
        (WHOLE | {"encryption.enabled": "true"}, '"encryption.key.pair.id"'),
        (
            WHOLE
            | {"encryption.enabled": "true", "encryption.key.pair.id": "k1"}
            | {key: value for key, value in PAIR.items() if "public" not in key},
            '"encryption.key.pairs.k1.public.key.file"',
        ),
    ],
)
def test_what_a_broker_must_give(keys: dict[str, str], told: str) -> None:
    """If this fails, a broker starts and its first copy fails, when its disk is filling already."""
    assert told in refused(keys)


def test_what_is_whole_is_accepted() -> None:
    """If this fails, no broker starts with us."""
    read_storage_config(WHOLE).check_for_broker()
    read_storage_config(
        WHOLE | PAIR | {"encryption.enabled": "true", "encryption.key.pair.id": "k1"}
    ).check_for_broker()
    read_storage_config({"storage.backend.class": "my.Store"} | {"chunk.size": "1"}).check_for_broker()


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ({}, 25 << 20),
        ({"storage.backend.class": "s3", "storage.s3.multipart.upload.part.size": "5242880"}, 5 << 20),
        ({"storage.backend.class": "gcs", "storage.s3.multipart.upload.part.size": "5242880"}, 25 << 20),
        ({"storage.backend.class": "azure", "storage.azure.upload.block.size": "102400"}, 102400),
        ({"storage.backend.class": "azure", "upload.part.size": "33554432"}, 32 << 20),
    ],
)
def test_the_size_of_a_part(keys: dict[str, str], size: int) -> None:
    """If this fails, a part size that an operator chose for the store is not used."""
    assert read_storage_config(keys).part_bytes == size


def test_how_far_a_reader_is_read_ahead_of() -> None:
    """If this fails, an operator who turned prefetch off, or set the plugin's bound, is not heard."""
    assert read_storage_config({}).prefetch_max_bytes == 32 << 20
    assert read_storage_config({"fetch.chunk.cache.prefetch.max.size": "7"}).prefetch_max_bytes == 7
    assert read_storage_config({"fetch.prefetch.enabled": "false"}).prefetch_max_bytes == 0


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


def test_every_key_of_a_store_reaches_it() -> None:
    """If this fails, a key that is known and documented does nothing."""
    source = pathlib.Path(str(storage_keys.__file__)).read_text()
    elsewhere = ("bucket_name", "container_name", "part_size", "chunk_size", "block_size")
    for table in (S3Keys, GcsKeys, AzureKeys):
        for field in rows(table):
            assert field.endswith(elsewhere) or f"config.{field}" in source


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


@needs_checkout
def test_keys_of_our_plugin_for_kafka_are_passed_over() -> None:
    """If this fails, no command takes the file of a broker that tiers through a sidecar."""
    source = (ROOT / "bindings/kafka/src/main/java/io/tierlog/kafka/PluginConfig.java").read_text()
    keys = re.findall(r'= "(tierlog\.[a-z.]+[a-z])";', source)
    assert len(keys) == 5
    config = read_storage_config({f"rsm.config.{key}": "1" for key in keys} | {"rsm.config.key.prefix": "x/"})
    assert (config.key_prefix, config.store_options, config.other_storage_keys) == ("x/", {}, {})


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
