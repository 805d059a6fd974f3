"""The threads that resolve partitions: those that are asked for at once, the others one by one in between.

A store may stall for some partitions alone (one prefix of its keys, one server of its own). Threads that wait for these
would be missing to all others, however many there were: a resolution to which nothing comes for a while is cancelled,
and begins anew among its kind, with threads and requests of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from tierlog.broker.replica.catalog.bucket_histories import BucketHistories
from tierlog.broker.replica.catalog.resolution import Resolution, Resolver
from tierlog.errors import StoreError, TierlogError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.tier.tier import CONCURRENCY
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import NotSubmitted, Pool
from tierlog.runtime.waiting.loops import Alarm, LoopCalls, TaskCancelledError
from tierlog.runtime.waiting.ordered_calls import OrderedCalls

_log = logging.getLogger(__name__)

#: Partitions that are resolved at once because somebody asked: those to which something comes, and the others.
_ASKED_MAX: Final = 8
_STALLED_MAX: Final = 16
#: How long nothing may come to a resolution before it stalls.
STALL_SECONDS: Final = 1.0
#: How long nothing is resolved ahead after each partition, in multiples of the time that it took: readers go first.
_PAUSES: Final = 3.0
#: Partitions that are passed over in one turn of the event loop because they are known, and the pause behind it.
_LOOKS_MAX: Final = 50
_LOOK_PAUSE_SECONDS: Final = 0.01
#: What is waited at a close for what is under way.
_CLOSE_SECONDS: Final = 5.0


class AheadPartition(Protocol):
    """A partition that is to be resolved and loaded before anybody asks."""

    @property
    def histories(self) -> BucketHistories: ...

    def is_loaded(self) -> bool:
        """Whether its offsets are at hand."""

    async def load(self) -> object:
        """Have its offsets at hand, which takes its history. Raises what is wrong with it."""


class _HastenedError(TierlogError):
    """Somebody asks for a partition that is being resolved ahead: it begins anew, with all threads that there are."""


class _Attempt:
    """A resolution that is under way, and when something came to it. Told by its thread, watched on the loop.

    Args:
        machine: Its clock and locks.

    Attributes:
        scope: Cancels it.
        at_seconds: When something came last.
        has_ended: Whether it has, be it with an error.
    """

    def __init__(self, machine: Machine) -> None:
        self.scope = CancelScope(machine.scheduler)
        self._clock = machine.clock
        self.at_seconds = self._clock.monotonic_seconds()
        self.has_ended = False

    def step(self) -> None:
        """Something has come."""
        self.at_seconds = self._clock.monotonic_seconds()


class ResolutionLine:
    """See the protocol of ``bucket_histories``. On the event loop alone.

    Args:
        resolver: Resolves, in threads.
        note_change: Called with a partition whose history was known and is another one now.
        ahead_done: Called when all has been resolved that ``resolve_ahead`` was given.
        machine: Its clock and threads.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        note_change: Callable[[TopicIdPartition], None],
        ahead_done: Callable[[], None],
        machine: Machine,
    ) -> None:
        self._resolver = resolver
        self._note_change = note_change
        self._ahead_done = ahead_done
        self._clock = machine.clock
        self._loop = LoopCalls()
        self._scope = CancelScope(machine.scheduler)
        self._machine = machine
        self._asked = machine.scheduler.pool(_ASKED_MAX, name="tierlog-replica-asked")
        self._stalled = machine.scheduler.pool(_STALLED_MAX, name="tierlog-replica-stalled")
        self._stalled_calls = OrderedCalls(CONCURRENCY, machine)
        self._stalling: set[TopicIdPartition] = set()
        self._ahead = machine.scheduler.pool(1, name="tierlog-replica-ahead")
        self._waiting: Iterator[AheadPartition] = iter(())
        self._is_ahead_running = False
        self._is_closed = False

    def note_change(self, partition: TopicIdPartition) -> None:
        """See the protocol."""
        self._note_change(partition)

    def begin(self, histories: BucketHistories, *, relist: bool) -> None:
        """See the protocol."""
        if histories.listed is None:
            return  # gone meanwhile, and who waited has been told
        if histories.topic_id_partition in self._stalling:
            self._begin_patiently(histories, relist=relist)
            return
        attempt = _Attempt(self._machine)
        listed, before, end = histories.listed, histories.resolution, histories.served_end_offset

        def resolve() -> Resolution:
            attempt.step()
            self._loop.submit(partial(self._watch, attempt, listed.topic_id_partition))
            try:
                return call_within(
                    attempt.scope,
                    lambda: self._resolver.resolve_partition(
                        listed, before, relist=relist, require_wanted=attempt.step, served_end_offset=end
                    ),
                )
            finally:
                attempt.has_ended = True

        def failed(error: Exception) -> None:
            if attempt.scope.cancelled and not self._is_closed:
                self._begin_patiently(histories, relist=relist)
            else:
                histories.fail(error)

        self._submit(self._asked, histories, resolve, failed)

    def _watch(self, attempt: _Attempt, partition: TopicIdPartition) -> None:
        """Cancel an attempt to which nothing has come for a while; else look again."""
        if attempt.has_ended or self._is_closed:
            return
        left = attempt.at_seconds + STALL_SECONDS - self._clock.monotonic_seconds()
        if left > 0:
            self._machine.timers.call_later(left, lambda: self._watch(attempt, partition))
            return
        _log.debug("%s: the store stalls", partition)
        self._stalling.add(partition)
        attempt.scope.cancel()

    def _begin_patiently(self, histories: BucketHistories, *, relist: bool) -> None:
        """Resolve what has stalled, among its kind, until it has come to an end once."""
        listed, before, end = histories.listed, histories.resolution, histories.served_end_offset
        if listed is None:
            return

        def resolve() -> Resolution:
            resolution = self._resolver.resolve_partition(
                listed, before, relist=relist, calls=self._stalled_calls, served_end_offset=end
            )
            self._loop.submit(partial(self._stalling.discard, histories.topic_id_partition))
            return resolution

        self._submit(self._stalled, histories, resolve)

    def begin_later(self, histories: BucketHistories, seconds: float) -> None:
        """See the protocol."""
        self._machine.timers.call_later(seconds, lambda: None if self._is_closed else histories.look_again())

    def resolve_ahead(self, found: Iterable[AheadPartition]) -> None:
        """Resolve and load partitions that nobody has asked for, in this order, one by one and with pauses, in place of
        those that were given before.
        """
        self._waiting = iter(found)
        if not self._is_ahead_running and not self._is_closed:
            self._is_ahead_running = True
            self._loop.start(self._run_ahead())

    async def _run_ahead(self) -> None:
        looks, has_news = 0, False
        pause = Alarm(self._machine.timers)
        try:
            while not self._is_closed and (each := next(self._waiting, None)) is not None:
                began = self._clock.monotonic_seconds()
                if await self._resolve_ahead(each):
                    has_news = True
                    await pause.wait(_PAUSES * (self._clock.monotonic_seconds() - began))
                elif (looks := looks + 1) % _LOOKS_MAX == 0:
                    await pause.wait(_LOOK_PAUSE_SECONDS)
        finally:
            self._is_ahead_running = False
        if has_news and not self._is_closed:
            self._ahead_done()

    async def _resolve_ahead(self, each: AheadPartition) -> bool:
        """Resolve and load a partition; whether there was anything to do."""
        histories = each.histories
        if histories.listed is None or (histories.is_attended and each.is_loaded()):
            return False
        if not histories.is_attended:
            self._begin_ahead(histories)
            await histories.end_of_resolution()
        try:
            await each.load()
        except TaskCancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - who asks for the partition is told
            _log.debug("%s is not loaded ahead: %s", histories.topic_id_partition, error)
            return not histories.is_attended
        return True

    def _begin_ahead(self, histories: BucketHistories) -> None:
        listed = histories.listed
        assert listed is not None
        histories.begin_ahead()

        def require_wanted() -> None:
            if histories.is_hastened:
                raise _HastenedError

        def resolve() -> Resolution:
            return self._resolver.resolve_partition(listed, ahead=0, require_wanted=require_wanted)

        self._submit(self._ahead, histories, resolve)

    def _submit(
        self,
        pool: Pool,
        histories: BucketHistories,
        resolve: Callable[[], Resolution],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Resolve in a thread of a pool. ``failed`` is called on the event loop; by default the histories are told."""

        def run() -> None:
            try:
                resolution = call_within(self._scope, resolve)
            except _HastenedError:
                self._loop.submit(partial(self.begin, histories, relist=False))
            except Exception as error:  # noqa: BLE001 - told to who asks
                self._loop.submit(partial(failed or histories.fail, _told(error)))
            else:
                self._loop.submit(partial(histories.settle, resolution))

        try:
            pool.submit(run)
        except NotSubmitted as error:
            told = StoreError(f"no thread resolves {histories.topic_id_partition}: {error}")
            self._loop.submit(partial(histories.fail, told))

    async def stop(self) -> None:
        """Begin nothing any more, and cancel what is under way."""
        self._is_closed = True
        self._waiting = iter(())
        self._scope.cancel()
        await self._loop.cancel()

    def close(self) -> None:
        """Wait for the threads, behind ``stop``. Blocks: in a thread."""
        self._asked.close(wait_seconds=_CLOSE_SECONDS)
        self._stalled.close(wait_seconds=_CLOSE_SECONDS)
        self._stalled_calls.close()
        self._ahead.close(wait_seconds=_CLOSE_SECONDS)


def _told(error: Exception) -> Exception:
    """The error for those who ask; a fault of ours is logged with its place, once for each resolution."""
    if not isinstance(error, TierlogError):
        _log.error("a partition cannot be resolved", exc_info=error)
    return error
