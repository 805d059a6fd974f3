"""The expiration task: the segments that go from a tier, their order, and what a failure at any step leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.metadata_events import to
from tests.support.living_logs import batch_of
from tests.support.metadata_rig import store
from tests.support.tier_tasks import (
    BROKER,
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
from tierlog.log.local.log_errors import OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from tierlog.testing.memory_metadata_topic import MemoryMetadataLog

GONE = ["DELETE_SEGMENT_STARTED", "delete_log_segment_data", "DELETE_SEGMENT_FINISHED"]
KAFKA = {"remote.log.manager.kafka.semantics": "true"}


# ---- the rules


def test_nothing_goes_without_a_limit() -> None:
    with task_tier() as tier:
        tier.filled(3)
        assert tier.run() == 30.0
        assert tier.states_of(tier.calls) == []
        assert tier.stored() == 3


@pytest.mark.parametrize("kafka", [{}, KAFKA])
def test_by_size(kafka: dict[str, str]) -> None:
    """Exactly the oldest goes, after its offsets are no longer the log's."""
    with task_tier(manager=kafka) as tier:
        require_published(tier)
        tier.limit(retention_bytes=4 * segment_bytes(tier.filled(5)))
        tier.settle()
        assert tier.states_of(tier.calls) == ["published", *GONE]
        assert (tier.starts, tier.log.log_start_offset, tier.starts_listed()) == ([10], 10, [10, 20, 30, 40])
        assert tier.stored() == 4


