"""The topic-backed metadata manager: its start and its end. What any manager owes is in ``tests/contract``."""

from __future__ import annotations

import logging

import pytest

from tests.contract.metadata_events import FINISHED, PARTITION, bring, found, listed, segment, to
from tests.contract.metadata_manager_suite import CALLS
from tests.support.metadata_rig import COUNT, rig
from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
)
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager


class TestStart:
    """Configured, and not yet ready."""

    def test_configure_waits_for_nothing(self) -> None:
        """A broker that starts together with its cluster would wait for itself."""
        with rig() as made:
            made.topic.unavailable = True
            manager = made.start()
            assert made.machine.clock.monotonic_seconds() == 0
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            with pytest.raises(RemoteStorageNotReadyException):
                found(manager, 0, 0)
            assert made.machine.clock.monotonic_seconds() == pytest.approx(0.1)
            made.topic.unavailable = False
            made.until(lambda: manager.is_ready(PARTITION))
            assert listed(manager) == []

    def test_when_ready(self) -> None:
        """A task that begins with the future begins in the moment that the metadata is there, and polls nothing."""
        with rig() as made:
            made.topic.unavailable = True
            manager = made.start()
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            future = manager.when_ready(PARTITION)
            at: list[float] = []
            future.add_done_callback(lambda _: at.append(manager.remote_log_size(PARTITION, 0)))
            made.machine.clock.sleep(1)
            assert not future.done()
            made.topic.unavailable = False
            future.result(60)
            assert at == [0]
            assert manager.when_ready(PARTITION).done()

    @pytest.mark.parametrize("end", ["stopped", "closed", "the topic never comes"])
    def test_never_ready(self, end: str) -> None:
        """A future that stays open holds a partition's tasks for ever, and nobody sees why."""
        with rig() as made:
            made.topic.unavailable = True
            manager = made.start(initialization_retry_max_timeout_ms=20_000)
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            future = manager.when_ready(PARTITION)
            made.machine.clock.sleep(1)
            assert not future.done()
            if end == "stopped":
                manager.on_stop_partitions(frozenset({PARTITION}))
            elif end == "closed":
                manager.close()
            expected = RemoteResourceNotFoundException if end == "stopped" else RemoteStorageException
            with pytest.raises(expected):
                future.result(60)
            with pytest.raises(expected):
                manager.when_ready(PARTITION).result(0)

    def test_a_topic_that_never_comes(self) -> None:
        """Kafka ends the process; here every call has the same error, and none waits."""
        with rig() as made:
            made.topic.unavailable = True
            manager = made.start(initialization_retry_max_timeout_ms=20_000)
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            made.machine.clock.sleep(30)
            began = made.machine.clock.monotonic_seconds()
            texts = set()
            for call in CALLS.values():
                with pytest.raises(RemoteStorageException) as caught:
                    call(manager, PARTITION)
                assert not caught.value.retriable
                texts.add(str(caught.value))
            assert len(texts) == 1
            assert "could not be opened within 20 s" in texts.pop()
            assert not manager.is_ready(PARTITION)
            with pytest.raises(RemoteStorageException):
                manager.on_stop_partitions(frozenset({PARTITION}))
            with pytest.raises(RemoteStorageException):
                manager.pending_removals()
            assert made.machine.clock.monotonic_seconds() == began

    def test_pauses_between_tries_grow(self, caplog: pytest.LogCaptureFixture) -> None:
        """A thousand brokers that come back at once must not ask a cluster that starts every tenth of a second."""
        with rig() as made, caplog.at_level(logging.WARNING):
            made.topic.unavailable = True
            made.start()
            made.machine.clock.sleep(60)
            assert 10 <= len(caplog.records) <= 40

    def test_another_number_of_partitions(self) -> None:
        """Its events would go where no other broker looks."""
        with rig() as made:
            made.topic.recreate(COUNT + 1)
            manager = made.start()
            manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            made.machine.clock.sleep(0.2)
            with pytest.raises(RemoteStorageException, match="4 partitions") as caught:
                found(manager, 0, 0)
            assert isinstance(caught.value.__cause__, ConfigError)

    def test_configure_is_called_once(self) -> None:
        """Else two threads write one table."""
        with rig() as made:
            manager = made.start()
            with pytest.raises(ConfigError):
                manager.configure({"log.dir": "/data"})
            unused = TopicBasedRemoteLogMetadataManager(machine=made.machine)
            for call in CALLS.values():
                with pytest.raises(RemoteStorageException, match="configure"):
                    call(unused, PARTITION)
            unused.close()
            with pytest.raises(ConfigError):
                unused.configure({"log.dir": "/data"})

    def test_what_is_no_partition(self) -> None:
        """A str in its place would never be ready."""
        with rig() as made:
            manager = made.start()
            with pytest.raises(TypeError):
                manager.on_partition_leadership_changes({"orders-0"}, set())  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                manager.remote_log_size("orders-0", 0)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                manager.add_remote_log_segment_metadata(to(segment(1, 0, 9), FINISHED))  # type: ignore[arg-type]


class TestStops:
    """Stopped partitions and closed managers."""

    def test_a_stop_while_events_are_under_way(self) -> None:
        """They may be stored, but this broker will not see it."""
        with rig() as made:
            manager = made.leader()
            made.topic.acknowledge_after = lambda: 5
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            manager.on_stop_partitions(frozenset({PARTITION}))
            with pytest.raises(RemoteStorageException, match="may have been stored"):
                future.result(60)
            made.machine.clock.sleep(10)

    def test_a_list_that_is_read_while_it_is_stopped(self) -> None:
        """An iterator that just ends would say that there is no more."""
        with rig() as made:
            manager = made.leader()
            for number in range(1, 4):
                bring(manager, segment(number, number, number), FINISHED)
            iterator = manager.list_remote_log_segments(PARTITION)
            next(iterator)
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.machine.clock.sleep(3)
            with pytest.raises(RemoteResourceNotFoundException):
                list(iterator)

    def test_stopped_and_led_again_before_anybody_looked(self) -> None:
        """Nothing of it is read twice, nothing is lost."""
        with rig() as made:
            manager = made.leader()
            bring(manager, segment(1, 0, 9), FINISHED)
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.lead(manager, PARTITION)
            assert found(manager, 0, 0) == 1

    def test_close_ends_what_waits(self) -> None:
        """A broker's shutdown has a limit of its own."""
        with rig() as made:
            manager = made.leader()
            made.topic.acknowledge_after = lambda: 50
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            began = made.machine.clock.monotonic_seconds()
            manager.close()
            with pytest.raises(RemoteStorageException, match="may have been stored"):
                future.result(0)
            assert made.machine.clock.monotonic_seconds() - began < 1
            made.machine.clock.sleep(60)

    def test_close_while_the_topic_cannot_be_opened(self) -> None:
        """Nor in the middle of a pause."""
        with rig() as made:
            made.topic.unavailable = True
            manager = made.start()
            made.machine.clock.sleep(20)
            began = made.machine.clock.monotonic_seconds()
            manager.close()
            assert made.machine.clock.monotonic_seconds() == began
