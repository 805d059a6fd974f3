"""Logs made by hand in a folder, and loaded as a broker does when it starts."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.batches import Batch, encode
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_config import LogConfig, ProducerSettings
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.log_loader import LoadedLog, LogCheckpoints, LogLoader
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.simulated.memory_files import MemoryFiles

FOLDER = "/logs/orders-0"


def machine_of(files: Files) -> Machine:
    return Machine(files=files)


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
    machine = machine_of(files)
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
