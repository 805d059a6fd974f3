"""Expiry beside failing managers, crashes at each step, and leaders that change: the same is left in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.metadata_events import PARTITION
from tests.support.living_logs import batch_of
from tests.support.tier_tasks import (
    MINUTE_MS,
    OTHER_BROKER,
    STATE,
    TaskTier,
    failing,
    reopened,
    require_published,
    segment_bytes,
    task_tier,
)
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.manager import expiry_plan
from tierlog.remote.manager.tiered_lineage import epochs_with_records, find_log_start_offset

ERRORS = (
    RetriableRemoteStorageException("later"),
    RemoteStorageException("no"),
    KeyError("a bug of a third party's"),
    OSError("a disk"),
)
CALLS = (
    ("metadata", "segments_version"),
    ("metadata", "list_remote_log_segments"),
    ("metadata", "highest_offset_for_epoch"),
    ("metadata", "update_remote_log_segment_metadata"),
    ("storage", "delete_log_segment_data"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("manager", "call"), CALLS, ids=[call for _, call in CALLS])
def test_whatever_fails_goes_on_later(manager: str, call: str, error: Exception) -> None:
    """The n-th call of a manager fails, for each n: no run raises, and in the end the same is left."""
    for count in range(1, 10):
        with task_tier(count) as tier:
            require_published(tier)
            size = segment_bytes(tier.filled(3))
            reopened(tier, retention_bytes=size)
            hooked = tier.metadata if manager == "metadata" else tier.storage
            before = hooked.hooks.get(call)
            seen = 0

            def fail(*given: Any, before: Any = before, error: Exception = error, last: int = count) -> None:
                nonlocal seen
                seen += 1
                if seen == last:
                    raise error
                if before is not None:
                    before(*given)

            hooked.hooks[call] = fail
            pauses = [tier.run() for _ in range(20)]
            assert (tier.stored(), tier.starts_listed(), tier.log.log_start_offset) == (1, [20], 20)
            failed = seen >= count
            assert any(pause is not None and 0.3 < pause < 0.7 for pause in pauses) is failed
            if not failed:
                return


def test_errors_count() -> None:
    """Kafka's rule: a retriable error is none; pauses double, and end with a good run."""
    with task_tier() as tier:
        tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
        tier.store.unavailable = True
        pauses = [tier.run() for _ in range(8)]
        assert all(pause is not None and 0.3 < pause < 37 for pause in pauses)
        assert pauses[-1] is not None
        assert pauses[-1] > 20
        assert tier.value("delete_errors") == 0
        assert tier.term.expiry.faults.count == 8
        tier.store.unavailable, tier.store.refuses = False, RemoteStorageException("forbidden")
        tier.run()
        assert tier.value("delete_errors") == 1
        tier.store.refuses = None
        tier.settle()
        assert (tier.stored(), tier.term.expiry.faults.count) == (2, 0)
        begun = [name for name in tier.states_of(tier.calls) if name == "DELETE_SEGMENT_STARTED"]
        assert len(begun) == 2  # tried again, and not stored again


def test_a_segment_that_cannot_be_deleted_delays_no_other() -> None:
    with task_tier() as tier:
        segments = tier.filled(4)
        tier.limit(retention_bytes=0)

        def refuse(segment: RemoteLogSegmentMetadata) -> None:
            if segment.start_offset == 0:
                raise RemoteStorageException("locked")

        tier.storage.hooks["delete_log_segment_data"] = refuse
        for _ in range(20):
            tier.run()
        assert tier.listed() == [(0, STATE.DELETE_SEGMENT_STARTED)]
        assert tier.store.segment_ids == {segments[0].remote_log_segment_id}


def test_nothing_goes_in_front_of_a_deletion_that_cannot_begin() -> None:
    """Of epochs in front of the lineage, and in front of the log start. If this fails, and the leader crashes then, the
    next one that has not got the start finds a hole in its tier, and consumers stand in front of it for ever.
    """
    with task_tier() as tier:
        tier.filled(2)
        tier.filled(2, epoch=1)
        tier.append(epoch=1)
        tier.log.maybe_increment_log_start_offset(35, "DeleteRecords")
        left = []
        for fails in (True, False, True, False, True, False):
            tier.metadata.hooks.clear()
            if fails:
                tier.metadata.hooks["update_remote_log_segment_metadata"] = failing(ERRORS[0])
            pause = tier.run()
            assert pause is not None
            assert (pause > 0) is fails
            left.append(tier.starts_listed())
        assert left == [[0, 10, 20, 30], [10, 20, 30], [10, 20, 30], [20, 30], [20, 30], [30]]


