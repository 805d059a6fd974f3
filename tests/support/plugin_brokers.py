"""Settings of brokers that tier through the plugin, or through the Aiven plugin, onto an S3 server."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping

from tests.support.metadata_cluster import tiered_broker
from tests.support.peers import plugin
from tests.support.peers.plugin_peer import OURS, our_jar
from tests.support.servers import BUCKET, StoreServer

FORMS = {"plain": (False, False), "zstd": (True, False), "AES": (False, True), "zstd + AES": (True, True)}


def form_keys(form: str, data: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    compressed, encrypted = FORMS[form]
    keys = {"chunk.size": "4096", "compression.enabled": str(compressed).lower()}
    if encrypted:
        keys |= {"encryption.enabled": "true", "encryption.key.pair.id": "k1", "encryption.key.pairs": "k1"}
        for kind in ("public", "private"):
            path = data / "keys" / "k1" / f"{kind}.der"
            keys[f"encryption.key.pairs.k1.{kind}.key.file"] = str(path)
        keys = plugin.with_pem_keys(keys, folder)
    return keys


def s3_keys(s3: StoreServer, prefix: str) -> dict[str, str]:
    """As both plugins take them."""
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": BUCKET,
        "storage.s3.region": "us-east-1",
        "storage.s3.endpoint.url": s3.options["store.endpoint"],
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": s3.options["store.access_key_id"],
        "storage.aws.secret.access.key": s3.options["store.secret_access_key"],
        "key.prefix": prefix,
    }


def broker_keys(keys: Mapping[str, str], *, ours: bool) -> dict[str, str]:
    """Settings of a broker with one of the plugins."""
    made = {name: value for name, value in tiered_broker(pathlib.Path("/")).items() if not name.startswith("rsm.")}
    own = {"tierlog.python": sys.executable} if ours else {}
    made |= {f"rsm.config.{name}": value for name, value in {**keys, **own}.items()}
    made["remote.log.storage.manager.class.name"] = OURS if ours else plugin.MANAGER
    jars = [our_jar()] if ours else plugin.jars()
    made["remote.log.storage.manager.class.path"] = ":".join(map(str, jars))
    return made
