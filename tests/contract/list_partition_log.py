"""A partition's log of a third party's, in the fewest lines: records in lists, files written when a segment closes.

It names no class of ours but values and errors, and passes the contract of PartitionLog.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local import OffsetOutOfRangeError, TimestampAndOffset


@dataclass(frozen=True)
class ListConfig:
    """Nothing expires."""

    retention_ms: int = -1
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False


@dataclass
class ListSegment:
    """Timestamps of records, by offset; in its file each is eight bytes."""

    folder: pathlib.Path
    base_offset: int
    records: list[int] = field(default_factory=list)

    def _path(self, suffix: str) -> str:
        return str(self.folder / f"{self.base_offset:020}{suffix}")

    @property
    def log_path(self) -> str:
        return self._path(".log")

    @property
    def offset_index_path(self) -> str:
        return self._path(".index")

    @property
    def time_index_path(self) -> str:
        return self._path(".timeindex")

    @property
    def transaction_index_path(self) -> str:
        return self._path(".txnindex")

    @property
    def size_bytes(self) -> int:
        return 8 * len(self.records)

    @property
    def largest_timestamp_ms(self) -> int:
        return max(self.records, default=-1)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        for offset, found_ms in enumerate(self.records, self.base_offset):
            if offset >= starting_offset and found_ms >= timestamp_ms:
                return TimestampAndOffset(found_ms, offset, None)
        return None

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        assert fetch_offset <= upper_bound_offset
        return [], False

    def close(self) -> None:
        pathlib.Path(self.log_path).write_bytes(b"".join(each.to_bytes(8, "big") for each in self.records))
        for path in (self.offset_index_path, self.time_index_path):
            pathlib.Path(path).write_bytes(b"")


class ListEpochs:
    """Leader epochs over the immutable value of the formats."""

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self.epochs.earliest

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self.epochs.latest

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        return self.epochs.find_previous(epoch)

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        latest = self.epochs.latest
        if epoch is None and latest is not None:
            epoch = latest.epoch
        entry = None if epoch is None else self.epochs.find_previous(epoch)
        return None if entry is None else entry.epoch

    def next_epoch(self, epoch: int) -> int | None:
        entry = self.epochs.find_next(epoch)
        return None if entry is None else entry.epoch

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        return self.epochs.find_entry(epoch)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self.epochs.epoch_for_offset(offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, log_end_offset=log_end_offset)

    def epoch_entries_in_range(self, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        return self.epochs.range(start_offset, end_offset_exclusive)

    def epoch_with_offsets(self) -> dict[int, int]:
        return dict(self.epochs)

    def assign_all(self, entries: Iterable[tuple[int, int]]) -> None:
        for epoch, start_offset in entries:
            self.epochs = self.epochs.assign(epoch, start_offset)

    def clear_and_flush(self) -> None:
        self.epochs = LeaderEpochs()


class ListProducers:
    """The producers of the last snapshot that was loaded, which no record changes; a snapshot where each segment
    ends.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.entries: tuple[ProducerEntry, ...] = ()

    def fetch_snapshot(self, offset: int) -> str | None:
        path = self._folder / f"{offset:020}.snapshot"
        return str(path) if path.is_file() else None

    def take(self, offset: int) -> None:
        (self._folder / f"{offset:020}.snapshot").write_bytes(encode_producer_snapshot(self.entries))

    def load(self, offset: int) -> None:
        path = self.fetch_snapshot(offset)
        assert path is not None
        self.entries = tuple(parse_producer_snapshot(pathlib.Path(path).read_bytes()).entries)


class ListLog:
    """The log. One thread."""

    def __init__(self, folder: pathlib.Path, *, tiered: bool) -> None:
        folder.mkdir()
        self.folder, self.parent_dir = str(folder), str(folder.parent)
        self.config = ListConfig()
        self.log_start_offset = self.local_log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.highest_offset_in_remote_storage = -1
        self.leader_epoch_cache, self.producers = ListEpochs(), ListProducers(folder)
        self._tiered = tiered
        self._segments = [ListSegment(folder, 0)]

    @property
    def last_stable_offset(self) -> int:
        begun = (entry.transaction_first_offset for entry in self.producers.entries)
        return min((self.high_watermark, *(first for first in begun if first >= 0)))

    @property
    def active_segment(self) -> ListSegment:
        return self._segments[-1]

    def remote_log_enabled(self) -> bool:
        return self._tiered

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[ListSegment, ...]:
        floor = max((each.base_offset for each in self._segments if each.base_offset <= (from_offset or 0)), default=0)
        end = self.log_end_offset + 1 if to_offset is None else to_offset
        return tuple(each for each in self._segments if floor <= each.base_offset < end)

    def size(self) -> int:
        return sum(each.size_bytes for each in self._segments)

    def _only_local(self) -> list[ListSegment]:
        return [each for each in self._segments if each.base_offset >= self.highest_offset_in_remote_storage]

    def only_local_log_segments_size(self) -> int:
        return sum(each.size_bytes for each in self._only_local())

    def only_local_log_segments_count(self) -> int:
        return len(self._only_local())

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        if self._tiered:
            self.highest_offset_in_remote_storage = max(offset, self.highest_offset_in_remote_storage)

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        if self._tiered:
            self.maybe_increment_log_start_offset(min(offset, self.high_watermark), "the tier begins there")
        return self.log_start_offset

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        assert reason
        rises = offset > self.local_log_start_offset
        self.local_log_start_offset = max(offset, self.local_log_start_offset)
        return rises

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(reason, offset=offset, log_start_offset=0, log_end_offset=self.log_end_offset)
        rises = offset > self.log_start_offset
        self.log_start_offset = max(offset, self.log_start_offset)
        return rises

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        self._segments = [ListSegment(pathlib.Path(self.folder), offset)]
        self.local_log_start_offset = self.log_end_offset = self.high_watermark = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.highest_offset_in_remote_storage = min(self.highest_offset_in_remote_storage, offset - 1)
        self.leader_epoch_cache.clear_and_flush()

    def load_producer_state(self, offset: int) -> None:
        self.producers.load(offset)

    def fetch_producer_snapshot(self, offset: int) -> str | None:
        return self.producers.fetch_snapshot(offset)

    # ---- what a broker does with it

    def append(self, timestamps: list[int], *, leader_epoch: int) -> None:
        self.leader_epoch_cache.assign_all([(leader_epoch, self.log_end_offset)])
        self.active_segment.records += timestamps
        self.log_end_offset += len(timestamps)

    def roll(self) -> None:
        self.active_segment.close()
        self.producers.take(self.log_end_offset)
        self._segments.append(ListSegment(pathlib.Path(self.folder), self.log_end_offset))
