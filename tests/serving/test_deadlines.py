"""Times by which something has to have happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierlog.serving.connection import Deadlines

EVENTS = st.lists(
    st.tuples(st.sampled_from(("start", "stop", "look")), st.integers(0, 5), st.floats(0, 3)), max_size=50
)


@given(EVENTS)
def test_an_item_is_given_once_its_time_is_over_and_not_before(events: list[tuple[str, int, float]]) -> None:
    """A connection that is closed too early loses an answer; one that is never closed keeps its descriptor."""
    deadlines: Deadlines[int] = Deadlines(5.0)
    model: dict[int, float] = {}
    now = 0.0
    for event, item, passed in events:
        now += passed
        if event == "start":
            deadlines.start(item, now)
            model[item] = now
        elif event == "stop":
            deadlines.stop(item)
            model.pop(item, None)
        else:
            expired = {each for each, started in model.items() if now - started >= 5.0}
            assert set(deadlines.take_expired(now)) == expired
            model = {each: started for each, started in model.items() if each not in expired}
        assert len(deadlines) == len(model)
        assert all(each in deadlines for each in model)


def test_an_item_may_start_again_while_the_expired_are_taken() -> None:
    """A slow reader that took a byte gets its time again, in the midst of the look."""
    deadlines: Deadlines[str] = Deadlines(1.0)
    deadlines.start("a", 0.0)
    deadlines.start("b", 0.0)
    taken = []
    for each in deadlines.take_expired(1.0):
        taken.append(each)
        deadlines.start(each, 1.0)
    assert taken == ["a", "b"]
    assert list(deadlines.take_expired(1.5)) == []
