"""A local directory as an object store: keys are paths below it, as they are.

No percent-encoding of names (obstore's own local store does that), reads by pread into fresh memory, and directories
that change while they are listed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.files import TEMPORARY_SUFFIX, FileInfo, Files
from tierlog.runtime.object_store import FolderListing, ObjectInfo


class LocalStore:
    """See the module.

    Args:
        root: An existing directory.
        files: The file system.

    Raises:
        ObjectNotFoundError: there is no such directory. StoreError: it is a file.
    """

    is_local = True

    def __init__(self, root: str, files: Files) -> None:
        if not files.stat(root).is_directory:
            raise StoreError(f"{root}: not a directory")
        self._root = root.rstrip("/") or "/"
        self._files = files

    def _path(self, key: str) -> str:
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise StoreError(f"{key!r}: not a key")
        return f"{self._root.rstrip('/')}/{key}"

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore; folders by name."""
        folder = prefix[: prefix.rfind("/") + 1]
        for info in self._walk(folder, prefix, frozenset((self._files.stat(self._root).identity,))):
            if info.key.startswith(prefix):
                yield info

    def _walk(self, folder: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[ObjectInfo]:
        """Below a folder; a link to one of the folders ``above`` is left out, or a few of them list for ever."""
        for entry in self._entries(folder):
            key = folder + entry.name
            if not entry.is_directory:
                yield ObjectInfo(key, entry.size_bytes, entry.modified_ms)
            elif entry.identity == (0, 0) or entry.identity not in above:
                yield from self._walk(f"{key}/", prefix, above | {entry.identity})

    def _entries(self, folder: str) -> Iterator[FileInfo]:
        """Of one folder; nothing if it is gone. Files that are still being written are left out."""
        path = self._path(folder.rstrip("/")) if folder else self._root
        try:
            yield from (e for e in self._files.iter_directory(path) if not e.name.endswith(TEMPORARY_SUFFIX))
        except ObjectNotFoundError:
            return

    def list_folder(self, prefix: str = "") -> FolderListing:
        """See ObjectStore."""
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        for entry in self._entries(prefix):
            if entry.is_directory:
                folders.append(f"{prefix}{entry.name}/")
            else:
                objects.append(ObjectInfo(prefix + entry.name, entry.size_bytes, entry.modified_ms))
        return FolderListing(tuple(folders), tuple(objects))

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore."""
        return self._files.read_whole(self._path(key), limit_bytes=1 << 40)

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore. The memory is not cleared first and never reused."""
        with self._files.open_read(self._path(key)) as file:
            size = max(0, min(end_position_exclusive, file.size_bytes) - start_position)
            buffer = np.empty(size, np.uint8).data
            count = file.read_into(buffer, position=start_position)
        return buffer[:count]

    def put(self, key: str, data: Buffer) -> None:
        """See ObjectStore: the whole object or what was there before."""
        path = self._path(key)
        self._files.make_directories(path.rpartition("/")[0])
        self._files.write_whole(path, data)

    def describe(self) -> str:
        """The directory."""
        return self._root

    def close(self) -> None:
        """Nothing is held."""
