"""What has to be in a log after a crash: the batches that were appended, and how far they were flushed.

By docs/formats/log-files.md and not by the code that it judges; answers are found by going through the list.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

#: Of a batch's header.
_HEAD = struct.Struct(">qii")
HEADER_BYTES = 61


@dataclass(frozen=True)
class Producer:
    """The sender of a batch. ``marker``: "commit" or "abort", of a control batch."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: str | None = None


@dataclass(frozen=True)
class ExpectedBatch:
    """A batch as it has to lie in the log."""

    base_offset: int
    data: bytes
    timestamps_ms: tuple[int, ...]
    leader_epoch: int
    producer: Producer

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.timestamps_ms) - 1


@dataclass
class ProducerMemory:
    """What a log knows of a producer."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    transaction_first_offset: int = -1


@dataclass
class Transactions:
    """The outcome of a replay."""

    producers: dict[int, ProducerMemory] = field(default_factory=dict)
    #: (producer id, first offset, offset of the marker), by marker.
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    #: Of all that were ended.
    ended: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def first_open_offset(self) -> int | None:
        begun = [p.transaction_first_offset for p in self.producers.values() if p.transaction_first_offset >= 0]
        return min(begun, default=None)


def replayed(batches: list[ExpectedBatch]) -> Transactions:
    """The producers and the aborted transactions of a row of batches."""
    found = Transactions()
    for batch in batches:
        sender = batch.producer
        if sender.producer_id < 0:
            continue
        known = found.producers.setdefault(sender.producer_id, ProducerMemory(sender.epoch))
        if known.epoch != sender.epoch:
            known.epoch, known.last_sequence, known.last_offset = sender.epoch, -1, -1
        if sender.marker is not None:
            if known.transaction_first_offset >= 0:
                ended = sender.producer_id, known.transaction_first_offset, batch.last_offset
                found.ended.append(ended)
                found.aborted += [ended] * (sender.marker == "abort")
            known.transaction_first_offset = -1
            continue
        known.last_sequence = sender.base_sequence + len(batch.timestamps_ms) - 1
        known.last_offset = batch.last_offset
        if sender.transactional and known.transaction_first_offset < 0:
            known.transaction_first_offset = batch.base_offset
    return found


def stored(data: bytes, *, base_offset: int, leader_epoch: int) -> bytes:
    """A producer's batch as a leader stores it: both fields lie outside the checksum."""
    _, length, _ = _HEAD.unpack_from(data)
    return _HEAD.pack(base_offset, length, leader_epoch) + data[_HEAD.size :]


def taken_apart(data: bytes) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of each batch of a whole .log."""
    found, at = [], 0
    while at < len(data):
        base_offset, length, _ = _HEAD.unpack_from(data, at)
        assert length + 12 >= HEADER_BYTES, f"no batch at position {at}"
        assert at + 12 + length <= len(data), f"half a batch at position {at}"
        found.append((base_offset, data[at : at + 12 + length]))
        at += 12 + length
    return found


@dataclass
class ExpectedLog:
    """The log as its writer knows it.

    Attributes:
        batches: All that were appended and not truncated, those that retention removed among them; the last one may be
            under way.
        end_offset: Where the next batch goes.
        start_offset: What lies below may be gone: deleted, or moved to a tier.
        deleted_below: What lies below may be forgotten, and its sender: the log begins behind it since then.
        flushed_offset: What lies below was said to be on the disk.
        loose_from: Of a truncation that is under way: what lies from there on may be gone, in any order.
    """

    batches: list[ExpectedBatch] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    deleted_below: int = 0
    flushed_offset: int = 0
    loose_from: int | None = None

    def append(self, batch: ExpectedBatch) -> None:
        """Take a batch that is about to be appended."""
        self.batches.append(batch)
        self.end_offset = batch.last_offset + 1

    def cut_to(self, offset: int) -> None:
        """Forget what lies from an offset on, by a truncation that is done or a crash."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self.start_offset = min(self.start_offset, offset)
        self.loose_from = None
