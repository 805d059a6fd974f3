"""Parts on their way: the object is what was handed over, and memory comes back when nothing reads it any more."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from tierlog.errors import ObjectConflictError, PoolClosedError, StoreUnavailableError
from tierlog.remote.api import RemoteLogSegmentId, TopicIdPartition, Uuid
from tierlog.remote.storage.copy.part_stream import PartStream
from tierlog.remote.storage.copy.running_copies import CopyRequests, RunningCopies, RunningCopy
from tierlog.remote.storage.copy.upload_buffers import UploadBuffers
from tierlog.remote.storage.storage_errors import CopyDeadlineError
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject, Upload
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

SEGMENT = RemoteLogSegmentId(TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 3), Uuid(bytes(16)))
PART, PART_SECONDS = 1000, 10.0
KEY = "segment.log"


class Slow(PassingStore):
    """A store that takes its time for each part and each PUT, and remembers when the parts came and how large."""

    def __init__(self, store: ObjectStore, machine: Machine, seconds: float) -> None:
        super().__init__(store)
        self.machine = machine
        self.seconds = seconds
        self.parts: dict[int, int] = {}

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self.machine.clock.sleep(self.seconds)
        return super().put(key, data, expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        return SlowUpload(super().begin_upload(key, part_bytes=part_bytes), self)


@dataclass
class SlowUpload:
    inner: Upload
    store: Slow

    @property
    def key(self) -> str:
        return self.inner.key

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        self.store.parts[number] = sum(len(memoryview(each)) for each in data)
        self.store.machine.clock.sleep(self.store.seconds)
        self.inner.put_part(number, data)

    def complete(self) -> StoredObject:
        return self.inner.complete()

    def abort(self) -> None:
        self.inner.abort()


@dataclass
class Scene:
    """A stream of one copy on a machine whose time passes only while everybody waits."""

    machine: Machine
    store: Slow
    buffers: UploadBuffers
    running: RunningCopy
    stream: PartStream

    @property
    def now(self) -> float:
        return self.machine.clock.monotonic_seconds()

    def stored(self) -> bytes:
        return bytes(self.store.fetch(KEY))


@contextlib.contextmanager
def scene(
    seed: int = 1, *, budget: int = 3 * PART, parallel: int = 3, seconds: float = PART_SECONDS, deadline: float = 1e6
) -> Iterator[Scene]:
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, contextlib.closing(open_store(f"memory://{uuid.uuid4()}")) as bucket:
        store = Slow(bucket, machine, seconds)
        copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=deadline)
        running = copies.begin(SEGMENT)
        senders = scheduler.pool(8, name="upload")
        buffers = UploadBuffers(budget, machine=machine)
        stream = PartStream(
            store,
            KEY,
            part_bytes=PART,
            parallel=parallel,
            buffer=buffers.borrow([PART])[0],
            buffers=buffers,
            running=running,
            requests=CopyRequests(running, senders),
            limiter=RateLimiter(None, machine=machine),
        )
        yield Scene(machine, store, buffers, running, stream)
        copies.end(running)
        copies.close()
        senders.close()
        assert buffers.lent_bytes == 0, "memory that nobody gives back"


@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 3 * PART), max_size=8),
    budget=st.sampled_from([PART, 2 * PART, 5 * PART]),
)
@settings(max_examples=60, deadline=None)
def test_the_object_is_what_was_handed_over(seed: int, sizes: list[int], budget: int) -> None:
    """If this fails, a log has holes, or a part that the store refuses for its size, whatever threads do when."""
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    content = b"".join(pieces)
    with scene(seed, budget=budget) as it:
        for piece in pieces:
            it.stream.append(memoryview(piece))
        it.stream.flush()
        stored = it.stream.make_visible(only_if_absent=False)
        it.stream.close()
        assert stored.size_bytes == it.stream.size_bytes == it.running.stored_bytes == len(content)
        assert it.stored() == content
        assert it.stream.is_multipart == (len(content) > PART)
        count = -(-len(content) // PART) if it.stream.is_multipart else 0
        assert sorted(it.store.parts) == [*range(1, count + 1)]
        assert all(it.store.parts[number] == PART for number in range(1, count))


@pytest.mark.parametrize(("parallel", "budget", "seconds"), [(3, 9, 20), (9, 3, 20), (1, 9, 60), (9, 1, 60)])
def test_parts_go_side_by_side_as_far_as_memory_and_limit_allow(parallel: int, budget: int, seconds: float) -> None:
    """If this fails, an upload takes a multiple of its time, or more requests and memory than were given."""
    with scene(parallel=parallel, budget=budget * PART) as it:
        it.stream.append(memoryview(bytes(6 * PART)))
        assert it.buffers.lent_bytes <= min(parallel + 1, budget) * PART
        it.stream.flush()
        it.stream.make_visible(only_if_absent=False)
        assert it.now == pytest.approx(seconds, abs=PART_SECONDS)
        it.stream.close()


def test_memory_beyond_the_least_goes_to_who_waits_for_it() -> None:
    """If this fails, one large upload holds all memory to its end, and all other copies of the broker stand in line."""
    with scene() as it:
        it.stream.append(memoryview(bytes(3 * PART + 1)))
        assert it.buffers.lent_bytes == 3 * PART
        came: list[float] = []

        def other() -> None:
            held = it.buffers.borrow([PART, PART])
            came.append(it.now)
            for buffer in held:
                buffer.give_back()

        waiting = it.machine.scheduler.start(other, name="another copy")
        it.stream.append(memoryview(bytes(6 * PART)))
        assert came, "while the upload goes on"
        it.stream.flush()
        it.stream.make_visible(only_if_absent=False)
        it.stream.close()
        waiting.result()
        assert it.stored() == bytes(9 * PART + 1)


def test_a_part_is_not_sent_before_it_is_filled() -> None:
    """If this fails, what lay in the memory before is stored in place of the segment."""
    with scene() as it:
        filled = [it.machine.scheduler.future() for _ in range(4)]
        for number, future in enumerate(filled):
            future.begin()
            place = it.stream.reserve(PART // 2)
            assert place is not None
            it.stream.await_before_sending(future)

            def fill(number: int = number, place: memoryview = place) -> None:
                it.machine.clock.sleep(100)
                place[:] = bytes([number + 1]) * (PART // 2)
                filled[number].set_result(None)

            it.machine.scheduler.start(fill, name="transform")
        assert it.stream.reserve(PART + 1) is None
        it.stream.append(memoryview(b"end"))
        it.stream.flush()
        it.stream.make_visible(only_if_absent=False)
        it.stream.close()
        assert it.stored() == b"".join(bytes([number]) * (PART // 2) for number in (1, 2, 3, 4)) + b"end"


def test_buffers_of_parts_under_way_come_back_when_these_end() -> None:
    """If this fails, memory that the store still reads is another copy's; or each failed copy costs memory for ever."""
    with scene() as it:
        it.stream.append(memoryview(bytes(2 * PART + 1)))
        it.machine.clock.sleep(1)
        assert it.buffers.lent_bytes == 3 * PART
        it.stream.close()
        assert it.buffers.lent_bytes == 2 * PART, "the store reads them"
        it.machine.clock.sleep(PART_SECONDS)
        assert it.buffers.lent_bytes == 0


