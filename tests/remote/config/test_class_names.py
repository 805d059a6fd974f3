"""The plugin's Java classes in our words."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import read_storage_config

PLUGIN = "io.aiven.kafka.tieredstorage"
CACHE = {"fetch.chunk.cache.size": "1", "fetch.chunk.cache.path": "/cache"}


@pytest.mark.parametrize(
    ("key", "given", "ours"),
    [
        ("storage.backend.class", f"{PLUGIN}.storage.s3.S3Storage", "s3"),
        ("storage.backend.class", f"{PLUGIN}.storage.gcs.GcsStorage", "gcs"),
        ("storage.backend.class", f"{PLUGIN}.storage.azure.AzureBlobStorage", "azure"),
        ("storage.backend.class", f"{PLUGIN}.storage.filesystem.FileSystemStorage", "filesystem"),
        ("storage.backend.class", "filesystem", "filesystem"),
        ("storage.backend.class", "my_stores.hdfs.HdfsStore", "my_stores.hdfs.HdfsStore"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.fetch.cache.MemoryChunkCache", "memory"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.fetch.cache.DiskChunkCache", "disk"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.chunkmanager.cache.DiskBasedChunkCache", "disk"),
        ("chunk.cache.class", f"{PLUGIN}.chunkmanager.cache.InMemoryChunkCache", "memory"),
        (
            "storage.aws.credentials.provider.class",
            "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
            "web-identity",
        ),
    ],
)
def test_classes_have_counterparts(key: str, given: str, ours: str) -> None:
    """If this fails, a broker's configuration has to be rewritten by hand."""
    config = read_storage_config({key: given} | CACHE)
    field = key.replace(".", "_") if key.startswith(("storage", "fetch")) else "fetch_chunk_cache_class"
    assert getattr(config, field) == ours


@pytest.mark.parametrize(
    ("key", "given", "told"),
    [
        ("storage.backend.class", f"{PLUGIN}.storage.oci.OciStorage", "no counterpart"),
        (
            "storage.backend.class",
            f"{PLUGIN}.storage.s3.S3Storag",
            f"nearest known one is {PLUGIN}.storage.s3.S3Storage",
        ),
        ("storage.backend.class", "s4", "s3, gcs, azure, filesystem, or the dotted path"),
        ("fetch.chunk.cache.class", "my.Cache", "use one of memory, disk"),
        ("storage.aws.credentials.provider.class", "com.amazonaws.auth.Mine", "no counterpart"),
        ("storage.backend.class", "my stores.Hdfs", "unknown"),
    ],
)
def test_classes_without_one_are_refused(key: str, given: str, told: str) -> None:
    """If this fails, a broker silently uses another store, another cache or other credentials than it was told."""
    with pytest.raises(ConfigError) as caught:
        read_storage_config({key: given} | CACHE)
    assert told in str(caught.value)
    assert key in str(caught.value)
