"""The removal of partitions: whoever leads, crashes or fails meanwhile, all segments go, and no other's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.metadata_events import (
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    STARTED,
    bring,
    listed,
    put,
    removal,
    segment,
    to,
)
from tests.support.metadata_rig import COUNT, shares
from tests.support.removing_brokers import Broker, cluster
from tests.support.tier_tasks import failing
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager import partition_removals


def follows(broker: Broker, partition: TopicIdPartition = PARTITION) -> bool:
    return bool(broker.inner.is_ready(partition))


def is_removed(broker: Broker, partition: TopicIdPartition = PARTITION) -> bool:
    """Whether a broker that led the partition hears that it is gone."""
    try:
        future = broker.inner.add_remote_log_segment_metadata(segment(999, 0, 9, partition=partition))
        future.result(60)
    except RemoteResourceNotFoundException as error:
        return "was removed" in str(error)
    return False


@pytest.mark.parametrize("seed", range(4))
def test_delete_topic(seed: int) -> None:
    """The controller's broker follows neither partition, nor do the leaders of the metadata partitions."""
    with cluster(seed) as made:
        far = shares(PARTITION, same=False)
        controller, first, second, host = (Broker(made, number) for number in range(4))
        host.host(PARTITION, far)
        made.fill(host, 5)
        made.fill(host, 3, far)
        first.removals.lead({made.rig.number()})
        second.removals.lead({made.rig.number(far)})
        marked = [controller.removals.delete_partition(each) for each in (PARTITION, far)]
        made.drive(controller, until=lambda: all(each.done() for each in marked))
        assert [each.result(0) for each in marked] == [None, None]
        made.drive(first, until=lambda: PARTITION not in made.stored)
        assert made.stored == {far}
        made.drive(first, second, until=lambda: not made.stored)
        made.drive(first, second, until=lambda: first.removals.waiting + second.removals.waiting == 0)
        assert is_removed(host)
        assert is_removed(host, far)
        assert not any(follows(each, of) for each in (controller, first, second) for of in (PARTITION, far))
        assert first.services.metrics.value("delete_requests") == 5


def test_readers_find_nothing_once_it_began() -> None:
    with cluster() as made:
        broker = made.removing(1)
        broker.storage.hooks["delete_log_segment_data"] = failing(RetriableRemoteStorageException("later"))
        for _ in range(30):
            made.rig.machine.clock.sleep(broker.run() / 2 + 0.01)
            if broker.metadata.hooks:
                break
        assert broker.inner.remote_log_segment_metadata(PARTITION, 0, 5) is None
        assert made.stored == {PARTITION}
        broker.storage.hooks.clear()
        made.drive(broker, until=lambda: not made.stored)


def test_a_topic_that_is_made_anew_under_its_name() -> None:
    with cluster() as made:
        broker = Broker(made, 1)
        new = TopicIdPartition(Uuid(b"\7" * 16), PARTITION.topic, PARTITION.partition)
        broker.host(PARTITION, new)
        made.fill(broker, 4)
        made.fill(broker, 4, new)
        broker.removals.lead({made.rig.number(), made.rig.number(new)})
        broker.removals.delete_partition(PARTITION)
        made.drive(broker, until=lambda: made.stored == {new})
        made.drive(broker, until=lambda: broker.removals.waiting == 0)
        assert len(listed(broker.inner)) == 0
        assert sum(1 for _ in broker.inner.list_remote_log_segments(new)) == 4
        assert (is_removed(broker), is_removed(broker, new)) == (True, False)


def test_another_leader_of_the_metadata_partition() -> None:
    """The old one stops, the new one goes on where it is."""
    with cluster() as made:
        host, first, second = (Broker(made, number) for number in range(3))
        host.host(PARTITION)
        made.fill(host, 60)
        first.removals.lead({made.rig.number()})
        first.removals.delete_partition(PARTITION)
        made.drive(first, until=lambda: len(made.store.segment_ids) < 60)
        left = len(made.store.segment_ids)
        assert left > 0
        first.removals.lead(set())
        second.removals.lead({made.rig.number()})
        for _ in range(5):
            first.run()
        assert len(made.store.segment_ids) == left
        assert first.removals.waiting == 0
        made.drive(second, until=lambda: second.removals.waiting == 0 and not made.stored)
        assert is_removed(host)


