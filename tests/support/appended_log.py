"""A living log under a Hypothesis machine: opened, and appended to as leader and as follower.

What else is done to it, and what it is asked, is in ``tests/log/local/test_log_machine.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.log_model import LogModel, ModelBatch, ModelProducer, ModelRecord
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.log_reads import LogOffsets
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.records.control import ControlRecordType, EndTransactionMarker, encode_control_key
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

FOLDER = "/logs/orders-0"
DAY_MS = 86_400_000
#: Producers: of transactions (the last two of version 2), and idempotent ones without.
TRANSACTIONAL, IDEMPOTENT = (1, 2, 3, 4), (10, 11)
VERSION_2 = (3, 4)
SEQUENCE_END = 2**31

#: (age in ms, bytes of the value) of each record of a batch.
SPECS = st.lists(st.tuples(st.integers(0, 4000), st.sampled_from([0, 3, 90])), min_size=1, max_size=4)
CODECS = st.sampled_from(["none", "none", "none", "gzip", "zstd"])
SMALL = LogConfig(
    segment_bytes=900, index_interval_bytes=150, retention_ms=30_000, segment_ms=3_500, max_message_bytes=800
)


class AppendedLog(RuleBasedStateMachine):
    """One log that is never told of the model, and one model that never looks into the log: opened, and appended to."""

    @initialize(tiered=st.booleans(), verifies=st.booleans(), seed=st.integers(0, 999))
    def begin(self, tiered: bool, verifies: bool, seed: int) -> None:
        self.machine, self.scheduler = ManualScheduler.machine(seed)
        self.machine.files.make_directories("/logs")
        self.tiered, self.verifies = tiered, verifies
        self.config = replace(SMALL, remote_storage_enable=tiered)
        self.epoch = 0
        self.model = LogModel(self.now_ms)
        self.held: list[tuple[Any, bytes]] = []
        self.heard: list[LogOffsets] = []
        self.open(LogCheckpoints(), clean=False)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.scheduler.close()

    @property
    def now_ms(self) -> int:
        return self.machine.clock.time_ms()

    @property
    def rolls(self) -> dict[str, int]:
        return {
            "now_ms": self.now_ms,
            "segment_bytes": self.config.segment_bytes,
            "segment_ms": self.config.segment_ms,
        }

    def open(self, checkpoints: LogCheckpoints, *, clean: bool) -> None:
        self.log = UnifiedLog.open(
            FOLDER,
            machine=self.machine,
            config=self.config,
            producer_settings=ProducerSettings(transaction_partition_verification_enable=self.verifies),
            checkpoints=checkpoints,
            had_clean_shutdown=clean,
            remote_log_enabled=self.tiered,
        )
        self.heard = [self.log.offsets]
        self.log.add_listener(self.heard.append)

    # ---- appending as leader

    def stored(self, specs: list[tuple[int, int]], *, sent: bool, **of_batch: Any) -> ModelBatch:
        """A batch as the producer sends it, or as it has to lie in the log."""
        now, codec = self.now_ms, of_batch.pop("codec", "none")
        append_time = not sent and self.config.message_timestamp_type == "LogAppendTime"
        if not sent and self.config.compression_type != "producer" and not of_batch.get("marker"):
            codec = self.config.compression_type
        base, marker = 0 if sent else self.model.end, of_batch.pop("marker", None)
        builder = RecordBatchBuilder(
            base,
            codec=codec,
            leader_epoch=-1 if sent else self.epoch,
            control=marker is not None,
            log_append_time_ms=now if append_time else None,
            **of_batch,
        )
        records = []
        for at, (age_ms, size) in enumerate(specs):
            key, value = b"key", bytes([65 + at]) * size
            if marker is not None:
                kind = ControlRecordType.COMMIT if marker[0] else ControlRecordType.ABORT
                key, value = encode_control_key(kind), EndTransactionMarker(kind, marker[1]).encode()
            builder.append(key, value, timestamp_ms=now - age_ms)
            records.append(ModelRecord(base + at, now if append_time else now - age_ms))
        return ModelBatch(
            builder.build(),
            base,
            base + len(specs) - 1,
            self.epoch,
            tuple(records),
            of_batch.get("producer_id", -1),
            of_batch.get("producer_epoch", -1),
            of_batch.get("base_sequence", -1),
            of_batch.get("transactional", False),
            marker,
        )

    def lead(
        self, specs: list[tuple[int, int]], *, refused: KafkaError | None = None, guard: Any = None, **of_batch: Any
    ) -> None:
        """One append as leader, that has to be taken or refused, in the log and in the model."""
        version = of_batch.pop("version", None)
        marker = of_batch.get("marker")
        sent = bytearray(self.stored(specs, sent=True, **of_batch).data)
        expected = self.stored(specs, sent=False, **of_batch)
        arguments: dict[str, Any] = {
            "leader_epoch": self.epoch,
            "origin": AppendOrigin.CLIENT if marker is None else AppendOrigin.COORDINATOR,
            "verification_guard": guard,
            "transaction_version": version,
        }
        if refused is not None:
            self.expect_refusal(sent, refused, arguments)
            return
        info = self.log.append_as_leader(sent, **arguments)
        append_time = self.now_ms if self.config.message_timestamp_type == "LogAppendTime" else -1
        assert info == (
            expected.base_offset,
            expected.last_offset,
            expected.max_timestamp_ms,
            append_time,
            self.model.log_start,
            expected.size,
            False,
        )
        self.model.append([expected], **self.rolls)

    def expect_refusal(self, sent: bytearray, refused: KafkaError, arguments: dict[str, Any]) -> None:
        before = self.log.offsets, self.files()
        with pytest.raises(AppendRefusedError) as caught:
            self.log.append_as_leader(sent, **arguments)
        assert caught.value.error is refused, caught.value
        assert (self.log.offsets, self.files()) == before, "a refused append changed something"

    def files(self) -> dict[str, int]:
        return {info.name: info.size_bytes for info in self.machine.files.iter_directory(FOLDER)}

    @rule(specs=SPECS, codec=CODECS)
    def append(self, specs: list[tuple[int, int]], codec: str) -> None:
        self.lead(specs, codec=codec)

    @rule(pid=st.sampled_from(IDEMPOTENT), specs=SPECS, start=st.sampled_from([0, 7, SEQUENCE_END - 3]))
    def append_idempotent(self, pid: int, specs: list[tuple[int, int]], start: int) -> None:
        if pid not in self.model.unknown:
            known = self.model.producers.get(pid, ModelProducer())
            sequence = self.next_sequence(known, start)
            self.lead(specs, producer_id=pid, producer_epoch=max(known.epoch, 0), base_sequence=sequence)

    @rule(pid=st.sampled_from(IDEMPOTENT), specs=SPECS, sequence=st.sampled_from([0, 0, 5]))
    def append_in_a_new_epoch(self, pid: int, specs: list[tuple[int, int]], sequence: int) -> None:
        known = self.model.producers.get(pid)
        if known is not None:
            refused = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER if sequence else None
            self.lead(specs, refused=refused, producer_id=pid, producer_epoch=known.epoch + 1, base_sequence=sequence)

    def next_sequence(self, known: ModelProducer, start: int = 0) -> int:
        if known.epoch < 0:
            return start
        return (known.batches[-1].last_sequence + 1) % SEQUENCE_END if known.batches else 0

    @rule(pid=st.sampled_from(TRANSACTIONAL), specs=SPECS, verified=st.sampled_from([True, True, True, False]))
    def append_in_a_transaction(self, pid: int, specs: list[tuple[int, int]], verified: bool) -> None:
        if pid in self.model.unknown:
            return
        known = self.model.producers.get(pid, ModelProducer())
        epoch, sequence, begins = max(known.epoch, 0), self.next_sequence(known), known.open_from is None
        guard = None
        if verified:
            guard = self.log.begin_transaction_verification(
                pid, sequence=sequence, producer_epoch=epoch, supports_epoch_bump=pid in VERSION_2
            )
            assert (guard is None) == (not begins)
        refused = KafkaError.INVALID_TXN_STATE if begins and self.verifies and not verified else None
        batch = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
        self.lead(specs, refused=refused, guard=guard, **batch)

    @rule(pid=st.sampled_from(TRANSACTIONAL), commits=st.booleans(), coordinator=st.sampled_from([0, 0, 1, -1]))
    def end_transaction(self, pid: int, commits: bool, coordinator: int) -> None:
        if pid in self.model.unknown:
            return
        known = self.model.producers.get(pid, ModelProducer())
        version = 2 if pid in VERSION_2 else 1
        epoch = max(known.epoch, 0) + (version == 2)
        coordinator_epoch = max(known.coordinator_epoch, 0) + coordinator
        if coordinator_epoch < 0:
            return
        refused = KafkaError.TRANSACTION_COORDINATOR_FENCED if coordinator_epoch < known.coordinator_epoch else None
        self.mark(pid, epoch, marker=(commits, coordinator_epoch), version=version, refused=refused)

    @rule(pid=st.sampled_from(TRANSACTIONAL), commits=st.booleans(), version=st.sampled_from([1, 2]))
    def end_with_an_old_epoch(self, pid: int, commits: bool, version: int) -> None:
        """A coordinator that was replaced, or whose answer was lost."""
        known = self.model.producers.get(pid)
        if known is None or (version == 1 and known.epoch == 0):
            return
        if version == 1:
            self.mark(pid, known.epoch - 1, (commits, 9), version=1, refused=KafkaError.INVALID_PRODUCER_EPOCH)
            return
        refused = None if known.open_from is None else KafkaError.INVALID_PRODUCER_EPOCH
        self.mark(pid, known.epoch, (commits, max(known.coordinator_epoch, 0)), version=2, refused=refused)

    def mark(self, pid: int, epoch: int, marker: tuple[bool, int], *, version: int, refused: KafkaError | None) -> None:
        self.lead(
            [(0, 0)],
            refused=refused,
            producer_id=pid,
            producer_epoch=epoch,
            transactional=True,
            marker=marker,
            version=version,
        )

    @rule(pid=st.sampled_from(IDEMPOTENT + TRANSACTIONAL), back=st.integers(1, 5))
    def append_a_duplicate(self, pid: int, back: int) -> None:
        """A producer whose answer was lost sends again: it gets the offsets of the first time."""
        known = self.model.producers.get(pid)
        if known is None or len(known.batches) < back:
            return
        first = known.batches[-back]
        specs = [(0, 3)] * len(first.records)
        sent = self.stored(
            specs,
            sent=True,
            producer_id=pid,
            producer_epoch=first.producer_epoch,
            base_sequence=first.base_sequence,
            transactional=first.transactional,
        )
        before = self.log.offsets
        is_forgotten = len(known.batches) - back < known.doubtful
        forgotten: tuple[KafkaError, ...] = ()
        if is_forgotten:
            forgotten = (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.INVALID_TXN_STATE)
        try:
            info = self.log.append_as_leader(bytearray(sent.data), leader_epoch=self.epoch)
        except AppendRefusedError as error:
            if error.error not in forgotten:
                raise
        else:
            assert (info.first_offset, info.last_offset) == (first.base_offset, first.last_offset)
            assert (info.is_duplicate, info.size_bytes) == (True, 0)
        assert self.log.offsets == before

    @rule(pid=st.sampled_from(IDEMPOTENT), specs=SPECS, ahead=st.integers(1, 3), fenced=st.booleans())
    def append_a_wrong_sequence_or_epoch(
        self, pid: int, specs: list[tuple[int, int]], ahead: int, fenced: bool
    ) -> None:
        known = self.model.producers.get(pid)
        if known is None or (fenced and known.epoch == 0):
            return
        sequence = (self.next_sequence(known) + ahead) % SEQUENCE_END
        if sequence == 0 and known.batches[-1].last_sequence == SEQUENCE_END - 1:
            return
        if not fenced and any(
            (batch.base_sequence, len(batch.records)) == (sequence, len(specs)) for batch in known.batches
        ):
            return
        refused = KafkaError.INVALID_PRODUCER_EPOCH if fenced else KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.lead(
            specs,
            refused=refused,
            producer_id=pid,
            producer_epoch=known.epoch - fenced,
            base_sequence=sequence,
        )

    @rule(pid=st.sampled_from(TRANSACTIONAL), specs=SPECS)
    def append_outside_of_an_open_transaction(self, pid: int, specs: list[tuple[int, int]]) -> None:
        known = self.model.producers.get(pid)
        if known is not None and known.open_from is not None and known.epoch >= 0:
            self.lead(
                specs,
                refused=KafkaError.INVALID_TXN_STATE,
                producer_id=pid,
                producer_epoch=known.epoch,
                base_sequence=self.next_sequence(known),
            )

    @rule(kind=st.sampled_from(["crc", "size", "control", "future", "base", "cut"]))
    def append_what_is_refused(self, kind: str) -> None:
        specs = [(0, 900)] if kind == "size" else [(-4_000_000, 3)] if kind == "future" else [(0, 3)]
        marker = (True, 1) if kind == "control" else None
        data = bytearray(self.stored(specs, sent=True, marker=marker).data)
        if kind == "crc":
            data[-1] ^= 1
        if kind == "base":
            data[7] = 1
        error = {"crc": "CORRUPT_MESSAGE", "size": "MESSAGE_TOO_LARGE", "future": "INVALID_TIMESTAMP"}
        if kind == "future" and self.config.message_timestamp_type == "LogAppendTime":
            return
        if kind == "cut":
            before = self.log.offsets
            info = self.log.append_as_leader(data[:-1], leader_epoch=self.epoch)
            assert (info.first_offset, info.size_bytes, self.log.offsets) == (-1, 0, before)
            return
        self.expect_refusal(data, KafkaError[error.get(kind, "INVALID_RECORD")], {"leader_epoch": self.epoch})

    # ---- appending as follower

    @rule(
        shapes=st.lists(
            st.tuples(st.integers(0, 3), SPECS, st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=3
        ),
        too_new=st.booleans(),
        tail=st.binary(max_size=30),
    )
    def follow(self, shapes: list[Any], too_new: bool, tail: bytes) -> None:
        """What another leader sent: gaps, offsets that compaction removed, later epochs, a batch that is cut off; more
        than a segment, now and then.
        """
        base, taken = self.model.end, []
        for gap, specs, trailing, epochs in shapes:
            self.epoch += epochs
            base += gap
            builder = RecordBatchBuilder(base, leader_epoch=self.epoch)
            records = []
            for at, (age_ms, size) in enumerate(specs):
                builder.append(None, b"f" * size, timestamp_ms=self.now_ms - age_ms)
                records.append(ModelRecord(base + at, self.now_ms - age_ms))
            last = base + len(specs) - 1 + trailing
            taken.append(ModelBatch(builder.build(last_offset=last), base, last, self.epoch, tuple(records)))
            base = last + 1
        data = b"".join(batch.data for batch in taken)
        if too_new:
            late = RecordBatchBuilder(base, leader_epoch=self.epoch + 1)
            late.append(None, None, timestamp_ms=self.now_ms)
            data += late.build()
        data += taken[0].data[: len(tail)]
        info = self.log.append_as_follower(data, leader_epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (taken[0].base_offset, taken[-1].last_offset)
        assert info.size_bytes == sum(batch.size for batch in taken)
        self.model.append(taken, **self.rolls)

    @precondition(lambda self: self.model.end > self.model.log_start)
    @rule(specs=SPECS, back=st.integers(1, 5))
    def follow_below_the_end(self, specs: list[tuple[int, int]], back: int) -> None:
        builder = RecordBatchBuilder(max(0, self.model.end - back), leader_epoch=self.epoch)
        for _ in range(back + 1):
            builder.append(None, None, timestamp_ms=self.now_ms)
        before = self.log.offsets, self.files()
        with pytest.raises(AppendRefusedError) as caught:
            self.log.append_as_follower(builder.build(), leader_epoch=self.epoch)
        assert caught.value.error is KafkaError.UNKNOWN_SERVER_ERROR
        assert (self.log.offsets, self.files()) == before
