"""What a log of ours takes and refuses, beside Kafka's LogValidator and ProducerStateManager over the same bytes."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.line_process import LineProcess, kafka_peer
from tierlog._native.appends import LeaderCheck, Refusal, find_marker
from tierlog._native.checksums import crc32c
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.producers.producer_appends import AppendOrigin, ProducerBatch
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType

pytestmark = pytest.mark.interop

NOW = 1_700_000_000_000
BATCHES, LOGS = 3000, 300
CODECS = ["none", "none", "gzip", "snappy", "lz4", "zstd"]
#: Position and size of header fields that are damaged, with a right checksum.
FIELDS = [(23, 4), (57, 4), (27, 8), (35, 8), (53, 4), (43, 8)]
#: Where Kafka stores, or answers otherwise: a record that it does not take apart, a stream that it reads bit by bit,
#: offsets of records (see tierlog/log_append.h).
DIFFERING = {"record", "compressed", "record_offsets"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    with kafka_peer(tmp_path_factory.mktemp("classes"), "LogRules") as peer:
        yield peer


def any_batch(rng: random.Random) -> bytearray:
    """A producer's batch, every other one damaged somewhere behind its checksum."""
    is_control, has_id = rng.random() < 0.08, rng.random() < 0.4
    builder = RecordBatchBuilder(
        0,
        codec="none" if is_control else rng.choice(CODECS),
        producer_id=7 if has_id else -1,
        producer_epoch=0 if has_id else -1,
        base_sequence=rng.choice([-1, 0, 5]) if has_id else -1,
        transactional=rng.random() < 0.3,
        control=is_control,
        log_append_time_ms=rng.choice([None] * 5 + [NOW, NOW + 9, -1]),
        delete_horizon_ms=rng.choice([None] * 9 + [NOW]),
    )
    for _ in range(rng.randint(1, 6)):
        builder.append(
            rng.choice([None, b"", b"key", b"k" * 200]),
            rng.choice([None, b"", b"v" * rng.randint(1, 300)]),
            timestamp_ms=NOW + rng.choice([-11, -10, 0, 1, 5, 6, -NOW - 1, -NOW]),
            headers=rng.choice([(), (("h", None),), (("a", b"x"), ("a", b""))]),
        )
    batch = bytearray(builder.build())
    if rng.random() < 0.25:
        at, size = rng.choice(FIELDS)
        value = rng.choice([0, 1, 2, 3, 2**64 - 1, 2**31 - 1, 2**31, NOW]) & (1 << 8 * size) - 1
        batch[at : at + size] = value.to_bytes(size, "big")
    if rng.random() < 0.25:
        batch[rng.randrange(61, len(batch))] = rng.choice([0, 1, 2, 0xFF, 0x7F, rng.randrange(256)])
    batch[17:21] = crc32c(memoryview(bytes(batch))[21:]).to_bytes(4, "big")
    return batch


def test_leaders_take_the_same_batches(kafka: LineProcess) -> None:
    """Else a producer that Kafka serves is refused, or a log of ours holds what Kafka would never have written."""
    rng = random.Random(20_261_123)
    seen: Counter[str] = Counter()
    for _ in range(BATCHES):
        batch = any_batch(rng)
        compacted, append_time = rng.random() < 0.3, rng.random() < 0.3
        before, after = rng.choice([10, 2**63 - 1]), rng.choice([5, 3_600_000])
        rules = (int(compacted), int(append_time), before, after, NOW)
        told = kafka.ask("validate", batch.hex(), *rules, 100, 5, AppendOrigin.CLIENT.name).split(" ")
        check = LeaderCheck(
            compacted=compacted,
            log_append_time=append_time,
            timestamp_before_max_ms=before,
            timestamp_after_max_ms=after,
        )
        given = bytes(batch)
        ours = check.assign(batch, first_offset=100, leader_epoch=5, now_ms=NOW)
        assert ours is not None
        if isinstance(ours, Refusal):
            seen[ours.rule] += 1
            if ours.rule in DIFFERING:
                continue
            records = ",".join(str(index) for index, _, _ in ours.record_errors)
            assert told == ["refused", str(ours.error_code), records], (ours.rule, given.hex())
        else:
            seen["taken"] += 1
            assert told == ["taken", str(ours.max_timestamp), str(ours.last_offset + 1), batch.hex()], given.hex()
    assert all(seen[rule] > 20 for rule in ("taken", "records", "timestamps", "sequence", "count_range", "control"))
    assert sum(seen[rule] for rule in DIFFERING) < BATCHES // 5


def told_of(state: ProducerState) -> str:
    def number(offset: int | None) -> int:
        return -1 if offset is None else offset

    words = [number(state.first_unstable_offset), number(state.first_undecided_offset)]
    return (
        " | "
        + " ".join(map(str, words))
        + "".join(
            f" {p.producer_id}:{p.producer_epoch}:{p.last_sequence}:{p.last_offset}:{p.offset_delta}:{p.timestamp_ms}"
            f":{p.coordinator_epoch}:{p.transaction_first_offset}:{len(state.producers[p.producer_id].batches)}"
            for p in sorted(state.snapshot(), key=lambda p: p.producer_id)
        )
    )


