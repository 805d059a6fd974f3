"""Parts of files in answers, for tests."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from tierlog._native.files import open_ready
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Worker


def bytes_of(buffers: Iterable[Any]) -> bytes:
    """The bytes of views and of parts of files, in order."""
    return b"".join(bytes(_read(each)) if isinstance(each, FilePart) else each for each in buffers)


def _read(part: FilePart) -> memoryview:
    out = bytearray(part.size_bytes)
    assert part._file.read_into(out, part._position) == len(out)
    return memoryview(out)


def part_of(path: pathlib.Path, worker: Worker, position: int, size_bytes: int) -> FilePart:
    """A part of a file that was just written, or read: its name is in memory."""
    path.stat()
    file = open_ready(str(path))
    assert file is not None
    return FilePart(file, position=position, size_bytes=size_bytes, worker=worker)


def tells_what_is_in_memory(folder: pathlib.Path) -> bool:
    """Whether the system tells of files in a folder what it has of them in memory (Linux 6.5; no network's)."""
    folder.mkdir(exist_ok=True)
    path = folder / "told"
    path.write_bytes(b"told")
    file = open_ready(str(path))
    return file is not None and file.holds(0, 4)


def reads_at_once(path: pathlib.Path) -> bool:
    """Whether a read that must not wait gets what is not in memory: the disk had it before the system looked again.

    Since Linux 5.9 such a read begins to read ahead before it looks for what it may give.
    """
    drop_from_memory(path)
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False


def drop_from_memory(path: pathlib.Path) -> None:
    """Have the system forget what it has of a file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
