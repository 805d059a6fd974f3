"""Uploads to a real S3 server behind a proxy that breaks: what was stored is whole, or an error says so in time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.fault_proxy import NO_SUCH_HOST, PATIENT, FaultProxy, limits_for
from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_STORE, ends
from tierlog.errors import (
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

PART = 5 << 20
BODY = bytes(range(256)) * 2000


@dataclass
class Broken:
    """A store behind a proxy, and the same one without."""

    proxy: FaultProxy
    store: ObjectStore
    sound: ObjectStore


@pytest.fixture
def broken(s3: StoreServer, request: pytest.FixtureRequest) -> Iterator[Broken]:
    url = f"{s3.url}/faults/{uuid.uuid4()}"
    kind = request.node.callspec.params.get("kind", "") if hasattr(request.node, "callspec") else ""
    with FaultProxy.before(s3) as proxy:
        store = open_store(url, {**s3.options, **limits_for(kind), "store.endpoint": proxy.endpoint})
        sound = open_store(url, s3.options)
        sound.put("warm", b"")  # the server's first write takes it seconds
        sound.delete(["warm"])
        yield Broken(proxy, store, sound)
        store.close()
        sound.close()


def upload(store: ObjectStore, key: str = "k") -> bytes:
    """Two parts and a bit."""
    parts = [b"a" * PART, b"b" * PART, b"rest"]
    under_way = store.begin_upload(key, part_bytes=PART)
    for number, part in enumerate(parts, 1):
        under_way.put_part(number, [part])
    assert under_way.complete().size_bytes == 2 * PART + 4
    return b"".join(parts)


PASSING = [
    ("reset", {"after_bytes": 100_000}),
    ("reset", {}),
    ("stall", {}),
    ("stall_after", {}),
    ("status", {"status": 503}),
    ("status", {"status": 429, "headers": {"Retry-After": "1"}}),
    ("status", {"status": 500}),
    ("status_after", {"status": 500}),
    ("status_after", {"status": 503}),
    ("lost", {}),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("kind", "more"), PASSING)
def test_a_put_survives(broken: Broken, kind: str, more: dict[str, object]) -> None:
    """If this fails, one bad second of a store or a network fails a copy."""
    rule = broken.proxy.add(kind, verb="PUT", times=2, **more)  # type: ignore[arg-type]
    stored = broken.store.put("k", [BODY[:1000], BODY[1000:]])
    assert rule.struck == 2
    assert stored.size_bytes == len(BODY)
    assert bytes(broken.sound.fetch("k")) == BODY


@pytest.mark.parametrize("step", ["uploads", "partNumber=2", "POST"])
@pytest.mark.parametrize(
    ("kind", "more"), [pytest.param(*case, marks=[] if case[0] == "lost" else pytest.mark.slow) for case in PASSING]
)
def test_an_upload_survives_at_each_step(broken: Broken, kind: str, more: dict[str, object], step: str) -> None:
    """If this fails, one bad request of many fails a copy, or what the store has done already counts as failed."""
    if step == "POST":  # the one that completes
        rule = broken.proxy.add(kind, verb="POST", path="uploadId", **more)  # type: ignore[arg-type]
    else:
        rule = broken.proxy.add(kind, path=step, **more)  # type: ignore[arg-type]
    expected = upload(broken.store)
    assert rule.struck == 1
    assert bytes(broken.sound.fetch("k")) == expected


def test_a_store_that_stays_broken_is_an_error_in_time(broken: Broken) -> None:
    """If this fails, a copy hangs for as long as its store is ill."""
    broken.proxy.add("status", verb="PUT", times=None)
    with ends(), pytest.raises(StoreUnavailableError, match=r"SlowDown.*tried 4 times"):
        broken.store.put("k", BODY)
    assert broken.sound.find("k") is None


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (403, "AccessDenied", StorePermissionError),
        (400, "ExpiredToken", StorePermissionError),
        (404, "NoSuchBucket", ObjectNotFoundError),
        (400, "EntityTooLarge", StoreError),
    ],
)
def test_what_trying_again_cannot_mend_is_told_at_once(
    broken: Broken, status: int, code: str, error: type[StoreError]
) -> None:
    """If this fails, wrong rights, a bucket that is gone or keys that expired look like a slow store."""
    rule = broken.proxy.add("status", verb="PUT", status=status, code=code, times=None)
    with pytest.raises(StoreError, match=code) as caught:
        broken.store.put("k", BODY)
    assert type(caught.value) is error
    assert rule.struck == 1


def test_a_put_that_lands_late_and_its_deletion(broken: Broken) -> None:
    """If this fails, an object that was given up comes back to stay."""
    broken.proxy.add("late", verb="PUT", times=4)
    with pytest.raises(StoreUnavailableError):
        broken.store.put("k", BODY)
    broken.store.delete(["k"])
    assert broken.proxy.land_late() == 4
    assert bytes(broken.sound.fetch("k")) == BODY
    broken.store.delete(["k"])
    assert broken.sound.find("k") is None


def test_an_abort_ends_what_runs(broken: Broken) -> None:
    """If this fails, a copy that is past its deadline goes on, or its thread is lost."""
    under_way = broken.store.begin_upload("k", part_bytes=PART)
    under_way.put_part(1, [bytes(PART)])
    broken.proxy.add("stall", path="partNumber=2", times=None)
    failed: list[BaseException] = []

    def put() -> None:
        try:
            under_way.put_part(2, [bytes(PART)])
        except StoreError as error:
            failed.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    broken.proxy.wait_for(3)
    with ends():
        under_way.abort()
        thread.join()
    assert len(failed) == 1
    assert list(broken.sound.iter_uploads()) == []
    assert broken.sound.find("k") is None


def test_closing_ends_what_runs(s3: StoreServer) -> None:
    """If this fails, a broker that stops waits for its store."""
    with FaultProxy.before(s3) as proxy:
        store = open_store(s3.url, {**s3.options, **ENDLESS_STORE, "store.endpoint": proxy.endpoint})
        proxy.add("stall", times=None)
        failed: list[BaseException] = []

        def put() -> None:
            try:
                store.put("closing", BODY)
            except StoreError as error:
                failed.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        proxy.wait_for(1)
        with ends():
            store.close()
            thread.join()
        assert len(failed) == 1
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.put("closing", BODY)


def test_a_conditional_put_whose_answer_got_lost(broken: Broken) -> None:
    """If this fails, the only writer of an object is told that somebody else was quicker."""
    broken.proxy.add("lost", verb="PUT")
    assert broken.store.put("c", BODY, expected_etag=ABSENT).size_bytes == len(BODY)
    with pytest.raises(ObjectConflictError):
        broken.store.put("c", BODY, expected_etag=ABSENT)


def test_bytes_that_change_on_their_way_are_not_stored(broken: Broken, s3: StoreServer) -> None:
    """If this fails, a flipped bit of a bad network card is in the bucket for ever."""
    options = {**s3.options, **PATIENT, "store.unsigned_payload": "true", "store.endpoint": broken.proxy.endpoint}
    for mode in ("crc32c", "md5"):
        store = open_store(f"{s3.url}/damaged", options | {"store.checksums": mode, "store.max_retries": "0"})
        broken.proxy.add("damage", verb="PUT", path=mode)
        with pytest.raises(StoreError):
            store.put(mode, BODY)
        assert store.find(mode) is None
        store.close()


def test_deleting_many_where_the_store_cannot(broken: Broken) -> None:
    """If this fails, old clones of S3 keep everything for ever."""
    for name in ("a", "b", "c"):
        broken.store.put(name, b"1")
    broken.proxy.add("status", path="delete", status=501, code="NotImplemented", times=None)
    broken.store.delete(["a", "b"])
    broken.store.delete(["c"])
    assert list(broken.sound.iter_objects()) == []


def test_a_deletion_that_fails_names_what_is_left(broken: Broken) -> None:
    """If this fails, nobody knows what a failed deletion left."""
    broken.store.put("a", b"1")
    broken.proxy.add("status", verb="DELETE", path="/a", status=403, times=None)
    with pytest.raises(StorePermissionError, match="1 objects could not be removed: a: "):
        broken.store.delete(["a"])


def test_a_host_that_is_gone(s3: StoreServer) -> None:
    """If this fails, a name server that is down looks like a wrong key."""
    endpoint = {"store.endpoint": f"http://{NO_SUCH_HOST}:80", "store.max_retries": "1"}
    store = open_store(s3.url, {**s3.options, **endpoint})
    with pytest.raises(StoreUnavailableError, match=NO_SUCH_HOST):
        store.put("k", b"1")
    store.close()
