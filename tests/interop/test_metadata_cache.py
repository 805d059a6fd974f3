"""Histories of segments beside Kafka's own RemoteLogMetadataCache: what each finds, lists and has as highest offset.

By its rules ours answers the same, all of it; by the KIP's as the model says, and it finds whatever Kafka's finds.
``TIERLOG_HISTORIES`` is how many of each shape are tried, ``TIERLOG_SEED`` the first one's seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.remote.metadata.table.models import ALLOWED, Model, spans_of
from tests.remote.metadata.table.segments import (
    DELETED,
    DELETING,
    FINISHED,
    ORDERS,
    STARTED,
    run_of,
    segment,
    segment_id,
    update,
)
from tests.support.line_process import LineProcess, kafka_peer
from tests.support.metadata_cluster import needs_a_broker
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import SegmentTable

pytestmark = pytest.mark.interop

HISTORIES = int(os.environ.get("TIERLOG_HISTORIES", "60"))
SEED = int(os.environ.get("TIERLOG_SEED", "1"))
EPOCHS = 9

Event = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    needs_a_broker()
    package = "org.apache.kafka.server.log.remote.metadata.storage"
    with kafka_peer(tmp_path_factory.mktemp("peer"), "MetadataTurns", package) as made:
        yield made


@dataclass
class History:
    """Events of one partition, and after which of them all is asked."""

    offsets: int
    events: list[Event]
    asked: set[int]


def history(rng: random.Random, *, malformed: bool) -> History:
    """Overlapping segments in up to four epochs each, in any order of events, some of which no life allows."""
    offsets, count = rng.choice([12, 30, 60]), rng.choice([5, 15, 40, 80])
    grid = range(0, offsets, rng.choice([1, 1, 3, 5, 7]))
    shapes: dict[int, RemoteLogSegmentMetadata] = {}
    states: dict[int, RemoteLogSegmentState | None] = {}
    events: list[Event] = []
    for _ in range(count):
        number = len(shapes) + 1 if not shapes or rng.random() < 0.35 else rng.choice([*shapes])
        if number not in shapes:
            start = rng.choice(grid)
            end = min(offsets - 1, start + rng.choice([0, 4, 9, rng.randrange(offsets), rng.randrange(offsets)]))
            shapes[number] = segment(
                number,
                start,
                end,
                _epochs(rng, start, end, offsets, malformed=malformed),
                custom=rng.choice([None, b"", bytes(130)]),
                txn_idx_empty=rng.random() < 0.6,
                size=rng.randrange(1 << 30),
            )
        known = states.get(number)
        usual = sorted(ALLOWED[known]) if rng.random() < 0.9 else [STARTED, FINISHED, DELETING, DELETED]
        # Repeats are rarer than the next step, and a delete comes late.
        state = rng.choice([*usual, *([FINISHED] * 4 if known is STARTED else usual[-1:])])
        custom = rng.choice([None, b"", b"x"])
        events.append(shapes[number] if state is STARTED else update(number, state, custom=custom))
        if state in ALLOWED[known]:
            states[number] = None if state is DELETED else state
    return History(offsets, events, {*rng.sample(range(count), 3), count - 1})


def _epochs(rng: random.Random, start: int, end: int, offsets: int, *, malformed: bool) -> dict[int, int]:
    epochs = sorted(rng.sample(range(EPOCHS - 1), rng.choice([1, 1, 1, 2, 2, 3, 4])))
    if malformed and rng.random() < 0.3:
        return dict(zip(epochs, rng.choices(range(offsets), k=len(epochs)), strict=True))
    inner = sorted(rng.choices(range(start, end + 1), k=len(epochs) - 1))
    return dict(zip(epochs, [start, *inner], strict=True))


def _text(found: RemoteLogSegmentMetadata | None) -> str:
    return "" if found is None else str(int.from_bytes(found.remote_log_segment_id.id.raw[8:], "big"))


@dataclass
class Answers:
    """What one side says behind an event."""

    segments: set[str]
    highest: list[int]
    listed: list[list[str]]
    found: list[list[str]]
    following: list[list[str]]

    @classmethod
    def of_kafka(cls, text: str) -> Answers:
        every, *epochs = text.split("|")
        parts = [epoch.split("/") for epoch in epochs]
        pairs = [[pair.split(":") for pair in found.split(";")[:-1]] for _, _, found in parts]
        return cls(
            set(every.split(",")) - {""},
            [int(highest or "-1") for highest, _, _ in parts],  # an epoch without offsets at the very beginning has -1
            [sorted(set(listed.split(",")) - {""}) for _, listed, _ in parts],
            [[found for found, _ in of] for of in pairs],
            [[following for _, following in of] for of in pairs],
        )

    @classmethod
    def of_table(cls, table: SegmentTable, offsets: int, *, following: bool) -> Answers:
        listed = [list(table.list(ORDERS, epoch)) for epoch in range(EPOCHS)]
        for of in listed:
            assert [each.start_offset for each in of] == sorted(each.start_offset for each in of)
        highest = [table.highest_offset(ORDERS, epoch) for epoch in range(EPOCHS)]
        every = range(offsets)
        return cls(
            {
                f"{_text(each)}.{each.state.value}.{each.event_timestamp_ms}."
                f"{-1 if each.custom_metadata is None else len(each.custom_metadata)}"
                for each in table.list(ORDERS)
            },
            [-1 if each is None else each for each in highest],
            [sorted(_text(each) for each in of) for of in listed],
            [[_text(table.find(ORDERS, epoch, offset)) for offset in every] for epoch in range(EPOCHS)],
            [
                [_text(table.next_with_txn_index(ORDERS, epoch, at)) if following else "" for at in every]
                for epoch in range(EPOCHS)
            ],
        )


@pytest.mark.parametrize("malformed", [False, True], ids=["sound", "malformed"])
def test_histories(peer: LineProcess, malformed: bool) -> None:
    """Brokers of both kinds read one topic: where they differ, one of them deletes what the other reads."""
    questions = 0
    for seed in range(SEED, SEED + HISTORIES):
        of = history(random.Random(f"{seed}{malformed}"), malformed=malformed)
        words = []
        for number, event in enumerate(of.events):
            words.append(encode_record(event).hex())
            if number in of.asked:
                words.append(f"?{EPOCHS},{of.offsets},{not malformed}".lower())
        told = peer.ask(*words).split(" ")
        answers = [Answers.of_kafka(answer) for word, answer in zip(words, told, strict=True) if word.startswith("?")]
        questions += (1 + (not malformed)) * len(answers) * EPOCHS * of.offsets
        _compare(of, answers, f"seed {seed}", following=not malformed)
    print(f"{HISTORIES} histories, {questions} lookups of each side")


def _compare(of: History, kafkas: list[Answers], seed: str, *, following: bool) -> None:
    model = Model()
    waiting: list[Event] = []
    with SegmentTable(as_kafka=True) as as_kafka, SegmentTable() as ours:
        for table in (as_kafka, ours):
            table.assign(ORDERS)
        for number, event in enumerate(of.events):
            model.apply(event)
            waiting.append(event)
            if number not in of.asked:
                continue
            first = number + 1 - len(waiting)
            for table in (as_kafka, ours):
                assert table.apply(run_of(waiting, first=first)).error is None, seed
            waiting = []
            kafka = kafkas.pop(0)
            assert Answers.of_table(as_kafka, of.offsets, following=following) == kafka, f"{seed}, event {number}"
            _require_the_kips(ours, model, of, kafka, f"{seed}, event {number}")


def _require_the_kips(ours: SegmentTable, model: Model, of: History, kafka: Answers, seed: str) -> None:
    """No offset is lost while a readable segment has it."""
    mine = Answers.of_table(ours, of.offsets, following=False)
    assert (mine.segments, mine.highest) == (kafka.segments, kafka.highest), seed
    for epoch in range(EPOCHS):
        assert mine.listed[epoch] == sorted(_text(each) for each in model.list(epoch)), seed
        for offset in range(of.offsets):
            found = mine.found[epoch][offset]
            assert found or not kafka.found[epoch][offset], f"{seed}: ours loses offset {offset} of epoch {epoch}"
            expected = model.find(epoch, offset)
            if expected is None or not found:
                assert (expected is None) == (not found), seed
                continue
            ends = [
                next(end for at, _, end in spans_of(each) if at == epoch)
                for each in (expected, model.segments[segment_id(int(found))])
            ]
            assert ends[0] == ends[1], f"{seed}: offset {offset} of epoch {epoch}"
