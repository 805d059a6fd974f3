"""The bare codecs: liblz4 and libzstd called once a block or frame of a log, with everything found out beforehand."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shlex
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tierlog.records import BatchTable

SOURCE = pathlib.Path(__file__).with_name("bare.c")
_HEADER_BYTES = 61
_STORED = 0x80000000


@functools.cache
def library() -> ctypes.CDLL:
    """``bare.c``, compiled as our own core is."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tierlog-bench-"))
    made = folder / "bare.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-O3", "-shared", "-fPIC", str(SOURCE), "-o", str(made), "-llz4", "-lzstd"], check=True)
    loaded = ctypes.CDLL(str(made))
    made.unlink()
    folder.rmdir()
    loaded.bare_lz4.restype = loaded.bare_zstd.restype = ctypes.c_int64
    loaded.bare_lz4_version.restype = loaded.bare_zstd_version.restype = ctypes.c_char_p
    return loaded


def versions() -> dict[str, str]:
    """Versions of the libraries with which the limits are measured."""
    return {"liblz4": library().bare_lz4_version().decode(), "libzstd": library().bare_zstd_version().decode()}


@dataclass(frozen=True, slots=True)
class BareCodec:
    """Decompresses every batch of a log and drops the bytes."""

    decompress: Callable[[], int]
    """Bytes that came out."""


def _address(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def bare_codec(codec: str, log: bytes, table: BatchTable, *, largest_batch_bytes: int) -> BareCodec:
    """``lz4`` or ``zstd`` over the payloads of a log.

    Args:
        codec: Codec of all batches.
        log: Whole batches.
        table: The headers of these batches.
        largest_batch_bytes: Largest size of a decompressed batch.
    """
    source = np.frombuffer(log, np.uint8)
    out = np.ones(largest_batch_bytes, np.uint8)  # written once, so that its pages are there
    payloads = [
        (int(position) + _HEADER_BYTES, int(position) + int(size))
        for position, size in zip(table.position, table.size_bytes, strict=True)
    ]
    if codec == "zstd":
        frames = np.array([(start, end - start) for start, end in payloads], np.int64)

        def zstd() -> int:
            return int(library().bare_zstd(_address(source), _address(frames), len(frames), _address(out), len(out)))

        return BareCodec(zstd)
    blocks: list[tuple[int, int]] = []
    ends: list[int] = []
    for start, _ in payloads:
        blocks += _lz4_blocks(log, start)
        ends.append(len(blocks))
    pieces, batch_ends = np.array(blocks, np.int64), np.array(ends, np.int64)

    def lz4() -> int:
        of = (_address(source), _address(pieces), _address(batch_ends), len(batch_ends), _address(out), len(out))
        return int(library().bare_lz4(*of))

    return BareCodec(lz4)


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
