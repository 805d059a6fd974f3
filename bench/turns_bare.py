"""The bare calls as a side of :mod:`bench.turns`: pread, libcrypto's AES-256-GCM and libzstd, a C loop a thread.

    python -m bench.turns_bare SEGMENT.json

It writes the same chunks as a copy does (same borders, same level, so the same sizes) into a file of its own, and reads
them with nothing around the libraries' calls: buffers and contexts stay, no checksum of batches, no manifest.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.bare_chunks import BareGcm, BareZstd, Bytes
from bench.logs import MIB
from bench.storage_segment import read_description
from bench.turns import READ_BYTES
from bench.turns_ours import Clock, Job, at_once, memory, serve

SOURCE = pathlib.Path(__file__).with_suffix(".c")
KEY = bytes(range(32))
CORES = len(os.sched_getaffinity(0))


@functools.cache
def library() -> ctypes.CDLL:
    """``turns_bare.c``, compiled."""
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as folder:
        made = pathlib.Path(folder) / "bare.so"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        command = [*compiler, "-O3", "-shared", "-fPIC", str(SOURCE), "-o", str(made), "-lzstd", "-lcrypto"]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(made))
    loaded.bare_reads.restype = loaded.bare_whole.restype = ctypes.c_int64
    return loaded


class _Store(ctypes.Structure):
    _fields_ = (
        ("descriptor", ctypes.c_int32),
        ("compressed", ctypes.c_int32),
        ("encrypted", ctypes.c_int32),
        ("chunk_bytes", ctypes.c_int64),
        ("size_bytes", ctypes.c_int64),
        ("chunks", ctypes.c_void_p),
        ("key", ctypes.c_uint8 * 32),
    )


def _at(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Rooms:
    """Buffers of one thread, written once so that their pages are there."""

    def __init__(self, chunk_bytes: int) -> None:
        self.stored: Bytes = np.ones(chunk_bytes + MIB, np.uint8)
        self.opened: Bytes = np.ones(chunk_bytes + MIB, np.uint8)
        self.out: Bytes = np.ones(READ_BYTES + 2 * chunk_bytes, np.uint8)


class BareChunks:
    """Chunks of a log in a file.

    Args:
        path: Path of the file, which is written.
        log: The bytes of the log.
        chunk_bytes: Bytes of the log in one chunk.
        compressed: Whether chunks are compressed by zstd.
        encrypted: Whether chunks are then encrypted by AES-256-GCM.
        level: The level of zstd.
    """

    def __init__(
        self, path: pathlib.Path, log: Bytes, *, chunk_bytes: int, compressed: bool, encrypted: bool, level: int = 3
    ) -> None:
        zstd, gcm = BareZstd(level), BareGcm(KEY, b"")
        places, at = [], 0
        room: Bytes = np.empty(2 * chunk_bytes + MIB, np.uint8)
        sealed: Bytes = np.empty(2 * chunk_bytes + MIB, np.uint8)
        with path.open("wb") as file:
            for number, start in enumerate(range(0, len(log), chunk_bytes)):
                data = log[start : start + chunk_bytes]
                if compressed:
                    data = room[: zstd.compress(data, room)]
                if encrypted:
                    iv = number.to_bytes(12, "big")
                    sealed[:12] = np.frombuffer(iv, np.uint8)
                    data = sealed[: 12 + gcm.encrypt(iv, data, sealed[12:])]
                file.write(data.data)
                places.append((at, len(data)))
                at += len(data)
        self._file = path.open("rb", buffering=0)
        self._places = np.array(places, np.int64)
        self.stored_bytes, self.size_bytes, self.chunk_bytes = at, len(log), chunk_bytes
        self._exact = not compressed and not encrypted
        settings = (self._file.fileno(), compressed, encrypted, chunk_bytes, len(log), _at(self._places))
        self._store = _Store(*settings, (ctypes.c_uint8 * 32)(*KEY))

    def reads(self, starts: Sequence[int], rooms: Rooms) -> list[float]:
        """Seconds of each read of a mebibyte; the last one's bytes stay in the rooms."""
        positions, seconds = np.array(starts, np.int64), np.zeros(len(starts))
        count, length = ctypes.c_int64(len(starts)), ctypes.c_int64(READ_BYTES)
        into = (_at(rooms.stored), _at(rooms.opened), _at(rooms.out), _at(seconds))
        if library().bare_reads(ctypes.byref(self._store), _at(positions), count, length, *into) < 0:
            raise OSError("a bare call failed")
        told: list[float] = seconds.tolist()
        return told

    def found(self, start: int, rooms: Rooms) -> bytes:
        """The bytes that the last read put into the rooms."""
        at = 0 if self._exact else start % self.chunk_bytes
        return rooms.out[at : at + READ_BYTES].tobytes()

    def whole(self, rooms: Sequence[Rooms]) -> dict[str, Any]:
        """Read every chunk once, by as many threads as there are rooms."""
        following, made = ctypes.c_int64(0), []

        def run(own: Rooms) -> None:
            into = (_at(own.stored), _at(own.opened), _at(own.out))
            count = ctypes.c_int64(len(self._places))
            made.append(library().bare_whole(ctypes.byref(self._store), count, ctypes.byref(following), *into))

        told = at_once([functools.partial(run, own) for own in rooms])
        if -1 in made or sum(made) != self.size_bytes:
            raise OSError(f"the bare calls made {made} of {self.size_bytes} bytes")
        return told

    def write_places(self, path: pathlib.Path) -> None:
        """Position and size of each chunk, int64 twice, for ``pread_server``."""
        self._places.tofile(path)

    def close(self) -> None:
        self._file.close()


