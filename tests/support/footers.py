"""Buckets whose segments have footers, and what reading them asks of the store."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping

from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import local_keys
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

WITH_FOOTERS = {"footer.object.enabled": "true"}


def fill(
    folder: pathlib.Path, segments: Iterable[ClosedSegment], keys: Mapping[str, object], *, footers: bool = True
) -> None:
    """Copy segments into a bucket folder, as a broker does."""
    with TieredStorageManager() as manager:
        manager.configure(local_keys(folder) | dict(keys) | (WITH_FOOTERS if footers else {}))
        for segment in segments:
            manager.copy_log_segment_data(segment.metadata, segment.data)


def footers_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The footers of a bucket folder, by key."""
    return sorted(folder.rglob("*.footer"))


class RangesStore(PassingStore):
    """A store that notes the ranges that it is asked for: (kind of object, first byte, bytes wanted)."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.ranges: list[tuple[str, int, int]] = []

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self.ranges.append((key.rpartition(".")[2], start_position, end_position_exclusive - start_position))
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def of(self, kind: str) -> list[tuple[int, int]]:
        """The ranges of one kind of object."""
        return [(start, size) for found, start, size in self.ranges if found == kind]
