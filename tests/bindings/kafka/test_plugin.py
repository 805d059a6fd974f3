"""The plugin's class in a JVM, with the sidecar that it starts or finds: a broker's calls, and what befalls both."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.peers.plugin_peer import (
    PluginError,
    PluginPeer,
    child_keys,
    compiled_with,
    copy_of,
    live_children,
    our_jar,
    running,
    segment_json,
    sum_of,
)
from tests.support.segments import Aborted, make_segment, sound_log
from tests.support.sidecars import sidecar, storage_keys
from tests.support.waiting import wait_until
from tierlog.remote.api import IndexType
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager

SECRET = "a-secret-of-the-store"


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path


@pytest.fixture
def keys(place: pathlib.Path) -> dict[str, str]:
    return storage_keys(place / "bucket", compression_enabled="true")


@pytest.fixture
def segment(place: pathlib.Path) -> ClosedSegment:
    made = make_segment(sound_log(batches=2000, batch_bytes=2100), aborted=[Aborted(7, 3, 5, 3)])
    return made.closed_in(place / "logs" / "orders-0")


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    return compiled_with(our_jar(), tmp_path_factory.mktemp("peer"))


@pytest.fixture
def peer(place: pathlib.Path, class_path: str) -> Iterator[PluginPeer]:
    with running(place, class_path) as started:
        yield started


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def socket_folder(child: int) -> pathlib.Path:
    arguments = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
    return pathlib.Path(arguments[arguments.index("--listen") + 1].removeprefix("unix:")).parent


def objects(place: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in (place / "bucket").rglob("*") if path.is_file()]


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


def test_modules_of_the_brokers_folder_are_not_the_sidecars(
    place: pathlib.Path, class_path: str, keys: dict[str, str]
) -> None:
    """If this fails, a file beside a broker gets the keys of its bucket, or one called random.py ends tiering."""
    for name in ("tierlog", "random"):
        (place / f"{name}.py").write_text("raise SystemExit('planted')")
    with running(place, class_path) as peer:
        peer.configure(child_keys(keys))


def test_what_is_copied_is_read_and_removed(
    peer: PluginPeer, place: pathlib.Path, keys: dict[str, str], segment: ClosedSegment
) -> None:
    """If this fails, a broker loses what it has tiered, or keeps what it has deleted."""
    peer.configure(child_keys(keys))
    metadata = segment.finished(peer.copy(segment))
    log = segment.log
    assert len(log) > 3 << 20
    for at_once in (17, 4096, 70_000, 1 << 20, 8 << 20):
        assert peer.fetch_sum(metadata, at_once=at_once) == sum_of(log)
    for start, end in ((0, 0), (1000, 70_000), (65_535, 65_536), (len(log) - 1, len(log)), (5, 2**31 - 1)):
        for at_once in (4096, 1 << 20):
            assert peer.fetch_sum(metadata, start, end, at_once=at_once) == sum_of(log[start : end + 1])
    for kind, content in parts_of(segment).items():
        assert peer.index_sum(metadata, kind) == sum_of(content)
    with TieredStorageManager() as manager:
        manager.configure(keys)
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == log
    peer.delete(metadata)
    assert objects(place) == []
    peer.delete(metadata)
    with pytest.raises(PluginError) as raised:
        peer.fetch_sum(metadata)
    assert raised.value.kind == "RemoteResourceNotFoundException"
    with pytest.raises(PluginError) as raised:
        peer.index_sum(metadata, IndexType.OFFSET)
    assert raised.value.kind == "RemoteResourceNotFoundException"


def test_an_absent_transaction_index(peer: PluginPeer, place: pathlib.Path, keys: dict[str, str]) -> None:
    """If this fails, Kafka takes an error for the absence, and serves no reader of committed records."""
    peer.configure(child_keys(keys))
    made = make_segment(sound_log(batches=3), topic="plain").closed_in(place / "logs" / "plain-0")
    metadata = made.finished(peer.copy(made))
    for known in (metadata, replace(metadata, txn_idx_empty=False)):
        with pytest.raises(PluginError) as raised:
            peer.index_sum(known, IndexType.TRANSACTION)
        assert raised.value.kind == "RemoteResourceNotFoundException"


def test_streams_outlive_a_sidecar_that_is_killed(
    peer: PluginPeer, keys: dict[str, str], segment: ClosedSegment
) -> None:
    """If this fails, a crash of the sidecar ends all tiering until the broker is restarted."""
    peer.configure(child_keys(keys))
    metadata = segment.finished(peer.copy(segment))
    log = segment.log
    before = peer.heap_bytes()
    for number in range(200):
        peer.open(number, metadata, number * 1000)
        assert peer.read(number, 10) == log[number * 1000 :][:10]
    assert peer.heap_bytes() - before < 2 << 20, "what is open costs the broker's heap nothing to speak of"
    for _ in range(2):
        (child,) = live_children(peer.pid)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda child=child: not is_alive(child))
        assert peer.fetch_sum(metadata, 70_000, 90_000) == sum_of(log[70_000:90_001])
    for number in range(0, 200, 4):
        assert peer.read(number, 200_000) == log[number * 1000 + 10 :][:200_000]
        peer.shut(number)
    peer.delete(metadata)


def test_interrupted_calls_are_errors(
    peer: PluginPeer, place: pathlib.Path, keys: dict[str, str], segment: ClosedSegment
) -> None:
    """If this fails, a follower takes an empty segment for the truth, or an interrupted copy leaves objects behind."""
    peer.configure(child_keys(keys))
    metadata = segment.finished(peer.copy(segment))
    peer.open(0, metadata)
    assert peer.read(0, 10) == segment.log[:10]
    again = segment.with_id(7)
    before = set(objects(place))
    (child,) = live_children(peer.pid)
    calls: list[tuple[str, dict[str, object]]] = [
        ("copy", copy_of(again)),
        ("fetch", {"segment": segment_json(metadata), "start": 0, "at_once": 4096}),
        ("index", {"segment": segment_json(metadata), "type": "OFFSET"}),
        ("read", {"stream": 0, "count": 500_000}),
    ]
    for name, more in calls:
        os.kill(child, signal.SIGSTOP)
        try:
            peer.begin(name, **more)
            with pytest.raises(PluginError) as raised:
                peer.interrupt()
        finally:
            os.kill(child, signal.SIGCONT)
        assert raised.value.interrupted, name
        kind = raised.value.cause if name == "read" else raised.value.kind
        assert kind in ("RemoteStorageException", "RetriableRemoteStorageException"), name
    assert peer.read(0, 500_000) == segment.log[65_536:565_536], (
        "behind the piece that the interrupted read had begun with"
    )
    wait_until(lambda: set(objects(place)) == before)
    peer.delete(again.metadata)


def test_the_child_shows_no_secret_and_ends_with_the_jvm(
    place: pathlib.Path, class_path: str, keys: dict[str, str]
) -> None:
    """If this fails, every user reads the store's key, or each kill of a broker leaves a process or a folder."""
    proxy = {"storage.proxy.host": "127.0.0.1", "storage.proxy.port": "1", "storage.proxy.username": "me"}
    proxy["storage.proxy.password"] = SECRET
    with running(place, class_path) as peer:
        peer.configure(child_keys(keys | proxy))
        (child,) = live_children(peer.pid)
        for name in ("cmdline", "environ"):
            assert SECRET.encode() not in pathlib.Path(f"/proc/{child}/{name}").read_bytes()
        folder = socket_folder(child)
        assert folder.name.startswith("tierlog")
        assert folder.exists()
        os.kill(peer.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(child))
        assert not folder.exists()
    with running(place, class_path) as peer:
        peer.configure(child_keys(keys))
        (child,) = live_children(peer.pid)
        folder = socket_folder(child)
        peer.close()
        assert not is_alive(child)
        assert not folder.exists()
        with pytest.raises(PluginError, match="closed"):
            peer.delete(make_segment(sound_log(batches=1)).metadata)


