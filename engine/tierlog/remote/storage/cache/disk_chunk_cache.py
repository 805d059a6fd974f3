"""Chunks on a disk of the broker's own: bounded exactly by bytes, there again after a restart.

A file holds one chunk as it lies in the object: encrypted under the segment's own data key where the segment is, so
that it is unreadable without the key ring; compressed where it is, so that more of them fit. An XXH3 of key and chunk
comes first. A file gets its name only when it is written; neither it nor its folder is fsynced, since a damaged file
after a crash is a miss like any other. Files and folders are for their owner alone. Foreign files are left alone.

No two files ever have one path, be they of one chunk or not (a counter is part of the name): each is made once, by one
writer, and removed once, so that the accounted bytes are those on the disk.

::

    magic "TLCHUNK1" | key size uint32 | chunk size uint64 | XXH3-128 of key and chunk | key | chunk
    key = form, log object's key, fingerprint of how the log is stored, chunk number; joined by NUL, UTF-8
"""

from __future__ import annotations

import itertools
import logging
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import xxhash

from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError
from tierlog.remote.storage.cache.chunk_cache import ChunkCache
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import FileInfo
from tierlog.runtime.weighted_cache import UNBOUNDED, CacheFigures, WeightedCache

_log = logging.getLogger(__name__)

_MAGIC: Final = b"TLCHUNK1"
_HEADER: Final = struct.Struct(">8sIQ16s")
_FOLDER: Final = "tierlog-chunks"
_LOCK: Final = "lock"
#: The chunk's name (log, fingerprint, number), and the counter that makes it a path of its own.
_FILE: Final = re.compile(r"([0-9a-f]{16}-[0-9a-f]{16}-[0-9]{1,10})\.([0-9a-f]{1,16})\.chunk")
_NEW: Final = ".new"
#: Names of our files, also of one that is being written, and of older forms of the name, which are not used any more.
_OURS: Final = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?-[0-9]{1,10}(\.[0-9a-f]{1,16})?\.chunk(\.new)?")
#: After a write that failed no other is tried for so long: a full disk is a slow day, not a flood of log lines.
PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True, eq=False)
class _File:
    """One cached chunk; ``size_bytes`` with its header, accounted until the file is gone.

    The thread that finds it written and no longer wanted removes it: the writer, or the one that drops it.
    """

    path: str
    size_bytes: int
    is_written: bool
    is_wanted: bool = True


