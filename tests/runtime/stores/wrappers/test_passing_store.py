"""What wrappers are made of: each call of a store and of its uploads, and each answer, goes through one place."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeVar

import pytest

from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore, UnfinishedUpload, Upload
from tierlog.runtime.stores.protocol.optional_reads import Answer, find_direct_reads, find_started_reads
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import Call, CountingStore, MaskedStore, PassingStore, StoreCounts

Result = TypeVar("Result")
PREFIX = "secret-prefix/"
KEY = f"{PREFIX}k"


class Seen(PassingStore):
    """Remembers the calls."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        self.calls.append((call.verb, call.key))
        return run()


class Refusing(PassingStore):
    """Whatever is asked, and whatever page of a listing, an error names the whole key."""

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        if call.verb not in ("LIST", "POST"):
            raise StoreError(f"{KEY}: refused")
        return run()

    def pass_listing(self, entries: Iterator[Result]) -> Iterator[Result]:  # type: ignore[override]
        yield from entries
        raise StoreError(f"{KEY}: the second page is refused")


def _upload(store: ObjectStore) -> Upload:
    return store.begin_upload(KEY, part_bytes=4)


def _started(store: ObjectStore) -> Answer:
    started = find_started_reads(store)
    assert started is not None
    came = threading.Event()
    answers: list[Answer] = []

    def told(answer: Answer) -> None:
        answers.append(answer)
        came.set()

    started.start_fetch_range(KEY, start_position=0, end_position_exclusive=2, on_answer=told)
    assert came.wait(LIMIT_SECONDS)
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


#: Each call, and what a wrapper is told of it.
CALLS: dict[str, tuple[Callable[[ObjectStore], object], list[tuple[str, str]]]] = {
    "iter_objects": (lambda store: list(store.iter_objects(PREFIX)), [("LIST", PREFIX)]),
    "list_folder": (lambda store: store.list_folder(PREFIX), [("LIST", PREFIX)]),
    "fetch": (lambda store: store.fetch(KEY), [("GET", KEY)]),
    "fetch_range": (lambda store: store.fetch_range(KEY, start_position=0, end_position_exclusive=2), [("GET", KEY)]),
    "start_fetch_range": (_started, [("GET", KEY)]),
    "find": (lambda store: store.find(KEY), [("HEAD", KEY)]),
    "put": (lambda store: store.put(KEY, b"abcd"), [("PUT", KEY)]),
    "put_part": (lambda store: _upload(store).put_part(1, [b"abcd"]), [("POST", KEY), ("PUT", KEY)]),
    "abort": (lambda store: _upload(store).abort(), [("POST", KEY), ("DELETE", KEY)]),
    "delete": (lambda store: store.delete([KEY, "other"]), [("DELETE", KEY)]),
    "iter_uploads": (lambda store: list(store.iter_uploads(PREFIX)), [("LIST", PREFIX)]),
    "abort_upload": (lambda store: store.abort_upload(UnfinishedUpload(KEY, "7", 0)), [("DELETE", KEY)]),
}


@pytest.fixture
def bucket() -> ObjectStore:
    store = open_store(f"memory://{uuid.uuid4()}")
    store.put(KEY, b"abcd")
    return store


class TestHook:
    """``pass_on``."""

    @pytest.mark.parametrize("name", CALLS)
    def test_every_call_goes_through_it(self, bucket: ObjectStore, name: str) -> None:
        """If this fails, a wrapper that counts or breaks calls does not see this one."""
        call, expected = CALLS[name]
        seen = Seen(bucket)
        assert call(seen) == call(bucket) or name == "put"
        assert seen.calls == expected

    def test_an_upload_to_its_end(self, bucket: ObjectStore) -> None:
        """If this fails, parts or completions of uploads pass by the wrapper."""
        seen = Seen(bucket)
        upload = _upload(seen)
        upload.put_part(1, [b"abcd"])
        upload.put_part(2, [b"e"])
        assert upload.complete().size_bytes == 5
        assert seen.calls == [("POST", KEY), ("PUT", KEY), ("PUT", KEY), ("POST", KEY)]
        assert bytes(bucket.fetch(KEY)) == b"abcde"

    def test_reads_into_memory(self, tmp_path: object) -> None:
        """If this fails, a broker's reads of a disk are not counted."""
        local = open_store(str(tmp_path))
        local.put(KEY, b"abcd")
        counting = CountingStore(local)
        direct = find_direct_reads(counting)
        assert direct is not None
        out = bytearray(10)
        assert direct.fetch_range_into(KEY, memoryview(out), start_position=1) == 3
        assert bytes(out[:3]) == b"bcd"
        assert counting.counts == StoreCounts(gets=1, bytes=3)

    def test_begun_reads_are_counted(self, bucket: ObjectStore) -> None:
        """If this fails, a store that begins reads seems to be asked for nothing."""
        counting = CountingStore(bucket)
        assert bytes(_started(counting)) == b"ab"  # type: ignore[arg-type]
        assert counting.counts == StoreCounts(gets=1, bytes=2)


class TestMask:
    """``key.prefix.mask``: what no message may show."""

    NAMES: ClassVar = [name for name in CALLS if name != "list_folder"]

    @pytest.mark.parametrize("name", NAMES)
    def test_no_error_shows_the_prefix(self, bucket: ObjectStore, name: str) -> None:
        """If this fails, an error of this call, or of a later page of this listing, shows the prefix to who must not
        see it.
        """
        with pytest.raises(StoreError) as raised:
            CALLS[name][0](MaskedStore(Refusing(bucket), PREFIX))
        assert PREFIX not in str(raised.value)
        assert "<prefix>/k" in str(raised.value)
        assert raised.value.__cause__ is None

    def test_its_kind_stays(self, bucket: ObjectStore) -> None:
        """If this fails, a masked store's missing objects look like a store that is broken."""
        store = MaskedStore(bucket, PREFIX)
        with pytest.raises(ObjectNotFoundError, match="<prefix>/gone"):
            store.fetch(f"{PREFIX}gone")
        assert [info.key for info in store.iter_objects()] == [KEY]
        assert isinstance(store.find(KEY), ObjectInfo)
