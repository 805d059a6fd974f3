"""A check whether a store's endpoint redirects its readers: made once, when the first read gets no good answer.

obstore treats a redirect to another host, which it cannot follow here (``redirects``), as a server that is away, and
tries again until ``store.retry_timeout`` is over; a redirect that it follows loses its signature, and is answered by a
bare 403. Neither names the endpoint that must change. As long as the store has not answered, a read that takes longer
than half a second, or is refused, has the endpoint asked beside it; an asynchronous one has at once. A store that
answers at once is not asked for more.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore import exceptions

from tierlog.errors import ConfigError, StoreError, StorePermissionError
from tierlog.runtime.machine.process import OBSTORE
from tierlog.runtime.stores.protocol.optional_reads import Cancel
from tierlog.runtime.stores.reading.cancellable_reads import start_read
from tierlog.runtime.stores.reading.obstore_errors import translate
from tierlog.runtime.stores.reading.redirects import is_refused_redirect
from tierlog.runtime.stores.writing.faults import redirect_error

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from obstore import ObjectMeta
    from obstore.store import ObjectStore as ObstoreStore

    from tierlog.runtime.stores.writing.http_client import HttpAnswer

#: Seconds that a first read may take before the endpoint is asked.
SLOW_SECONDS: Final = 0.5
_URL: Final = re.compile(r"Error performing [A-Z]+ (https?://[^\s?]+)")


class EndpointCheck:
    """The check of one store's endpoint, which asks where it sends its readers.

    Args:
        name: The URL of the store, for messages.
        make_hasty: Makes an obstore store of the same bucket that tries once.
        ask: Sends one unsigned GET and follows nothing.

    Attributes:
        answered: Whether the store has answered a read: then nothing is asked any more.
        redirected: What obstore said of a redirect to another host; None as long as none is known.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        name: str,
        make_hasty: Callable[[], ObstoreStore],
        ask: Callable[[str], HttpAnswer],
    ) -> None:
        self.answered = False
        self._name = name
        self._make_hasty = make_hasty
        self._ask = ask
        self._lock = threading.Lock()
        self._watched: list[Cancel] = []
        self.redirected: exceptions.GenericError | None = None

    def begin(self, cancel: Cancel) -> Cancel:
        """Ask, beside a read that is slow; if the endpoint sends us to another host, the read is ended by ``cancel``,
        and ``redirected`` says so. Returns what ends the asking.
        """
        return self._begin(lambda is_redirected: cancel() if is_redirected else None)

    def watch(self, cancel: Cancel) -> None:
        """Ask, beside an asynchronous read, as ``begin``; one request serves all reads that begin until it ends."""
        with self._lock:
            self._watched.append(cancel)
            if len(self._watched) > 1:
                return

        def told(is_redirected: bool) -> None:
            with self._lock:
                watched, self._watched = self._watched, []
            for end in watched if is_redirected else ():
                end()

        self._begin(told)

    def _begin(self, told: Callable[[bool], object]) -> Cancel:
        def answered(answer: ObjectMeta | BaseException) -> None:
            is_redirected = False
            if isinstance(answer, exceptions.GenericError) and is_refused_redirect(str(answer)):
                self.redirected, is_redirected = answer, True
            told(is_redirected)

        def start() -> Awaitable[ObjectMeta]:
            OBSTORE.enter()
            return obstore.head_async(self._make_hasty(), "-")

        return start_read(start, answered)

    def explained(self, error: Exception) -> Exception:
        """Make the error of obstore's that a first read ended with, or where it was redirected to, if that was why."""
        is_refused = is_refused_redirect(str(error))
        meant = translate(error, self._name)
        if not is_refused and not isinstance(meant, StorePermissionError):
            return error
        status, place = self._redirection(_URL.search(str(error)))
        if not status:
            return error
        signed = "" if is_refused else f"{meant}; it was asked without its signature, after "
        return redirect_error(f"{signed or f'{self._name}: '}status {status}", place)

    def _redirection(self, url: re.Match[str] | None) -> tuple[int, str]:
        """(status, URL) of the redirect that the endpoint answers with; (0, "") if it does not, or cannot be asked."""
        if url is None:
            return 0, ""
        try:
            answer = self._ask(url[1])
        except (StoreError, ConfigError):
            return 0, ""
        place = answer.headers.get("location", "")
        is_elsewhere = 300 <= answer.status < 400 and urlsplit(place).netloc
        return (answer.status, place) if is_elsewhere else (0, "")
