"""Closed segments as a broker hands them to a copy: those of the golden log directories, and made ones of any size."""

from __future__ import annotations

import json
import pathlib
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tierlog.errors import DataLossError
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.records.batch_table import scan
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote import (
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    closed_segment,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock

MADE_TOPIC = TopicIdPartition(Uuid(b"made-topic-of-tl".ljust(16)), "orders", 3)
FIRST_MS = 1_700_000_000_000
#: Metadata are the same each time they are made.
_MACHINE = Machine(clock=ManualClock(time_ms=FIRST_MS))


@dataclass(frozen=True)
class ClosedSegment:
    """What a copy gets."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData

    def __str__(self) -> str:
        return f"{self.metadata.topic_id_partition} from {self.metadata.start_offset}"

    @property
    def log(self) -> bytes:
        return pathlib.Path(self.data.log_segment).read_bytes()

    def finished(self, custom_metadata: bytes | None = None) -> RemoteLogSegmentMetadata:
        """The metadata as they are once the copy is done."""
        return replace(
            self.metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata=custom_metadata
        )

    def with_id(self, number: int) -> ClosedSegment:
        """Another attempt: the same segment under another id."""
        segment_id = replace(self.metadata.remote_log_segment_id, id=Uuid(number.to_bytes(16, "big")))
        return replace(self, metadata=replace(self.metadata, remote_log_segment_id=segment_id))


def golden_segments(run: pathlib.Path) -> Iterator[ClosedSegment]:
    """Every closed segment of the tiered topics in a run's ``local-before``."""
    topics = json.loads((run / "topics.json").read_text())
    for folder in sorted(path.parent for path in (run / "local-before").rglob("partition.metadata")):
        about = topics.get(folder.name.rpartition("-")[0])
        if about is not None and about["config"].get("remote.storage.enable") == "true":
            yield from folder_segments(folder, Uuid.from_text(about["topicId"]))


def folder_segments(folder: pathlib.Path, topic_id: Uuid | None = None) -> Iterator[ClosedSegment]:
    """Those of one partition's folder that have a producer snapshot at their end: all but the last one."""
    for number, log in enumerate(sorted(folder.glob("*.log"))[:-1]):
        start = int(log.stem)
        segment_id = Uuid((start + 1).to_bytes(8, "big") + number.to_bytes(8, "big"))
        try:
            found = closed_segment(
                folder, start, broker_id=1, topic_id=topic_id, segment_id=segment_id, machine=_MACHINE
            )
        except DataLossError:
            continue
        yield ClosedSegment(*found)


def _metadata(
    partition: TopicIdPartition, number: int, data: LogSegmentData, start: int, end: int, epochs: dict[int, int]
) -> RemoteLogSegmentMetadata:
    log = pathlib.Path(data.log_segment).read_bytes()
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid((start + 1).to_bytes(8, "big") + number.to_bytes(8, "big"))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max(scan(log).max_timestamp.tolist(), default=-1),
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_in_bytes=len(log),
        segment_leader_epochs=epochs or {0: start},
        txn_idx_empty=data.transaction_index is None,
    )


def made_segment(
    folder: pathlib.Path,
    *,
    base_offset: int = 100,
    batches: int = 40,
    value_bytes: int = 1000,
    index_interval: int = 4,
    codecs: Sequence[str] = ("none",),
) -> ClosedSegment:
    """A segment of its own below ``folder``: batches of two records, one codec after the other, some index entries."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded: list[bytes] = []
    index, time_index = bytearray(), bytearray()
    position = 0
    for at in range(batches):
        builder = RecordBatchBuilder(base_offset + 2 * at, leader_epoch=4, codec=codecs[at * len(codecs) // batches])
        for record in range(2):
            value = _value(base_offset + 2 * at + record, value_bytes)
            builder.append(None, value, timestamp_ms=FIRST_MS + 2 * at + record)
        encoded.append(builder.build())
        if at and at % index_interval == 0:
            index += struct.pack(">ii", 2 * at + 1, position)
            time_index += struct.pack(">qi", FIRST_MS + 2 * at + 1, 2 * at + 1)
        position += len(encoded[-1])
    log = folder / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(encoded))
    log.with_suffix(".index").write_bytes(index)
    log.with_suffix(".timeindex").write_bytes(time_index)
    end = base_offset + 2 * batches - 1
    snapshot = folder / f"{end + 1:020d}.snapshot"
    snapshot.write_bytes(encode_producer_snapshot([]))
    data = LogSegmentData(
        str(log),
        str(log.with_suffix(".index")),
        str(log.with_suffix(".timeindex")),
        None,
        str(snapshot),
        encode_leader_epochs(LeaderEpochs([(0, 0), (4, base_offset)])),
    )
    return ClosedSegment(_metadata(MADE_TOPIC, base_offset, data, base_offset, end, {4: base_offset}), data)


def _value(offset: int, size: int) -> bytes:
    """Half of it compresses."""
    return random.Random(offset).randbytes(size // 2) + b"the same again, " * (size // 32 + 1)
