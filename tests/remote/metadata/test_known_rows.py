"""Lineages out of columns: the same as of the values, or none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.known_rows import KnownRows
from tierlog.remote.metadata.lineage import merged_epochs, newest_segment, resolve_lineage
from tierlog.remote.metadata.listed_spans import ListedSpans, SegmentOrigin
from tierlog.remote.metadata.segment_table import SegmentTable

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"t"), "orders", 3)
ORIGIN = SegmentOrigin(PARTITION, "aiven", "there/")
STATES = [RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * 8 + [
    RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
]


@st.composite
def segments(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    """Segments of a log, one behind another as a rule, with epochs that rise, and some of another leader."""
    found: list[RemoteLogSegmentMetadata] = []
    start, epoch = draw(st.integers(0, 50)), draw(st.integers(0, 3))
    for number in range(draw(st.integers(1, 12))):
        end = start + draw(st.integers(0, 9))
        epochs = {epoch: start}
        while draw(st.integers(0, 3)) == 0 and max(epochs.values()) < end:
            epoch += draw(st.integers(1, 2))
            epochs[epoch] = draw(st.integers(max(epochs.values()) + 1, end))
        found.append(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(PARTITION, Uuid(draw(st.binary(min_size=15, max_size=15)) + bytes([number]))),
                start_offset=start,
                end_offset=end,
                max_timestamp_ms=draw(st.integers(-1, 100)),
                broker_id=draw(st.integers(0, 5)),
                event_timestamp_ms=draw(st.integers(0, 3)),
                segment_size_in_bytes=draw(st.integers(1, 1000)),
                segment_leader_epochs=epochs,
                custom_metadata=draw(st.sampled_from([None, None, None, b"", b"abc"])),
                state=draw(st.sampled_from(STATES)),
                txn_idx_empty=draw(st.booleans()),
            )
        )
        start = end + 1 + draw(st.sampled_from([0, 0, 0, 0, 0, 4, -3]))
        start = max(start, 0)
        if draw(st.integers(0, 5)) == 0:
            epoch += 1
    return found


@given(segments())
def test_as_resolved_by_values(given_segments: list[RemoteLogSegmentMetadata]) -> None:
    """A plan by metadata would read other records than a plan by the bucket's listing."""
    with SegmentTable() as table:
        table.assign(PARTITION)
        for metadata in given_segments:
            table.put(metadata)
        readable = [each for each in given_segments if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        rows = KnownRows.of_table(table, PARTITION, has_footers=False)
        assert (rows is None) == (not readable)
        if rows is None:
            return
        values = [ORIGIN.segment(each, last_modified_ms=each.event_timestamp_ms) for each in readable]
        newest = rows.newest_segment(ORIGIN)
        if newest is None:
            return
        assert newest == newest_segment(values)
        epochs = merged_epochs(readable)
        for checkpoint in (epochs, LeaderEpochs(epochs.entries[1:])):
            if checkpoint.find_entry(max(newest.metadata.segment_leader_epochs)) is None:
                assert rows.lineage(checkpoint, newest) is None
                continue
            expected = resolve_lineage(values, checkpoint)
            found = rows.lineage(checkpoint, newest)
            if found is None:
                continue
            assert (list(found.spans), found.gaps) == (list(expected.spans), expected.gaps)
            assert found.spans == ListedSpans.of(expected.spans, ORIGIN)


def test_a_log_without_overlaps_needs_no_values() -> None:
    """Else a plan over a million segments makes millions of objects."""
    with SegmentTable() as table:
        table.assign(PARTITION)
        for number in range(100):
            start = 10 * number
            epochs = {number // 30: start} | ({number // 30 + 1: start + 5} if number % 30 == 29 else {})
            table.put(
                RemoteLogSegmentMetadata(
                    RemoteLogSegmentId(PARTITION, Uuid((number + 1).to_bytes(16, "big"))),
                    start_offset=start,
                    end_offset=start + 9,
                    max_timestamp_ms=number,
                    broker_id=1,
                    event_timestamp_ms=number,
                    segment_size_in_bytes=100,
                    segment_leader_epochs=epochs,
                    state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                )
            )
        rows = KnownRows.of_table(table, PARTITION, has_footers=False)
        assert rows is not None
        newest = rows.newest_segment(ORIGIN)
        assert newest is not None
        assert newest.start_offset == 990
        lineage = rows.lineage(LeaderEpochs([(0, 0), (1, 295), (2, 595), (3, 895)]), newest)
        assert lineage is not None
        assert isinstance(lineage.spans, ListedSpans)
        assert len(lineage.spans) == 100
        assert not lineage.gaps
        assert not lineage.spans.have_footers