@pytest.mark.parametrize("kafka", [{}, KAFKA])
def test_by_time(kafka: dict[str, str]) -> None:
    with task_tier(manager=kafka, retention_ms=MINUTE_MS) as tier:
        require_published(tier)
        tier.filled(2)
        tier.pass_time(MINUTE_MS // 2)
        tier.filled(1)
        tier.settle()
        assert tier.starts == []
        tier.pass_time(MINUTE_MS // 2 + 1000)
        tier.settle()
        assert (tier.starts, tier.starts_listed(), tier.stored()) == ([20], [20], 1)


def test_delete_segments_by_retention_size() -> None:
    """Kafka's DeleteSegmentsByRetentionSizeTest: with a limit of one byte all that is copied goes."""
    with task_tier() as tier:
        tier.filled(3)
        tier.log.append_as_leader(batch_of(b"active"), leader_epoch=0)
        tier.limit(retention_bytes=1)
        tier.settle()
        assert (tier.stored(), tier.log.log_start_offset) == (0, 30)
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {0: 30}


def test_delete_segments_by_retention_time() -> None:
    """Kafka's DeleteSegmentsByRetentionTimeTest: with a limit of a millisecond all that is copied goes."""
    with task_tier() as tier:
        tier.filled(3)
        tier.limit(retention_ms=1)
        tier.pass_time(1000)
        tier.settle()
        assert (tier.stored(), tier.log.log_start_offset) == (0, 30)
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {0: 30}


def test_delete_segments_due_to_log_start_offset_breach() -> None:
    """Kafka's DeleteSegmentsDueToLogStartOffsetBreachTest: DeleteRecords into the tier, for two leaders."""
    with task_tier() as tier:
        tier.filled(2)
        tier.log.maybe_increment_log_start_offset(13, "DeleteRecords")
        tier.settle()
        assert (tier.starts_listed(), tier.stored(), tier.starts) == ([10], 1, [])
        tier.new_term()
        tier.log.assign_epoch_start_offset(1, 20)
        tier.filled(2, epoch=1)
        tier.log.maybe_increment_log_start_offset(37, "DeleteRecords")
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {1: 37}
        tier.settle()
        assert (tier.starts_listed(), tier.stored()) == ([30], 1)
        with pytest.raises(OffsetOutOfRangeError) as error:
            tier.log.read(36, max_bytes=1000, isolation=FetchIsolation.LOG_END)
        assert not error.value.is_in_tier


def test_delete_records_without_copying() -> None:
    """A topic that copies nothing more (``remote.log.copy.disable``) expires all the same."""
    with task_tier() as tier:
        tier.filled(3)
        tier.log.update_config(replace(tier.log.config, remote_log_copy_disable=True))
        tier.log.maybe_increment_log_start_offset(10, "DeleteRecords")
        tier.settle()
        assert tier.starts_listed() == [10, 20]


@pytest.mark.parametrize(("by", "limit"), [("retention_bytes", 0), ("retention_ms", 1)])
@pytest.mark.parametrize("seed", range(3))
def test_several_epochs(by: str, limit: int, seed: int) -> None:
    with task_tier(seed) as tier:
        for epoch in (0, 1, 4):
            tier.log.assign_epoch_start_offset(epoch, tier.log.log_end_offset)
            tier.filled(2, epoch=epoch)
        require_published(tier)
        tier.pass_time(1000)
        tier.limit(**{by: limit})
        tier.settle()
        assert (tier.stored(), tier.log.log_start_offset, tier.starts) == (0, 60, [60])
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {4: 60}


def test_overlapping_segments() -> None:
    """After a failover the new leader's segments overlap those of the old one: each goes once, and both in the end."""
    with task_tier() as tier:
        tier.append(segments=3)
        for base, end in ((0, 10), (0, 20), (10, 30)):
            tier.finish_copy(tier.begin_copy(base, end))
        tier.log.update_highest_offset_in_remote_storage(29)
        tier.pass_time(1000)
        tier.limit(retention_ms=1)
        tier.calls.clear()
        tier.settle()
        assert tier.states_of(tier.calls) == ["published", *GONE * 3]
        assert tier.starts == [30]


def test_a_dead_branch_counts_for_no_size() -> None:
    """Script 3: u1 reaches beyond its epoch in this log. It neither goes by size nor makes others go."""
    with task_tier() as tier:
        tier.append(segments=1)
        tier.log.assign_epoch_start_offset(1, 10)
        segments = tier.filled(2, epoch=1)
        dead = tier.begin_copy(0, 30, epochs={0: 0}, broker_id=OTHER_BROKER)
        tier.finish_copy(dead)
        tier.limit(retention_bytes=3 * segment_bytes(segments[:1]) + 100)
        tier.settle()
        assert tier.starts == []
        assert len(tier.listed()) == 4


def test_script_4_an_unreferenced_segment_goes_once_its_epoch_is_past() -> None:
    """u1 {0:0} 0–2 is dead from offset 1 on. It stays while epoch 0 is the log's, and goes with it; no start moves."""
    with task_tier() as tier:
        tier.append(segments=1)
        dead = tier.begin_copy(0, 30, epochs={0: 0}, broker_id=OTHER_BROKER)
        tier.finish_copy(dead)
        tier.log.assign_epoch_start_offset(1, 10)
        tier.filled(2, epoch=1)
        tier.settle()
        assert len(tier.listed()) == 4
        tier.log.maybe_increment_log_start_offset(10, "DeleteRecords")
        tier.settle()
        assert tier.starts_listed() == [10, 20]
        assert tier.starts == []


def test_a_segment_that_another_epoch_refers_to_stays() -> None:
    """All of a segment's epochs must lie in front of the log's: one that the log still has keeps it."""
    with task_tier() as tier:
        tier.append(segments=1)
        tier.log.assign_epoch_start_offset(1, 10)
        tier.append(segments=1, epoch=1)
        both = tier.begin_copy(0, 20)
        assert dict(both.segment_leader_epochs) == {0: 0, 1: 10}
        tier.finish_copy(both)
        tier.log.maybe_increment_log_start_offset(15, "DeleteRecords")
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {1: 15}
        tier.settle()
        assert tier.starts_listed() == [0]


# ---- the copied offset and the start are known first


def test_size_before_the_copied_offset_is_known() -> None:
    """KAFKA-20732: local bytes would count twice, and live segments would go on every replica."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(4))
        reopened(tier, retention_bytes=4 * size)
        tier.settle()
        assert (tier.starts, tier.stored()) == ([], 4)
        assert tier.log.highest_offset_in_remote_storage == 39
        tier.limit(retention_bytes=3 * size)
        tier.settle()
        assert tier.starts == [10]


@pytest.mark.parametrize("call", ["highest_offset_for_epoch", "list_remote_log_segments"])
def test_a_copied_offset_that_cannot_be_found(call: str) -> None:
    """Nothing goes by size then; what is too old does, where segments can be listed."""
    with task_tier() as tier:
        tier.filled(4)
        reopened(tier, retention_bytes=0)
        tier.metadata.hooks[call] = failing(RemoteStorageException("no answer"))
        pause = tier.run()
        assert pause is not None
        assert 0.3 < pause < 0.7
        assert tier.stored() == 4
        if call == "highest_offset_for_epoch":
            tier.pass_time(1000)
            tier.limit(retention_ms=1)
            tier.settle()
            assert tier.stored() == 0
        else:
            tier.metadata.hooks.clear()
            tier.settle()
            assert tier.stored() == 0
        assert tier.log.log_start_offset == 40


def test_a_copy_that_finishes_while_the_tier_is_listed() -> None:
    """Its bytes count once: as the tier's or as local, never as both."""
    with task_tier() as tier:
        segments = tier.filled(3)
        tier.append()
        tier.run()
        last = tier.begin_copy(30, 40)
        tier.finish_copy(last)  # and the copy task has not told the log
        tier.limit(retention_bytes=4 * segment_bytes(segments))
        tier.settle()
        assert tier.starts == []


def test_a_copy_of_which_the_log_hears_behind_a_look_counts() -> None:
    """Its bytes were in neither sum until the tier changed once more (simulation, seed 180577)."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.limit(retention_bytes=5 * size)
        tier.settle()
        tier.append()
        tier.finish_copy(tier.begin_copy(30, 40))
        tier.settle()
        assert (tier.starts, tier.log.highest_offset_in_remote_storage) == ([], 29)
        tier.log.update_highest_offset_in_remote_storage(39)
        tier.append(segments=2)
        tier.settle()
        assert tier.starts == [10]


def test_a_log_that_moved_to_another_disk_is_told_again() -> None:
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.limit(retention_bytes=3 * size)
        tier.settle()
        term = tier.term
        reopened(tier, retention_bytes=3 * size)
        tier.term = term
        tier.term = tier.new_term()
        tier.settle()
        assert (tier.starts, tier.log.highest_offset_in_remote_storage) == ([], 29)


def test_the_lowest_goes_first_whatever_the_reason() -> None:
    """Of epochs in front of the lineage, and in front of the log start: a leader that crashes in between leaves a hole
    for the next one that has not got the start, and consumers stand in front of it for ever.
    """
    with task_tier() as tier:
        tier.filled(2)
        tier.filled(2, epoch=1)
        tier.append(epoch=1)
        tier.log.maybe_increment_log_start_offset(35, "DeleteRecords")
        assert tier.log.leader_epoch_cache.epoch_with_offsets() == {1: 35}
        gone = []
        while tier.run() == 0.0:
            gone.append(tier.starts_listed())
        assert gone == [[10, 20, 30], [20, 30], [30]]


def test_a_start_that_a_dead_leader_published() -> None:
    """The old leader deleted what this log still begins with: consumers get the earliest offset that there is."""
    with task_tier() as tier:
        segments = tier.filled(3)
        tier.log.maybe_increment_local_log_start_offset(30, "local retention")
        tier.finish_copy(segments[0], STATE.DELETE_SEGMENT_STARTED)
        tier.settle()
        assert (tier.starts_listed(), tier.log.log_start_offset, tier.starts) == ([10, 20], 10, [10])


@pytest.mark.parametrize("goes_here_later", [False, True])
def test_a_start_that_went_behind_this_leaders_back(goes_here_later: bool) -> None:
    """The old leader's deletion is over, and known here only after this leader had looked; or what it deleted was here
    until now. If this fails, the log offers an earliest offset that nobody can read.
    """
    with task_tier() as tier:
        segments = tier.filled(3)
        tier.limit(retention_bytes=1 << 30)
        if not goes_here_later:
            tier.log.maybe_increment_local_log_start_offset(30, "local retention")
        tier.settle()
        for state in (STATE.DELETE_SEGMENT_STARTED, STATE.DELETE_SEGMENT_FINISHED):
            tier.finish_copy(segments[0], state)
            assert (tier.log.log_start_offset, tier.starts) == (0, [])
        if goes_here_later:
            tier.settle()
            assert tier.log.log_start_offset == 0
            tier.log.maybe_increment_local_log_start_offset(30, "local retention")
        tier.settle()
        assert (tier.starts_listed(), tier.log.log_start_offset, tier.starts) == ([10, 20], 10, [10])


def test_a_size_after_delete_records() -> None:
    """Segments in front of a DeleteRecords are no part of the log. In Kafka they make live ones go."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(4))
        tier.log.maybe_increment_log_start_offset(20, "DeleteRecords")
        tier.limit(retention_bytes=2 * size)
        tier.settle()
        assert (tier.starts, tier.starts_listed()) == ([], [20, 30])


# ---- copies that began


def test_a_copy_under_way_stays() -> None:
    """Nor does what lies behind it go."""
    with task_tier() as tier:
        tier.filled(1)
        tier.append(segments=2)
        begun = tier.begin_copy(10, 20)
        tier.pass_time(2 * MINUTE_MS)
        tier.limit(retention_ms=1)
        with tier.term.copying(begun.remote_log_segment_id):
            tier.settle()
            assert tier.starts_listed() == [10]
        tier.finish_copy(begun)
        tier.settle()
        assert tier.starts_listed() == []


@pytest.mark.parametrize("broker_id", [BROKER, OTHER_BROKER])
def test_an_unfinished_copy_goes(broker_id: int) -> None:
    """Its broker has ended or lost the partition: nobody finishes it. The log keeps its start."""
    with task_tier() as tier:
        tier.filled(2)
        begun = tier.begin_copy(10, 20, broker_id=broker_id)
        tier.settle()
        tier.pass_time(MINUTE_MS - 10_000)
        tier.settle()
        assert tier.starts_listed() == [0, 10, 10]
        tier.pass_time(10_000)
        with tier.term.copying(begun.remote_log_segment_id):
            tier.settle()
            assert tier.starts_listed() == [0, 10, 10]
        tier.calls.clear()
        tier.settle()
        assert tier.states_of(tier.calls) == GONE
        assert (tier.starts_listed(), tier.starts) == ([0, 10], [])
        with pytest.raises((InvalidTransitionError, RemoteStorageException)):
            tier.finish_copy(begun)


def test_an_unfinished_deletion_goes_on() -> None:
    """If this fails, a broker that died while it removed a failed copy leaves its objects until the segments in front
    of it expire, which may be never.
    """
    with task_tier() as tier:
        tier.filled(2)
        tier.append()
        begun = tier.begin_copy(20, 30)
        tier.settle()
        tier.finish_copy(begun, STATE.DELETE_SEGMENT_STARTED)
        tier.settle()
        assert tier.starts_listed() == [0, 10, 20]
        tier.pass_time(MINUTE_MS)
        tier.calls.clear()
        tier.settle()
        assert tier.states_of(tier.calls) == GONE[1:]
        assert (tier.starts_listed(), tier.starts) == ([0, 10], [])


def test_an_unfinished_copy_that_finishes_after_all() -> None:
    with task_tier() as tier:
        tier.filled(1)
        begun = tier.begin_copy(0, 10, broker_id=OTHER_BROKER)
        tier.pass_time(2 * MINUTE_MS)
        is_due = tier.expirations._is_due

        def late(*given: Any) -> bool:
            tier.finish_copy(begun)
            return is_due(*given)

        tier.expirations._is_due = late  # type: ignore[assignment,method-assign]
        tier.settle()
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED)] * 2


