"""Buckets, through obstore: S3 and what speaks like it, GCS, Azure, and memory.

Every call has a time limit and bounded retries (``store.timeout``, ``store.max_retries``, ``store.retry_timeout``), set
where the store is made. obstore's errors become ours here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import obstore
from obstore import exceptions
from obstore.store import ObjectStore as ObstoreStore
from typing_extensions import Buffer

from tierlog.errors import (
    ConfigError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.object_store import FolderListing, ObjectInfo

_PAGE_KEYS: Final = 1000
#: object_store's words for a range that begins at or behind the end of the object.
_BEHIND_END: Final = re.compile(
    r"StartTooLarge|Wanted range starting at|InvalidRange|416 Range Not Satisfiable|Requested Range Not Satisfiable",
    re.IGNORECASE,
)
_STATUS: Final = re.compile(r"status code: (\d{3})")
_PASSING_STATUS: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
#: Without a status no answer came, or it broke off.
_NO_ANSWER: Final = re.compile(
    r"HTTP error|HttpError|error sending request|request or response body error|timed out|connection (?:closed|reset)"
)
#: Codes that S3 sends with a status that says less.
_REFUSED: Final = re.compile(r"<Code>(?:ExpiredToken|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId)</Code>")
_PASSING: Final = re.compile(r"<Code>(?:RequestTimeout|SlowDown|InternalError)</Code>")


class RemoteStore:
    """See ObjectStore.

    Args:
        store: obstore's, rooted where keys begin.
        name: The URL, without secrets.
        is_local: Memory of this process.
    """

    def __init__(self, store: ObstoreStore, name: str, *, is_local: bool = False) -> None:
        self._store = store
        self._name = name.rstrip("/")
        self.is_local = is_local

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError, RuntimeError) as error:
            # Without its cause: obstore's long form holds requests as they were signed.
            raise translate(error, f"{self._name}/{key}") from None

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore. Stores list whole folders only: the rest of the prefix is compared here."""
        folder = prefix[: prefix.rfind("/") + 1]
        with self._translated(prefix):
            pages = iter(obstore.list(self._store, folder.rstrip("/") or None, chunk_size=_PAGE_KEYS))
        while True:
            with self._translated(prefix):
                page = next(pages, None)
            if page is None:
                return
            for found in page:
                if found["path"].startswith(prefix):
                    yield _info(found["path"], found["size"], found["last_modified"].timestamp())

    def list_folder(self, prefix: str = "") -> FolderListing:
        """See ObjectStore."""
        with self._translated(prefix):
            found = obstore.list_with_delimiter(self._store, prefix.rstrip("/") or None)
        return FolderListing(
            tuple(f"{folder.rstrip('/')}/" for folder in found["common_prefixes"]),
            tuple(_info(o["path"], o["size"], o["last_modified"].timestamp()) for o in found["objects"]),
        )

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore."""
        with self._translated(key):
            return obstore.get(self._store, key).bytes()

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore; the client's buffer as it is."""
        with self._translated(key):
            try:
                return obstore.get_range(self._store, key, start=start_position, end=end_position_exclusive)
            except exceptions.GenericError as error:
                if _BEHIND_END.search(str(error)):
                    return b""
                raise

    def put(self, key: str, data: Buffer) -> None:
        """See ObjectStore."""
        with self._translated(key):
            obstore.put(self._store, key, bytes(data))

    def describe(self) -> str:
        """The URL."""
        return self._name

    def close(self) -> None:
        """Connections end with the process: obstore keeps its pool."""


def _info(key: str, size_bytes: int, modified_seconds: float) -> ObjectInfo:
    return ObjectInfo(key, size_bytes, int(modified_seconds * 1000))


def short_text(error: BaseException) -> str:
    """Obstore's message without its debug form, without queries of URLs: those may hold signatures."""
    text = str(error).partition("\n\nDebug source:")[0]
    return re.sub(r"\?[^\s\"']+", "?…", text).strip()


def translate(error: BaseException, place: str) -> StoreError | ConfigError:
    """What an error of obstore means for a caller, naming the object."""
    text = short_text(error)
    told = f"{place}: {text}"
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return ObjectNotFoundError(f"{place}: not found")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError):
        return StorePermissionError(told)
    if isinstance(error, exceptions.UnknownConfigurationKeyError):
        return ConfigError(text)
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if status in (401, 403) or _REFUSED.search(text):
        return StorePermissionError(told)
    if status == 404:
        return ObjectNotFoundError(told)
    if status in _PASSING_STATUS or _PASSING.search(text):
        return StoreUnavailableError(told)
    if status == 0 and (isinstance(error, TimeoutError | ConnectionError) or _NO_ANSWER.search(text)):
        return StoreUnavailableError(told)
    return StoreError(told)
