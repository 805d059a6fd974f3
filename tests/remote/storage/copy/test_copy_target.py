"""Where `tierlog copy` writes: its deadline, what it leaves, what it finds again, and its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import SHAPES
from tests.support.power_cuts import disk_with
from tests.support.power_cuts import segment as segment  # noqa: PLC0414 - a fixture
from tierlog.errors import StoreUnavailableError
from tierlog.remote.storage.copy.copy_target import CopyTarget, open_copy_target
from tierlog.remote.storage.storage_errors import CopyAbandonedError, CopyDeadlineError
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

HOUR = 3600.0


class Slow(PassingStore):
    """A store whose PUTs take so long; deletes fail as long as they are told to, and are counted."""

    seconds = 0.0
    keeps_all = False
    deletes = 0

    def __init__(self, store: ObjectStore, scheduler: ManualScheduler) -> None:
        super().__init__(store)
        self._scheduler = scheduler

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self._scheduler.clock.sleep(self.seconds)
        if self.keeps_all and key.endswith("rsm-manifest"):
            raise StoreUnavailableError(f"{key}: 503")
        return super().put(key, data, expected_etag=expected_etag)

    def delete(self, keys: Sequence[str]) -> None:
        self.deletes += 1
        if self.keeps_all:
            raise StoreUnavailableError("503")
        super().delete(keys)


@contextlib.contextmanager
def target_of(segment: ClosedSegment, **config: str) -> Iterator[tuple[CopyTarget, Slow, ManualScheduler]]:
    machine, scheduler = ManualScheduler.machine(1, disk_with(segment))
    made: list[Slow] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        made.append(Slow(store, scheduler))
        return made[0]

    with scheduler:
        keys = {"chunk.size": "16384"} | {name.replace("_", "."): value for name, value in config.items()}
        target = open_copy_target("/target", config=keys, machine=machine, wrap_store=wrap)
        yield target, made[0], scheduler
        target.close()
        target.close()
        assert scheduler.unfinished == [], "threads that outlive the command"


def copy(target: CopyTarget, segment: ClosedSegment) -> None:
    target.copy(segment.metadata, segment.data, disk_with(segment))


def test_a_deadline_is_in_milliseconds(segment: ClosedSegment) -> None:
    """If this fails, a copy over a store that hangs takes a thousand times its deadline, or none of its time."""
    with target_of(segment, copy_deadline_ms="90000") as (target, store, scheduler):
        store.seconds = 80
        with pytest.raises(CopyDeadlineError):
            copy(target, segment)
        assert 90 <= scheduler.clock.monotonic_seconds() <= 92
        scheduler.clock.sleep(100)
        store.seconds = 20
        copy(target, segment)


@pytest.mark.parametrize(("seconds", "is_done"), [(1100, True), (1300, False)])
def test_without_a_word_of_it_the_deadline_is_an_hour(segment: ClosedSegment, seconds: float, is_done: bool) -> None:
    """If this fails, a copy over a slow line is called off, or one over a dead line never is."""
    with target_of(segment) as (target, store, scheduler):
        store.seconds = seconds  # for each of its three objects
        if is_done:
            copy(target, segment)
            assert target.find(segment.metadata) is not None
        else:
            with pytest.raises(CopyDeadlineError):
                copy(target, segment)
            assert HOUR <= scheduler.clock.monotonic_seconds() <= HOUR + 2
            scheduler.clock.sleep(HOUR)


def test_what_could_not_be_removed_is_not_tried_again(segment: ClosedSegment) -> None:
    """If this fails, a copy that another run has finished meanwhile, under the same id, is taken for left over."""
    with target_of(segment) as (target, store, scheduler):
        store.keeps_all = True
        with pytest.raises(StoreUnavailableError) as caught:
            copy(target, segment)
        (note,) = caught.value.__notes__
        assert "tried again" not in note
        assert "`tierlog orphans` finds it" in note
        store.keeps_all = False
        deletes = store.deletes
        scheduler.clock.sleep(2 * HOUR)
        assert store.deletes == deletes
        assert len([*store.iter_objects()]) == 2


@pytest.mark.parametrize("shape", ["aiven-zstd-aes", "kafka"])
def test_what_was_copied_is_found_whole_or_not_at_all(segment: ClosedSegment, shape: str) -> None:
    """If this fails, a second run copies everything anew, or leaves a segment that misses an object."""
    with target_of(segment, **SHAPES[shape]) as (target, store, _):  # type: ignore[arg-type]
        assert target.find(segment.metadata) is None
        copy(target, segment)
        found = target.find(segment.metadata)
        assert found is not None
        infos = [*store.iter_objects()]
        assert found.stored_bytes == sum(info.size_bytes for info in infos)
        assert b"".join(bytes(view) for _, view in target.tier.iter_log_windows(found.segment)) == segment.log
        lost = next(info.key for info in infos if info.key.endswith("index" if shape == "kafka" else "indexes"))
        store.delete([lost])
        assert target.find(segment.metadata) is None
        target.remove(segment.metadata)
        assert [*store.iter_objects()] == []


def test_closing_ends_a_copy_that_runs(segment: ClosedSegment) -> None:
    """If this fails, a command that is interrupted hangs until its store answers."""
    with target_of(segment) as (target, store, scheduler):
        store.seconds = HOUR
        running = scheduler.start(lambda: copy(target, segment), name="copy")
        scheduler.clock.sleep(5)
        target.close()
        assert isinstance(running.exception(), CopyAbandonedError)
        assert scheduler.clock.monotonic_seconds() <= 7
        scheduler.clock.sleep(2 * HOUR)
