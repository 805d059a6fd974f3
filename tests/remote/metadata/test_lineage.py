"""Lineage decides what a reader sees after failovers and unclean elections; the KIP's scripts are its answers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.metadata.lineage import (
    Gap,
    Lineage,
    merged_epochs,
    newest_segment,
    resolve_lineage,
    resolve_single_log,
)


@dataclass(frozen=True)
class Stored:
    metadata: RemoteLogSegmentMetadata

    @property
    def name(self) -> str:
        return NAMES[self.metadata.remote_log_segment_id.id]


NAMES: dict[Uuid, str] = {}
PARTITION = TopicIdPartition(Uuid(bytes(15) + b"t"), "orders", 0)


def segment(name: str, start: int, end: int, epochs: dict[int, int], uploaded_ms: int = 0) -> Stored:
    """A segment of the scripts; ids rise with the names."""
    segment_id = Uuid(name.encode().rjust(16, b"-"))
    NAMES[segment_id] = name
    return Stored(
        RemoteLogSegmentMetadata(
            RemoteLogSegmentId(PARTITION, segment_id),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=-1,
            broker_id=1,
            event_timestamp_ms=uploaded_ms,
            segment_size_in_bytes=100,
            segment_leader_epochs=epochs,
        )
    )


def spans_of(lineage: Lineage) -> list[tuple[str, int, int]]:
    return [(s.segment.name, s.first_offset, s.end_offset_exclusive) for s in lineage.spans]


def spans(segments: list[Stored], checkpoint: dict[int, int] | None) -> list[tuple[str, int, int]]:
    return spans_of(resolve_lineage(segments, None if checkpoint is None else LeaderEpochs(sorted(checkpoint.items()))))


def test_script_1_new_follower() -> None:
    """A tier without any failover would lose or repeat records."""
    segments = [segment("u1", 0, 2, {0: 0}), segment("u2", 3, 5, {1: 3, 2: 5})]
    assert spans(segments, {0: 0, 1: 3, 2: 5}) == [("u1", 0, 3), ("u2", 3, 6)]


def test_script_2_out_of_sync_follower() -> None:
    """A segment that begins inside an epoch would be dropped for its clipped epoch start."""
    segments = [
        segment("u3", 6, 8, {2: 6, 3: 7}),
        segment("u1", 0, 2, {0: 0}),
        segment("u2", 3, 5, {1: 3, 2: 5}),
    ]
    assert spans(segments, {0: 0, 1: 3, 2: 5, 3: 7}) == [("u1", 0, 3), ("u2", 3, 6), ("u3", 6, 9)]


def test_script_3_multiple_hard_failures() -> None:
    """The user would read m1, which the cluster lost, instead of m3 at offset 1."""
    segments = [segment("u1", 0, 1, {0: 0}), segment("u2", 1, 1, {1: 1})]
    assert spans(segments, {0: 0, 1: 1}) == [("u1", 0, 1), ("u2", 1, 2)]


def test_script_4_unclean_election_with_truncation() -> None:
    """The user would read m1 and m2 of a branch that an unclean election cut off."""
    segments = [segment("u1", 0, 2, {0: 0}), segment("u2", 0, 1, {0: 0, 1: 1})]
    lineage = resolve_lineage(segments, LeaderEpochs([(0, 0), (1, 1)]))
    assert spans_of(lineage) == [("u2", 0, 2)]
    assert [s.name for s in lineage.unreferenced] == ["u1"]


def test_script_5_divergence_in_remote_storage() -> None:
    """The user would miss m2 and m3 (as real Kafka does), or read m4 and m5 of the dead epoch 1."""
    segments = [
        segment("u1", 0, 3, {0: 0}),
        segment("u2", 0, 3, {0: 0, 1: 2}),
        segment("u3", 4, 5, {0: 4, 2: 5}),
    ]
    lineage = resolve_lineage(segments, LeaderEpochs([(0, 0), (2, 5)]))
    assert spans_of(lineage) == [
        ("u1", 0, 4),
        ("u3", 4, 6),
    ]
    assert [s.name for s in lineage.unreferenced] == ["u2"]
    assert lineage.epochs == LeaderEpochs([(0, 0), (2, 5)])


def test_script_f_follower_becomes_leader() -> None:
    """Segments of two leaders overlap: offset 4 would be read twice."""
    segments = [
        segment("u1", 0, 2, {0: 0}),
        segment("u2", 3, 4, {1: 3}),
        segment("u3", 4, 6, {1: 4, 2: 6}),
    ]
    assert spans(segments, {0: 0, 1: 3, 2: 6}) == [("u1", 0, 3), ("u2", 3, 5), ("u3", 5, 7)]


def test_duplicates_after_a_failover_appear_once() -> None:
    """A segment uploaded twice would give each record twice; the later upload is the one Kafka refers to."""
    segments = [segment("a", 0, 9, {0: 0}, 100), segment("b", 0, 9, {0: 0}, 200), segment("c", 0, 9, {0: 0}, 200)]
    lineage = resolve_lineage(segments, LeaderEpochs([(0, 0)]))
    assert [s.segment.name for s in lineage.spans] == ["c"]
    assert {s.name for s in lineage.unreferenced} == {"a", "b"}


def test_a_tail_beyond_the_next_epoch_is_cut_and_the_rest_kept() -> None:
    """Dropping the whole segment, as Kafka's lineage test does, would lose the records before the fork."""
    segments = [segment("u1", 0, 9, {0: 0}), segment("u2", 5, 12, {1: 5})]
    assert spans(segments, {0: 0, 1: 5}) == [("u1", 0, 5), ("u2", 5, 13)]


