"""Chunks on a disk of the broker's own: bounded exactly by bytes, there again after a restart.

A file holds one chunk as it lies in the object: encrypted under the segment's own data key where the segment is, so
that nobody reads it without the key ring; compressed where it is, so that more of them fit. An XXH3 of key and chunk
stands in front. A file gets its name only when it is written; it is not fsynced, since one that a crash damaged is a
miss like any other. What is not ours in the directory is left alone.

::

    magic "TLCHUNK1" | key size uint32 | chunk size uint64 | XXH3-128 of key and chunk | key | chunk
    key = form, log object's key, fingerprint of how the log is stored, chunk number; joined by NUL, UTF-8
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import xxhash

from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError
from tierlog.remote.storage.segment_log import ChunkKey
from tierlog.remote.storage.weighted_cache import UNBOUNDED, CacheFigures, WeightedCache
from tierlog.runtime.buffers import new_buffer
from tierlog.runtime.files import FileInfo
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_MAGIC: Final = b"TLCHUNK1"
_HEADER: Final = struct.Struct(">8sIQ16s")
_FOLDER: Final = "tierlog-chunks"
_LOCK: Final = "lock"
_NAME: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}-[0-9]{1,10}\.chunk")
#: Also one that is being written, and those of before a name had a fingerprint: nobody asks for them any more.
_OURS: Final = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?-[0-9]{1,10}\.chunk(\.new)?")
#: After a write that failed no other is tried for so long: a full disk is a slow day, not a flood of log lines.
PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True, eq=False)
class _File:
    """One cached chunk; ``size_bytes`` with its header. Who finds it written and no longer wanted removes it."""

    size_bytes: int
    is_written: bool
    is_wanted: bool = True


class DiskChunkCache:
    """See the module.

    Args:
        path: An existing directory; everything is in a folder of our own below it.
        size_bytes_max: Of all files together, headers included; UNBOUNDED for no limit.
        retention_ms: After the last use; -1 for ever. A restart counts as a use.
        encrypted: Keep chunks as they are in the object; False keeps the broker's bytes, in the clear.
        machine: Its files, clock and locks.
        on_evict: Told how many had to make room.
        on_damage: Told of each file that does not match its checksum, does not open, or is gone.

    Raises:
        ConfigError: no such directory, not writable, or another process has it.

    Invariant: the files never take more than ``size_bytes_max``, not while one is written either.
    Thread safety: any number of threads; no lock is held while the disk works.
    """

    label: Literal["chunks_memory", "chunks_disk"] = "chunks_disk"
    is_slow = True

    def __init__(
        self,
        path: str,
        size_bytes_max: int,
        *,
        machine: Machine,
        retention_ms: int = -1,
        encrypted: bool = True,
        on_evict: Callable[[int], None] | None = None,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        self.keeps_stored = encrypted
        self._on_damage = on_damage
        self._files = machine.files
        self._clock = machine.clock
        self._lock = machine.scheduler.lock()
        self._limit = size_bytes_max
        self._root = f"{path.rstrip('/')}/{_FOLDER}"
        self._cache: WeightedCache[str, _File] = WeightedCache(
            size_bytes_max, machine=machine, retention_ms=retention_ms, on_evict=on_evict
        )
        self._disk_bytes = 0
        self._paused_until_seconds = -1.0
        self._is_failing = False
        try:
            if not self._files.stat(path).is_directory:
                raise ConfigError(f"fetch.chunk.cache.path: {path} is not a directory")
            self._files.make_directories(self._root)
            held = self._files.try_lock(f"{self._root}/{_LOCK}")
            if held is None:
                raise ConfigError(f"fetch.chunk.cache.path: {path} is in use by another process")
            self._held = held
            self._take_over()
        except StoreError as cause:
            raise ConfigError(f"fetch.chunk.cache.path: {cause}") from cause

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def _take_over(self) -> None:
        """Know what an earlier process left; what no longer fits, and what it did not finish, is removed."""
        found: list[FileInfo] = []
        for folder in self._files.iter_directory(self._root):
            if not folder.is_directory or len(folder.name) != 2:
                continue
            for info in self._files.iter_directory(folder.path):
                if info.is_directory or not _OURS.fullmatch(info.name):
                    continue
                if _NAME.fullmatch(info.name):
                    found.append(info)
                else:
                    self._files.remove(info.path)
        for info in sorted(found, key=lambda info: (info.modified_ms, info.path)):
            self._disk_bytes += info.size_bytes
            self._remove(self._cache.put(info.name, _File(info.size_bytes, is_written=True), info.size_bytes))

    def holds(self, key: ChunkKey) -> bool:
        """See ChunkCache."""
        file = self._cache.peek(_name(key))
        return file is not None and file.is_written

    def find(self, key: ChunkKey, *, again: bool = False) -> memoryview | None:
        """See ChunkCache: reads the whole file and checks it. A damaged one is removed and a miss."""
        name = _name(key)
        file = self._cache.find(name, again=again)
        if file is None or not file.is_written:
            return None
        try:
            found = self._read(name, self._key_bytes(key))
        except ObjectNotFoundError:
            found = None  # somebody cleaned up
        except StoreError as error:
            _log.warning("chunk cache: %s cannot be read, fetched again: %s", self._path(name), error)
            found = None
        if found is None:
            self._drop(name)
        return found

    def _drop(self, name: str) -> None:
        self._on_damage()
        self._remove(self._cache.remove(name))

    def _read(self, name: str, key: bytes) -> memoryview | None:
        with self._files.open_read(self._path(name)) as opened:
            data = new_buffer(opened.size_bytes)
            if opened.read_into(data, position=0) != len(data) or len(data) < _HEADER.size:
                return None
        magic, key_size, size, digest = _HEADER.unpack_from(data)
        start = _HEADER.size + key_size
        if magic != _MAGIC or len(data) != start + size or data[_HEADER.size : start] != key:
            return None
        chunk = data[start:]
        if _digest(key, chunk) != digest:
            _log.warning("chunk cache: %s is damaged, fetched again", self._path(name))
            return None
        return chunk.toreadonly()

    def put(self, key: ChunkKey, data: memoryview) -> None:
        """See ChunkCache: writes a file. A disk that is full, or fails, costs one log line and half a minute's rest."""
        if self._clock.monotonic_seconds() < self._paused_until_seconds:
            return
        name, told = _name(key), self._key_bytes(key)
        if name in self._cache:
            return
        file = _File(_HEADER.size + len(told) + len(data), is_written=False)
        self._remove(self._cache.put(name, file, file.size_bytes))
        if name not in self._cache:
            return  # larger than the whole cache
        if not self._claim(file.size_bytes):
            self._remove(self._cache.remove(name))  # what had to leave for it is still being removed by another thread
            return
        try:
            self._write(name, _HEADER.pack(_MAGIC, len(told), len(data), _digest(told, data)) + told, data)
        except StoreError as error:
            self._cache.remove(name)
            self._unclaim(file.size_bytes)
            self._rest(error)
            return
        self._is_failing = False
        with self._lock:
            file.is_written = True
            is_wanted = file.is_wanted
        if not is_wanted and self._try_remove(self._path(name)):
            self._unclaim(file.size_bytes)

    def _claim(self, size_bytes: int) -> bool:
        with self._lock:
            if self._limit != UNBOUNDED and self._disk_bytes + size_bytes > self._limit:
                return False
            self._disk_bytes += size_bytes
            return True

    def _unclaim(self, size_bytes: int) -> None:
        with self._lock:
            self._disk_bytes -= size_bytes

    def _write(self, name: str, header: bytes, data: memoryview) -> None:
        path = self._path(name)
        new = f"{path}.new"
        try:
            self._files.make_directories(path.rpartition("/")[0])
            with self._files.open_update(new) as file:
                file.truncate(0)
                file.append(header)
                file.append(data)
            self._files.rename(new, path)
        except StoreError:
            self._try_remove(new)
            raise

    def _rest(self, error: StoreError) -> None:
        if not self._is_failing:
            _log.warning(
                "chunk cache: %s cannot be written: chunks are served without it, and it is tried again every %g s: %s",
                self._root,
                PAUSE_SECONDS,
                error,
            )
        self._is_failing = True
        self._paused_until_seconds = self._clock.monotonic_seconds() + PAUSE_SECONDS

    def _remove(self, left: list[tuple[str, _File]]) -> None:
        """The files of what left the cache; one that is still being written is its writer's."""
        for name, file in left:
            with self._lock:
                file.is_wanted = False
                is_written = file.is_written
            if is_written and self._try_remove(self._path(name)):
                self._unclaim(file.size_bytes)

    def _try_remove(self, path: str) -> bool:
        try:
            self._files.remove(path)
        except StoreError as error:
            _log.warning("chunk cache: %s cannot be removed: %s", path, error)
            return False
        return True

    def drop(self, key: ChunkKey) -> None:
        """See ChunkCache."""
        _log.warning("chunk cache: %s is not the chunk that its name says, fetched again", self._path(_name(key)))
        self._drop(_name(key))

    def forget(self, log_key: str) -> None:
        """See ChunkCache."""
        prefix = _prefix(log_key)
        self._remove(self._cache.remove_where(lambda name: name.startswith(prefix)))

    def _key_bytes(self, key: ChunkKey) -> bytes:
        form = "stored" if self.keeps_stored else "plain"
        return f"{form}\0{key.log_key}\0{key.fingerprint:016x}\0{key.number}".encode("utf-8", "surrogateescape")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"

    def close(self) -> None:
        """Let another process have the directory; the files stay."""
        self._held.release()


def _prefix(log_key: str) -> str:
    return f"{xxhash.xxh3_64_hexdigest(log_key.encode('utf-8', 'surrogateescape'))}-"


def _name(key: ChunkKey) -> str:
    return f"{_prefix(key.log_key)}{key.fingerprint:016x}-{key.number}.chunk"


def _digest(key: bytes, chunk: memoryview) -> bytes:
    made = xxhash.xxh3_128(key)
    made.update(chunk)
    return made.digest()
