"""Listings that begin behind a key: who knows the first million objects of a folder asks for the rest alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.protocol.started_reads import says_by


class ResumedListings(Protocol):
    """A store that lists in the order of its keys' bytes, and can begin behind any key. Any number of threads."""

    def iter_objects_behind(self, key: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects of ``iter_objects`` whose keys are greater than ``key``, ascending; requests for those alone.

        Args:
            key: Of an object that was listed. (SeaweedFS takes a folder's name for all that lies in it.)
            prefix: As of ``iter_objects``.

        A server that only looks like one of the kind may list others too, or in another order: the caller checks.

        Raises: as ``iter_objects``.
        """


def find_resumed_listings(store: ObjectStore) -> ResumedListings | None:
    """The store, if it begins listings behind a key; rules as of ``find_started_reads``, for ``iter_objects``.

    One around another store says by ``resumes_listings`` whether that one does.
    """
    found = says_by(store, "iter_objects", "iter_objects_behind", "resumes_listings")
    return cast(ResumedListings, store) if found else None
