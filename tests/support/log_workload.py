"""A broker's life with one partition, from a seed: what it appends, rolls, flushes, truncates and deletes.

Run as ``python -m tests.support.log_workload FOLDER POLICY`` it appends until it is killed, and says after each append
which offset it was.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.expected_log import ExpectedBatch, ExpectedLog, Producer, replayed, stored
from tierlog.log.local.log_appends import LogAppendInfo
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError, LogOfflineError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.machine import Machine

LOGS = "/logs"
TOPIC = "orders"
PARTITION = 3
FOLDER = f"{LOGS}/{TOPIC}-{PARTITION}"
FIRST_MS = 1_699_999_000_000

SMALL = LogConfig(
    segment_bytes=12_000,
    segment_index_bytes=240,
    index_interval_bytes=500,
    retention_bytes=30_000,
    retention_ms=-1,
    file_delete_delay_ms=1_000,
)
#: When a log flushes: after each append, when a segment is full, or when nobody asks it to. The tiered one flushes when
#: a segment is full, and deletes here what it has copied.
POLICIES = {
    "each": replace(SMALL, flush_messages=1),
    "roll": SMALL,
    "never": replace(SMALL, segment_bytes=1 << 30, segment_index_bytes=10 << 20, retention_bytes=-1),
    "tiered": replace(SMALL, remote_storage_enable=True, local_retention_bytes=5_000),
}


@dataclass(frozen=True)
class NextBatch:
    """A batch as a client sends it."""

    data: bytes
    timestamps_ms: tuple[int, ...]
    producer: Producer


@functools.lru_cache(maxsize=20_000)
def client_batch(seed: int, number: int, producer: Producer) -> NextBatch:
    """The n-th batch of a life."""
    rng = random.Random(f"{seed} {number}")
    at = FIRST_MS + 1_000 * number
    if producer.marker is not None:
        kind = ControlRecordType.ABORT if producer.marker == "abort" else ControlRecordType.COMMIT
        data = build_end_transaction_marker(
            0,
            kind,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=5,
            timestamp_ms=at,
        )
        return NextBatch(data, (at,), producer)
    count = rng.choice((1, 1, 2, 5))
    builder = RecordBatchBuilder(
        0,
        codec=rng.choice(("none", "none", "none", "gzip", "zstd")),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        transactional=producer.transactional,
    )
    timestamps = tuple(at + rng.randrange(-2_000, 2_000) for _ in range(count))
    size = rng.choice((0, 20, 100, 400, 1_100, 2_000))
    for timestamp in timestamps:
        builder.append(b"%d" % number, rng.randbytes(size), timestamp_ms=timestamp)
    return NextBatch(builder.build(), timestamps, producer)


class LogLife:
    """What a broker does with one log; the seed decides.

    Args:
        seed: Of all that is done.
        policy: One of POLICIES.
        machine: Where it lives.
        logs: Its log directory.

    Attributes:
        config: The log's.
        expected: What has to be in the log.
        leader_epoch: The present one.
        is_open: Whether ``log`` is, as far as the life went.
    """

    def __init__(self, seed: int, policy: str, machine: Machine, *, logs: str = LOGS) -> None:
        self._logs = logs
        self.seed = seed
        self.policy = policy
        self.config = POLICIES[policy]
        self.expected = ExpectedLog()
        self.leader_epoch = 0
        self.is_open = False
        self._machine = machine
        self._steps = 0
        self._rng = random.Random(seed)
        self._flushes = policy != "never"

    def open(self) -> None:
        """Open the directory and the log."""
        self.directory = LogDirectory.open(
            self._logs, machine=self._machine, config=self.config, remote_log_enabled=True
        )
        self.log: UnifiedLog = self.directory.log(TOPIC, PARTITION)
        self.is_open = True

    def begin_after_crash(self, *, leader_epoch: int) -> None:
        """Go by what the crash left, as a leader of a new epoch."""
        expected, log = self.expected, self.log
        lost_all = expected.loose_from == 0
        if expected.loose_from is not None:
            expected.start_offset = max(expected.start_offset, log.log_start_offset)
        expected.cut_to(log.log_end_offset)
        if not log.size() and log.log_start_offset == log.log_end_offset:
            expected.batches.clear()  # else the tier has records, and the log their producers
        elif not log.size() and lost_all:  # snapshots of what was truncated may be there still, as in Kafka
            expected.start_offset = expected.deleted_below = log.log_end_offset
        self.leader_epoch = leader_epoch

    def run(self, steps: int) -> None:
        """Do so many steps. What is refused or fails is raised."""
        plain: list[tuple[int, Callable[[], None]]] = [
            (12, lambda: self._append(Producer())),
            (8, self._append_idempotent),
            (2, self._append_again),
            (12, self._append_transactional),
            (6, self._end_transaction),
            (2, self._lead),
            (2, self._truncate),
            (1, self._truncate_fully),
            (2, self._raise_start),
            (3, self._wait),
            (1, self._restart),
        ]
        flushing: list[tuple[int, Callable[[], None]]] = [
            (3, self._roll),
            (3, self._flush),
            (3, self._checkpoint),
            (3, self._retain),
        ]
        tiering: list[tuple[int, Callable[[], None]]] = [
            (6, self._copy),
            (3, self._retain),
            (2, self._delete_in_the_tier),
        ]
        chosen = plain + (flushing if self._flushes else []) + (tiering if self.config.remote_storage_enable else [])
        for _ in range(steps):
            self._steps += 1
            self._rng.choices([step for _, step in chosen], [weight for weight, _ in chosen])[0]()
            self._note_flushed()

    def _note_flushed(self) -> None:
        point, end = self.log.recovery_point, self.log.log_end_offset
        assert end == self.expected.end_offset, f"the log ends at {end}, and should at {self.expected.end_offset}"
        assert point <= end, f"flushed up to {point}, and it ends at {end}"
        if point > self.expected.start_offset:  # to raise the log's start raises it too, and flushes nothing
            self.expected.flushed_offset = point

    # ---- appends

    def _append(self, producer: Producer) -> None:
        expected = self.expected
        batch_offset = expected.end_offset
        batch = client_batch(self.seed, self._steps, producer)
        data = stored(batch.data, base_offset=expected.end_offset, leader_epoch=self.leader_epoch)
        expected.append(
            ExpectedBatch(expected.end_offset, data, batch.timestamps_ms, self.leader_epoch, batch.producer)
        )
        info = self._send(batch)
        if isinstance(info, AppendRefusedError):
            # The log may have forgotten, with the records that it deleted, where the producer was.
            assert info.error is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
            expected.batches.pop()
            expected.end_offset = batch_offset
            assert self._was_deleted(producer), f"{info}: the log has its last batch"
            return
        assert not info.is_duplicate
        assert (info.first_offset, info.last_offset) == (
            expected.batches[-1].base_offset,
            expected.batches[-1].last_offset,
        )
        if self.policy == "each":
            self._check_flushed()

    def _check_flushed(self) -> None:
        point, end = self.log.recovery_point, self.expected.end_offset
        assert point == end, f"flushed up to {point}, and not to {end}"

    def _was_deleted(self, producer: Producer) -> bool:
        known = replayed(self.expected.batches).producers[producer.producer_id]
        return known.last_offset < self.expected.start_offset

    def _send(self, batch: NextBatch) -> LogAppendInfo | AppendRefusedError:
        is_marker = batch.producer.marker is not None
        try:
            return self.log.append_as_leader(
                bytearray(batch.data),
                leader_epoch=self.leader_epoch,
                origin=AppendOrigin.COORDINATOR if is_marker else AppendOrigin.CLIENT,
                transaction_version=1 if is_marker else None,
            )
        except AppendRefusedError as refused:
            return refused

    def _next_of(self, producer_id: int, *, transactional: bool) -> Producer:
        known = replayed(self.expected.batches).producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        return Producer(producer_id, 0, sequence, transactional)

    def _append_idempotent(self) -> None:
        self._append(self._next_of(self._rng.choice((10, 11)), transactional=False))

    def _append_again(self) -> None:
        last = self.expected.batches[-1] if self.expected.batches else None
        if last is None or last.producer.base_sequence < 0:
            return
        sent = NextBatch(last.data, last.timestamps_ms, last.producer)
        data = stored(sent.data, base_offset=0, leader_epoch=-1)
        info = self._send(replace(sent, data=data))
        assert isinstance(info, LogAppendInfo)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (last.base_offset, last.last_offset)

    def _append_transactional(self) -> None:
        self._append(self._next_of(self._rng.choice((20, 21, 22)), transactional=True))

    def _end_transaction(self) -> None:
        open_ones = [
            producer_id
            for producer_id, known in replayed(self.expected.batches).producers.items()
            if known.transaction_first_offset >= 0
        ]
        if open_ones:
            marker = self._rng.choice(("abort", "abort", "commit"))
            self._append(Producer(self._rng.choice(sorted(open_ones)), 0, -1, True, marker))

    def _lead(self) -> None:
        self.leader_epoch += 1
        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.log_end_offset)

    # ---- the rest

    def _roll(self) -> None:
        self.log.roll()

    def _flush(self) -> None:
        self.log.flush()
        self._check_flushed()

    def _checkpoint(self) -> None:
        self.directory.checkpoint()

    def _retain(self) -> None:
        expected = self.expected
        whole = expected.start_offset
        expected.start_offset = expected.end_offset
        self.log.delete_old_segments()
        expected.start_offset = max(whole, self.log.local_log_start_offset)

    def _copy(self) -> None:
        self.log.update_highest_offset_in_remote_storage(self.log.active_segment.base_offset - 1)

    def _delete_in_the_tier(self) -> None:
        start = self._rng.randint(self.log.log_start_offset, self.log.local_log_start_offset)
        self.expected.deleted_below = max(start, self.expected.deleted_below)
        self.log.update_log_start_offset_from_remote_tier(start)

    def _raise_start(self) -> None:
        expected = self.expected
        start = self._rng.randint(expected.start_offset, expected.end_offset)
        expected.start_offset = max(start, expected.start_offset)
        expected.deleted_below = max(start, expected.deleted_below)
        self.log.maybe_increment_log_start_offset(start, "records were deleted")

    def _truncate(self) -> None:
        expected = self.expected
        borders = [batch.base_offset for batch in expected.batches[-12:]]
        offset = self._rng.choice([border for border in borders if border >= expected.start_offset] or [1 << 40])
        expected.loose_from = offset
        expected.flushed_offset = min(expected.flushed_offset, offset)
        self.log.truncate_to(offset)
        if offset < expected.end_offset:
            expected.cut_to(offset)
        expected.loose_from = None

    def _truncate_fully(self) -> None:
        expected = self.expected
        offset = expected.end_offset + self._rng.choice((0, 7))
        expected.loose_from, expected.flushed_offset = 0, 0
        self.log.truncate_fully_and_start_at(offset)
        expected.batches, expected.end_offset, expected.start_offset = [], offset, offset
        expected.loose_from, expected.flushed_offset = None, offset

    def _wait(self) -> None:
        self._machine.clock.sleep(self._rng.choice((0.01, 0.1, 2.0, 90.0)))

    def _restart(self) -> None:
        self.directory.close()
        self.is_open = False
        if self.directory.is_offline:  # a background sync had failed before: then close says nothing
            raise LogOfflineError(f"{FOLDER}: the directory was left unclean")
        self.expected.flushed_offset = self.expected.end_offset
        self.open()
        assert self.log.log_end_offset == self.expected.end_offset


# ---- a process that is killed


def kill_config(policy: int) -> LogConfig:
    """The configuration of a child that is to be killed."""
    return replace(list(POLICIES.values())[policy], retention_bytes=-1, segment_index_bytes=4096)


def appended_batch(offset: int) -> bytes:
    """The batch that a child appends at an offset: of one record."""
    builder = RecordBatchBuilder(0, producer_id=10, producer_epoch=0, base_sequence=offset)
    rng = random.Random(offset)
    builder.append(b"%d" % offset, rng.randbytes(rng.choice((0, 50, 700, 3_000))), timestamp_ms=FIRST_MS + offset)
    return builder.build()


def append_for_ever(folder: str, policy: int) -> None:
    """Append, roll, flush and write checkpoints."""
    directory = LogDirectory.open(folder, machine=Machine(), config=kill_config(policy))
    log = directory.log(TOPIC, PARTITION)
    for offset in range(100_000):
        info = log.append_as_leader(bytearray(appended_batch(offset)), leader_epoch=offset // 50)
        print(info.last_offset, flush=True)
        if offset % 31 == 30:
            directory.checkpoint()
        if offset % 67 == 66:
            log.roll()
            log.flush()


if __name__ == "__main__":
    append_for_ever(sys.argv[1], int(sys.argv[2]))
