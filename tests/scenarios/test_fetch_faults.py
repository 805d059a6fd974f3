"""Fetches from a real S3 server behind a proxy that breaks requests: the right bytes, or an error that says why."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.storage_manager_suite import index_bytes
from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import NO_SUCH_HOST, PATIENT, FaultProxy, limits_for
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import ends
from tierlog.remote.api import (
    IndexType,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

CHUNK = 1 << 20
SLOW = pytest.mark.slow  # the store's time limit passes, or pauses between tries
#: Not in the manifest's key, nor in that of the indexes.
LOG = ".log"


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    """Four chunks and a bit."""
    return make_segment(sound_log(17, base_offset=100, batch_bytes=520_100)).closed_in(tmp_path_factory.mktemp("large"))


@dataclass
class Broken:
    """A bucket with the segment, behind a proxy."""

    proxy: FaultProxy
    url: str
    options: dict[str, str]
    segment: ClosedSegment

    def manager(self, tmp_path: pathlib.Path, shape: str, **options: str) -> TieredStorageManager:
        store = open_store(self.url, self.options | {"store.endpoint": self.proxy.endpoint} | options)
        manager = TieredStorageManager(wrap_store=lambda _: store)
        manager.configure(local_keys(tmp_path / "unused") | SHAPES[shape] | {"chunk.size": str(CHUNK)})
        return manager


@pytest.fixture
def broken(s3: StoreServer, segment: ClosedSegment) -> Iterator[Broken]:
    with FaultProxy.before(s3) as proxy:
        yield Broken(proxy, f"{s3.url}/fetches/{uuid.uuid4()}", dict(s3.options), segment)


def copied(broken: Broken, manager: TieredStorageManager) -> Any:
    """The segment's metadata, after a sound copy."""
    custom = manager.copy_log_segment_data(broken.segment.metadata, broken.segment.data)
    return broken.segment.finished(custom)


PASSING = [
    ("reset", {}),
    pytest.param("stall", {}, marks=SLOW),
    pytest.param("stall_after", {}, marks=SLOW),
    ("status", {"status": 503}),
    ("status", {"status": 429, "headers": {"Retry-After": "1"}}),
    ("status", {"status": 500}),
    ("lost", {}),
    ("truncate", {"after_bytes": 100}),
    pytest.param("slow", {"after_bytes": 200_000}, marks=SLOW),
]


@pytest.mark.few(4)
@pytest.mark.parametrize("shape", ["aiven-zstd-aes", "kafka"])
@pytest.mark.parametrize(("kind", "more"), PASSING)
def test_a_fetch_survives_what_passes(
    kind: str, more: dict[str, Any], shape: str, broken: Broken, tmp_path: pathlib.Path
) -> None:
    """One bad second of a store must not be an error that a consumer sees, nor a byte that is wrong."""
    with broken.manager(tmp_path, shape, **limits_for(kind)) as manager:
        metadata = copied(broken, manager)
        rules = [
            broken.proxy.add(kind, verb="GET", path=path, **more)
            for path in ("segment.json" if shape == "kafka" else "rsm-manifest", LOG, "index")
        ]
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == broken.segment.log
        with manager.fetch_index(metadata, IndexType.OFFSET) as stream:
            assert stream.read() == pathlib.Path(broken.segment.data.offset_index).read_bytes()
        assert [rule.struck for rule in rules] == [1, 1, 1]


@pytest.mark.few(3)
@pytest.mark.parametrize("path", ["rsm-manifest", LOG])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("status", {"status": 503}),
        ("reset", {}),
        ("truncate", {"after_bytes": 10}),
        pytest.param("stall", {}, marks=SLOW),
    ],
)
def test_a_store_that_stays_ill_is_an_error_in_time(
    kind: str, more: dict[str, Any], path: str, broken: Broken, tmp_path: pathlib.Path
) -> None:
    """A broker's fetch threads are few; and what it may try again it must be told."""
    with broken.manager(tmp_path, "aiven-plain", **limits_for(kind, retries=1)) as manager:
        metadata = copied(broken, manager)
        broken.proxy.add(kind, verb="GET", path=path, times=None, **more)
        with ends(), pytest.raises(RetriableRemoteStorageException):
            manager.fetch_log_segment(metadata, 0).read()
        assert manager.metrics.value("errors_total", operation="fetch_segment", kind="unavailable") == 1
        broken.proxy.clear()
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == broken.segment.log


