"""A broker that tiers through the plugin while it, its sidecar and the store are killed, the store stalls, and the disk
of the chunk cache is full.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import obstore
import pytest
from obstore.store import S3Store

from tests.interop.test_plugin_cluster import catted
from tests.support.broker_pair import eventually, segments
from tests.support.command import run_process
from tests.support.fault_proxy import FaultProxy
from tests.support.metadata_cluster import delete_topic, make_topic, needs_a_broker
from tests.support.peers import broker
from tests.support.plugin_brokers import broker_keys, form_keys, s3_keys
from tests.support.servers import BUCKET, StoreServer, seaweed

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC = "orders"
#: How long faults come.
SECONDS = float(os.environ.get("TIERLOG_KILL_SECONDS", "600"))
CATCH_UP_SECONDS = 60.0
PAUSE_SECONDS = 12.0
PARTITIONS = 2
#: Of a pass of the reader.
READ_SECONDS = 20.0
#: Less than the chunk cache may take.
DISK_BYTES = 12 << 20


class Killed:
    """The broker, the store and the proxy in front of that; each can be killed and comes back."""

    def __init__(self, folder: pathlib.Path, server: StoreServer, proxy: FaultProxy, extra: dict[str, str]) -> None:
        self.folder, self.server, self.proxy, self.extra = folder, server, proxy, extra
        self.port = broker.free_port()
        self._filling = folder / "cache" / "of-another-program"
        self._broker = ExitStack()
        self._store: subprocess.Popen[bytes] | None = None
        self.running: broker.Broker
        self.done: list[str] = []

    def start(self) -> None:
        made = broker.running(self.folder / "broker", heap="768m", extra=self.extra, port=self.port)
        self.running = self._broker.enter_context(made)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill_broker(self) -> None:
        self.running.process.kill()
        self._broker.close()
        self.start()

    def kill_sidecar(self) -> None:
        children = pathlib.Path(f"/proc/{self.running.process.pid}/task")
        found = [int(pid) for each in children.glob("*/children") for pid in each.read_text().split()]
        assert found, "the broker has no sidecar"
        os.kill(found[0], signal.SIGKILL)

    def kill_store(self) -> None:
        """The store comes back over the same data, at the same ports."""
        pid = self.server.pid if self._store is None else self._store.pid
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if self._store is None:
            os.kill(pid, signal.SIGKILL)
        else:
            self._store.kill()
            self._store.wait()
        time.sleep(2)
        with (self.folder / "store.log").open("ab") as log:
            self._store = subprocess.Popen(command, stdout=log, stderr=log)

    def fill_disk(self) -> None:
        """The disk of the chunk cache has no room until the next fault."""
        with contextlib.suppress(OSError), self._filling.open("ab") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()

    def empty_disk(self) -> None:
        self._filling.unlink(missing_ok=True)

    def stall_store(self) -> None:
        self.proxy.add("stall", times=None, seconds=8.0)

    def close(self) -> None:
        self._broker.close()
        if self._store is not None:
            self._store.kill()
            self._store.wait()


class Writer(threading.Thread):
    """Writes numbers, one after the other, until it is told; remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, "delivery.timeout.ms": 600_000, "message.timeout.ms": 600_000})
        self._is_ending = threading.Event()
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.failed: list[str] = []

    def run(self) -> None:
        number = 0
        chance = random.Random(1)
        while not self._is_ending.is_set():
            partition = number % PARTITIONS
            value = b"%012d" % number + chance.randbytes(2000)
            with contextlib.suppress(BufferError):
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.002)
        assert self._producer.flush(300) == 0

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        number = int(message.value()[:12])  # type: ignore[attr-defined]
        self.acknowledged[number % PARTITIONS].append(number)

    def end(self) -> None:
        self._is_ending.set()
        self.join(320)
        assert not self.is_alive()


