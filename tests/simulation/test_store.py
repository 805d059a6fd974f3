"""The simulated store does what every store must, and what its faults say: else the engine is blamed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract import test_object_store as contract
from tests.simulation.network import Network
from tests.simulation.settings import Settings
from tests.simulation.store import StartingStoreClient, StoreClient, StoreNode
from tests.simulation.trace import Trace
from tests.simulation.work_queue import WorkQueue
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import find_started_reads


class Life:
    """What a client asks of its broker's life, a node, and a note of what the judge heard."""

    def __init__(self, seed: int, scheduler: ManualScheduler) -> None:
        self.scheduler = scheduler
        self.told: list[tuple[str, str]] = []
        judge: Any = SimpleNamespace(
            object_put=lambda key, *_, **__: self.told.append(("put", key)),
            object_deleted=lambda key, by, _: self.told.append((by, key)),
        )
        settings = Settings.draw(seed)
        trace = Trace()
        self.network = Network(scheduler, trace, settings.rng("network"))
        self.node = StoreNode(self.network, judge, trace, settings.rng("store"))
        group = scheduler.group("broker-1/1")
        self.network.serve("broker-1", lambda *_: None)
        self.broker: Any = SimpleNamespace(
            settings=settings,
            broker_id=1,
            life=1,
            name="broker-1",
            group=group,
            io=WorkQueue(group, "io", 1),
            world=SimpleNamespace(network=self.network),
        )

    def sleep(self, seconds: float) -> None:
        self.scheduler.wait(seconds)


@pytest.fixture
def life() -> Iterator[Life]:
    _, scheduler = ManualScheduler.machine(1)
    with scheduler:
        yield Life(1, scheduler)


@pytest.mark.parametrize(
    "check",
    [
        contract.test_a_put_of_several_buffers,
        contract.test_a_buffer_is_the_callers_again_after_a_put,
        contract.test_deleting,
        contract.test_conditional_puts,
        contract.TestUploads().test_a_part_again_and_one_part_alone,
        contract.TestUploads().test_a_hole_is_never_completed,
        contract.TestUploads().test_aborting_leaves_nothing,
    ],
    ids=lambda check: check.__name__,
)
@pytest.mark.parametrize("kind", [StoreClient, StartingStoreClient])
def test_it_does_what_every_store_must(
    life: Life, kind: type[StoreClient], check: Callable[[ObjectStore], None]
) -> None:
    check(kind(life.broker))


def test_half_of_the_seeds_store_in_small_parts() -> None:
    """Else no segment of a simulation is large enough for an upload."""
    _, scheduler = ManualScheduler.machine(2)
    with scheduler:
        life = Life(2, scheduler)
        upload = StoreClient(life.broker).begin_upload("a", part_bytes=700)
        upload.put_part(2, [b"2" * 30])
        upload.put_part(1, [b"1" * 700])
        assert upload.complete().size_bytes == 730
        assert life.node.objects() == {"a": 730}


def test_an_answer_that_is_lost_leaves_the_object(life: Life) -> None:
    store = StoreClient(life.broker)
    life.node.set_faults(lose_answer=1.0)
    with pytest.raises(StoreUnavailableError):
        store.put("a", b"1")
    assert life.node.objects() == {"a": 1}


def test_a_put_that_was_given_up_lands_behind_a_deletion(life: Life) -> None:
    store = StoreClient(life.broker)
    life.node.set_faults(late_cancel=1.0)
    with pytest.raises(StoreUnavailableError):
        store.put("a", b"1")
    life.node.set_faults(late_cancel=0.0)
    store.delete(["a"])
    life.sleep(60)
    assert life.node.objects() == {"a": 1}
    assert life.told == [("broker-1", "a"), ("put", "a")]


def test_a_put_that_was_made_again_does_not_land_later(life: Life) -> None:
    store = StoreClient(life.broker)
    life.node.set_faults(late_cancel=1.0)
    life.network.after(1_000, lambda: life.node.set_faults(late_cancel=0.0))
    store.put("a", b"1")
    store.delete(["a"])
    life.sleep(60)
    assert not life.node.objects()


def test_the_other_faults(life: Life) -> None:
    store = StoreClient(life.broker)
    store.put("a", bytes(100))
    life.node.set_faults(1, fail=1.0)
    with pytest.raises(StoreUnavailableError):
        store.find("a")
    life.node.set_faults(1, fail=0.0, short_body=1.0)
    assert len(bytes(store.fetch_range("a", start_position=0, end_position_exclusive=100))) < 100
    life.node.set_faults(1, short_body=0.0, stale_listing=1.0)
    store.put("b", b"2")
    assert [each.key for each in store.iter_objects()] == ["a"]
    life.node.set_faults(stale_listing=0.0)
    assert [each.key for each in store.iter_objects()] == ["a", "b"]
    assert life.node.remove(0, "a") == "a"
    assert life.told[-1] == ("lifecycle", "a")


def test_reads_can_be_cancelled(life: Life) -> None:
    """A broker that closes does not wait for the store."""
    store = StartingStoreClient(life.broker)
    store.put("a", b"123")
    answers: list[Any] = []
    find_started_reads(store).start_fetch_range(
        "a", start_position=1, end_position_exclusive=3, on_answer=answers.append
    )
    life.sleep(1)
    assert [bytes(each) for each in answers] == [b"23"]
    life.node.set_faults(slow_ms_max=100_000)
    scope = CancelScope(life.scheduler)

    def cancel() -> None:
        life.sleep(0.2)
        scope.cancel()

    life.scheduler.start(cancel, name="cancels")
    began = life.network.now_ms
    with cancelled_by(scope), pytest.raises(CancelledReadError):
        store.fetch("a")
    assert life.network.now_ms - began < 1_000
