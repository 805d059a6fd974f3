"""Buckets read over the wire from real servers: the same records as from the folder they were copied from."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.servers import StoreServer

INTEROP = pytest.mark.interop
# SeaweedFS starts in seconds and comes from PyPI, so S3 is in the default run.
SERVERS = ["s3", pytest.param("azure", marks=INTEROP), pytest.param("gcs", marks=INTEROP)]
CASES = [
    pytest.param("main-plain", ["fx-txn", "fx-epochs"], id="plain"),
    pytest.param("zstd-aes", ["fx-zstd-a-json", "fx-zstd-a-txn"], id="compressed-encrypted"),
    pytest.param("local-tiered", ["fx-local-json"], id="local-tiered"),
]
MAIN = "from tierlog.cli import main; main()"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


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


def cat(path: str, topic: str, config: pathlib.Path) -> tuple[int, bytes, str]:
    """Exit code, output and messages of ``tierlog cat``, with no credentials of this machine in sight."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    arguments = ["cat", path, topic, "--format", "json", "--config", str(config)]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], capture_output=True, check=False, env=environment, timeout=120
    )
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


@pytest.mark.parametrize(("run", "topics"), CASES)
def test_a_bucket_reads_as_its_folder(
    server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path, run: str, topics: list[str]
) -> None:
    """Otherwise what a disk proves says nothing about the store that the user has: listing, ranges, errors differ."""
    url = server.upload(data / run / "objects", f"{run}/objects")
    for topic in topics:
        code, local, messages = cat(str(data / run / "objects"), topic, write_config(tmp_path, data, None))
        assert (code, bool(local)) == (0, True), messages
        code, remote, messages = cat(url, topic, write_config(tmp_path, data, server))
        assert code == 0, messages
        assert remote == local


def test_a_lost_object_is_named(server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Retention deletes objects while someone reads: the error must say which one, and no shorter answer may pass."""
    source = data / "main-plain" / "objects"
    logs = sorted(path.relative_to(source) for path in source.glob("fx-txn-*/0/*.log"))
    for path in sorted(source.glob("fx-txn-*/0/*")):
        if path.relative_to(source) != logs[1]:
            server.put(f"lost/{path.relative_to(source).as_posix()}", path.read_bytes())
    code, _, messages = cat(f"{server.url}/lost", "fx-txn", write_config(tmp_path, data, server))
    assert code == 3
    assert logs[1].name in messages
    assert "Traceback" not in messages


def test_a_wrong_secret_is_an_error_without_the_secret(s3: StoreServer, tmp_path: pathlib.Path) -> None:
    """A refused login must not read as an empty bucket, and what was tried must not end up in a log."""
    path = tmp_path / "wrong.properties"
    path.write_text(s3.properties().replace("tierlog-secret", "wrong-secret-value"))
    code, output, messages = cat(f"{s3.url}/nothing", "orders", path)
    assert (code, output) == (3, b"")
    assert "wrong-secret-value" not in messages
    assert "Traceback" not in messages