def test_each_run_deletes_some() -> None:
    with cluster() as made:
        broker = made.removing(260)
        most = 0

        def watch() -> bool:
            nonlocal most
            before = len(made.store.segment_ids)
            broker.run()
            most = max(most, before - len(made.store.segment_ids))
            return not made.stored

        made.rig.until(watch)
        assert most == 16


def test_a_topic_of_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata manager reads its topic for many of them at once, not for each; failing ones make room."""
    monkeypatch.setattr(partition_removals, "_ACTIVE_MAX", 10)
    with cluster() as made:
        host, broker = Broker(made, 1), Broker(made, 2)
        partitions = [TopicIdPartition(PARTITION.topic_id, PARTITION.topic, number) for number in range(40)]
        host.host(*partitions)
        locked = set(partitions[:12])
        for each in partitions:
            made.fill(host, 3, each)
            host.inner.put_remote_partition_delete_metadata(removal(REMOVAL.DELETE_PARTITION_MARKED, each)).result(60)

        def refuse(of: RemoteLogSegmentMetadata) -> None:
            if of.topic_id_partition in locked:
                raise RemoteStorageException("locked")

        broker.storage.hooks["delete_log_segment_data"] = refuse
        broker.removals.lead(frozenset(range(COUNT)))
        made.drive(broker, until=lambda: made.stored == locked)
        assert sum(name == "on_partition_leadership_changes" for name, _ in broker.calls) < 60
        broker.storage.hooks.clear()
        made.drive_to_end(broker, host)


def test_a_copy_that_goes_on_meanwhile() -> None:
    """A zombie adds and finishes a segment while the others are deleted: it goes as well, or its copy is refused."""
    with cluster() as made:
        broker, zombie = Broker(made, 1), Broker(made, 2)
        broker.host(PARTITION)
        zombie.host(PARTITION)
        made.fill(broker, 40)
        late = segment(700, 1000, 1009)
        begun = segment(701, 2000, 2009)
        bring(zombie.inner, begun, STARTED)

        def add_late(_: object) -> None:
            broker.storage.hooks.clear()
            bring(zombie.inner, late, FINISHED)
            made.store.segments[late.remote_log_segment_id] = {None: b"log"}

        broker.storage.hooks["delete_log_segment_data"] = add_late
        broker.removals.lead({made.rig.number()})
        broker.removals.delete_partition(PARTITION)
        made.drive(broker, until=lambda: broker.removals.waiting == 0 and not made.stored)
        assert is_removed(broker)
        with pytest.raises(RemoteStorageException):
            zombie.inner.update_remote_log_segment_metadata(to(begun, FINISHED)).result(60)


def test_a_partition_that_is_stopped_here_meanwhile() -> None:
    """The broker's own stop takes it away from the metadata manager: it is followed again."""
    with cluster() as made:
        broker = made.removing(40)
        made.drive(broker, until=lambda: len(made.store.segment_ids) < 40)
        broker.here.clear()
        broker.inner.on_stop_partitions(frozenset({PARTITION}))
        made.drive(broker, until=lambda: broker.removals.waiting == 0 and not made.stored)
        assert not follows(broker)


@pytest.mark.parametrize("times", [1, 5, 6])
def test_a_partition_that_is_stopped_here_while_it_is_marked(times: int) -> None:
    """The broker's own stop is told late: a deletion that the controller asked for would be lost by it. A manager that
    never takes the mark is an error in the end.
    """
    with cluster() as made:
        controller = Broker(made, 1)
        controller.host(PARTITION)
        controller.here.clear()
        left = times

        def stop(_: object) -> None:
            nonlocal left
            if left:
                left -= 1
                controller.inner.on_stop_partitions(frozenset({PARTITION}))

        controller.metadata.hooks["put_remote_partition_delete_metadata"] = stop
        marked = controller.removals.delete_partition(PARTITION)
        made.drive(controller, until=marked.done)
        error = marked.exception(0)
        assert isinstance(error, RemoteResourceNotFoundException) if times > 5 else error is None


