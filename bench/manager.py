"""The RemoteLogManager beside the storage manager that it drives.

    python -m bench.manager [cached waiting copy idle offsets away] [--rounds 5] [--scale 1]

Remote reads of a cached mebibyte beside the storage manager's own fetch of the same bytes; and a thousand reads at once
of a store that takes 200 ms, beside as many threads that fetch the same ranges. And the processor time of 10,000
leaders with nothing to copy or to delete, whose metadata lie in the native table. *copy*: ``bench.manager_copies``;
*away* (16 minutes): ``bench.manager_away``.
*offsets*: a search of an offset by time among very many segments, but for the look into the one that it chooses.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from unittest import mock

from typing_extensions import Buffer

from bench.harness import MIB, Suite, arguments, equal, in_turn, quotient, spread, work_folder
from bench.manager_away import measure_away
from bench.manager_copies import measure_copies
from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.support.manager_configs import local_keys
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local import LogDirectory, UnifiedLog
from tierlog.log.local.log_config import LogConfig
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote import TieredStorageManager
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager import offset_search
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.pending_reads import RemoteRead
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

BATCH_BYTES, RECORDS = 16 << 10, 16
HOT_READS, HOT_PLACES = 2000, 16
IDLE_LEADERS, IDLE_SEGMENTS, IDLE_MS = 10_000, 260, 1_700_000_000_000
WAITING, STORE_SECONDS = 1000, 0.2
SEGMENTS, SEARCHES = 100_000, 100
SMALL_BYTES, SMALL_CHUNK_BYTES = 32 << 10, 256 << 10
PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 0)
TIERED = LogConfig(
    remote_storage_enable=True,
    retention_ms=-1,
    local_retention_ms=-2,
    local_retention_bytes=0,
    file_delete_delay_ms=0,
    segment_bytes=1 << 30,
)


class DistantStore(PassingStore):
    """A store whose answers take a while.

    Args:
        store: The store inside.
        is_local: Whether it is a disk of this machine; else its reads have threads of their own, and wait in a queue.
    """

    seconds = 0.0

    def __init__(self, store: ObjectStore, *, is_local: bool) -> None:
        super().__init__(store)
        self._is_local = is_local

    @property
    def is_local(self) -> bool:
        return self._is_local

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        time.sleep(self.seconds)
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        time.sleep(self.seconds)
        return super().fetch_range_into(key, out, start_position=start_position)


class TieredBroker:
    """A broker with one partition, all of whose records but the last are in the tier alone."""

    def __init__(
        self, folder: pathlib.Path, size_bytes: int, storage_keys: dict[str, object], *, is_local: bool, **config: int
    ) -> None:
        self.stores: list[DistantStore] = []
        self._is_local = is_local
        self.directory = LogDirectory.open(
            str(folder / "logs"), config=TIERED, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
        )
        self.log = self.directory.log("orders", 0, topic_id=PARTITION.topic_id)
        self.log.assign_epoch_start_offset(0, 0)
        self.storage = TieredStorageManager(wrap_store=self._wrapped)
        self.storage.configure(local_keys(folder / "bucket") | storage_keys)
        metadata = TopicBasedRemoteLogMetadataManager(open_logs=lambda _config, **_: MemoryMetadataTopic(1))
        metadata.configure(
            {"log.dir": str(folder / "logs"), "remote.log.metadata.topic.num.partitions": 1, "broker.id": 1}
        )
        self.manager = RemoteLogManager(
            RemoteLogManagerConfig(task_interval_ms=100, **config),
            broker_id=1,
            storage=self.storage,
            metadata=metadata,
            find_log={PARTITION: self.log}.get,
        )
        self._fill(size_bytes)
        found = metadata.remote_log_segment_metadata(PARTITION, 0, 0)
        if found is None:
            raise SystemExit("nothing was copied")
        self.segment: RemoteLogSegmentMetadata = found

    def _wrapped(self, store: ObjectStore) -> ObjectStore:
        self.stores.append(DistantStore(store, is_local=self._is_local))
        return self.stores[-1]

    def _fill(self, size_bytes: int) -> None:
        for _ in range(size_bytes // BATCH_BYTES + 1):
            builder = RecordBatchBuilder(0)
            for _ in range(RECORDS):
                builder.append(None, os.urandom(BATCH_BYTES // RECORDS - 16), timestamp_ms=1)
            self.log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        self.log.roll()
        builder = RecordBatchBuilder(0)
        builder.append(None, b"last", timestamp_ms=1)
        self.log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        self.manager.on_leadership_change({PARTITION}, frozenset())
        until = time.monotonic() + 120
        while self.log.highest_offset_in_remote_storage < self.log.log_end_offset - 2:
            if time.monotonic() > until:
                raise SystemExit("the copy does not end")
            time.sleep(0.02)
        self.log.delete_old_segments()

    def read(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """(position, bytes) of a remote read."""
        (found,) = self.manager.read([RemoteRead(PARTITION, offset, max_bytes)], max_wait_ms=60_000).result()
        if found.error is not None or not found.data.size_bytes:
            raise SystemExit(f"offset {offset}: {found}")
        return found.data.position, found.data.size_bytes

    def fetch(self, position: int, size_bytes: int) -> int:
        """The storage manager's own fetch of a range; its bytes."""
        with self.storage.fetch_log_segment(self.segment, position, position + size_bytes - 1) as stream:
            return sum(map(len, stream.buffers()))

    def close(self) -> None:
        self.manager.close()
        self.directory.close()


