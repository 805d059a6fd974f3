"""What obstore's errors mean for a caller: they become ours here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore import exceptions

from tierlog.errors import (
    ConfigError,
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    TierlogError,
)
from tierlog.runtime.forking import OBSTORE

#: object_store's words for a range that begins at or behind the end of the object.
BEHIND_END: Final = re.compile(
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
#: Of a URL, and of nothing else: an answer of XML has question marks too, and its code is what tells.
_QUERY: Final = re.compile(r"(\w+://[^\s?\"'<>]*)\?[^\s\"'<>]+")
_PASSING: Final = re.compile(r"<Code>(?:RequestTimeout|SlowDown|InternalError)</Code>")


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Errors of obstore in the block as ours, naming the place. Raises ForkedProcessError: see ``forking``."""
    OBSTORE.enter()
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, TierlogError):
            raise
        # Without its cause: obstore's long form holds requests as they were signed.
        raise translate(error, place) from None


def short_text(error: BaseException) -> str:
    """Obstore's message without its debug form, without queries of URLs: those may hold signatures."""
    text = str(error).partition("\n\nDebug source:")[0]
    return _QUERY.sub(r"\1?…", text).strip()


def translate(error: BaseException, place: str) -> StoreError | ConfigError:
    """What an error of obstore means for a caller, naming the object."""
    text = short_text(error)
    told = f"{place}: {text}"
    if "StoreUnavailableError" in text:  # of our own source of credentials
        return StoreUnavailableError(told)
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return ObjectNotFoundError(f"{place}: not found")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError):
        return StorePermissionError(told)
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return ObjectConflictError(told)
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
