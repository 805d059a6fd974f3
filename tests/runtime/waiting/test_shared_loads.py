"""A load that its pool does not take: whoever waits for it hears why, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tierlog.errors import ForkedProcessError, NoThreadError, PoolClosedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import InlinePool
from tierlog.runtime.waiting.waits import SharedLoads


class Refusing(InlinePool):
    """Takes no call."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def submit(self, function: Callable[[], Any], /) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (PoolClosedError(), StoreUnavailableError),
        (NoThreadError("no thread for t"), NoThreadError),
        (ForkedProcessError("opened before"), ForkedProcessError),
    ],
)
def test_who_waits_is_told_why(refused: Exception, told: type[Exception]) -> None:
    """If this fails, a caller waits for ever, or hears that what is open was closed."""
    under_way: SharedLoads[str, int] = SharedLoads(Machine())
    load = under_way.alone("k")
    under_way.continue_in(Refusing(refused), load, lambda: None)
    with pytest.raises(told):
        load.result()


def test_a_fault_of_ours_is_not_called_a_close() -> None:
    """If this fails, a defect looks like a manager that was closed, and nobody looks for it."""
    under_way: SharedLoads[str, int] = SharedLoads(Machine())
    with pytest.raises(RuntimeError, match="dictionary changed size"):
        under_way.continue_in(Refusing(RuntimeError("dictionary changed size")), under_way.alone("k"), lambda: None)
