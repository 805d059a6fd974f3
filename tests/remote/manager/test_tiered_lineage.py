"""Segments judged by a log's epochs: the KIP's scripts by their values, and Kafka's mistakes."""

from __future__ import annotations

import pytest

from tests.support.tier_entries import an_entry, listing
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierlog.remote.manager.tiered_lineage import (
    NOTHING_COPIED,
    CopiedOffset,
    epochs_with_records,
    find_copied_offset,
    find_log_start_offset,
    is_within,
)


def epochs(entries: dict[int, int]) -> LeaderEpochs:
    return epochs_with_records(entries.items())


def highest(segments: list[RemoteLogSegmentMetadata]) -> dict[int, int]:
    """Epoch to its highest offset in any segment."""
    found: dict[int, int] = {}
    for each in segments:
        own = epochs_with_records(sorted(each.segment_leader_epochs.items()))
        for entry in own:
            behind = own.find_next(entry.epoch)
            end = each.end_offset if behind is None else behind.start_offset - 1
            found[entry.epoch] = max(end, found.get(entry.epoch, -1))
    return found


@pytest.mark.parametrize(
    ("log", "log_end", "copied", "expected"),
    [
        ({0: 0, 1: 1}, 3, [(0, 1, {0: 0})], (0, 0)),  # script 3: the tier's end of epoch 0 is a dead branch
        ({0: 0, 1: 1}, 3, [(0, 2, {0: 0})], (0, 0)),  # script 4
        ({0: 0, 1: 2}, 5, [(0, 3, {0: 0})], (1, 0)),  # script 5, the first leader after
        ({0: 0, 2: 5}, 7, [(0, 3, {0: 0}), (0, 3, {0: 0, 1: 2})], (3, 0)),  # script 5, the second: epoch 1 is not its
        ({0: 0, 1: 3, 2: 6, 3: 7}, 8, [(0, 2, {0: 0}), (3, 4, {1: 3})], (4, 1)),  # script F
        ({0: 0}, 4, [(0, 9, {0: 0})], (3, 0)),  # the log was cut, and is shorter than its tier
        ({0: 0}, 0, [], (-1, -1)),
        ({}, 0, [(0, 2, {0: 0})], (-1, -1)),
    ],
)
def test_the_copied_offset_is_one_of_the_log(
    log: dict[int, int], log_end: int, copied: list[tuple[int, int, dict[int, int]]], expected: tuple[int, int]
) -> None:
    """Else a new leader takes records of a dead branch for copied, and local retention deletes what no tier has."""
    known = highest([an_entry(*each) for each in copied])
    assert find_copied_offset(epochs(log), known.get, log_end_offset=log_end) == CopiedOffset(*expected)


def test_nothing_is_copied_of_a_log_without_a_tier() -> None:
    assert find_copied_offset(epochs({0: 0, 3: 5}), {}.get, log_end_offset=9) == NOTHING_COPIED


@pytest.mark.parametrize(
    ("segment", "log", "log_end", "expected"),
    [
        ((0, 1, {0: 0}), {0: 0, 1: 1}, 3, False),  # script 3: u1
        ((0, 3, {0: 0}), {0: 0, 2: 5}, 7, True),  # script 5: u1, u2, u3
        ((0, 3, {0: 0, 1: 2}), {0: 0, 2: 5}, 7, False),
        ((4, 5, {0: 4, 2: 5}), {0: 0, 2: 5}, 7, True),
        ((3, 4, {1: 3}), {0: 0, 1: 3, 2: 6, 3: 7}, 8, True),  # script F: u2, u3
        ((4, 6, {1: 4, 2: 6}), {0: 0, 1: 3, 2: 6, 3: 7}, 8, True),
        ((14, 150, {5: 14, 7: 15, 9: 100}), {7: 51, 9: 100}, 200, True),  # its front went with one that it overlaps
        ((0, 6, {0: 0}), {0: 0}, 7, True),
        ((0, 7, {0: 0}), {0: 0}, 7, False),  # ends behind the log
        ((5, 9, {4: 5}), {0: 0, 1: 3}, 20, False),  # of a leader that the log never knew
        ((0, 2, {0: 0}), {1: 3}, 20, False),  # in front of the log
        ((0, 4, {0: 0, 1: 3}), {0: 0, 1: 2}, 20, False),  # epoch 1 begins elsewhere
        ((0, 2, {0: 0}), {}, 20, False),
        ((0, 2, {0: 0, 1: 0}), {1: 0}, 20, True),  # epoch 0 has no records
    ],
)
def test_a_segment_is_the_logs_or_not(
    segment: tuple[int, int, dict[int, int]], log: dict[int, int], log_end: int, expected: bool
) -> None:
    assert is_within(an_entry(*segment), epochs(log), log_end_offset=log_end) is expected


class TestLogStart:
    """A leader whose checkpoint was lost finds its start in the tier."""

    def test_it_is_the_first_copied_segments(self) -> None:
        tier = [an_entry(3, 5, {1: 3}), an_entry(6, 9, {1: 6})]
        found = find_log_start_offset(epochs({0: 0, 1: 3}), listing(tier), local_log_start_offset=8)
        assert found == 3

    def test_a_copy_that_did_not_finish_does_not_count(self) -> None:
        started = RemoteLogSegmentState.COPY_SEGMENT_STARTED
        tier = [an_entry(3, 5, {1: 3}, state=started), an_entry(6, 9, {1: 6})]
        assert find_log_start_offset(epochs({1: 3}), listing(tier), local_log_start_offset=8) == 6

    def test_another_branch_does_not_count(self) -> None:
        """Its records of the epoch begin where the log has a later one."""
        tier = [an_entry(4, 9, {0: 4}), an_entry(3, 6, {1: 3})]
        assert find_log_start_offset(epochs({0: 0, 1: 3}), listing(tier), local_log_start_offset=7) == 3

    def test_local_records_in_front_of_the_tier_stay(self) -> None:
        """Kafka raises the start to the tier's first segment, and loses them."""
        tier = [an_entry(6, 9, {1: 6})]
        assert find_log_start_offset(epochs({1: 3}), listing(tier), local_log_start_offset=3) == 3

    def test_without_a_tier_it_is_the_local_start(self) -> None:
        assert find_log_start_offset(epochs({1: 3}), listing([]), local_log_start_offset=4) == 4


@pytest.mark.parametrize("entries", [[(1, 5), (1, 6)], [(2, 5), (1, 6)], [(1, 5), (2, 4)]])
def test_epochs_that_do_not_rise_are_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        epochs_with_records(entries)
