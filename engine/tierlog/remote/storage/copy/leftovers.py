"""Objects that failed calls have left in the store, and could not remove: this process removes them later.

An undo gets little time: its caller is past its deadline, or closes. The rest is queued here, bounded in number, and
tried again after pauses that grow, for as long as the process runs. Leftovers at the close are named in the log;
``tierlog orphans`` finds a segment's objects, the start probe's are removed by hand.

A request that was ended without an answer may still be done by the store, after the undo. So a write whose answer is
not known is undone a second time, a minute later.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import NoThreadError, StoreUnavailableError, first_of
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import CancelledError, Future, NotSubmitted
from tierlog.runtime.stores.wrappers.passing_store import MASK
from tierlog.runtime.waiting.threads import ENDING_SECONDS

_log = logging.getLogger(__name__)

#: More than a broker copies in the hours of a long outage; what comes beyond that pushes out the oldest.
_KEPT_MAX: Final = 1000
#: Undos of copies under way, and tries again among them.
_WORKERS: Final = 32
_AGAIN_AT_ONCE_MAX: Final = 2
_FIRST_PAUSE_SECONDS: Final = 2.0
_LONGEST_PAUSE_SECONDS: Final = 600.0
#: Time after which a store has handled a request, or never will.
_SURE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class Remains:
    """The possible leftovers of one failed call in the store.

    Args:
        what: Of which segment, for messages.
        remove: Takes it away and says what stays, each with its reason; may be called again. Its argument says that the
            segment has been copied again since: its objects are those of the new copy.
        names: Names of the objects, as far as they are known.
        pending: Requests that may still store something.
        doubtful: Whether one was ended without an answer.
        segment_id: None for objects of no segment.
    """

    what: str
    remove: Callable[[bool], list[str]]
    names: Callable[[], list[str]]
    pending: Sequence[Future[object]] = ()
    doubtful: bool = False
    segment_id: RemoteLogSegmentId | None = None
    left: list[str] = field(default_factory=list)
    tries: int = 0
    due_seconds: float = 0.0
    copied_again: bool = False
    running: CancelScope | None = None


class Leftovers:
    """The possible leftovers of failed calls in the store, and their removal.

    Args:
        machine: Its clock, chance and threads.
        metrics: Gets their number.
        keeps: Whether to try again. Not where ids are made of the content: another process may have copied the very
            same segment meanwhile.
        masked: A prefix of keys that is not shown.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, metrics: StorageMetrics, *, keeps: bool = True, masked: str = "") -> None:
        self._machine = machine
        self._metrics = metrics
        self._keeps = keeps
        self._masked = masked
        self._pool = machine.scheduler.pool(_WORKERS, name="tierlog-undo")
        self._changed = machine.scheduler.condition()
        self._kept: dict[Remains, None] = {}
        self._again_under_way = 0
        self._watch: Future[None] | None = None
        self._closing = self._closed = False
        metrics.ask("leftovers", lambda: float(self.count))

    @property
    def count(self) -> int:
        """The number of calls with leftovers; not those that are undone a second time to be sure."""
        with self._changed:
            return sum(bool(remains.left) for remains in self._kept)

    def undo(self, remains: Remains, *, seconds_left: Callable[[], float]) -> list[str]:
        """Remove leftovers for as long as ``seconds_left`` is positive; the rest is queued, to be tried again.

        Returns:
            What stays, as far as is known; ``remedy`` says what becomes of it.
        """
        doubtful = remains.doubtful
        future = self._begin(remains)
        if future is None:
            with self._changed:
                remains.left = remains.names()
                self._keep(remains)
                return [self._shown(text) for text in remains.left]
        future.add_done_callback(self._wake)
        with self._changed:
            while not future.done() and (left := seconds_left()) > 0:
                self._changed.wait(left)
            scope = remains.running
        if scope is not None:
            scope.cancel()
        until = self._machine.clock.monotonic_seconds() + ENDING_SECONDS
        with self._changed:
            while not future.done() and (left := until - self._machine.clock.monotonic_seconds()) > 0:
                self._changed.wait(left)
            if not future.done():
                remains.left = [f"{name} (the store has not answered)" for name in remains.names()]
            if remains.left or doubtful:
                self._keep(remains)
            left_now = [self._shown(text) for text in remains.left]
        if left_now:
            self._metrics.add("leftover_objects_total", len(left_now))
        return left_now

    def expect_close(self) -> None:
        """Note that the manager closes: undos from here on get no second try."""
        self._closing = True

    def remedy(self) -> str:
        """Return a text for error messages about the later removal of objects that could not be removed."""
        kept = "it is tried again while this process runs, and " if self._keeps and not self._closing else ""
        return f"{kept}`tierlog orphans` finds it"

    def begin_copy(self, segment_id: RemoteLogSegmentId) -> None:
        """A copy of this id begins: nothing of it is removed from here on, but invisible parts.

        Raises:
            StoreUnavailableError: an earlier one is being undone this moment.
        """
        with self._changed:
            earlier = [remains for remains in self._kept if remains.segment_id == segment_id]
            if any(remains.running is not None for remains in earlier):
                raise StoreUnavailableError(f"{segment_id}: an earlier copy of it is still being removed")
            for remains in earlier:
                remains.copied_again = True

    def has(self, segment_id: RemoteLogSegmentId) -> bool:
        """Whether something of a segment is left: a deletion looks for its uploads then."""
        with self._changed:
            return any(remains.segment_id == segment_id for remains in self._kept)

    def forget(self, segment_id: RemoteLogSegmentId) -> None:
        """Forget a segment that was deleted with all its leftovers; objects that may land yet are removed
        all the same.
        """
        with self._changed:
            for remains in [each for each in self._kept if each.segment_id == segment_id and each.running is None]:
                if remains.doubtful:
                    self._settle(remains)
                elif remains.left:
                    del self._kept[remains]
            self._changed.notify_all()

    def _settle(self, remains: Remains) -> None:
        """Note a removal, under the lock; it is made once more if a request of the call may be done late."""
        remains.left = []
        if remains.doubtful:
            remains.doubtful = False
            remains.due_seconds = self._machine.clock.monotonic_seconds() + _SURE_SECONDS
        else:
            self._kept.pop(remains, None)

    def _begin(self, remains: Remains) -> Future[None] | None:
        """Begin a removal; None after the close, and where there is no thread for it."""
        scope = CancelScope(self._machine.scheduler)
        with self._changed:
            remains.running = scope
        try:
            return self._pool.submit(lambda: self._try(remains, scope))
        except NotSubmitted:
            with self._changed:
                remains.running = None
                remains.due_seconds = self._machine.clock.monotonic_seconds() + self._pause(remains)
            return None

    def _try(self, remains: Remains, scope: CancelScope) -> None:
        until = self._machine.clock.monotonic_seconds() + ENDING_SECONDS
        for future in remains.pending:  # those of our own stores have been cancelled
            with contextlib.suppress(TimeoutError, CancelledError):
                future.exception(timeout=max(0.0, until - self._machine.clock.monotonic_seconds()))
        still = [future for future in remains.pending if not future.done()]
        try:
            left = call_within(scope, lambda: remains.remove(remains.copied_again))
        except Exception as error:  # noqa: BLE001 - whatever a third party's store raises, it is tried again
            left = [f"{name} ({type(error).__name__}: {error})" for name in remains.names()]
        with self._changed:
            remains.pending = still
            if still and not left:
                left = [f"{name} (a request that may store it has not ended)" for name in remains.names()]
            was_left, remains.left, remains.running = bool(remains.left), left, None
            remains.tries += 1
            remains.due_seconds = self._machine.clock.monotonic_seconds() + self._pause(remains)
            if not left:
                self._settle(remains)
            self._changed.notify_all()
        if was_left and not left:
            _log.info("%s: what a failed call had left is removed", remains.what)

    def _pause(self, remains: Remains) -> float:
        """Seconds until the next try: half of a growing time, and up to as much again by chance."""
        full = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(remains.tries, 20))
        return self._machine.rng.uniform(full / 2, full)

    def _keep(self, remains: Remains) -> None:
        """Queue leftovers, to be tried again; under the lock."""
        if not self._keeps or self._closed or remains in self._kept:
            return
        while len(self._kept) >= _KEPT_MAX:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            _log.warning("%s: is not tried again, there are too many: %s", oldest.what, self._names(oldest))
        self._kept[remains] = None
        if self._watch is None:
            with contextlib.suppress(NoThreadError):  # the next one to be queued begins it
                self._watch = self._machine.scheduler.start(self._tend, name="tierlog-leftovers")
        self._changed.notify_all()

    def _tend(self) -> None:
        """Try due removals again, in a thread that ends when none is left."""
        while True:
            with self._changed:
                while (remains := self._next_due()) is None:
                    if self._closed or not self._kept:
                        self._watch = None
                        return
                    self._changed.wait(self._pause_until_due())
                self._again_under_way += 1
            self._try_again(remains)

    def _next_due(self) -> Remains | None:
        if self._closed or self._again_under_way >= _AGAIN_AT_ONCE_MAX:
            return None
        now = self._machine.clock.monotonic_seconds()
        return next((each for each in self._kept if each.running is None and each.due_seconds <= now), None)

    def _pause_until_due(self) -> float:
        now = self._machine.clock.monotonic_seconds()
        due = min((each.due_seconds for each in self._kept if each.running is None), default=now + _LOOK_SECONDS)
        return max(0.01, min(due - now, _LOOK_SECONDS)) if due > now else _LOOK_SECONDS

    def _try_again(self, remains: Remains) -> None:
        future = self._begin(remains)

        def ended(_: object) -> None:
            with self._changed:
                self._again_under_way -= 1
                self._changed.notify_all()
            if remains.left and remains.tries & (remains.tries - 1) == 0:  # 2, 4, 8 …: an outage is no flood of lines
                _log.warning("%s: not removed yet, try %d: %s", remains.what, remains.tries, self._names(remains))

        if future is None:
            ended(None)
        else:
            future.add_done_callback(ended)

    def _names(self, remains: Remains) -> str:
        return self._shown("; ".join(remains.left or remains.names()))

    def _shown(self, text: str) -> str:
        return text.replace(self._masked, MASK) if self._masked else text

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End the tries, name the leftovers in the log; idempotent. Later failures are not undone."""
        with self._changed:
            if self._closed:
                return
            self._closing = self._closed = True
            kept, self._kept = list(self._kept), {}
            self._changed.notify_all()
            running = [each.running for each in kept if each.running is not None]
            watch = self._watch
        for scope in running:
            scope.cancel()
        if watch is not None:
            watch.exception()  # it waits for its turn alone
        self._pool.close(wait_seconds=0)
        left = [each for each in kept if each.left]
        if left:
            named = first_of([f"{each.what}: {self._names(each)}" for each in left], 20, "; ")
            _log.warning("closed, and could not remove: %s; %s", named, _by_whom(left))


def _by_whom(left: Sequence[Remains]) -> str:
    """Return a text about their removal from now on: `tierlog orphans` touches only objects that are named like a
    segment's.
    """
    of_segments = any(each.segment_id is not None for each in left)
    of_others = any(each.segment_id is None for each in left)
    told = ["`tierlog orphans` finds it" + (" where it is a segment's" if of_others else "")] * of_segments
    return "; ".join(told + ["remove the start probe's objects by hand"] * of_others)