def test_a_metadata_manager_that_hangs_or_is_late() -> None:
    with task_tier() as tier:
        tier.limit(retention_bytes=3 * segment_bytes(tier.filled(4)))
        tier.metadata.hooks["update_remote_log_segment_metadata"] = lambda _: tier.machine.scheduler.future()
        began = tier.machine.clock.monotonic_seconds()
        assert tier.run() != 0
        assert 179 < tier.machine.clock.monotonic_seconds() - began < 181
        assert "180000 ms" in str(tier.term.expiry.faults.last)
        tier.metadata.hooks.clear()
        tier.rig.topic.acknowledge_after = lambda: 20.0
        tier.settle()
        assert tier.stored() == 3


def test_lost_acknowledgements() -> None:
    """The store and the topic did what was asked for, and said that they did not."""
    with task_tier() as tier:
        tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
        tier.store.lose_acknowledgements = 2
        tier.rig.topic.lose_acknowledgements = 2
        for _ in range(12):
            tier.run()
        assert (tier.stored(), tier.starts_listed()) == (2, [20, 30])


class Crash(BaseException):
    """The process ends."""


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_step(seed: int) -> None:
    """The next leader comes to the same tier after a crash at any step; no segment goes before its offsets."""
    step = 0
    while True:
        step += 1
        with task_tier(seed) as tier:
            tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
            count = 0

            def crash(*_: object, last: int = step) -> None:
                nonlocal count
                count += 1
                if count == last:
                    raise Crash

            def crash_after(name: str, crash: Callable[..., None] = crash, tier: TaskTier = tier) -> Any:
                inner = (tier.metadata if "metadata" in name else tier.storage)._inner

                def call(subject: Any) -> Any:
                    crash()
                    done = getattr(inner, name)(subject)
                    if done is not None:
                        done.result(60)
                    crash()
                    return done

                return call

            tier.metadata.hooks["update_remote_log_segment_metadata"] = crash_after(
                "update_remote_log_segment_metadata"
            )
            tier.storage.hooks["delete_log_segment_data"] = crash_after("delete_log_segment_data")
            tier.services.on_log_start_offset = crash
            try:
                tier.settle()
            except Crash:
                crashed = True
            else:
                crashed = False
            tier.metadata.hooks.clear()
            tier.storage.hooks.clear()
            tier.services.on_log_start_offset = lambda *_: None
            require_published(tier)
            tier.new_term()
            tier.settle()
            assert (tier.stored(), tier.starts_listed(), tier.log.log_start_offset) == (2, [20, 30], 20)
            if not crashed:
                assert step > 10
                return


# ---- publishing


