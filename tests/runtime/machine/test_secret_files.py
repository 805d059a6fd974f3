"""Files that hold keys: whoever can read them, and what is given in their place."""

from __future__ import annotations

import logging
import pathlib

import pytest

from tests.support.manager_configs import local_keys
from tierlog.errors import ConfigError
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine.files import read_secret_file
from tierlog.runtime.machine.posix_files import PosixFiles

LIMIT = 1 << 20


def test_a_key_that_everybody_can_read_is_told_of_once(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The key to every segment would lie open on a shared machine, unnoticed; or the log would be full of it."""
    key = tmp_path / "private.pem"
    key.write_text("s3cret")
    key.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert read_secret_file("the.key", str(key), PosixFiles(), limit_bytes=LIMIT) == b"s3cret"
        assert not caplog.records
        key.chmod(0o644)
        for _ in range(3):
            read_secret_file("the.key", str(key), PosixFiles(), limit_bytes=LIMIT)
    (told,) = caplog.messages
    assert told == f"the.key: {key} is readable by every user of this machine: take that right away (chmod o-r)"


def test_private_keys_of_a_configuration(
    tmp_path: pathlib.Path, data: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning would be for credentials of the store alone; a public key may be read by everybody."""
    paths = {}
    for half in ("public", "private"):
        paths[half] = tmp_path / f"{half}.der"
        paths[half].write_bytes((data / "keys" / "k1" / f"{half}.der").read_bytes())
        paths[half].chmod(0o644)
    keys = local_keys(tmp_path / "store") | {
        "encryption.enabled": "true",
        "encryption.key.pair.id": "k1",
        "encryption.key.pairs": "k1",
        "encryption.key.pairs.k1.public.key.file": str(paths["public"]),
        "encryption.key.pairs.k1.private.key.file": str(paths["private"]),
    }
    with caplog.at_level(logging.WARNING), TieredStorageManager() as manager:
        manager.configure(keys)
    assert [text.partition(":")[0] for text in caplog.messages] == ["encryption.key.pairs.k1.private.key.file"]
    with pytest.raises(ConfigError, match="the path of a file is expected, not what it holds") as caught:
        TieredStorageManager().configure(
            keys | {"encryption.key.pairs.k1.private.key.file": "-----BEGIN PRIVATE KEY-----\ns3cret"}
        )
    assert "s3cret" not in str(caught.value)
