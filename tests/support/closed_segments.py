"""Closed segments as a broker hands them to a copy, and those of the golden log directories."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tierlog.errors import DataLossError
from tierlog.remote import (
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
    closed_segment,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock

#: Metadata are the same each time they are made.
_MACHINE = Machine(clock=ManualClock(time_ms=1_700_000_000_000))


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
