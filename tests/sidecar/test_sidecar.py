"""A sidecar as a process, through its socket: what a broker's plugin asks for, over the plugin's objects."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.segments import Aborted, make_segment, sound_log
from tests.support.sidecars import (
    CONFIGURATION,
    NOT_FOUND,
    REFUSED,
    RunningSidecar,
    SidecarError,
    sidecar,
    storage_keys,
)
from tierlog.remote.api import IndexType
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.sidecar.protocol import config_digest


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("sidecar")


@pytest.fixture(scope="module")
def keys(place: pathlib.Path) -> dict[str, str]:
    (place / "bucket").mkdir()
    return storage_keys(place / "bucket", compression_enabled="true")


@pytest.fixture(scope="module")
def segment(place: pathlib.Path) -> ClosedSegment:
    made = make_segment(sound_log(batches=200, records=10), aborted=[Aborted(7, 3, 5, 3)])
    return made.closed_in(place / "logs" / "orders-0")


@pytest.fixture(scope="module")
def server(place: pathlib.Path, keys: dict[str, str], segment: ClosedSegment) -> Iterator[RunningSidecar]:
    with sidecar(place, keys, "--allow-logs", place / "logs") as running:
        yield running


def parts_of(segment: ClosedSegment) -> dict[IndexType, bytes]:
    data = segment.data
    assert data.transaction_index is not None
    return {
        IndexType.OFFSET: pathlib.Path(data.offset_index).read_bytes(),
        IndexType.TIMESTAMP: pathlib.Path(data.time_index).read_bytes(),
        IndexType.PRODUCER_SNAPSHOT: pathlib.Path(data.producer_snapshot).read_bytes(),
        IndexType.TRANSACTION: pathlib.Path(data.transaction_index).read_bytes(),
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
    }


class TestSegments:
    def test_what_is_copied_is_read_and_removed(
        self, server: RunningSidecar, segment: ClosedSegment, place: pathlib.Path, keys: dict[str, str]
    ) -> None:
        """If this fails, a broker loses what it has tiered; the objects are those of the manager in process."""
        with server.client() as client:
            metadata = segment.finished(client.copy(segment))
            log = segment.log
            assert client.fetch(metadata) == log
            assert client.fetch(metadata, piece=777) == log
            assert client.fetch(metadata, 1000, 70_000, piece=4096) == log[1000:70_001]
            assert client.fetch(metadata, 5, 5) == log[5:6]
            assert client.fetch(metadata, 5, 1 << 30) == log[5:]
            for kind, content in parts_of(segment).items():
                assert client.index(metadata, kind) == content
                assert client.index(metadata, kind, piece=11) == content
            with TieredStorageManager() as manager:
                manager.configure(keys)
                with manager.fetch_log_segment(metadata, 0) as stream:
                    assert stream.read() == log
            client.delete(metadata)
            client.delete(metadata)
            assert [path for path in (place / "bucket").rglob("*") if path.is_file()] == []
            with pytest.raises(SidecarError) as raised:
                client.fetch(metadata)
            assert raised.value.status == NOT_FOUND

    def test_a_copy_may_be_repeated(self, server: RunningSidecar, segment: ClosedSegment, place: pathlib.Path) -> None:
        """If this fails, a broker that asks again is refused for ever."""
        with server.client() as client:
            first, sizes = client.copy_and_sizes(segment)
            stored = {path.suffix: path.stat().st_size for path in (place / "bucket").rglob("*") if path.is_file()}
            assert sizes == tuple(stored[kind] for kind in (".log", ".indexes", ".rsm-manifest"))
            assert client.copy_and_sizes(segment) == (first, (-1, -1, -1)), "what was there is not stored again"
            client.delete(segment.finished(first))

    def test_a_transaction_index_that_there_is_not(self, server: RunningSidecar, place: pathlib.Path) -> None:
        """If this fails, Kafka takes an error for the absence, or the absence for an error."""
        made = make_segment(sound_log(batches=3), topic="plain").closed_in(place / "logs" / "plain-0")
        with server.client() as client:
            metadata = made.finished(client.copy(made))
            for known in (metadata, replace(metadata, txn_idx_empty=False)):
                with pytest.raises(SidecarError) as raised:
                    client.index(known, IndexType.TRANSACTION)
                assert raised.value.status == NOT_FOUND
            client.delete(metadata)

    @pytest.mark.parametrize(("start", "end"), [(-2, 5), (9, 8), (1 << 30, -1), (0, -5)])
    def test_a_range_that_there_is_not(
        self, server: RunningSidecar, segment: ClosedSegment, start: int, end: int
    ) -> None:
        """If this fails, a broker is given no bytes, and asks again and again."""
        with server.client() as client:
            metadata = segment.finished(client.copy(segment))
            with pytest.raises(SidecarError) as raised:
                client.fetch(metadata, start, end)
            assert raised.value.status == REFUSED
            assert client.fetch(metadata, 0, 3) == segment.log[:4], "the connection goes on"
            client.delete(metadata)


def test_an_index_that_no_cache_holds_is_fetched_once(place: pathlib.Path, segment: ClosedSegment) -> None:
    """If this fails, an index of ten mebibytes is fetched whole for each of its pieces."""
    folder = place / "uncached"
    folder.mkdir()
    (folder / "bucket").mkdir()
    keys = storage_keys(folder / "bucket", fetch_indexes_cache_size="0")
    with sidecar(folder, keys, "--allow-logs", place / "logs") as running, running.client() as client:
        metadata = segment.finished(client.copy(segment))
        before = client.mbeans()["io.tierlog:type=storage,verb=GET"]["tierlog_remote_store_requests_total"]
        content = parts_of(segment)[IndexType.OFFSET]
        assert client.index(metadata, IndexType.OFFSET, piece=len(content) // 20) == content
        after = client.mbeans()["io.tierlog:type=storage,verb=GET"]["tierlog_remote_store_requests_total"]
        assert after - before <= 2, "the manifest, and the index"


class TestHello:
    def test_versions_and_release(self, server: RunningSidecar) -> None:
        """If this fails, a plugin of another release is served, or one of this is not."""
        from tierlog import __version__

        with server.client(greets=False) as client:
            assert client.hello(0, 9) == (1, __version__, server.process.pid)
        for versions in ((0, 0), (2, 9)):
            with server.client(greets=False) as client, pytest.raises(SidecarError, match="version 1") as raised:
                client.hello(*versions)
            assert raised.value.status == CONFIGURATION

    def test_the_configuration_is_compared(self, server: RunningSidecar, keys: dict[str, str]) -> None:
        """If this fails, a broker writes objects by another configuration than it was given."""
        own = {**keys, "broker.id": "7", "tierlog.socket": "/x"}
        with server.client(digest=config_digest(own)) as client:
            assert client.health() == ""
        with server.client(greets=False) as client:
            with pytest.raises(SidecarError, match=r"rsm\.config") as raised:
                client.hello(digest=config_digest({**keys, "chunk.size": "1"}))
            assert raised.value.status == CONFIGURATION

    def test_it_comes_first_and_once(self, server: RunningSidecar) -> None:
        """If this fails, a client of another protocol is served."""
        with server.client(greets=False) as client, pytest.raises(EOFError):
            client.health()
        with server.client() as client, pytest.raises(EOFError):
            client.hello()


class TestPaths:
    def test_others_are_refused(
        self, server: RunningSidecar, segment: ClosedSegment, place: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        """If this fails, a client copies any file of the machine into the bucket, and reads it there."""
        log = pathlib.Path(segment.data.log_segment)
        outside = make_segment(sound_log(batches=3)).closed_in(tmp_path / "orders-0")
        (place / "logs" / "orders-1").mkdir(exist_ok=True)
        linked = place / "logs" / "linked-0"
        if not linked.is_symlink():
            linked.symlink_to(tmp_path / "orders-0")
        others = [
            "/etc/passwd",
            "relative/orders-0/00000000000000000000.log",
            f"{log.parent}/../orders-0/{log.name}x",
            f"{log.parent}/00000000000000000001.log",
            f"{log.parent.parent}/orders-1/{log.name}",
            f"{log.parent.parent}/orders-0/../orders-1/{log.name}",
            str(outside.data.log_segment),
            "",
        ]
        with server.client() as client:
            for path in others:
                with pytest.raises(SidecarError) as raised:
                    client.copy(segment, log_segment=path)
                assert raised.value.status == REFUSED, path
        assert not any(path.is_file() for path in (place / "bucket").rglob("*"))

    def test_links_are_not_followed(self, server: RunningSidecar, place: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, whoever may write into a log directory has any file copied."""
        made = make_segment(sound_log(batches=3), topic="links").closed_in(place / "logs" / "links-0")
        log = pathlib.Path(made.data.log_segment)
        log.rename(tmp_path / "kept.log")
        with server.client() as client:
            log.symlink_to(tmp_path / "kept.log")
            with pytest.raises(SidecarError, match=r"links-0") as raised:
                client.copy(made)
            assert raised.value.status == REFUSED
            log.unlink()
            os.mkfifo(log)
            with pytest.raises(SidecarError, match="regular"):
                client.copy(made)
            log.unlink()
            (tmp_path / "kept.log").rename(log)
            folder = log.parent.rename(tmp_path / "links-0")
            log.parent.symlink_to(folder)
            with pytest.raises(SidecarError):
                client.copy(made)
            log.parent.unlink()
