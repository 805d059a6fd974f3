"""The copy task: the segments that it copies, their order, and what a failure at any step leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.metadata_events import PARTITION
from tests.support.copying_tier import COPIED, REMOVED, copying_tier
from tests.support.living_logs import batch_of, ended
from tests.support.tier_tasks import (
    RECORDS,
    STATE,
    failing,
    moved_to_another_disk,
    reopened,
)
from tierlog.errors import StoreError
from tierlog.remote.api import (
    IndexType,
    InvalidTransitionError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    SegmentFileError,
)
from tierlog.remote.manager.copy_candidates import find_copy_candidate
from tierlog.remote.manager.segment_copies import CustomMetadataSizeLimitError
from tierlog.remote.manager.tiered_lineage import CopiedOffset
from tierlog.runtime.machine.cancelling import require_wanted

KAFKA = {"remote.log.manager.kafka.semantics": "true"}


@pytest.mark.parametrize("seed", range(3))
def test_a_segment_is_copied_in_order(seed: int) -> None:
    """If this fails, a segment counts as copied before it is, or one run holds a thread for a whole partition."""
    with copying_tier(seed) as made:
        tier, log = made.tier, made.tier.log
        made.others_wait = True
        for number in range(3):
            assert log.highest_offset_in_remote_storage == number * RECORDS - 1
            assert made.run() == 0
            assert made.changes() == COPIED
        assert made.run() == tier.services.config.task_interval_ms / 1000
        assert made.changes() == []
        assert tier.listed() == [(start, STATE.COPY_SEGMENT_FINISHED) for start in (0, RECORDS, 2 * RECORDS)]
        assert log.highest_offset_in_remote_storage == 3 * RECORDS - 1
        assert tier.term.offsets.copied == CopiedOffset(3 * RECORDS - 1, 0)
        assert tier.stored() == 3
        sizes = sum(each.segment_size_in_bytes for each in tier.metadata.list_remote_log_segments(PARTITION))
        assert tier.value("copy_bytes") == sizes
        assert tier.value("copy_requests") == 3
        assert tier.value("copy_errors") == 0


def test_what_a_copy_says_of_its_segment() -> None:
    """If this fails, another leader, or a follower that starts here, has a wrong lineage or overlooks aborted data."""
    with copying_tier(segments=1) as made:
        log = made.tier.log
        log.append_as_leader(batch_of(b"a", transactional=True, producer_id=7, base_sequence=0), leader_epoch=1)
        log.append_as_leader(batch_of(b"b", timestamp_ms=made.tier.now_ms + 5), leader_epoch=2)
        ended(log, 7, commits=False, leader_epoch=2)
        log.roll()
        made.settle()
        first, second = sorted(
            made.tier.metadata.list_remote_log_segments(PARTITION), key=lambda each: int(each.start_offset)
        )
        assert (first.txn_idx_empty, second.txn_idx_empty) == (True, False)
        assert dict(second.segment_leader_epochs) == {1: RECORDS, 2: RECORDS + 1}
        assert second.max_timestamp_ms >= made.tier.now_ms
        with made.tier.store.fetch_index(second, IndexType.LEADER_EPOCH) as stream:
            assert stream.read() == b"0\n3\n0 0\n1 10\n2 11\n"
        with made.tier.store.fetch_index(second, IndexType.TRANSACTION) as stream:
            assert stream.read()


def test_a_segment_without_leader_epochs() -> None:
    """If this fails, a log that is cut under a copy ends it by a bare ValueError."""
    with copying_tier(segments=2) as made:
        tier, log = made.tier, made.tier.log
        made.others_wait = True
        assert made.run() == 0
        log.leader_epoch_cache.clear_and_flush()
        made.run()
        assert isinstance(tier.term.copy_faults.last, RetriableRemoteStorageException)
        assert "no leader epoch is known of offsets 10 to 20" in str(tier.term.copy_faults.last)
        assert tier.value("copy_errors") == 0
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED)]
        log.assign_epoch_start_offset(0, 0)
        made.settle()
        assert tier.listed() == [(start, STATE.COPY_SEGMENT_FINISHED) for start in (0, RECORDS)]


def test_candidates() -> None:
    """If this fails, the active segment is copied, or one whose last record is not stable (next.base <= LSO + 1)."""
    with copying_tier(segments=2) as made:
        log = made.tier.log

        def bases() -> list[int]:
            found, copied = [], -1
            while (each := find_copy_candidate(log, copied_offset=copied, now_ms=made.tier.now_ms)) is not None:
                found.append(each.segment.base_offset)
                copied = each.end_offset - 1
            return found

        assert bases() == [0, RECORDS]
        log.append_as_leader(batch_of(b"open", transactional=True, producer_id=7, base_sequence=0), leader_epoch=0)
        log.roll()
        made.tier.append()
        assert log.last_stable_offset == 2 * RECORDS
        assert bases() == [0, RECORDS]
        ended(log, 7, commits=True)
        assert bases() == [0, RECORDS, 2 * RECORDS, 2 * RECORDS + 1]
        log.maybe_increment_log_start_offset(RECORDS + 1, "delete records")
        assert bases() == [RECORDS, 2 * RECORDS, 2 * RECORDS + 1]
        assert find_copy_candidate(log, copied_offset=RECORDS - 1, now_ms=0).segment.base_offset == RECORDS  # type: ignore[union-attr]


def test_a_delayed_copy() -> None:
    """If this fails, a topic that delays its copies (KIP-1241) tiers at once, or never."""
    with copying_tier(segments=3) as made:
        tier, size = made.tier, made.tier.log.log_segments()[0].size_bytes

        def due(**limits: int | None) -> bool:
            tier.limit(**limits)  # type: ignore[arg-type]
            return find_copy_candidate(tier.log, copied_offset=-1, now_ms=tier.now_ms) is not None

        tier.log.append_as_leader(batch_of(b"now", timestamp_ms=tier.now_ms), leader_epoch=0)
        behind = tier.log.size() - size
        assert due(remote_copy_lag_bytes=behind)
        assert not due(remote_copy_lag_bytes=behind + 1)
        assert not due(remote_copy_lag_ms=60_000)
        assert due(remote_copy_lag_ms=0)
        assert not due(remote_copy_lag_ms=60_000)
        tier.pass_time(60_000)
        assert due()
        assert not due(remote_copy_lag_ms=-1)  # the local retention has no limit
        assert due(retention_ms=60_000)
        assert not due(remote_copy_lag_ms=None, remote_copy_lag_bytes=-1, local_retention_bytes=-2, retention_bytes=-1)
        assert due(retention_bytes=behind)
        assert due(remote_copy_lag_ms=None, remote_copy_lag_bytes=None)


def test_the_quota() -> None:
    """If this fails, copies take the store's bandwidth from everyone, or a thread waits for the quota."""
    with copying_tier() as made:
        size = made.tier.log.log_segments()[0].size_bytes
        made.quota.change(size)
        made.quota.admit(10 * size)
        pause = made.run()
        assert pause is not None
        assert 0 < pause <= 1
        assert made.changes() == []
        made.tier.pass_time(15_000)
        made.others_wait = True
        assert made.run() == 0
        assert made.changes() == COPIED
        assert made.tier.services.metrics.registry.get_sample_value(
            "tierlog_remote_manager_copy_throttle_seconds_count"
        )


