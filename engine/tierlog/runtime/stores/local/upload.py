"""An object on its way into a local folder: one file under a temporary name, each part written where it belongs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Self

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.stores.protocol.object_store import RequestCounts, StoredObject
from tierlog.runtime.stores.protocol.store_writer import PartedUpload

#: Between two of these a part notices that it was aborted.
_STEP_BYTES: Final = 8 << 20
_TOKEN_BYTES: Final = 8
_TEMPORARY: Final = re.compile(rf"(.+)\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}{re.escape(TEMPORARY_SUFFIX)}")


def temporary_name(path: str, rng: Rng) -> str:
    """Return a name beside ``path`` that no other writer of it has, on this machine or on another one of
    the same disk.
    """
    return f"{path}.{rng.secret_bytes(_TOKEN_BYTES).hex()}{TEMPORARY_SUFFIX}"


def uploaded_name(name: str) -> str | None:
    """Return the final name of a file under a temporary name; None if the name is not temporary."""
    found = _TEMPORARY.fullmatch(name)
    return found[1] if found else None


class NewObject:
    """A file that gets its name on commit. Leaving the ``with`` block without removes it."""

    def __init__(self, files: Files, path: str, temporary: str, *, durable: bool) -> None:
        self._files = files
        self._path = path
        self._temporary = temporary
        self._durable = durable
        self._file = files.open_update(temporary)
        self._open = True

    def write_at(self, data: memoryview, *, position: int) -> None:
        """Write a piece where it belongs; one thread at a time."""
        self._file.write_at(data, position=position)

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        """Make the disk begin to write a part, so that commit has less to wait for."""
        if self._durable:
            self._file.begin_write_out(position=position, size_bytes=size_bytes)

    def commit(self) -> None:
        """Close the file and give it its name; where it is durable, fsync it before and its directory after."""
        if self._durable:
            self._file.fsync()
        self._file.close()
        self._files.rename(self._temporary, self._path, durable=self._durable)
        self._open = False

    def abort(self) -> None:
        """Close and remove; nothing after commit. May be called again after an error."""
        if self._open:
            self._file.close()
            self._files.remove(self._temporary)
            self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class LocalUpload(PartedUpload):
    """An Upload into a file. Parts are written one after another: a file takes one write at a time.

    Args:
        new: Open; closed by complete or abort.
        lock: Held while a piece is written.
        commit: Gives the file its name and says what lies there.
    """

    def __init__(
        self,
        key: str,
        part_bytes: int,
        new: NewObject,
        *,
        lock: Lock,
        counts: RequestCounts,
        commit: Callable[[], StoredObject],
    ) -> None:
        super().__init__(key, part_bytes, place=key, lock=lock)
        self._part_bytes = part_bytes
        self._new = new
        self._counts = counts
        self._commit = commit

    def _send(self, number: int, views: list[memoryview]) -> None:
        position = start_position = (number - 1) * self._part_bytes
        for view in views:
            for start in range(0, len(view), _STEP_BYTES):
                with self._lock:
                    self._check_open()
                    self._new.write_at(view[start : start + _STEP_BYTES], position=position + start)
            position += len(view)
        with self._lock:
            self._check_open()
            self._new.begin_write_out(position=start_position, size_bytes=position - start_position)

    def _finish(self, parts: list[None]) -> StoredObject:  # noqa: ARG002 - they lie where they belong
        with self._lock:
            self._check_open()
            stored = self._commit()
        if stored.size_bytes != self._sizes.size_bytes:
            raise StoreError(f"{self.key}: {stored.size_bytes} bytes stored, {self._sizes.size_bytes} sent")
        return stored

    def _drop(self) -> None:
        self._counts.add("DELETE")
        with self._lock:
            self._new.abort()
