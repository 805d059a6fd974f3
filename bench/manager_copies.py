"""The part *copy* of ``bench.manager``: 2 GB in 64 closed segments, plain, between memory-backed folders, since a
disk's speed moves by a factor of two between rounds.

A manager leads the partition, from the notice until all counts as copied, beside its storage manager alone, which is
given the same segments one after another; both leave the same objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.data import bench_log
from bench.harness import MIB, Rounds, Suite, equal, in_turn, work_folder
from bench.storage_sides import folder_keys, form_keys
from tests.support.log_consumer import batches_in
from tierlog.log.local import UnifiedLog
from tierlog.log.local.log_config import LogConfig
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

SEGMENTS, SEGMENT_BYTES, BATCH_BYTES = 64, 32 * MIB, MIB // 2
#: Of the log that is built once; its batches are appended again and again.
DATA_BYTES = 256 * MIB
PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 0)
OURS, ALONE = "the manager", "its storage manager alone"
COPY_BAR = 0.95
ROUND_SECONDS = 3600.0


def filled_log(folder: pathlib.Path, segments: int) -> UnifiedLog:
    """A tiered log with so many closed segments."""
    config = LogConfig(remote_storage_enable=True, retention_ms=-1, segment_bytes=SEGMENT_BYTES)
    log = UnifiedLog.open(str(folder / "orders-0"), config=config, remote_log_enabled=True, is_sole_replica=True)
    log.assign_epoch_start_offset(0, 0)
    size = min(DATA_BYTES, segments * SEGMENT_BYTES)
    made = bench_log("none", batch_bytes=BATCH_BYTES, mean_size=1000, total_bytes=size)
    batches = [bytes(8) + batch[8:] for batch in batches_in(made.data)]  # as a producer numbers them
    number = 0
    while len(log.closed_segments()) < segments:
        log.append_as_leader(bytearray(batches[number % len(batches)]), leader_epoch=0)
        number += 1
    log.flush()
    return log


@dataclass
class Copies:
    """The two sides, each with a folder of its own, which is empty before and behind a round."""

    log: UnifiedLog
    folder: pathlib.Path
    machine: Machine = field(default_factory=Machine)
    looked_at: dict[str, object] = field(default_factory=dict)

    @contextlib.contextmanager
    def _storage(self, side: str) -> Iterator[TieredStorageManager]:
        """A storage manager; the first time for a side its objects are looked at before they go."""
        root = self.folder / side.replace(" ", "-")
        storage = TieredStorageManager(machine=self.machine)
        storage.configure({**form_keys("plain"), **folder_keys(root)})
        try:
            yield storage
        finally:
            storage.close()
        if side not in self.looked_at:
            objects = [path for path in root.rglob("*") if path.suffix == ".log"]
            self.looked_at[side] = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in objects)
        shutil.rmtree(root)

    def alone(self) -> Mapping[str, Any]:
        """Have the storage manager copy all closed segments, in one thread."""
        with self._storage(ALONE) as storage, _timed() as taken:
            for segment, end_offset in self.log.closed_segments():
                metadata = RemoteLogSegmentMetadata(
                    RemoteLogSegmentId.generate_new(PARTITION, rng=self.machine.rng),
                    start_offset=segment.base_offset,
                    end_offset=end_offset - 1,
                    max_timestamp_ms=segment.largest_timestamp_ms,
                    broker_id=1,
                    event_timestamp_ms=self.machine.clock.time_ms(),
                    segment_size_in_bytes=segment.size_bytes,
                    segment_leader_epochs={0: segment.base_offset},
                    txn_idx_empty=True,
                )
                with self.log.lease(segment) as files:
                    storage.copy_log_segment_data(metadata, files)
        return taken

    def ours(self) -> Mapping[str, Any]:
        """Lead the partition until all closed segments are copied."""
        topic = MemoryMetadataTopic(3, machine=self.machine)
        metadata = TopicBasedRemoteLogMetadataManager(machine=self.machine, open_logs=lambda _config, **_: topic)
        with work_folder(str(self.folder)) as own:
            metadata.configure({"log.dir": str(own), "remote.log.metadata.topic.num.partitions": 3, "broker.id": 1})
            count = len(self.log.closed_segments())
            with self._storage(OURS) as storage:
                manager = RemoteLogManager(
                    RemoteLogManagerConfig(),
                    broker_id=1,
                    storage=storage,
                    metadata=metadata,
                    find_log=lambda _: self.log,
                    machine=self.machine,
                )
                with manager, _timed() as taken:
                    manager.on_leadership_change(frozenset({PARTITION}), frozenset())
                    last = self.log.active_segment.base_offset - 1
                    until = time.monotonic() + ROUND_SECONDS
                    while _copied_offset(metadata) != last:
                        if time.monotonic() > until:
                            raise SystemExit(f"the copies do not end: {manager.health()}")
                        time.sleep(0.005)
                if manager.metrics.value("copy_requests") != count:
                    raise SystemExit(f"{manager.metrics.value('copy_requests')} copies of {count} segments")
        return taken


def _copied_offset(metadata: TopicBasedRemoteLogMetadataManager) -> int | None:
    return metadata.highest_offset_for_epoch(PARTITION, 0) if metadata.is_ready(PARTITION) else None


@contextlib.contextmanager
def _timed() -> Iterator[dict[str, float]]:
    """Seconds of a block by the clock and by the processor, once it has ended."""
    taken: dict[str, float] = {}
    cpu, start = time.process_time(), time.perf_counter()
    yield taken
    taken |= {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def measure_copies(suite: Suite, rounds: int, scale: float) -> None:
    with work_folder("/dev/shm") as folder:
        _measure_copies(suite, folder, rounds, scale)


def _measure_copies(suite: Suite, folder: pathlib.Path, rounds: int, scale: float) -> None:
    log = filled_log(folder, max(2, int(SEGMENTS * scale)))
    closed = log.closed_segments()
    size = sum(segment.size_bytes for segment, _ in closed)
    copies = Copies(log, folder)
    found: Rounds = {ALONE: [], OURS: []}
    for number in range(rounds + 1):  # each begins every second round
        sides = [(ALONE, copies.alone), (OURS, copies.ours)]
        for name, each in in_turn(dict(sides[:: 1 if number % 2 else -1]), 1, warm=0).items():
            found[name] += each if number else []
    equal("SHA-256 of the objects", copies.looked_at)
    what = f"copy of {size / 1e9:.1f} GB in {len(closed)} segments, plain"
    suite.speed(what, found, ALONE, amount=size, ours=OURS, bar=COPY_BAR)
    log.close()