def test_a_broker_that_reads_no_metadata_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, it deletes what another one has copied and deleted locally meanwhile."""
    with task_tier() as tier:
        tier.filled(1)
        begun = tier.begin_copy(0, 10, broker_id=OTHER_BROKER)
        with monkeypatch.context() as cut:
            cut.setattr(MemoryMetadataLog, "read", failing(RetriableRemoteStorageException("no answer")))
            tier.pass_time(2 * MINUTE_MS)
            store(tier.rig, to(begun, STATE.COPY_SEGMENT_FINISHED))
            tier.run()  # by what it knows it was given up
            assert isinstance(tier.term.expiry.faults.last, RemoteStorageException)
        tier.pass_time(30_000)
        tier.settle()
        assert tier.listed() == [(0, STATE.COPY_SEGMENT_FINISHED)] * 2


def test_by_kafkas_rules_an_unfinished_copy_waits_for_retention() -> None:
    with task_tier(manager=KAFKA) as tier:
        tier.append()
        tier.begin_copy(0, 10, broker_id=OTHER_BROKER)
        tier.pass_time(48 * MINUTE_MS)
        tier.settle()
        assert tier.starts_listed() == [0]
        tier.limit(retention_ms=MINUTE_MS)
        tier.settle()
        assert tier.starts_listed() == []


def test_an_unfinished_copy_has_no_size() -> None:
    with task_tier() as tier:
        size = segment_bytes(tier.filled(2))
        tier.append()
        tier.begin_copy(20, 30)
        tier.limit(retention_bytes=3 * size)
        tier.settle()
        assert tier.starts == []


# ---- what is not asked again


def lists(tier: TaskTier) -> int:
    """How often the task lists the segments until it has nothing to do."""
    tier.calls.clear()
    tier.settle()
    return sum(name == "list_remote_log_segments" for name, _ in tier.calls)


def test_an_unchanged_partition_is_not_listed_again() -> None:
    """Ten thousand of them would keep a core busy."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.limit(retention_bytes=10 * size, retention_ms=10 * MINUTE_MS)
        assert lists(tier) > 0
        assert [lists(tier) for _ in range(5)] == [0] * 5
        tier.filled(1)
        assert [lists(tier) > 0, lists(tier)] == [True, 0]
        tier.log.maybe_increment_log_start_offset(3, "DeleteRecords")
        assert [lists(tier) > 0, lists(tier)] == [True, 0]
        tier.log.assign_epoch_start_offset(2, 40)
        assert [lists(tier) > 0, lists(tier)] == [True, 0]
        tier.append(segments=5, epoch=2)  # local bytes count for the limit
        assert lists(tier) == 0
        tier.append(segments=2, epoch=2)
        assert [lists(tier) > 0, tier.starts] == [True, [10]]
        tier.pass_time(10 * MINUTE_MS + 1000)
        assert lists(tier) > 0
        assert tier.starts_listed() == []


