"""Defaults, ranges and what keys demand of each other: the plugin's."""

from __future__ import annotations

import json
import pathlib

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import KNOWN_KEYS, StorageConfig, read_storage_config
from tierlog.remote.config.values import KeyFacts

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
    for field in KNOWN_KEYS.values():
        assert isinstance(StorageConfig.facts(field), KeyFacts)


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
    """If this fails, a part size that an operator chose for her store is not used."""
    assert read_storage_config(keys).part_bytes == size


def test_how_far_a_reader_is_read_ahead_of() -> None:
    """If this fails, an operator who turned prefetch off, or set the plugin's bound, is not heard."""
    assert read_storage_config({}).prefetch_max_bytes == 32 << 20
    assert read_storage_config({"fetch.chunk.cache.prefetch.max.size": "7"}).prefetch_max_bytes == 7
    assert read_storage_config({"fetch.prefetch.enabled": "false"}).prefetch_max_bytes == 0