# ---- failures


@pytest.mark.parametrize("error", [RemoteStorageException("no"), RuntimeError("a bug"), TypeError("another")])
def test_a_failed_copy_leaves_nothing(error: Exception) -> None:
    """If this fails, failed copies fill the bucket, or an id is used again."""
    with copying_tier() as made:
        tier = made.tier
        tier.storage.hooks["copy_log_segment_data"] = failing(error)
        pause = made.run()
        assert pause is not None
        assert 0 < pause < 1
        assert made.changes() == [*COPIED[:2], *REMOVED]
        assert tier.listed() == []
        assert tier.value("copy_errors") == 1
        assert tier.term.failure is error
        assert tier.log.highest_offset_in_remote_storage == -1
        del tier.storage.hooks["copy_log_segment_data"]
        made.settle()
        assert tier.starts_listed() == [0, RECORDS, 2 * RECORDS]
        assert tier.term.failure is None


def test_each_attempt_has_another_id() -> None:
    """If this fails, a late request of a failed attempt changes the objects of the one that counts."""
    with copying_tier() as made:
        ids: list[object] = []

        def note(metadata: Any, _files: object) -> None:
            ids.append(metadata.remote_log_segment_id)
            raise RetriableRemoteStorageException("later")

        made.tier.storage.hooks["copy_log_segment_data"] = note
        for _ in range(4):
            made.run()
        assert len(ids) == len(set(ids)) == 4


