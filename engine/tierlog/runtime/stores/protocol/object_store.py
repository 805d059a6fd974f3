"""The interface of an object store for readers and writers; ``store_urls.open_store`` turns a URL into one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, cast

from typing_extensions import Buffer


class ObjectInfo(NamedTuple):
    """One object of a listing.

    Args:
        key: Relative to the store's root, with "/".
        last_modified_ms: As the store says, ms since 1970 UTC.
        etag: Changes with the content; None where the store gives none (listings need not).
    """

    key: str
    size_bytes: int
    last_modified_ms: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class FolderListing:
    """One level of a store: keys of its folders, each ending with "/", and its objects."""

    folders: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store confirmed it: it holds exactly the bytes that were sent."""

    size_bytes: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """The sizes that a store takes, in bytes; the last part of an upload may be smaller than ``part_bytes_min``."""

    part_bytes_min: int
    part_bytes_max: int
    parts_max: int
    put_bytes_max: int


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload that was begun and neither completed nor aborted: it costs money and is invisible.

    Args:
        upload_id: The store's; "" where it has none.
        started_ms: By the store's clock, ms since 1970 UTC.
    """

    key: str
    upload_id: str
    started_ms: int


#: ``expected_etag`` of an object that must not be there yet.
ABSENT: Final = ""


class Upload(Protocol):
    """An upload under way: no reader sees anything of it until it is complete. Any number of threads."""

    key: str

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        """Store one part, in any order; the buffers belong to the store until this returns and are not joined.

        A part that failed may be put again, with the same number.

        Args:
            number: From 1, without gaps.
            data: ``part_bytes`` in all; the last part may be smaller, never empty.

        Raises:
            StoreError and its kinds, also when another thread aborts or closes the store meanwhile.
        """

    def complete(self) -> StoredObject:
        """Make the object of the parts visible, at once and whole; all must have been put.

        May be called again after a StoreUnavailableError. After any other error, abort.
        """

    def abort(self) -> None:
        """Delete the parts and end calls in other threads with a StoreError; no effect after complete.

        Idempotent. An error says that parts may be left; ``iter_uploads`` finds them.
        """


class ObjectStore(Protocol):
    """Objects under one root: a bucket and a folder in it, or a local directory.

    Every call is bounded in time and tries: a store that stalls becomes a StoreUnavailableError.

    Raises (all methods):
        ObjectNotFoundError: no such object.
        StorePermissionError: refused.
        StoreUnavailableError: timed out, throttled or reset after all retries; retriable.
        StoreError: anything else of the store.

    Thread safety: any number of threads; no lock is held across a call.
    """

    @property
    def is_local(self) -> bool:
        """Whether a read is a memory copy (a disk, memory): no use in fetching ahead or in large pieces."""

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Iterate all objects whose key begins with ``prefix`` (any string, not only whole folders), in no promised
        order.

        Lazy: a page at a time. Objects that vanish while listing may or may not appear.
        """

    def list_folder(self, prefix: str = "") -> FolderListing:
        """List the objects and folders that lie directly in the folder ``prefix`` ("" or ending with "/")."""

    def fetch(self, key: str) -> Buffer:
        """Fetch the bytes of a whole object."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """Fetch a range of an object, in one request; no copy where the store's client has none.

        0 <= start < end. A range that runs past the end of the object returns the bytes that are there, possibly none:
        the caller judges a short answer.
        """

    def find(self, key: str) -> ObjectInfo | None:
        """Find the size and age of one object, in one request; None if it is not there."""

    @property
    def upload_limits(self) -> UploadLimits: ...

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        """Store a whole object in one request: all of it or none. Durable on return.

        A StoreUnavailableError does not say that nothing was stored: a request that timed out may still land, minutes
        later. A caller that gives the object up deletes it, and again after the store's longest delay.

        Args:
            key: The object's.
            data: In order, not joined; at most ``upload_limits.put_bytes_max``.
            expected_etag: None replaces any object; ABSENT stores only if there is none, an etag only if the object
                still has it.

        Raises:
            ObjectConflictError: the condition does not hold.
        """

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Begin an object of several parts, each of ``part_bytes`` but for the last.

        Raises:
            ValueError: ``part_bytes`` outside ``upload_limits``. StoreError and its kinds.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are fine. All are tried, in as few requests as the store allows.

        Raises:
            StoreError and its kinds: one error that lists what could not be removed; retriable if all of it is.
        """

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """Yield uploads under way whose key begins with ``prefix``, of all clients; none where a store cannot list
        them.
        """

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Abort an upload that ``iter_uploads`` found; a missing one is fine."""

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of requests sent so far, further tries among them, by verb of VERBS."""

    def describe(self) -> str:
        """Return the name of the store for messages, without secrets."""

    def close(self) -> None:
        """Release connections and threads; idempotent."""


def views_of(data: Sequence[Buffer] | Buffer) -> list[memoryview]:
    """Make one view of each buffer, without a copy; empty ones are left out."""
    # Not by Buffer: before Python 3.12 an array of numpy is no instance of it.
    buffers = data if isinstance(data, list | tuple) else [cast(Buffer, data)]
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    return [view for view in views if len(view)]


def check_part_bytes(part_bytes: int, limits: UploadLimits) -> None:
    """Raise ValueError for a part size that the store does not accept."""
    if not limits.part_bytes_min <= part_bytes <= limits.part_bytes_max:
        raise ValueError(f"parts of {part_bytes} bytes: {limits.part_bytes_min} to {limits.part_bytes_max} expected")


#: HTTP's verbs, and LIST for a page of a listing. A local store counts its operations likewise.
VERBS: Final = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")


class RequestCounts:
    """A counter for each verb, which only grows. Any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(VERBS, 0)

    def add(self, verb: str, count: int = 1) -> None:
        """Count requests of a verb of VERBS."""
        with self._lock:
            self._counts[verb] += count

    def snapshot(self) -> Mapping[str, int]:
        """Return the current counts, in a mapping that does not change."""
        with self._lock:
            return dict(self._counts)
