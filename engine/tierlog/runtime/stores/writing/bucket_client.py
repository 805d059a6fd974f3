"""Requests to a bucket of any cloud: sent, counted, tried again where that helps, and their errors translated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from email.utils import parsedate_to_datetime

from tierlog._extras import require_extra
from tierlog.errors import StoreNotReachedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledCallError, CancelScope, ended_by_scopes
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.stores.protocol.object_store import RequestCounts
from tierlog.runtime.stores.protocol.store_writer import before_resending
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.faults import FaultReader, StoreFault, error_of
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpClient, HttpRequest, HttpSettings
from tierlog.runtime.stores.writing.retrying import RetryPolicy, retrying


class RequestRefusedError(Exception):
    """A refusal that the caller handles itself.

    Attributes:
        tries: Number of tries before: their requests may have been served.
    """

    def __init__(self, answer: HttpAnswer, fault: StoreFault, tries: int) -> None:
        super().__init__(fault.code)
        self.answer = answer
        self.fault = fault
        self.tries = tries


class BucketClient:
    """A client of one bucket. Any number of threads.

    Args:
        name: The URL of the store, for messages.
        http: What sends; closed with this.
        find_fault: Reads the errors of the cloud.
        policy: How often a request is tried.
        machine: Its clock, chance and threads.
        counts: Gets each request.
    """

    def __init__(
        self,
        name: str,
        http: HttpClient,
        find_fault: FaultReader,
        policy: RetryPolicy,
        machine: Machine,
        counts: RequestCounts,
    ) -> None:
        self.name = name
        self._find_fault = find_fault
        self._http = http
        self._policy = policy
        self._machine = machine
        self._counts = counts
        self._closing = CancelScope(machine.scheduler)
        self._dated: tuple[str, float] | None = None  # the last answer's Date, and when it came

    def place(self, key: str | None) -> str:
        """Return the name of an object, or of the store, as messages have it."""
        return f"{self.name}/{key}" if key else self.name

    @property
    def clock(self) -> Clock:
        """The clock of its pauses."""
        return self._machine.clock

    def time_ms(self) -> int | None:
        """Return the server's time now, ms since 1970 UTC, by the Date of its last answer and the time since then.
        None: there was none, or one that is no date.
        """
        dated = self._dated
        if dated is None:
            return None
        try:
            date = parsedate_to_datetime(dated[0])
        except ValueError:
            return None
        return int((date.timestamp() + self.clock.monotonic_seconds() - dated[1]) * 1000)

    def scope(self) -> CancelScope:
        """Make a new scope, for requests that end together."""
        return CancelScope(self._machine.scheduler)

    def close(self) -> None:
        """Cancel requests that run, and those that wait for their next try."""
        self._closing.cancel()
        self._http.close()

    def send(
        self,
        key: str | None,
        build: Callable[[], HttpRequest],
        scope: CancelScope | None = None,
        *,
        passing: frozenset[str] = frozenset(),
        counted: str | None = None,
        mends: Callable[[StoreFault], bool] = lambda _: False,
    ) -> HttpAnswer:
        """Send a request, again after each passing failure, until it is answered or the tries are used up.

        Args:
            key: For messages.
            build: Makes the request, signed as of now.
            scope: What cancels it, beside the blocks of ``cancelled_by`` that this thread is in.
            passing: Codes and statuses of errors that the caller wants to see, as RequestRefusedError.
            counted: The verb as which it counts; its own if None.
            mends: Whether an error that is none of a passing kind is worth another try.

        Raises:
            RequestRefusedError: one of ``passing``. CancelledCallError: a scope, or the close, ended it. StoreError and
                its kinds: all others, after the tries that make sense.
        """

        has_body = False
        ending = self.scope()

        def attempt(tries: int) -> HttpAnswer:
            nonlocal has_body
            request = build()
            has_body = bool(request.body)
            self._counts.add(counted or request.method)
            try:
                answer = self._http.send(request, ending)
            except StoreUnavailableError as error:
                unreached = isinstance(error, StoreNotReachedError)
                kind = StoreNotReachedError if unreached else StoreUnavailableError
                raise kind(f"{self.place(key)}: {error}") from None
            date = answer.headers.get("date")
            if date is not None:
                self._dated = (date, self.clock.monotonic_seconds())
            fault = self._find_fault(answer)
            if fault is None:
                return answer
            if fault.code in passing or str(answer.status) in passing:
                raise RequestRefusedError(answer, fault, tries)
            meant = error_of(self.place(key), request.method, answer, fault)
            if not isinstance(meant, StoreUnavailableError) and mends(fault):
                raise StoreUnavailableError(str(meant))
            raise meant

        with ExitStack() as entered:
            entered.enter_context(ended_by_scopes(ending.cancel))
            for outer in (self._closing, *([] if scope is None else [scope])):
                entered.enter_context(outer.entered(ending.cancel))
            try:
                again = lambda: before_resending() if has_body else None  # noqa: E731 - read when it is called
                return retrying(self._machine, self._policy, attempt, ending, again=again)
            except CancelledCallError:
                why = "the store is closed" if self._closing.cancelled else "cancelled"
                raise CancelledCallError(f"{self.place(key)}: {why}") from None


def make_client(
    name: str,
    options: StoreOptions,
    find_fault: FaultReader,
    machine: Machine,
    counts: RequestCounts,
    *,
    extra: str,
) -> BucketClient:
    """Make a client with the limits and the trust of obstore's.

    Args:
        name: URL of the store.
        options: Its time limits, certificates and proxy.
        find_fault: Reads the errors of the cloud.
        machine: Its threads.
        counts: Of its requests.
        extra: Of the packages that writing there takes.

    Raises:
        ConfigError: the packages are not installed.
    """
    policy = RetryPolicy(options.max_retries, options.retry_timeout.total_seconds())
    return BucketClient(name, _make_http(name, options, machine, extra), find_fault, policy, machine, counts)


def ask_once(name: str, options: StoreOptions, machine: Machine, url: str, *, extra: str) -> HttpAnswer:
    """Return the answer to one GET without a signature, whatever it is; a redirect is not followed.

    Args:
        name: URL of the store.
        options: Its time limits, certificates and proxy.
        machine: Its threads.
        url: Encoded.
        extra: Of the packages that this takes.

    Raises:
        ConfigError: the packages are not installed. StoreError and its kinds: no answer.
    """
    http = _make_http(name, options, machine, extra)
    try:
        return http.send(HttpRequest("GET", url))
    finally:
        http.close()


def _make_http(name: str, options: StoreOptions, machine: Machine, extra: str) -> HttpClient:
    require_extra(extra, f"{name}: writing there")
    client = options.client
    settings = HttpSettings(
        timeout_seconds=options.timeout_seconds,
        connect_seconds=options.connect_seconds,
        check_certificates=client.get("allow_invalid_certificates", "false").lower() != "true",
        root_certificate=client.get("root_certificate"),
        proxy_url=client.get("proxy_url"),
        user_agent=client.get("user_agent", "tierlog"),
    )
    return HttpClient(settings, machine.scheduler, name=name.partition(":")[0])