@contextlib.contextmanager
def broker(
    size_bytes: int, storage_keys: dict[str, object], *, is_local: bool = True, **config: int
) -> Iterator[TieredBroker]:
    with work_folder("/dev/shm") as folder:
        made = TieredBroker(folder, size_bytes, storage_keys, is_local=is_local, **config)
        yield made
        made.close()


def medians(call: Callable[[int], object], count: int) -> dict[str, float]:
    """The median of so many calls, as a round; in s."""
    seconds = []
    for number in range(count):
        start = time.perf_counter()
        call(number % HOT_PLACES)
        seconds.append(time.perf_counter() - start)
    return {"wall": statistics.median(seconds)}


def measure_cached(suite: Suite, rounds: int, scale: float) -> None:
    count = max(HOT_PLACES, int(HOT_READS * scale))
    keys: dict[str, object] = {
        "chunk.size": str(4 * MIB),
        "fetch.chunk.cache.class": "memory",
        "fetch.chunk.cache.size": str(256 * MIB),
    }
    with broker((HOT_PLACES + 1) * MIB, keys) as made:
        offsets = [number * RECORDS * MIB // BATCH_BYTES for number in range(HOT_PLACES)]
        places = [made.read(offset, MIB) for offset in offsets]
        found = in_turn(
            {
                "manager": lambda: medians(lambda number: made.read(offsets[number], MIB), count),
                "storage": lambda: medians(lambda number: made.fetch(*places[number]), count),
            },
            rounds,
        )
        equal("bytes", {"manager": places, "storage": [(at, made.fetch(at, size)) for at, size in places]})
    micros = {side: [each.wall * 1e6 for each in each_side] for side, each_side in found.items()}
    over = statistics.median(micros["manager"]) - statistics.median(micros["storage"])
    told = f"{spread(micros['manager'])} µs, storage manager {spread(micros['storage'])} µs, medians of {count} reads"
    suite.add("a remote read of a cached MiB, µs over the storage manager's", told, over, 100.0, least=False)


def measure_waiting(suite: Suite, rounds: int, scale: float) -> None:
    for is_local in (True, False):
        _measure_waiting(suite, rounds, scale, is_local=is_local)


def _measure_waiting(suite: Suite, rounds: int, scale: float, *, is_local: bool) -> None:
    count = max(10, int(WAITING * scale))
    keys: dict[str, object] = {
        "chunk.size": str(SMALL_CHUNK_BYTES),
        "fetch.chunk.cache.thread.pool.size": str(min(count, 1024)),
        "fetch.prefetch.enabled": "false",
    }
    config = {"reader_threads": count, "reader_max_pending_tasks": count}
    with broker(count * SMALL_CHUNK_BYTES, keys, is_local=is_local, **config) as made:
        records = SMALL_CHUNK_BYTES // BATCH_BYTES * RECORDS
        offsets = [number * records + records // 2 for number in range(count)]  # in the midst of a chunk each
        places = [made.read(offset, SMALL_BYTES) for offset in offsets]
        for store in made.stores:
            store.seconds = STORE_SECONDS

        def manager() -> list[int]:
            pending = [
                made.manager.read([RemoteRead(PARTITION, offset, SMALL_BYTES)], max_wait_ms=10_000)
                for offset in offsets
            ]
            return [each.result()[0].data.size_bytes for each in pending]

        with Machine().scheduler.pool(count, name="bench-fetch") as pool:

            def storage() -> list[int]:
                return [each.result() for each in [pool.submit(partial(made.fetch, *place)) for place in places]]

            found = in_turn({"manager": manager, "storage": storage}, rounds)
    wanted = [size for _, size in places]
    for each in (*found["manager"], *found["storage"]):
        if any(size not in (0, whole) for size, whole in zip(each.told, wanted, strict=True)):
            raise SystemExit("the sides differ in the bytes of a read")
    late = sum(not size for each in found["manager"] for size in each.told)
    walls = {side: [each.wall for each in each_side] for side, each_side in found.items()}
    told = f"{spread(walls['manager'], '.2f')} s, storage manager {spread(walls['storage'], '.2f')} s; {late} late"
    what = f"{WAITING:,} remote reads at once, {'disk' if is_local else 'bucket'} of 200 ms, × the storage manager"
    suite.add(what, told, quotient(walls["manager"], walls["storage"]) + late, 1.3, least=False)


class TableMetadata(DictMetadataManager):
    """A metadata manager whose segments lie in a table already."""

    def __init__(self, partitions: Iterable[TopicIdPartition], segments: int) -> None:
        super().__init__()
        self.table = SegmentTable()
        for partition in partitions:
            self.table.assign(partition)
            for number in range(segments):
                self.table.put(
                    RemoteLogSegmentMetadata(
                        RemoteLogSegmentId.generate_new(partition),
                        start_offset=number * 10,
                        end_offset=number * 10 + 9,
                        max_timestamp_ms=IDLE_MS,
                        broker_id=1,
                        event_timestamp_ms=IDLE_MS,
                        segment_size_in_bytes=1 << 20,
                        segment_leader_epochs={0: number * 10},
                        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                    )
                )

    def segments_version(self, topic_id_partition: TopicIdPartition) -> int:
        return self.table.version(topic_id_partition)

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        return self.table.list(topic_id_partition, epoch)

    def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        return self.table.highest_offset(topic_id_partition, epoch)


def measure_idle(suite: Suite, rounds: int, scale: float) -> None:
    """All tasks of leaders with retention by size and time, of which nothing goes and nothing is copied."""
    count, segments = max(20, int(IDLE_LEADERS * scale)), IDLE_SEGMENTS
    machine = Machine(files=MemoryFiles())
    partitions = [TopicIdPartition(PARTITION.topic_id, "orders", number) for number in range(count)]
    metadata = TableMetadata(partitions, segments)
    logs = []
    for number in range(min(count, 100)):  # the manager's own share is measured, not that of ten thousand logs
        log = UnifiedLog.open(
            f"/logs/orders-{number}",
            machine=machine,
            config=LogConfig(remote_storage_enable=True, retention_bytes=1 << 40, retention_ms=10**15),
            remote_log_enabled=True,
            is_sole_replica=True,
        )
        log.start_from_tier(
            segments * 10, log_start_offset=0, epochs=[(0, 0)], producer_snapshot=encode_producer_snapshot([])
        )
        logs.append(log)
    storage = MemoryStorageManager(machine=machine)
    storage.configure({})
    with RemoteLogManager(
        RemoteLogManagerConfig(),
        broker_id=1,
        storage=storage,
        metadata=metadata,
        find_log=lambda partition: logs[partition.partition % len(logs)],
        machine=machine,
    ) as manager:
        began = time.process_time()
        manager.on_leadership_change(frozenset(partitions), frozenset())
        time.sleep(2)
        while manager.metrics.value("metadata_count") < count * segments:
            time.sleep(0.5)
        first = time.process_time() - began
        interval = manager.config.task_interval_ms / 1000
        shares = []
        for _ in range(min(rounds, 3)):
            began, before = time.monotonic(), time.process_time()
            time.sleep(interval)
            shares.append((time.process_time() - before) / (time.monotonic() - began) * 100)
    told = f"{spread(shares, '.2f')} % of a core; the first look took {first:.1f} s of processor time"
    what = f"{IDLE_LEADERS:,} leaders × {segments} segments, nothing to do, % of a core"
    suite.add(what, told, statistics.median(shares), 5.0, least=False)


def many_segments(count: int) -> Iterator[bytes]:
    """The events of so many copied segments of ten offsets, a millisecond each."""
    state = RemoteLogSegmentState
    for number in range(count):
        segment_id = RemoteLogSegmentId.generate_new(PARTITION)
        yield encode_record(
            RemoteLogSegmentMetadata(
                segment_id,
                start_offset=10 * number,
                end_offset=10 * number + 9,
                max_timestamp_ms=number,
                broker_id=1,
                event_timestamp_ms=number,
                segment_size_in_bytes=1,
                segment_leader_epochs={0: 10 * number},
            )
        )
        yield encode_record(
            RemoteLogSegmentMetadataUpdate(
                segment_id,
                event_timestamp_ms=number,
                custom_metadata=None,
                state=state.COPY_SEGMENT_FINISHED,
                broker_id=1,
            )
        )


def measure_offsets(suite: Suite, rounds: int, scale: float) -> None:
    count, machine = max(100, int(SEGMENTS * scale)), Machine()
    topic = MemoryMetadataTopic(1, machine=machine)
    topic.append(0, *many_segments(count))
    with work_folder("/dev/shm") as folder, contextlib.ExitStack() as opened:
        metadata = TopicBasedRemoteLogMetadataManager(open_logs=lambda _config, **_: topic)
        metadata.configure({"log.dir": str(folder), "remote.log.metadata.topic.num.partitions": 1, "broker.id": 1})
        opened.callback(metadata.close)
        metadata.on_partition_leadership_changes({PARTITION}, frozenset())
        while not metadata.is_ready(PARTITION):
            time.sleep(0.02)
        directory = LogDirectory.open(str(folder / "logs"), config=TIERED, remote_log_enabled=True, runs_tasks=False)
        log = opened.enter_context(directory).log("orders", 0, topic_id=PARTITION.topic_id)
        log.truncate_fully_and_start_at(10 * count, 0)
        log.assign_epoch_start_offset(0, 0)
        storage = MemoryStorageManager(machine=machine)
        services = TierServices(
            RemoteLogManagerConfig(), storage, metadata, {PARTITION: log}.get, 1, machine, ManagerMetrics(machine)
        )
        pool = opened.enter_context(machine.scheduler.pool(1, name="bench-offsets"))
        search = opened.enter_context(offset_search.OffsetSearch(services, pool.submit))
        opened.enter_context(
            mock.patch.object(
                offset_search, "find_in_segment", lambda _, segment, at, *__: (at, segment.start_offset, 0)
            )
        )

        def look(number: int) -> None:
            timestamp = (number * 7919) % count
            if search.search(PARTITION, timestamp) != (timestamp, 10 * timestamp, 0):
                raise SystemExit(f"time {timestamp} is not found")

        found = in_turn({"search": lambda: medians(look, SEARCHES)}, rounds)
    millis = [each.wall * 1e3 for each in found["search"]]
    told = f"{spread(millis, '.2f')} ms, medians of {SEARCHES} searches"
    what = f"an offset by time among {SEGMENTS:,} segments, ms beside the look into one"
    suite.add(what, told, statistics.median(millis), 1.0, least=False)


def main() -> None:
    asked = arguments(__doc__, ("cached", "waiting", "copy", "idle", "offsets", "away"))
    suite = Suite("manager")
    if "cached" in asked.parts:
        measure_cached(suite, asked.rounds, asked.scale)
    if "waiting" in asked.parts:
        measure_waiting(suite, asked.rounds, asked.scale)
    if "copy" in asked.parts:
        measure_copies(suite, asked.rounds, asked.scale)
    if "idle" in asked.parts:
        measure_idle(suite, asked.rounds, asked.scale)
    if "offsets" in asked.parts:
        measure_offsets(suite, asked.rounds, asked.scale)
    if "away" in asked.parts:
        measure_away(suite, asked.scale)
    suite.save()


if __name__ == "__main__":
    main()