class OtherLog:
    """A log of another make: it publishes what it likes."""

    def __init__(self, log: UnifiedLog, answer: Callable[[int], int]) -> None:
        self._log, self._answer = log, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        return self._log.update_log_start_offset_from_remote_tier(self._answer(offset))


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (5, 0), (19, 1), (20, 2)])
def test_what_the_log_does_not_take_stays(start: int, gone: int) -> None:
    """The high watermark is in the way: what the log still has is not deleted, and goes later."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(4))
        log = tier.log
        tier.logs[PARTITION] = OtherLog(log, lambda offset: min(offset, start))  # type: ignore[assignment]
        tier.limit(retention_bytes=2 * size)
        tier.settle()
        assert (log.log_start_offset, tier.stored()) == (start, 4 - gone)
        tier.logs[PARTITION] = log
        tier.settle()
        assert (log.log_start_offset, tier.stored()) == (20, 2)


def test_the_leader_changes_between_publishing_and_deleting() -> None:
    """The old leader deletes nothing more; the new one goes on by what was published."""
    with task_tier() as tier:
        tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
        tier.services.on_log_start_offset = lambda *_: tier.term.end()
        assert tier.run() is None
        assert (tier.log.log_start_offset, tier.stored(), tier.states_of(tier.calls)) == (20, 4, [])
        assert tier.run() is None
        tier.services.on_log_start_offset = lambda *_: None
        tier.new_term()
        tier.settle()
        assert (tier.stored(), tier.starts_listed()) == (2, [20, 30])


@pytest.mark.parametrize("by", ["deletion of records", "retention"])
def test_the_leader_crashes_between_two_deletions(by: str) -> None:
    """Of overlapping copies, one of which reaches into a dead branch. If this fails, the next leader, which has not got
    the log start, begins in front of offsets that nobody has, and consumers stand there for ever.
    """
    with task_tier() as tier:
        tier.filled(1)
        tier.log.assign_epoch_start_offset(1, 10)
        tier.append(segments=3, epoch=1)
        lineage = epochs_with_records(tier.log.leader_epoch_cache.epoch_with_offsets().items())
        for base, end in ((0, 15), (5, 10), (15, 16), (16, 40)):
            tier.finish_copy(tier.begin_copy(base, end))
        tier.finish_copy(tier.begin_copy(0, 17, epochs={0: 0}, broker_id=OTHER_BROKER))
        tier.log.update_highest_offset_in_remote_storage(39)
        tier.pass_time(MINUTE_MS)
        if by == "retention":
            tier.limit(retention_ms=MINUTE_MS // 2)
        else:
            tier.log.maybe_increment_log_start_offset(40, "DeleteRecords")
        known = tier.metadata._inner
        while tier.run() == 0.0:
            start = find_log_start_offset(
                lineage, lambda epoch: known.list_remote_log_segments(PARTITION, epoch), local_log_start_offset=40
            )
            held = [known.remote_log_segment_metadata(PARTITION, int(at >= 10), at) for at in range(start, 40)]
            assert None not in held, (start, held.index(None))
        assert tier.listed() == []


def test_a_dead_branch_in_front_of_a_log_that_is_copied_no_more() -> None:
    """After an unclean election the tier has the log's first offsets in the segment of another branch alone. If this
    fails it stays for ever, and so does all that is only here: nothing goes by time behind it, and the disk fills.
    """
    with task_tier(retention_ms=10 * MINUTE_MS) as tier:
        tier.append()
        tier.finish_copy(tier.begin_copy(0, 15, epochs={0: 0}, broker_id=OTHER_BROKER))
        tier.log.assign_epoch_start_offset(1, 10)
        tier.append(segments=3, epoch=1)
        tier.term.offsets.require(tier.services, tier.log)
        tier.log.maybe_increment_local_log_start_offset(10, "local retention")
        assert tier.log.delete_old_segments() == 1
        tier.limit(remote_log_copy_disable=True)
        tier.settle()
        assert (tier.starts_listed(), tier.log.log_start_offset) == ([0], 0)
        tier.pass_time(11 * MINUTE_MS)
        tier.settle()
        assert (tier.starts, tier.listed()) == ([10], [])
        assert (tier.log.delete_old_segments(), tier.log.log_start_offset) == (3, 40)


def test_the_leader_changes_within_a_deletion() -> None:
    """The deletion that began is the next leader's; the second one does not begin."""
    with task_tier() as tier:
        tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
        tier.metadata.hooks["update_remote_log_segment_metadata"] = lambda _: tier.term.end()
        assert tier.run() is None
        assert tier.listed()[0] == (0, STATE.DELETE_SEGMENT_STARTED)
        assert tier.stored() == 4
        tier.metadata.hooks.clear()
        tier.new_term()
        tier.settle()
        assert (tier.stored(), tier.starts_listed()) == (2, [20, 30])


def test_a_callback_that_raises() -> None:
    """The broker's callback is a fault of its own: the start stands, and the segments go later."""
    with task_tier() as tier:
        tier.limit(retention_bytes=2 * segment_bytes(tier.filled(4)))
        tier.services.on_log_start_offset = failing(KeyError("a bug"))
        pause = tier.run()
        assert pause is not None
        assert pause > 0
        assert (tier.stored(), tier.log.log_start_offset) == (4, 20)
        tier.settle()
        assert tier.stored() == 2


# ---- beside others


def test_a_reader_of_a_segment_that_is_deleted() -> None:
    """A stream that is open ends whole or with an error; a new look-up finds nothing at once."""
    with task_tier() as tier:
        segments = tier.filled(2)
        stream = tier.store.fetch_log_segment(segments[0], 0)
        head = stream.read(100)
        tier.limit(retention_bytes=segment_bytes(segments))
        tier.settle()
        assert len(head + stream.read()) == segment_bytes(segments)
        assert tier.services.metadata.remote_log_segment_metadata(segments[0].topic_id_partition, 0, 5) is None


