"""A local directory as an object store: keys are paths below it, as they are.

No percent-encoding of names (obstore's own local store does that), reads by pread into fresh memory, and directories
that change while they are listed. A write is durable on return: the file, then its name, then the folder's. Folders
come with their first object and go with their last.

An object is not found only in a store that is there: where the root itself is gone, or an empty folder is in its place
(the rest of a vanished mount), the store is unavailable, and nothing is written into the empty folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from typing_extensions import Buffer

from tierlog._native.files import ReadyFile
from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, FileInfo, FileLock
from tierlog.runtime.stores.local.upload import LocalUpload, NewObject, temporary_name, uploaded_name
from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    RequestCounts,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    check_part_bytes,
    views_of,
)
from tierlog.runtime.stores.protocol.store_probe import StoreCapabilities, plain_capabilities
from tierlog.runtime.stores.protocol.store_writer import deletion_error

#: A folder can be pruned by another thread between its making and the file in it.
_FOLDER_TRIES: Final = 20
_LOCK_SECONDS_MAX: Final = 10.0
_LOCK_STEP_SECONDS: Final = 0.005
_LOCK_SUFFIX: Final = f".lock{TEMPORARY_SUFFIX}"
_LIMITS: Final = UploadLimits(part_bytes_min=1, part_bytes_max=1 << 40, parts_max=1 << 31, put_bytes_max=1 << 40)


class LocalStore:
    """An ObjectStore in a local directory.

    Args:
        root: An existing directory.
        machine: Its files; its chance, for temporary names.
        durable: False leaves out the fsyncs: fast, and gone with the power.

    Raises:
        ObjectNotFoundError: there is no such directory. StoreError: it is a file.
    """

    is_local = True

    def __init__(self, root: str, machine: Machine | None = None, *, durable: bool = True) -> None:
        self._machine = machine or Machine()
        files = self._machine.files
        found = files.stat(root)
        if not found.is_directory:
            raise StoreError(f"{root}: not a directory")
        self._identity = found.identity
        self._root = root.rstrip("/") or "/"
        self._base = root.rstrip("/") + "/"
        self._files = files
        self._durable = durable
        self._counts = RequestCounts()

    @property
    def upload_limits(self) -> UploadLimits:
        """Limits that no segment reaches: a file has none that matter."""
        return _LIMITS

    @property
    def requests(self) -> Mapping[str, int]:
        return self._counts.snapshot()

    def _path(self, key: str) -> str:
        if not key or key[0] == "/" or (".." in key and ".." in key.split("/")):
            raise StoreError(f"{key!r}: not a key")
        return self._base + key

    def _require_root(self) -> FileInfo:
        """Return the root. Raises StoreUnavailableError: it is gone, or an empty folder is in its place."""
        found = self._files.find(self._root)
        if found is None or not found.is_directory:
            raise StoreUnavailableError(f"{self._root}: the store's folder is gone (deleted, or no longer mounted)")
        if found.identity != self._identity:
            if next(iter(self._files.iter_directory(self._root)), None) is None:
                text = "the store's folder is gone, and an empty one is in its place (is it no longer mounted?)"
                raise StoreUnavailableError(f"{self._root}: {text}")
            self._identity = found.identity  # mounted again, or put in its place as a whole
        return found

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Iterate the objects; folders by name."""
        self._counts.add("LIST")
        folder = prefix[: prefix.rfind("/") + 1]
        for info in self._walk(folder):
            if info.key.startswith(prefix):
                yield info

    def _walk(self, folder: str, *, temporary: bool = False) -> Iterator[ObjectInfo]:
        """Iterate the objects below a folder; a link to one of the folders above it is left out, or it lists for ever.

        ``temporary``: only files that are still being written.
        """
        base = len(self._base)
        open_folders = [(self._entries(folder), frozenset((self._require_root().identity,)))]
        while open_folders:
            entries, above = open_folders[-1]
            for entry in entries:
                key = entry.path[base:]
                if not entry.is_directory:
                    if key.endswith(TEMPORARY_SUFFIX) == temporary:
                        yield _object(key, entry)
                elif entry.identity == (0, 0) or entry.identity not in above:
                    open_folders.append((self._entries(f"{key}/"), above | {entry.identity}))
                    break
            else:
                open_folders.pop()

    def _entries(self, folder: str) -> Iterator[FileInfo]:
        """Yield the entries of one folder; none if the folder is gone."""
        path = self._path(folder.rstrip("/")) if folder else self._root
        try:
            yield from self._files.iter_directory(path)
        except ObjectNotFoundError:
            self._require_root()

    def list_folder(self, prefix: str = "") -> FolderListing:
        self._counts.add("LIST")
        self._require_root()
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        for entry in self._entries(prefix):
            if entry.is_directory:
                folders.append(f"{prefix}{entry.name}/")
            elif not entry.name.endswith(TEMPORARY_SUFFIX):
                objects.append(_object(prefix + entry.name, entry))
        return FolderListing(tuple(folders), tuple(objects))

    def fetch(self, key: str) -> Buffer:
        self._counts.add("GET")
        try:
            return self._files.read_whole(self._path(key), limit_bytes=1 << 40)
        except ObjectNotFoundError:
            self._require_root()
            raise

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """Fetch a range. The memory is not cleared first, and not reused while a view of it is held."""
        self._counts.add("GET")
        try:
            return self._files.read_range(
                self._path(key), start_position=start_position, end_position_exclusive=end_position_exclusive
            )
        except ObjectNotFoundError:
            self._require_root()
            raise

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        self._counts.add("GET")
        try:
            return self._files.read_range_into(self._path(key), out, start_position=start_position)
        except ObjectNotFoundError:
            self._require_root()
            raise

    def fetch_small(self, keys: list[str], limits: list[int]) -> Sequence[Buffer | None]:
        self._counts.add("GET", len(keys))
        return self._files.read_small([self._path(key) for key in keys], limits)

    def open_ready(self, key: str) -> ReadyFile | None:
        file = self._files.open_ready(self._path(key))
        if file is not None:  # else another read follows
            self._counts.add("GET")
        return file

    def find(self, key: str) -> ObjectInfo | None:
        self._counts.add("HEAD")
        return self._info(key)

    def _info(self, key: str) -> ObjectInfo | None:
        found = self._files.find(self._path(key))
        if found is None:
            self._require_root()
        return None if found is None or found.is_directory else _object(key, found)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        """Put an object: the whole new one or the old one is there.

        Conditions hold among writers with a condition, on any machine of the same disk.
        """
        self._counts.add("PUT")
        with self._new_object(key) as new:
            position = 0
            for view in views_of(data):
                new.write_at(view, position=position)
                position += len(view)
            if expected_etag is None:
                return self._commit(key, new)
            with self._locked(key):
                found = self._info(key)
                if expected_etag != ("" if found is None else found.etag):
                    state = "is not there" if found is None else "is another one than expected"
                    raise ObjectConflictError(f"{self._path(key)}: {state}")
                return self._commit(key, new)

    def _commit(self, key: str, new: NewObject) -> StoredObject:
        try:
            new.commit()
        except ObjectNotFoundError:
            self._require_root()
            raise
        stored = self._info(key)
        if stored is None:
            raise StoreError(f"{self._path(key)}: was removed as soon as it was written")
        return StoredObject(stored.size_bytes, stored.etag)

    def _locked(self, key: str) -> FileLock:
        """Acquire the lock of a key; its file is no object, and outlives only a process that was killed."""
        path = f"{self._path(key)}{_LOCK_SUFFIX}"
        clock = self._machine.clock
        deadline = clock.monotonic_seconds() + _LOCK_SECONDS_MAX
        while (lock := self._files.try_lock(path)) is None:
            if clock.monotonic_seconds() > deadline:
                raise StoreUnavailableError(f"{self._path(key)}: locked by another writer for {_LOCK_SECONDS_MAX} s")
            clock.sleep(_LOCK_STEP_SECONDS)
        return lock

    def _new_object(self, key: str) -> NewObject:
        path = self._path(key)
        folder = path.rpartition("/")[0]
        temporary = temporary_name(path, self._machine.rng)
        self._require_root()
        for _ in range(_FOLDER_TRIES):
            try:
                self._files.make_directories(folder, durable=self._durable)
                return NewObject(self._files, path, temporary, durable=self._durable)
            except ObjectNotFoundError:  # pruned meanwhile
                continue
        raise StoreError(f"{folder}: vanishes as often as it is made")

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Begin an upload: parts are written at their positions, into one file under a temporary name.

        The whole upload counts as one PUT: to a folder a part is no request, only a piece of a file.
        """
        check_part_bytes(part_bytes, _LIMITS)
        self._counts.add("PUT")
        new = self._new_object(key)
        return LocalUpload(
            key,
            part_bytes,
            new,
            lock=self._machine.scheduler.lock(),
            counts=self._counts,
            commit=lambda: self._commit(key, new),
        )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; folders that become empty go too, the root never."""
        failed: dict[str, StoreError] = {}
        folders: set[str] = set()
        for key in keys:
            self._counts.add("DELETE")
            try:
                if self._info(key) is not None:
                    self._files.remove(self._path(key))
                    folders.add(self._path(key).rpartition("/")[0])
            except StoreError as error:
                failed[key] = error
        for folder in sorted(folders, key=len, reverse=True):
            self._prune(folder)
        if failed:
            raise deletion_error(self._root, failed)

    def _prune(self, folder: str) -> None:
        """Make the removal durable and remove the folders that it emptied."""
        while folder != self._root:
            try:
                self._files.remove(f"{folder}/")  # with the slash: a folder, never a link to one
            except StoreError:  # not empty, as a rule; what cannot be pruned only takes a name
                break
            folder = folder.rpartition("/")[0]
        if self._durable:
            try:
                self._files.fsync_directory(folder)
            except ObjectNotFoundError:  # pruned by another thread, which fsyncs the one above
                pass

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Iterate unfinished uploads: files under a temporary name, which is the upload's id, and locks that killed
        writers left behind.
        """
        self._counts.add("LIST")
        folder = prefix[: prefix.rfind("/") + 1]
        for info in self._walk(folder, temporary=True):
            above, _, name = info.key.rpartition("/")
            final = _final_name(name)
            key = f"{above}/{final}" if above else final or ""
            if final and key.startswith(prefix):
                yield UnfinishedUpload(key, name, info.last_modified_ms)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        name = upload.key.rpartition("/")[2]
        if "/" in upload.upload_id or _final_name(upload.upload_id) != name:
            raise StoreError(f"{upload.upload_id!r}: not an upload of {upload.key}")
        self._counts.add("DELETE")
        folder = self._path(upload.key).rpartition("/")[0]
        path = f"{folder}/{upload.upload_id}"
        if not upload.upload_id.endswith(_LOCK_SUFFIX):
            self._files.remove(path)
        elif self._files.find(path) is not None and (held := self._files.try_lock(path)) is not None:
            held.release()  # which removes it; where a writer lives, it stays
        self._prune(folder)

    def describe(self) -> str:
        """Return the path of the folder."""
        return self._root

    def identity(self) -> str:
        return f"user {os.geteuid()}, group {os.getegid()} of this machine"

    def capabilities(self, key: str) -> StoreCapabilities:
        return plain_capabilities(
            self, key, addressing=f"{self._root} ({'fsynced' if self._durable else 'NOT fsynced'})"
        )

    def close(self) -> None:
        """Nothing is held."""


def _final_name(name: str) -> str | None:
    """Return the object of a temporary file; None if it is none of ours."""
    if name.endswith(_LOCK_SUFFIX):
        return name.removesuffix(_LOCK_SUFFIX) or None
    return uploaded_name(name)


def _object(key: str, found: FileInfo) -> ObjectInfo:
    """Return one file as an object. Each write makes a new file: inode, time and size distinguish it from the one
    before.
    """
    etag = f"{found.identity[1]:x}-{found.modified_ms:x}-{found.size_bytes:x}"
    return ObjectInfo(key, found.size_bytes, found.modified_ms, etag)
