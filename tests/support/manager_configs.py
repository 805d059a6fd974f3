"""Configurations of storage managers: every layout and transform, over a folder."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from tests.conftest import DATA

KEYS = {
    "encryption.enabled": "true",
    "encryption.key.pair.id": "k2",
    "encryption.key.pairs": "k1,k2",
} | {
    f"encryption.key.pairs.{key_id}.{kind}.key.file": str(DATA / "keys" / key_id / f"{kind}.der")
    for key_id in ("k1", "k2")
    for kind in ("public", "private")
}


ZSTD = {"compression.enabled": "true"}


TRANSFORMS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "zstd": ZSTD,
    "aes": KEYS,
    "zstd-aes": ZSTD | KEYS,
    "heuristic": ZSTD | {"compression.heuristic.enabled": "true"},
}


SHAPES: Mapping[str, Mapping[str, str]] = {
    **{f"aiven-{name}": keys for name, keys in TRANSFORMS.items()},
    "aiven-large-chunks": ZSTD | KEYS | {"chunk.size": "1073741823"},
    "aiven-custom": {
        "key.prefix": "some/prefix/",
        "key.prefix.mask": "true",
        "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
        "remote.log.metadata.custom.metadata.max.bytes": "1000",
        "manifest.digest.enabled": "true",
        "log.index.object.enabled": "true",
        "footer.object.enabled": "true",
    },
    "aiven-cached": ZSTD
    | {
        "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache",
        "fetch.chunk.cache.size": "1000000",
        "fetch.chunk.cache.prefetch.max.size": "65536",
    },
    "kafka": {"layout": "kafka"},
}


BASE = {"chunk.size": "16384", "broker.id": 1}


def local_keys(folder: pathlib.Path) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    return BASE | {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(folder),
    }
