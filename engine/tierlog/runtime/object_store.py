"""Object stores, as an argument. ``store_opening.open_store`` turns a URL into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing.

    Args:
        key: Relative to the store's root, with "/".
        last_modified_ms: As the store says, ms since 1970 UTC.
    """

    key: str
    size_bytes: int
    last_modified_ms: int


@dataclass(frozen=True, slots=True)
class FolderListing:
    """One level of a store: keys of its folders, each ending with "/", and its objects."""

    folders: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


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
        """All objects whose key begins with ``prefix`` (any string, not only whole folders), in no promised order.

        Lazy: a page at a time. Objects that vanish while listing may or may not appear.
        """

    def list_folder(self, prefix: str = "") -> FolderListing:
        """One level: what lies directly in the folder ``prefix`` ("" or ending with "/")."""

    def fetch(self, key: str) -> Buffer:
        """The whole object."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """Part of an object, in one request; no copy where the store's client has none.

        0 <= start < end. A range that runs past the end of the object gives what is there, possibly nothing: a short
        answer is the caller's to judge.
        """

    def put(self, key: str, data: Buffer) -> None:
        """Store the whole object, replacing one of the same key. Not used by reading."""

    def describe(self) -> str:
        """What this is, for messages: no secrets."""

    def close(self) -> None:
        """Release what is held; idempotent."""
