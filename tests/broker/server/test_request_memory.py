"""The memory of requests, against a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierlog.broker.server.request_memory import RequestMemory


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
            memory.wait(waiter, size)
            if number % 5 == 0:
                memory.withdraw(waiter)
                memory.withdraw(waiter)
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