def wrong_indexes(segment: ClosedSegment, manager: TieredStorageManager, metadata: Any, *, encrypted: bool) -> int:
    """How many are errors, or, where nothing is encrypted, other bytes."""
    found = 0
    for kind, expected in index_bytes(segment).items():
        try:
            with manager.fetch_index(metadata, kind) as stream:
                data = stream.read()
        except RemoteStorageException:
            found += 1
        else:
            assert data == expected or not encrypted, kind
            found += data != expected
    return found


@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd-aes"])
@pytest.mark.parametrize("path", [LOG, ".indexes"])
def test_a_wrong_body_is_never_given(shape: str, path: str, broken: Broken, tmp_path: pathlib.Path) -> None:
    """A bit that a network card flipped becomes a wrong record, or a seek to another one."""
    with broken.manager(tmp_path, shape, **PATIENT) as manager:
        metadata = copied(broken, manager)
        rule = broken.proxy.add("wrong", verb="GET", path=path)
        if path == LOG:
            with pytest.raises(RemoteStorageException) as caught:
                manager.fetch_log_segment(metadata, 0).read()
            assert not isinstance(caught.value, RemoteResourceNotFoundException)
        else:
            # Nothing has a checksum of a plain index: docs/authenticity.md says so.
            encrypted = shape == "aiven-zstd-aes"
            assert wrong_indexes(broken.segment, manager, metadata, encrypted=encrypted) <= 1
        assert rule.struck == 1
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == broken.segment.log


@pytest.mark.parametrize(
    ("status", "code", "error", "kind"),
    [
        (403, "AccessDenied", RemoteStorageException, "refused"),
        (400, "ExpiredToken", RemoteStorageException, "refused"),
        (404, "NoSuchBucket", RemoteResourceNotFoundException, "not_found"),
    ],
)
def test_rights_or_a_bucket_that_go_halfway(
    status: int, code: str, error: type[Exception], kind: str, broken: Broken, tmp_path: pathlib.Path
) -> None:
    """What an operator must mend must not look like a slow store, and what was read before must not be doubted."""
    with broken.manager(tmp_path, "aiven-plain", **PATIENT) as manager:
        metadata = copied(broken, manager)
        with manager.fetch_log_segment(metadata, 0) as stream:
            first = stream.read(1000)
            broken.proxy.add("status", status=status, code=code, times=None)
            with pytest.raises(error) as caught:
                first += stream.read()
        assert broken.segment.log.startswith(first)
        assert not isinstance(caught.value, RetriableRemoteStorageException)
        assert manager.metrics.value("errors_total", operation="fetch_segment", kind=kind) == 1
        broken.proxy.clear()
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == broken.segment.log


def test_a_name_that_no_longer_resolves(s3: StoreServer, segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """DNS that is gone is not a segment that is gone: Kafka would give up on it."""
    options = dict(s3.options) | {"store.endpoint": f"http://{NO_SUCH_HOST}:8333"} | limits_for("reset", retries=1)
    store = open_store(f"{s3.url}/nowhere", options)
    with TieredStorageManager(wrap_store=lambda _: store) as manager:
        manager.configure(local_keys(tmp_path / "unused") | {"store.probe.enabled": "false"})
        with pytest.raises(RetriableRemoteStorageException):
            manager.fetch_log_segment(segment.finished(), 0)


def test_a_download_that_breaks_off_goes_on_where_it_stopped(broken: Broken, tmp_path: pathlib.Path) -> None:
    """The download limit counts each byte once: that holds as long as none comes twice."""
    with broken.manager(tmp_path, "kafka", **PATIENT) as manager:
        manager.change_rate_limit("download", 100 << 20)
        metadata = copied(broken, manager)
        broken.proxy.add("truncate", verb="GET", path=LOG, after_bytes=300_000, times=3)
        before = len(broken.proxy.seen)
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == broken.segment.log
        seen = [each for each in broken.proxy.seen[before:] if LOG in each.path and each.verb == "GET"]
    spans = [tuple(map(int, each.range.removeprefix("bytes=").split("-"))) for each in seen]
    cut = [300_000 if each.fault else last - first + 1 for each, (first, last) in zip(seen, spans, strict=True)]
    assert sum(each.fault is not None for each in seen) == 3
    assert sum(cut) == broken.segment.metadata.segment_size_in_bytes
