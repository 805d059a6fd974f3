"""The copied offset and the log's start by the tier, of which two tasks of one partition ask at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.copying_tier import copying_tier
from tests.support.living_logs import batch_of
from tests.support.tier_tasks import MINUTE_MS, PARTITION, TaskTier, failing, moved_to_another_disk, reopened, task_tier
from tierlog.remote.api import RemoteLogSegmentState as STATE
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.tiered_lineage import CopiedOffset

#: Of a log with two local segments.
LOOK_UP = ["list_remote_log_segments", "highest_offset_for_epoch", *["remote_log_segment_metadata"] * 2]


def require(tier: TaskTier) -> CopiedOffset:
    return tier.term.offsets.require(tier.services, tier.log)


def asked(tier: TaskTier) -> list[str]:
    """The names of the manager's calls since the last time."""
    names = [name for name, _ in tier.calls]
    tier.calls.clear()
    return names


def test_both_are_looked_up_once() -> None:
    with task_tier() as tier:
        tier.filled(2)
        reopened(tier)
        assert require(tier) == (19, 0)
        assert tier.log.highest_offset_in_remote_storage == 19
        assert asked(tier) == LOOK_UP
        assert require(tier) == (19, 0)
        assert asked(tier) == []


def test_a_log_start_is_raised_and_published() -> None:
    """If this fails, a broker whose checkpoint was lost answers for offsets that nobody has."""
    with task_tier() as tier:
        tier.append(segments=3)
        tier.finish_copy(tier.begin_copy(10, 20))
        tier.finish_copy(tier.begin_copy(20, 30))
        tier.log.maybe_increment_local_log_start_offset(20, "deleted locally")
        assert tier.log.log_start_offset == 0
        assert require(tier) == (29, 0)
        assert (tier.log.log_start_offset, tier.starts) == (10, [10])


@pytest.mark.parametrize("kafka", ["false", "true"])
def test_a_log_that_is_copied_no_more_starts_behind_a_tier_that_has_gone(kafka: str) -> None:
    """If this fails, a leader that has not heard of the start of the one before keeps what is local for ever: that goes
    behind what the tier has in front.
    """
    with task_tier(manager={"remote.log.manager.kafka.semantics": kafka}) as tier:
        segments = tier.filled(3)
        tier.log.append_as_leader(batch_of(b"active"), leader_epoch=0)
        tier.limit(local_retention_bytes=1, retention_ms=MINUTE_MS)
        tier.log.delete_old_segments()
        assert tier.log.offsets[:2] == (0, 30)
        tier.limit(local_retention_bytes=-2, remote_log_copy_disable=True)
        for each in segments:
            for state in (STATE.DELETE_SEGMENT_STARTED, STATE.DELETE_SEGMENT_FINISHED):
                tier.finish_copy(each, state)
        tier.pass_time(MINUTE_MS + 1)
        assert tier.log.delete_old_segments() == 0
        tier.settle()
        assert (tier.log.delete_old_segments(), tier.log.offsets[:2]) == (1, (31, 31))


def test_a_log_forgets_what_the_tier_has_no_more() -> None:
    """Another leader had it deleted. If this fails, the segments are copied again from the first on, and local
    retention deletes those that have not been.
    """
    with task_tier() as tier:
        deletions = SegmentDeletions(tier.services)
        for segment in tier.filled(3):
            deletions.finish(deletions.begin(segment))
        tier.new_term()
        assert tier.log.highest_offset_in_remote_storage == 29
        assert require(tier).offset == -1
        assert tier.log.highest_offset_in_remote_storage == -1


def test_a_log_in_another_directory_is_looked_up_again() -> None:
    with task_tier() as tier:
        tier.filled(2)
        require(tier)
        moved_to_another_disk(tier)
        tier.calls.clear()
        assert require(tier) == (19, 0)
        assert asked(tier) == LOOK_UP


def test_a_log_that_was_cut_is_looked_up_again() -> None:
    with task_tier() as tier:
        tier.filled(3)
        require(tier)
        tier.log.truncate_to(15)
        tier.calls.clear()
        assert require(tier) == (14, 0)
        assert asked(tier) == LOOK_UP[1:]


@pytest.mark.parametrize(("start", "deleted", "expected"), [(0, 4, (-1, -1)), (0, 1, (29, 0)), (40, 4, (39, 0))])
def test_what_is_deleted_from_the_tier_is_not_copied(start: int, deleted: int, expected: tuple[int, int]) -> None:
    """If this fails, a topic that enters the tier again, or whose cut branch was deleted there, loses what only its
    local log has. What lies below the log's start is no loss.
    """
    with task_tier() as tier:
        segments = tier.filled(4)
        reopened(tier)
        for segment in reversed(segments[-deleted:]):
            tier.finish_copy(segment, STATE.DELETE_SEGMENT_STARTED)
            tier.finish_copy(segment, STATE.DELETE_SEGMENT_FINISHED)
        tier.log.update_high_watermark(tier.log.log_end_offset)
        tier.log.maybe_increment_log_start_offset(start, "retention")
        assert require(tier) == expected
        assert tier.log.highest_offset_in_remote_storage == expected[0]


def test_a_copy_with_the_log_start_inside_it() -> None:
    """The leader that made it crashed before this log heard of the start. If this fails, local retention deletes what
    lies in front of it, which nobody has then, and consumers from the earliest offset on stand there for ever.
    """
    with copying_tier(segments=3) as made:
        tier = made.tier
        tier.log.append_as_leader(batch_of(b"active"), leader_epoch=0)
        for base, epochs in ((0, {0: 0}), (10, {0: 15}), (20, {0: 20})):
            tier.finish_copy(tier.begin_copy(base, base + 10, epochs=epochs))
        assert require(tier) == (9, 0)
        made.settle()
        tier.limit(local_retention_bytes=1)
        tier.log.delete_old_segments()
        assert tier.log.offsets[:2] == (0, 30)
        assert all(tier.metadata.remote_log_segment_metadata(PARTITION, 0, offset) for offset in range(30))


