"""What a segment table answers, as rules over dicts: ours, and those of Kafka 4.3's RemoteLogMetadataCache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.remote.metadata.table.segments import DELETED, DELETING, FINISHED, STARTED
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)

ALLOWED = {
    None: {STARTED},
    STARTED: {STARTED, FINISHED, DELETING},
    FINISHED: {FINISHED, DELETING},
    DELETING: {DELETING, DELETED},
}


def spans_of(segment: RemoteLogSegmentMetadata) -> Iterator[tuple[int, int, int]]:
    """(leader epoch, first offset, last offset) of each of its epochs."""
    entries = sorted(segment.segment_leader_epochs.items())
    ends = [start - 1 for _, start in entries[1:]] + [segment.end_offset]
    for (epoch, start), end in zip(entries, ends, strict=True):
        yield epoch, start, end


@dataclass
class Model:
    """One partition, by the KIP's rules: no offset is lost while a readable segment has it."""

    segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)

    def apply(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> bool:
        """Whether the event was applied."""
        known = self.segments.get(event.remote_log_segment_id)
        is_new = isinstance(event, RemoteLogSegmentMetadata)
        state: RemoteLogSegmentState | None = None if known is None else known.state
        if is_new != (event.state is STARTED) or event.state not in ALLOWED[state]:
            return False
        if isinstance(event, RemoteLogSegmentMetadata):
            self._enter(event)
        else:
            assert known is not None
            self._change(known, known.create_with_updates(event))
        return True

    def _enter(self, segment: RemoteLogSegmentMetadata) -> None:
        self.segments[segment.remote_log_segment_id] = segment

    def _change(self, before: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata) -> None:
        if after.state is DELETED:
            del self.segments[after.remote_log_segment_id]
            return
        self.segments[after.remote_log_segment_id] = after
        if after.state is FINISHED and before.state is STARTED:
            for epoch, _, end in spans_of(after):
                self.highest[epoch] = max(end, self.highest.get(epoch, -1))

    def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Of the readable segments with the offset the one that reaches furthest in the epoch."""
        having = [
            (end, segment)
            for segment in self.segments.values()
            for of, start, end in spans_of(segment)
            if segment.state is FINISHED and of == epoch and start <= offset <= end
        ]
        return max(having, key=lambda each: each[0])[1] if having else None

    def list(self, epoch: int) -> set[RemoteLogSegmentMetadata]:
        return {each for each in self.segments.values() if epoch in each.segment_leader_epochs}


@dataclass
class KafkaModel(Model):
    """One partition, by the rules of Kafka's RemoteLogLeaderEpochState, with what it loses."""

    referenced: dict[int, dict[int, RemoteLogSegmentId]] = field(default_factory=dict)
    unreferenced: dict[int, set[RemoteLogSegmentId]] = field(default_factory=dict)

    def _enter(self, segment: RemoteLogSegmentMetadata) -> None:
        super()._enter(segment)
        for epoch, _, _ in spans_of(segment):
            self.unreferenced.setdefault(epoch, set()).add(segment.remote_log_segment_id)

    def _change(self, before: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata) -> None:
        mine = after.remote_log_segment_id
        for epoch, start, end in spans_of(after):
            ids, others = self.referenced.setdefault(epoch, {}), self.unreferenced.setdefault(epoch, set())
            if after.state is FINISHED:
                while ids and max(ids) >= start and self.highest.get(epoch, -1) <= end:
                    others.add(ids.pop(max(ids)))
                ids[start] = mine
                others.discard(mine)
            elif after.state is DELETING:
                if ids.get(start) == mine:
                    del ids[start]
                others.add(mine)
            else:
                others.discard(mine)
        super()._change(before, after)

    def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        ids = self.referenced.get(epoch, {})
        starts = [start for start in ids if start <= offset]
        if not starts:
            return None
        segment = self.segments[ids[max(starts)]]
        end = next(end for of, _, end in spans_of(segment) if of == epoch)
        return segment if offset <= end else None

    def list(self, epoch: int) -> set[RemoteLogSegmentMetadata]:
        ids = set(self.referenced.get(epoch, {}).values()) | self.unreferenced.get(epoch, set())
        return {self.segments[each] for each in ids}
