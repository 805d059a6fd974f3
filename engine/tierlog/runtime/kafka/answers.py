"""Waiting for librdkafka's answers with a deadline, and no longer than the client is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tierlog.errors import StorePermissionError, StoreUnavailableError
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, our_error
from tierlog.runtime.kafka.opening import Complaints
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future


class Answers:
    """Waits for the futures of one client. librdkafka drops those that are under way when it is destroyed, so that
    ``close`` has to end the waiting.

    It holds no reference to the client: futures are completed in a thread of librdkafka's, and a client whose last
    reference ends there ends the process.

    Args:
        machine: Has the clock.
        name: Of the client, for messages.
        complaints: What the client complains of.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, name: str, complaints: Complaints) -> None:
        self._clock = machine.clock
        self._changed = machine.scheduler.condition()
        self._name = name
        self._complaints = complaints
        self._closed = False

    def close(self) -> None:
        """End all waiting, now and later, by a ClientClosedError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def require_open(self) -> None:
        """Raises ClientClosedError."""
        if self._closed:
            raise ClientClosedError(f"{self._name} is closed")

    def wait(self, what: str, future: Future[Any], *, until: float, poll: Callable[[], None]) -> None:
        """Wait until a future is done.

        Args:
            what: What it does, for the message.
            future: Of a call of confluent-kafka.
            until: In the clock's monotonic seconds.
            poll: Makes the client say what it complains of.

        Raises:
            StoreUnavailableError: the time is up. StorePermissionError: it is, since the cluster does not take us for
                who we say we are. ClientClosedError: the client was closed.
        """
        future.add_done_callback(self._wake)
        with self._changed:
            while not future.done():
                self.require_open()
                left = until - self._clock.monotonic_seconds()
                if left <= 0:
                    break
                self._changed.wait(left)
        if not future.done():
            poll()
            raise self._late(what)

    def result(self, what: str, future: Future[Any], *, until: float, poll: Callable[[], None]) -> Any:
        """The future's result, once it is done; raises as ``wait`` and ``outcome``."""
        self.wait(what, future, until=until, poll=poll)
        poll()
        return self.outcome(what, future)

    def outcome(self, what: str, future: Future[Any]) -> Any:
        """The result of a future that is done. Raises the error of ours for what the call raised."""
        from confluent_kafka import KafkaException

        try:
            found = future.result(0)
        except KafkaException as cause:
            if cause.args[0].name() == "_TIMED_OUT":
                raise self._late(what) from cause
            raise our_error(what, cause.args[0]) from cause
        self._complaints.forget()
        return found

    def _late(self, what: str) -> Exception:
        text = f"{what}: no answer in time{self._complaints.told_lately()}"
        return StorePermissionError(text) if self._complaints.is_refusal else StoreUnavailableError(text)

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()