class DiskChunkCache(ChunkCache):
    """A cache of chunks in files of one directory, which outlive the process.

    Args:
        path: An existing directory; everything is in a folder of our own below it.
        size_bytes_max: Of all files together, headers included; UNBOUNDED for no limit.
        retention_ms: After the last use; -1 for ever. A restart counts as a use.
        encrypted: Store chunks as they are in the object; False stores the broker's bytes, in the clear.
        machine: Its files, clock and locks.
        on_evict: Called with the number of evicted chunks.
        on_damage: Called for each file that does not match its checksum, does not open, or is gone.

    Raises:
        ConfigError: no such directory, not writable, or another process has it.

    Invariant: the files never take more than ``size_bytes_max``, not while one is written either; ``disk_bytes`` is
    what those that are whole take, whatever was evicted, damaged, forgotten or failed meanwhile.
    Thread safety: any number of threads; no lock is held while the disk works.
    """

    label = "chunks_disk"
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
        self._counter = itertools.count()
        self._writing: set[str] = set()
        self._unremoved: list[_File] = []
        self._paused_until_seconds = -1.0
        self._is_failing = False
        try:
            if not self._files.stat(path).is_directory:
                raise ConfigError(f"fetch.chunk.cache.path: {path} is not a directory")
            self._files.make_directories(self._root, durable=False, private=True)
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

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files, with those that are being written or could not be removed."""
        return self._disk_bytes

    def _take_over(self) -> None:
        """Take over an earlier process's files; remove those that it did not finish, or that no longer fit."""
        found: list[tuple[FileInfo, re.Match[str]]] = []
        for folder in self._files.iter_directory(self._root):
            if not folder.is_directory or len(folder.name) != 2:
                continue
            for info in self._files.iter_directory(folder.path):
                if info.is_directory or not _OURS.fullmatch(info.name):
                    continue
                if match := _FILE.fullmatch(info.name):
                    found.append((info, match))
                else:
                    self._files.remove(info.path)
        self._counter = itertools.count(max((int(match[2], 16) for _, match in found), default=-1) + 1)
        for info, match in sorted(found, key=lambda one: (one[0].modified_ms, int(one[1][2], 16))):
            self._disk_bytes += info.size_bytes
            file = _File(info.path, info.size_bytes, is_written=True)
            self._remove(self._cache.put(match[1], file, info.size_bytes))

    def __contains__(self, key: ChunkKey) -> bool:
        file = self._cache.peek(_name(key))
        return file is not None and file.is_written

    def find(self, key: ChunkKey, *, again: bool = False) -> memoryview | None:
        """Read the whole file of a chunk and check it; a damaged one is removed, and counts as a miss."""
        name = _name(key)
        file = self._cache.find(name, again=again)
        if file is None or not file.is_written:
            return None
        try:
            found = self._read(file, self._key_bytes(key))
        except ObjectNotFoundError:
            if self._cache.peek(name) is not file:
                return None  # evicted since
            found = None  # it was cleaned up meanwhile
        except StoreError as error:
            _log.warning("chunk cache: %s cannot be read, fetched again: %s", file.path, error)
            found = None
        if found is None:
            self._on_damage()
            self._remove(self._cache.remove(name))
        return found

    def _read(self, file: _File, key: bytes) -> memoryview | None:
        data = self._files.read_range(file.path, start_position=0, end_position_exclusive=file.size_bytes + 1)
        if len(data) < _HEADER.size:
            return None
        magic, key_size, size, digest = _HEADER.unpack_from(data)
        start = _HEADER.size + key_size
        if magic != _MAGIC or len(data) != start + size or data[_HEADER.size : start] != key:
            return None
        chunk = data[start:]
        if _digest(key, chunk) != digest:
            _log.warning("chunk cache: %s is damaged, fetched again", file.path)
            return None
        return chunk.toreadonly()

    def put(self, key: ChunkKey, data: memoryview, size_bytes: int = 0) -> None:
        """Write a chunk's file. A disk that is full, or fails, costs one log line and half a minute without writes."""
        del size_bytes  # the file's size counts
        if self._clock.monotonic_seconds() < self._paused_until_seconds:
            return
        name = _name(key)
        with self._lock:
            if name in self._writing:
                return  # by another thread, and soon there
            self._writing.add(name)
            unremoved, self._unremoved = self._unremoved, []
        try:
            self._delete(unremoved)
            if name not in self._cache:
                self._put(name, self._key_bytes(key), data)
        finally:
            with self._lock:
                self._writing.discard(name)

    def _put(self, name: str, told: bytes, data: memoryview) -> None:
        """Write a file of this name, which no other thread is writing."""
        path = f"{self._root}/{name[:2]}/{name}.{next(self._counter):x}.chunk"
        file = _File(path, _HEADER.size + len(told) + len(data), is_written=False)
        self._remove(self._cache.put(name, file, file.size_bytes))
        if name not in self._cache:
            return  # larger than the whole cache
        if not self._claim(file.size_bytes):
            self._remove(self._cache.remove(name))  # evicted files are still being removed by another thread
            return
        try:
            self._write(path, _HEADER.pack(_MAGIC, len(told), len(data), _digest(told, data)) + told, data)
        except BaseException as error:
            self._remove(self._cache.remove(name))
            self._delete([_File(path + _NEW, file.size_bytes, is_written=False)])
            if not isinstance(error, StoreError):
                raise
            self._rest(error)
            return
        self._is_failing = False
        with self._lock:
            file.is_written = True
            is_wanted = file.is_wanted
        if not is_wanted:
            self._delete([file])

    def _claim(self, size_bytes: int) -> bool:
        with self._lock:
            if self._limit != UNBOUNDED and self._disk_bytes + size_bytes > self._limit:
                return False
            self._disk_bytes += size_bytes
            return True

    def _write(self, path: str, header: bytes, data: memoryview) -> None:
        new = path + _NEW
        try:
            opened = self._files.open_update(new, private=True)
        except ObjectNotFoundError:  # the first of its folder
            self._files.make_directories(path.rpartition("/")[0], durable=False, private=True)
            opened = self._files.open_update(new, private=True)
        with opened:
            opened.append(header)
            opened.append(data)
        self._files.rename(new, path, durable=False)

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
        """Remove the files of entries that left the cache; a file that is still being written is left to its writer."""
        unwanted = []
        with self._lock:
            for _, file in left:
                file.is_wanted = False
                if file.is_written:
                    unwanted.append(file)
        self._delete(unwanted)

    def _delete(self, files: Iterable[_File]) -> None:
        """Remove files that no other thread removes; a file that stays is accounted, and a later put tries it again."""
        failed: list[_File] = []
        for file in files:
            try:
                self._files.remove(file.path)
            except StoreError as error:
                if not failed:
                    _log.warning("chunk cache: %s cannot be removed, it is tried again: %s", file.path, error)
                failed.append(file)
            else:
                with self._lock:
                    self._disk_bytes -= file.size_bytes
        if failed:
            with self._lock:
                self._unremoved += failed

    def drop(self, key: ChunkKey) -> None:
        left = self._cache.remove(_name(key))
        for _, file in left:
            _log.warning("chunk cache: %s is not the chunk that its name says, fetched again", file.path)
            self._on_damage()
        self._remove(left)

    def forget(self, log_key: str) -> None:
        prefix = _prefix(log_key)
        self._remove(self._cache.remove_where(lambda name: name.startswith(prefix)))

    def _key_bytes(self, key: ChunkKey) -> bytes:
        form = "stored" if self.keeps_stored else "plain"
        return f"{form}\0{key.log_key}\0{key.fingerprint:016x}\0{key.number}".encode("utf-8", "surrogateescape")

    def close(self) -> None:
        """Let another process have the directory; the files stay."""
        self._held.release()


def _prefix(log_key: str) -> str:
    return f"{xxhash.xxh3_64_hexdigest(log_key.encode('utf-8', 'surrogateescape'))}-"


def _name(key: ChunkKey) -> str:
    return f"{_prefix(key.log_key)}{key.fingerprint:016x}-{key.number}"


def _digest(key: bytes, chunk: memoryview) -> bytes:
    made = xxhash.xxh3_128(key)
    made.update(chunk)
    return made.digest()
