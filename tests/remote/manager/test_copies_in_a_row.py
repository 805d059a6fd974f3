"""Copies of one run: each next one is announced while the end of the last is confirmed, and none counts too early."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.copying_tier import COPIED, REMOVED, copying_tier
from tests.support.tier_tasks import RECORDS, STATE
from tierlog.remote.api import InvalidTransitionError, RemoteResourceNotFoundException, RemoteStorageException


@pytest.mark.parametrize("seed", range(5))
def test_a_run_goes_on_while_no_other_task_waits(seed: int) -> None:
    """If this fails, a segment is stored before the one in front of it counts; or is deleted locally before it does; or
    each segment waits twice for the metadata manager.
    """
    with copying_tier(seed, segments=4) as made:
        tier, log, starts = made.tier, made.tier.log, list[int]()

        def in_order(metadata: Any, _files: object) -> None:
            start = metadata.start_offset
            assert log.highest_offset_in_remote_storage == start - 1
            assert tier.listed() == [
                *((each, STATE.COPY_SEGMENT_FINISHED) for each in starts),
                (start, STATE.COPY_SEGMENT_STARTED),
            ]
            assert {each.base_offset for each in log.log_segments()} >= {start}
            starts.append(start)

        tier.storage.hooks["copy_log_segment_data"] = in_order
        assert made.run() == 0
        assert starts == [0, RECORDS, 2 * RECORDS, 3 * RECORDS]
        added, copied, finished = COPIED
        assert made.changes() == [added, *(copied, finished, added) * 3, copied, finished]
        assert tier.term.being_copied == frozenset()
        assert made.run() == tier.services.config.task_interval_ms / 1000


def test_a_run_ends_after_seconds() -> None:
    """If this fails, a backlog of days is one run, which no change of threads reaches and which looks like a hang."""
    with copying_tier(segments=8) as made:
        tier = made.tier
        tier.storage.hooks["copy_log_segment_data"] = lambda *_: tier.pass_time(2000)
        assert made.run() == 0
        assert len(tier.starts_listed()) == 3
        made.settle()
        assert len(tier.starts_listed()) == 8


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (RemoteStorageException("not known"), True),
        (RemoteStorageException("not known"), False),
        (InvalidTransitionError("late"), False),
        (RemoteResourceNotFoundException("gone"), False),
    ],
)
def test_an_end_that_fails_takes_the_next_copy_with_it(error: RemoteStorageException, stored: bool) -> None:
    """If this fails, a segment counts whose predecessor is not in the tier: local retention deletes what nobody has."""
    with copying_tier(segments=3) as made:
        tier, log = made.tier, made.tier.log
        fails = [True]

        def finish(update: Any) -> Any:
            if update.state is not STATE.COPY_SEGMENT_FINISHED or not fails:
                return None
            fails.clear()
            if stored:
                tier.metadata._inner.update_remote_log_segment_metadata(update).result(60)
            answer = tier.machine.scheduler.future()
            tier.machine.scheduler.start(lambda: answer.set_exception(error), name="late")
            return answer

        tier.metadata.hooks["update_remote_log_segment_metadata"] = finish
        pause = made.run()
        assert pause is not None
        assert pause > 0
        assert log.highest_offset_in_remote_storage == -1
        assert made.changes()[: len(COPIED) + 1] == [*COPIED, COPIED[0]]
        tier.pass_time(1000)
        assert tier.listed()[-1] == (RECORDS, STATE.COPY_SEGMENT_STARTED)
        assert tier.term.being_copied == frozenset()
        made.settle()
        assert made.changes()[:3] == REMOVED
        finished = [start for start, state in tier.listed() if state is STATE.COPY_SEGMENT_FINISHED]
        assert sorted(set(finished)) == [0, RECORDS, 2 * RECORDS]
        assert log.highest_offset_in_remote_storage == 3 * RECORDS - 1
        assert (RECORDS, STATE.COPY_SEGMENT_STARTED) not in tier.listed()


@pytest.mark.parametrize("change", ["the term ends", "copying is disabled", "copying stops"])
def test_what_ends_copying_ends_the_next_copy(change: str) -> None:
    """If this fails, a broker that leads no more stores a segment; or one that copies no more leaves an unfinished
    copy that nobody may delete.
    """
    with copying_tier(segments=3) as made:
        tier, seen = made.tier, list[int]()

        def end(metadata: Any) -> None:
            if metadata.start_offset != RECORDS:
                return
            if change == "the term ends":
                tier.term.end()
            elif change == "copying stops":
                tier.term.copying_stopped = True
            else:
                tier.limit(remote_log_copy_disable=True)

        tier.metadata.hooks["add_remote_log_segment_metadata"] = end
        tier.storage.hooks["copy_log_segment_data"] = lambda metadata, _: seen.append(metadata.start_offset)
        for _ in range(5):
            made.run()
        assert seen == [0]
        assert tier.term.being_copied == frozenset()
        rest = [(RECORDS, STATE.COPY_SEGMENT_STARTED)] if change == "the term ends" else []
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED), *rest]
        assert tier.stored() == 1


def test_a_next_copy_that_does_not_begin() -> None:
    """If this fails, an error of the next copy makes the last one, which is whole, count as failed."""
    with copying_tier(segments=2) as made:
        tier = made.tier

        def refuse(metadata: Any) -> None:
            if metadata.start_offset == RECORDS:
                raise RemoteStorageException("not now")

        tier.metadata.hooks["add_remote_log_segment_metadata"] = refuse
        assert made.run() == 0
        assert tier.log.highest_offset_in_remote_storage == RECORDS - 1
        assert tier.term.failure is None
        pause = made.run()
        assert pause is not None
        assert pause > 0
        assert tier.value("copy_errors") == 1
        assert tier.term.being_copied == frozenset()
        del tier.metadata.hooks["add_remote_log_segment_metadata"]
        made.settle()
        assert tier.starts_listed() == [0, RECORDS]
