"""The limits: liblz4, libzstd, libcrypto and pread called from C (``bare.c``), with everything found out beforehand."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shlex
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness import MIB, work_folder
from tierlog.records import BatchTable

Bytes = NDArray[np.uint8]
SOURCE = pathlib.Path(__file__).with_suffix(".c")
KEY = bytes(range(32))
IV_BYTES = 12
#: Bytes of one read of a segment, as brokers ask for them.
READ_BYTES = MIB
CORES = len(os.sched_getaffinity(0))
_HEADER_BYTES = 61
_STORED = 0x80000000
_FUNCTIONS = ("lz4", "zstd", "compress", "decompress", "seal", "reads", "whole")


@functools.cache
def library() -> ctypes.CDLL:
    """``bare.c``, compiled as our own core is."""
    with work_folder() as folder:
        made = folder / "bare.so"
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O3", "-shared", "-fPIC", str(SOURCE), "-o", str(made)]
        subprocess.run([*command, "-llz4", "-lzstd", "-lcrypto"], check=True)
        loaded = ctypes.CDLL(str(made))
    for name in _FUNCTIONS:
        getattr(loaded, f"bare_{name}").restype = ctypes.c_int64
    for name in ("lz4", "zstd", "crypto"):
        getattr(loaded, f"bare_{name}_version").restype = ctypes.c_char_p
    return loaded


def versions() -> dict[str, str]:
    """Versions of the libraries with which the limits are measured."""
    names = {"liblz4": "lz4", "libzstd": "zstd", "libcrypto": "crypto"}
    return {told: getattr(library(), f"bare_{name}_version")().decode() for told, name in names.items()}


def _at(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _call(name: str, *given: object) -> int:
    """The bytes that a function made. Numbers go as int64, arrays as their address."""
    passed = [
        _at(each) if isinstance(each, np.ndarray) else ctypes.c_int64(each) if isinstance(each, int) else each
        for each in given
    ]
    made = int(getattr(library(), f"bare_{name}")(*passed))
    if made < 0:
        raise OSError(f"the bare call {name} failed")
    return made


# ---- single calls


def compress(level: int, data: Bytes, out: Bytes) -> int:
    """ZSTD_compress2."""
    return _call("compress", ctypes.c_int(level), data, len(data), out, len(out))


def decompress(data: Bytes, out: Bytes) -> int:
    """ZSTD_decompressDCtx."""
    return _call("decompress", data, len(data), out, len(out))


def seal(iv: bytes, data: Bytes, out: Bytes, *, aad: bytes = b"") -> int:
    """AES-256-GCM by EVP: ciphertext, then the tag."""
    return _call("seal", KEY, aad, len(aad), iv, data, len(data), out)


# ---- batches of a log


def codec_of(codec: str, log: bytes, table: BatchTable, *, largest_batch_bytes: int) -> Callable[[], int]:
    """A call that decompresses (``lz4``, ``zstd``) every batch of a log, drops the bytes, and returns their number."""
    source = np.frombuffer(log, np.uint8)
    out = np.ones(largest_batch_bytes, np.uint8)  # written once, so that its pages are there
    starts = [int(position) + _HEADER_BYTES for position in table.position]
    if codec == "zstd":
        ends = [int(position) + int(size) for position, size in zip(table.position, table.size_bytes, strict=True)]
        frames = np.array([(start, end - start) for start, end in zip(starts, ends, strict=True)], np.int64)
        return lambda: _call("zstd", source, frames, len(frames), out, len(out))
    blocks: list[tuple[int, int]] = []
    batch_ends: list[int] = []
    for start in starts:
        blocks += _lz4_blocks(log, start)
        batch_ends.append(len(blocks))
    pieces, ends_of = np.array(blocks, np.int64), np.array(batch_ends, np.int64)
    return lambda: _call("lz4", source, pieces, ends_of, len(ends_of), out, len(out))


def _lz4_blocks(log: bytes, start: int) -> list[tuple[int, int]]:
    """(position, size) of the blocks of one frame as Kafka writes it: seven bytes of header, no checksums."""
    at = start + 7
    found = []
    while True:
        (size,) = struct.unpack_from("<I", log, at)
        at += 4
        if size == 0:
            return found
        length = size & (_STORED - 1)
        found.append((at, -length if size & _STORED else length))
        at += length


# ---- chunks of a segment in a file


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


class Rooms:
    """Buffers of one thread, written once so that their pages are there."""

    def __init__(self, chunk_bytes: int) -> None:
        self.stored: Bytes = np.ones(chunk_bytes + MIB, np.uint8)
        self.opened: Bytes = np.ones(chunk_bytes + MIB, np.uint8)
        self.out: Bytes = np.ones(READ_BYTES + 2 * chunk_bytes, np.uint8)


class Chunks:
    """A log in chunks in a file that is written anew: the same borders, level and so sizes as a copy's.

    Args:
        path: Path of the file.
        log: The bytes of the log.
        chunk_bytes: Bytes of the log in one chunk.
        form: Whether chunks are compressed by zstd, and whether they are then encrypted by AES-256-GCM.
    """

    def __init__(self, path: pathlib.Path, log: Bytes, chunk_bytes: int, form: tuple[bool, bool]) -> None:
        compressed, encrypted = form
        places, at = [], 0
        room: Bytes = np.empty(2 * chunk_bytes + MIB, np.uint8)
        sealed: Bytes = np.empty(2 * chunk_bytes + MIB, np.uint8)
        with path.open("wb") as file:
            for number, start in enumerate(range(0, len(log), chunk_bytes)):
                data = log[start : start + chunk_bytes]
                if compressed:
                    data = room[: compress(3, data, room)]
                if encrypted:
                    iv = number.to_bytes(IV_BYTES, "big")
                    sealed[:IV_BYTES] = np.frombuffer(iv, np.uint8)
                    data = sealed[: IV_BYTES + seal(iv, data, sealed[IV_BYTES:])]
                file.write(data.data)
                places.append((at, len(data)))
                at += len(data)
        self.stored_bytes, self.size_bytes, self.chunk_bytes = at, len(log), chunk_bytes
        self._file, self._places = path.open("rb", buffering=0), np.array(places, np.int64)
        self._exact = not compressed and not encrypted
        settings = (self._file.fileno(), compressed, encrypted, chunk_bytes, len(log), _at(self._places))
        self._store = ctypes.byref(_Store(*settings, (ctypes.c_uint8 * 32)(*KEY)))

    def reads(self, starts: Sequence[int], rooms: Rooms) -> list[float]:
        """Seconds of each read of a mebibyte; the last one's bytes stay in the rooms."""
        seconds = np.zeros(len(starts))
        into = (rooms.stored, rooms.opened, rooms.out, seconds)
        _call("reads", self._store, np.array(starts, np.int64), len(starts), READ_BYTES, *into)
        return list(seconds.tolist())

    def check(self, log: Bytes, starts: Sequence[int], rooms: Rooms) -> None:
        """Compare reads with the log."""
        for start in starts:
            self.reads([start], rooms)
            at = 0 if self._exact else start % self.chunk_bytes
            if rooms.out[at : at + READ_BYTES].tobytes() != log[start : start + READ_BYTES].tobytes():
                raise OSError(f"the bare calls open other bytes than the log's at {start}")

    def whole(self, rooms: Sequence[Rooms]) -> dict[str, float]:
        """Read every chunk once, by as many threads as there are rooms."""
        following, made = ctypes.c_int64(0), []

        def run(own: Rooms) -> None:
            into = (own.stored, own.opened, own.out)
            made.append(_call("whole", self._store, len(self._places), ctypes.byref(following), *into))

        told = at_once([functools.partial(run, own) for own in rooms])
        if sum(made) != self.size_bytes:
            raise OSError(f"the bare calls made {made} of {self.size_bytes} bytes")
        return told

    def write_places(self, path: pathlib.Path) -> None:
        """Position and size of each chunk, int64 twice, for ``pread_server``."""
        self._places.tofile(path)

    def close(self) -> None:
        self._file.close()


def at_once(jobs: Sequence[Callable[[], object]]) -> dict[str, float]:
    """Wall and CPU seconds of all calls, a thread each, from when all threads wait; raises their first error."""
    ready = threading.Barrier(len(jobs) + 1)
    problems: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        ready.wait()
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised where the threads are joined
            problems.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    ready.wait()
    cpu, wall = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