def test_a_store_that_is_away() -> None:
    """If this fails, an outage leaves one unfinished copy an attempt, counts as errors, or is tried without a pause."""
    with copying_tier() as made:
        tier = made.tier
        tier.store.unavailable = True
        pauses = [made.run() for _ in range(12)]
        assert len(tier.listed()) == 1  # the last one, whose removal comes before the next copy
        assert tier.value("copy_errors") == 0
        assert all(each is not None and each > 0 for each in pauses)
        assert pauses[-1] is not None
        assert 24 <= pauses[-1] <= 36
        tier.store.unavailable = False
        made.settle()
        assert tier.listed() == [(start, STATE.COPY_SEGMENT_FINISHED) for start in (0, RECORDS, 2 * RECORDS)]
        assert tier.stored() == 3


def test_kafka_leaves_what_a_store_that_is_away_left() -> None:
    """If this fails, the compatible mode removes what Kafka leaves to retention."""
    with copying_tier(manager=KAFKA) as made:
        made.tier.store.unavailable = True
        made.run()
        assert made.changes() == COPIED[:2]
        assert [state for _, state in made.tier.listed()] == [STATE.COPY_SEGMENT_STARTED]
        made.tier.store.unavailable = False
        made.settle()
        assert [state for _, state in made.tier.listed()].count(STATE.COPY_SEGMENT_STARTED) == 1


def test_custom_metadata_beyond_the_limit() -> None:
    """If this fails, a plugin that gives too much stops the broker's metadata, or leaves its objects."""
    with copying_tier() as made:
        tier = made.tier
        seen: list[object] = []

        def copy(metadata: Any, files: Any) -> bytes:
            tier.store.copy_log_segment_data(metadata, files)
            return b"x" * 129

        tier.storage.hooks["copy_log_segment_data"] = copy
        tier.storage.hooks["delete_log_segment_data"] = lambda metadata: seen.append(metadata.custom_metadata)
        made.run()
        assert seen == [b"x" * 129]
        assert isinstance(tier.term.failure, CustomMetadataSizeLimitError)
        assert tier.term.copying_stopped
        made.changes()
        assert made.run() is None
        assert made.changes() == []
        assert tier.listed() == []
        assert tier.stored() == 0
        assert tier.value("copy_errors") == 1


def test_a_damaged_local_segment() -> None:
    """If this fails, a damaged segment is tried for ever, deleted locally, or shown nowhere."""
    with copying_tier() as made:
        tier, made.others_wait = made.tier, True
        made.run()
        tier.storage.hooks["copy_log_segment_data"] = failing(SegmentFileError("the log is damaged"))
        made.run()
        assert tier.term.copying_stopped
        assert tier.value("copy_errors") == 1
        made.changes()
        assert made.run() is None
        assert made.changes() == []
        assert len(tier.log.log_segments()) == 4
        assert tier.starts_listed() == [0]
        tier.new_term()
        del tier.storage.hooks["copy_log_segment_data"]
        made.settle()
        assert tier.starts_listed() == [0, RECORDS, 2 * RECORDS]


def test_the_rest_of_a_last_copy_is_removed_later() -> None:
    """If this fails, a partition whose copying has stopped leaves objects, where the store is away just then."""
    with copying_tier() as made:
        tier = made.tier
        tier.storage.hooks["copy_log_segment_data"] = failing(SegmentFileError("the log is damaged"))
        tier.storage.hooks["delete_log_segment_data"] = failing(RetriableRemoteStorageException("away"))
        for _ in range(3):
            assert made.run() is not None, "there is something to do"
            assert tier.term.copying_stopped
            assert [state for _, state in tier.listed()] == [STATE.DELETE_SEGMENT_STARTED]
        del tier.storage.hooks["delete_log_segment_data"]
        assert made.run() is None
        assert tier.listed() == []


