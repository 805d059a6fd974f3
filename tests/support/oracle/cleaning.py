"""What a cleaner leaves of a log of magic 2, in plain Python over whole batches: slow and obvious.

A batch is judged by all that is known of the log, not in the order in which a cleaner meets it: a transaction is the
batches of a producer between two of its markers.

Source: Kafka Cleaner, CleanedTransactionMetadata, MemoryRecords#filterTo (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.support.oracle.batches import CODEC_MASK, CONTROL, DELETE_HORIZON, BatchHeader, iter_batches
from tests.support.oracle.records import Aborted, DecodeOptions, Record, decode


@dataclass(frozen=True)
class CleanedBatch:
    """A batch without what depends on its codec."""

    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int
    producer: tuple[int, int, int]
    records: tuple[Record, ...]


def batches_of(data: bytes) -> list[CleanedBatch]:
    """All batches of a log, control batches too."""
    rows, fault = decode(data, DecodeOptions(control_records=True))
    assert fault is None, fault
    at: dict[int, list[Record]] = {}
    for row in rows:
        at.setdefault(row.batch_position, []).append(replace(row, batch_position=0))
    return [_batch(header, at.get(header.position, [])) for header, _ in iter_batches(data)]


def _batch(header: BatchHeader, records: Sequence[Record]) -> CleanedBatch:
    return CleanedBatch(
        header.base_offset,
        header.last_offset,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
        header.leader_epoch,
        (header.producer_id, header.producer_epoch, header.base_sequence),
        tuple(records),
    )


@dataclass(frozen=True)
class CleaningOracle:
    """One cleaning.

    Attributes:
        batches: Of the segments that are cleaned or indexed, in order.
        aborted: Of the transaction index.
        last_records: Producer → (last data offset or None, epoch).
        bases: Of the segments; what is missing in front of one is known with the segment before.
    """

    batches: Sequence[CleanedBatch]
    aborted: Collection[Aborted]
    last_records: Mapping[int, tuple[int | None, int]]
    first_dirty_offset: int
    end_offset: int
    keys_max: int
    now_ms: int
    delete_retention_ms: int
    bases: Sequence[int] = ()

    def known_keys(self) -> tuple[dict[bytes, int], int]:
        """(key → latest offset, up to where the map knows the log, exclusive)."""
        known: dict[bytes, int] = {}
        latest = -1
        for batch in self.batches:
            if batch.base_offset >= self.end_offset:
                break
            latest = max(latest, *(base - 1 for base in (0, *self.bases) if base <= batch.base_offset))
            for record in () if batch.attributes & CONTROL or self.is_aborted(batch) else batch.records:
                if record.key is None or record.offset < self.first_dirty_offset:
                    continue
                if len(known) >= self.keys_max:
                    return known, max(self.first_dirty_offset, latest + 1)
                known[record.key] = latest = record.offset
            if batch.last_offset >= self.first_dirty_offset:
                latest = batch.last_offset
        return known, self.end_offset

    def is_aborted(self, batch: CleanedBatch) -> bool:
        return bool(batch.attributes & 0x10) and any(
            entry.producer_id == batch.producer[0] and entry.first_offset <= batch.last_offset < entry.last_offset
            for entry in self.aborted
        )

    def is_of_no_batch(self, marker: CleanedBatch) -> bool:
        """Whether no batch of a marker's transaction is in front of it."""
        own = [batch for batch in self.batches if batch.producer[0] == marker.producer[0] and batch.attributes & 0x10]
        before = own[own.index(marker) - 1] if own.index(marker) else None
        return not marker.records or before is None or bool(before.attributes & CONTROL)

    def cleaned(self) -> list[CleanedBatch]:
        """The batches that are left, all of them."""
        known, next_dirty = self.known_keys()
        left = [self._clean(batch, known, next_dirty - 1) for batch in self.batches]
        return [batch for batch in left if batch is not None]

    def _clean(self, batch: CleanedBatch, known: Mapping[bytes, int], latest: int) -> CleanedBatch | None:
        is_control, has_horizon = bool(batch.attributes & CONTROL), bool(batch.attributes & DELETE_HORIZON)
        is_past = has_horizon and batch.base_timestamp <= self.now_ms
        is_unneeded = is_control and self.is_of_no_batch(batch)
        records: tuple[Record, ...] = ()
        if is_control:
            records = () if is_unneeded and is_past else batch.records
        elif not self.is_aborted(batch):
            records = tuple(
                record
                for record in batch.records
                if record.offset > latest
                or (
                    record.key is not None
                    and record.offset >= known.get(record.key, -1)
                    and (record.value is not None or not is_past)
                )
            )
        if not records:
            if not self._stays_empty(batch):
                return None
            attributes = batch.attributes & ~DELETE_HORIZON & ~CODEC_MASK
            return replace(batch, attributes=attributes, base_timestamp=-1, records=())
        gets_horizon = not has_horizon and (is_unneeded or any(record.value is None for record in records))
        if records == batch.records and not gets_horizon:
            return batch
        append_time = bool(batch.attributes & 0x08)
        return replace(
            batch,
            attributes=batch.attributes | (DELETE_HORIZON if gets_horizon else 0),
            base_timestamp=self.now_ms + self.delete_retention_ms
            if gets_horizon
            else batch.base_timestamp
            if has_horizon
            else records[0].timestamp,
            max_timestamp=batch.max_timestamp if append_time else max(record.timestamp for record in records),
            records=records,
        )

    def _stays_empty(self, batch: CleanedBatch) -> bool:
        if batch.last_offset + 1 == self.end_offset:
            return True
        last_data, epoch = self.last_records.get(batch.producer[0], (None, -2))
        if last_data is not None:
            return batch.last_offset == last_data
        return bool(batch.attributes & CONTROL) and batch.producer[1] == epoch
