"""Runs of records as they come from a metadata partition, not yet decoded: whole batches, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Whole record batches of one metadata partition, as a log file has them.

    Attributes:
        next_offset: Where the next read goes on.
    """

    partition: int
    next_offset: int
    batches: Buffer


@dataclass(frozen=True, slots=True)
class ValueRun:
    """Records of one metadata partition, one by one, as a consumer has them. All sequences are of one length.

    Attributes:
        next_offset: Where the next read goes on; offsets of control records lie between.
        keys: None for a record without key, as all of Kafka's are.
        values: None for a tombstone.
    """

    partition: int
    next_offset: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
