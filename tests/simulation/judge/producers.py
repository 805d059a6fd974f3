"""What a replica knows of producers: the half of invariant 12 that a leader answers resends by.

A replica that does not know a producer's last batch, though its log has it or the tier in front of its log, would
append a resend of it; one that knows a batch that its log has not would call that a duplicate which is nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tests.simulation.facts import ProducerView, ReplicaView, Violation
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.lineage import epoch_of

#: How far a broker's clock may be wrong.
_CLOCKS_MS = 10_000


class LastBatch(NamedTuple):
    """The last batch of a producer, and the leader epoch in which it was appended."""

    leader_epoch: int
    epoch: int
    last_sequence: int
    last_offset: int
    timestamp: int


class Producers:
    """The last committed batch of each producer of one partition, by what was read of its logs."""

    def __init__(self) -> None:
        self.last: dict[int, LastBatch] = {}
        #: By producer and epoch: the offset of the first marker of that epoch.
        self.markers: dict[int, dict[int, int]] = {}
        self._was_cut = False

    def saw(self, batches: Iterable[Batch]) -> None:
        """Take batches of below the high watermark."""
        for batch in batches:
            if batch.producer_id >= 0 and batch.is_control:
                markers = self.markers.setdefault(batch.producer_id, {})
                epoch, offset = batch.producer_epoch, batch.base_offset
                markers[epoch] = min(offset, markers.get(epoch, offset))
            if batch.producer_id < 0 or batch.is_control or batch.base_sequence < 0:
                continue
            known = self.last.get(batch.producer_id)
            if known is None or known.last_offset < batch.last_offset:
                sequence = (batch.base_sequence + batch.last_offset - batch.base_offset) % (1 << 31)
                found = LastBatch(
                    batch.leader_epoch, batch.producer_epoch, sequence, batch.last_offset, batch.max_timestamp
                )
                self.last[batch.producer_id] = found

    def cut(self, offset: int) -> None:
        """An unclean election took what lies behind an offset."""
        self._was_cut = True
        self.last = {each: last for each, last in self.last.items() if last.last_offset < offset}
        for producer_id, markers in self.markers.items():
            self.markers[producer_id] = {epoch: first for epoch, first in markers.items() if first < offset}

    def may_be_compacted(self, producer_id: int, end_offset: int) -> bool:
        """Whether a compaction may have taken a producer's last batch: it leaves that in the log until one comes later,
        or the next epoch begins, which a log up to this offset had seen, and has lost with its end.
        """
        if self._was_cut:
            return True  # a later batch may have been of the branch that went
        epoch = self.last[producer_id].epoch
        later = [first for each, first in self.markers.get(producer_id, {}).items() if each > epoch]
        return bool(later) and min(later) >= end_offset


def check_producers(
    known: Producers,
    view: ReplicaView,
    has: Mapping[int, ProducerView],
    expiration_ms: int,
    *,
    published_start: int = 0,
    compacted_log: Callable[[], Iterable[Batch]] | None = None,
) -> None:
    """A replica knows the last batch of each producer, and none that its log has not.

    Args:
        known: What was seen of the partition.
        view: The replica.
        has: What it knows, by producer id.
        expiration_ms: How long brokers remember a silent producer, at least.
        published_start: The highest start of a leader: a producer whose last batch lies in front may be forgotten,
            also by a replica whose start was that before a crash, and has yet to be told it again.
        compacted_log: The replica's log, if it is compacted.
    """
    where = f"broker {view.broker}, {view.role} of {view.partition} in epoch {view.leader_epoch}"
    for producer_id, producer in has.items():
        if producer.last_offset >= view.log_end_offset:
            text = f"producer {producer_id}: its last batch ends at {producer.last_offset}"
            raise Violation(12, "phantom duplicate", f"{where}: {text}, the log at {view.log_end_offset}")
    for producer_id, last in known.last.items():
        is_here = max(view.log_start_offset, published_start) <= last.last_offset < view.log_end_offset
        is_here &= epoch_of(view.lineage, last.last_offset) == last.leader_epoch  # else it has to be cut yet
        if not is_here or last.timestamp + expiration_ms < view.clock_ms + _CLOCKS_MS:
            continue
        found = has.get(producer_id)
        if compacted_log is not None and known.may_be_compacted(producer_id, view.log_end_offset):
            batches = compacted_log()
            if not any(each.producer_id == producer_id and each.last_offset == last.last_offset for each in batches):
                continue
        text = f"{where}: producer {producer_id}: its last batch is {last}, and the replica knows {found}"
        if found is None or found.epoch < last.epoch:
            raise Violation(12, "forgotten producer", text)
        if found.epoch == last.epoch and found.last_offset < last.last_offset:
            raise Violation(12, "forgotten producer", text)
        if found.last_offset == last.last_offset and found.last_sequence != last.last_sequence:
            raise Violation(12, "forgotten producer", text)
