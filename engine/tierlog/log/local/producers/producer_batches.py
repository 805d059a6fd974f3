"""Batches of a log as its producers' state takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import AssignedBatch, Marker, find_marker
from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import ProducerBatch
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL

_COLUMNS: Final = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "attributes",
    "position",
    "size_bytes",
    "record_count",
)
#: Faults of a marker that Kafka has no error for.
_UNKNOWN: Final = frozenset(("BAD_ENTRY", "BAD_CODEC"))


def producer_batch_of(batch: AssignedBatch, data: memoryview) -> ProducerBatch:
    """A leader's batch."""
    is_control = bool(batch.attributes & CONTROL)
    return ProducerBatch(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        bool(batch.attributes & TRANSACTIONAL),
        is_control,
        _marker_of(data, batch.record_count) if is_control else None,
    )


def producer_batches_of(columns: Mapping[str, NDArray[np.generic]], data: memoryview) -> list[ProducerBatch]:
    """The batches of a run that have a producer, in offset order.

    Args:
        columns: Of ``scan_batches``.
        data: The bytes that they describe; positions count from its start.
    """
    rows = np.flatnonzero(columns["producer_id"].astype(np.int64) >= 0)
    if not rows.size:
        return []
    found = []
    table = zip(*(columns[name][rows].tolist() for name in _COLUMNS), strict=True)
    for producer_id, epoch, sequence, base, last, timestamp_ms, attributes, position, size_bytes, count in table:
        is_control = bool(attributes & CONTROL)
        marker = _marker_of(data[position : position + size_bytes], count) if is_control else None
        is_transactional = bool(attributes & TRANSACTIONAL)
        found.append(
            ProducerBatch(producer_id, epoch, sequence, base, last, timestamp_ms, is_transactional, is_control, marker)
        )
    return found


def _marker_of(data: memoryview, record_count: int) -> Marker | AppendRefusedError | None:
    """The marker of a control batch; None where compaction emptied it; else why it is refused in its turn: as Kafka
    refuses a malformed record, and control records of other kinds from a producer.
    """
    try:
        marker = find_marker(data)
    except CorruptRecordError as cause:
        error = KafkaError.UNKNOWN_SERVER_ERROR if cause.fault in _UNKNOWN else KafkaError.INVALID_RECORD
        refused = AppendRefusedError(error, f"a control record of a producer: {cause}")
        refused.__cause__ = cause
        return refused
    if marker is None and record_count:
        text = "a control record of a producer that ends no transaction"
        return AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, text)
    return marker
