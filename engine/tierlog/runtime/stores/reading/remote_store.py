"""Buckets: S3 and what speaks like it, GCS, Azure, and memory. Read through obstore, written through a StoreWriter.

Every call has a time limit and bounded retries (``store.timeout``, ``store.max_retries``, ``store.retry_timeout``), set
where the store is made. Reads within a block of ``cancelling.cancelled_by`` can be ended; those of the main thread end
with an interrupt.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import obstore
from obstore import exceptions
from obstore.store import ObjectStore as ObstoreStore
from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, TierlogError
from tierlog.runtime.machine.buffers import note_foreign
from tierlog.runtime.machine.cancelling import CancelledReadError, is_cancellable
from tierlog.runtime.machine.process import OBSTORE
from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    RequestCounts,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    check_part_bytes,
    views_of,
)
from tierlog.runtime.stores.protocol.optional_reads import Answer, Cancel, OnAnswer
from tierlog.runtime.stores.protocol.store_probe import StoreCapabilities, plain_capabilities
from tierlog.runtime.stores.protocol.store_writer import StoreWriter
from tierlog.runtime.stores.reading.cancellable_reads import read_cancellable, start_read
from tierlog.runtime.stores.reading.endpoint_check import SLOW_SECONDS, EndpointCheck
from tierlog.runtime.stores.reading.obstore_errors import is_behind_end, translate, translated
from tierlog.runtime.stores.reading.redirects import is_refused_redirect

if TYPE_CHECKING:
    from obstore import ObjectMeta

_PAGE_KEYS: Final = 1000
_Answer = TypeVar("_Answer", bound=Buffer)
_Result = TypeVar("_Result")


class RemoteStore:
    """An ObjectStore in a bucket, read by obstore.

    Args:
        store: obstore's, rooted where keys begin.
        name: The URL, without secrets.
        make_writer: Makes the write half, over the same root, when it is first needed: readers do without its imports.
        counts: Where the writer counts too.
        is_local: Memory of this process.
        resumes_listings: The store can begin a listing behind a key, and lists in the order of keys.
        endpoint: Asked when the first read gets no good answer; None: never.
        etag_field: obstore's name of the field by which ``put`` knows an object: "e_tag" or "version".
    """

    def __init__(
        self,
        store: ObstoreStore,
        name: str,
        make_writer: Callable[[], StoreWriter],
        counts: RequestCounts,
        *,
        is_local: bool = False,
        etag_field: Literal["e_tag", "version"] = "e_tag",
        resumes_listings: bool = False,
        endpoint: EndpointCheck | None = None,
    ) -> None:
        self._store = store
        self._endpoint = endpoint
        self._name = name.rstrip("/")
        self._make_writer = make_writer
        self._writer: StoreWriter | None = None
        self._lock = threading.Lock()
        self._etag_field = etag_field
        self._counts = counts
        self.is_local = is_local
        self._resumes_listings = resumes_listings

    def _writing(self) -> StoreWriter:
        with self._lock:
            if self._writer is None:
                self._writer = self._make_writer()
            return self._writer

    @property
    def upload_limits(self) -> UploadLimits:
        """The limits of this kind of store."""
        return self._writing().limits

    @property
    def requests(self) -> Mapping[str, int]:
        """The requests by verb; obstore's own retries are not counted."""
        return self._counts.snapshot()

    def _place(self, key: str) -> str:
        return f"{self._name}/{key}"

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Iterate the objects. Stores list whole folders only: the rest of the prefix is compared here."""
        return self._iter_listed(prefix, None)

    @property
    def resumes_listings(self) -> bool:
        """Whether listings can begin behind a key: see ``find_resumed_listings``."""
        return self._resumes_listings

    def iter_objects_behind(self, key: str, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._iter_listed(prefix, key)

    def _read(self, blocking: Callable[[], _Result], begin: Callable[[], Awaitable[_Result]]) -> _Result:
        """Make one call of obstore's. Blocking calls are faster by a change of threads, and neither a scope nor Ctrl-C
        ends them: with its tries a call may take minutes. A slow first call makes the endpoint check.
        """
        check = self._endpoint
        if check is not None and not check.answered:
            return self._first_read(check, begin)
        ends = is_cancellable() or (threading.current_thread() is threading.main_thread() and not self.is_local)
        return read_cancellable(begin) if ends else blocking()

    def _first_read(self, check: EndpointCheck, begin: Callable[[], Awaitable[_Result]]) -> _Result:
        try:
            found = read_cancellable(begin, slow_seconds=SLOW_SECONDS, when_slow=check.begin)
        except CancelledReadError:
            if check.redirected is None:
                raise
            raise check.explained(check.redirected) from None
        except (exceptions.BaseError, OSError, StopAsyncIteration) as error:
            explained = check.explained(error)
            check.answered = explained is error and not is_refused_redirect(str(error))
            raise explained from None
        check.answered = True
        return found

    def _iter_listed(self, prefix: str, behind: str | None) -> Iterator[ObjectInfo]:
        folder = prefix[: prefix.rfind("/") + 1]
        with translated(self._place(prefix)):
            pages = obstore.list(self._store, folder.rstrip("/") or None, offset=behind, chunk_size=_PAGE_KEYS)
        while True:
            with translated(self._place(prefix)):
                self._counts.add("LIST")
                try:
                    page = self._read(pages.__next__, pages.__anext__)
                except (StopIteration, StopAsyncIteration):
                    return
            for found in page:
                if found["path"].startswith(prefix):
                    yield _info(found)

    def list_folder(self, prefix: str = "") -> FolderListing:
        self._counts.add("LIST")
        folder = prefix.rstrip("/") or None
        with translated(self._place(prefix)):
            found = self._read(
                lambda: obstore.list_with_delimiter(self._store, folder),
                lambda: obstore.list_with_delimiter_async(self._store, folder),
            )
        return FolderListing(
            tuple(f"{folder.rstrip('/')}/" for folder in found["common_prefixes"]),
            tuple(_info(each) for each in found["objects"]),
        )

    def fetch(self, key: str) -> Buffer:
        self._counts.add("GET")
        with translated(self._place(key)):
            answer = self._read(lambda: obstore.get(self._store, key), lambda: obstore.get_async(self._store, key))
            return _noted(self._read(answer.bytes, answer.bytes_async))

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """Fetch a range; the client's buffer as it is."""
        self._counts.add("GET")
        with translated(self._place(key)):
            try:
                return _noted(
                    self._read(
                        lambda: obstore.get_range(self._store, key, start=start_position, end=end_position_exclusive),
                        lambda: obstore.get_range_async(
                            self._store, key, start=start_position, end=end_position_exclusive
                        ),
                    )
                )
            except exceptions.GenericError as error:
                if is_behind_end(error):
                    return b""
                raise

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        check = self._endpoint

        def told(answer: Answer) -> None:
            if isinstance(answer, CancelledReadError) and check is not None and check.redirected is not None:
                answer = check.redirected
            if not isinstance(answer, BaseException):
                if check is not None:
                    check.answered = True
                on_answer(_noted(answer))
            elif is_behind_end(answer):
                on_answer(b"")
            else:
                on_answer(answer if isinstance(answer, TierlogError) else translate(answer, self._place(key)))

        def start() -> Awaitable[Buffer]:
            OBSTORE.enter()
            return obstore.get_range_async(self._store, key, start=start_position, end=end_position_exclusive)

        self._counts.add("GET")
        cancel = start_read(start, told)
        if check is not None and not check.answered:
            check.watch(cancel)
        return cancel

    def find(self, key: str) -> ObjectInfo | None:
        self._counts.add("HEAD")
        try:
            with translated(self._place(key)):
                found = self._read(lambda: obstore.head(self._store, key), lambda: obstore.head_async(self._store, key))
                return _info(found)._replace(etag=found[self._etag_field])
        except ObjectNotFoundError:
            return None

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        return self._writing().put(key, views_of(data), expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        check_part_bytes(part_bytes, self._writing().limits)
        return self._writing().begin_upload(key, part_bytes=part_bytes)

    def delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._writing().delete(keys)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return self._writing().iter_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self._writing().abort_upload(upload)

    def describe(self) -> str:
        """Return the URL of the store."""
        return self._name

    def identity(self) -> str:
        return self._writing().identity()

    def capabilities(self, key: str) -> StoreCapabilities:
        return self._writing().capabilities(key) or plain_capabilities(
            self, key, checksums=self._writing().checksum_name
        )

    def store_time_ms(self) -> int | None:
        writer = self._writer
        return None if writer is None else writer.time_ms()

    def close(self) -> None:
        """End running writes; obstore holds its connections until the process ends."""
        with self._lock:
            writer = self._writer
        if writer is not None:
            writer.close()


def _noted(answer: _Answer) -> _Answer:
    """Note an answer's memory as the client's, and return the answer: malloc's arenas would hold it once it is free."""
    note_foreign(memoryview(answer).nbytes)
    return answer


def _info(found: ObjectMeta) -> ObjectInfo:
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return ObjectInfo(found["path"], found["size"], modified_ms, found["e_tag"])
