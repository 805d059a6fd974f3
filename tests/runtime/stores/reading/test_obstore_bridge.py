"""What obstore's asynchronous calls ask of an event loop: decision 0009 leans on it, and obstore promises none of it.

These tests run before all others, which would hang where one of these fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

SECONDS = 20
ADVICE = (
    f"obstore {obstore.__version__} %s. Reads that can be ended (decision 0009, reading/cancellable_reads.py) lean on "
    "that: adapt them, or keep to the versions of obstore that pyproject.toml had before."
)


def broken(what: str) -> None:
    pytest.fail(ADVICE % what, pytrace=False)


class Answer:
    """A future that has no more than what obstore may ask for."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.callbacks: list[Callable[[Answer], object]] = []

    def add_done_callback(self, function: Callable[[Answer], object]) -> None:
        self.callbacks.append(function)

    def cancelled(self) -> bool:
        return self.is_cancelled

    def set_result(self, result: Any) -> None:
        self.result = result
        self.ended.set()

    def set_exception(self, error: BaseException) -> None:
        self.error = error
        self.ended.set()

    def cancel(self) -> None:
        self.is_cancelled = True
        for function in self.callbacks:
            function(self)


class Loop:
    """An event loop that has no more than what obstore may ask for."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.threads: set[int] = set()

    def create_future(self) -> Answer:
        self.answers.append(Answer())
        return self.answers[-1]

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        self.threads.add(threading.get_ident())
        callback(*args)


def begun(call: Callable[[], object]) -> tuple[Loop, Answer]:
    """The call as it begins where a loop seems to run."""
    loop = Loop()
    asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, loop))
    answer: object = None
    try:
        answer = call()
    except (AttributeError, TypeError, RuntimeError) as error:
        broken(f"asks more of a loop than a future and call_soon_threadsafe ({error})")
    finally:
        asyncio._set_running_loop(None)
    if len(loop.answers) != 1 or answer is not loop.answers[0]:
        broken("no longer gives the future that it asks the running loop for")
    return loop, loop.answers[0]


def ended(answer: Answer) -> Answer:
    if not answer.ended.wait(SECONDS):
        broken("does not fill its future through call_soon_threadsafe")
    return answer


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    obstore.put(made, "k", b"abcdef")
    return made


def test_a_future_is_filled_by_another_thread(store: MemoryStore) -> None:
    """If this fails, no read of the storage manager comes back."""
    loop, answer = begun(lambda: obstore.get_range_async(store, "k", start=1, end=4))
    assert bytes(ended(answer).result) == b"bcd"
    if not loop.threads or threading.get_ident() in loop.threads:
        broken("fills its future in the thread that asked")
    _, head = begun(lambda: obstore.head_async(store, "k"))
    assert ended(head).result["size"] == 6
    _, whole = begun(lambda: obstore.get_async(store, "k"))
    _, body = begun(ended(whole).result.bytes_async)
    assert bytes(ended(body).result) == b"abcdef"


def test_an_error_comes_as_the_futures(store: MemoryStore) -> None:
    """If this fails, an object that is missing hangs whoever reads it."""
    _, answer = begun(lambda: obstore.get_range_async(store, "none", start=1, end=4))
    if not isinstance(ended(answer).error, FileNotFoundError):
        broken(f"says {answer.error!r} of an object that is missing")


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        yield listener


def test_a_cancelled_future_closes_the_connection(silent: socket.socket) -> None:
    """If this fails, closing a stream, or a broker, waits for a store that stalls."""
    config: Any = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "region": "r", "skip_signature": True}
    store = S3Store("b", config=config, client_options={"allow_http": True})
    _, answer = begun(lambda: obstore.get_range_async(store, "k", start=0, end=9))
    connection, _ = silent.accept()
    with connection:
        connection.settimeout(SECONDS)
        assert connection.recv(1 << 16).startswith(b"GET /b/k")
        if not answer.callbacks:
            broken("asks no more to be told that its future is done")
        answer.cancel()
        try:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        except TimeoutError:
            broken("goes on with a request whose future is cancelled")
    assert not answer.ended.is_set()
