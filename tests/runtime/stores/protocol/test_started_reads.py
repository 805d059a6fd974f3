"""Which stores begin reads, and what a read that was begun answers."""

from __future__ import annotations

import contextlib
import pathlib
import random
import threading

import pytest
from typing_extensions import Buffer

from tests.support.servers import StoreServer
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.storage.manager_parts import PartitionStore
from tierlog.remote.storage.storage_metrics import PartitionMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.optional_reads import (
    Answer,
    find_direct_reads,
    find_ready_reads,
    find_started_reads,
)
from tierlog.runtime.stores.reading.remote_store import RemoteStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, MaskedStore, PassingStore
from tierlog.testing.failing_store import FailingStore

MIB = 1 << 20


class Slower(PassingStore):
    """A wrapper as a user writes one."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


class CountedRemote(RemoteStore):
    """A store of ours whose reads a user changed."""

    fetch_range = Slower.fetch_range  # type: ignore[assignment]


def test_a_wrapper_is_not_gone_around(tmp_path: pathlib.Path) -> None:
    """If this fails, a store that somebody wrapped to count, throttle or break reads is read past the wrapper."""
    from prometheus_client import CollectorRegistry

    local = LocalStore(str(tmp_path))
    remote = open_store("memory://")
    assert find_started_reads(local) is None
    assert find_started_reads(remote) is remote
    for wrapper in (PassingStore(remote), CountingStore(remote), MaskedStore(PassingStore(remote), "x/")):
        assert find_started_reads(wrapper) is wrapper
    assert find_started_reads(Slower(remote)) is None
    assert find_started_reads(MaskedStore(Slower(remote), "x/")) is None
    assert find_started_reads(FailingStore(remote, {}, rng=random.Random(1), clock=ManualClock())) is None
    assert find_started_reads(CountedRemote.__new__(CountedRemote)) is None
    metrics = PartitionMetrics(CollectorRegistry())
    counting = PartitionStore(remote, "aiven", metrics)
    assert find_started_reads(counting) is counting
    assert find_started_reads(PartitionStore(local, "aiven", metrics)) is None
    remote.fetch_range = lambda key, **_: b""  # type: ignore[method-assign]
    assert find_started_reads(remote) is None


def test_a_wrapper_is_not_read_past_either(tmp_path: pathlib.Path) -> None:
    """If this fails, reads into a broker's own memory are not counted, throttled or broken as somebody wanted."""
    from prometheus_client import CollectorRegistry

    local = LocalStore(str(tmp_path))
    metrics = PartitionMetrics(CollectorRegistry())
    counting = PartitionStore(local, "aiven", metrics)
    assert find_direct_reads(local) is local
    assert find_direct_reads(counting) is counting
    assert find_direct_reads(PartitionStore(open_store("memory://"), "aiven", metrics)) is None
    passing = MaskedStore(PassingStore(local), "x/")
    assert find_direct_reads(passing) is passing
    assert find_direct_reads(Slower(local)) is None
    assert find_direct_reads(FailingStore(local, {}, rng=random.Random(1), clock=ManualClock())) is None
    assert find_direct_reads(PartitionStore(Slower(local), "aiven", metrics)) is None
    local.fetch_range = lambda key, **_: b""  # type: ignore[method-assign]
    assert find_direct_reads(local) is None


def test_who_must_not_wait_is_given_files_of_a_plain_folder_alone(tmp_path: pathlib.Path) -> None:
    """If this fails, an event loop waits inside of a wrapper, or reads around it."""
    local = LocalStore(str(tmp_path))
    assert find_ready_reads(local) is local
    for other in (open_store("memory://"), PassingStore(local), CountingStore(local), Slower(local)):
        assert find_ready_reads(other) is None
    local.put("k", b"abcd")
    file, out = local.open_ready("k"), bytearray(3)
    if file is not None:  # an older system
        assert file.read_into(out, 1) == 3
        assert out == b"bcd"
        assert local.requests["GET"] == 1
    assert local.open_ready("none") is None
    assert local.requests["GET"] == (file is not None)
    memory = MemoryFiles()
    memory.make_directories("/root")
    store = LocalStore("/root", Machine(files=memory))
    store.put("k", b"abcd")
    assert store.open_ready("k") is None


class Told:
    """What a read answered."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._came = threading.Event()

    def __call__(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._came.set()

    def wait(self) -> Answer:
        assert self._came.wait(LIMIT_SECONDS)
        return self.answers[0]


@pytest.mark.server
def test_answers_of_a_real_store(s3: StoreServer) -> None:
    """If this fails, a read that holds no thread gives other bytes or errors than one that does."""
    store = open_store(f"{s3.url}/started", s3.options)
    started = find_started_reads(store)
    assert started is not None
    store.put("a", bytes(range(256)) * 4000)

    def ask(key: str, start: int, end: int) -> Answer:
        told = Told()
        started.start_fetch_range(key, start_position=start, end_position_exclusive=end, on_answer=told)
        return told.wait()

    for start, end in ((0, 10), (100, 300_000), (1_023_990, 2_000_000), (5_000_000, 5_000_010)):
        answer = ask("a", start, end)
        assert not isinstance(answer, BaseException)
        assert bytes(answer) == bytes(store.fetch_range("a", start_position=start, end_position_exclusive=end))
    assert isinstance(ask("b", 0, 10), ObjectNotFoundError)
    told = Told()
    cancel = started.start_fetch_range("a", start_position=0, end_position_exclusive=1_000_000, on_answer=told)
    cancel()
    cancel()
    assert isinstance(told.wait(), CancelledReadError)
    assert len(told.answers) == 1
    store.close()


@pytest.mark.parametrize("how", ["fetch", "fetch_range", "start_fetch_range", "cancellable"])
def test_the_clients_memory_goes_back(how: str) -> None:
    """If this fails, what a burst of reads of a bucket took stays in malloc's arenas until the broker is restarted."""
    store = open_store("memory://")
    store.put("k", bytes(MIB))
    wait_until(lambda: not PROCESS_BUFFERS.has_thread)  # of tests before
    if how == "fetch":
        assert len(memoryview(store.fetch("k"))) == MIB
    elif how == "start_fetch_range":
        told = Told()
        started = find_started_reads(store)
        assert started is not None
        started.start_fetch_range("k", start_position=0, end_position_exclusive=MIB, on_answer=told)
        told.wait()
    else:
        with cancelled_by(CancelScope(ThreadScheduler())) if how == "cancellable" else contextlib.nullcontext():
            assert len(memoryview(store.fetch_range("k", start_position=0, end_position_exclusive=MIB))) == MIB
    assert PROCESS_BUFFERS.has_thread
