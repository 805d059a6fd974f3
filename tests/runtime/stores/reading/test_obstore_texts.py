"""The words by which obstore's errors are known, made by obstore itself: those of a new version fail here."""

from __future__ import annotations

import http.server
import re
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import BaseError, GenericError
from obstore.store import AzureStore, MemoryStore, S3Store

from tierlog.errors import (
    ArchivedObjectError,
    ObjectNotFoundError,
    StoreError,
    StoreNotReachedError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.reading.obstore_errors import is_behind_end, translate

VERSION = f"obstore {obstore.__version__}"
ADVICE = f"{VERSION} has other words than obstore 0.12: adapt reading/obstore_errors, and the range in pyproject.toml"


def said(call: Callable[[], object]) -> BaseError:
    with pytest.raises(BaseError) as caught:
        call()
    return caught.value


def s3(port: int, **more: object) -> S3Store:
    return S3Store(
        "b",
        config={
            "endpoint": f"http://127.0.0.1:{port}",
            "region": "r",
            "skip_signature": "credential_provider" not in more,
        },
        client_options={"allow_http": True},
        **({"retry_config": {"max_retries": 0}} | more),  # type: ignore[arg-type]
    )


@pytest.fixture
def dead_port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_a_range_behind_the_end() -> None:
    """If this fails, a truncated object looks like a broken store."""
    store = MemoryStore()
    obstore.put(store, "k", b"abc")
    error = said(lambda: obstore.get_range(store, "k", start=3, end=9))
    assert isinstance(error, GenericError), ADVICE
    assert is_behind_end(error), ADVICE


def test_nobody_answers(dead_port: int) -> None:
    """If this fails, a store that is down for a minute is given up for ever."""
    error = said(lambda: obstore.get_range(s3(dead_port), "k", start=0, end=1))
    assert isinstance(error, GenericError), ADVICE
    meant = translate(error, "s3://b/k")
    assert type(meant) is StoreUnavailableError, ADVICE
    assert str(meant).endswith("connection refused"), ADVICE
    listed = said(lambda: next(iter(obstore.list(s3(dead_port)))))
    assert type(translate(listed, "s3://b/")) is StoreUnavailableError, ADVICE


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (StoreUnavailableError("it does not answer"), StoreUnavailableError),
        (StoreNotReachedError("it does not answer"), StoreUnavailableError),
        (StorePermissionError("it has none: no StoreUnavailableError: this"), StorePermissionError),
    ],
)
def test_our_source_of_credentials_fails(dead_port: int, raised: StoreError, kind: type[StoreError]) -> None:
    """If this fails, credentials whose source is down for a minute are taken for refused, or the other way."""

    def give() -> None:
        raise raised

    error = said(lambda: obstore.get_range(s3(dead_port, credential_provider=give), "k", start=0, end=1))
    assert type(translate(error, "s3://b/k")) is kind, ADVICE


def test_no_name_of_an_object_is_taken_for_an_error(dead_port: int) -> None:
    """If this fails, an object whose name has obstore's words in it is read as nothing, or its errors are others."""
    words = "StartTooLarge InvalidRange 416 Range Not Satisfiable"
    names = f"{words} - Server returned non-2xx status code: 404 Not Found InvalidCertificate(Expired) 127.0.0.1:0,"
    error = said(lambda: obstore.get_range(s3(dead_port), names, start=0, end=1))
    assert not is_behind_end(error)
    assert type(translate(error, "s3://b/k")) is StoreUnavailableError
    missing = said_missing(names)
    assert not is_behind_end(missing)
    assert type(translate(missing, "memory://b/k")) is ObjectNotFoundError


@pytest.fixture
def refusing_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A server that answers every request with one status and body."""
    status, body = request.param

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not to the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def refusal(code: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>m</Message></Error>'.encode()


@pytest.mark.parametrize("refusing_port", [(403, refusal("InvalidObjectState"))], indirect=True)
def test_an_object_in_glacier(refusing_port: int) -> None:
    """If this fails, credentials are blamed for an object that waits to be restored."""
    error = said(lambda: obstore.get_range(s3(refusing_port), "k", start=0, end=1))
    meant = translate(error, "s3://b/k")
    assert type(meant) is ArchivedObjectError, ADVICE
    assert str(meant) == "s3://b/k: the object is archived: restore it first, then read again"


@pytest.mark.parametrize("refusing_port", [(403, refusal("AccessDenied"))], indirect=True)
def test_an_object_that_is_refused(refusing_port: int) -> None:
    """If this fails, somebody restores an archive because of a missing right."""
    error = said(lambda: obstore.get_range(s3(refusing_port), "k", start=0, end=1))
    assert type(translate(error, "s3://b/k")) is StorePermissionError, ADVICE


@pytest.mark.parametrize("refusing_port", [(409, refusal("BlobArchived"))], indirect=True)
def test_a_blob_in_azures_archive(refusing_port: int) -> None:
    """If this fails, an archived blob is called a conflict of writers."""
    store = AzureStore(
        "c",
        config={"account_name": "a", "endpoint": f"http://127.0.0.1:{refusing_port}/a", "skip_signature": True},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    error = said(lambda: obstore.get_range(store, "k", start=0, end=1))
    assert type(translate(error, "az://c/k")) is ArchivedObjectError, ADVICE


def said_missing(name: str) -> FileNotFoundError:
    with pytest.raises(FileNotFoundError) as caught:
        obstore.get_range(MemoryStore(), name, start=0, end=1)
    return caught.value


@pytest.mark.parametrize(
    ("refusing_port", "told"),
    [
        ((403, refusal("AccessDenied")), "status 403 AccessDenied: m"),
        ((403, b""), "status 403 Forbidden"),
        ((502, b"<html>no</html>"), "status 502 Bad Gateway"),
        ((503, b"come\n back"), "status 503 Service Unavailable: come back"),
        ((301, b""), "the store redirects without a place: the bucket is in another region (store.region)"),
    ],
    indirect=["refusing_port"],
    ids=["xml", "nothing", "html", "text", "redirect"],
)
def test_what_a_store_answers_is_told_in_our_words(refusing_port: int, told: str) -> None:
    """If this fails, a user reads XML and the name of a provider, and other words than ``check-config`` has."""
    store = s3(refusing_port)
    error = said(lambda: obstore.get_range(store, "k", start=0, end=1))
    assert str(translate(error, "s3://b/k")) == f"s3://b/k: GET: {told}", ADVICE
    listed = said(lambda: next(iter(obstore.list(store))))
    assert str(translate(listed, "s3://b/")) == f"s3://b/: LIST: {told}", ADVICE


@pytest.mark.parametrize("refusing_port", [(503, refusal("SlowDown"))], indirect=True)
def test_how_long_was_waited(refusing_port: int) -> None:
    """If this fails, nobody knows which key to change for a store that throttles longer."""
    store = s3(refusing_port, retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=9)})
    error = said(lambda: obstore.get_range(store, "k", start=0, end=1))
    told = r"GET: status 503 SlowDown: m \(tried 3 times in 0\.\d s; store\.max_retries allows more tries\)"
    assert re.fullmatch(f"s3://b/k: {told}", str(translate(error, "s3://b/k"))), ADVICE
