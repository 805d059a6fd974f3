"""The client of a bucket: the server's time, as its answers tell it."""

from __future__ import annotations

import uuid
from typing import cast

import pytest

from tests.support.servers import StoreServer
from tierlog.runtime.machine.clock import SystemClock
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import RequestCounts
from tierlog.runtime.stores.protocol.store_probe import time_of
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.writing.bucket_client import BucketClient
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpClient, HttpRequest
from tierlog.runtime.stores.writing.retrying import RetryPolicy

NOON_MS = 784_111_777_000
NOON = "Sun, 06 Nov 1994 08:49:37 GMT"


class Answers:
    """Answers each request with one Date, or none."""

    def __init__(self) -> None:
        self.date: str | None = None

    def send(self, _request: HttpRequest, _scope: object = None) -> HttpAnswer:
        return HttpAnswer(200, {} if self.date is None else {"date": self.date}, b"")


@pytest.mark.parametrize(
    ("date", "found_ms"),
    [
        (None, None),
        (NOON, NOON_MS),
        ("Sun, 06 Nov 1994 09:49:37 +0100", NOON_MS),
        ("Sunday, 06-Nov-94 08:49:37 GMT", NOON_MS),
        ("", None),
        ("yesterday", None),
        ("Sun, 06 Nov 99999999 08:49:37 GMT", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
    ],
)
def test_the_servers_time(date: str | None, found_ms: int | None) -> None:
    """A proxy's nonsense is no time, and no error of the write."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        http = Answers()
        client = BucketClient(
            "s3://bucket", cast("HttpClient", http), lambda _: None, RetryPolicy(), machine, RequestCounts()
        )
        assert client.time_ms() is None
        http.date = date
        client.send("key", lambda: HttpRequest("PUT", "http://bucket/key"))
        assert client.time_ms() == found_ms
        machine.clock.sleep(2.5)
        assert client.time_ms() == (None if found_ms is None else found_ms + 2500)


@pytest.mark.server
def test_the_time_of_a_store(s3: StoreServer) -> None:
    store = open_store(f"{s3.url}/time/{uuid.uuid4()}", s3.options)
    assert time_of(store) is None
    store.put("key", b"value")
    told = time_of(store)
    assert told is not None
    assert abs(told - SystemClock().time_ms()) < 60_000
    store.close()


def test_a_store_that_cannot_say() -> None:
    store = open_store("memory://time")
    store.put("key", b"value")
    assert time_of(store) is None