def read_back(bootstrap: str, partition: int, count: int) -> list[int]:
    """The numbers of a partition from its start on, at least so many."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    found: list[int] = []
    until = time.monotonic() + 300
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count}"
            found += [int(each.value()[:12]) for each in consumer.consume(1000, 1.0) if each.error() is None]
    finally:
        consumer.close()
    return found


class Reader(threading.Thread):
    """Reads the first partition from its start on, again and again: the tier is read while things fail."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._is_ending = threading.Event()
        self.count = 0
        self.failed: list[str] = []

    def run(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False})
        while not self._is_ending.is_set():
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            until, expected = time.monotonic() + READ_SECONDS, 0
            while time.monotonic() < until and not self._is_ending.is_set():
                for each in consumer.consume(1000, 1.0):
                    if each.error() is None:
                        number = int(each.value()[:12])
                        if number != expected:
                            self.failed.append(f"{number} where {expected} comes next")
                        expected = number + PARTITIONS
                        self.count += 1
        consumer.close()

    def end(self) -> None:
        self._is_ending.set()
        self.join(60)
        assert not self.is_alive()


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size_bytes: int) -> Iterator[None]:
    """A file system of so many bytes, where this user may mount one; else a folder of the disk that is there."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder)]
    is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def killed(tmp_path: pathlib.Path, data: pathlib.Path) -> Iterator[tuple[Killed, dict[str, str]]]:
    needs_a_broker()
    store = tmp_path / "store"
    store.mkdir()
    with (
        seaweed(store) as server,
        FaultProxy.before(server) as proxy,
        small_disk(tmp_path / "cache", DISK_BYTES),
    ):
        keys = s3_keys(server, "tier/") | form_keys("zstd + AES", data, tmp_path)
        keys["storage.s3.endpoint.url"] = proxy.endpoint
        cache = {"class": "disk", "size": str(16 << 20), "path": str(tmp_path / "cache")}
        keys |= {f"fetch.chunk.cache.{name}": value for name, value in cache.items()}
        made = Killed(tmp_path, server, proxy, broker_keys(keys, ours=True))
        made.start()
        try:
            yield made, keys
        finally:
            made.close()


def test_nothing_is_lost_and_nothing_doubled(killed: tuple[Killed, dict[str, str]], tmp_path: pathlib.Path) -> None:
    """If this fails, a night of restarts costs records, or leaves objects that nobody finds."""
    cluster, keys = killed
    settings = {"segment_bytes": str(1 << 20), "local_retention_bytes": "1", "retention_ms": "-1"}
    make_topic(cluster.bootstrap, TOPIC, PARTITIONS, remote_storage_enable="true", **settings)
    writer = Writer(cluster.bootstrap)
    writer.start()
    reader = Reader(cluster.bootstrap)
    reader.start()
    faults = [cluster.kill_sidecar, cluster.stall_store, cluster.kill_broker, cluster.fill_disk, cluster.kill_store]
    until, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
        cluster.empty_disk()
        fault = faults[turn % len(faults)]
        fault()
        cluster.done.append(fault.__name__)
        turn += 1
    time.sleep(10)
    writer.end()
    reader.end()
    assert not writer.failed
    assert not reader.failed
    assert reader.count > len(writer.acknowledged[0])
    caught_up = time.monotonic() + CATCH_UP_SECONDS
    folders = [cluster.folder / "broker" / "logs" / f"{TOPIC}-{number}" for number in range(PARTITIONS)]
    while max(len(segments(folder)) for folder in folders) > 2:
        assert time.monotonic() < caught_up, [segments(folder) for folder in folders]
        time.sleep(0.5)
    for partition, acknowledged in writer.acknowledged.items():
        assert acknowledged == sorted(set(acknowledged)), "acknowledged in order, once"
        assert read_back(cluster.bootstrap, partition, len(acknowledged)) == acknowledged
    count = sum(map(len, writer.acknowledged.values()))
    print(f"{len(cluster.done)} faults, {count} records written, {reader.count} read", file=sys.stderr)
    check_bucket(cluster, keys, tmp_path, writer.acknowledged[0])


def check_bucket(cluster: Killed, keys: dict[str, str], folder: pathlib.Path, acknowledged: list[int]) -> None:
    """`tierlog cat` reads what was acknowledged; what the topic's deletion leaves, `tierlog orphans` has named."""
    direct = keys | {"storage.s3.endpoint.url": cluster.server.options["store.endpoint"]}
    direct = {name: value for name, value in direct.items() if "cache" not in name}
    root = f"s3://{BUCKET}"
    read = catted(root, direct, folder, "--partition", "0")
    assert len(read) > len(acknowledged) * 0.8
    assert [int(read[offset][:12]) for offset in sorted(read)] == acknowledged[: len(read)]
    config = folder / "orphans.properties"
    config.write_text("".join(f"rsm.config.{name}={value}\n" for name, value in direct.items()))
    found = run_process("orphans", root, "--config", config, "--metadata", cluster.bootstrap, "--output", "json")
    assert found.code in (0, 1), found.err
    named = found.out.decode()
    print(named[-1000:], file=sys.stderr)
    delete_topic(cluster.bootstrap, TOPIC)
    eventually(lambda: [key for key in keys_of(cluster.server) if key not in named], [])


def keys_of(server: StoreServer) -> list[str]:
    """The keys of all objects of the tier."""
    store = S3Store(
        BUCKET,
        endpoint=server.options["store.endpoint"],
        access_key_id=server.options["store.access_key_id"],
        secret_access_key=server.options["store.secret_access_key"],
        region=server.options["store.region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return [str(each["path"]) for page in obstore.list(store, "tier/") for each in page]
