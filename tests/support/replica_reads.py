"""A bucket's partitions as the replica serves them, and what a consumer makes of the bytes that it gets."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tierlog import open_tier
from tierlog.broker.partitions import FetchedRecords
from tierlog.broker.replica.replica_partition import ReplicaPartition
from tierlog.broker.replica.segment_reads import SegmentReads, server_config
from tierlog.records import decode, scan
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.storage.tier.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import PartitionHistory, TierHistory

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")


class SetHistories:
    """PartitionHistories of a history that a test sets."""

    def __init__(self, history: PartitionHistory | None, resolve: Callable[[], PartitionHistory] | None = None) -> None:
        self.current = history
        self._resolve = resolve
        self.reported: list[Exception] = []

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        assert self.current is not None
        return self.current.topic_id_partition

    async def resolve(self) -> PartitionHistory:
        assert self._resolve is not None
        self.current = self._resolve()
        return self.current

    def report_missing(self, error: Exception) -> None:
        self.reported.append(error)


@dataclass
class Served:
    """A tier, how it is read, and its partitions by topic and number."""

    tier: Tier
    reads: SegmentReads
    partitions: dict[tuple[str, int], ReplicaPartition] = field(default_factory=dict)
    histories: dict[tuple[str, int], SetHistories] = field(default_factory=dict)

    def add(self, history: PartitionHistory) -> ReplicaPartition:
        key = (history.topic, history.partition)
        self.histories[key] = SetHistories(history)
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
        reads.set_next_segment(
            lambda metadata: made.partitions[
                metadata.topic_id_partition.topic, metadata.topic_id_partition.partition
            ].next_segment(metadata)
        )
        try:
            yield made
        finally:
            reads.close()


Sizes = Callable[[], int]


async def read_on(
    partition: ReplicaPartition, *, read_committed: bool, max_bytes: Sizes, from_offset: int | None = None
) -> list[tuple[int, FetchedRecords]]:
    """All answers of a consumer who reads on to the end, with the offset that she asked for."""
    offsets = await partition.load()
    offset = offsets.log_start_offset if from_offset is None else from_offset
    end = offsets.last_stable_offset if read_committed else offsets.high_watermark
    answers = []
    while offset < end:
        found = await partition.read(offset, max_bytes=max_bytes(), is_first_whole=True, read_committed=read_committed)
        assert sum(map(len, found.records)) == found.size_bytes
        answers.append((offset, found))
        table = scan(b"".join(found.records), verify_crc=True)
        assert table.crc_ok.all()
        if not len(table):
            assert not found.size_bytes, "no whole batch"
            break
        assert table.last_offset[0] >= offset, "a batch below the offset that was asked for"
        if len(table) > 1:
            assert table.last_offset[0] < table.base_offset[1]
        offset = int(table.last_offset[-1]) + 1
    return answers


def consumed_rows(answers: Sequence[tuple[int, FetchedRecords]]) -> list[pa.RecordBatch]:
    """What Kafka's consumer gives out of answers: records from the wanted offset on, without aborted ones.

    Source: CompletedFetch: producers of the answer's list, from their first offset on, up to their abort marker.
    """
    rows = []
    for offset, found in answers:
        data = b"".join(found.records)
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


Run = Callable[[Callable[[], Awaitable[object]]], object]