def test_a_partition_without_segments_is_not_listed_again() -> None:
    """Of the partitions of a new cluster all would be, each half minute."""
    with task_tier() as tier:
        tier.limit(retention_bytes=1, retention_ms=10 * MINUTE_MS)
        assert [lists(tier) > 0, lists(tier), lists(tier)] == [True, 0, 0]
        tier.filled(1)
        assert lists(tier) > 0


def test_a_partition_that_is_above_its_size_by_less_than_a_segment_is_not_listed_again() -> None:
    """A partition that is full is so nearly always."""
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.limit(retention_bytes=3 * size - 1)
        assert [lists(tier) > 0, lists(tier), lists(tier)] == [True, 0, 0]
        tier.limit(retention_bytes=2 * size)
        assert [lists(tier) > 0, tier.starts] == [True, [10]]


def test_a_limit_that_is_new_is_seen() -> None:
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.settle()
        tier.limit(retention_bytes=2 * size)
        tier.settle()
        assert tier.starts == [10]


def test_a_manager_that_cannot_say_what_has_changed() -> None:
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.services.metadata.segments_version = lambda _: None  # type: ignore[assignment,method-assign]
        tier.settle()
        tier.settle()
        assert sum(name == "list_remote_log_segments" for name, _ in tier.calls) >= 4
        tier.limit(retention_bytes=2 * size)
        tier.settle()
        assert tier.starts == [10]


