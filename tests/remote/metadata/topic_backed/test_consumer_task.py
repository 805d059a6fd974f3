"""What comes to a metadata manager through its topic, and what happens to the topic."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tests.contract.metadata_events import (
    DELETED,
    DELETING,
    FINISHED,
    PARTITION,
    STARTED,
    bring,
    found,
    listed,
    segment,
    to,
    update,
)
from tests.contract.metadata_manager_suite import CALLS
from tests.support.metadata_rig import metric, rig, shares, store
from tierlog.remote.api import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed import consumer_task
from tierlog.testing.memory_metadata_topic import MemoryMetadataLog


class TestConsuming:
    """What comes through the topic."""

    @pytest.mark.parametrize("as_batches", [True, False])
    def test_other_brokers_events(self, as_batches: bool) -> None:
        """TopicBasedRemoteLogMetadataManagerRestartTest: the state is all in the topic."""
        with rig(as_batches=as_batches) as made:
            of = segment(1, 0, 9)
            store(made, of, to(of, FINISHED, b"x"), segment(2, 10, 19))
            manager = made.leader()
            assert (listed(manager), found(manager, 0, 9)) == ([1, 2], 1)
            store(made, to(of, DELETING))
            made.until(lambda: found(manager, 0, 9) is None)
            assert metric(manager, "events_applied_total") == 4

    def test_ready_at_the_end_of_the_assignment_and_not_before(self) -> None:
        """Half a partition is a wrong answer: what is missing would be copied again, or kept for ever."""
        with rig() as made:
            for number in range(1, 3001):
                store(made, segment(number, number, number))
            manager = made.start()
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            seen = set()
            while not manager.is_ready(PARTITION):
                try:
                    seen.add(len(listed(manager)))
                except RemoteStorageNotReadyException:
                    continue
            seen.add(len(listed(manager)))
            assert seen == {3000}

    def test_markers_at_the_end(self) -> None:
        """Offsets that no record has count as consumed."""
        with rig() as made:
            store(made, segment(1, 0, 9))
            made.topic.skip(made.number(), 5)
            manager = made.leader()
            assert listed(manager) == [1]

    def test_a_neighbour_in_the_same_metadata_partition(self) -> None:
        """It is read from its beginning, and the events of partitions that are there do not count twice."""
        neighbour = shares(PARTITION, same=True)
        with rig() as made:
            manager = made.leader()
            bring(manager, segment(1, 0, 9), DELETED)
            bring(manager, segment(2, 10, 19), FINISHED)
            store(made, segment(3, 0, 9, partition=neighbour))
            refused = metric(manager, "events_refused_total")
            made.lead(manager, neighbour)
            assert listed(manager) == [2]
            assert [each.state for each in manager.list_remote_log_segments(neighbour)] == [STARTED]
            assert metric(manager, "events_refused_total") == refused == 0

    def test_a_flood_of_events_for_others(self) -> None:
        """They cost no memory, and nobody sees them."""
        neighbour = shares(PARTITION, same=True)
        with rig(as_batches=True) as made:
            values = [
                encode_record(segment(number, number, number, partition=neighbour)) for number in range(1, 20_001)
            ]
            for at in range(0, len(values), 1000):
                made.topic.append(made.number(), *values[at : at + 1000])
            store(made, segment(1, 0, 9))
            manager = made.leader()
            assert listed(manager) == [1]
            assert metric(manager, "events_passed_over_total") == 20_000
            with pytest.raises(RemoteResourceNotFoundException):
                manager.remote_log_size(neighbour, 0)

    @pytest.mark.parametrize("as_batches", [True, False])
    @pytest.mark.parametrize("value", [b"\x01\x09\x00", b"\x01\x00\x01", b"", b"\x01", b"\x02\x00\x00"])
    def test_a_record_that_cannot_be_read(self, value: bytes, as_batches: bool) -> None:
        """Kafka's consumer stops for all; here one metadata partition's stop, with the same error for ever."""
        elsewhere = shares(PARTITION, same=False)
        with rig(as_batches=as_batches) as made:
            store(made, segment(1, 0, 9))
            manager = made.leader("/data", PARTITION, elsewhere, consume_wait_ms=5000)
            made.topic.acknowledge_after = lambda: 1
            waiting = manager.update_remote_log_segment_metadata(to(segment(1, 0, 9), FINISHED))
            made.topic.acknowledge_after = None
            offset = made.topic.append(made.number(), value, encode_record(segment(2, 10, 19)))
            made.until(lambda: not manager.is_ready(PARTITION))
            with pytest.raises(RemoteStorageException, match="may have been stored"):
                waiting.result(10)
            texts = set()
            for call in CALLS.values():
                with pytest.raises(RemoteStorageException, match=f"at offset {offset}") as caught:
                    call(manager, PARTITION)
                assert not isinstance(caught.value, RemoteStorageNotReadyException)
                texts.add(str(caught.value))
            assert len(texts) == 1
            manager.on_stop_partitions(frozenset({PARTITION}))
            neighbour = shares(PARTITION, same=True)
            manager.on_partition_leadership_changes(frozenset({PARTITION, neighbour}), frozenset())
            made.machine.clock.sleep(2)
            for partition in (PARTITION, neighbour):
                with pytest.raises(RemoteStorageException, match=f"at offset {offset}"):
                    manager.remote_log_size(partition, 0)
            manager.add_remote_log_segment_metadata(segment(5, 0, 9, partition=elsewhere)).result(10)
            assert len(list(manager.list_remote_log_segments(elsewhere))) == 1

    @pytest.mark.parametrize("kafka_semantics", [False, True])
    def test_a_segment_of_as_many_epochs_as_there_may_be(self, kafka_semantics: bool) -> None:
        """Kafka has no limit; what is above ours must stop nobody else's partition, and no broker of ours writes it."""
        most = segment(1, 0, 2**20, {epoch: 10 * epoch for epoch in range(65_536)})
        more = segment(2, 0, 2**20, {epoch: 10 * epoch for epoch in range(65_537)})
        with rig() as made:
            manager = made.leader("/data", PARTITION, kafka_semantics=kafka_semantics)
            with pytest.raises(ValueError, match=r"a segment has at most 65,536 leader epochs, not 65,537"):
                manager.add_remote_log_segment_metadata(more)
            manager.add_remote_log_segment_metadata(most).result(30)
            manager.update_remote_log_segment_metadata(to(most, FINISHED)).result(30)
            assert (found(manager, 65_535, 2**20), manager.highest_offset_for_epoch(PARTITION, 3)) == (1, 39)
            manager.update_remote_log_segment_metadata(to(most, DELETING)).result(30)
            manager.update_remote_log_segment_metadata(to(most, DELETED)).result(30)
            assert (listed(manager), manager.highest_offset_for_epoch(PARTITION, 3)) == ([], 39)

    @pytest.mark.parametrize("as_batches", [True, False])
    @pytest.mark.parametrize("what", ["epochs", "custom metadata", "custom metadata of an update"])
    def test_a_record_that_is_too_large(self, what: str, as_batches: bool, caplog: pytest.LogCaptureFixture) -> None:
        """Another broker's, or Kafka's, which has no such limits: one segment is lost to us, not a partition."""
        of = segment(1, 0, 2**20, {epoch: 10 * epoch for epoch in range(65_537)} if what == "epochs" else None)
        custom = bytes((1 << 20) + 1)
        with rig(as_batches=as_batches) as made:
            store(made, replace(of, custom_metadata=custom) if what == "custom metadata" else of)
            store(made, to(of, FINISHED, custom if "update" in what else None), segment(2, 0, 9))
            with caplog.at_level(logging.ERROR):
                manager = made.leader()
            assert listed(manager) == ([1, 2] if "update" in what else [2])
            manager.add_remote_log_segment_metadata(segment(3, 10, 19)).result(30)
            assert found(manager, 0, 5) is None
            assert metric(manager, "events_refused_total") >= 1
        assert "1 records too large for a segment are passed over, the first at offset" in caplog.text
        with rig() as made, pytest.raises(ValueError, match=r"a segment has at most"):
            made.leader().update_remote_log_segment_metadata(to(of, FINISHED, custom))

    def test_a_tombstone_and_unknown_segments(self) -> None:
        """KIP-1266's tombstones, and what is left of segments whose beginning has expired, are no faults."""
        with rig() as made:
            made.topic.append(made.number(), encode_record(to(segment(1, 0, 9), DELETED)))
            store(made, segment(2, 0, 9))
            manager = made.leader()
            assert listed(manager) == [2]
            assert metric(manager, "events_refused_total") == 1

    def test_the_topic_goes_away_and_comes_back(self) -> None:
        """Answers go on meanwhile; events are found afterwards."""
        with rig() as made:
            manager = made.leader()
            bring(manager, segment(1, 0, 9), FINISHED)
            made.topic.unavailable = True
            made.machine.clock.sleep(60)
            assert found(manager, 0, 0) == 1
            with pytest.raises(RetriableRemoteStorageException):
                update(manager, segment(1, 0, 9), DELETING)
            made.topic.unavailable = False
            store(made, segment(2, 10, 19))
            made.until(lambda: listed(manager) == [1, 2], within_seconds=6)
            assert metric(manager, "consumer_errors_total") > 5

    @pytest.mark.parametrize("as_batches", [False, True])
    def test_catching_up(self, as_batches: bool) -> None:
        """A broker that was cut off gives a copy up that has finished; by this it knows better before it deletes."""
        of = segment(1, 0, 9)
        with rig(as_batches=as_batches) as made:
            manager = made.leader()
            store(made, of)
            made.until(lambda: listed(manager) == [1])
            assert manager.when_caught_up(PARTITION).result(5) is None
            made.topic.unavailable = True
            made.machine.clock.sleep(5)
            store(made, to(of, FINISHED), segment(2, 10, 19))
            futures = [manager.when_caught_up(PARTITION) for _ in range(3)]
            seen: list[tuple[int | None, list[int]]] = []
            for future in futures:
                future.add_done_callback(lambda _: seen.append((found(manager, 0, 5), listed(manager))))
            made.machine.clock.sleep(10)
            assert not any(future.done() for future in futures)
            made.topic.unavailable = False
            for future in futures:
                future.result(10)
            assert seen == [(1, [1, 2])] * 3
            manager.when_caught_up(PARTITION).result(1)

    @pytest.mark.parametrize("end", ["late", "stopped", "led again", "closed"])
    def test_it_does_not_catch_up(self, end: str) -> None:
        """If this fails, a task waits for ever, and each of its tries is kept."""
        with rig() as made:
            manager = made.leader(consume_wait_ms=20_000)
            made.topic.unavailable = True
            futures = [manager.when_caught_up(PARTITION) for _ in range(2)]
            made.machine.clock.sleep(5)
            assert not any(future.done() for future in futures)
            expected: type[RemoteStorageException] = RetriableRemoteStorageException
            if end == "stopped":
                manager.on_stop_partitions(frozenset({PARTITION}))
                expected = RemoteResourceNotFoundException
            elif end == "led again":
                manager.on_stop_partitions(frozenset({PARTITION}))
                manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
                expected = RemoteResourceNotFoundException
            elif end == "closed":
                manager.close()
                expected = RemoteStorageException
            for future in futures:
                with pytest.raises(expected):
                    future.result(25)
            assert manager._assignment.catch_ups == []

    def test_the_topic_refuses_for_good(self) -> None:
        """Rights that are taken away: stale answers would look like fresh ones."""
        with rig() as made:
            manager = made.leader()
            made.topic.refuses = RemoteStorageException("not authorized")
            made.until(lambda: not manager.is_ready(PARTITION))
            for call in CALLS.values():
                with pytest.raises(RemoteStorageException, match="not authorized"):
                    call(manager, PARTITION)
            made.topic.refuses = None
            made.machine.clock.sleep(60)
            with pytest.raises(RemoteStorageException, match="not authorized"):
                found(manager, 0, 0)

    @pytest.mark.parametrize("how", ["truncate", "recreate", "expire"])
    def test_the_topic_is_another(self, how: str, caplog: pytest.LogCaptureFixture) -> None:
        """What is not in the topic is nowhere else: other brokers do not know it."""
        elsewhere = shares(PARTITION, same=False)
        with rig() as made, caplog.at_level(logging.WARNING):
            manager = made.leader("/data", PARTITION, elsewhere)
            bring(manager, segment(1, 0, 9), FINISHED)
            bring(manager, segment(1, 0, 9, partition=elsewhere), STARTED)
            made.topic.acknowledge_after = lambda: 50
            waiting = manager.add_remote_log_segment_metadata(segment(3, 20, 29))
            made.until(lambda: listed(manager) == [1, 3])
            made.topic.acknowledge_after = None
            if how == "truncate":
                made.topic.truncate(made.number(), 1)
            elif how == "recreate":
                made.topic.recreate()
            else:
                made.topic.unavailable = True
                made.machine.clock.sleep(2)
                for number in range(4, 9):
                    store(made, segment(number, 10 * number, 10 * number))
                made.topic.expire(made.number(), 7)
                made.topic.unavailable = False
            made.until(lambda: metric(manager, "rebuilds_total") > 0)
            made.until(lambda: manager.is_ready(PARTITION) and manager.is_ready(elsewhere))
            expected = {"truncate": [1], "recreate": [], "expire": [8]}[how]
            assert listed(manager) == expected
            left = [] if how == "recreate" else [STARTED]
            assert [each.state for each in manager.list_remote_log_segments(elsewhere)] == left
            assert found(manager, 0, 0) is None
            with pytest.raises(RemoteStorageException, match="may have been stored"):
                waiting.result(60)
            assert "opened again" in caplog.text
            manager.add_remote_log_segment_metadata(segment(9, 90, 99)).result(60)
            assert listed(manager) == [*expected, 9]
            made.machine.clock.sleep(60)

    def test_truncated_while_it_is_read_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If this fails, a broker passes over what comes in the place of lost events, since it had as many before."""
        neighbour = shares(PARTITION, same=True)
        monkeypatch.setattr(consumer_task, "_READ_BYTES", 1)
        with rig() as made:
            manager = made.leader()
            for number in range(1, 6):
                bring(manager, segment(number, 10 * number, 10 * number + 9), FINISHED)
            made.topic.unavailable = True
            made.machine.clock.sleep(2)
            manager.on_partition_leadership_changes(frozenset({neighbour}), frozenset())
            task = manager._configured()
            take, cut = task._take_assignment, []

            def taken() -> int:
                version = take()
                if neighbour in task._taken and not cut:
                    cut.append(task._consumed.positions[made.number()])
                    made.topic.truncate(made.number(), 6)
                    store(made, *(to(segment(1, 10, 19), state) for state in (DELETING, DELETED)))
                return version

            monkeypatch.setattr(task, "_take_assignment", taken)
            made.topic.unavailable = False
            made.until(lambda: manager.is_ready(neighbour) and manager.is_ready(PARTITION))
            assert cut == [0]
            assert metric(manager, "rebuilds_total") == 1
            assert listed(manager) == listed(made.leader("/fresh")) == [2, 3]

    def test_made_anew_while_it_is_opened_again(self) -> None:
        """The second new topic is not the one that was consumed either, though the offsets fit."""
        with rig() as made:
            opened = []

            class Logs:
                def open(self, *, timeout_seconds: float) -> MemoryMetadataLog:
                    log = made.topic.open(timeout_seconds=timeout_seconds)
                    opened.append(log)
                    if len(opened) == 2:
                        made.topic.recreate()
                        store(made, segment(7, 0, 9), to(segment(7, 0, 9), FINISHED), segment(8, 10, 19))
                    return log

            made.logs = Logs()
            manager = made.leader()
            bring(manager, segment(1, 0, 9), FINISHED)
            made.topic.recreate()
            made.until(lambda: len(opened) == 3)
            made.until(lambda: manager.is_ready(PARTITION))
            assert listed(manager) == [7, 8]

    def test_what_expires_while_nobody_reads(self) -> None:
        """A metadata partition that no partition needs is no fault when it is needed again."""
        with rig() as made:
            manager = made.leader()
            bring(manager, segment(1, 0, 9), FINISHED)
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.machine.clock.sleep(3)
            store(made, *(segment(number, number, number) for number in range(2, 9)))
            made.topic.expire(made.number(), 6)
            made.lead(manager, PARTITION)
            assert listed(manager) == [6, 7, 8]
            assert metric(manager, "rebuilds_total") == 0

    def test_one_topic_id_under_two_names(self) -> None:
        """A fault of the broker's: the one that was there goes on."""
        with rig() as made:
            manager = made.leader()
            twin = TopicIdPartition(PARTITION.topic_id, "renamed", 0)
            manager.on_partition_leadership_changes(frozenset({twin}), frozenset())
            made.machine.clock.sleep(3)
            with pytest.raises(RemoteStorageException, match="another topic"):
                manager.remote_log_size(twin, 0)
            bring(manager, segment(1, 0, 9), FINISHED)
            assert found(manager, 0, 0) == 1

    def test_a_clock_that_goes_back(self) -> None:
        """Only the order in the topic counts."""
        with rig() as made:
            manager = made.leader()
            made.machine.clock._start_ms -= 10**9  # type: ignore[attr-defined]
            of = segment(1, 0, 9)
            manager.add_remote_log_segment_metadata(of).result(10)
            made.machine.clock._start_ms -= 10**9  # type: ignore[attr-defined]
            update(manager, of, FINISHED)
            assert found(manager, 0, 9) == 1

    def test_the_lag(self) -> None:
        """An operator sees a broker that does not keep up."""
        with rig() as made:
            manager = made.leader()
            for number in range(1, 4):
                store(made, segment(number, number, number))
            made.machine.clock.sleep(30)
            assert metric(manager, "lag_events") == 0
            assert metric(manager, "partitions_ready") == 1
