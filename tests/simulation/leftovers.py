"""What is left of a broker whose lives have ended cleanly: tasks, locks, memory, open files, and files on its disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tierlog.runtime.machine.files import Files
from tierlog.runtime.simulated.memory_files import MemoryFiles

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.disks import Disk, RealDisk


def held_by(life: Broker) -> Iterator[tuple[str, int]]:
    """What a life that has ended still holds: its name, and how much of it."""
    for name in life.group.unfinished:
        yield f"task {name}", 1
    yield "held locks", life.group.held_locks
    yield "requests that wait", sum(replica.waiting for replica in life.replicas.values())
    parts = life.storage_parts
    if parts is not None:
        yield "bytes of readers", parts.fetcher._budget.held_bytes
        yield "bytes of copies", parts.copies.buffers.lent_bytes
        for name in ("copies_running", "manager_waiting_requests", "manager_reader_queue_tasks"):
            yield name, _sum_of(life, f"tierlog_remote_{name}")


def _sum_of(life: Broker, name: str) -> int:
    """The sum of a gauge's values of a life's managers."""
    registries = life.manager.metrics.registry, life.storage.metrics.registry
    every = [sample for registry in registries for family in registry.collect() for sample in family.samples]
    found = [sample.value for sample in every if sample.name == name]
    assert found, f"no gauge is named {name}"
    return int(sum(found))


def open_files(files: Files) -> Mapping[str, int]:
    """The files that are open, by path, with how often."""
    found: dict[str, int] = {}
    for path in files.open_paths() if isinstance(files, MemoryFiles) else ():
        found[path] = found.get(path, 0) + 1
    return found


def paths_of(disk: Disk | RealDisk) -> Iterator[str]:
    """All files of logs and cache, as if the disk's root were "/"."""
    for folder in (*disk.folders.log_directories, disk.folders.cache):
        for path in _paths_below(disk.files, folder):
            yield path.removeprefix(disk.folders.root)


def _paths_below(files: Files, folder: str) -> Iterator[str]:
    for each in files.iter_directory(folder) if files.find(folder) is not None else ():
        if each.is_directory:
            yield from _paths_below(files, each.path)
        else:
            yield each.path
