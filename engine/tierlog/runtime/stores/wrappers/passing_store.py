"""A store around a store that passes everything on: the base of wrappers that change one method.

Every call of the store and of its uploads goes through ``PassingStore.pass_on``, also the answers of started reads. A
wrapper that counts, translates or breaks calls overrides that; a wrapper that changes a single method overrides the
method.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar, cast

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    views_of,
)
from tierlog.runtime.stores.protocol.optional_reads import (
    Answer,
    Cancel,
    OnAnswer,
    OptionalReads,
    find_direct_reads,
    find_resumed_listings,
    find_started_reads,
)

Result = TypeVar("Result")
Entry = TypeVar("Entry")


class Call(NamedTuple):
    """One call to the store inside.

    Args:
        verb: Of object_store.VERBS, as a bucket would be asked.
        key: The object's; the prefix of a listing, and the first key of a deletion.
        objects: How many objects a deletion names.
        body: The bytes that are sent.
    """

    verb: str
    key: str
    objects: int = 1
    body: Sequence[Buffer] | Buffer = ()


class PassingStore:
    """A wrapper that passes all calls on: see ObjectStore and OptionalReads for the methods. Thread safety: as the
    store's.

    A class that overrides ``fetch_range`` alone blocks in all its reads: see ``find_started_reads``.

    Args:
        store: What answers.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:  # noqa: ARG002 - for overrides
        """Answer a call by ``run``, which asks the store inside, and may be run later or not at all.

        For a read that was begun it is called in the thread that has the answer, where it must not wait.
        """
        return run()

    def pass_listing(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Yield a listing's entries, page by page; its beginning has gone through ``pass_on`` already."""
        return entries

    @property
    def inner(self) -> ObjectStore:
        """The store inside."""
        return self._store

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    @property
    def starts_reads(self) -> bool:
        """Whether the store inside begins reads: see ``find_started_reads``."""
        return find_started_reads(self._store) is not None

    @property
    def reads_directly(self) -> bool:
        """Whether the store inside reads into given memory: see ``find_direct_reads``."""
        return find_direct_reads(self._store) is not None

    @property
    def upload_limits(self) -> UploadLimits:
        return self._store.upload_limits

    @property
    def requests(self) -> Mapping[str, int]:
        return self._store.requests

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self.pass_listing(self.pass_on(Call("LIST", prefix), lambda: self._store.iter_objects(prefix)))

    @property
    def resumes_listings(self) -> bool:
        """Whether the store inside begins listings behind a key: see ``find_resumed_listings``."""
        return find_resumed_listings(self._store) is not None

    def iter_objects_behind(self, key: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """Iterate the objects behind a key; only where ``resumes_listings``."""
        inner = cast(OptionalReads, self._store)
        return self.pass_listing(self.pass_on(Call("LIST", prefix), lambda: inner.iter_objects_behind(key, prefix)))

    def list_folder(self, prefix: str = "") -> FolderListing:
        return self.pass_on(Call("LIST", prefix), lambda: self._store.list_folder(prefix))

    def fetch(self, key: str) -> Buffer:
        return self.pass_on(Call("GET", key), lambda: self._store.fetch(key))

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return self.pass_on(
            Call("GET", key),
            lambda: self._store.fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            ),
        )

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        """Start a read; only where ``starts_reads``."""

        def told(answer: Answer) -> None:
            try:
                passed: Answer = self.pass_on(Call("GET", key), lambda: _given(answer))
            except BaseException as error:  # noqa: BLE001 - passed on, as fetch_range would raise it
                passed = error.with_traceback(None)
            on_answer(passed)

        return cast(OptionalReads, self._store).start_fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive, on_answer=told
        )

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Read into the caller's memory; only where ``reads_directly``."""
        inner = cast(OptionalReads, self._store)
        return self.pass_on(Call("GET", key), lambda: inner.fetch_range_into(key, out, start_position=start_position))

    def find(self, key: str) -> ObjectInfo | None:
        return self.pass_on(Call("HEAD", key), lambda: self._store.find(key))

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        return self.pass_on(
            Call("PUT", key, body=data), lambda: self._store.put(key, data, expected_etag=expected_etag)
        )

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        begun = self.pass_on(Call("POST", key), lambda: self._store.begin_upload(key, part_bytes=part_bytes))
        return PassingUpload(begun, self)

    def delete(self, keys: Sequence[str]) -> None:
        self.pass_on(Call("DELETE", keys[0] if keys else "", len(keys)), lambda: self._store.delete(keys))

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return self.pass_listing(self.pass_on(Call("LIST", prefix), lambda: self._store.iter_uploads(prefix)))

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.pass_on(Call("DELETE", upload.key), lambda: self._store.abort_upload(upload))

    def describe(self) -> str:
        return self._store.describe()

    def close(self) -> None:
        self._store.close()


