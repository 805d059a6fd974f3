"""Events that a metadata manager has produced: acknowledged, consumed, refused, lost."""

from __future__ import annotations

import pytest

from tests.contract.metadata_events import (
    DELETED,
    DELETING,
    FINISHED,
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
    update,
)
from tests.support.metadata_rig import metric, rig, store
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RetriableRemoteStorageException,
)
from tierlog.remote.metadata.topic_backed.own_events import OwnEvents
from tierlog.runtime.machine.scheduling import PendingFuture
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler


class TestOwnEvents:
    """Produced, acknowledged, consumed."""

    def test_the_future_waits_for_consuming(self) -> None:
        """What is acknowledged and not consumed would not be found by the caller that stored it."""
        with rig() as made:
            manager = made.leader()
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            future.result(10)
            assert listed(manager) == [1]

    def test_consumed_before_it_is_acknowledged(self) -> None:
        """Either may come first."""
        with rig() as made:
            manager = made.leader()
            made.topic.acknowledge_after = lambda: 2
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            made.until(lambda: listed(manager) == [1])
            assert not future.done()
            future.result(10)
            assert made.machine.clock.monotonic_seconds() == pytest.approx(2, abs=0.5)

    @pytest.mark.parametrize("late", [True, False])
    def test_refused_in_the_topic(self, late: bool) -> None:
        """Another broker was first, which this one saw too late: Kafka tells the caller that all is well."""
        with rig() as made:
            manager = made.leader()
            of = segment(1, 0, 9)
            bring(manager, of, FINISHED)
            if late:
                made.topic.acknowledge_after = lambda: 1
            made.topic.unavailable = True  # it reads no more
            made.machine.clock.sleep(2)
            store(made, to(of, DELETING), to(of, DELETED))
            made.topic.unavailable = False
            future = manager.update_remote_log_segment_metadata(to(of, DELETING))
            other = manager.put_remote_partition_delete_metadata(removal(REMOVAL.DELETE_PARTITION_MARKED))
            with pytest.raises(RemoteResourceNotFoundException):
                future.result(30)
            other.result(30)
            assert metric(manager, "events_refused_total") == 1
            assert metric(manager, "events_applied_total") == 5

    @pytest.mark.parametrize("how", ["truncated", "made anew"])
    def test_of_a_topic_that_was_another_meanwhile(self, how: str) -> None:
        """If this fails, an event of a partition that was stopped for a while counts as stored before it is read,
        though all brokers refuse it: local retention deletes a segment that the tier does not keep.
        """
        with rig() as made:
            manager = made.leader()
            for number in range(1, 6):
                bring(manager, segment(number, 10 * number, 10 * number + 9), FINISHED)
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.machine.clock.sleep(3)
            if how == "truncated":
                made.topic.truncate(made.number(), 2)
            else:
                made.topic.recreate()
            made.machine.clock.sleep(5)
            made.lead(manager, PARTITION)
            of = segment(9, 90, 99)
            bring(manager, of, STARTED)
            made.topic.unavailable = True
            made.machine.clock.sleep(1)
            store(made, to(of, DELETING))
            made.topic.unavailable = False
            with pytest.raises(InvalidTransitionError):
                manager.update_remote_log_segment_metadata(to(of, FINISHED)).result(30)

    def test_an_offset_that_was_consumed_before(self) -> None:
        """If this fails, the first event behind a truncation that nobody has noticed yet counts as applied."""
        machine, scheduler = ManualScheduler.machine(1)
        with scheduler:
            events = OwnEvents(machine, 60)
            events.consumed(0, 0, 9, refusals=(), untold=False)
            own = events.begin(segment(1, 0, 9), 0)
            answer: PendingFuture[int] = scheduler.future()
            answer.set_result(7)
            events.produced(own, answer)
            with pytest.raises(RetriableRemoteStorageException, match="lost its end; the event may have been stored"):
                own.future.result(0)
            assert len(events) == 0

    def test_an_invalid_one_is_not_written(self) -> None:
        """It would stay in the topic for ever, and every broker would log it at every start."""
        with rig() as made:
            manager = made.leader()
            of = segment(1, 0, 9)
            bring(manager, of, FINISHED)
            end = made.topic.bounds(made.number()).end_offset
            with pytest.raises(InvalidTransitionError, match="COPY_SEGMENT_FINISHED"):
                update(manager, of, DELETED)
            with pytest.raises(RemoteResourceNotFoundException):
                update(manager, segment(2, 0, 9), FINISHED)
            with pytest.raises(InvalidTransitionError):
                put(manager, REMOVAL.DELETE_PARTITION_FINISHED)
            assert made.topic.bounds(made.number()).end_offset == end

    def test_time_runs_out(self) -> None:
        """The event may be stored: a caller that tries again must know."""
        with rig() as made:
            manager = made.leader(consume_wait_ms=3000)
            made.topic.acknowledge_after = lambda: 100
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            with pytest.raises(RetriableRemoteStorageException, match="may have been stored"):
                future.result(10)
            assert 3 <= made.machine.clock.monotonic_seconds() < 4.5
            made.machine.clock.sleep(200)  # and the late acknowledgement disturbs nobody
            made.topic.acknowledge_after = None
            update(manager, segment(1, 0, 9), FINISHED)

    def test_time_runs_out_while_the_topic_is_away(self) -> None:
        """Also in the pauses between tries."""
        with rig() as made:
            manager = made.leader(consume_wait_ms=300)
            made.topic.unavailable = True
            made.machine.clock.sleep(60)
            made.topic.unavailable = False
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            made.topic.unavailable = True
            with pytest.raises(RetriableRemoteStorageException, match="may have been stored"):
                future.result(30)
            assert 60.3 <= made.machine.clock.monotonic_seconds() < 60.7

    @pytest.mark.parametrize("fault", ["lose_acknowledgements", "drop_appends"])
    def test_no_acknowledgement(self, fault: str) -> None:
        """Stored or not, the same call again puts it right."""
        with rig() as made:
            manager = made.leader()
            of = segment(1, 0, 9)
            for event in (of, to(of, FINISHED), to(of, DELETING)):
                setattr(made.topic, fault, 1)
                call = (
                    manager.add_remote_log_segment_metadata
                    if isinstance(event, RemoteLogSegmentMetadata)
                    else manager.update_remote_log_segment_metadata
                )
                with pytest.raises(RetriableRemoteStorageException):
                    call(event).result(10)  # type: ignore[arg-type]
                call(event).result(10)  # type: ignore[arg-type]
            assert [each.state for each in manager.list_remote_log_segments(PARTITION)] == [DELETING]

    def test_callbacks_may_call_again(self) -> None:
        """A caller that chains add and update in one thread must not lock itself out."""
        with rig() as made:
            manager = made.leader()
            of = segment(1, 0, 9)
            done: list[object] = []

            def finish(_: object) -> None:
                chained = manager.update_remote_log_segment_metadata(to(of, FINISHED))
                chained.add_done_callback(done.append)

            manager.add_remote_log_segment_metadata(of).add_done_callback(finish)
            made.until(lambda: bool(done))
            assert found(manager, 0, 0) == 1

    def test_what_does_not_fit_a_record(self) -> None:
        """It fails at once, and nobody waits for it."""
        with rig() as made:
            manager = made.leader()
            with pytest.raises(ValueError, match="32 bits"):
                manager.add_remote_log_segment_metadata(segment(1, 0, 9, size=2**31))
