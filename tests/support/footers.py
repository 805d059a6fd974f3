"""Buckets whose segments have footers, and what reading them asks of the store."""

from __future__ import annotations

import pathlib
import random
import shutil
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.golden import config_of
from tests.support.manager_configs import KEYS, ZSTD, local_keys
from tests.support.segments import make_segment
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.history import PartitionHistory
from tierlog.upkeep.footer_backfill import index

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


def indexed_copy(run: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Copy the bucket of a golden run, as the plugin wrote it, with footers for all of its segments."""
    shutil.copytree(run / "objects", folder)
    result = index(folder, config=config_of(run))
    assert result.written == result.segments > 0
    return folder


def _flip(paths: list[pathlib.Path]) -> None:
    for number, path in enumerate(paths):
        content = bytearray(path.read_bytes())
        content[number * 37 % len(content)] ^= 1 << number % 8
        path.write_bytes(content)


def _cut(paths: list[pathlib.Path]) -> None:
    for number, path in enumerate(paths):
        path.write_bytes(path.read_bytes()[: 11 + 60 * (number % 8)])


def _shift(paths: list[pathlib.Path]) -> None:
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def _forget_half(paths: list[pathlib.Path]) -> None:
    for path in paths[::2]:
        path.unlink()


def _rewrite_manifests(paths: list[pathlib.Path]) -> None:
    for path in paths[::2]:
        manifest = path.with_suffix(".rsm-manifest")
        manifest.write_bytes(manifest.read_bytes() + b" ")


#: Ways in which the footers of a bucket are not those of its segments.
DAMAGE: Mapping[str, Callable[[list[pathlib.Path]], None]] = {
    "none": lambda _: None,
    "flipped": _flip,
    "cut": _cut,
    "of another segment": _shift,
    "absent in half": _forget_half,
    "of a rewritten manifest": _rewrite_manifests,
}


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


HOUR_MS = 3_600_000
DAY_KEYS = ZSTD | KEYS | {"chunk.size": str(64 << 10)}
_DAY_RECORDS = 6000


def fill_day(folder: pathlib.Path, *, partitions: int = 2, record_bytes: int = 1600) -> None:
    """Fill ``folder/bucket`` with a day of records, two segments a partition, batches of ten records, compressed and
    encrypted by DAY_KEYS; times rise but for some seconds.
    """
    chance = random.Random(24)
    made = []
    for partition in range(partitions):
        for first in (0, _DAY_RECORDS // 2):
            log, offset = bytearray(), first
            while offset < first + _DAY_RECORDS // 2:
                builder = RecordBatchBuilder(offset, leader_epoch=0)
                for _ in range(10):
                    stamp = offset * (24 * HOUR_MS // _DAY_RECORDS) + chance.randint(-2000, 2000)
                    builder.append(None, chance.randbytes(record_bytes), timestamp_ms=max(0, stamp))
                    offset += 1
                log += builder.build()
            segment = make_segment(bytes(log), partition=partition, lineage={0: 0})
            made.append(segment.closed_in(folder / "logs" / str(partition)))
    fill(folder / "bucket", made, DAY_KEYS)


def stored_between(tier: Tier, histories: Iterable[PartitionHistory], first_ms: int, end_ms: int) -> int:
    """Stored bytes of the chunks that hold records of a time."""
    total = 0
    for history in histories:
        for span in history.spans:
            segment = span.segment
            batches = tier.footers.fetch_batches(segment)
            assert segment.chunk_index is not None
            assert batches is not None
            inside = (batches.greatest_timestamp >= first_ms) & (batches.least_timestamp < end_ms)
            if inside.any():
                rows = np.flatnonzero(inside)
                start, end = batches.position[rows[0]], batches.position[rows[-1]] + batches.size_bytes[rows[-1]]
                total += int(segment.chunk_index.views(int(start), int(end))["transformed_size"].sum())
    return total