# ---- clocks


def jump(tier: TaskTier, ms: int) -> None:
    tier.machine.clock._start_ms += ms  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_date", [False, True])
def test_a_clock_that_jumps(has_date: bool) -> None:
    """Nothing expires by time; by size, and by the log's start, all goes on."""
    with task_tier(retention_ms=100 * MINUTE_MS) as tier:
        size = segment_bytes(tier.filled(4))
        tier.append()
        tier.begin_copy(40, 50, broker_id=OTHER_BROKER)
        if has_date:
            began, at = tier.now_ms, tier.machine.clock.monotonic_seconds()
            tier.storage.hooks["store_time_ms"] = lambda: (
                began + int((tier.machine.clock.monotonic_seconds() - at) * 1000)
            )
        jump(tier, 10_000 * MINUTE_MS)
        tier.settle()
        assert (tier.stored(), tier.expirations.clock_check.is_off) == (4, True)
        assert tier.starts_listed() == [0, 10, 20, 30, 40]
        tier.limit(retention_bytes=4 * size)
        tier.settle()
        assert tier.starts == [10]
        jump(tier, -10_000 * MINUTE_MS)
        tier.pass_time(1000)
        tier.settle()
        assert (tier.stored(), tier.expirations.clock_check.is_off) == (3, False)
        tier.pass_time(101 * MINUTE_MS)
        tier.settle()
        assert tier.stored() == 0


