"""The memory of requests, as bytes and decoded, against a model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.serving.admission import RequestMemory


@given(st.lists(st.one_of(st.integers(0, 120), st.none()), max_size=60))
def test_the_bound_is_passed_by_one_request_at_most_and_nobody_is_forgotten(events: list[int | None]) -> None:
    """Too much memory ends the process; a request that is forgotten is a client that waits for ever."""

    class Waiter:
        def __init__(self, number: int, size: int) -> None:
            self.number, self.size = number, size

        def memory_given(self) -> None:
            held.append(self.size)
            came.append(self.number)

    memory = RequestMemory(100, small_bytes=-1)
    held: list[int] = []
    order: list[int] = []
    came: list[int] = []
    for number, size in enumerate(events):
        if size is None:
            if held:
                memory.give(held.pop(0))
        elif memory.take(size):
            held.append(size)
        else:
            order.append(number)
            waiter = Waiter(number, size)
            memory.wait(waiter.memory_given, size)
            if number % 5 == 0:
                memory.withdraw(waiter.memory_given)
                memory.withdraw(waiter.memory_given)
                order.pop()
        assert memory.used_bytes == sum(held)
        assert not held or sum(held) - max(held) < 100 or sum(held) - held[-1] < 100
        assert not memory.waiting or memory.used_bytes >= 100
    while held:
        memory.give(held.pop(0))
    assert came == order
    assert memory.used_bytes == 0


def test_without_a_bound_nobody_waits() -> None:
    """Kafka's default, -1, means no bound, not none at all."""
    memory = RequestMemory(-1, small_bytes=16)
    assert all(memory.take(1 << 40) for _ in range(10))
    memory.give(1 << 40)


def test_a_small_request_never_waits() -> None:
    """Three clients that claim long requests and send nothing would hold up all others for half a minute."""
    memory = RequestMemory(100, small_bytes=16)
    assert memory.take(1000)
    assert not memory.take(17)
    assert memory.take(16)
    memory.give(16)
    memory.give(1000)
    assert memory.used_bytes == 0


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def decode(memory: RequestMemory, size: int, *, host: str = "host", seconds: float = 0) -> None:
    """A request takes memory, is decoded, works for a while and gives the memory back."""
    if not memory.take_decoded(size):
        await memory.wait_decoded(host, size)
    try:
        await asyncio.sleep(seconds)
    finally:
        memory.give_decoded(size)


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 300), st.booleans()), max_size=30))
def test_all_requests_are_decoded_in_the_end_and_within_the_bound(requests: list[tuple[int, int, bool]]) -> None:
    """Requests that wait for each other's memory for ever are a server that hangs; too much memory ends the process."""
    memory = RequestMemory(200, small_bytes=10)
    held = [0]
    most = max((decoded for _, decoded, _ in requests), default=0) + max((frame for frame, _, _ in requests), default=0)

    async def work(frame: int, decoded: int) -> None:
        if not memory.take(frame):  # as a connection does, which waits for its turn
            given_frame = asyncio.Event()

            class Waiter:
                def memory_given(self) -> None:
                    given_frame.set()

            waiter = Waiter()
            memory.wait(waiter.memory_given, frame)
            try:
                await given_frame.wait()
            except asyncio.CancelledError:
                memory.withdraw(waiter.memory_given)
                if given_frame.is_set():
                    memory.give(frame)
                raise
        held[0] += frame
        try:
            if not memory.take_decoded(decoded):
                await memory.wait_decoded("host", decoded)
            left = decoded
            held[0] += left
            try:
                # Small ones come whatever is held.
                assert held[0] <= 200 + most + 10 * len(requests)
                await asyncio.sleep(0)
                left = decoded // 2
                memory.shrink_decoded(decoded, left)
                held[0] -= decoded - left
                await asyncio.sleep(0)
            finally:
                memory.give_decoded(left)
                held[0] -= left
        finally:
            memory.give(frame)
            held[0] -= frame

    async def main() -> None:
        tasks = [asyncio.create_task(work(frame, decoded)) for frame, decoded, _ in requests]
        await asyncio.sleep(0)
        for task, (_, _, is_gone) in zip(tasks, requests, strict=True):
            if is_gone and memory.waiting:
                task.cancel()
                break
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError)
        assert (memory.used_bytes, memory.waiting) == (0, 0)

    run(main())


def test_a_request_is_decoded_though_the_bytes_of_others_take_all() -> None:
    """Each of them would wait for memory that another one holds, and none would ever be answered."""

    async def main() -> None:
        memory = RequestMemory(100, small_bytes=10)
        assert memory.take(500)
        await asyncio.gather(*(decode(memory, size) for size in (1000, 200, 50)))
        assert memory.used_bytes == 500

    run(main())


def test_who_waits_to_be_decoded_holds_up_no_small_request() -> None:
    """A few clients with long requests must not stop all consumers."""

    async def main() -> None:
        memory = RequestMemory(100, small_bytes=10)
        long = [asyncio.create_task(decode(memory, 1000, seconds=60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert memory.waiting == 2
        assert memory.take_decoded(10)
        assert not memory.take_decoded(11)
        memory.give_decoded(10)
        for task in long:
            task.cancel()
        await asyncio.wait(long)
        assert (memory.used_bytes, memory.waiting) == (0, 0)

    run(main())


def test_hosts_take_turns_to_have_their_requests_decoded() -> None:
    """One administrator with a hundred scripts would hold up everybody else until all of those are through."""

    async def main() -> None:
        memory = RequestMemory(100, small_bytes=10)
        order: list[str] = []

        async def work(host: str) -> None:
            await decode(memory, 1000, host=host)
            order.append(host)

        await asyncio.gather(*(work("crowd") for _ in range(100)), work("other"))
        assert order.index("other") <= 2

    run(main())


@pytest.mark.parametrize("is_given", [False, True])
def test_a_client_that_goes_while_its_request_waits_leaves_nothing(is_given: bool) -> None:
    """Memory that nobody gives back is missing for all others until the server starts anew."""

    async def main() -> None:
        memory = RequestMemory(100, small_bytes=10)
        assert memory.take_decoded(1000)
        waiting = asyncio.create_task(decode(memory, 500))
        await asyncio.sleep(0)
        if is_given:
            memory.give_decoded(1000)
        waiting.cancel()
        await asyncio.wait([waiting])
        if not is_given:
            memory.give_decoded(1000)
        assert (memory.used_bytes, memory.waiting) == (0, 0)

    run(main())
