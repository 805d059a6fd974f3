"""What a failed copy answers: Kafka 4.x cleans up behind a copy, but not behind one that is said to be retriable."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.segments import make_segment, sound_log
from tests.support.servers import BUCKET, StoreServer
from tests.support.sidecars import FAILED, RETRIABLE, SidecarError, sidecar

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("kind", "status"),
    [("none is there", RETRIABLE), ("status", FAILED), ("lost", FAILED), ("reset", FAILED)],
    ids=["not reached", "busy", "stored without an answer", "broken off"],
)
def test_a_copy_is_retriable_if_nothing_of_it_is_left(
    s3: StoreServer, tmp_path: pathlib.Path, kind: str, status: int
) -> None:
    """If this fails, each failed copy leaves objects that nobody deletes: the next attempt has another id."""
    segment = make_segment(sound_log(batches=50)).closed_in(tmp_path / "logs" / "orders-0")
    with FaultProxy.before(s3) as proxy:
        keys = {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
            "storage.s3.bucket.name": BUCKET,
            "storage.s3.region": "us-east-1",
            "key.prefix": f"{tmp_path.name}/",
            "chunk.size": "65536",
            **s3.options,
            "store.endpoint": proxy.endpoint,
            "store.max_retries": "0",
        }
        with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server, server.client() as client:
            if status == RETRIABLE:
                proxy.__exit__()
            else:
                proxy.add(kind, verb="PUT", ending=".indexes")
            with pytest.raises(SidecarError) as raised:
                client.copy(segment)
            assert raised.value.status == status, raised.value
            if status == RETRIABLE:
                return
            metadata = segment.finished(client.copy(segment))
            assert client.fetch(metadata) == segment.log
            client.delete(metadata)
