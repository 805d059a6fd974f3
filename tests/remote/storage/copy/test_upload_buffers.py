"""The memory of copies: bounded, fair, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import LIMIT_SECONDS
from tierlog.remote.storage.copy.upload_buffers import LentBuffer, UploadBuffers, process_buffers
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

MIB = 1 << 20


def test_many_copies_share_the_budget_and_all_finish() -> None:
    """A broker with hundreds of partitions must neither run out of memory nor stand still."""
    buffers = UploadBuffers(10 * MIB)
    most = []

    def copy(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(5):
            held = buffers.borrow([chance.randrange(1, 4 * MIB), chance.randrange(1, 2 * MIB)])
            extra = buffers.try_borrow(chance.randrange(1, 3 * MIB))
            most.append(buffers.lent_bytes)
            held[0].view[0] = 1
            for buffer in [*held, *([extra] if extra else [])]:
                buffer.give_back()

    threads = [threading.Thread(target=copy, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert max(most) <= 10 * MIB
    assert buffers.lent_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 3 * MIB), st.booleans()), max_size=40))
def test_what_is_lent_never_passes_the_budget(steps: list[tuple[int, bool]]) -> None:
    """Buffers of many sizes come and go, and each byte counts once."""
    buffers = UploadBuffers(4 * MIB)
    lent: list[LentBuffer] = []
    for size, gives_back in steps:
        buffer = buffers.try_borrow(size)
        assert (buffer is None) == (buffers.lent_bytes + (size if buffer is None else 0) > 4 * MIB)
        if buffer is not None:
            lent.append(buffer)
        assert buffers.lent_bytes == sum(len(b.view) for b in lent) <= 4 * MIB
        if gives_back and lent:
            lent.pop(0).give_back()


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_that_cannot_get_all_of_its_buffers_holds_none(seed: int) -> None:
    """Two copies that each hold half of what they need would wait for each other until the broker restarts."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        buffers = UploadBuffers(4 * MIB, machine=machine)
        first = buffers.borrow([3 * MIB])
        came: list[float] = []

        def wait_in_line(sizes: list[int]) -> None:
            buffers.borrow(sizes)
            came.append(machine.clock.monotonic_seconds())

        waiting = []
        for sizes in ([MIB, MIB], [MIB]):
            waiting.append(scheduler.start(partial(wait_in_line, sizes), name="waiting"))
            machine.clock.sleep(5.05)
        assert came == []
        assert buffers.lent_bytes == 3 * MIB
        assert buffers.try_borrow(1) is None, "who is in line comes first"
        first[0].give_back()
        for each in waiting:
            each.result()
        assert came == [10.1, 10.1], "at once, not when they look the next time"
        assert buffers.lent_bytes == 3 * MIB


def test_a_chunk_above_the_budget_waits_until_it_is_alone() -> None:
    """A configuration with huge chunks is legal; it must be slow, not stuck."""
    buffers = UploadBuffers(MIB)
    (huge,) = buffers.borrow([16 * MIB])
    assert buffers.try_borrow(1) is None
    huge.give_back()
    assert buffers.try_borrow(1) is not None


def test_a_wait_ends_when_the_copy_is_called_off() -> None:
    """A copy past its deadline must not stay in line in front of the others."""
    buffers = UploadBuffers(MIB)
    (held,) = buffers.borrow([MIB])

    def called_off() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        buffers.borrow([1], check=called_off)
    held.give_back()
    held.give_back()
    buffers.borrow([1])[0].give_back()
    assert buffers.lent_bytes == 0


def test_buffers_go_back_to_the_process() -> None:
    """An idle broker should not hold the memory of its busiest minute: the process's pool gives back what is idle."""
    buffers = UploadBuffers(4 * MIB)
    before = PROCESS_BUFFERS.lent_bytes
    with buffers.borrow([MIB])[0] as buffer:
        buffer.view[:] = bytes(MIB)
        assert PROCESS_BUFFERS.lent_bytes == before + MIB
    del buffer
    assert PROCESS_BUFFERS.lent_bytes == before


def test_memory_that_somebody_still_reads_is_not_lent_again() -> None:
    """An upload that goes on behind its copy's back would send another segment's bytes."""
    buffers = UploadBuffers(4 * MIB)
    with buffers.borrow([MIB])[0] as buffer:
        buffer.view[:] = b"a" * MIB
        reading = buffer.view[:MIB]
    with buffers.borrow([MIB])[0] as other:
        other.view[:] = b"b" * MIB
    assert bytes(reading) == b"a" * MIB


def test_all_managers_of_a_process_share_one_budget() -> None:
    """Two clusters in one sidecar would take twice the memory that was given to it."""
    first = process_buffers(MIB, Machine())
    assert process_buffers(2 * MIB, Machine()) is first
    assert first.budget_bytes >= 2 * MIB


def test_a_budget_lends_something() -> None:
    """A budget of nothing would block the first copy for ever."""
    with pytest.raises(ValueError):
        UploadBuffers(0)
