"""The write half of a bucket, and the shared parts of all clouds' write halves."""

from __future__ import annotations

import base64
import enum
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.stores.protocol.object_store import StoredObject, UnfinishedUpload, Upload, UploadLimits, views_of
from tierlog.runtime.stores.protocol.store_probe import StoreCapabilities


class StoreWriter(ABC):
    """The writer of a bucket: see ObjectStore for the methods of the same names. Any number of threads.

    Keys are relative to the store's root.
    """

    name: str
    """The URL of the store, without secrets."""

    limits: UploadLimits

    checksum_name = "none"
    """The checksum that bodies carry, where ``capabilities`` does not find out: "md5", "crc32c" or "none"."""

    no_uploads = "this store has no unfinished uploads"
    """Why ``abort_upload`` finds none, where the store lists none."""

    @abstractmethod
    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject: ...

    @abstractmethod
    def begin_upload(self, key: str, *, part_bytes: int) -> Upload: ...

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None: ...

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:  # noqa: ARG002 - none of any prefix
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        raise StoreError(f"{self.name}/{upload.key}: {self.no_uploads}")

    @abstractmethod
    def identity(self) -> str:
        """Return our identity; see ProbedStore."""

    def capabilities(self, key: str) -> StoreCapabilities | None:  # noqa: ARG002 - nothing to ask
        """Probe the features; None where nothing differs between stores of the kind."""
        return None

    def time_ms(self) -> int | None:
        """Return the store's time now; see ``BucketClient``. None: the store does not say."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Cancel what runs; its callers get a StoreError. Idempotent."""


class PartSizes:
    """The sizes of the parts that have come, by number. Not thread-safe: its owner locks."""

    def __init__(self, key: str, part_bytes: int) -> None:
        self._key = key
        self._part_bytes = part_bytes
        self._sizes: dict[int, int] = {}

    def check(self, number: int, size_bytes: int) -> None:
        """Check a part. Raises ValueError: a number below 1, an empty part or a too large one."""
        if number < 1 or not 1 <= size_bytes <= self._part_bytes:
            raise ValueError(f"{self._key}: part {number} of {size_bytes} bytes: 1 to {self._part_bytes} expected")

    def take(self, number: int, size_bytes: int) -> None:
        """Enter a part that is stored."""
        self._sizes[number] = size_bytes

    def whole(self) -> int:
        """Return the number of parts of an upload that is whole.

        Raises:
            StoreError: none came, one is missing, or one before the last is too small: the caller's mistake, which must
                not become an object with a hole.
        """
        last = max(self._sizes, default=0)
        wrong = [n for n in range(1, last) if self._sizes.get(n) != self._part_bytes]
        if not last or wrong:
            raise StoreError(f"{self._key}: parts {wrong[:5]} of {last} are missing or smaller than {self._part_bytes}")
        return last

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())


class PartedUpload(ABC):
    """An Upload as all stores share it: parts of the sizes that were agreed on, and an end that comes once.

    Args:
        place: The name of the object, as messages have it.
        lock: Held while the state changes, not while anything is sent.
    """

    def __init__(self, key: str, part_bytes: int, *, place: str, lock: Lock) -> None:
        self.key = key
        self._place = place
        self._lock = lock
        self._sizes = PartSizes(key, part_bytes)
        #: Part number → the store's answer.
        self._parts: dict[int, Any] = {}
        self._aborted = False
        self._stored: StoredObject | None = None

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        """Put a part. See Upload."""
        views = views_of(data)
        size = sum(len(view) for view in views)
        self._sizes.check(number, size)
        self._check_open()
        answer = self._send(number, views)
        with self._lock:
            self._check_open()
            self._sizes.take(number, size)
            self._parts[number] = answer

    def complete(self) -> StoredObject:
        """Complete the upload. See Upload."""
        with self._lock:
            if self._stored is not None:
                return self._stored
            self._check_open()
            count = self._sizes.whole()
        stored = self._finish([self._parts[number] for number in range(1, count + 1)])
        with self._lock:
            self._stored = stored
        return stored

    def abort(self) -> None:
        """Abort the upload. See Upload."""
        with self._lock:
            if self._aborted or self._stored is not None:
                return
            self._aborted = True
        try:
            self._drop()
        except StoreError:
            self._aborted = False  # may be called again
            raise

    def _check_open(self) -> None:
        if self._aborted or self._stored is not None:
            raise StoreError(f"{self._place}: the upload was {'aborted' if self._aborted else 'completed'}")

    @abstractmethod
    def _send(self, number: int, views: list[memoryview]) -> object:
        """Store a part; returns what completing needs of it."""

    @abstractmethod
    def _finish(self, parts: list[Any]) -> StoredObject:
        """Make the object of the parts."""

    @abstractmethod
    def _drop(self) -> None:
        """Cancel what runs, and throw the parts away."""