def test_a_clock_that_was_wrong_at_the_start() -> None:
    """The store's own time settles it."""
    with task_tier() as tier:
        jump(tier, 10_000 * MINUTE_MS)
        assert not tier.expirations.clock_check.trusted()
        tier.storage.hooks["store_time_ms"] = lambda: tier.now_ms - 1000
        assert tier.expirations.clock_check.trusted()
        tier.storage.hooks["store_time_ms"] = failing(ValueError("a bug of a third party's"))
        assert not tier.expirations.clock_check.trusted()


# ---- what is shown


def test_what_is_shown() -> None:
    with task_tier() as tier:
        segments = tier.filled(3)
        tier.append()
        tier.begin_copy(30, 40)
        tier.finish_copy(segments[0], STATE.DELETE_SEGMENT_STARTED)
        size = segment_bytes(segments)
        tier.storage.hooks["delete_log_segment_data"] = failing(RetriableRemoteStorageException("later"))
        tier.run()
        assert (tier.value("metadata_count"), tier.value("log_size_bytes")) == (4, 3 * size)
        tier.storage.hooks.clear()
        tier.settle()
        assert (tier.value("metadata_count"), tier.value("log_size_bytes")) == (3, 2 * size)
        assert tier.value("log_size_computation_seconds") >= 0


def test_the_lag_of_deletions() -> None:
    with task_tier() as tier:
        size = segment_bytes(tier.filled(5))
        tier.limit(retention_bytes=2 * size)
        lags = []
        while tier.run() == 0.0:
            lags.append((tier.value("delete_lag_segments"), tier.value("delete_lag_bytes")))
        assert lags == [(2, 2 * size), (1, size), (0, 0)]
        assert (tier.value("delete_requests"), tier.value("delete_errors")) == (3, 0)