def test_a_partition_that_this_broker_has_is_not_taken_from_it() -> None:
    with cluster() as made:
        controller = Broker(made, 1)
        controller.host(PARTITION)
        marked = controller.removals.delete_partition(PARTITION)
        made.drive(controller, until=marked.done)
        controller.run()
        assert follows(controller)


def test_marked_twice_or_after_its_removal() -> None:
    """The controller does not know how far it came: it is no error."""
    with cluster() as made:
        broker, host = Broker(made, 1), Broker(made, 2)
        host.host(PARTITION)
        made.fill(host, 3)
        both = [broker.removals.delete_partition(PARTITION) for _ in range(2)]
        made.drive(broker, until=lambda: all(each.done() for each in both))
        broker.removals.lead({made.rig.number()})
        made.drive_to_end(broker)
        again = broker.removals.delete_partition(PARTITION)
        made.drive(broker, until=again.done)
        made.drive(broker, until=lambda: broker.removals.waiting == 0)
        assert [each.result(0) for each in (*both, again)] == [None] * 3


def test_marked_again_while_it_is_removed() -> None:
    """The controller, which has restarted, hears at once that it is marked, and not when all is gone, or never."""
    with cluster() as made:
        broker = made.removing(40)
        made.drive(broker, until=lambda: len(made.store.segment_ids) < 40)
        again = broker.removals.delete_partition(PARTITION)
        broker.run()
        assert again.done()
        assert again.result(0) is None
        assert made.stored == {PARTITION}
        made.drive(broker, until=lambda: broker.removals.waiting == 0 and not made.stored)


def test_closed() -> None:
    with cluster() as made:
        broker = Broker(made, 1)
        waiting = broker.removals.delete_partition(PARTITION)
        broker.removals.close()
        for each in (waiting, broker.removals.delete_partition(OTHER)):
            with pytest.raises(RemoteStorageException, match="closed"):
                each.result(0)
        assert broker.removals.run() is None


def test_closed_beside_a_run() -> None:
    """If this fails, who waits until a removal is marked may wait for ever, behind a broker that closes."""
    with cluster() as made:
        broker = Broker(made, 1)

        class ClosedBefore(dict[Any, Any]):
            def setdefault(self, *args: Any) -> Any:
                broker.removals.close()
                return super().setdefault(*args)

        broker.removals._removals = ClosedBefore()
        broker.metadata.hooks["put_remote_partition_delete_metadata"] = failing(RetriableRemoteStorageException("away"))
        waiting = broker.removals.delete_partition(PARTITION)
        broker.removals.run()
        with pytest.raises(RemoteStorageException, match="closed"):
            waiting.result(0)


# ---- failures

