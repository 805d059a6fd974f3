"""Turns by key, in order of arrival for one key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.runtime.waiting.turns import FairQueue


def test_keys_take_turns() -> None:
    """If this fails, whoever asks most is served most."""
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.put(item[0], item)
    queue.put("c", "c0", first=True)
    assert queue.first() == "c0"
    assert [queue.take() for _ in range(len(queue))] == ["c0", "a1", "b1", "c1", "a2", "b2", "a3"]
    assert (queue.first(), len(queue)) == (None, 0)
    with pytest.raises(LookupError):
        queue.take()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["put", "first", "take", "remove"]))))
def test_nothing_is_lost(steps: list[tuple[int, str]]) -> None:
    """If this fails, a request is never sent, or twice."""
    queue: FairQueue[tuple[int, int]] = FairQueue()
    held: list[tuple[int, int]] = []
    for number, (key, step) in enumerate(steps):
        if step in ("put", "first"):
            held.append((key, number))
            queue.put(key, (key, number), first=step == "first")
        elif step == "take" and held:
            held.remove(queue.take())
        elif step == "remove" and held:
            item = held[number % len(held)]
            assert queue.remove(item[0], item)
            assert not queue.remove(item[0], item)
            held.remove(item)
        assert len(queue) == len(held)
    assert sorted(queue.take() for _ in range(len(queue))) == sorted(held)
