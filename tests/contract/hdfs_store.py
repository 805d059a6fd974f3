"""A third party's store, whole: HDFS, through pyarrow's file systems. ``docs/third-party-stores.md`` walks through it.

One broker writes a segment's keys (they carry the attempt's id), so that conditional writes need to hold within one
process only. A store that can do better (S3's If-None-Match) should.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyarrow import fs
from typing_extensions import Buffer

from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError, StorePermissionError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
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

#: Below the root, beside the objects: what is not complete yet. No key begins with it.
UNFINISHED = ".unfinished"
_LIMITS = UploadLimits(part_bytes_min=1, part_bytes_max=1 << 30, parts_max=10_000, put_bytes_max=1 << 40)
_COPY_BYTES = 4 << 20


@contextmanager
def translated(place: str) -> Iterator[None]:
    """The errors of pyarrow as the ones that callers know."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError as cause:
        raise ObjectNotFoundError(f"{place}: not there") from cause
    except PermissionError as cause:
        raise StorePermissionError(f"{place}: {cause}") from cause
    except OSError as cause:
        raise StoreError(f"{place}: {cause}") from cause


class ArrowStore:
    """An ObjectStore in a folder of any file system of pyarrow's."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    @property
    def is_local(self) -> bool:
        return False

    @property
    def upload_limits(self) -> UploadLimits:
        return _LIMITS

    @property
    def requests(self) -> Mapping[str, int]:
        return self._counts.snapshot()

    def describe(self) -> str:
        return f"{self._files.type_name}:{self._root}"

    def close(self) -> None:
        """Nothing is held."""

    def path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _walk(self, folder: str, *, recursive: bool) -> Iterator[tuple[str, fs.FileInfo]]:
        self._counts.add("LIST")
        with translated(folder):
            selector = fs.FileSelector(self.path(folder), recursive=recursive, allow_not_found=True)
            for info in self._files.get_file_info(selector):
                name = info.path[len(self._root) + 1 :]
                if not name.startswith(UNFINISHED):
                    yield name, info

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for name, info in self._walk(prefix.rpartition("/")[0], recursive=True):
            if info.is_file and name.startswith(prefix):
                yield described(name, info)

    def list_folder(self, prefix: str = "") -> FolderListing:
        found = list(self._walk(prefix.rstrip("/"), recursive=False))
        return FolderListing(
            folders=tuple(sorted(f"{name}/" for name, info in found if not info.is_file)),
            objects=tuple(
                described(name, info) for name, info in sorted(found, key=lambda each: each[0]) if info.is_file
            ),
        )

    def find(self, key: str) -> ObjectInfo | None:
        self._counts.add("HEAD")
        with translated(key):
            info = self._files.get_file_info(self.path(key))
        return described(key, info) if info.is_file else None

    def fetch(self, key: str) -> Buffer:
        self._counts.add("GET")
        with translated(key), self._files.open_input_file(self.path(key)) as file:
            return memoryview(file.read_buffer())

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self._counts.add("GET")
        with translated(key), self._files.open_input_file(self.path(key)) as file:
            if start_position >= file.size():
                return b""
            return file.read_at(end_position_exclusive - start_position, start_position)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self._counts.add("PUT")
        temporary = f"{UNFINISHED}/{uuid.uuid4()}"
        with translated(key):
            self.write(temporary, views_of(data))
            return self.name(temporary, key, expected_etag)

    def write(self, key: str, views: Sequence[memoryview]) -> None:
        """A new file; its folders are made."""
        self._files.create_dir(self.path(key).rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(self.path(key)) as out:
            for view in views:
                out.write(view)

    def name(self, temporary: str, key: str, expected_etag: str | None = None) -> StoredObject:
        """Give a whole file its name: readers see the old object or the new one."""
        with self._lock:
            there = self._files.get_file_info(self.path(key))
            etag = described(key, there).etag if there.is_file else ABSENT
            if expected_etag is not None and expected_etag != etag:
                self._files.delete_file(self.path(temporary))
                raise ObjectConflictError(f"{key}: another object is there than expected")
            self._files.create_dir(self.path(key).rpartition("/")[0], recursive=True)
            if there.is_file and self._files.type_name == "hdfs":  # its rename does not replace
                self._files.delete_file(self.path(key))
            self._files.move(self.path(temporary), self.path(key))
            found = described(key, self._files.get_file_info(self.path(key)))
        return StoredObject(found.size_bytes, found.etag)

    def delete(self, keys: Sequence[str]) -> None:
        failed = []
        for key in keys:
            self._counts.add("DELETE")
            try:
                with translated(key):
                    self._files.delete_file(self.path(key))
            except ObjectNotFoundError:
                continue
            except StoreError as error:
                failed.append(str(error))
        if failed:
            raise StoreError(f"not removed: {'; '.join(failed)}")

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        check_part_bytes(part_bytes, _LIMITS)
        upload_id = str(uuid.uuid4())
        with translated(key):
            self.write(f"{UNFINISHED}/{upload_id}/key", [memoryview(key.encode())])
        return _Parts(self, key, f"{UNFINISHED}/{upload_id}", part_bytes)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        with translated(UNFINISHED):
            selector = fs.FileSelector(self.path(UNFINISHED), allow_not_found=True)
            folders = [info for info in self._files.get_file_info(selector) if not info.is_file]
            for folder in folders:
                with self._files.open_input_file(f"{folder.path}/key") as file:
                    key = file.read().decode()
                if key.startswith(prefix):
                    yield UnfinishedUpload(key, folder.base_name, folder.mtime_ns // 1_000_000)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.remove_folder(f"{UNFINISHED}/{upload.upload_id}")

    def remove_folder(self, key: str) -> None:
        try:
            with translated(key):
                self._files.delete_dir(self.path(key))
        except ObjectNotFoundError:
            return

    def join(self, parts: Sequence[str], target: str) -> None:
        """Files one behind the other into a new one, a piece at a time."""
        with self._files.open_output_stream(self.path(target)) as out:
            for part in parts:
                with self._files.open_input_stream(self.path(part)) as file:
                    while piece := file.read(_COPY_BYTES):
                        out.write(piece)


class HdfsStore(ArrowStore):
    """``storage.backend.class=tests.contract.hdfs_store.HdfsStore``.

    Args:
        options: ``hdfs.host``, ``hdfs.port`` (8020), ``hdfs.user``, ``hdfs.root`` (/): keys below ``storage.``.
        machine: Not used: pyarrow has its own threads and clock.
    """

    def __init__(self, options: Mapping[str, str], machine: Machine) -> None:
        files = fs.HadoopFileSystem(
            options["hdfs.host"], int(options.get("hdfs.port", "8020")), user=options.get("hdfs.user")
        )
        super().__init__(files, options.get("hdfs.root", "/"))


class FolderStore(ArrowStore):
    """The same in a local folder, ``storage.folder``: what the contract suite runs over where there is no HDFS."""

    def __init__(self, options: Mapping[str, str], machine: Machine) -> None:
        super().__init__(fs.LocalFileSystem(), options["folder"])


@dataclass(slots=True)
class _Parts:
    """An upload: files in a folder of its own until it is complete."""

    store: ArrowStore
    key: str
    folder: str
    part_bytes: int
    sizes: dict[int, int] = field(default_factory=dict)
    stored: StoredObject | None = None
    ended: bool = False

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        views = views_of(data)
        size = sum(len(view) for view in views)
        if number < 1 or not 0 < size <= self.part_bytes:
            raise ValueError(f"{self.key}: part {number} of {size} bytes")
        self._require_open()
        with translated(self.key):
            self.store.write(f"{self.folder}/{number}", views)
        self.sizes[number] = size

    def complete(self) -> StoredObject:
        if self.stored is not None:
            return self.stored
        self._require_open()
        count = len(self.sizes)
        whole = all(self.sizes.get(number) == self.part_bytes for number in range(1, count))
        if not count or not whole or count not in self.sizes:
            raise StoreError(f"{self.key}: parts are missing")
        with translated(self.key):
            self.store.join([f"{self.folder}/{number}" for number in range(1, count + 1)], f"{self.folder}/whole")
            self.stored = self.store.name(f"{self.folder}/whole", self.key)
        self.abort()
        return self.stored

    def abort(self) -> None:
        if not self.ended:
            self.store.remove_folder(self.folder)
            self.ended = True

    def _require_open(self) -> None:
        if self.ended:
            raise StoreError(f"{self.key}: the upload has ended")


def described(key: str, info: fs.FileInfo) -> ObjectInfo:
    return ObjectInfo(key, info.size, info.mtime_ns // 1_000_000, etag=f"{info.mtime_ns}-{info.size}")
