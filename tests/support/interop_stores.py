"""Servers of Azure's and Google's protocols, and the configuration files that reach them."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.servers import StoreServer

INTEROP = pytest.mark.interop


# SeaweedFS starts in seconds and comes from PyPI, so S3 is in the default run.
SERVERS = ["s3", pytest.param("azure", marks=INTEROP), pytest.param("gcs", marks=INTEROP)]


def write_config(folder: pathlib.Path, data: pathlib.Path, server: StoreServer | None) -> pathlib.Path:
    """What reaches the store, and the private key of the encrypted run, in one file as an operator would keep it."""
    path = folder / ("remote.properties" if server else "local.properties")
    lines = {
        "rsm.config.encryption.enabled": "true",
        "rsm.config.encryption.key.pair.id": "k1",
        "rsm.config.encryption.key.pairs": "k1",
        "rsm.config.encryption.key.pairs.k1.public.key.file": data / "keys" / "k1" / "public.der",
        "rsm.config.encryption.key.pairs.k1.private.key.file": data / "keys" / "k1" / "private.der",
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    path.write_text(text + (server.properties() if server else ""))
    return path