@pytest.mark.parametrize("seed", range(8))
def test_beside_copies_appends_and_new_terms(seed: int) -> None:
    """An offset of the log is here or in the store at every moment, and the store has each listed segment."""
    with task_tier(seed) as tier:
        size = segment_bytes(tier.filled(1))
        tier.limit(retention_bytes=5 * size)
        require_published(tier)
        machine, ended = tier.machine, False

        def append_and_copy() -> None:
            for turn in range(15):
                machine.clock.sleep(machine.rng.uniform(0, 2))
                tier.append()
                with_copy = machine.rng.integer_below(3)
                if with_copy:
                    tier.copy()
                    tier.log.maybe_increment_local_log_start_offset(
                        min(tier.log.highest_offset_in_remote_storage + 1, tier.log.log_end_offset), "local retention"
                    )
                if turn == 7:
                    tier.new_term()

        def expire() -> None:
            while not ended:
                pause = tier.run()
                machine.clock.sleep(0.2 if pause is None else min(pause, 0.5))

        copying = machine.scheduler.start(append_and_copy, name="copies")
        expiring = machine.scheduler.start(expire, name="expiry")
        copying.result(600)
        ended = True
        expiring.result(600)
        tier.settle()
        listed = tier.listed()
        assert all(state is STATE.COPY_SEGMENT_FINISHED for _, state in listed)
        assert tier.stored() == len(listed) <= 6
        covered = [start for start, _ in listed]
        first = tier.log.log_start_offset
        assert first % 10 == 0
        assert covered == list(range(first, first + 10 * len(covered), 10))
        assert first + 10 * len(covered) >= tier.log.local_log_start_offset


def test_each_run_deletes_one() -> None:
    """A partition with much to delete delays no other."""
    with task_tier() as tier:
        tier.filled(4)
        tier.limit(retention_bytes=0)
        left = []
        for _ in range(4):
            assert tier.run() == 0.0
            left.append(tier.stored())
        assert left == [3, 2, 1, 0]


def test_a_long_plan_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with task_tier() as tier:
        monkeypatch.setattr(expiry_plan, "PLANNED_MAX", 2)
        tier.filled(5)
        tier.limit(retention_bytes=0)
        require_published(tier)
        tier.settle()
        assert (tier.stored(), tier.starts) == (0, [20, 40, 50])


def test_a_log_that_is_not_here_or_not_tiered() -> None:
    with task_tier() as tier:
        tier.limit(retention_bytes=segment_bytes(tier.filled(2)))
        tier.services.find_log = lambda _: None
        assert (tier.run(), tier.stored()) == (30.0, 2)
        tier.services.find_log = lambda _: tier.log
        tier.log.update_config(replace(tier.log.config, remote_storage_enable=False))
        assert (tier.run(), tier.stored()) == (30.0, 2)
        tier.term.end()
        assert tier.run() is None


def test_an_unfinished_copy_of_what_no_other_segment_has() -> None:
    """Its broker is slow, and may finish it just in front of its deletion. If this fails, that broker deletes locally
    what it has copied, and the objects go.
    """
    with task_tier() as tier:
        tier.append(segments=2)
        tier.log.append_as_leader(batch_of(b"active"), leader_epoch=0)
        for base in (0, 10):
            tier.begin_copy(base, base + 10, broker_id=OTHER_BROKER)
        tier.pass_time(2 * MINUTE_MS)
        tier.settle()
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_STARTED), (10, STATE.COPY_SEGMENT_STARTED)]
        tier.copy()
        tier.settle()
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED), (10, STATE.COPY_SEGMENT_FINISHED)]


def test_an_unfinished_copy_has_no_log_start() -> None:
    """If this fails, consumers stand in front of what nobody has until it goes."""
    with task_tier() as tier:
        tier.append(segments=3)
        tier.begin_copy(0, 10, broker_id=OTHER_BROKER)
        tier.finish_copy(tier.begin_copy(10, 20))
        tier.log.maybe_increment_local_log_start_offset(20, "deleted locally")
        tier.settle()
        assert tier.log.log_start_offset == 10
        tier.pass_time(2 * MINUTE_MS)
        tier.settle()
        assert tier.listed() == [(10, STATE.COPY_SEGMENT_FINISHED)]
