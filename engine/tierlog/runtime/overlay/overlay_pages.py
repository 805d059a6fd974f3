"""The content of a file whose changes are in memory: pages that were written, over the first bytes of a real one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import FileInfo, ReadableFile

_PAGE_BYTES: Final = 4096


@dataclass(slots=True)
class OverlayContent:
    """A file.

    Attributes:
        real_path: Where the real one is; it never changes. None: there is none.
        real_bytes: So many of its bytes still count.
    """

    info: FileInfo
    real_path: str | None
    real_bytes: int
    size_bytes: int
    pages: dict[int, bytearray] = field(default_factory=dict)


class OverlayPages:
    """The pages of all contents, in memory that is bounded. Thread-safe.

    Args:
        clock: Source of the times of change.
        limit_bytes: The most bytes of all pages together.

    Attributes:
        lock: Guards the contents, and whatever else must not change with them.
    """

    def __init__(self, clock: Clock, limit_bytes: int) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self.lock = threading.RLock()

    @property
    def free_bytes(self) -> int:
        return max(0, self._limit_bytes - self._used_bytes)

    def read(self, content: OverlayContent, real: ReadableFile | None, buffer: Buffer, position: int) -> int:
        """Fill a buffer from a position on; the bytes read."""
        view = memoryview(buffer).cast("B")
        with self.lock:
            count = max(0, min(len(view), content.size_bytes - position))
            view = view[:count]
            from_real = max(0, min(count, content.real_bytes - position)) if real is not None else 0
            if from_real and real is not None:
                from_real = real.read_into(view[:from_real], position=position)
            view[from_real:] = bytes(count - from_real)
            if not content.pages or not count:
                return count
            for number in range(position // _PAGE_BYTES, (position + count - 1) // _PAGE_BYTES + 1):
                page = content.pages.get(number)
                if page is not None:
                    at = number * _PAGE_BYTES
                    start, end = max(position, at), min(position + count, at + _PAGE_BYTES)
                    view[start - position : end - position] = page[start - at : end - at]
            return count

    def write(self, content: OverlayContent, real: ReadableFile | None, data: Buffer, position: int) -> None:
        """Overwrite, and go on behind the end. Raises StoreError: too much was changed."""
        view = memoryview(data).cast("B")
        if not len(view):
            return
        with self.lock:
            numbers = range(position // _PAGE_BYTES, (position + len(view) - 1) // _PAGE_BYTES + 1)
            missing = [number for number in numbers if number not in content.pages]
            if self._used_bytes + len(missing) * _PAGE_BYTES > self._limit_bytes:
                text = (
                    f"{content.info.path}: more than {self._limit_bytes} bytes were changed: too much to keep in memory"
                )
                raise StoreError(text)
            for number in missing:
                page = bytearray(_PAGE_BYTES)
                self.read(content, real, page, number * _PAGE_BYTES)
                content.pages[number] = page
            self._used_bytes += len(missing) * _PAGE_BYTES
            for number in numbers:
                at = number * _PAGE_BYTES
                start, end = max(position, at), min(position + len(view), at + _PAGE_BYTES)
                content.pages[number][start - at : end - at] = view[start - position : end - position]
            content.size_bytes = max(content.size_bytes, position + len(view))
            self._touch(content)

    def truncate(self, content: OverlayContent, size_bytes: int) -> None:
        """Cut a file, or lengthen it with zeros."""
        with self.lock:
            content.real_bytes = min(content.real_bytes, size_bytes)
            last = -(-size_bytes // _PAGE_BYTES)
            for number in [number for number in content.pages if number >= last]:
                del content.pages[number]
                self._used_bytes -= _PAGE_BYTES
            edge = content.pages.get(last - 1)
            if edge is not None and size_bytes % _PAGE_BYTES:
                kept = size_bytes % _PAGE_BYTES
                edge[kept:] = bytes(_PAGE_BYTES - kept)
            content.size_bytes = size_bytes
            self._touch(content)

    def _touch(self, content: OverlayContent) -> None:
        content.info = replace(content.info, modified_ms=self._clock.time_ms(), identity=(0, 0))