class Bare:
    """Files of chunks by name, over one segment; ``copy`` needs no peer here and is not answered."""

    def __init__(self, segment_file: pathlib.Path) -> None:
        self._log_file = read_description(segment_file).data.log_segment
        self._chunks: dict[str, BareChunks] = {}

    def answer(self, job: Job) -> dict[str, Any]:
        """Run one round."""
        told: dict[str, Any] | None = getattr(self, f"_{job['op']}")(job)
        return told or {}

    def _open(self, job: Job) -> dict[str, Any]:
        """``path`` of the file and ``form``: (compressed, encrypted), ``chunk_bytes``."""
        log = np.fromfile(self._log_file, np.uint8)
        compressed, encrypted = job["form"]
        form = {"chunk_bytes": job["chunk_bytes"], "compressed": compressed, "encrypted": encrypted}
        made = self._chunks[job["manager"]] = BareChunks(pathlib.Path(job["path"]), log, **form)
        return {"stored": made.stored_bytes}

    def _close(self, job: Job) -> None:
        self._chunks.pop(job["manager"]).close()

    def _whole(self, job: Job) -> dict[str, Any]:
        """Read the whole file by as many threads as there are cores."""
        chunks = self._chunks[job["manager"]]
        return chunks.whole([Rooms(chunks.chunk_bytes) for _ in range(CORES)])

    def _random(self, job: Job) -> dict[str, Any]:
        chunks = self._chunks[job["manager"]]
        rooms = Rooms(chunks.chunk_bytes)
        if job["check"]:
            log = np.memmap(self._log_file, np.uint8, "r")
            for start in job["starts"]:
                chunks.reads([start], rooms)
                if chunks.found(start, rooms) != log[start : start + READ_BYTES].tobytes():
                    raise OSError(f"other bytes than the log's at {start}")
        clock = Clock()
        each = chunks.reads(job["starts"], rooms)
        return {**clock.stop(), "each": each}

    def _many(self, job: Job) -> dict[str, Any]:
        chunks, each = self._chunks[job["manager"]], []

        def run(starts: Sequence[int], rooms: Rooms) -> None:
            each.extend(chunks.reads(starts, rooms))

        told = at_once([functools.partial(run, starts, Rooms(chunks.chunk_bytes)) for starts in job["lists"]])
        return {**told, "each": each}

    def _memory(self, job: Job) -> dict[str, Any]:
        return memory()


if __name__ == "__main__":
    serve(Bare(pathlib.Path(sys.argv[1])).answer)
