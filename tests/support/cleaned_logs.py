"""A compacted log in memory: appended to, cleaned, and read back as rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from tierlog._native.batches import scan_batches
from tierlog._native.compaction import ENTRY_BYTES
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.local.compaction.cleaner import Cleaner, CleaningResult
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.segments.segment_view import LogSlice
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.batch_table import CONTROL
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.records.decoding import decode
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

FOLDER = "/logs/orders-0"
BUFFER_BYTES = 1024
EPOCH = 1


class Given(NamedTuple):
    """A record to append."""

    key: bytes | None
    value: bytes | None


def cleaner_of(
    machine: Machine,
    *,
    keys: int,
    throttle: Callable[[int], None] = lambda _: None,
    check_done: Callable[[], None] = lambda: None,
    io_buffer_bytes: int = BUFFER_BYTES,
) -> Cleaner:
    """Make a cleaner whose map holds so many keys."""
    return Cleaner(
        machine,
        dedupe_buffer_bytes=ENTRY_BYTES * (keys + 1),
        load_factor=1.0,
        io_buffer_bytes=io_buffer_bytes,
        throttle=throttle,
        check_done=check_done,
    )


class CleanedLog:
    """One log. A context manager.

    Args:
        keys: How many keys the cleaner's map holds.
        is_sole_replica: Whether what is appended is committed.
        config: Of the log, beside its policy.
    """

    def __init__(
        self, *, keys: int = 1000, machine: Machine | None = None, is_sole_replica: bool = True, **config: Any
    ) -> None:
        self.scheduler: ManualScheduler | None = None
        if machine is None:
            machine, self.scheduler = ManualScheduler.machine(1)
            machine.files.make_directories("/logs")
        self.machine, self._keys, self._is_sole_replica = machine, keys, is_sole_replica
        self.config = replace(LogConfig(cleanup_policy=frozenset({"compact"})), **config)
        self.open(LogCheckpoints(), had_clean_shutdown=False)

    def open(self, checkpoints: LogCheckpoints, *, had_clean_shutdown: bool) -> None:
        self.log = UnifiedLog.open(
            FOLDER,
            machine=self.machine,
            config=self.config,
            checkpoints=checkpoints,
            had_clean_shutdown=had_clean_shutdown,
            is_sole_replica=self._is_sole_replica,
        )

    def reopen(self, *, had_clean_shutdown: bool) -> None:
        """Close, and open again."""
        point = self.log.recovery_point
        self.log.close()
        self.open(LogCheckpoints(recovery_point=point), had_clean_shutdown=had_clean_shutdown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.log.close()
        if self.scheduler is not None:
            self.scheduler.close()

    # ---- appending

    def append(
        self,
        *records: Given,
        codec: str = "none",
        producer_id: int = -1,
        sequence: int = -1,
        is_transactional: bool | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """Append a batch; of a producer it is one of a transaction, unless the caller says no."""
        builder = RecordBatchBuilder(
            0,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=producer_id >= 0 if is_transactional is None else is_transactional,
        )
        for record in records:
            builder.append(record.key, record.value, timestamp_ms=self.now_ms)
        data, guard = bytearray(builder.build()), None
        if producer_id >= 0 and is_transactional is not False:
            guard = self.log.begin_transaction_verification(
                producer_id, sequence=sequence, producer_epoch=0, supports_epoch_bump=False
            )
        self.log.append_as_leader(data, leader_epoch=EPOCH, origin=origin, verification_guard=guard)

    def append_unchecked(self, *records: Given) -> None:
        """Append a batch as a follower does, which takes records without a key."""
        builder = RecordBatchBuilder(self.log.log_end_offset, leader_epoch=EPOCH)
        for record in records:
            builder.append(record.key, record.value, timestamp_ms=self.now_ms)
        self.log.append_as_follower(builder.build(), leader_epoch=EPOCH)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker of a transaction's end."""
        marker = build_end_transaction_marker(
            0,
            ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.now_ms,
        )
        self.log.append_as_leader(
            bytearray(marker), leader_epoch=EPOCH, origin=AppendOrigin.COORDINATOR, transaction_version=0
        )

    def roll(self) -> None:
        self.log.roll()

    # ---- cleaning

    def clean(
        self,
        *,
        first_dirty_offset: int = 0,
        throttle: Callable[[int], None] = lambda _: None,
        check_done: Callable[[], None] = lambda: None,
    ) -> CleaningResult:
        """Clean all but the active segment."""
        end = min(self.log.active_segment.base_offset, self.log.last_stable_offset)
        return cleaner_of(self.machine, keys=self._keys, throttle=throttle, check_done=check_done).clean(
            self.log, first_dirty_offset=first_dirty_offset, first_uncleanable_offset=end, now_ms=self.now_ms
        )

    @property
    def now_ms(self) -> int:
        return self.machine.clock.time_ms()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        assert self.scheduler is not None
        self.scheduler.clock.advance(milliseconds / 1000)

    # ---- reading

    def read(self, offset: int) -> FetchDataInfo[LogSlice]:
        return self.log.read(offset, max_bytes=1 << 30, isolation=FetchIsolation.LOG_END)

    def data(self) -> bytes:
        """All bytes of the log."""
        segments = self.log.log_segments()
        return b"".join(bytes(segment.read_at(0, segment.size_bytes)) for segment in segments)

    def table(self) -> pa.RecordBatch:
        return decode(self.data(), columns=("offset", "key", "value", "timestamp"))

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of all records but those of markers."""
        return [(row["offset"], row["key"], row["value"]) for row in self.table().to_pylist()]

    def timestamps(self) -> list[object]:
        return self.table().column("timestamp").to_pylist()

    def batches(self) -> list[tuple[int, int]]:
        """(last offset, number of records) of all batches."""
        columns = scan_batches(self.data())[0]
        return list(zip(columns["last_offset"].tolist(), columns["record_count"].tolist(), strict=True))

    def markers(self) -> list[int]:
        """The offsets of the markers that are there, with their records."""
        columns = scan_batches(self.data())[0]
        found = ((columns["attributes"] & CONTROL) != 0) & (columns["record_count"] > 0)
        offsets: list[int] = columns["last_offset"][np.flatnonzero(found)].tolist()
        return offsets

    def files(self) -> list[str]:
        """The names of the logs in the folder, without their suffix."""
        return [name.removesuffix(".log") for name in self.names_with("") if name.endswith(".log")]

    def names_with(self, part: str) -> list[str]:
        return sorted(entry.name for entry in self.machine.files.iter_directory(FOLDER) if part in entry.name)
