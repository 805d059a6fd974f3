"""HTTP for the write half of buckets: requests that any thread waits for and any other thread can cancel.

One thread runs an event loop (uvloop's where it is installed) for all requests of a store. Bodies are buffers of the
caller, sent as they lie; when ``send`` returns, however it ends, nothing reads them any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tierlog.errors import (
    StoreError,
    StoreNotReachedError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.machine.cancelling import CancelledCallError, CancelScope
from tierlog.runtime.machine.process import Origin
from tierlog.runtime.machine.scheduling import PendingFuture, Scheduler
from tierlog.runtime.stores.settings.options import find_ambient_proxy

if TYPE_CHECKING:
    import aiohttp

_STEP_BYTES: Final = 256 << 10
_ANSWER_BYTES_MAX: Final = 16 << 20
#: A body that trickles slower than this counts as stalled, however steady it is.
_BYTES_PER_SECOND_MIN: Final = 128 << 10
_CONNECTIONS_MAX: Final = 64
_IDLE_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The connections to servers, and their time limits.

    Args:
        timeout_seconds: Without a byte sent or received.
        root_certificate: PEM; the system's if None.
        proxy_url: ``http://`` or ``https://``, with a login perhaps; the environment's if None.
    """

    timeout_seconds: float = 30.0
    connect_seconds: float = 5.0
    check_certificates: bool = True
    root_certificate: str | None = field(default=None, repr=False)
    proxy_url: str | None = field(default=None, repr=False)
    user_agent: str = "tierlog"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: ``url`` is encoded already, and headers are complete but for the length."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Sequence[memoryview] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """An HTTP client in a thread of its own, which begins with the first request.

    Raises (send):
        StoreUnavailableError: no answer, or half of one; StoreNotReachedError: no connection. StorePermissionError: the
        server's certificate is not trusted. CancelledCallError: a scope, or the close of this client, ended it.
        StoreError: the client is closed, or the answer is no store's.
    """

    def __init__(self, settings: HttpSettings, scheduler: Scheduler, *, name: str) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._name = name
        self._lock = scheduler.lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Any = None
        self._sessions: list[aiohttp.ClientSession] = []  # one; the thread holds it too, so that it outlives this
        self._proxies: dict[tuple[str, str], str | None] = {}  # of the environment, by scheme and host
        self._closed = False
        self._origin = Origin()
        self._all = CancelScope(scheduler)

    def send(self, request: HttpRequest, scope: CancelScope | None = None) -> HttpAnswer:
        """Send one request once, and wait for the whole answer, whatever its status."""
        done: PendingFuture[HttpAnswer] = self._scheduler.future()
        loop = self._started()
        task: list[asyncio.Task[HttpAnswer]] = []
        cancelled: list[bool] = []

        def begin() -> None:
            task.append(loop.create_task(self._exchange(request)))
            task[0].add_done_callback(finish)
            if cancelled:
                task[0].cancel()

        def finish(ended: asyncio.Task[HttpAnswer]) -> None:
            if ended.cancelled():
                done.set_exception(CancelledCallError(f"{request.method} was cancelled"))
            elif (error := ended.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(ended.result())

        def cancel() -> None:
            cancelled.append(True)
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the task
                loop.call_soon_threadsafe(lambda: task and task[0].cancel())

        scopes = [self._all] if scope is None else [self._all, scope]
        tokens = [each.enter(cancel) for each in scopes]
        try:
            try:
                loop.call_soon_threadsafe(begin)
            except RuntimeError as cause:  # closed meanwhile
                raise StoreError(f"{request.method}: the store is closed") from cause
            return done.result()
        finally:
            if not done.done():  # interrupted: the body must not be read once this has returned
                cancel()
                with contextlib.suppress(TimeoutError, StoreError, RuntimeError):
                    done.exception(timeout=_CLOSE_SECONDS)
            for each, token in zip(scopes, tokens, strict=True):
                each.leave(token)

    def _started(self) -> asyncio.AbstractEventLoop:
        self._origin.require("the store")
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            if self._loop is None:
                loop = self._loop = _event_loop()
                sessions = self._sessions
                self._ended = self._scheduler.start(lambda: _run(loop, sessions), name=f"tierlog-{self._name}-io")
            return self._loop

    def close(self) -> None:
        """Cancel what runs, close the connections, end the thread; idempotent. In a fork they are the parent's."""
        if not self._origin.is_here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            loop = self._loop
        self._all.cancel()
        if loop is not None:
            loop.call_soon_threadsafe(_begin_end, loop, self._sessions)
            with contextlib.suppress(TimeoutError):
                self._ended.result(timeout=_CLOSE_SECONDS)

    def __del__(self) -> None:
        """End the thread of a store that was dropped without a close."""
        if not self._closed and self._loop is not None and self._origin.is_here:
            with contextlib.suppress(RuntimeError):  # the loop has ended with the process
                self._loop.call_soon_threadsafe(_begin_end, self._loop, self._sessions)

    async def _exchange(self, request: HttpRequest) -> HttpAnswer:
        size = sum(len(view) for view in request.body)
        longest = self._settings.timeout_seconds + size / _BYTES_PER_SECOND_MIN
        try:
            async with asyncio.timeout(longest):
                return await self._exchanged(request, size)
        except TimeoutError:
            raise StoreUnavailableError(f"{request.method}: no answer within {longest:.1f} s") from None

    async def _exchanged(self, request: HttpRequest, size: int) -> HttpAnswer:
        import aiohttp
        import yarl

        if not self._sessions:
            self._sessions.append(self._make_session())
        (session,) = self._sessions
        body = _body_class()(request.body, size) if size else None
        headers = {**request.headers, "Content-Length": str(size)}
        try:
            async with asyncio.timeout(self._settings.timeout_seconds) as limit:
                if body is not None:
                    body.progress = lambda: _extend(limit, self._settings.timeout_seconds)
                async with session.request(
                    request.method,
                    yarl.URL(request.url, encoded=True),
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    proxy=self._proxy_of(request.url),
                ) as answer:
                    taken = await _whole_body(answer, lambda: _extend(limit, self._settings.timeout_seconds))
                    return HttpAnswer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, taken)
        except aiohttp.ConnectionTimeoutError:
            seconds = self._settings.connect_seconds
            raise StoreNotReachedError(f"{request.method}: timed out: no connection within {seconds} s") from None
        except TimeoutError:
            seconds = self._settings.timeout_seconds
            raise StoreUnavailableError(f"{request.method}: timed out: {seconds} s without a byte") from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
            raise StorePermissionError(f"{request.method}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            # Its text names host and cause; without the cause, which holds the request's headers.
            text = str(error).replace(" ssl:default", "") or type(error).__name__
            unreached = isinstance(error, aiohttp.ClientConnectorError)
            raise (StoreNotReachedError if unreached else StoreUnavailableError)(
                f"{request.method}: no answer: {text}"
            ) from None
        finally:
            if body is not None and not body.done:
                body.abort()

    def _proxy_of(self, url: str) -> str | None:
        """Return the proxy of a request to this URL; None where it goes straight."""
        if self._settings.proxy_url is not None:
            return self._settings.proxy_url
        parts = urlsplit(url)
        place = (parts.scheme, parts.hostname or "")
        if place not in self._proxies:
            self._proxies[place] = ambient_proxy(*place)
        return self._proxies[place]

    def _make_session(self) -> aiohttp.ClientSession:
        import aiohttp

        settings = self._settings
        trust: ssl.SSLContext | bool = True
        if not settings.check_certificates:
            trust = False
        elif settings.root_certificate is not None:
            trust = ssl.create_default_context(cadata=settings.root_certificate)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX, keepalive_timeout=_IDLE_SECONDS, ssl=trust),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_seconds),
            headers={"User-Agent": settings.user_agent},
            skip_auto_headers=("Content-Type", "Accept-Encoding"),
            auto_decompress=False,
            trust_env=False,  # or it looks for a login of the host in ~/.netrc, beside our own
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # It would send a PUT a second time by itself: the counter of tries, and the check of an earlier one, must know.
        session._retry_connection = False  # noqa: SLF001
        return session