def test_gap_between_spans_is_reported_but_not_before_the_first() -> None:
    """A lost manifest in the middle would shorten the result in silence."""
    segments = [segment("u2", 10, 19, {0: 10}), segment("u4", 30, 39, {0: 30})]
    lineage = resolve_lineage(segments, LeaderEpochs([(0, 0)]))
    assert lineage.gaps == (Gap(20, 30),)
    assert (lineage.earliest_offset, lineage.end_offset_exclusive) == (10, 40)


def test_newest_is_decided_by_epoch_before_offset() -> None:
    """A long dead branch of an older epoch would decide over the living one."""
    dead, living = segment("dead", 0, 900, {0: 0}), segment("living", 0, 5, {0: 0, 1: 3})
    assert newest_segment([dead, living]) is living
    assert spans([dead, living], {0: 0, 1: 3}) == [("living", 0, 6)]


def test_without_a_checkpoint_the_segments_epochs_stand_in() -> None:
    """A bucket with one damaged checkpoint would be unreadable."""
    segments = [segment("u1", 0, 3, {0: 0}), segment("u2", 2, 5, {1: 2})]
    assert merged_epochs(s.metadata for s in segments) == LeaderEpochs([(0, 0), (1, 2)])
    assert spans(segments, None) == [("u1", 0, 2), ("u2", 2, 6)]


def test_a_later_epoch_cuts_those_that_do_not_begin_before_it() -> None:
    """The stand-in of a damaged checkpoint would itself be refused: its offsets would not rise."""
    segments = [segment("u1", 4, 9, {0: 4, 1: 6, 2: 8}), segment("u2", 0, 5, {0: 0}), segment("u3", 6, 7, {3: 6})]
    assert merged_epochs(s.metadata for s in segments) == LeaderEpochs([(0, 0), (3, 6)])


def test_a_single_log_counts_whole_whatever_its_epochs() -> None:
    """A broker's disk has no branches, and logs of the old formats know no epochs; they would read as empty."""
    segments = [segment("a", 0, 9, {0: 0}), segment("b", 10, 12, {0: 10})]
    assert spans_of(resolve_single_log(segments, LeaderEpochs())) == [("a", 0, 10), ("b", 10, 13)]
    assert spans_of(resolve_single_log(segments, LeaderEpochs([(3, 11)]))) == [("a", 0, 10), ("b", 10, 13)]


@pytest.mark.parametrize("checkpoint", [[(0, 0)], [(7, 0)], []])
def test_a_checkpoint_that_cannot_be_right_is_refused(checkpoint: list[tuple[int, int]]) -> None:
    """A checkpoint of another partition would hide every record."""
    with pytest.raises(CorruptIndexError):
        resolve_lineage([segment("u1", 0, 9, {1: 0})], LeaderEpochs(checkpoint))


@st.composite
def branches(draw: st.DrawFn) -> tuple[list[Stored], list[tuple[int, int]], int]:
    """A log with unclean elections: each epoch forks somewhere in the log before; each leader uploads as it likes."""
    epochs: list[tuple[int, int]] = [(0, 0)]
    end = draw(st.integers(1, 12))
    segments: list[Stored] = []
    number = 0
    for epoch in range(draw(st.integers(0, 4)) + 1):
        if epoch:
            fork = draw(st.integers(0, end))
            epochs = [pair for pair in epochs if pair[1] < fork] + [(epoch, fork)]
            end = fork + draw(st.integers(1, 8))
        position = draw(st.integers(0, end - 1))
        while position < end:
            last = min(end, position + draw(st.integers(1, 6))) - 1
            starts = [s for _, s in epochs[1:]] + [end]
            own = {
                e: max(s, position) for (e, s), nxt in zip(epochs, starts, strict=True) if s <= last and nxt > position
            }
            number += 1
            segments.append(segment(f"u{number}", position, last, own, draw(st.integers(0, 3))))
            position = last + 1
    return segments, epochs, end


@given(branches())
def test_every_offset_of_the_lineage_comes_once_from_its_own_epoch(
    case: tuple[list[Stored], list[tuple[int, int]], int],
) -> None:
    """Some history of elections would lose, repeat or falsify a record."""
    segments, epochs, end = case
    lineage = resolve_lineage(segments, LeaderEpochs(epochs))

    def epoch_in(pairs: list[tuple[int, int]], offset: int) -> int:
        return max(epoch for epoch, start in pairs if start <= offset)

    held = {
        (epoch_in(sorted(s.metadata.segment_leader_epochs.items()), offset), offset)
        for s in segments
        for offset in range(s.metadata.start_offset, s.metadata.end_offset + 1)
    }
    read = [
        (epoch_in(sorted(span.segment.metadata.segment_leader_epochs.items()), offset), offset)
        for span in lineage.spans
        for offset in range(span.first_offset, span.end_offset_exclusive)
    ]
    wanted = [(epoch_in(epochs, o), o) for o in range(end) if (epoch_in(epochs, o), o) in held]
    assert read == wanted
