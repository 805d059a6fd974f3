"""Configurations of a broker with several key pairs, one of them active."""

from __future__ import annotations

import pathlib

from tests.support.golden import config_of

PAIRS = "rsm.config.encryption.key.pairs"


def pairs(data: pathlib.Path, *ids: str, active: str) -> dict[str, str]:
    """Keys of a broker with these pairs."""
    keys = {k: v for k, v in config_of(data / "zstd-aes").items() if not k.startswith(PAIRS)}
    keys |= {PAIRS: ",".join(ids), "rsm.config.encryption.key.pair.id": active}
    for key_id in ids:
        for kind in ("public", "private"):
            keys[f"{PAIRS}.{key_id}.{kind}.key.file"] = str(data / "keys" / key_id / f"{kind}.der")
    return keys