@pytest.mark.parametrize("refusal", [InvalidTransitionError, RemoteResourceNotFoundException])
def test_a_late_copy_is_removed_again(refusal: type[RemoteStorageException]) -> None:
    """If this fails, a zombie's segment counts though another leader removed it, or its objects stay for ever."""
    with copying_tier(segments=1) as made:
        tier = made.tier

        def copy(metadata: Any, files: Any) -> bytes:
            tier.store.copy_log_segment_data(metadata, files)
            tier.finish_copy(metadata, STATE.DELETE_SEGMENT_STARTED)  # the new leader's expiry
            if refusal is RemoteResourceNotFoundException:
                tier.finish_copy(metadata, STATE.DELETE_SEGMENT_FINISHED)
            return b""

        tier.storage.hooks["copy_log_segment_data"] = copy
        made.run()
        assert tier.stored() == 0
        assert tier.log.highest_offset_in_remote_storage == -1
        assert tier.value("copy_errors") == 1
        del tier.storage.hooks["copy_log_segment_data"]
        made.settle()
        assert tier.log.highest_offset_in_remote_storage == RECORDS - 1


def test_a_late_copy_is_removed_behind_its_term() -> None:
    """If this fails, a leader that was paused amid a copy, and is none any more, leaves its objects for ever.
    (Simulation, seed 10978.)
    """
    with copying_tier(segments=1) as made:
        tier = made.tier

        def copy(metadata: Any, files: Any) -> bytes:
            tier.store.copy_log_segment_data(metadata, files)
            tier.finish_copy(metadata, STATE.DELETE_SEGMENT_STARTED)
            tier.finish_copy(metadata, STATE.DELETE_SEGMENT_FINISHED)
            return b""

        def update(event: Any) -> None:
            if event.state is STATE.COPY_SEGMENT_FINISHED:
                tier.term.end()

        def delete(metadata: Any) -> None:
            require_wanted()
            tier.store.delete_log_segment_data(metadata)

        tier.storage.hooks |= {"copy_log_segment_data": copy, "delete_log_segment_data": delete}
        tier.metadata.hooks["update_remote_log_segment_metadata"] = update
        made.run()
        assert tier.stored() == 0


@pytest.mark.parametrize("is_stored", [False, True])
def test_it_is_not_known_whether_a_copy_counts(*, is_stored: bool) -> None:
    """If this fails, a segment is removed by which followers have deleted their own, or one is never copied."""
    with copying_tier(segments=1) as made:
        tier = made.tier

        def update(event: Any) -> None:
            if event.state is STATE.COPY_SEGMENT_FINISHED:
                if is_stored:
                    tier.metadata._inner.update_remote_log_segment_metadata(event).result(60)
                raise RetriableRemoteStorageException("the answer was lost")

        tier.metadata.hooks["update_remote_log_segment_metadata"] = update
        pause = made.run()
        assert pause is not None
        assert pause > 0
        assert tier.stored() == 1
        assert tier.log.highest_offset_in_remote_storage == -1
        del tier.metadata.hooks["update_remote_log_segment_metadata"]
        made.changes()
        made.settle()
        assert made.changes() == ([] if is_stored else COPIED)
        assert tier.log.highest_offset_in_remote_storage == RECORDS - 1


def test_metadata_that_are_not_stored_in_time() -> None:
    """If this fails, a metadata manager that hangs holds a copier's thread for ever."""
    with copying_tier() as made:
        tier = made.tier
        tier.metadata.hooks["add_remote_log_segment_metadata"] = lambda _: tier.machine.scheduler.future()
        began = tier.now_ms
        made.run()
        assert tier.now_ms - began == pytest.approx(tier.services.config.metadata_timeout_ms, abs=1000)
        assert "has not stored" in str(tier.term.failure)
        assert made.changes() == COPIED[:1]
        del tier.metadata.hooks["add_remote_log_segment_metadata"]
        made.settle()
        assert tier.log.highest_offset_in_remote_storage == 3 * RECORDS - 1


