"""Any life of any segments, against rules over dicts: a difference is a segment missed by a reader, or one too many."""

from __future__ import annotations

import numpy as np
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.remote.metadata.table.models import KafkaModel, Model, spans_of
from tests.remote.metadata.table.segments import ORDERS, run_of, segment, segment_id, update
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    TopicIdPartition,
)
from tierlog.remote.metadata.segment_table import SegmentTable

PARTITIONS = [ORDERS, TopicIdPartition(ORDERS.topic_id, ORDERS.topic, 4)]
EPOCHS = range(5)
OFFSETS = range(0, 45, 2)

Event = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate


@strategies.composite
def spans(draw: strategies.DrawFn) -> tuple[int, int, dict[int, int]]:
    start = draw(strategies.integers(0, 30))
    end = start + draw(strategies.integers(0, 12))
    epochs = sorted(draw(strategies.sets(strategies.integers(0, 4), min_size=1, max_size=3)))
    inner = strategies.integers(start, end)
    starts = [start, *sorted(draw(strategies.lists(inner, min_size=len(epochs) - 1, max_size=len(epochs) - 1)))]
    return start, end, dict(zip(epochs, starts, strict=True))


class TableMachine(RuleBasedStateMachine):
    """Events one by one or in runs; the same questions of the table and of the model after each step."""

    as_kafka = False

    @initialize()
    def begin(self) -> None:
        self.table = SegmentTable(as_kafka=self.as_kafka)
        self.models: dict[TopicIdPartition, Model] = {each: self.new_model() for each in PARTITIONS}
        self.shapes: dict[tuple[int, TopicIdPartition], tuple[int, int, dict[int, int]]] = {}
        self.listed_at: dict[tuple[TopicIdPartition, int], frozenset[RemoteLogSegmentMetadata]] = {}
        self.offset = 0
        for each in PARTITIONS:
            self.table.assign(each)

    def new_model(self) -> Model:
        return KafkaModel() if self.as_kafka else Model()

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()

    def event(self, draw: strategies.DrawFn) -> Event:
        number, partition = draw(strategies.integers(0, 9)), draw(strategies.sampled_from(PARTITIONS))
        custom = draw(strategies.sampled_from([None, b"", b"abc", b"x" * 100]))
        state = draw(strategies.sampled_from(RemoteLogSegmentState))
        if draw(strategies.integers(0, 9)) < 6:
            return update(number, state, partition=partition, custom=custom)
        shape = draw(spans())
        if self.as_kafka:  # a second start with other epochs leaves the first one's behind in Kafka: nobody does that
            shape = self.shapes.setdefault((number, partition), shape)
        start, end, epochs = shape
        flag, size = draw(strategies.booleans()), draw(strategies.integers(0, 1000))
        kind = state if draw(strategies.integers(0, 9)) == 0 else RemoteLogSegmentState.COPY_SEGMENT_STARTED
        return segment(
            number, start, end, epochs, partition=partition, custom=custom, txn_idx_empty=flag, size=size, state=kind
        )

    @rule(data=strategies.data(), count=strategies.integers(1, 30))
    def apply_run(self, data: strategies.DataObject, count: int) -> None:
        events = [self.event(data.draw) for _ in range(count)]
        taken = [self.models[each.remote_log_segment_id.topic_id_partition].apply(each) for each in events]
        applied = self.table.apply(run_of(events, first=self.offset))
        assert applied.error is None
        assert (applied.applied, applied.refused_count) == (taken.count(True), taken.count(False))
        assert [each.offset - self.offset for each in applied.refused] == [
            at for at, was_taken in enumerate(taken) if not was_taken
        ]
        self.offset += count

    @rule(data=strategies.data())
    def apply_record(self, data: strategies.DataObject) -> None:
        event = self.event(data.draw)
        taken = self.models[event.remote_log_segment_id.topic_id_partition].apply(event)
        try:
            self.table.apply_record(event)
        except (InvalidTransitionError, RemoteResourceNotFoundException):
            assert not taken
        else:
            assert taken

    @precondition(lambda self: self.offset > 100)
    @rule(partition=strategies.sampled_from(PARTITIONS))
    def forget(self, partition: TopicIdPartition) -> None:
        self.table.unassign(partition)
        self.table.assign(partition)
        self.models[partition] = self.new_model()

    @invariant()
    def has_another_version_after_each_change(self) -> None:
        """A reader that listed the segments at a version, and finds it again, does not list them again."""
        for partition, model in self.models.items():
            listed = frozenset(model.segments.values())
            assert self.listed_at.setdefault((partition, self.table.version(partition)), listed) == listed

    @invariant()
    def has_the_same_answers(self) -> None:
        for partition, model in self.models.items():
            assert {each.remote_log_segment_id: each for each in self.table.list(partition)} == model.segments
            for epoch in EPOCHS:
                self.check_epoch(partition, model, epoch)
            for number in range(10):
                found = self.table.get(segment_id(number, partition))
                assert found == model.segments.get(segment_id(number, partition))
        count = sum(len(model.segments) for model in self.models.values())
        assert self.table.figures.segments == count

    def check_epoch(self, partition: TopicIdPartition, model: Model, epoch: int) -> None:
        listed = list(self.table.list(partition, epoch))
        starts = [each.start_offset for each in listed]
        assert starts == sorted(starts)
        assert len(listed) == len(set(listed))
        assert set(listed) == model.list(epoch)
        assert self.table.columns(partition, epoch).segment_id.tobytes() == b"".join(
            each.remote_log_segment_id.id.raw for each in listed
        )
        assert self.table.size_in_bytes(partition, epoch) == sum(each.segment_size_in_bytes for each in listed)
        # An epoch without offsets at the very beginning reaches -1 in Kafka: none, in other words.
        highest = model.highest.get(epoch, -1)
        assert self.table.highest_offset(partition, epoch) == (None if highest < 0 else highest)
        answered, many = self.table.find_many(partition, np.full(len(OFFSETS), epoch), np.array(OFFSETS))
        for at, offset in enumerate(OFFSETS):
            found, expected = self.table.find(partition, epoch, offset), model.find(epoch, offset)
            assert answered[at] == (found is not None)
            if expected is None or found is None:
                assert found is expected
                continue
            if found != expected:  # two that reach equally far
                assert not self.as_kafka
                ends = [end for each in (found, expected) for of, _, end in spans_of(each) if of == epoch]
                assert ends[0] == ends[1]
                assert found == model.segments[found.remote_log_segment_id]
            assert many.segment_id[at].tobytes() == found.remote_log_segment_id.id.raw
        self.check_transaction_indexes(partition, epoch)

    def check_transaction_indexes(self, partition: TopicIdPartition, epoch: int) -> None:
        for offset in range(0, 45, 9):
            at, expected = offset, None
            while (found := self.table.find(partition, epoch, at)) is not None:
                if not found.txn_idx_empty:
                    expected = found
                    break
                at = found.end_offset + 1
            assert self.table.next_with_txn_index(partition, epoch, offset) == expected


class KafkaTableMachine(TableMachine):
    as_kafka = True


class TestTable(TableMachine.TestCase):  # type: ignore[misc]
    """By the KIP's rules."""

    settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


class TestTableAsKafka(KafkaTableMachine.TestCase):  # type: ignore[misc]
    """By Kafka's."""

    settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
