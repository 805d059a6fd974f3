"""Batches as producers send them, and an index with its questions, for ``bench.local_log``. From fixed seeds."""

from __future__ import annotations

import pathlib

import numpy as np

from bench import workload
from tierlog.log.formats.offset_index import ENTRY_SIZE_BYTES, encode_offset_index
from tierlog.records.builder import encode_batch, encode_record

RECORDS_A_BATCH = 16
RECORD_BYTES = 1020
BATCH_BYTES = 61 + RECORDS_A_BATCH * RECORD_BYTES
PRODUCERS = 8
INDEX_BYTES = 10 << 20
INDEX_BASE = 1_000_000
#: Behind them Kafka searches in what it takes to be warm.
TAIL_BYTES = 8192
_BODIES = 256
_KEY_BYTES = 16


def _record_of(number: int, offset_delta: int, timestamp_delta: int, value: bytes) -> bytes:
    """A record of exactly RECORD_BYTES."""
    key = b"customer-%07d" % number

    def encoded(size: int) -> bytes:
        return encode_record(offset_delta=offset_delta, timestamp_delta=timestamp_delta, key=key, value=value[:size])

    size = RECORD_BYTES - len(encoded(0)) - 2
    made = encoded(size)
    assert len(made) <= RECORD_BYTES, len(made)
    return encoded(size + RECORD_BYTES - len(made))


def write_batches(path: pathlib.Path, batches: int, *, idempotent: bool) -> None:
    """A file of uncompressed batches of 16 records of 1,020 bytes, base offset 0 and no epoch, as producers send them.

    With ``idempotent`` they come from eight producers in turn, with ids and sequences.
    """
    rng = np.random.default_rng(workload.SEED + 7)
    values = [value for value in workload.values(2 * RECORD_BYTES) if len(value) >= RECORD_BYTES][:_BODIES]
    pool = [
        [_record_of(number, delta, delta // 4, value) for number, value in enumerate(values)]
        for delta in range(RECORDS_A_BATCH)
    ]
    sequences = [0] * PRODUCERS
    with path.open("wb") as file:
        for batch in range(batches):
            picks = rng.integers(len(values), size=RECORDS_A_BATCH).tolist()
            timestamp = workload.FIRST_TIMESTAMP_MS + 5 * batch
            producer = batch % PRODUCERS
            ids = {"producer_id": 1000 + producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += RECORDS_A_BATCH
            file.write(
                encode_batch(
                    base_offset=0,
                    records=b"".join(pool[delta][pick] for delta, pick in enumerate(picks)),
                    record_count=RECORDS_A_BATCH,
                    last_offset_delta=RECORDS_A_BATCH - 1,
                    base_timestamp=timestamp,
                    max_timestamp=timestamp + (RECORDS_A_BATCH - 1) // 4,
                    **(ids if idempotent else {}),
                )
            )


def write_index(path: pathlib.Path) -> tuple[int, int]:
    """An offset index of 10 MiB; (the first offset of its last 8 KiB, its last offset)."""
    rng = np.random.default_rng(workload.SEED + 8)
    entries = INDEX_BYTES // ENTRY_SIZE_BYTES
    offsets = INDEX_BASE + np.cumsum(rng.integers(1, 64, entries))
    positions = np.cumsum(rng.integers(1, 3000, entries))
    path.write_bytes(encode_offset_index(INDEX_BASE, offsets, positions))
    return int(offsets[-TAIL_BYTES // ENTRY_SIZE_BYTES]), int(offsets[-1])


def write_questions(path: pathlib.Path, first: int, last: int, count: int) -> None:
    """Random offsets of a range, as int64."""
    rng = np.random.default_rng(workload.SEED + 9)
    rng.integers(first, last + 1, count).astype("<i8").tofile(path)
