"""SIGHUP: other credentials and other pairs of keys, with nothing of the work interrupted."""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

from tests.support.segments import make_segment, sound_log
from tests.support.servers import BUCKET, OTHER_KEYS, StoreServer
from tests.support.sidecars import RunningSidecar, SidecarError, sidecar, storage_keys

KEYS = pathlib.Path(__file__).parents[1] / "data"


def reloaded(server: RunningSidecar, text: str) -> None:
    """SIGHUP, until the log says how it ended."""
    before = server.log.read_text().count(text)
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while server.log.read_text().count(text) == before:
        assert time.monotonic() < deadline, server.log.read_text()[-2000:]
        time.sleep(0.02)


def write_keys(config: pathlib.Path, keys: dict[str, str]) -> None:
    config.write_text("".join(f"rsm.config.{key}={value}\n" for key, value in keys.items()))


def test_pairs_of_keys_are_read_again(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a rotation of keys stops what is tiered, or needs a restart of every broker."""
    (tmp_path / "bucket").mkdir()
    folder = data / "keys"
    pairs = sorted(each.name for each in folder.iterdir() if each.is_dir())[:2]

    def with_pairs(*names: str) -> dict[str, str]:
        keys = storage_keys(tmp_path / "bucket", encryption_enabled="true")
        keys |= {"encryption.key.pair.id": names[-1], "encryption.key.pairs": ",".join(names)}
        for name in names:
            for kind in ("public", "private"):
                keys[f"encryption.key.pairs.{name}.{kind}.key.file"] = str(folder / name / f"{kind}.der")
        return keys

    segments = [
        make_segment(sound_log(batches=20), topic=name).closed_in(tmp_path / "logs" / f"{name}-0") for name in "abc"
    ]
    first = with_pairs(pairs[0])
    with sidecar(tmp_path, first, "--allow-logs", tmp_path / "logs") as server, server.client() as client:
        old, unread = (each.finished(client.copy(each)) for each in (segments[0], segments[2]))
        write_keys(tmp_path / "sidecar.properties", with_pairs(*pairs))
        reloaded(server, "event=configuration_reloaded")
        new = segments[1].finished(client.copy(segments[1]))
        assert client.fetch(old) == segments[0].log
        assert client.fetch(new) == segments[1].log
        manifests = [path.read_text() for path in sorted((tmp_path / "bucket").rglob("*.rsm-manifest"))]
        assert [pair for text in manifests for pair in pairs if f'"dataKey":"{pair}:' in text] == [*pairs, pairs[0]]
        write_keys(tmp_path / "sidecar.properties", with_pairs(*pairs) | {"chunk.size": "1000"})
        reloaded(server, "event=configuration_kept")
        assert "chunk.size: another value needs a new start" in server.log.read_text()
        write_keys(tmp_path / "sidecar.properties", with_pairs(pairs[1]))
        reloaded(server, "event=configuration_reloaded")
        with pytest.raises(SidecarError, match=f"no private key with id '{pairs[0]}'"):
            client.fetch(unread, 0, 5)
        assert client.fetch(new) == segments[1].log


@pytest.mark.server
def test_credentials_are_read_again(s3: StoreServer, tmp_path: pathlib.Path) -> None:
    """If this fails, credentials that are rotated end the tiering of all brokers of a machine."""
    keys = {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": BUCKET,
        "storage.s3.region": "us-east-1",
        "key.prefix": f"{tmp_path.name}/",
        "chunk.size": "65536",
        **s3.options,
    }
    segment = make_segment(sound_log(batches=20)).closed_in(tmp_path / "logs" / "orders-0")
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server, server.client() as client:
        metadata = segment.finished(client.copy(segment))
        wrong = keys | {"store.access_key_id": "nobody", "store.secret_access_key": "nothing"}
        write_keys(tmp_path / "sidecar.properties", wrong)
        reloaded(server, "event=configuration_reloaded")
        with pytest.raises(SidecarError):
            client.fetch(metadata, 0, 70_000)
        other = keys | {"store.access_key_id": OTHER_KEYS[0], "store.secret_access_key": OTHER_KEYS[1]}
        write_keys(tmp_path / "sidecar.properties", other)
        reloaded(server, "event=configuration_reloaded")
        assert client.fetch(metadata) == segment.log
        client.delete(metadata)
