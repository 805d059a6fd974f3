"""Batches of a log that is appended to, recovered or compacted, from fixed seeds, in files."""

from __future__ import annotations

import pathlib

import numpy as np

from bench import data
from tierlog.records.batch_table import TRANSACTIONAL
from tierlog.records.builder import build_end_transaction_marker, encode_batch, encode_record
from tierlog.records.compression import codec_number, compress
from tierlog.records.control import ControlRecordType

RECORDS_A_BATCH, RECORD_BYTES, PRODUCERS = 16, 1020, 8
BATCH_BYTES = 61 + RECORDS_A_BATCH * RECORD_BYTES
LEADER_EPOCH = 3
PRODUCER_ID, BATCHES_A_TRANSACTION = 100, 4


def _record_of(number: int, offset_delta: int, timestamp_delta: int, value: bytes) -> bytes:
    """A record of exactly RECORD_BYTES."""
    key = b"customer-%07d" % number
    deltas = {"offset_delta": offset_delta, "timestamp_delta": timestamp_delta}
    size = RECORD_BYTES - len(encode_record(**deltas, key=key, value=b"")) - 2
    made = encode_record(**deltas, key=key, value=value[:size])
    assert len(made) <= RECORD_BYTES, len(made)
    return encode_record(**deltas, key=key, value=value[: size + RECORD_BYTES - len(made)])


def write_batches(path: pathlib.Path, batches: int, *, idempotent: bool) -> None:
    """A file of uncompressed batches as producers send them: base offset 0, no epoch; ids and sequences or none."""
    rng = np.random.default_rng(data.SEED + 7)
    values = [value for value in data.values(2 * RECORD_BYTES) if len(value) >= RECORD_BYTES][:256]
    pool = [
        [_record_of(number, delta, delta // 4, value) for number, value in enumerate(values)]
        for delta in range(RECORDS_A_BATCH)
    ]
    with path.open("wb") as file:
        for batch in range(batches):
            picks = rng.integers(len(values), size=RECORDS_A_BATCH).tolist()
            timestamp, producer = data.FIRST_TIMESTAMP_MS + 5 * batch, batch % PRODUCERS
            sequence = batch // PRODUCERS * RECORDS_A_BATCH
            ids = {"producer_id": 1000 + producer, "producer_epoch": 0, "base_sequence": sequence}
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


def write_compacted(path: pathlib.Path, size_bytes: int, codec: str, *, transactional: bool = False) -> None:
    """Batches of records of which half of the keys stand twice, anywhere; with offsets and transactions of PRODUCERS
    producers, side by side, of BATCHES_A_TRANSACTION batches each, every fourth aborted; or without.
    """
    rng = np.random.default_rng(data.SEED + 11)
    keys = size_bytes // BATCH_BYTES * RECORDS_A_BATCH * 2 // 3
    numbers = rng.permutation(np.concatenate([np.arange(keys), np.arange(keys // 2)])).tolist()
    values = [value for value in data.values(2 * RECORD_BYTES) if len(value) >= RECORD_BYTES][:256]
    offset = batches = 0
    sequences, ends = [0] * PRODUCERS, len(numbers) - len(numbers) % (RECORDS_A_BATCH * PRODUCERS)
    with path.open("wb") as file:
        for at in range(0, ends if transactional else len(numbers) - RECORDS_A_BATCH + 1, RECORDS_A_BATCH):
            records = b"".join(
                _record_of(number, delta, delta // 4, values[(number + at) % len(values)])
                for delta, number in enumerate(numbers[at : at + RECORDS_A_BATCH])
            )
            timestamp, producer = data.FIRST_TIMESTAMP_MS + at, batches % PRODUCERS
            file.write(
                encode_batch(
                    base_offset=offset,
                    records=compress(records, codec),
                    record_count=RECORDS_A_BATCH,
                    last_offset_delta=RECORDS_A_BATCH - 1,
                    base_timestamp=timestamp,
                    max_timestamp=timestamp + (RECORDS_A_BATCH - 1) // 4,
                    attributes=codec_number(codec) | (TRANSACTIONAL if transactional else 0),
                    leader_epoch=LEADER_EPOCH,
                    **_sent_by(producer, sequences[producer] if transactional else None),
                )
            )
            if not transactional:
                continue
            offset, batches = offset + RECORDS_A_BATCH, batches + 1
            sequences[producer] += RECORDS_A_BATCH
            is_last = at + RECORDS_A_BATCH * PRODUCERS >= ends
            if is_last or batches // PRODUCERS % BATCHES_A_TRANSACTION == producer % BATCHES_A_TRANSACTION:
                file.write(_marker(offset, producer, batches, timestamp))
                offset += 1


def _sent_by(producer: int, sequence: int | None) -> dict[str, int]:
    """The fields of a batch that say who sent it; none without a sequence."""
    if sequence is None:
        return {}
    return {"producer_id": PRODUCER_ID + producer, "producer_epoch": 0, "base_sequence": sequence}


def _marker(offset: int, producer: int, batches: int, timestamp: int) -> bytes:
    """The end of a producer's transaction."""
    is_aborted = batches // (PRODUCERS * BATCHES_A_TRANSACTION) % 4 == producer % 4
    return build_end_transaction_marker(
        offset,
        ControlRecordType.ABORT if is_aborted else ControlRecordType.COMMIT,
        producer_id=PRODUCER_ID + producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=timestamp,
        leader_epoch=LEADER_EPOCH,
    )
