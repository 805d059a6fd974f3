"""`tierlog copy` into real servers, and `tierlog orphans` over what is left in them."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.command import Outcome, Run, run_here
from tests.support.interop_stores import SERVERS, write_config
from tests.support.servers import StoreServer
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier.configured_store import open_configured_store
from tierlog.runtime.machine import Machine

pytestmark = pytest.mark.server

TOPIC = "fx-txn"
#: S3 takes no smaller part.
PART_BYTES = 5 << 20


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def tierlog(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def run(*arguments: object) -> Outcome:
        return run_here(capfdbinary, arguments)

    return run


def sealed_config(tmp_path: pathlib.Path, data: pathlib.Path, server: StoreServer) -> pathlib.Path:
    path = write_config(tmp_path, data, server)
    more = {"compression.enabled": "true", "chunk.size": 9000, "key.prefix": "in/"}
    path.write_text(path.read_text() + "".join(f"rsm.config.{key}={value}\n" for key, value in more.items()))
    return path


def test_a_brokers_disk_goes_into_a_bucket(
    tierlog: Run, server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Otherwise what a folder proves says nothing about uploads: conditions, confirmations and listings differ."""
    config = sealed_config(tmp_path, data, server)
    source, dest = data / "main-plain/local-before/broker1", f"{server.url}/{tmp_path.name}"
    first = tierlog("copy", source, dest, TOPIC, "--dest-config", config, "--output", "json")
    assert first.code == 0, first.err
    assert {line["state"] for line in first.lines} == {"copied"}
    again = tierlog("copy", source, dest, TOPIC, "--dest-config", config, "--output", "json")
    assert {line["state"] for line in again.lines} == {"present"}
    assert tierlog("verify", dest, TOPIC, "--config", config).code == 0
    out = tmp_path / "out"
    assert tierlog("export", dest, TOPIC, out, "--config", config).code == 0
    logs = sorted((out / f"{TOPIC}-0").glob("*.log"))
    assert len(logs) == len(first.lines)
    assert all(log.read_bytes() == (source / f"{TOPIC}-0" / log.name).read_bytes() for log in logs)
    assert tierlog("orphans", dest, "--config", config, "--older-than", "0s").code == 0


def test_leftovers_in_a_bucket(tierlog: Run, server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A manifest that never came and an upload that nobody ended are found, and go, without anything else going."""
    config = sealed_config(tmp_path, data, server)
    source, url = data / "main-plain/local-before/broker1", f"{server.url}/{tmp_path.name}"
    assert tierlog("copy", source, url, TOPIC, "--dest-config", config).code == 0
    keys = read_storage_config({"rsm.config.file": str(config)})
    store = open_configured_store(url, keys, machine=Machine())
    try:
        manifests = sorted(info.key for info in store.iter_objects() if info.key.endswith(".rsm-manifest"))
        store.delete(manifests[:1])
        store.put("in/notes.txt", b"not ours")
        upload = store.begin_upload(manifests[1].replace(".rsm-manifest", ".log"), part_bytes=PART_BYTES)
        upload.put_part(1, [bytes(PART_BYTES)])
        listed = len(list(store.iter_uploads()))
        arguments = ("orphans", url, "--config", config, "--output", "json")
        assert tierlog(*arguments).lines == []  # all is younger than a day
        done = tierlog(*arguments, "--older-than", "0s", "--delete")
        assert (done.code, all(line["deleted"] for line in done.lines)) == (0, True)
        assert sorted(str(line["kind"]) for line in done.lines) == ["leftover"] + ["upload"] * listed
        assert list(store.iter_uploads()) == []
        left = sorted(info.key for info in store.iter_objects())
        assert len(left) == 3 * (len(manifests) - 1) + 1
        upload.abort()
    finally:
        store.close()
    assert tierlog("copy", source, url, TOPIC, "--dest-config", config).code == 0
    assert tierlog("orphans", url, "--config", config, "--older-than", "0s").code == 0