def test_a_part_that_no_thread_can_send_is_no_lost_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, each copy that a close overtakes leaves the process a part's memory less for copies."""
    with scene() as it:
        it.stream.append(memoryview(bytes(PART + 1)))
        it.machine.clock.sleep(PART_SECONDS)
        assert it.buffers.lent_bytes == 2 * PART

        def refused(_: Callable[[], object]) -> object:
            raise PoolClosedError

        monkeypatch.setattr(it.stream._requests, "submit", refused)
        with pytest.raises(PoolClosedError):
            it.stream.flush()
        it.stream.close()


def test_a_put_that_is_called_off_keeps_its_memory_until_it_ends() -> None:
    """If this fails, a store that is slow is sent another segment's bytes under this one's name."""
    with scene(deadline=3) as it:
        it.stream.append(memoryview(b"log"))
        it.stream.flush()
        with pytest.raises(CopyDeadlineError):
            it.stream.make_visible(only_if_absent=False)
        it.stream.close()
        assert it.now == 3
        assert it.buffers.lent_bytes == PART
        it.machine.clock.sleep(PART_SECONDS)
        assert it.buffers.lent_bytes == 0


def test_another_object_is_not_replaced_where_that_was_asked() -> None:
    """If this fails, a second attempt replaces a log that somebody reads."""
    with scene() as it:
        it.store.put(KEY, b"first")
        it.stream.append(memoryview(b"second"))
        it.stream.flush()
        with pytest.raises(ObjectConflictError):
            it.stream.make_visible(only_if_absent=True)
        it.stream.close()
        assert it.stored() == b"first"


def test_what_is_thrown_away_is_gone_though_the_answer_was_lost() -> None:
    """If this fails, parts that nobody sees are paid for until somebody looks for them."""

    class Forgetful(Slow):
        def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
            super().begin_upload(key, part_bytes=part_bytes).put_part(1, [b"part"])
            raise StoreUnavailableError("injected: begun, and the answer got lost")

    with scene() as it:
        it.stream.append(memoryview(bytes(PART)))
        assert not it.stream.may_have_parts
        it.stream._store = Forgetful(it.store.inner, it.machine, 0)
        with pytest.raises(StoreUnavailableError):
            it.stream.space()
        assert it.stream.may_have_parts
        it.stream.abort()
        it.stream.close()
        assert [*it.store.iter_uploads()] == []
