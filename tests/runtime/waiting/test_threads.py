"""A caller that waits for a store leaves when it wants to, whatever the store does."""

from __future__ import annotations

import pytest

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, call_within, require_wanted
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.threads import BoundedCalls, CallAbandonedError

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bounded_call_ends_in_time(seed: int) -> None:
    """Whatever the store does: one that heeds the end at once, one that hangs for an hour."""
    machine, scheduler = ManualScheduler.machine(seed)
    clock = machine.clock
    with scheduler:
        calls = BoundedCalls(machine, 4, name="call")
        assert calls.run("quick", lambda: 5, seconds=1) == 5
        with pytest.raises(StoreUnavailableError, match="its own"):
            calls.run("failing", lambda: _fail("its own"), seconds=1)
        began = clock.monotonic_seconds()
        with pytest.raises(CallAbandonedError, match="no answer in time") as caught:
            calls.run("hanging", lambda: clock.sleep(3600), seconds=2)
        assert "still works" in caught.value.__notes__[0]
        assert 2 <= clock.monotonic_seconds() - began < 2.5

        def heed() -> None:
            while True:
                require_wanted()
                clock.sleep(0.01)

        with pytest.raises(CallAbandonedError) as caught:
            calls.run("heeding", heed, seconds=2)
        assert not hasattr(caught.value, "__notes__")
        outer = CancelScope(scheduler)
        ended = scheduler.start(lambda: call_within(outer, lambda: calls.run("outer", heed, seconds=100)), name="outer")
        clock.sleep(1)
        outer.cancel()
        began = clock.monotonic_seconds()
        assert isinstance(ended.exception(), CancelledReadError)
        assert clock.monotonic_seconds() - began < 0.5
        waiting = scheduler.start(lambda: calls.run("closing", heed, seconds=100), name="waits")
        clock.sleep(1)
        began = clock.monotonic_seconds()
        calls.close()
        assert isinstance(waiting.exception(), CallAbandonedError)
        assert clock.monotonic_seconds() - began < 0.5
        with pytest.raises(CallAbandonedError, match="closed"):
            calls.run("late", lambda: 5, seconds=1)


def _fail(text: str) -> None:
    raise StoreUnavailableError(text)