@pytest.mark.parametrize(
    "call", ["add_remote_log_segment_metadata", "copy_log_segment_data", "highest_offset_for_epoch"]
)
@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RemoteStorageException("no"), StoreError("no")])
def test_whatever_fails_goes_on_later(call: str, error: Exception) -> None:
    """If this fails, one error of a manager ends the tiering of a partition."""
    with copying_tier() as made:
        tier = made.tier
        managers = (tier.metadata, tier.storage)
        manager = managers[call == "copy_log_segment_data"]
        manager.hooks[call] = failing(error)
        for _ in range(3):
            pause = made.run()
            assert pause is not None
            assert pause > 0
        assert tier.value("copy_errors") == (0 if getattr(error, "retriable", False) else 3)
        del manager.hooks[call]
        made.settle()
        assert tier.listed() == [(start, STATE.COPY_SEGMENT_FINISHED) for start in (0, RECORDS, 2 * RECORDS)]
        assert tier.stored() == 3


# ---- the term, the log


@pytest.mark.parametrize("at", ["add_remote_log_segment_metadata", "copy_log_segment_data"])
def test_the_term_ends_during_a_copy(at: str) -> None:
    """If this fails, a broker that leads no more goes on copying, finishes a copy, or leaves its objects."""
    with copying_tier() as made:
        tier = made.tier
        real: Callable[..., Any] = getattr(tier.store if at.startswith("copy") else tier.metadata._inner, at)

        def call(*args: Any) -> Any:
            tier.term.end()
            return real(*args)

        (tier.storage if at.startswith("copy") else tier.metadata).hooks[at] = call
        assert made.run() is None
        assert "COPY_SEGMENT_FINISHED" not in made.changes()
        assert tier.stored() == 0
        assert tier.log.highest_offset_in_remote_storage == -1
        assert tier.value("copy_errors") == 0
        assert made.run() is None
        assert made.changes() == []


def test_files_stay_while_they_are_copied() -> None:
    """If this fails, retention, a cut, or a rename takes the files from under a copy (a lease that is not held)."""
    with copying_tier() as made:
        tier = made.tier
        folder = tier.log.folder

        def copy(metadata: Any, files: Any) -> bytes:
            tier.log.truncate_fully_and_start_at(100)
            tier.machine.files.rename(folder, folder + ".moved")
            try:
                tier.store.copy_log_segment_data(metadata, files)
            finally:
                tier.machine.files.rename(folder + ".moved", folder)
            return b""

        tier.storage.hooks["copy_log_segment_data"] = copy
        made.run()
        assert tier.term.failure is None
        assert tier.stored() == 1


def test_a_cut_lowers_the_copied_offset() -> None:
    """If this fails, records that were appended behind a cut are never copied, and are deleted locally all the same."""
    with copying_tier() as made:
        tier, log = made.tier, made.tier.log
        made.settle()
        log.truncate_to(RECORDS + 5)
        tier.append(segments=2, epoch=1)
        made.settle()
        assert log.highest_offset_in_remote_storage == log.active_segment.base_offset - 1
        segments = sorted(tier.metadata.list_remote_log_segments(PARTITION, 1), key=lambda each: int(each.start_offset))
        assert [(each.start_offset, dict(each.segment_leader_epochs)) for each in segments] == [
            (RECORDS, {0: RECORDS, 1: RECORDS + 5}),
            (2 * RECORDS + 5, {1: 2 * RECORDS + 5}),
        ]


def test_an_unclean_election() -> None:
    """Script 4: the copied offset is clipped to the epoch's end. If this fails, a branch that died counts as copied."""
    with copying_tier(segments=0) as made:
        tier, log = made.tier, made.tier.log
        log.append_as_leader(batch_of(b"m0"), leader_epoch=0)
        tier.begin_copy(0, 3, epochs={0: 0}, broker_id=2)
        (segment,) = tier.metadata.list_remote_log_segments(PARTITION)
        tier.finish_copy(segment)
        for value in (b"m4", b"m5"):
            log.append_as_leader(batch_of(value), leader_epoch=1)
        log.roll()
        made.run()
        assert tier.term.offsets.copied == CopiedOffset(2, 1)
        newest = list(tier.metadata.list_remote_log_segments(PARTITION, 1))
        assert [(each.start_offset, each.end_offset) for each in newest] == [(0, 2)]


