"""A living log that is copied to a tier, begins in one, or has left it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import Any

import pytest

from tests.support.living_logs import FOLDER, batch_of, machine_of
from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.directory.directory_recovery import DirectoryRecovery, recover_directory
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut


@pytest.fixture
def machine() -> Machine:
    return machine_of()


def test_a_beginning_from_the_tier_that_is_refused_changes_nothing(machine: Machine) -> None:
    """If this fails, a follower whose tier is damaged has lost the log that it had."""
    config = LogConfig(remote_storage_enable=True)
    none = encode_producer_snapshot(())
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"log_start_offset": 6, "epochs": [(0, 0)], "producer_snapshot": none}),
        (ValueError, {"log_start_offset": 1, "epochs": [], "producer_snapshot": none}),
        (ValueError, {"log_start_offset": 1, "epochs": [(0, 2)], "producer_snapshot": none}),
        (ValueError, {"log_start_offset": 1, "epochs": [(1, 0), (0, 2)], "producer_snapshot": none}),
        (CorruptIndexError, {"log_start_offset": 1, "epochs": [(0, 0)], "producer_snapshot": none[:-1]}),
        (TypeError, {"log_start_offset": 1, "epochs": [(0, 0)], "producer_snapshot": None}),
    ]
    with UnifiedLog.open(FOLDER, machine=machine, config=config, remote_log_enabled=True) as log:
        log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        for error, arguments in refused:
            with pytest.raises(error):
                log.start_from_tier(5, **arguments)
            assert (log.log_start_offset, log.log_end_offset, log.is_offline) == (0, 1, False)


def test_a_cut_takes_back_what_is_copied(machine: Machine) -> None:
    """If this fails, local retention deletes what was appended behind a cut, and no tier has it."""
    config = LogConfig(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, remote_log_enabled=True, is_sole_replica=True) as log:
        for _ in range(10):
            log.append_as_leader(batch_of(b"a" * 100), leader_epoch=0)
        log.update_highest_offset_in_remote_storage(8)
        assert not log.truncate_to(10)
        assert log.highest_offset_in_remote_storage == 8
        assert log.truncate_to(3)
        assert log.highest_offset_in_remote_storage == 2
        for _ in range(7):
            log.append_as_leader(batch_of(b"b" * 100), leader_epoch=1)
        log.roll()
        assert log.delete_old_segments() == 3
        assert log.local_log_start_offset == 3
        log.truncate_to(1)
        assert log.highest_offset_in_remote_storage == 0


def test_a_log_that_left_the_tier_has_copied_nothing(machine: Machine) -> None:
    """If this fails, a topic that enters the tier again loses locally what its deleted tier once had."""
    config = LogConfig(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)
    with UnifiedLog.open(FOLDER, machine=machine, config=config, remote_log_enabled=True, is_sole_replica=True) as log:
        for _ in range(10):
            log.append_as_leader(batch_of(b"a" * 100), leader_epoch=0)
        log.update_highest_offset_in_remote_storage(8)
        log.update_config(dataclasses.replace(config, remote_storage_enable=False))
        assert log.highest_offset_in_remote_storage == -1
        log.update_config(config)
        assert log.highest_offset_in_remote_storage == -1
        assert log.delete_old_segments() == 0


def test_a_log_that_left_the_tier_starts_where_it_is_local(machine: Machine) -> None:
    """If this fails, a follower of then that leads next offers offsets that nobody has, and consumers that begin at the
    earliest one never get on.
    """
    config = LogConfig(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)
    untiered = dataclasses.replace(config, remote_storage_enable=False)

    def opened() -> UnifiedLog:
        return UnifiedLog.open(FOLDER, machine=machine, config=config, remote_log_enabled=True)

    log = opened()
    for _ in range(10):
        log.append_as_leader(batch_of(b"a" * 100), leader_epoch=0)
    log.maybe_increment_high_watermark(10)
    log.update_highest_offset_in_remote_storage(8)
    log.delete_old_segments()
    assert log.offsets[:2] == (0, 9)
    log.update_config(untiered)
    assert log.offsets[:2] == (9, 9)
    none = encode_producer_snapshot(())
    with pytest.raises(ValueError, match="not tiered"):  # a build that was under way
        log.start_from_tier(12, log_start_offset=0, epochs=[(0, 0)], producer_snapshot=none)
    with opened() as killed:  # the topic is in the tier again by then
        assert (killed.offsets[:2], killed.must_be_rebuilt) == ((9, 9), False)


#: Of a log whose closed segments go from here once the tier has them.
SMALL = LogConfig(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)


def opened(machine: Machine, config: LogConfig = SMALL, **more: Any) -> UnifiedLog:
    """Open the log in a broker that has a tier."""
    return UnifiedLog.open(FOLDER, machine=machine, config=config, remote_log_enabled=True, **more)


def mostly_in_tier(machine: Machine) -> UnifiedLog:
    """Make a log of ten records, of which the last is here and the others are in the tier alone."""
    log = opened(machine)
    for _ in range(10):
        log.append_as_leader(batch_of(b"a" * 100), leader_epoch=0)
    log.maybe_increment_high_watermark(10)
    log.update_highest_offset_in_remote_storage(8)
    log.delete_old_segments()
    return log


def test_a_log_that_was_to_be_rebuilt_and_left_the_tier_is_whole(machine: Machine) -> None:
    """If this fails, a follower waits for ever for a tier that is gone."""
    log = mostly_in_tier(machine)
    log.truncate_to(4)
    assert log.must_be_rebuilt
    log.update_config(dataclasses.replace(SMALL, remote_storage_enable=False))
    assert (log.offsets[:2], log.log_end_offset, log.must_be_rebuilt) == ((4, 4), 4, False)
    with opened(machine) as killed:
        assert (killed.offsets[:2], killed.must_be_rebuilt) == ((4, 4), False)


@pytest.mark.parametrize("seed", range(6))
def test_a_log_start_that_the_checkpoint_has_is_no_files_word_again(seed: int) -> None:
    """If this fails, a replica that an unclean leader cuts below its log start loses all of its log to a power cut: the
    file that came back says that the log starts behind its end.
    """
    config = LogConfig(remote_storage_enable=True)
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine, config)
        for _ in range(5):
            log.append_as_leader(batch_of(b"a"), leader_epoch=0)
        log.maybe_increment_high_watermark(5)
        log.maybe_increment_log_start_offset(4, "records were deleted")
        log.close()
        log = opened(machine, config, checkpoints=LogCheckpoints(5, log_start_offset=4), had_clean_shutdown=True)
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=seed)
        with contextlib.suppress(StoreError):
            log.truncate_to(2)
        if power.left is None:
            break
        left = dataclasses.replace(machine, files=power.left)
        found = opened(left, config, checkpoints=LogCheckpoints(2))  # it was lowered in front of the cut
        assert (found.log_start_offset, found.log_end_offset) in ((0, 2), (0, 5)), at
    assert at > 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_was_to_be_rebuilt_and_left_the_tier_while_it_was_down(machine: Machine, is_clean: bool) -> None:
    """If this fails, the partition can never lead here once the topic is in the tier again, and its follower ends with
    a ValueError: what it was to be rebuilt from went with the first tier.
    """
    mostly_in_tier(machine).truncate_to(4)
    with opened(machine, dataclasses.replace(SMALL, remote_storage_enable=False)) as log:
        assert (log.offsets[:2], log.log_end_offset, log.must_be_rebuilt) == ((4, 4), 4, False)
        log.append_as_leader(batch_of(b"here"), leader_epoch=2)
    with opened(machine, had_clean_shutdown=is_clean) as log:
        # A checkpoint that counts names no start of a log that is all local; the lineage in front is any tier's then.
        assert (log.offsets[:2], log.must_be_rebuilt) == ((0 if is_clean else 4, 4), is_clean)
        log.complete_lineage([(0, 0)])
        assert (log.log_end_offset, log.must_be_rebuilt) == (5, False)


def test_a_log_that_was_to_be_rebuilt_and_was_appended_to_by_another_broker(machine: Machine) -> None:
    """If this fails, a broker that ran on Kafka for a while cannot lead a partition that has all of its records."""
    log = mostly_in_tier(machine)
    log.truncate_to(4)
    log.append_as_leader(batch_of(b"Kafka's"), leader_epoch=2)  # Kafka knows nothing of a log that must be rebuilt
    with opened(machine) as found:
        assert (found.offsets[:2], found.log_end_offset, found.must_be_rebuilt) == ((0, 4), 5, False)
        assert found.leader_epoch_cache.epoch_with_offsets() == {0: 0, 2: 4}
        found.truncate_to(4)
    with opened(machine) as again:
        assert not again.must_be_rebuilt


def test_a_log_that_is_to_be_rebuilt_stays_so_under_tierlog_recover(machine: Machine) -> None:
    """If this fails, the log starts where it was cut, and as leader deletes what the tier has in front of that."""
    mostly_in_tier(machine).truncate_to(4)
    *_, outcome = recover_directory(FOLDER, machine=machine, config=LogConfig())
    assert isinstance(outcome, DirectoryRecovery)
    assert [(log.log_end_offset, log.error) for log in outcome.logs] == [(4, None)]
    with opened(machine) as log:
        assert (log.offsets[:2], log.must_be_rebuilt) == ((0, 4), True)


def test_a_high_watermark_lies_not_below_the_local_start(machine: Machine) -> None:
    """If this fails, a leader that starts after a kill clips the start of its log to 0, and offers what has expired."""
    log = mostly_in_tier(machine)
    assert log.offsets[:5] == (0, 9, 10, 10, 10)
    with opened(machine) as killed:  # no checkpoint says anything of the high watermark
        assert killed.offsets[:5] == (0, 9, 9, 9, 10)
        assert killed.update_high_watermark(4) == 9, "a leader that lags behind in deleting"
        assert killed.update_log_start_offset_from_remote_tier(7) == 7
        assert killed.update_log_start_offset_from_remote_tier(10) == 9


def test_a_log_that_is_copied_no_more_goes_by_time_behind_its_tier(machine: Machine) -> None:
    """If this fails, its start rises over what the tier has in front, whose records may be newer, and they go before
    their time.
    """
    log = mostly_in_tier(machine)
    log.append_as_leader(batch_of(b"a" * 100), leader_epoch=0)
    log.maybe_increment_high_watermark(11)
    stopped = dataclasses.replace(SMALL, remote_log_copy_disable=True, local_retention_bytes=-2, retention_ms=0)
    log.update_config(stopped)
    machine.clock.sleep(1)
    for start in (0, 8):
        log.update_log_start_offset_from_remote_tier(start)
        assert (log.delete_old_segments(), log.offsets[:2]) == (0, (start, 9))
    log.update_log_start_offset_from_remote_tier(9)
    assert (log.delete_old_segments(), log.offsets[:2]) == (2, (11, 11))
    log.close()
