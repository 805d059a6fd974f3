"""A local log as windows of bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tierlog.runtime.machine.files import Files

#: Small enough for a core's share of cache.
FILE_WINDOW_BYTES = 2 << 20


def iter_file_windows(files: Files, path: str) -> Iterator[memoryview]:
    """The bytes of a local file, up to the size that it had when it was opened, or to where it was cut meanwhile."""
    with files.open_read(path) as file:
        position = 0
        while position < file.size_bytes:
            buffer = bytearray(min(FILE_WINDOW_BYTES, file.size_bytes - position))
            count = file.read_into(buffer, position=position)
            if count == 0:
                return
            position += count
            yield memoryview(buffer)[:count]