@pytest.mark.parametrize("change", ["a closed segment", "a cut", "another disk", "the rest of a failed copy"])
def test_a_run_that_finds_nothing_asks_nobody(change: str) -> None:
    """If this fails, ten thousand partitions with nothing to do keep a core busy, or one that has is passed over."""
    with copying_tier() as made:
        tier = made.tier
        made.settle()
        tier.append(segments=0)  # into the active segment
        tier.calls.clear()
        assert [made.run(), made.run()] == [30, 30]
        assert tier.calls == []
        if change == "a closed segment":
            tier.append(segments=1)
        elif change == "a cut":
            tier.log.truncate_to(RECORDS + 5)
            tier.append(segments=1, epoch=1)
        elif change == "another disk":
            moved_to_another_disk(tier)
        else:
            tier.term.unfinished = tier.begin_copy(3 * RECORDS, 4 * RECORDS)
        tier.calls.clear()
        made.settle()
        assert tier.calls
        assert tier.term.unfinished is None
        assert tier.log.highest_offset_in_remote_storage == tier.log.active_segment.base_offset - 1
        assert {state for _, state in tier.listed()} == {STATE.COPY_SEGMENT_FINISHED}


def test_the_log_start_is_found_first() -> None:
    """If this fails, a broker whose checkpoints were lost begins its log at what is local."""
    with copying_tier() as made:
        made.settle()
        reopened(made.tier)
        made.tier.log.maybe_increment_local_log_start_offset(RECORDS, "deleted locally")
        made.settle()
        assert made.tier.log.highest_offset_in_remote_storage == 3 * RECORDS - 1
        assert made.changes() == [*COPIED * 3]


def test_a_log_on_another_disk() -> None:
    """If this fails, a log that was moved believes the offsets of the disk that it left."""
    with copying_tier() as made:
        made.settle()
        made.tier.calls.clear()
        moved_to_another_disk(made.tier)
        assert made.tier.log.highest_offset_in_remote_storage == -1
        made.settle()
        assert made.tier.log.highest_offset_in_remote_storage == 3 * RECORDS - 1
        asked = [name for name, _ in made.tier.calls]
        assert {"highest_offset_for_epoch", "list_remote_log_segments"} <= set(asked)
        made.tier.calls.clear()
        made.settle()
        assert "highest_offset_for_epoch" not in [name for name, _ in made.tier.calls]


def test_nothing_is_copied_of_a_log_that_must_not_be() -> None:
    """If this fails, a topic that is copied no more goes on, or one whose lineage is not whole."""
    with copying_tier() as made:
        made.tier.limit(remote_log_copy_disable=True)
        assert made.run() == 30
        assert made.changes() == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at", range(1, 9))
def test_a_crash_at_any_call(seed: int, at: int) -> None:
    """If this fails, a broker that dies in a copy loses a segment, or has it twice in its log's lineage."""

    class Died(BaseException):
        """The process is gone."""

    with copying_tier(seed) as made:
        tier = made.tier
        count = 0

        def die(*_: object, **__: object) -> None:
            nonlocal count
            count += 1
            if count == at:
                raise Died

        for manager, calls in (
            (tier.metadata, ("add_remote_log_segment_metadata", "update_remote_log_segment_metadata")),
            (tier.storage, ("copy_log_segment_data",)),
        ):
            for call in calls:
                manager.hooks[call] = die
        with contextlib.suppress(Died):
            made.settle()
        tier.metadata.hooks.clear()
        tier.storage.hooks.clear()
        reopened(tier)
        made.settle()
        finished = sorted(start for start, state in tier.listed() if state is STATE.COPY_SEGMENT_FINISHED)
        assert finished == [0, RECORDS, 2 * RECORDS]
        assert tier.log.highest_offset_in_remote_storage == 3 * RECORDS - 1


@pytest.mark.parametrize("ends", [True, False])
def test_a_log_that_is_cut_while_its_copy_finishes(*, ends: bool) -> None:
    """If this fails, what is appended behind the cut counts as copied: local retention deletes records for good."""
    with copying_tier(segments=1) as made:
        tier, log = made.tier, made.tier.log

        def update(event: Any) -> Any:
            stored = tier.metadata._inner.update_remote_log_segment_metadata(event)
            stored.result(60)
            if ends:  # this broker follows from now on
                tier.term.end()
            log.truncate_to(5)
            if ends:
                tier.append(segments=2, epoch=1)
            return stored

        tier.metadata.hooks["update_remote_log_segment_metadata"] = update
        made.run()
        assert log.highest_offset_in_remote_storage <= 4
