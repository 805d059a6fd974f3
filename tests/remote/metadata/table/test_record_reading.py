"""Records read by the core against the readable reader of ``record_serde``: for sound and for broken ones."""

from __future__ import annotations

from hypothesis import example, given, settings, strategies

from tests.remote.metadata.table.segments import ORDERS, STARTED, run_of, segment, update
from tierlog.errors import CorruptRecordError
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot, decode_record, encode_record
from tierlog.remote.metadata.segment_table import SegmentTable

partitions = strategies.builds(
    TopicIdPartition,
    strategies.binary(min_size=16, max_size=16).map(Uuid),
    strategies.text(min_size=1, max_size=20),
    strategies.integers(0, 2**31 - 1),
)
customs = strategies.none() | strategies.binary(max_size=200)


@strategies.composite
def records(draw: strategies.DrawFn) -> bytes:
    partition, custom = draw(partitions), draw(customs)
    kind = draw(strategies.integers(0, 2))
    if kind == 0:
        start = draw(strategies.integers(0, 2**63 - 1))
        end = draw(strategies.integers(start, 2**63 - 1))
        numbers = strategies.integers(0, 2**31 - 1)
        epochs = draw(strategies.dictionaries(numbers, strategies.integers(0, 2**63 - 1), min_size=1, max_size=5))
        empty = draw(strategies.booleans())
        return encode_record(segment(5, start, end, epochs, partition=partition, custom=custom, txn_idx_empty=empty))
    if kind == 1:
        state = draw(strategies.sampled_from(RemoteLogSegmentState))
        return encode_record(update(5, state, partition=partition, custom=custom))
    removal = draw(strategies.sampled_from(RemotePartitionDeleteState))
    return encode_record(
        RemotePartitionDeleteMetadata(
            partition, removal, event_timestamp_ms=draw(strategies.integers(0, 9)), broker_id=3
        )
    )


@strategies.composite
def broken(draw: strategies.DrawFn) -> bytes:
    value = bytearray(draw(records()))
    for _ in range(draw(strategies.integers(0, 3))):
        at = draw(strategies.integers(0, len(value)))
        what = draw(strategies.integers(0, 3))
        if what == 0:
            del value[at:]
        elif what == 1:
            value[at : at + 1] = draw(strategies.binary(min_size=1, max_size=1))
        elif what == 2:
            value[at:at] = draw(strategies.binary(min_size=1, max_size=6))
        else:
            del value[at : at + draw(strategies.integers(1, 20))]
    return bytes(value)


@settings(max_examples=300, deadline=None)
@given(broken())
@example(encode_record(segment(1, 0, 9, {5: 3, 2: 7})))
@example(encode_record(update(1, STARTED)))
@example(b"\x01\x03\x00\x020" + bytes(50))
def test_the_core_reads_what_the_reference_reads(value: bytes) -> None:
    """Two readers that disagree give a broker another truth than ``tierlog dump`` shows its operator."""
    try:
        expected, fault = decode_record(value), None
    except CorruptRecordError as error:
        # A name is decoded last of all by the core: only where nobody knows it yet.
        # A snapshot's record, which is no event, it refuses by its kind, whatever else is wrong with it.
        is_untold = "UTF-8" in error.text or value[:2] == b"\x01\x03"
        expected, fault = None, None if is_untold else error.fault
    with SegmentTable(learns_partitions=True) as table:
        run = table.apply(run_of([value], first=3))
        if expected is None or isinstance(expected, RemoteLogSegmentMetadataSnapshot):
            assert run.error is not None
            assert fault in (run.error.fault, None)
            assert run.error.base_offset == run.next_offset == 3
            return
        assert run.error is None
        if isinstance(expected, RemotePartitionDeleteMetadata):
            assert run.removals == ((3, expected),)
        elif isinstance(expected, RemoteLogSegmentMetadataUpdate):
            assert [(each.segment_id, each.state) for each in run.refused] == [
                (expected.remote_log_segment_id, expected.state)
            ]
        elif expected.state is STARTED:
            assert table.get(expected.remote_log_segment_id) == expected
        else:
            assert run.refused[0].segment_id == expected.remote_log_segment_id


@settings(max_examples=100, deadline=None)
@given(custom=customs, state=strategies.sampled_from([RemoteLogSegmentState(1), RemoteLogSegmentState(2)]))
def test_updates_replace_what_the_kip_says(custom: bytes | None, state: RemoteLogSegmentState) -> None:
    """A delete whose custom metadata was lost cannot find its objects."""
    begun = segment(1, 0, 9, custom=b"before", txn_idx_empty=True)
    change = update(1, state, custom=custom)
    with SegmentTable() as table:
        table.assign(ORDERS)
        table.apply(run_of([begun, change]))
        found: RemoteLogSegmentMetadata | None = table.get(begun.remote_log_segment_id)
        assert found == begun.create_with_updates(change)
