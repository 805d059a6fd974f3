"""Logs in memory for tests: made by hand or opened, filled, damaged, loaded, and read to their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.support.batches import Batch, encode
from tierlog._native.batches import scan_batches
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.log_loader import LoadedLog, LogCheckpoints, LogLoader
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles

FOLDER = "/logs/orders-0"
NOW_MS = 1_700_000_000_000


def machine_of(contents: dict[str, bytes] | None = None, *, folder: str = FOLDER) -> Machine:
    """A machine whose disk is in memory, with files of a log's folder."""
    clock = ManualClock(time_ms=NOW_MS)
    files = MemoryFiles(clock)
    files.make_directories(folder)
    for name, data in (contents or {}).items():
        files.put(f"{folder}/{name}", data)
    return Machine(clock=clock, rng=SeededRng(7), files=files)


def contents_of(machine: Machine, *, folder: str = FOLDER) -> dict[str, bytes]:
    """All files of a log's folder."""
    return contents(machine.files, folder)


def opened(
    machine: Machine,
    *,
    clean: bool = False,
    config: LogConfig | None = None,
    folder: str = FOLDER,
    checkpoints: LogCheckpoints | None = None,
) -> UnifiedLog:
    return UnifiedLog.open(
        folder,
        machine=machine,
        config=config,
        checkpoints=checkpoints,
        had_clean_shutdown=clean,
        is_sole_replica=True,
    )


def batch_of(
    *values: bytes | None,
    timestamp_ms: int = NOW_MS,
    codec: str = "none",
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    base_sequence: int = -1,
) -> bytearray:
    """A batch as a producer sends it: a record each value, all of one key and timestamp. A producer's epoch is 0 unless
    it is told, and no epoch without a producer.
    """
    if producer_epoch is None:
        producer_epoch = 0 if producer_id >= 0 else -1
    builder = RecordBatchBuilder(
        0,
        codec=codec,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    for value in values:
        builder.append(b"key", value, timestamp_ms=timestamp_ms)
    return bytearray(builder.build())


def ended(log: UnifiedLog, producer_id: int, *, commits: bool, leader_epoch: int = 0) -> int:
    """End a transaction of epoch 0; the marker's offset."""
    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
    marker = build_end_transaction_marker(
        0, kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    info = log.append_as_leader(
        bytearray(marker), leader_epoch=leader_epoch, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    return info.first_offset


def iter_served(log: UnifiedLog, *, max_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The whole batches that the log hands out, from its start to its end."""
    at = log.local_log_start_offset
    while True:
        found = log.read(at, max_bytes=max_bytes, isolation=FetchIsolation.LOG_END)
        if not found.records:
            return
        data = bytes(found.records[0].read())
        columns, end, _, _ = scan_batches(data)
        if not end:
            raise AssertionError(f"a read from {at} on begins with no whole batch")
        positions, sizes = columns["position"].astype(np.int64), columns["size_bytes"].astype(np.int64)
        for position, size in zip(positions.tolist(), sizes.tolist(), strict=True):
            yield data[position : position + size]
        following = int(columns["last_offset"][-1]) + 1
        if following <= at:
            raise AssertionError(f"a read from {at} on ends before {following}")
        at = following


def served(log: UnifiedLog, *, max_bytes: int = 1 << 20) -> bytes:
    return b"".join(iter_served(log, max_bytes=max_bytes))


# ---- folders made by hand, and loaded as a broker does when it starts


def name_of(offset: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{offset:020d}{suffix}"


def put_log(files: MemoryFiles, segments: dict[int, Sequence[Batch | bytes]], *, suffix: str = ".log") -> None:
    """Segments without indexes, by base offset; bytes stand as they are. All is durable."""
    for base_offset, batches in segments.items():
        data = b"".join(batch if isinstance(batch, bytes) else encode(batch) for batch in batches)
        files.put(name_of(base_offset, suffix), data)


def load(
    files: Files,
    *,
    folder: str = FOLDER,
    clean: bool = False,
    recovery_point: int | None = 0,
    log_start: int = 0,
    tiered: bool = False,
    config: LogConfig | None = None,
    producers: ProducerState | None = None,
) -> LoadedLog:
    """Load a log; its segments are closed."""
    machine = Machine(files=files)
    place = LogFolder(machine, folder)
    loader = LogLoader(
        place,
        machine=machine,
        config=config or LogConfig(),
        epochs=LeaderEpochCache(EpochCheckpointFile(files, place), machine=machine),
        producers=producers or ProducerState(ProducerSettings(producer_id_expiration_ms=2**62)),
        checkpoints=LogCheckpoints(recovery_point=recovery_point, log_start_offset=log_start),
        had_clean_shutdown=clean,
    )
    loaded = loader.load(remote_log_enabled=tiered)
    for segment in loaded.segments:
        segment.close()
    return loaded


def contents(files: Files, folder: str = FOLDER) -> dict[str, bytes]:
    """Name to bytes of all files of a folder."""
    return {
        entry.name: files.read_whole(entry.path) for entry in files.iter_directory(folder) if not entry.is_directory
    }


def trimmed(name: str, data: bytes) -> bytes:
    """A file's bytes without preallocated zeros, where it is an index."""
    size = 8 if name.endswith(".index") else 12 if name.endswith(".timeindex") else 0
    while size and len(data) >= size and not any(data[-size:]):
        data = data[:-size]
    return data
