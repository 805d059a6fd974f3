"""Open files of an overlay."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import FileLock, ReadableFile, UpdatableFile, WritableFile
from tierlog.runtime.overlay.overlay_pages import OverlayContent, OverlayPages


class OverlayFile(ReadableFile):
    """A ReadableFile of an overlay."""

    def __init__(self, pages: OverlayPages, path: str, content: OverlayContent, real: ReadableFile | None) -> None:
        self._pages = pages
        self._path = path
        self._content = content
        self._real = real
        self._is_open = True
        self.size_bytes = content.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        if not self._is_open:
            raise StoreError(f"{self._path}: closed")
        return self._pages.read(self._content, self._real, buffer, position)

    def close(self) -> None:
        self._is_open = False
        if self._real is not None:
            self._real.close()


class OverlayUpdatableFile(UpdatableFile):
    """An UpdatableFile of an overlay."""

    def __init__(self, pages: OverlayPages, path: str, content: OverlayContent, real: ReadableFile | None) -> None:
        self._pages = pages
        self._path = path
        self._content = content
        self._real = real
        self._is_open = True

    @property
    def descriptor(self) -> int | None:
        return None

    @property
    def size_bytes(self) -> int:
        return self._content.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._pages.read(self._opened(), self._real, buffer, position)

    def append(self, data: Buffer) -> int:
        content = self._opened()
        position = content.size_bytes
        self._pages.write(content, self._real, data, position)
        return position

    def write_at(self, data: Buffer, *, position: int) -> None:
        self._pages.write(self._opened(), self._real, data, position)

    def truncate(self, size_bytes: int) -> None:
        self._pages.truncate(self._opened(), size_bytes)

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        """Nothing: there is no disk."""

    def fsync(self) -> None:
        """Nothing: there is no disk."""
        self._opened()

    def close(self) -> None:
        self._is_open = False
        if self._real is not None:
            self._real.close()

    def _opened(self) -> OverlayContent:
        if not self._is_open:
            raise StoreError(f"{self._path}: closed")
        return self._content


class OverlayNewFile(WritableFile):
    """A WritableFile of an overlay.

    Args:
        file: Under its temporary name.
        commit: Gives it its final name.
        remove: Removes the temporary name.
        release: Lets others write the name.
    """

    def __init__(
        self,
        file: OverlayUpdatableFile,
        *,
        commit: Callable[[], None],
        remove: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        self._file = file
        self._commit = commit
        self._remove = remove
        self._release = release
        self._is_open = True

    def write(self, data: Buffer) -> None:
        self._file.append(data)

    def commit(self) -> None:
        self._commit()
        self._close()

    def abort(self) -> None:
        if self._is_open:
            self._remove()
            self._close()

    def _close(self) -> None:
        self._is_open = False
        self._file.close()
        self._release()


class OverlayLock(FileLock):
    """A FileLock of an overlay, and of the real file where there is one."""

    def __init__(self, release: Callable[[], None], real: FileLock | None = None) -> None:
        self._release = release
        self._real = real
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._release()
            if self._real is not None:
                self._real.release()
