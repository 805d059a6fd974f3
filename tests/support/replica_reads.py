"""A bucket's partitions as the replica serves them, and what a consumer makes of the bytes that it gets."""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tests.support.file_parts import bytes_of
from tierlog import open_tier
from tierlog.broker.replica.replica_config import server_config
from tierlog.broker.replica.replica_partition import ReplicaPartition, SegmentReads
from tierlog.errors import TierlogError
from tierlog.records import decode, scan
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.batch_reads import FoundBatches
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.cancelling import CancelledReadError
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import Answer, Cancel, OnAnswer
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.history import PartitionHistory, TierHistory

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")


class SetHistory:
    """A CachedHistory that a test sets."""

    def __init__(self, history: PartitionHistory | None, resolve: Callable[[], PartitionHistory] | None = None) -> None:
        self._current = history
        self.version = 0 if history is None else 1
        self._resolve = resolve
        self._when_evicted: Callable[[], None] | None = None
        self.reported: list[Exception] = []

    @property
    def current(self) -> PartitionHistory | None:
        return self._current

    @current.setter
    def current(self, history: PartitionHistory) -> None:
        self._current = history
        self.version += 1

    def use(self) -> PartitionHistory | None:
        return self._current

    def on_evicted(self, call: Callable[[], None]) -> None:
        self._when_evicted = call

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        assert self.current is not None
        return self.current.topic_id_partition

    async def resolve(self) -> PartitionHistory:
        assert self._resolve is not None
        self.current = found = self._resolve()
        return found

    def report_missing(self, error: Exception) -> None:
        self.reported.append(error)


@dataclass
class Served:
    """A tier, how it is read, and its partitions by topic and number."""

    tier: Tier
    reads: SegmentReads
    partitions: dict[tuple[str, int], ReplicaPartition] = field(default_factory=dict)
    histories: dict[tuple[str, int], SetHistory] = field(default_factory=dict)

    def add(self, history: PartitionHistory) -> ReplicaPartition:
        key = (history.topic, history.partition)
        self.histories[key] = SetHistory(history)
        self.partitions[key] = ReplicaPartition(self.histories[key], self.reads)
        return self.partitions[key]


@contextmanager
def served(
    path: str,
    config: Mapping[str, str] | None = None,
    *,
    topics: Sequence[str] | None = None,
    wrap_store: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    log_start_offsets: Mapping[str, Mapping[int, int]] | None = None,
) -> Iterator[Served]:
    """The partitions of a bucket."""
    with open_tier(path, config=config, wrap_store=wrap_store) as tier:
        reads = SegmentReads(tier, server_config(config))
        made = Served(tier, reads)
        for history in TierHistory(tier, log_start_offsets=log_start_offsets).partitions(topics):
            made.add(history)
        try:
            yield made
        finally:
            reads.close()


class FarStore(PassingStore):
    """A local store as if behind a network: reads are begun, and answered by one thread.

    Attributes:
        asked: (key, start, end) of each read that was begun, in order.
        held: Reads of keys that end like one of these are not answered …
        held_from: … where they begin at this position or behind it, until ``release``.
    """

    is_local = False  # type: ignore[assignment]
    reads_directly = False  # type: ignore[assignment]
    starts_reads = True  # type: ignore[assignment]

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.asked: list[tuple[str, int, int]] = []
        self.held: tuple[str, ...] = ()
        self.held_from = 0
        self._waiting: list[Callable[[], None]] = []
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._answer, name="far-store")
        self._thread.start()

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        self.asked.append((key, start_position, end_position_exclusive))
        told: list[bool] = []

        def read() -> None:
            if told:
                return
            told.append(True)
            try:
                found: Answer = self.inner.fetch_range(
                    key, start_position=start_position, end_position_exclusive=end_position_exclusive
                )
            except TierlogError as error:
                found = error
            on_answer(found)

        def cancel() -> None:
            if not told:
                told.append(True)
                on_answer(CancelledReadError("cancelled"))

        if key.endswith(self.held or ("\0",)) and start_position >= self.held_from:
            self._waiting.append(read)
        else:
            self._work.put(read)
        return cancel

    def release(self) -> None:
        """Answer what was held, and hold no more."""
        self.held = ()
        waiting, self._waiting = self._waiting, []
        for read in waiting:
            self._work.put(read)

    def _answer(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        super().close()


Sizes = Callable[[], int]


async def read_on(
    partition: ReplicaPartition, *, read_committed: bool, max_bytes: Sizes, from_offset: int | None = None
) -> list[tuple[int, FoundBatches]]:
    """All answers of a consumer that reads on to the end, with the offset that it asked for."""
    offsets = await partition.load()
    offset = offsets.log_start_offset if from_offset is None else from_offset
    end = offsets.last_stable_offset if read_committed else offsets.high_watermark
    answers = []
    while offset < end:
        _, found = await partition.read(
            offset, max_bytes=max_bytes(), is_first_whole=True, read_committed=read_committed
        )
        assert len(bytes_of(found.records)) == found.size_bytes
        answers.append((offset, found))
        table = scan(bytes_of(found.records), verify_crc=True)
        assert table.crc_ok.all()
        if not len(table):
            assert not found.size_bytes, "no whole batch"
            break
        assert table.last_offset[0] >= offset, "a batch below the offset that was asked for"
        if len(table) > 1:
            assert table.last_offset[0] < table.base_offset[1]
        offset = int(table.last_offset[-1]) + 1
    return answers


def consumed_rows(answers: Sequence[tuple[int, FoundBatches]]) -> list[pa.RecordBatch]:
    """What Kafka's consumer gives out of answers: records from the wanted offset on, without aborted ones.

    Source: CompletedFetch: producers of the answer's list, from their first offset on, up to their abort marker.
    """
    rows = []
    for offset, found in answers:
        data = bytes_of(found.records)
        waiting = sorted(found.aborted_transactions or (), key=lambda entry: entry[1])
        aborted: set[int] = set()
        table = scan(data)
        for place in range(len(table)):
            producer, last = int(table.producer_id[place]), int(table.last_offset[place])
            while waiting and waiting[0][1] <= last:
                aborted.add(waiting.pop(0)[0])
            start = int(table.position[place])
            batch = data[start : start + int(table.size_bytes[place])]
            if table.is_control[place]:
                if found.aborted_transactions is not None and _is_abort(batch):
                    aborted.discard(producer)
                continue
            if table.is_transactional[place] and producer in aborted:
                continue
            rows.append(decode(batch, columns=COLUMNS, from_offset=offset))
    return rows


def _is_abort(batch: bytes) -> bool:
    """Of a control batch of one record: varints for length, attributes, deltas, then the key's (version, type)."""
    at = 61
    for _ in range(1):
        while batch[at] & 0x80:
            at += 1
        at += 1
    at += 1
    for _ in range(3):
        while batch[at] & 0x80:
            at += 1
        at += 1
    kind: int = struct.unpack_from(">hh", batch, at)[1]
    return kind == 0


def table_of(rows: Sequence[pa.RecordBatch], partition: int) -> pa.Table:
    """Rows with their partition's number, as ``golden.rows_of`` takes them."""
    schema = decode(b"", columns=COLUMNS).schema
    table = pa.Table.from_batches(rows, schema)
    return table.append_column("partition", pa.array([partition] * len(table), pa.int32()))
