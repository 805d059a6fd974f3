"""What every object store owes to those who write to it: one suite over all of ours, and over a third party's."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import uuid
from collections.abc import Iterator

import pytest

from tests.contract.hdfs_store import FolderStore
from tests.support.servers import StoreServer
from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, MaskedStore
from tierlog.testing.failing_store import FailingStore

pytestmark = pytest.mark.server

INTEROP = pytest.mark.interop
KINDS = [
    "memory",
    "local",
    "memory-files",
    "counting",
    "failing-never",
    "masked",
    "third-party",
    "s3",
    pytest.param("azure", marks=INTEROP),
    pytest.param("gcs", marks=INTEROP),
]
SMALL = 5 << 20  # the smallest part of S3


def make_store(kind: str, request: pytest.FixtureRequest, folder: pathlib.Path) -> ObjectStore:
    """A store of the kind, empty."""
    if kind == "memory":
        return open_store(f"memory://{uuid.uuid4()}")
    if kind == "memory-files":
        files = MemoryFiles()
        files.make_directories("/root")
        return LocalStore("/root", Machine(files=files))
    if kind in ("s3", "azure", "gcs"):
        server: StoreServer = request.getfixturevalue(kind)
        return open_store(f"{server.url}/contract/{uuid.uuid4()}", {**server.options, "store.retry_timeout": "5s"})
    if kind == "third-party":
        return FolderStore({"folder": str(folder)}, Machine())
    local = open_store(str(folder))
    if kind == "counting":
        return CountingStore(local)
    if kind == "failing-never":
        import random

        return FailingStore(local, {}, rng=random.Random(1), clock=ManualClock())
    return MaskedStore(local, "secret-prefix/") if kind == "masked" else local


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[ObjectStore]:
    made = make_store(request.param, request, tmp_path)
    yield made
    made.close()


def part_bytes(store: ObjectStore) -> int:
    return max(store.upload_limits.part_bytes_min, 256 << 10)


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return sorted(info.key for info in store.iter_objects(prefix))


def test_a_put_of_several_buffers(store: ObjectStore) -> None:
    """If this fails, an object of pieces is stored in another order, or not at all."""
    stored = store.put("a/b", [b"one ", bytearray(b"two "), memoryview(b"three")])
    assert stored.size_bytes == 13
    assert bytes(store.fetch("a/b")) == b"one two three"
    assert store.put("a/b", b"").size_bytes == 0
    assert bytes(store.fetch("a/b")) == b""
    found = store.find("a/b")
    assert found is not None
    assert (found.key, found.size_bytes) == ("a/b", 0)
    assert found.last_modified_ms > 1_600_000_000_000
    assert store.find("a") is None
    assert store.find("a/c") is None


def test_a_buffer_is_the_callers_again_after_a_put(store: ObjectStore) -> None:
    """A copy fills the same memory with the next segment: a store that kept it would change what it stored."""
    buffer = bytearray(b"first" * 1000)
    store.put("kept", memoryview(buffer))
    buffer[:] = b"other" * 1000
    assert bytes(store.fetch("kept")) == b"first" * 1000
    store.delete(["kept"])


def test_odd_keys(store: ObjectStore) -> None:
    """If this fails, a topic's name decides whether its segments can be copied and removed."""
    names = ["a b", "100%25", "ü/п", "t-1/0/x.log", "~+&=;,@!'()", '<x>&"y"']
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    for name in names:
        assert bytes(store.fetch(name)) == name.encode()
    store.delete(names)
    assert keys(store) == []


def test_deleting(store: ObjectStore) -> None:
    """If this fails, a deletion that is repeated fails, or takes what it should not."""
    for name in ("t/0/a", "t/0/b", "t/1/c"):
        store.put(name, b"1")
    store.delete([])
    store.delete(["t/0/a", "t/0/none", "t/1/c", "gone/none"])
    assert keys(store) == ["t/0/b"]
    store.delete(["t/0/a"])
    store.delete(["t/0/b"])
    assert keys(store) == []
    with pytest.raises(ObjectNotFoundError):
        store.fetch("t/0/b")
    store.put("t/0/b", b"2")
    assert bytes(store.fetch("t/0/b")) == b"2"


def test_conditional_puts(store: ObjectStore) -> None:
    """If this fails, two writers of one object both believe that theirs is there."""
    first = store.put("c", b"1", expected_etag=ABSENT)
    with pytest.raises(ObjectConflictError):
        store.put("c", b"2", expected_etag=ABSENT)
    assert bytes(store.fetch("c")) == b"1"
    found = store.find("c")
    assert found is not None
    assert found.etag == first.etag
    assert found.etag is not None
    store.put("c", b"three", expected_etag=found.etag)
    with pytest.raises(ObjectConflictError):
        store.put("c", b"four", expected_etag=found.etag)
    assert bytes(store.fetch("c")) == b"three"