CALLS = (
    ("metadata", "pending_removals"),
    ("metadata", "on_partition_leadership_changes"),
    ("metadata", "put_remote_partition_delete_metadata"),
    ("metadata", "list_remote_log_segments"),
    ("metadata", "update_remote_log_segment_metadata"),
    ("metadata", "on_stop_partitions"),
    ("storage", "delete_log_segment_data"),
)
ERRORS = (RetriableRemoteStorageException("later"), RemoteStorageException("no"), KeyError("a bug of a third party's"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("manager", "call"), CALLS, ids=[call for _, call in CALLS])
def test_whatever_fails_goes_on_later(manager: str, call: str, error: Exception) -> None:
    """The n-th call of a manager fails, for each n: no run raises, and in the end all is gone."""
    for last in range(1, 12):
        with cluster(last) as made:
            host, broker = made.hosted(3)
            seen = 0

            def fail(*_: object, last: int = last, error: Exception = error, **__: object) -> None:
                nonlocal seen
                seen += 1
                if seen == last:
                    raise error

            put(host.inner, REMOVAL.DELETE_PARTITION_MARKED)
            (broker.metadata if manager == "metadata" else broker.storage).hooks[call] = fail
            made.drive_to_end(broker)
            assert is_removed(host)
            if seen < last:
                return


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_mark_that_fails(error: Exception) -> None:
    """A passing error is tried again; of another one the controller hears."""
    with cluster() as made:
        controller = Broker(made, 1)
        controller.metadata.hooks["put_remote_partition_delete_metadata"] = failing(error)
        marked = controller.removals.delete_partition(PARTITION)
        for _ in range(20):
            made.rig.machine.clock.sleep(min(controller.run(), 5.0))
        if isinstance(error, RetriableRemoteStorageException):
            assert not marked.done()
            controller.metadata.hooks.clear()
            made.drive(controller, until=marked.done)
            assert marked.result(0) is None
        else:
            with pytest.raises(type(error)):
                marked.result(0)
        assert controller.removals.waiting == 0


def test_one_that_fails_delays_no_other() -> None:
    with cluster() as made:
        broker = Broker(made, 1)
        near = shares(PARTITION, same=True)
        broker.host(PARTITION, near)
        made.fill(broker, 4)
        made.fill(broker, 4, near)

        def refuse(of: RemoteLogSegmentMetadata) -> None:
            if of.topic_id_partition == PARTITION:
                raise RemoteStorageException("locked")

        broker.storage.hooks["delete_log_segment_data"] = refuse
        broker.removals.lead({made.rig.number()})
        for each in (PARTITION, near):
            broker.removals.delete_partition(each)
        made.drive(broker, until=lambda: made.stored == {PARTITION} and broker.removals.waiting == 1)
        assert broker.services.metrics.value("delete_errors") > 0
        broker.storage.hooks.clear()
        made.drive(broker, until=lambda: not made.stored)


def test_a_metadata_manager_that_hangs() -> None:
    """A run ends with the time that a change may take; the removal goes on later."""
    with cluster() as made:
        broker = made.removing(3)
        clock = made.rig.machine.clock
        broker.metadata.hooks["update_remote_log_segment_metadata"] = lambda _: made.rig.machine.scheduler.future()
        longest = 0.0
        for _ in range(8):
            began = clock.monotonic_seconds()
            pause = broker.run()
            longest = max(longest, clock.monotonic_seconds() - began)
            clock.sleep(min(pause, 1.0) + 0.05)
        assert 179 < longest < 181
        broker.metadata.hooks.clear()
        made.drive_to_end(broker)


class Crash(BaseException):
    """The process ends."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("another", [False, True])
def test_a_crash_at_every_step(another: bool, seed: int) -> None:
    """Before and behind each call that changes anything: this broker after its restart, or another one, goes on."""
    names = (
        "put_remote_partition_delete_metadata",
        "update_remote_log_segment_metadata",
        "delete_log_segment_data",
        "on_partition_leadership_changes",
        "on_stop_partitions",
    )
    for last in range(1, 60):
        with cluster(seed) as made:
            host, broker = made.hosted(3)
            count = 0

            def crash(last: int = last) -> None:
                nonlocal count
                count += 1
                if count == last:
                    raise Crash

            def crashing(inner: Any, name: str, crash: Callable[[], None] = crash) -> Callable[..., Any]:
                def call(*given: Any) -> Any:
                    crash()
                    done = getattr(inner, name)(*given)
                    if done is not None:
                        with contextlib.suppress(RemoteStorageException):
                            done.result(60)
                    crash()
                    return done or True

                return call

            for name in names:
                hooked = broker.storage if name == "delete_log_segment_data" else broker.metadata
                hooked.hooks[name] = crashing(hooked._inner, name)
            broker.removals.delete_partition(PARTITION)
            crashed = False
            try:
                made.drive_to_end(broker)
            except Crash:
                crashed = True
            broker.metadata.hooks.clear()
            broker.storage.hooks.clear()
            next_one = Broker(made, 3) if another else broker
            next_one.start()
            next_one.removals.lead({made.rig.number()})
            if last < 5:  # it may not be marked yet: the controller asks again
                next_one.removals.delete_partition(PARTITION)
            made.drive_to_end(next_one, host)
            assert is_removed(host)
            if not crashed:
                assert last > 20
                return
    raise AssertionError("it crashes for ever")


# ---- managers of third parties


def test_a_manager_that_cannot_say_what_is_pending() -> None:
    """The broker that marks a partition removes it itself."""
    with cluster() as made:
        metadata = DictMetadataManager()
        broker = Broker(made, 1, metadata)
        metadata.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
        made.fill(broker, 5)
        metadata.on_stop_partitions(frozenset({PARTITION}))
        marked = broker.removals.delete_partition(PARTITION)
        made.drive_to_end(broker)
        assert marked.result(0) is None
        assert not metadata.is_ready(PARTITION)
