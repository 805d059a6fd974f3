"""The part *away* of ``bench.manager``: a store that stops answering for ten minutes under load, then goes on.

A real S3 server over a folder is stopped by a signal: connections are accepted, and nothing comes back. A broker with
Kafka's default intervals goes on with 1 MiB/s of produce over four partitions, each batch read back from the local log
at once. Uploads have 10 MiB/s, so that what the lag needs at least is known: its bytes at that limit.
"""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import time

from bench.harness import MIB, Suite, work_folder
from bench.storage_sides import form_keys, s3_keys
from tests.support.servers import StoreServer, seaweed
from tierlog.log.local import FetchIsolation, LogDirectory, UnifiedLog
from tierlog.log.local.log_config import LogConfig
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote import TieredStorageManager
from tierlog.remote.api import RemoteLogSegmentState, TopicIdPartition, Uuid
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

TOPIC, PARTITIONS, SEGMENT_BYTES = Uuid(bytes(15) + b"\2"), 4, MIB
BATCH_BYTES, BATCHES_PER_SECOND = 16 << 10, 64
UPLOADS_PER_SECOND = 10 * MIB
HEALTHY_SECONDS, AWAY_SECONDS = 120.0, 600.0


class LoadedBroker:
    """A broker that leads all partitions of a topic, and its load.

    Args:
        folder: Of its log directory.
        server: The store.
    """

    def __init__(self, folder: pathlib.Path, server: StoreServer) -> None:
        config = LogConfig(remote_storage_enable=True, retention_ms=-1, segment_bytes=SEGMENT_BYTES)
        self._directory = LogDirectory.open(
            str(folder), config=config, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
        )
        self.storage = TieredStorageManager()
        limit = {"upload.rate.limit.bytes.per.second": str(UPLOADS_PER_SECOND)}
        self.storage.configure(form_keys("plain") | s3_keys(server.options) | limit)
        self.metadata = TopicBasedRemoteLogMetadataManager(open_logs=lambda _config, **_: MemoryMetadataTopic(1))
        self.metadata.configure({"log.dir": str(folder), "remote.log.metadata.topic.num.partitions": 1, "broker.id": 1})
        self.partitions = [TopicIdPartition(TOPIC, "orders", number) for number in range(PARTITIONS)]
        self.logs = {each: self._log(each) for each in self.partitions}
        self.manager = RemoteLogManager(
            RemoteLogManagerConfig(), broker_id=1, storage=self.storage, metadata=self.metadata, find_log=self.logs.get
        )
        self.manager.on_leadership_change(frozenset(self.partitions), frozenset())
        self._batch = RecordBatchBuilder(0)
        for _ in range(16):
            self._batch.append(None, os.urandom(BATCH_BYTES // 16 - 16), timestamp_ms=1)
        self._bytes = self._batch.build()
        self._number = 0

    def _log(self, partition: TopicIdPartition) -> UnifiedLog:
        log = self._directory.log("orders", partition.partition, topic_id=TOPIC)
        log.assign_epoch_start_offset(0, 0)
        return log

    def load(self, seconds: float, *, until_copied: bool = False) -> list[float]:
        """Produce and read for so long; until all that is closed is copied, if that comes first.

        Returns:
            The seconds of each append together with its local read.
        """
        taken, began = [], time.monotonic()
        while time.monotonic() < began + seconds and not (until_copied and self.lag_bytes() == 0):
            log = self.logs[self.partitions[self._number % PARTITIONS]]
            self._number += 1
            batch, start = bytearray(self._bytes), time.perf_counter()
            offset = log.append_as_leader(batch, leader_epoch=0).first_offset
            (records,) = log.read(offset, max_bytes=MIB, isolation=FetchIsolation.LOG_END).records
            found = records.read()
            taken.append(time.perf_counter() - start)
            if len(found) != len(batch):
                raise SystemExit(f"offset {offset} was read as {len(found)} bytes, not {len(batch)}")
            time.sleep(max(0.0, began + len(taken) / BATCHES_PER_SECOND - time.monotonic()))
        return taken

    def lag_bytes(self) -> int:
        """Bytes of closed segments that are not copied."""
        return sum(
            segment.size_bytes
            for log in self.logs.values()
            for segment, end_offset in log.closed_segments()
            if end_offset - 1 > log.highest_offset_in_remote_storage
        )

    def check(self) -> int:
        """Compare each finished segment of the store with the local log; return their number."""
        count = 0
        for partition, log in self.logs.items():
            closed = {segment.base_offset: segment for segment, _ in log.closed_segments()}
            following = 0
            for segment in self.metadata.list_remote_log_segments(partition):
                if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                    raise SystemExit(f"{segment.remote_log_segment_id} is left as {segment.state.name}")
                if segment.start_offset != following:
                    raise SystemExit(f"{partition}: {following} is not in the tier")
                following = segment.end_offset + 1
                with self.storage.fetch_log_segment(segment, 0) as stream:
                    stored = b"".join(stream.buffers())
                with log.lease(closed[segment.start_offset]) as files:
                    local = pathlib.Path(files.log_segment).read_bytes()
                if stored != local:
                    raise SystemExit(f"{segment.remote_log_segment_id} differs from the local log")
                count += 1
        return count

    def close(self) -> None:
        self.manager.close()
        self._directory.close()


def _p99_ms(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000


def measure_away(suite: Suite, scale: float) -> None:
    with work_folder() as folder:
        (folder / "s3").mkdir()
        (folder / "logs").mkdir()
        with seaweed(folder / "s3") as server:
            _measure(suite, LoadedBroker(folder / "logs", server), server.pid, scale)


def _measure(suite: Suite, broker: LoadedBroker, store_pid: int, scale: float) -> None:
    gc.freeze()
    broker.load(HEALTHY_SECONDS * scale / 4)  # warm
    before = broker.load(HEALTHY_SECONDS * scale)
    os.kill(store_pid, signal.SIGSTOP)
    try:
        away = broker.load(AWAY_SECONDS * scale)
        health = broker.manager.health()
    finally:
        os.kill(store_pid, signal.SIGCONT)
    lag, began = broker.lag_bytes(), time.monotonic()
    broker.load(20 * lag / UPLOADS_PER_SECOND + 60, until_copied=True)
    seconds, least = time.monotonic() - began, lag / UPLOADS_PER_SECOND
    if broker.lag_bytes():
        raise SystemExit(f"the lag of {lag} bytes does not go: {broker.manager.health()}")
    behind = broker.load(HEALTHY_SECONDS * scale)
    count = broker.check()
    broker.close()
    if health.uncopied is None:
        raise SystemExit("a store that is away is not seen in the manager's health")
    healthy = before + behind
    text = f"{_p99_ms(away):.2f} ms of {len(away):,} appends with their local reads, healthy {_p99_ms(healthy):.2f} ms"
    text += f" ({_p99_ms(before):.2f} before, {_p99_ms(behind):.2f} behind)"
    what = f"store away for {AWAY_SECONDS / 60:.0f} minutes: local p99, × healthy"
    suite.add(what, text, _p99_ms(away) / _p99_ms(healthy), 1.1, least=False)
    text = f"{seconds:.0f} s for {lag / MIB:.0f} MiB, which need {least:.0f} s; {count} segments equal the local log"
    suite.add(
        "then back: the lag is gone after, × the time that its copy needs", text, seconds / least, 2.0, least=False
    )