class TestUploads:
    """Objects of several parts."""

    def test_parts_in_any_order_from_several_threads(self, store: ObjectStore) -> None:
        """If this fails, a large segment is stored with its parts swapped, or slower than the network."""
        size = part_bytes(store)
        parts = [bytes([n]) * size for n in range(4)] + [b"the end"]
        upload = store.begin_upload("big/one", part_bytes=size)
        assert upload.key == "big/one"
        errors: list[StoreError] = []

        def put(number: int) -> None:
            part = parts[number - 1]
            half = len(part) // 2
            try:
                upload.put_part(number, [memoryview(part)[:half], memoryview(part)[half:]])
            except StoreError as error:
                errors.append(error)

        threads = [threading.Thread(target=put, args=(n,)) for n in (5, 1, 3, 2, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert store.find("big/one") is None, "visible before it is complete"
        stored = upload.complete()
        assert stored.size_bytes == 4 * size + 7
        assert bytes(store.fetch("big/one")) == b"".join(parts)
        assert upload.complete() == stored, "completing again, as after an answer that got lost"
        upload.abort()
        assert store.find("big/one") is not None, "an abort after the end removed the object"
        with pytest.raises(StoreError):
            upload.put_part(1, [b"x"])

    def test_a_part_again_and_one_part_alone(self, store: ObjectStore) -> None:
        """If this fails, a part that had to be sent twice spoils the object."""
        size = part_bytes(store)
        upload = store.begin_upload("again", part_bytes=size)
        upload.put_part(1, [b"\1" * size])
        upload.put_part(1, [b"\1" * size])
        upload.put_part(2, [b"z"])
        upload.complete()
        assert bytes(store.fetch("again")) == b"\1" * size + b"z"
        upload = store.begin_upload("again", part_bytes=size)
        upload.put_part(1, [b"only"])
        assert upload.complete().size_bytes == 4
        assert bytes(store.fetch("again")) == b"only"

    def test_a_hole_is_never_completed(self, store: ObjectStore) -> None:
        """If this fails, a lost part becomes an object that looks whole."""
        size = part_bytes(store)
        upload = store.begin_upload("hole", part_bytes=size)
        with pytest.raises(StoreError):
            upload.complete()
        with contextlib.suppress(StoreError):  # of a store that takes parts in their order only
            upload.put_part(2, [b"x"])
        with pytest.raises(StoreError):
            upload.complete()
        for number, part in ((0, b"x"), (1, b""), (1, bytes(size + 1))):
            with pytest.raises(ValueError, match="hole"):
                upload.put_part(number, [part])
        upload.abort()
        assert keys(store) == []
        with pytest.raises(ValueError, match="parts of 0 bytes"):
            store.begin_upload("hole", part_bytes=0)

    def test_aborting_leaves_nothing(self, store: ObjectStore) -> None:
        """If this fails, every failed copy costs money for ever."""
        store.put("kept", b"old")
        upload = store.begin_upload("kept", part_bytes=part_bytes(store))
        upload.put_part(1, [b"new"])
        upload.abort()
        upload.abort()
        assert list(store.iter_uploads()) == []
        assert bytes(store.fetch("kept")) == b"old"
        assert keys(store) == ["kept"]
        with pytest.raises(StoreError):
            upload.put_part(2, [b"x"])
        with pytest.raises(StoreError):
            upload.complete()

    def test_what_was_forgotten_is_found_and_removed(self, store: ObjectStore, request: pytest.FixtureRequest) -> None:
        """If this fails, uploads of a process that was killed stay, invisible and paid for."""
        upload = store.begin_upload("lost/one", part_bytes=part_bytes(store))
        upload.put_part(1, [b"x"])
        other = store.begin_upload("lost/two", part_bytes=part_bytes(store))
        found = sorted(store.iter_uploads(), key=lambda each: each.key)
        if not found:
            pytest.skip("this kind of store cannot list them")
        assert [each.key for each in found] == ["lost/one", "lost/two"]
        assert all(each.started_ms > 1_600_000_000_000 for each in found)
        assert [each.key for each in store.iter_uploads("lost/o")] == ["lost/one"]
        assert list(store.iter_uploads("other/")) == []
        for each in found:
            store.abort_upload(each)
            store.abort_upload(each)
        assert list(store.iter_uploads()) == []
        assert keys(store) == []
        other.abort()
        upload.abort()


def test_requests_are_counted(store: ObjectStore) -> None:
    """If this fails, the bill of the store is a surprise."""
    before = dict(store.requests)
    store.put("k", b"1")
    store.fetch("k")
    store.find("k")
    list(store.iter_objects())
    store.delete(["k"])
    more = {verb: count - before[verb] for verb, count in store.requests.items() if count != before[verb]}
    assert more.pop("LIST") >= 1
    assert more.pop("PUT", 0) + more.pop("POST", 0) == 1
    assert more == {"GET": 1, "HEAD": 1, "DELETE": 1}


def test_a_large_put_and_a_range(store: ObjectStore) -> None:
    """If this fails, objects beyond the size of a socket's buffer are cut or mixed."""
    data = bytes(range(256)) * (3 << 12)
    store.put("large", [data[:1000], data[1000:]])
    found = store.fetch_range("large", start_position=999_990, end_position_exclusive=1_000_010)
    assert bytes(found) == data[999_990:1_000_010]
