"""A leader whose log must be rebuilt from the tier before it appends."""

from __future__ import annotations

import pytest

from tests.replication.test_leader import LAG_MS, LEADER, REPLICAS, refused
from tests.support.replicas import Replica, batch_of
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import KafkaError, LogClosedError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import (
    AuxStateBuilt,
    Brokers,
    BuildAuxState,
    FetchRecords,
    LeaderAndIsr,
    LeaderSettings,
    tick_all,
)
from tierlog.runtime.machine.clock import ManualClock


def cut_below_its_segments() -> Replica:
    """A replica of a tiered topic whose log, 0 to 7, was cut to 3 while it had no segment below 6."""
    config = LogConfig(remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)
    settings = LeaderSettings(replica_lag_time_max_ms=LAG_MS)
    replica = Replica(LEADER, ManualClock(), Brokers(), config=config, is_tiered=True, leader_settings=settings)
    log = replica.log
    for at in range(8):
        log.append_as_leader(batch_of([b"%d" % at]), leader_epoch=0)
        log.roll()
    log.update_high_watermark(8)
    log.update_highest_offset_in_remote_storage(5)
    log.delete_old_segments()
    log.truncate_to(3)
    assert (log.must_be_rebuilt, log.log_start_offset, log.log_end_offset) == (True, 0, 3)
    return replica


def test_a_leader_rebuilds_its_log_before_it_appends() -> None:
    """If this fails, records stand behind offsets that the tier has otherwise, and readers see a fork."""
    replica = cut_below_its_segments()
    leader, log, state = replica.leader, replica.log, LeaderAndIsr(4, 0, REPLICAS, frozenset(REPLICAS))
    assert leader.lead(state, 0)
    (build,) = leader.take_actions()
    assert isinstance(build, BuildAuxState)
    assert (build.leader_epoch, build.epoch, build.offset, build.log_start_offset) == (4, 0, 2, 0)
    assert not build.keeps_records
    for call, arguments in (
        (leader.append, {"data": batch_of([b"x"]), "required_acks": 1, "now_ms": 0}),
        (leader.fetch, {"replica_id": 2, "asked": FetchRecords(4, 3, 0, 0), "max_bytes": 1, "now_ms": 0}),
        (leader.end_offset_for_epoch, {"asked_epoch": 0}),
        (leader.list_offset, {"timestamp_ms": -1, "isolation": FetchIsolation.LOG_END}),
        (leader.wait_for_replication, {"required_offset": 1, "token": "x"}),
        (leader.delete_records, {"offset": -1, "token": "x"}),
    ):
        refused(KafkaError.KAFKA_STORAGE_ERROR, call, **arguments)
    assert (log.log_end_offset, replica.epochs) == (3, {0: 0}), "the epoch is not begun either"
    assert tick_all([leader], 10 * LAG_MS) == [leader]
    assert leader.take_actions() == [], "followers that cannot fetch do not leave the in-sync set"

    leader.on_build_failed(build, 0)
    assert leader.take_actions() == [build]
    leader.on_built(build, AuxStateBuilt(5), 0)
    (again,) = leader.take_actions()
    assert isinstance(again, BuildAuxState), "the log is as it was, whoever says that it was built"
    log.start_from_tier(5, log_start_offset=0, epochs=[(0, 0)], producer_snapshot=encode_producer_snapshot(()))
    refused(KafkaError.KAFKA_STORAGE_ERROR, leader.append, batch_of([b"x"]), required_acks=1, now_ms=0)
    leader.on_built(build, AuxStateBuilt(5), 0)
    refused(KafkaError.KAFKA_STORAGE_ERROR, leader.append, batch_of([b"x"]), required_acks=1, now_ms=0)
    assert leader.take_actions() == [], "an answer to what is no longer asked"

    leader.on_built(again, AuxStateBuilt(5), 20 * LAG_MS)
    assert (replica.append(b"x"), replica.epochs) == (6, {0: 0, 4: 5})
    assert tick_all([leader], 20 * LAG_MS) == [], "they lag as of now"
    leader.fetch(2, FetchRecords(4, 6, 4, 0), max_bytes=1, now_ms=20 * LAG_MS)


def test_a_leader_whose_lineage_begins_too_late_keeps_its_records() -> None:
    """It may be the only replica: its lineage is completed from the tier, and no record goes."""
    replica = cut_below_its_segments()
    log = replica.log
    log.truncate_fully_and_start_at(6, 0)
    for _ in range(2):
        log.append_as_leader(batch_of([b"here"]), leader_epoch=3)
    replica.lose_lineage()
    log, leader = replica.log, replica.leader
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 6)
    leader.lead(LeaderAndIsr(4, 0, (LEADER,), frozenset((LEADER,))), 0)
    (build,) = leader.take_actions()
    assert isinstance(build, BuildAuxState)
    assert (build.epoch, build.offset, build.log_start_offset, build.keeps_records) == (-1, 5, 0, True)
    log.complete_lineage([(0, 0), (2, 4)])
    leader.on_built(build, AuxStateBuilt(log.log_end_offset), 0)
    leader.append(batch_of([b"behind"]), required_acks=1, now_ms=0)
    assert replica.values() == [b"here", b"here", b"behind"]
    assert replica.epochs == replica.epochs_on_disk == {0: 0, 2: 4, 3: 6, 4: 8}


def test_a_leader_that_resigns_asks_for_its_log_no_more() -> None:
    """What is built meanwhile is its next leader's, or its own in another epoch."""
    replica = cut_below_its_segments()
    leader = replica.leader
    leader.lead(LeaderAndIsr(4, 0, REPLICAS, frozenset(REPLICAS)), 0)
    (build,) = leader.take_actions()
    assert isinstance(build, BuildAuxState)
    leader.resign()
    leader.on_build_failed(build, 0)
    leader.on_built(build, AuxStateBuilt(5), 0)
    assert (leader.take_actions(), replica.epochs) == ([], {0: 0})
    leader.lead(LeaderAndIsr(6, 1, REPLICAS, frozenset(REPLICAS)), 0)
    (later,) = leader.take_actions()
    assert isinstance(later, BuildAuxState)
    assert later.leader_epoch == 6


def test_a_leader_whose_topic_left_the_tier_begins_with_what_is_local() -> None:
    """If this fails, nobody reads or writes the partition up to its next election: the tier that its log waits for is
    gone.
    """
    replica = cut_below_its_segments()
    leader, log = replica.leader, replica.log
    leader.lead(LeaderAndIsr(4, 0, REPLICAS, frozenset(REPLICAS)), 0)
    (build,) = leader.take_actions()
    assert isinstance(build, BuildAuxState)
    log.update_config(LogConfig())
    log.close()
    with pytest.raises(LogClosedError):
        leader.on_build_failed(build, 0)
    replica.log = UnifiedLog.open(log.folder, machine=replica.machine)
    leader.log_moved(replica.log)
    leader.on_build_failed(build, 20 * LAG_MS)
    assert leader.take_actions() == []
    assert (replica.append(b"x"), replica.log.log_start_offset, replica.epochs) == (4, 3, {4: 3})
    assert tick_all([leader], 20 * LAG_MS) == [], "its followers lag as of now"
