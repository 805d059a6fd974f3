"""The segments that go from a tier, and the log start that is published first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tier_entries import an_entry, listing
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierlog.remote.manager.expiry_plan import (
    ExpiryPlan,
    ExpiryReason,
    ExpiryRules,
    find_expiry_rules,
    find_unfinished,
    find_unreferenced,
    lowest_first,
    plan_expiry,
    size_within,
)
from tierlog.remote.manager.tiered_lineage import is_within, offsets_of_log

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
REASON = ExpiryReason
LOG = LeaderEpochs([(0, 0), (2, 30)])
NOTHING = ExpiryRules(None, 0)


def tier(**changes: object) -> list[RemoteLogSegmentMetadata]:
    """Five segments of ten offsets and 100 bytes each, of two epochs, a millisecond an offset."""
    return [
        an_entry(at, at + 9, {2: at} if at >= 30 else {0: at}, size_bytes=100, max_timestamp_ms=at + 9)
        for at in range(0, 50, 10)
    ]


def planned(
    segments: Sequence[RemoteLogSegmentMetadata],
    rules: ExpiryRules,
    *,
    epochs: LeaderEpochs = LOG,
    log_start: int = 0,
    copying: Sequence[RemoteLogSegmentMetadata] = (),
    local_bytes: Callable[[int, int], int] = lambda _start, _end: 0,
) -> ExpiryPlan:
    being_copied = frozenset(each.remote_log_segment_id for each in copying)
    return plan_expiry(
        epochs,
        listing(segments),
        rules,
        log_start_offset=log_start,
        log_end_offset=60,
        being_copied=being_copied,
        local_bytes=local_bytes,
    )


def starts(plan: ExpiryPlan) -> list[tuple[int, ExpiryReason]]:
    return [(each.segment.start_offset, each.reason) for each in plan.expired]


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_a_later_leaders_copy_is_not_given_up(state: RemoteLogSegmentState) -> None:
    """If this fails, a leader that is none any more, whose clock is ahead, deletes what the next one finishes just now
    (simulation, seed 20007).
    """
    begun = [an_entry(0, 9, epochs, state=state) for epochs in ({0: 0}, {2: 0}, {2: 0, 3: 5})]
    now_ms = max(each.event_timestamp_ms for each in begun)
    assert [each.segment for each in find_unfinished(begun, began_until_ms=now_ms, latest_epoch=2)] == begun[:2]
    assert len(find_unfinished(begun, began_until_ms=now_ms)) == 3


def test_nothing_goes_without_a_limit() -> None:
    assert planned(tier(), NOTHING) == ExpiryPlan((), None)


@pytest.mark.parametrize(
    ("breached", "gone", "start"),
    [(99, [], None), (100, [0], 10), (250, [0, 10], 20), (10_000, [0, 10, 20, 30, 40], 50)],
)
def test_by_size_whole_segments_go(breached: int, gone: list[int], start: int | None) -> None:
    """A segment goes only where the log stays at its limit or above it."""
    plan = planned(tier(), ExpiryRules(None, breached))
    assert (starts(plan), plan.log_start_offset) == ([(each, REASON.RETENTION_SIZE) for each in gone], start)
    assert plan.size_bytes == 100 * len(gone)


@pytest.mark.parametrize(
    ("breached", "gone", "stays_bytes"),
    [(149, [], 150), (150, [10], 100), (249, [10], 100), (250, [10, 20], 170), (420, [10, 20, 40], 0)],
)
def test_what_is_local_in_front_of_a_segment_goes_with_it(breached: int, gone: list[int], stays_bytes: int) -> None:
    """Another leader has deleted that from the tier, and this one has not heard of its start: it counts, and would be
    taken from what lies behind (simulation, seed 10729).
    """
    segments = [each for each in tier() if each.start_offset not in (0, 30)]
    local = {0: 50, 30: 70}
    plan = planned(
        segments,
        ExpiryRules(None, breached),
        local_bytes=lambda start, end: sum(size for at, size in local.items() if start <= at < end),
    )
    assert starts(plan) == [(each, REASON.RETENTION_SIZE) for each in gone]
    assert plan.stays_bytes == stays_bytes


@pytest.mark.parametrize(("cutoff", "gone"), [(9, []), (10, [0]), (35, [0, 10, 20]), (1000, [0, 10, 20, 30, 40])])
def test_by_time_segments_go_whose_newest_record_is_too_old(cutoff: int, gone: list[int]) -> None:
    plan = planned(tier(), ExpiryRules(cutoff, 0))
    assert starts(plan) == [(each, REASON.RETENTION_TIME) for each in gone]


@pytest.mark.parametrize(
    ("breached", "gone", "start"), [(99, [], None), (100, [0, 0], 10), (250, [0, 0, 10, 10, 15], 25)]
)
def test_offsets_that_the_tier_has_twice_count_once(breached: int, gone: list[int], start: int | None) -> None:
    """If this fails, a topic loses records for the copies that a change of its leader left."""
    twins = [
        an_entry(at, end, {0: at}, size_bytes=100, max_timestamp_ms=end, number=90 + at)
        for at, end in ((0, 9), (10, 14), (15, 24))
    ]
    segments = sorted([*tier(), *twins], key=lambda each: each.start_offset)
    assert size_within(segments, LOG, log_end_offset=60) == 500
    plan = planned(segments, ExpiryRules(None, breached))
    assert (starts(plan), plan.log_start_offset) == ([(each, REASON.RETENTION_SIZE) for each in gone], start)


@pytest.mark.parametrize(
    ("ends", "size_bytes"),
    [
        ({(0, 9): 100, (0, 5): 90, (6, 11): 30, (10, 11): 20}, 120),
        ({(0, 9): 100, (5, 29): 250, (10, 12): 30}, 100 + 30 + 170),
        ({(0, 9): 100, (5, 12): 80, (20, 29): 100, (20, 22): 30}, 100 + 30 + 100),
    ],
)
def test_segments_of_two_leaders_count_as_one_has_them(ends: dict[tuple[int, int], int], size_bytes: int) -> None:
    """If this fails, a part of a segment is estimated where its size is known, or not counted, and the oldest one stays
    beyond its limit (simulation, seed 213109).
    """
    segments = [
        an_entry(at, end, {0: at}, size_bytes=size, max_timestamp_ms=end, number=at * 100 + end)
        for (at, end), size in ends.items()
    ]
    for order in itertools.permutations(segments):
        assert size_within(order, LOG, log_end_offset=60) == size_bytes


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)).map(sorted).map(tuple), unique=True, max_size=12))
def test_each_offset_counts_once(places: list[tuple[int, int]]) -> None:
    """Of segments of a byte an offset; if this fails, retention by size takes records too early, or too late."""
    segments = [
        an_entry(at, end, {0: at}, size_bytes=end + 1 - at, max_timestamp_ms=end, number=at * 100 + end)
        for at, end in places
    ]
    offsets = {offset for at, end in places for offset in range(at, end + 1)}
    assert size_within(segments, LOG, log_end_offset=60) == len(offsets)


def test_copies_in_front_of_the_start_go_though_one_behind_them_stays() -> None:
    """If this fails, another leader's shorter segments stay as long as the one that has the log start (simulation, seed
    213417).
    """
    stays = an_entry(10, 25, {0: 10}, size_bytes=100, max_timestamp_ms=25, number=91)
    others = [
        an_entry(at, end, {0: at}, size_bytes=100, max_timestamp_ms=end, number=92 + at)
        for at, end in ((10, 10), (11, 15), (15, 22), (25, 29))
    ]
    plan = planned([stays, *others], ExpiryRules(None, 0), log_start=20)
    assert starts(plan) == [(10, REASON.LOG_START_OFFSET), (11, REASON.LOG_START_OFFSET)]
    assert plan.stays == stays


def test_what_goes_by_time_counts_for_the_size() -> None:
    """Else a log of both limits loses twice as much as it must."""
    plan = planned(tier(), ExpiryRules(10, 150))
    assert starts(plan) == [(0, REASON.RETENTION_TIME)]


def test_a_young_segment_keeps_all_behind_it() -> None:
    segments = tier()
    segments[1] = an_entry(10, 19, {0: 10}, size_bytes=100, max_timestamp_ms=10_000)
    assert starts(planned(segments, ExpiryRules(1000, 0))) == [(0, REASON.RETENTION_TIME)]


def test_in_front_of_the_logs_start_segments_go_and_the_start_stays() -> None:
    plan = planned(tier(), NOTHING, epochs=LeaderEpochs([(0, 20), (2, 30)]), log_start=20)
    assert (starts(plan), plan.log_start_offset) == (
        [(0, REASON.LOG_START_OFFSET), (10, REASON.LOG_START_OFFSET)],
        None,
    )


def test_a_segment_that_the_start_lies_in_stays() -> None:
    plan = planned(tier(), NOTHING, epochs=LeaderEpochs([(0, 15), (2, 30)]), log_start=15)
    assert starts(plan) == [(0, REASON.LOG_START_OFFSET)]


def test_a_deletion_that_began_goes_on() -> None:
    segments = [*tier(), an_entry(40, 44, {2: 40}, state=DELETING, number=1)]
    plan = planned(segments, ExpiryRules(None, 500))
    assert (40, REASON.DELETION_BEGAN) in starts(plan)
    assert plan.log_start_offset == 50
    only = planned([an_entry(0, 9, {0: 0}, state=DELETING)], NOTHING)
    assert (starts(only), only.log_start_offset) == ([(0, REASON.DELETION_BEGAN)], None)


def test_a_copy_under_way_keeps_all_behind_it() -> None:
    """Its bytes are counted as local still, and its metadata will say that it is finished."""
    segments = tier()
    plan = planned(segments, ExpiryRules(1000, 0), copying=segments[1:2])
    assert starts(plan) == [(0, REASON.RETENTION_TIME)]


def test_another_branch_neither_goes_nor_keeps_what_lies_behind() -> None:
    dead = an_entry(5, 35, {0: 5}, size_bytes=1000, max_timestamp_ms=0)
    assert not is_within(dead, LOG, log_end_offset=60)
    plan = planned([*tier(), dead], ExpiryRules(20, 0))
    assert starts(plan) == [(0, REASON.RETENTION_TIME), (10, REASON.RETENTION_TIME)]
    assert size_within([*tier(), dead, tier()[0]], LOG, log_end_offset=60) == 500


def test_another_branch_that_nothing_lies_beside_goes_by_time() -> None:
    """If this fails, what the log has of it stays for ever where nothing more is copied; or it goes before its time, or
    although the log has not taken the start, or the next leader has it.
    """
    dead = an_entry(0, 35, {0: 0}, size_bytes=100, max_timestamp_ms=35)
    behind = an_entry(10, 32, {0: 10}, max_timestamp_ms=0, number=1)
    plan = planned([dead, behind, *tier()[3:]], ExpiryRules(36, 0))
    assert starts(plan) == [(0, REASON.RETENTION_TIME), (10, REASON.RETENTION_TIME)]
    assert (plan.log_start_offset, plan.stays, plan.allowed(29)) == (30, tier()[3], ())
    assert plan.allowed(30) == plan.expired
    young = planned([dead, behind], ExpiryRules(35, 0))
    assert (young, young.next_ms) == (ExpiryPlan((), None), 35)
    assert planned([an_entry(0, 35, {0: 0, 3: 20})], ExpiryRules(36, 0)) == ExpiryPlan((), None)


def test_an_upload_that_nobody_finished_goes_by_retention() -> None:
    dangling = an_entry(0, 9, {0: 0}, size_bytes=100, max_timestamp_ms=9, state=STARTED, number=7)
    plan = planned([dangling, *tier()], ExpiryRules(10, 0))
    assert [each.segment for each in plan.expired] == [dangling, tier()[0]]
    assert size_within([dangling, *tier()], LOG, log_end_offset=60) == 500


def test_a_log_that_does_not_take_the_start_keeps_its_segments() -> None:
    """A follower, or a log with a lower high watermark, still answers for these offsets."""
    segments = [*tier(), an_entry(0, 3, {0: 0}, state=DELETING, number=1)]
    plan = planned(segments, ExpiryRules(None, 300))
    assert plan.log_start_offset == 30
    assert [each.segment.start_offset for each in plan.allowed(30)] == [0, 0, 10, 20]
    assert [(each.segment.start_offset, each.segment.end_offset) for each in plan.allowed(15)] == [(0, 9), (0, 3)]
    assert [each.reason for each in plan.allowed(0)] == [REASON.DELETION_BEGAN]


def test_what_lies_in_front_of_the_logs_first_epoch_is_unreferenced() -> None:
    segments = [*tier(), an_entry(20, 40, {0: 20, 2: 30}, number=1)]
    found = find_unreferenced(segments, LeaderEpochs([(2, 30)]))
    assert [each.segment.start_offset for each in found] == [0, 10, 20]
    assert {each.reason for each in found} == {REASON.UNREFERENCED}
    assert find_unreferenced(segments, LeaderEpochs()) == ()
    copying = frozenset({segments[0].remote_log_segment_id})
    assert len(find_unreferenced(segments, LeaderEpochs([(2, 30)]), being_copied=copying)) == 2


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, ExpiryRules(None, 0)),
        ({"retention_ms": 10}, ExpiryRules(90, 0)),
        ({"retention_ms": 101}, ExpiryRules(None, 0)),  # longer than there is time
        ({"retention_ms": 0}, ExpiryRules(100, 0)),
        ({"retention_bytes": 60}, ExpiryRules(None, 20)),
        ({"retention_bytes": 80}, ExpiryRules(None, 0)),
        ({"retention_bytes": 0}, ExpiryRules(None, 80)),
    ],
)
def test_limits_of_a_run(limits: dict[str, int], expected: ExpiryRules) -> None:
    given_ones = {"retention_ms": -1, "retention_bytes": -1, **limits}
    assert find_expiry_rules(**given_ones, now_ms=100, only_local_bytes=30, tiered_bytes=50) == expected


# ---- properties, of any tier


@st.composite
def tiers(draw: st.DrawFn) -> tuple[LeaderEpochs, list[RemoteLogSegmentMetadata]]:
    """A lineage from offset 0 to 60, and segments of it and of dead branches."""
    borders = sorted(draw(st.sets(st.integers(1, 50), max_size=3)))
    epochs = LeaderEpochs([(2 * number, start) for number, start in enumerate([0, *borders])])
    segments = []
    for number in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 58))
        end = draw(st.integers(start, 59))
        own = dict(epochs.range(start, end + 1)) if draw(st.booleans()) else {draw(st.integers(0, 7)): start}
        state = draw(st.sampled_from([STARTED, DELETING, *[RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * 4]))
        size, newest = draw(st.integers(0, 50)), draw(st.integers(0, 100))
        segments.append(an_entry(start, end, own, size_bytes=size, max_timestamp_ms=newest, state=state, number=number))
    return epochs, segments


@given(tiers(), st.none() | st.integers(0, 120), st.integers(0, 300), st.integers(0, 60))
def test_a_plan_is_sound(
    made: tuple[LeaderEpochs, list[RemoteLogSegmentMetadata]], cutoff: int | None, breached: int, log_start: int
) -> None:
    """No segment goes twice; none of the log's goes by a limit that is not behind the start which is published; what
    goes by size leaves the log at its limit or above.
    """
    epochs, segments = made
    plan = planned(segments, ExpiryRules(cutoff, breached), epochs=epochs, log_start=log_start)
    ids = [each.segment.remote_log_segment_id for each in plan.expired]
    assert len(set(ids)) == len(ids)
    by_size = next_offset = 0
    for segment, reason, last in plan.expired:
        if reason in (REASON.RETENTION_TIME, REASON.RETENTION_SIZE):
            is_own = is_within(segment, epochs, log_end_offset=60)
            assert is_own or offsets_of_log(segment, epochs, log_end_offset=60)[1] == last[1] + 1
            assert plan.log_start_offset is not None
            assert last[1] < plan.log_start_offset
            next_offset, before = max(next_offset, segment.end_offset + 1), next_offset
        if reason is REASON.RETENTION_TIME:
            assert cutoff is not None
            assert segment.max_timestamp_ms < cutoff
        if reason is REASON.RETENTION_SIZE:
            count = segment.end_offset + 1 - segment.start_offset
            new = max(0, min(count, segment.end_offset + 1 - before))  # what another one has goes once
            by_size += segment.segment_size_in_bytes * new // count
        if reason is REASON.LOG_START_OFFSET:
            assert last[1] < max(log_start, plan.log_start_offset or 0)
    assert by_size <= breached
    if plan.log_start_offset is not None:
        start = max(log_start, plan.log_start_offset)
        assert {each.segment for each in plan.allowed(start)} == {each.segment for each in plan.expired}


@settings(max_examples=300)
@given(tiers(), st.integers(0, 100), st.just(0) | st.integers(0, 60))
def test_a_crash_between_two_deletions_leaves_no_hole(
    made: tuple[LeaderEpochs, list[RemoteLogSegmentMetadata]], old: int, deleted_up_to: int
) -> None:
    """Of overlapping segments, and of other branches; if this fails, the next leader, which has not got the log start,
    begins in front of offsets that nobody has, and consumers stand there for ever.
    """
    epochs, segments = made
    own = epochs.truncate_from_start(deleted_up_to)
    plan = planned(segments, ExpiryRules(101 - old // 10, 0), epochs=own, log_start=deleted_up_to)
    found = [*plan.allowed(max(deleted_up_to, plan.log_start_offset or 0)), *find_unreferenced(segments, own)]
    left = {
        each.remote_log_segment_id: range(*offsets_of_log(each, epochs, log_end_offset=60))
        for each in segments
        if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    }
    before = {offset for offsets in left.values() for offset in offsets}
    for gone in lowest_first(found):
        left.pop(gone.segment.remote_log_segment_id, None)
        after = {offset for offsets in left.values() for offset in offsets}
        assert not after or {offset for offset in before if offset >= min(after)} == after
