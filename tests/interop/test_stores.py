"""Buckets read over the wire from real servers: the same records as from the folder they were copied from."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from functools import partial

import pytest

import tierlog
from tests.support.interop_stores import INTEROP, SERVERS, write_config
from tests.support.servers import StoreServer, as_abfss

pytestmark = pytest.mark.server

CASES = [
    pytest.param("main-plain", ["fx-txn", "fx-epochs"], id="plain"),
    pytest.param("zstd-aes", ["fx-zstd-a-json", "fx-zstd-a-txn"], id="compressed-encrypted"),
    pytest.param("local-tiered", ["fx-local-json"], id="local-tiered"),
]
COLUMNS = ["partition", "offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch"]
MAIN = "from tierlog.cli import main; main()"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


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
    folder = data / run / "objects"
    url = server.upload(folder, f"{run}/objects")
    for topic in topics:
        for isolation_level in ("read_uncommitted", "read_committed"):
            read = partial(tierlog.read, topic=topic, columns=COLUMNS, isolation_level=isolation_level)
            local = read(str(folder), config=write_config(tmp_path, data, None)).read_all()
            assert local.num_rows
            assert read(url, config=write_config(tmp_path, data, server)).read_all().equals(local)


def test_the_command_reads_a_bucket(server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The whole way once, as an operator goes it: a URL, a configuration file, lines on stdout."""
    folder = data / "main-plain" / "objects"
    code, local, messages = cat(str(folder), "fx-txn", write_config(tmp_path, data, None))
    assert (code, bool(local)) == (0, True), messages
    code, remote, messages = cat(server.upload(folder, "cat"), "fx-txn", write_config(tmp_path, data, server))
    assert code == 0, messages
    assert remote == local


@INTEROP
def test_a_path_of_sparks_names_the_same_container(azure: StoreServer, data: pathlib.Path) -> None:
    """A data engineer pastes the abfss:// path that all other jobs have."""
    folder = data / "main-plain" / "objects"
    path, options = as_abfss(azure, azure.upload(folder, "abfss"))
    local = tierlog.read(str(folder), "fx-txn").read_all()
    assert local.num_rows
    assert tierlog.read(path, "fx-txn", config=options).read_all().equals(local)
    one = next(found.relative_to(folder) for found in folder.glob("fx-txn-*/0/*.log"))
    for inner in (one.parent, one):  # a partition's folder, one object: found from the folders above
        assert tierlog.read(f"{path}/{inner.as_posix()}", "fx-txn", config=options).read_all().num_rows


def test_the_brokers_own_keys_reach_the_store(s3: StoreServer, data: pathlib.Path) -> None:
    """An operator hands over the broker's configuration as it stands, not one in our words."""
    url = s3.upload(data / "custom-meta" / "objects", "broker-keys")
    config = {
        "rsm.config.chunk.size": "50000",
        "rsm.config.key.prefix": "tier/dev-cluster/",
        "rsm.config.key.prefix.mask": "true",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "rsm.config.storage.s3.bucket.name": "tier",
        "rsm.config.storage.s3.endpoint.url": s3.options["store.endpoint"],
        "rsm.config.storage.s3.region": s3.options["store.region"],
        "rsm.config.storage.s3.path.style.access.enabled": "true",
        "rsm.config.storage.aws.access.key.id": s3.options["store.access_key_id"],
        "rsm.config.storage.aws.secret.access.key": s3.options["store.secret_access_key"],
    }
    local = tierlog.read(str(data / "custom-meta" / "objects" / "tier" / "dev-cluster"), "fx-custom-txn").read_all()
    assert tierlog.read(url, "fx-custom-txn", config=config).read_all().equals(local)


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