CRC32C_HEADER: Final = "x-amz-checksum-crc32c"
_MD5_ETAG: Final = re.compile(r"[0-9a-f]{32}")


class ChecksumMode(enum.Enum):
    """The checksum of a body that a store compares."""

    CRC32C = "crc32c"
    MD5 = "md5"
    NONE = "none"


def crc32c_base64(data: Sequence[memoryview]) -> str:
    """Return the CRC-32C of bytes, big-endian in base64, as ``x-amz-checksum-crc32c`` and ``x-goog-hash`` have it."""
    found = 0
    for view in data:
        found = crc32c(view, found)
    return crc32c_text(found)


def crc32c_text(checksum: int) -> str:
    """Return a CRC-32C in base64 of its big-endian form."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def md5_digest(data: Sequence[memoryview]) -> bytes:
    """Return the MD5 of bytes, which ``Content-MD5`` has in base64; no secret hangs on it."""
    found = hashlib.md5(usedforsecurity=False)
    for view in data:
        found.update(view)
    return found.digest()


def content_md5(data: Sequence[memoryview]) -> str:
    """Return the MD5 of bytes as ``Content-MD5`` has it."""
    return base64.b64encode(md5_digest(data)).decode()


def plain_etag(etag: str) -> str:
    """Return an ETag without quotes and the mark of weakness, in lower case."""
    return etag.removeprefix("W/").strip('"').lower()


def is_md5_etag(etag: str) -> bool:
    """Whether an ETag has the form of an MD5; with keys of KMS it has that and is something else."""
    return _MD5_ETAG.fullmatch(plain_etag(etag)) is not None


def combined_md5_etag(etags: Sequence[str]) -> str | None:
    """Return the ETag that S3 makes for an object of parts out of theirs; None if one of these is no MD5."""
    if not all(is_md5_etag(etag) for etag in etags):
        return None
    joined = b"".join(bytes.fromhex(plain_etag(etag)) for etag in etags)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"


def combined_crc32c(checksums: Sequence[str]) -> str:
    """Return the composite checksum of an object: the checksum of its parts' checksums, and the number of parts."""
    joined = b"".join(base64.b64decode(each) for each in checksums)
    return f"{crc32c_base64([memoryview(joined)])}-{len(checksums)}"


_NAMED_MAX: Final = 5
_UNANSWERED_SECONDS: Final = 60.0


def delete_each(
    keys: Iterable[str], delete: Callable[[str], object], clock: Clock, failed: dict[str, StoreError]
) -> None:
    """Remove objects by one request each; missing ones are fine, failures are entered in ``failed``.

    A store that has not answered for a minute is not asked for each of the others, a minute each: they fail likewise.
    """
    began = clock.monotonic_seconds()
    gone: StoreUnavailableError | None = None
    for key in keys:
        if gone is not None and clock.monotonic_seconds() - began > _UNANSWERED_SECONDS:
            failed[key] = gone
            continue
        try:
            delete(key)
        except ObjectNotFoundError:
            continue
        except StoreError as error:
            failed[key] = error
            gone = error if isinstance(error, StoreUnavailableError) else gone


def deletion_error(place: str, failed: Mapping[str, StoreError]) -> StoreError:
    """Make the error that says what could not be removed, and why; retriable if trying again can help with all of it.

    Args:
        place: The store.
        failed: Key → why; not empty.
    """
    named = "; ".join(f"{key}: {error}" for key, error in list(failed.items())[:_NAMED_MAX])
    more = f"; and {len(failed) - _NAMED_MAX} more" if len(failed) > _NAMED_MAX else ""
    text = f"{place}: {len(failed)} objects could not be removed: {named}{more}"
    errors = failed.values()
    if all(isinstance(error, StoreUnavailableError) for error in errors):
        return StoreUnavailableError(text)
    if all(isinstance(error, StorePermissionError) for error in errors):
        return StorePermissionError(text)
    return StoreError(text)


_ask: Final[ContextVar[Callable[[], None] | None]] = ContextVar("tierlog_ask_before_resending", default=None)


@contextmanager
def asked_before_resending(ask: Callable[[], None]) -> Iterator[None]:
    """``ask`` is called before a body goes out once more in the block, in this thread; it may wait, or raise."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def before_resending() -> None:
    """Call the block's ``ask`` before the same body is sent a second time. Raises its errors."""
    ask = _ask.get()
    if ask is not None:
        ask()
