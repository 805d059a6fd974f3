"""Starts from a snapshot: what is read again, what is passed over, and what a crash leaves."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.contract.metadata_events import (
    DELETED,
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    STARTED,
    bring,
    found,
    listed,
    put,
    removal,
    segment,
    to,
)
from tests.support.metadata_rig import COUNT, LOG_DIR, Rig, metric, rig, shares, store
from tests.support.segment_table_model import SegmentTableModel
from tierlog.errors import StoreError
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.metadata.topic_backed.saved_state import FILE_NAME
from tierlog.runtime.machine import Process
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

PATH = f"{LOG_DIR}/{FILE_NAME}"


def fill(made: Rig) -> None:
    """A manager that has stored three segments, and is closed again."""
    manager = made.leader()
    bring(manager, segment(1, 0, 9), FINISHED)
    bring(manager, segment(2, 10, 19), DELETED)
    bring(manager, segment(3, 20, 29), STARTED)
    manager.close()


class TestGoingOn:
    """A snapshot that fits."""

    def test_only_what_is_new_is_read(self) -> None:
        """The topic of a large cluster has millions of events. Whatever the thread was at when it was closed."""
        for seed in range(10):
            with rig(seed) as made:
                fill(made)
                store(made, to(segment(3, 20, 29), FINISHED))
                manager = made.leader()
                assert metric(manager, "events_applied_total") == 1, seed
                assert metric(manager, "events_passed_over_total") == 0
                assert (listed(manager), found(manager, 0, 5), found(manager, 0, 25)) == ([1, 3], 1, 3)
                assert manager.highest_offset_for_epoch(PARTITION, 0) == 29
                assert manager.remote_log_size(PARTITION, 0) == 2048

    def test_a_new_neighbour_is_read_from_the_beginning(self) -> None:
        """And what the snapshot has is not counted twice."""
        neighbour = shares(PARTITION, same=True)
        with rig() as made:
            store(made, segment(9, 0, 9, partition=neighbour))
            fill(made)
            manager = made.leader(LOG_DIR, PARTITION, neighbour)
            assert [each.state for each in manager.list_remote_log_segments(neighbour)] == [STARTED]
            assert listed(manager) == [1, 3]
            assert metric(manager, "events_refused_total") == 0

    def test_a_snapshot_of_a_start_that_was_cut_short(self) -> None:
        """A broker that stops while a partition is loaded goes on where it was."""
        neighbour = shares(PARTITION, same=True)
        with rig() as made:
            for number in range(1, 2001):
                store(made, segment(number, number, number, partition=neighbour))
            fill(made)
            manager = made.start()
            manager.on_partition_leadership_changes(frozenset({PARTITION, neighbour}), frozenset())
            made.machine.clock.sleep(0.001)
            manager.close()
            manager = made.leader(LOG_DIR, PARTITION, neighbour)
            assert len(list(manager.list_remote_log_segments(neighbour))) == 2000
            assert listed(manager) == [1, 3]

    def test_a_topic_whose_name_fits_no_snapshot(self, caplog: pytest.LogCaptureFixture) -> None:
        """Names come from the manager's embedder: one of 70,000 letters costs the snapshot, and nothing else."""
        with rig() as made:
            named = TopicIdPartition(Uuid(bytes(15) + b"\x09"), "x" * 70_000, 0)
            manager = made.leader(LOG_DIR, PARTITION, named)
            bring(manager, segment(1, 0, 9), FINISHED)
            with caplog.at_level(logging.WARNING):
                manager.close()
            assert "cannot be written" in caplog.text
            assert listed(made.leader(LOG_DIR, PARTITION)) == [1]

    def test_removals(self) -> None:
        """The remover goes on, and what was removed stays so."""
        with rig() as made:
            manager = made.leader(LOG_DIR, PARTITION, OTHER)
            bring(manager, segment(1, 0, 9), FINISHED)
            for state in REMOVAL:
                put(manager, state)
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED, OTHER), partition=OTHER)
            offset = store(made, removal(REMOVAL.DELETE_PARTITION_STARTED, OTHER), partition=OTHER)
            made.until(
                lambda: [each.state for each in manager.pending_removals()] == [REMOVAL.DELETE_PARTITION_STARTED]
            )
            manager.close()
            store(made, segment(4, 0, 9), to(segment(4, 0, 9), FINISHED))
            manager = made.leader(LOG_DIR, PARTITION, OTHER)
            (pending,) = manager.pending_removals()
            assert pending == removal(REMOVAL.DELETE_PARTITION_STARTED, OTHER)
            known = manager._removals.find(OTHER)
            assert known is not None
            assert (known.metadata_partition, known.offset) == (made.number(OTHER), offset)
            assert (listed(manager), found(manager, 0, 0)) == ([], None)
            assert metric(manager, "events_applied_total") == 0  # what was removed is not read again either

    def test_a_partition_that_is_claimed_late(self) -> None:
        """Its metadata partition was not read meanwhile, and was truncated."""
        elsewhere = shares(PARTITION, same=False)
        for seed in range(10):
            with rig(seed) as made:
                fill(made)
                manager = made.leader(LOG_DIR, elsewhere)
                made.topic.truncate(made.number(), 1)
                manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
                seen = set()
                while not seen:
                    with contextlib.suppress(RemoteStorageNotReadyException):
                        seen.add(tuple(listed(manager)))
                assert seen == {(1,)}, seed
                assert metric(manager, "rebuilds_total") == 1

    def test_partitions_that_nobody_claims(self) -> None:
        """They stay for a while, as a broker hears of its partitions one by one, and not for ever."""
        neighbour = shares(PARTITION, same=True)
        with rig() as made:
            manager = made.leader(LOG_DIR, PARTITION, neighbour)
            manager.add_remote_log_segment_metadata(segment(9, 0, 9, partition=neighbour)).result(10)
            manager.close()
            manager = made.leader()
            with pytest.raises(RemoteStorageException):
                manager.remote_log_size(neighbour, 0)
            made.lead(manager, neighbour)
            assert metric(manager, "events_applied_total") == 0  # nothing was read again
            manager.close()
            manager = made.leader()
            made.machine.clock.sleep(700)
            made.lead(manager, neighbour)
            assert metric(manager, "events_applied_total") == 1
            assert len(list(manager.list_remote_log_segments(neighbour))) == 1

    def test_a_record_that_cannot_be_read_still_cannot(self) -> None:
        """The position stays."""
        with rig() as made:
            manager = made.leader()
            bring(manager, segment(1, 0, 9), FINISHED)
            made.topic.append(made.number(), b"\x01\x09\x00")
            made.until(lambda: not manager.is_ready(PARTITION))
            manager.close()
            manager = made.start()
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            made.machine.clock.sleep(3)
            with pytest.raises(RemoteStorageException, match="cannot be read at offset 2"):
                found(manager, 0, 0)
            assert metric(manager, "events_applied_total") == 0

    def test_when_it_is_written(self) -> None:
        """At the interval if anything has changed, and at the end."""
        with rig() as made:
            files = made.machine.files
            manager = made.leader(snapshot_interval_ms=10_000)
            made.machine.clock.sleep(12)
            first = files.stat(PATH).modified_ms
            made.machine.clock.sleep(60)
            assert files.stat(PATH).modified_ms == first
            store(made, segment(1, 0, 9))
            made.machine.clock.sleep(12)
            assert files.stat(PATH).modified_ms > first
            never = made.leader("/other", snapshot_interval_ms=0)
            made.machine.clock.sleep(2000)
            assert files.find(f"/other/{FILE_NAME}") is None
            never.close()
            assert files.find(f"/other/{FILE_NAME}") is not None
            manager.close()

    def test_a_full_disk(self, caplog: pytest.LogCaptureFixture) -> None:
        """The manager goes on; the next start reads more."""
        with caplog.at_level(logging.WARNING), rig(files=MemoryFiles(capacity_bytes=100)) as made:
            manager = made.leader(snapshot_interval_ms=1000)
            bring(manager, segment(1, 0, 9), FINISHED)
            made.machine.clock.sleep(5)
            assert found(manager, 0, 0) == 1
            assert metric(manager, "snapshot_errors_total") > 0
            assert "cannot be written" in caplog.text


