"""Batches of a log as its producers' state takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import AssignedBatch, find_marker
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
)


def producer_batch_of(batch: AssignedBatch, data: memoryview) -> ProducerBatch:
    """A leader's batch. Raises CorruptRecordError: a control batch whose record is malformed."""
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
        find_marker(data) if is_control else None,
    )


def producer_batches_of(columns: Mapping[str, NDArray[np.generic]], data: memoryview) -> list[ProducerBatch]:
    """The batches of a run that have a producer, in offset order.

    Args:
        columns: Of ``scan_batches``.
        data: The bytes that they describe; positions count from its start.

    Raises:
        CorruptRecordError: a control batch whose record is malformed.
    """
    rows = np.flatnonzero(columns["producer_id"].astype(np.int64) >= 0)
    if not rows.size:
        return []
    found = []
    table = zip(*(columns[name][rows].tolist() for name in _COLUMNS), strict=True)
    for producer_id, epoch, sequence, base, last, timestamp_ms, attributes, position, size_bytes in table:
        is_control = bool(attributes & CONTROL)
        marker = find_marker(data[position : position + size_bytes]) if is_control else None
        is_transactional = bool(attributes & TRANSACTIONAL)
        found.append(
            ProducerBatch(producer_id, epoch, sequence, base, last, timestamp_ms, is_transactional, is_control, marker)
        )
    return found