def any_marker(rng: random.Random, producer: int, epoch: int, offset: int) -> tuple[bytes, ProducerBatch]:
    epoch = min(epoch + rng.choice([0, 0, 1]), 2**15 - 1)
    data = build_end_transaction_marker(
        offset,
        rng.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT]),
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=rng.choice([0, 1, 1, 1, 2]),
        timestamp_ms=NOW + offset,
    )
    time = NOW + offset
    return data, ProducerBatch(producer, epoch, -1, offset, offset, time, True, True, find_marker(data))


def any_data(
    rng: random.Random, state: ProducerState, producer: int, epoch: int, offset: int, *, sequences: bool
) -> tuple[bytes, ProducerBatch]:
    known, count = state.producers.get(producer), rng.randint(1, 3)
    following = ((known.last_sequence if known else -1) + 1) % 2**31
    sequence = rng.choice([following] * 6 + [0, (following + 1) % 2**31, max(following - 1, 0), 2**31 - 2, 5])
    if known and known.batches and rng.random() < 0.2:
        again = rng.choice(known.batches)
        sequence, count = again.first_sequence, again.offset_delta + 1
    if producer < 0 or not sequences:
        sequence = -1
    in_transaction = known is not None and known.current_txn_first_offset is not None and rng.random() < 0.9
    transactional = producer >= 0 and (in_transaction or rng.random() < 0.5)
    epoch = epoch if producer >= 0 else -1
    builder = RecordBatchBuilder(
        offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for i in range(count):
        builder.append(b"k", b"v", timestamp_ms=NOW + offset + i)
    last = offset + count - 1
    return builder.build(), ProducerBatch(producer, epoch, sequence, offset, last, NOW + last, transactional)


def one_step(rng: random.Random, kafka: LineProcess, state: ProducerState) -> tuple[str, str]:
    """(Kafka's answer, ours) to a random append."""
    origin = rng.choice([AppendOrigin.CLIENT] * 5 + [AppendOrigin.COORDINATOR] * 2 + [AppendOrigin.REPLICATION] * 2)
    version, offset, data, batches = rng.choice([0, 1, 2]), state.end_offset, b"", []
    for _ in range(rng.randint(1, 4) if origin is AppendOrigin.REPLICATION else 1):
        producer = rng.choice([-1, 1, 2, 3])
        known = state.producers.get(producer)
        epoch = max(known.producer_epoch, 0) if known else 0
        if rng.random() < 0.3:
            epoch = rng.choice([0, 0, 0, 1, 1, 2, 5, 2**15 - 1])
        if producer >= 0 and origin is not AppendOrigin.CLIENT and rng.random() < 0.6:
            piece, batch = any_marker(rng, producer, epoch, offset)
        else:
            sequences = origin is not AppendOrigin.COORDINATOR
            piece, batch = any_data(rng, state, producer, epoch, offset, sequences=sequences)
        data += piece
        batches.append(batch)
        offset = batch.last_offset + 1
    told = kafka.ask("append", origin.name, version, data.hex())
    try:
        prepared = state.prepare(batches, origin=origin, transaction_version=version)
    except AppendRefusedError as refused:
        return told, f"refused {int(refused.error)}{told_of(state)}"
    if prepared.duplicate is not None:
        return told, f"duplicate {prepared.duplicate.first_offset} {prepared.duplicate.last_offset}"
    aborted = state.apply(prepared, end_offset=offset)
    return with_least_stable(told), with_least_stable(
        "taken" + "".join(" {}:{}:{}:{}".format(*entry) for entry in aborted) + told_of(state)
    )


def with_least_stable(answer: str) -> str:
    """An answer whose aborted transactions have no stable offset behind the one behind their markers: where an append
    has the producer's next transaction, too, Kafka passes over that one, and ours does not.
    """
    if not answer.startswith("taken"):
        return answer
    taken, state = answer.split(" | ", 1)
    words, entries = taken.split(" ")[:1], [list(map(int, word.split(":"))) for word in taken.split(" ")[1:]]
    words += [f"{producer}:{first}:{last}:{min(stable, last + 1)}" for producer, first, last, stable in entries]
    return " | ".join([" ".join(words), state])


def test_producers_and_transactions_go_the_same_way(kafka: LineProcess) -> None:
    """Else a duplicate is stored, a zombie writes on, or a reader of committed records ends elsewhere than Kafka's."""
    rng = random.Random(20_261_123)
    seen: Counter[str] = Counter()
    for _ in range(LOGS):
        kafka.ask("new")
        state, watermark = ProducerState(), 0
        for _ in range(rng.randint(1, 60)):
            if rng.random() < 0.15:
                watermark = max(watermark, state.end_offset - rng.randint(0, 6))
                state.on_high_watermark(watermark)
                assert kafka.ask("watermark", watermark) == f"taken{told_of(state)}"
                continue
            told, ours = one_step(rng, kafka, state)
            assert told == ours
            seen[ours.split(" ")[0] + (ours.split(" ")[1] if ours.startswith("refused") else "")] += 1
    assert all(seen[kind] > 20 for kind in ("taken", "duplicate", "refused45", "refused47", "refused48", "refused52"))