def damaged(made: Rig) -> None:
    data = bytearray(made.machine.files.read_whole(PATH))
    data[len(data) // 2] ^= 1
    made.machine.files.write_whole(PATH, bytes(data))


def cut(made: Rig) -> None:
    data = made.machine.files.read_whole(PATH)
    made.machine.files.write_whole(PATH, data[: len(data) // 2])


def truncated(made: Rig) -> None:
    made.topic.truncate(made.number(), 1)


def expired(made: Rig) -> None:
    for number in range(100, 110):
        store(made, segment(number, 1000, 1009))
    made.topic.expire(made.number(), made.topic.bounds(made.number()).end_offset - 1)


def recreated(made: Rig) -> None:
    made.topic.recreate()
    for number in range(100, 110):
        store(made, segment(number, 1000, 1009))


def replaced(made: Rig) -> None:
    made.machine.files.write_whole(PATH, b"something else")


class TestPassingOver:
    """A snapshot that does not fit: the topic counts."""

    @pytest.mark.parametrize(
        ("fault", "said", "expected"),
        [
            (damaged, "cannot be used", [1, 3]),
            (cut, "cut short", [1, 3]),
            (replaced, "cannot be used", [1, 3]),
            (truncated, "newer than the topic", [1]),
            (expired, "too old", [109]),
            (recreated, "of the topic", list(range(100, 110))),
        ],
    )
    def test_the_topic_is_read_from_its_beginning(
        self, fault: Callable[[Rig], None], said: str, expected: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        """A wrong answer loses segments, and the operator hears why the start took so long."""
        with rig() as made, caplog.at_level(logging.WARNING):
            fill(made)
            fault(made)
            manager = made.leader()
            assert said in caplog.text
            assert "read from its beginning" in caplog.text
            assert listed(manager) == expected
            manager.close()
            caplog.clear()
            assert listed(made.leader()) == expected
            assert not caplog.records

    @pytest.mark.parametrize("as_batches", [False, True])
    @pytest.mark.parametrize("noticed", [False, True])
    def test_the_topic_lost_its_end_and_grew_again(
        self, as_batches: bool, noticed: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If this fails, a power cut of all brokers leaves one that believes in segments which no other one knows, and
        deletes its own copy of their records. ``noticed``: the manager had loaded the topic anew, and not written it.
        """
        with rig(as_batches=as_batches) as made, caplog.at_level(logging.WARNING):
            manager = made.leader(snapshot_interval_ms=1000)
            for number in (1, 2, 3):
                bring(manager, segment(number, 10 * number, 10 * number + 9), FINISHED)
            made.machine.clock.sleep(2)
            if noticed:
                before = made.machine.files.read_whole(PATH)
                made.topic.truncate(made.number(), 4)
                made.until(lambda: metric(manager, "rebuilds_total") > 0 and manager.is_ready(PARTITION))
            manager.close()
            if noticed:
                with made.machine.files.open_write(PATH) as file:
                    file.write(before)
                    file.commit()
            else:
                made.topic.truncate(made.number(), 4)
            other = segment(7, 30, 34)
            store(made, other, to(other, FINISHED))
            assert listed(made.leader()) == [1, 2, 7]
            assert "has lost the record at offset 5" in caplog.text

    def test_another_number_of_partitions(self, caplog: pytest.LogCaptureFixture) -> None:
        """The partitions of a topic that was made anew are others."""
        with rig() as made, caplog.at_level(logging.WARNING):
            fill(made)
            made.topic.recreate(COUNT + 1)
            manager = made.start(topic_num_partitions=COUNT + 1)
            made.lead(manager, PARTITION)
            assert listed(manager) == []
            assert "is passed over" in caplog.text

    def test_other_semantics(self) -> None:
        """A table of the one kind does not know what the other kind would answer."""
        with rig() as made:
            manager = made.leader()
            segments = segment(1, 0, 3, {0: 0}), segment(2, 0, 3, {0: 0, 1: 2})
            for each in segments:
                bring(manager, each, FINISHED)
            assert found(manager, 0, 3) == 1
            manager.close()
            manager = made.leader(kafka_semantics=True)
            assert found(manager, 0, 3) is None


def life(made: Rig) -> None:
    """A start, events with snapshots between them, an end; twice, the second time from the snapshot."""
    for turn in range(2):
        manager = made.leader(LOG_DIR, PARTITION, OTHER, snapshot_interval_ms=20)
        for number in range(turn * 3, turn * 3 + 3):
            bring(manager, lived(number), STATES[number])
            made.machine.clock.sleep(0.03)
        manager.close()


STATES = [STARTED, FINISHED, DELETED, FINISHED, DELETED, STARTED]


def lived(number: int) -> RemoteLogSegmentMetadata:
    return segment(1 + number, number, number, partition=(PARTITION, OTHER)[number % 2])


def changes(seed: int) -> int:
    """How often a whole life changes the disk."""
    files = MemoryFiles()
    files.make_directories(LOG_DIR)
    cut = PowerCut(files, at=0, seed=seed)
    with rig(seed, files=files) as made:
        life(made)
    return cut.seen


def power_cut(seed: int, at: int) -> None:
    """Lose power at a change of the disk; the next start must find what the topic has."""
    files = MemoryFiles()
    files.make_directories(LOG_DIR)
    cut = PowerCut(files, at=at, seed=seed)
    with rig(seed, files=files) as made:
        with contextlib.suppress(StoreError):
            life(made)
        made.machine = replace(made.machine, files=cut.cut(), process=Process())
        manager = made.leader(LOG_DIR, PARTITION, OTHER)
        model = SegmentTableModel()
        for partition in (PARTITION, OTHER):
            model.assign(partition)
        for number in range(COUNT):
            for _, value in made.topic.values(number):
                event = decode_record(value or b"")
                assert isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
                model.apply_record(event)
        for partition in (PARTITION, OTHER):
            found_now = {each.remote_log_segment_id: each for each in manager.list_remote_log_segments(partition)}
            assert found_now == model.segments[partition]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_power_cuts(seed: int) -> None:
    """At every change of the disk: the next start has what the topic says, and nothing else."""
    points = changes(seed)
    assert points > 40  # 200 in all
    for at in range(1, points + 1):
        try:
            power_cut(seed, at)
        except BaseException as error:
            error.add_note(f"seed {seed}, change {at}")
            raise
