"""The threads that resolve partitions: those that are asked for at once, the others one by one in between."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from tierlog.aio.waiting import LoopCalls
from tierlog.broker.replica.catalog.bucket_histories import BucketHistories
from tierlog.broker.replica.catalog.resolution import Resolver
from tierlog.errors import StoreError, TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import NotSubmitted

_log = logging.getLogger(__name__)

#: Partitions that are resolved at once because somebody asked.
_ASKED_MAX: Final = 8
#: How long nothing is resolved ahead after each partition, in multiples of the time that it took: readers go first.
_PAUSES: Final = 3.0
#: Partitions that are looked at in one turn of the event loop for one that is not resolved, and the pause behind it.
_LOOKS_MAX: Final = 50
_LOOK_PAUSE_SECONDS: Final = 0.01
#: What is waited at a close for what is under way.
_CLOSE_SECONDS: Final = 5.0


class _HastenedError(TierlogError):
    """Somebody asks for a partition that is being resolved ahead: it begins anew, with all threads that there are."""


class ResolutionLine:
    """See the protocol of ``bucket_histories``. On the event loop alone.

    Args:
        resolver: Resolves, in threads.
        note_change: Called when a history that was known is another one now.
        ahead_done: Called when all has been resolved that ``resolve_ahead`` was given.
        machine: Its clock and threads.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        note_change: Callable[[], None],
        ahead_done: Callable[[], None],
        machine: Machine,
    ) -> None:
        self._resolver = resolver
        self._note_change = note_change
        self._ahead_done = ahead_done
        self._clock = machine.clock
        self._loop = LoopCalls()
        self._scope = CancelScope(machine.scheduler)
        self._asked = machine.scheduler.pool(_ASKED_MAX, name="tierlog-replica-asked")
        self._ahead = machine.scheduler.pool(1, name="tierlog-replica-ahead")
        self._waiting: Iterator[BucketHistories] = iter(())
        self._is_ahead_running = False
        self._has_resolved_ahead = False
        self._is_closed = False

    def note_change(self) -> None:
        """See the protocol."""
        self._note_change()

    def begin(self, histories: BucketHistories, *, relist: bool) -> None:
        """See the protocol."""
        listed, before = histories.listed, histories.resolution
        if listed is None:
            return  # gone meanwhile, and who waited has been told

        def resolve() -> None:
            try:
                resolution = call_within(
                    self._scope, lambda: self._resolver.resolve_partition(listed, before, relist=relist)
                )
            except Exception as error:  # noqa: BLE001 - told to who asks
                self._loop.submit(partial(histories.fail, _told(error)))
            else:
                self._loop.submit(partial(histories.settle, resolution))

        try:
            self._asked.submit(resolve)
        except NotSubmitted as error:
            self._loop.submit(
                partial(histories.fail, StoreError(f"no thread resolves {histories.topic_id_partition}: {error}"))
            )

    def begin_later(self, histories: BucketHistories, seconds: float) -> None:
        """See the protocol."""
        self._loop.call_later(seconds, lambda: None if self._is_closed else histories.look_again())

    def resolve_ahead(self, found: Iterable[BucketHistories]) -> None:
        """Resolve partitions that nobody has asked for, in this order, in place of those that were given before."""
        self._waiting = iter(found)
        if not self._is_ahead_running:
            self._go_on()

    def _go_on(self) -> None:
        """Begin the next one. Few are looked at in one turn of the loop, which has others to serve."""
        if self._is_closed:
            return
        self._is_ahead_running = True
        for histories in itertools.islice(self._waiting, _LOOKS_MAX):
            if not histories.is_attended and histories.listed is not None:
                self._begin_ahead(histories)
                return
        following = next(self._waiting, None)
        if following is not None:
            self._waiting = itertools.chain((following,), self._waiting)
            self._loop.call_later(_LOOK_PAUSE_SECONDS, self._go_on)
            return
        self._is_ahead_running = False
        if self._has_resolved_ahead:
            self._has_resolved_ahead = False
            self._ahead_done()

    def _begin_ahead(self, histories: BucketHistories) -> None:
        listed = histories.listed
        assert listed is not None
        histories.begin_ahead()
        self._has_resolved_ahead = True
        began = self._clock.monotonic_seconds()

        def require_wanted() -> None:
            if histories.is_hastened:
                raise _HastenedError

        def go_on() -> None:
            pause = _PAUSES * (self._clock.monotonic_seconds() - began)
            self._loop.call_later(pause, self._go_on)

        def resolve() -> None:
            try:
                resolution = call_within(
                    self._scope,
                    lambda: self._resolver.resolve_partition(listed, ahead=0, require_wanted=require_wanted),
                )
            except _HastenedError:
                self._loop.submit(partial(self.begin, histories, relist=False))
            except Exception as error:  # noqa: BLE001 - told to who asks
                self._loop.submit(partial(histories.fail, _told(error)))
            else:
                self._loop.submit(partial(histories.settle, resolution))
            self._loop.submit(go_on)

        try:
            self._ahead.submit(resolve)
        except NotSubmitted as error:
            histories.fail(StoreError(f"no thread resolves {histories.topic_id_partition}: {error}"))
            self._is_ahead_running = False

    def stop(self) -> None:
        """Begin nothing any more, and cancel what is under way."""
        self._is_closed = True
        self._waiting = iter(())
        self._scope.cancel()

    def close(self) -> None:
        """Wait for the threads, behind ``stop``. Blocks: in a thread."""
        self._asked.close(wait_seconds=_CLOSE_SECONDS)
        self._ahead.close(wait_seconds=_CLOSE_SECONDS)


def _told(error: Exception) -> Exception:
    """The error for those who ask; a fault of ours is logged with its place, once for each resolution."""
    if not isinstance(error, TierlogError):
        _log.error("a partition cannot be resolved", exc_info=error)
    return error
