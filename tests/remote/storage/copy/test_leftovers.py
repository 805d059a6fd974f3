"""A store that stalls or fails delays no deadline and no close, and what it keeps is removed once it can be.

Simulated: one thread, a clock that moves when all wait, turns by seed. ``test_stalled_stores`` has real ones.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.power_cuts import CONFIG, disk_with
from tests.support.power_cuts import segment as segment  # noqa: PLC0414 - a fixture
from tierlog.errors import NoThreadError, StoreNotReachedError, StoreUnavailableError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.storage.copy import leftovers as leftovers_module
from tierlog.remote.storage.copy.leftovers import Leftovers, Remains
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject, Upload
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.failing_store import FailingStore

SEEDS = range(6)
KEYS = {key: value for key, value in CONFIG.items() if "cache" not in key} | {"store.probe.enabled": "false"}


class Ill(PassingStore):
    """A third party's store that only knows how to block: what strikes a write or a delete is the test's to say."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.strike: Callable[[str, str], None] = lambda _what, _key: None

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self.strike("put", key)
        return super().put(key, data, expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        self.strike("begin", key)
        return super().begin_upload(key, part_bytes=part_bytes)

    def delete(self, keys: Sequence[str]) -> None:
        self.strike("delete", ",".join(keys))
        super().delete(keys)


class Scene:
    """A manager over an ill store in a simulated machine."""

    def __init__(self, manager: TieredStorageManager, scheduler: ManualScheduler, store: Ill) -> None:
        self.manager = manager
        self.scheduler = scheduler
        self.clock = scheduler.clock
        self.store = store

    def stalls(self, seconds: float) -> None:
        self.store.strike = lambda _what, _key: self.clock.sleep(seconds)

    def names(self) -> list[str]:
        return [info.key for info in self.store.iter_objects()]

    @property
    def left(self) -> float:
        return self.manager.metrics.value("leftovers")

    def copy(self, segment: ClosedSegment) -> RetriableRemoteStorageException:
        with pytest.raises(RetriableRemoteStorageException) as caught:
            self.manager.copy_log_segment_data(segment.metadata, segment.data)
        return caught.value


@contextlib.contextmanager
def scene(segment: ClosedSegment, seed: int, **keys: str) -> Iterator[Scene]:
    machine, scheduler = ManualScheduler.machine(seed, disk_with(segment))
    made: list[Ill] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        made.append(Ill(store))
        return made[0]

    with scheduler:
        manager = TieredStorageManager(machine=machine, wrap_store=wrap)
        manager.configure(KEYS | {name.replace("_", "."): value for name, value in keys.items()})
        yield Scene(manager, scheduler, made[0])
        made[0].strike = lambda _what, _key: None
        manager.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deadline_holds_whatever_the_store_does(segment: ClosedSegment, seed: int) -> None:
    """A copy's 3 s were 63: its undo waited for the store too. What may be left goes once the store is well."""
    with scene(segment, seed, copy_deadline_ms="3000") as it:
        it.stalls(15)
        began = it.clock.monotonic_seconds()
        error = it.copy(segment)
        assert 3 <= it.clock.monotonic_seconds() - began <= 5
        (note,) = error.__notes__
        assert "could not be removed again" in note
        assert "tried again while this process runs" in note
        assert it.left == 1
        it.clock.sleep(40)  # the request that nobody waits for stores the object after all
        it.store.strike = lambda _what, _key: None
        it.clock.sleep(1300)
        assert it.left == 0
        assert it.names() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_close_holds_whatever_the_store_does(
    segment: ClosedSegment, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that stops is killed after some seconds: it must have ended, and said what it leaves, before."""
    with scene(segment, seed) as it:
        custom = it.manager.copy_log_segment_data(segment.metadata, segment.data)
        it.stalls(15)
        copying = it.scheduler.start(lambda: _called(it.copy, segment.with_id(2)), name="copying")
        deleting = it.scheduler.start(
            lambda: it.manager.delete_log_segment_data(segment.finished(custom)), name="deleting"
        )
        it.clock.sleep(2)
        began = it.clock.monotonic_seconds()
        it.manager.close()
        assert it.clock.monotonic_seconds() - began <= 2
        copying.result()
        assert not any("tried again" in record.getMessage() for record in caplog.records)
        assert isinstance(deleting.exception(), RetriableRemoteStorageException)
        assert it.clock.monotonic_seconds() - began <= 2
        assert any("closed, and could not remove" in record.getMessage() for record in caplog.records)


def _called(call: Callable[[ClosedSegment], object], segment: ClosedSegment) -> None:
    call(segment)


def test_a_delete_takes_no_longer_than_a_copy_may(segment: ClosedSegment) -> None:
    """The expiration task has one thread for many partitions: a store that hangs must not keep it."""
    with scene(segment, 1, copy_deadline_ms="3000") as it:
        custom = it.manager.copy_log_segment_data(segment.metadata, segment.data)
        it.stalls(100)
        began = it.clock.monotonic_seconds()
        with pytest.raises(RetriableRemoteStorageException, match="no answer in time"):
            it.manager.delete_log_segment_data(segment.finished(custom))
        assert it.clock.monotonic_seconds() - began <= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_what_could_not_be_removed_is_tried_again(
    segment: ClosedSegment, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With pauses that grow and differ: an hour's outage is no storm of deletes, and its end is noticed."""
    tries: list[float] = []

    with scene(segment, seed) as it:

        def strike(what: str, key: str) -> None:
            if what == "delete":
                tries.append(it.clock.monotonic_seconds())
            if what == "delete" or key.endswith("rsm-manifest"):
                raise StoreUnavailableError(f"{key}: 503")

        it.store.strike = strike
        note = " ".join(it.copy(segment).__notes__)
        assert "tried again" in note
        assert it.names()
        assert it.left == 1
        it.clock.sleep(3600)
        pauses = [after - before for before, after in itertools.pairwise(tries)]
        assert 8 <= len(tries) <= 20
        assert 1 < pauses[0] <= 5
        assert 300 <= pauses[-1] <= 601
        assert len({round(pause, 3) for pause in pauses}) == len(pauses)
        told = [record.getMessage() for record in caplog.records if "not removed yet" in record.getMessage()]
        count = [f"try {number}:" for number in (2, 4, 8, 16) if number <= len(tries)]
        assert [number for line, number in zip(told, count, strict=True) if number in line] == count, (
            "no flood of lines"
        )
        it.store.strike = lambda _what, _key: None
        it.clock.sleep(700)
        assert it.left == 0
        assert it.names() == []
        assert not [name for name in it.scheduler.unfinished if "leftovers" in name]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_segment_that_is_copied_again_is_not_removed(segment: ClosedSegment, seed: int) -> None:
    """A caller that tries the same id again, and succeeds: what is removed later must not be that copy."""
    with scene(segment, seed) as it:
        it.store.strike = lambda what, key: _refuse(what == "delete" or key.endswith("rsm-manifest"))
        it.copy(segment)
        assert it.left == 1
        it.store.strike = lambda _what, _key: None
        custom = it.manager.copy_log_segment_data(segment.metadata, segment.data)
        it.clock.sleep(1300)
        assert it.left == 0
        with it.manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log


def test_a_segment_that_is_being_removed_is_not_copied(segment: ClosedSegment) -> None:
    """A delete under way would take the new copy with it."""
    with scene(segment, 3, copy_deadline_ms="3000") as it:
        it.stalls(15)
        it.copy(segment)
        error = it.copy(segment)
        assert "is still being removed" in str(error)
        it.clock.sleep(30)


def _refuse(condition: bool) -> None:
    if condition:
        raise StoreUnavailableError("503")


def test_a_deleted_segment_is_no_leftover(segment: ClosedSegment) -> None:
    """Kafka deletes what it failed to copy by itself: then there is nothing to try again."""
    with scene(segment, 1) as it:
        it.store.strike = lambda what, key: _refuse(what == "delete" or key.endswith(".indexes"))
        it.copy(segment)
        it.store.strike = lambda _what, _key: None
        it.manager.delete_log_segment_data(segment.metadata)
        it.clock.sleep(200)
        assert it.left == 0


@pytest.mark.parametrize("step", [".log", ".indexes", ".rsm-manifest"])
def test_what_never_reached_the_store_is_no_leftover(segment: ClosedSegment, step: str) -> None:
    """A store that is down refuses connections: nothing of such a request can be there, so nothing is claimed to be."""
    asked: list[str] = []

    with scene(segment, 1) as it:

        def strike(what: str, key: str) -> None:
            asked.append(what)
            if key.endswith(step):
                raise StoreNotReachedError(f"{key}: connection refused")

        it.store.strike = strike
        error = it.copy(segment)
        if step == ".log":
            assert "delete" not in asked
        assert getattr(error, "__notes__", []) == []
        assert it.left == 0
        assert it.names() == []


@pytest.mark.parametrize("seed", range(12))
def test_what_lands_late_is_removed_too(segment: ClosedSegment, seed: int) -> None:
    """A request without an answer that the store does half a minute later, after the undo."""
    machine, scheduler = ManualScheduler.machine(seed, disk_with(segment))
    made: list[FailingStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        made.append(FailingStore(store, {"late": 0.3}, rng=random.Random(seed), clock=machine.clock, late_seconds=30.0))
        return made[0]

    with scheduler, TieredStorageManager(machine=machine, wrap_store=wrap) as manager:
        manager.configure(KEYS)
        whole: set[str] = set()
        for number in range(2, 6):
            try:
                manager.copy_log_segment_data(segment.with_id(number).metadata, segment.data)
            except RetriableRemoteStorageException:
                continue
            whole.add(str(segment.with_id(number).metadata.remote_log_segment_id.id))
        made[0]._rates = {}
        machine.clock.sleep(1300)
        made[0].land_late()
        left = [info.key for info in made[0].iter_objects()]
        assert {key.rpartition(".")[0][-22:] for key in left} == whole
        assert manager.metrics.value("leftovers") == 0


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A day's outage of a large broker: memory has a bound, and what is given up is named."""
    monkeypatch.setattr(leftovers_module, "_KEPT_MAX", 3)
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        metrics = StorageMetrics()
        kept = Leftovers(machine, metrics)
        for number in range(5):
            remains = Remains(f"segment {number}", lambda _: ["x (503)"], lambda: ["x"])
            assert kept.undo(remains, seconds_left=lambda: 1.0) == ["x (503)"]
        assert metrics.value("leftovers") == 3
        assert metrics.value("leftover_objects_total") == 5
        given_up = [record.getMessage() for record in caplog.records if "too many" in record.getMessage()]
        assert [line.partition(":")[0] for line in given_up] == ["segment 0", "segment 1"]
        kept.close()
        kept.close()
        assert metrics.value("leftovers") == 0


def test_a_masked_prefix_stays_masked(segment: ClosedSegment, caplog: pytest.LogCaptureFixture) -> None:
    """``key.prefix.mask``: neither the note nor the lines of the log show it."""
    caplog.set_level(logging.INFO)
    more: dict[str, Any] = {"key_prefix": "customer-7/", "key_prefix_mask": "true"}
    with scene(segment, 1, **more) as it:
        it.store.strike = lambda what, key: _refuse(what == "delete" or key.endswith("rsm-manifest"))
        error = it.copy(segment)
        it.clock.sleep(100)
        it.manager.close()
        assert error.__notes__
        shown = [*error.__notes__, str(error), *(record.getMessage() for record in caplog.records)]
        assert not [text for text in shown if "customer-7" in text]


def test_without_a_thread_they_are_kept_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container at its limit of threads: what a copy left was given up as if the manager were closed."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        metrics = StorageMetrics()
        kept = Leftovers(machine, metrics)
        submit = kept._pool.submit
        tries: list[float] = []

        def scarce(work: Callable[[], None]) -> Any:
            tries.append(machine.clock.monotonic_seconds())
            if len(tries) < 4:
                raise NoThreadError("no thread for tierlog-undo")
            return submit(work)

        monkeypatch.setattr(kept._pool, "submit", scarce)
        assert kept.undo(Remains("s", lambda _: [], lambda: ["x"]), seconds_left=lambda: 1.0) == ["x"]
        assert metrics.value("leftovers") == 1
        machine.clock.sleep(60)
        assert metrics.value("leftovers") == 0
        assert len(tries) == 4
        assert all(after - before >= 1 for before, after in itertools.pairwise(tries)), "no loop without a pause"
        kept.close()