def test_why_no_sidecar_starts_is_said(peer: PluginPeer, keys: dict[str, str]) -> None:
    """If this fails, an operator has a broker that does not start, and no reason."""
    with pytest.raises(PluginError, match=r"chunk\.size") as raised:
        peer.configure(child_keys({**keys, "chunk.size": "many"}))
    assert raised.value.kind == "ConfigException"


def test_a_sidecar_that_runs(
    peer: PluginPeer, place: pathlib.Path, class_path: str, keys: dict[str, str], segment: ClosedSegment
) -> None:
    """If this fails, brokers of one machine cannot share a sidecar, or use one of another configuration."""
    with sidecar(place, keys, "--allow-logs", place / "logs") as server:
        peer.configure({**keys, "broker.id": 3, "tierlog.socket": server.path})
        assert live_children(peer.pid) == []
        metadata = segment.finished(peer.copy(segment))
        assert peer.fetch_sum(metadata) == sum_of(segment.log)
        elsewhere = make_segment(sound_log(batches=2), topic="out").closed_in(place / "elsewhere" / "out-0")
        with pytest.raises(PluginError) as raised:
            peer.copy(elsewhere)
        assert raised.value.kind == "RemoteStorageException"
        assert peer.beans("io.tierlog:*") != {}
        peer.close()
        assert peer.beans("io.tierlog:*") == {}
        with running(place, class_path) as other:
            with pytest.raises(PluginError, match=r"rsm\.config") as raised:
                other.configure({**keys, "chunk.size": 1, "tierlog.socket": server.path})
            assert raised.value.kind == "ConfigException"