def _begin_end(loop: asyncio.AbstractEventLoop, sessions: list[aiohttp.ClientSession]) -> None:
    """Cancel running tasks, close the connections and stop, in the loop."""

    async def end() -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for session in sessions:
            await session.close()
        loop.stop()

    loop.create_task(end())


def ambient_proxy(scheme: str, host: str) -> str | None:
    """Return the environment's proxy for a host; None for a direct connection.

    Raises:
        StoreError: it is no URL, or a SOCKS proxy, which nothing goes through.
    """
    import yarl

    found = find_ambient_proxy(scheme, host)
    if found is None:
        return None
    if found.url.startswith("socks"):
        text = "is a SOCKS proxy, which nothing goes through: name an HTTP proxy as store.proxy_url"
        raise StoreError(f"{found.variable} of the environment {text}")
    try:
        is_host = bool(yarl.URL(found.url).host)
    except ValueError:
        is_host = False
    if not is_host:
        raise StoreError(f"{found.variable} of the environment is no URL of a proxy")
    return found.url


def _extend(limit: asyncio.Timeout, seconds: float) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)


async def _whole_body(answer: aiohttp.ClientResponse, progress: Callable[[], None]) -> bytes:
    taken = bytearray()
    async for piece in answer.content.iter_any():
        progress()
        taken += piece
        if len(taken) > _ANSWER_BYTES_MAX:
            raise StoreError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
    return bytes(taken)


@functools.cache
def _body_class() -> Any:
    """Return the class of bodies that send views as they lie, made by the first request that has one, which imports
    aiohttp.

    A class for each request would hold its views until the collector comes, since every class refers to itself.
    """
    import aiohttp

    class Views(aiohttp.payload.Payload):
        progress: Callable[[], None]
        done = False
        transport: asyncio.Transport | None = None

        def __init__(self, views: Sequence[memoryview], size_bytes: int) -> None:
            super().__init__(b"", content_type="application/octet-stream")
            self._views = views
            self._size_bytes = size_bytes

        @property
        def size(self) -> int:
            return self._size_bytes

        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            raise NotImplementedError("a body is never text")

        async def write(self, writer: Any) -> None:
            self.transport = writer.transport
            for view in self._views:
                for start in range(0, len(view), _STEP_BYTES):
                    await writer.write(view[start : start + _STEP_BYTES])
                    await writer.drain()
                    self.progress()
            self.done = True

        def abort(self) -> None:
            """Abort the connection: closing alone would go on to send buffered bytes, out of memory that is not ours
            any more.
            """
            if self.transport is not None:
                self.transport.abort()

    return Views


def _event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def _run(loop: asyncio.AbstractEventLoop, sessions: list[aiohttp.ClientSession]) -> None:  # noqa: ARG001 - held
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