class PassingUpload:
    """An Upload whose calls go through the store's ``pass_on``."""

    def __init__(self, upload: Upload, store: PassingStore) -> None:
        self.key = upload.key
        self._upload = upload
        self._store = store

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        self._store.pass_on(Call("PUT", self.key, body=data), lambda: self._upload.put_part(number, data))

    def complete(self) -> StoredObject:
        return self._store.pass_on(Call("POST", self.key), self._upload.complete)

    def abort(self) -> None:
        self._store.pass_on(Call("DELETE", self.key), self._upload.abort)


def answer_bytes(answer: object) -> int:
    """Return the size of a GET's answer: a buffer, or the number of bytes of a direct read."""
    return answer if isinstance(answer, int) else memoryview(cast(Buffer, answer)).nbytes


def _given(answer: Answer) -> Buffer:
    if isinstance(answer, BaseException):
        raise answer
    return answer


#: Fields of StoreCounts by verb.
_FIELDS: Final = {"LIST": "lists", "HEAD": "heads", "PUT": "puts", "POST": "posts", "DELETE": "deletes"}


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """The numbers of calls, and of the bytes that they moved.

    Args:
        gets: Reads that were answered with bytes.
        bytes: Bytes that came back.
        puts: Whole objects, and parts of uploads.
        posts: Uploads begun and completed.
        deletes: Objects asked to be removed, and uploads aborted.
        put_bytes: Bytes that were sent and accepted.
    """

    gets: int = 0
    bytes: int = 0
    lists: int = 0
    puts: int = 0
    heads: int = 0
    posts: int = 0
    deletes: int = 0
    put_bytes: int = 0


class CountingStore(PassingStore):
    """A wrapper that passes everything on and counts it. Thread-safe; a listing counts once, however many pages it
    takes.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._counts = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        return self._counts

    def reset(self) -> StoreCounts:
        """Return the counts so far, which begin again at zero."""
        with self._lock:
            counts, self._counts = self._counts, StoreCounts()
        return counts

    def add(self, **more: int) -> None:
        """Add to the counts, by names of StoreCounts."""
        with self._lock:
            now = self._counts
            self._counts = replace(now, **{name: getattr(now, name) + count for name, count in more.items()})

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        if call.verb == "GET":
            found = run()
            self.add(gets=1, bytes=answer_bytes(found))
            return found
        self.add(**{_FIELDS[call.verb]: call.objects})
        done = run()
        if call.verb == "PUT":
            self.add(put_bytes=sum(len(view) for view in views_of(call.body)))
        return done


MASK = "<prefix>/"


class MaskedStore(PassingStore):
    """A wrapper that passes everything on; in messages the prefix becomes ``<prefix>/``.

    Args:
        store: What answers.
        prefix: The text that no message may show; not empty.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        super().__init__(store)
        self._prefix = prefix

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:  # noqa: ARG002 - whatever the call is
        with self._masked():
            return run()

    def pass_listing(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        with self._masked():
            yield from entries

    @contextmanager
    def _masked(self) -> Iterator[None]:
        """Take the prefix out of the errors of the block."""
        try:
            yield
        except StoreError as error:
            if self._prefix not in str(error):
                raise
            masked = type(error)(str(error).replace(self._prefix, MASK))
            masked.refused = error.refused
            raise masked from None  # the cause would print the prefix again