def test_a_segment_that_ends_in_another_branch() -> None:
    """If this fails, offsets of a segment count that are another branch's, and none of the log's own is copied."""
    with task_tier() as tier:
        tier.append()
        for epoch in (2, 3):
            tier.log.assign_epoch_start_offset(epoch, 10 * epoch - 10)
            tier.append(epoch=epoch)
        for base, end, epochs in ((0, 15, {0: 0}), (10, 16, {2: 10, 4: 13}), (20, 30, {3: 20})):
            tier.finish_copy(tier.begin_copy(base, end, epochs=epochs))
        assert require(tier) == (12, 2)


def test_a_hole_alone_is_copied() -> None:
    """If this fails, a leader that lacks the last log start copies all that it has anew."""
    with copying_tier(segments=5) as made:
        tier = made.tier
        for base in (0, 20, 40):
            tier.finish_copy(tier.begin_copy(base, base + 10))
        made.settle()
        assert tier.starts_listed() == [0, 10, 20, 30, 40]
        assert (tier.term.offsets.copied, tier.log.highest_offset_in_remote_storage) == ((49, 0), 49)


def test_what_lies_in_the_tier_alone_is_not_looked_up() -> None:
    """If this fails, each look-up of a follower with a short local retention takes as long as its tier is."""
    with task_tier() as tier:
        tier.filled(9)
        tier.log.maybe_increment_local_log_start_offset(75, "local retention")
        require(tier)
        assert asked(tier).count("remote_log_segment_metadata") == 2


def test_kafka_goes_on_behind_what_was_deleted() -> None:
    with task_tier(manager={"remote.log.manager.kafka.semantics": "true"}) as tier:
        (segment,) = tier.filled(1)
        reopened(tier)
        tier.finish_copy(segment, STATE.DELETE_SEGMENT_STARTED)
        tier.finish_copy(segment, STATE.DELETE_SEGMENT_FINISHED)
        assert require(tier) == (9, 0)


def test_a_copy_that_finishes_during_a_look_up() -> None:
    """If this fails, the expiration task takes the copied offset back, and a segment is copied again."""
    with task_tier() as tier:
        tier.filled(1)
        reopened(tier)
        tier.append()
        tier.metadata.hooks["highest_offset_for_epoch"] = during(
            lambda: tier.term.offsets.set_copied(tier.log, CopiedOffset(19, 0)), answer=9
        )
        require(tier)
        assert tier.term.offsets.copied == (19, 0)
        assert tier.log.highest_offset_in_remote_storage == 19


def test_a_copy_whose_end_is_not_known_during_a_look_up() -> None:
    """If this fails, an answer of before the copy counts, and its segment is copied again."""
    with task_tier() as tier:
        tier.filled(1)
        tier.metadata.hooks["highest_offset_for_epoch"] = during(tier.term.offsets.forget_copied, answer=9)
        require(tier)
        assert tier.term.offsets.copied is None


@pytest.mark.parametrize("call", ["highest_offset_for_epoch", "list_remote_log_segments"])
def test_a_term_that_ends_during_a_look_up(call: str) -> None:
    with task_tier() as tier:
        tier.filled(2)
        reopened(tier)
        tier.metadata.hooks[call] = during(tier.term.end)
        require(tier)
        assert (tier.term.offsets.copied, tier.log.highest_offset_in_remote_storage) == (None, -1)
        tier.term.offsets.set_copied(tier.log, CopiedOffset(19, 0))
        assert (tier.term.offsets.copied, tier.log.highest_offset_in_remote_storage) == (None, -1)


@pytest.mark.parametrize("looks_up", [False, True])
def test_a_log_that_is_cut_while_its_offset_is_written(looks_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The term ends there, and another leader fills the log. If this fails, the offset counts for that one's records,
    and local retention deletes them, which no tier has.
    """
    with task_tier() as tier:
        tier.filled(2)
        reopened(tier)
        log, write = tier.log, tier.log.update_highest_offset_in_remote_storage

        def late(*args: Any, **named: Any) -> None:
            tier.term.end()
            log.truncate_to(15)
            log.assign_epoch_start_offset(1, 15)
            tier.append(segments=2, epoch=1)
            write(*args, **named)

        monkeypatch.setattr(
            type(log), "update_highest_offset_in_remote_storage", lambda _, *a, **named: late(*a, **named)
        )
        if looks_up:
            tier.term.offsets.look_up_copied(tier.services, log)
        else:
            tier.term.offsets.set_copied(log, CopiedOffset(19, 0))
        assert log.highest_offset_in_remote_storage == -1


@pytest.mark.parametrize("call", ["highest_offset_for_epoch", "list_remote_log_segments"])
def test_a_metadata_manager_that_fails(call: str) -> None:
    """Nothing is known then, and the next run asks again."""
    with task_tier() as tier:
        tier.filled(2)
        reopened(tier)
        tier.metadata.hooks[call] = failing(RemoteStorageException("no answer"))
        with pytest.raises(RemoteStorageException, match="no answer"):
            require(tier)
        assert tier.term.offsets.copied is None
        tier.metadata.hooks.clear()
        assert require(tier) == (19, 0)


def during(event: Callable[[], None], answer: Any = None) -> Callable[..., Any]:
    """A hook by which something happens during a call."""

    def hook(*_: object) -> Any:
        event()
        return answer

    return hook
