"""Batches of a compacted topic from a seed, as a leader has stored them: several producers with transactions, markers,
tombstones, records without a key, gaps, codecs, both kinds of timestamps.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.support.message_set_builder import MessageSetBuilder
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType

EPOCH = 0
TRANSACTIONAL, IDEMPOTENT = (1, 2, 3, 4), (8, 9)
KEYS = [b"k%d" % number for number in range(12)] + [b"", b"long" * 40]


class CleanedBatches:
    """The batches of one log, one after another.

    Args:
        rng: The seed's.
        codecs: Of which each batch has one.
        magics: 2, or 0 and 1 too.

    Attributes:
        next_offset: Of the next batch, before its gap.
        open: Producers with an open transaction, and its first offset.
    """

    def __init__(
        self, rng: random.Random, *, codecs: tuple[str, ...] = ("none",), magics: tuple[int, ...] = (2,)
    ) -> None:
        self._rng, self._codecs, self._magics = rng, codecs, magics
        self._sequences: Counter[int] = Counter()
        self.next_offset = 0
        self.open: dict[int, int] = {}

    def turn(self, now_ms: int) -> bytes:
        """The next batch."""
        rng = self._rng
        if rng.random() < 0.15 and self._magics == (2,):
            self.next_offset += rng.choice([1, 2, 30])  # the leader's log was compacted
        magic = rng.choice(self._magics)
        if magic < 2:
            return self._message_set(magic, now_ms)
        kind = rng.choices(["plain", "transaction", "idempotent", "marker"], weights=(8, 6, 3, 4))[0]
        if kind == "marker":
            # Now and then of a transaction that has no batch here.
            producer = rng.choice(list(self.open)) if self.open and rng.random() < 0.9 else rng.choice(TRANSACTIONAL)
            return self._marker(producer, now_ms)
        if kind == "transaction":
            return self._data(rng.choice(TRANSACTIONAL), now_ms, is_transactional=True)
        producer = rng.choice(IDEMPOTENT) if kind == "idempotent" else -1
        return self._data(producer, now_ms, is_transactional=False)

    def end_all(self, now_ms: int) -> list[bytes]:
        """The markers of all open transactions."""
        return [self._marker(producer, now_ms) for producer in list(self.open)]

    def _marker(self, producer: int, now_ms: int) -> bytes:
        kind = self._rng.choice([ControlRecordType.COMMIT, ControlRecordType.ABORT])
        self.open.pop(producer, None)
        marker = build_end_transaction_marker(
            self.next_offset,
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=now_ms,
            leader_epoch=EPOCH,
        )
        self.next_offset += 1
        return marker

    def _record(self) -> tuple[bytes | None, bytes | None]:
        rng = self._rng
        key = None if rng.random() < 0.05 else rng.choice(KEYS)
        return key, None if rng.random() < 0.2 else b"%d" % self.next_offset + b"v" * rng.choice([0, 5, 90])

    def _data(self, producer: int, now_ms: int, *, is_transactional: bool) -> bytes:
        rng, base = self._rng, self.next_offset
        if is_transactional:
            self.open.setdefault(producer, base)
        count = rng.choice([1, 1, 2, 3, 6])
        builder = RecordBatchBuilder(
            base,
            codec=rng.choice(self._codecs),
            leader_epoch=EPOCH,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self._sequences[producer] if producer >= 0 else -1,
            transactional=is_transactional,
            log_append_time_ms=now_ms if rng.random() < 0.15 else None,
        )
        self._sequences[producer] += count
        for _ in range(count):
            headers = (("h", b"1"), ("h", None)) if rng.random() < 0.1 else ()
            timestamp_ms = rng.choice([now_ms, now_ms - rng.randint(0, 9000), -1, 0])
            builder.append(*self._record(), timestamp_ms=timestamp_ms, headers=headers)
            self.next_offset += 1
        return builder.build()

    def _message_set(self, magic: int, now_ms: int) -> bytes:
        rng = self._rng
        log_append_time_ms = now_ms if magic == 1 and rng.random() < 0.2 else None
        codec = rng.choice([codec for codec in self._codecs if codec != "zstd"])
        builder = MessageSetBuilder(magic, self.next_offset, codec=codec, log_append_time_ms=log_append_time_ms)
        for _ in range(rng.choice([1, 2, 4])):
            key, value = self._record()
            builder.append(key, value, timestamp_ms=now_ms - rng.randint(0, 900) if magic else -1)
            self.next_offset += 1
        return builder.build()
