"""A server as what a process does: until it is told to end."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import gc
import logging
import resource
import signal
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import uvloop

_log = logging.getLogger(__name__)

#: Collections of the middle generation before one of all objects (Python: 10). What a server started with is never
#: looked through again, and what requests leave behind is garbage long before it is old.
_COLLECTIONS_OF_ALL: Final = 1000
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class Runnable(Protocol):
    """What runs: a Server, or one with more around it."""

    async def start(self) -> tuple[str, int]:
        """Begin; returns the host and the port."""

    async def stop(self) -> None:
        """End; idempotent."""

    async def reload_files(self) -> None:
        """Read a changed certificate and changed users."""


def run_server(
    make_server: Callable[[], Awaitable[Runnable]], on_ready: Callable[[str, int], None] = lambda _host, _port: None
) -> int:
    """Run a server on a loop of its own, in this thread, until SIGTERM or SIGINT.

    They may come while it still starts. SIGHUP has it read its certificate and its users. From the call on the process
    may have as many descriptors as it is allowed to ask for, and hardly ever looks through all its objects for cycles,
    which would hold up the loop for a tenth of a second and more.

    Args:
        make_server: Called on the loop.
        on_ready: Called on the loop with host and port, once clients can connect.

    Returns:
        The exit code: 0.

    Raises:
        What ``make_server``, ``start``, ``on_ready`` and ``stop`` raise.

    Only for the main thread: it alone gets signals.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ending = asyncio.Event()
        reloads: set[asyncio.Task[None]] = set()
        server = await make_server()

        def reload() -> None:
            task = loop.create_task(server.reload_files())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        def end(number: signal.Signals) -> None:
            _log.info("event=signal name=%s", number.name)
            ending.set()

        for number in _ENDING:
            loop.add_signal_handler(number, end, number)
        loop.add_signal_handler(signal.SIGHUP, reload)
        starting = loop.create_task(server.start())
        waiting = loop.create_task(ending.wait())
        try:
            await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                on_ready(*starting.result())
                gc.freeze()
                await waiting
        finally:
            for task in (starting, waiting):
                task.cancel()
            await asyncio.wait((starting, waiting))
            await server.stop()
            await asyncio.gather(*reloads)

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _COLLECTIONS_OF_ALL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0
