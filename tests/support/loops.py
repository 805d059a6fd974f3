"""Event loops that tests run on: asyncio's and uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

Result = TypeVar("Result")

LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(loop: str, main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run it to its end on a loop of that kind. Fails for tasks that it leaves behind, and for what nobody awaited."""
    unheard: list[dict[str, Any]] = []

    async def checked() -> Result:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"
        return result

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        result = runner.run(checked())
    assert not unheard, unheard
    return result
