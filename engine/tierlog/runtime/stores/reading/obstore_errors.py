"""What obstore's errors mean for a caller: they become ours here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore import exceptions

from tierlog.errors import (
    ArchivedObjectError,
    ConfigError,
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    TierlogError,
)
from tierlog.runtime.machine.forking import OBSTORE
from tierlog.runtime.stores.reading.redirects import is_refused_redirect

# All that follows is the text of obstore 0.12, which has no type or field for it: a GenericError says what happened in
# its message, and why in the debug form behind that. The name of an object is in there too, in a URL or a path, so each
# pattern has what no URL can have, a space above all. test_obstore_texts makes obstore say each of these.
_BEHIND_END: Final = re.compile(r"Generic \w+ error: (?:Invalid range: )?Wanted range starting at \d+")
_STATUS: Final = re.compile(r" - Server returned non-2xx status code: (\d{3})\b")
_PASSING_STATUS: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
#: No answer came, or it broke off.
_NO_ANSWER: Final = re.compile(r"(?:: | - )HTTP error: ")
#: Our own source of credentials, which obstore had asked, raised this.
_SOURCE_UNAVAILABLE: Final = re.compile(
    r"The operation lacked valid authentication credentials for path External \w+ credential provider: "
    r"Store(?:Unavailable|NotReached)Error: "
)
#: Codes that S3 sends with a status that says less.
_REFUSED: Final = re.compile(r"<Code>(?:ExpiredToken|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId)</Code>")
#: Of a URL, and of nothing else: an answer of XML has question marks too, and its code is what tells.
_QUERY: Final = re.compile(r"(\w+://[^\s?\"'<>]*)\?[^\s\"'<>]+")
#: rustls names what it found: ``InvalidCertificate(ExpiredContext { … })``.
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+?)(?:Context)?\b")
_CERTIFICATE_FAULTS: Final = {
    "Expired": "has expired",
    "NotValidYet": "is not valid yet (does this machine's clock go right?)",
    "UnknownIssuer": "comes from an issuer that is not trusted (store.root_certificate takes another one, as PEM)",
    "NotValidForName": "is for other names than the endpoint's",
    "BadSignature": "has a signature that is not its issuer's",
    "Revoked": "was revoked",
    "CaUsedAsEndEntity": "is an authority's, signed by itself, and no server's",
}
_PRESENTED: Final = re.compile(r"presented:\s*\[(.*?)\]", re.DOTALL)
_NAME: Final = re.compile(r"\w+\((?:\\?\")?([\w.:*-]+)")
#: Where obstore's message says no more than that no answer came.
_CAUSELESS: Final = ("error sending request", "HTTP error", "request or response body error")
_CONNECTION_FAULTS: Final = {
    "InvalidContentType": "the server does not speak TLS there (http:// in place of https://?)",
    "AlertReceived(": "the server ended the TLS handshake",
    "PeerIncompatible(": "the server speaks no version of TLS that is still safe",
    "ConnectionRefused": "connection refused",
    "dns error": "the host's name is not known",
    "ConnectionReset": "connection reset",
    "NetworkUnreachable": "no way to its network",
    "HostUnreachable": "no way to the host",
    "TimedOut": "timed out",
}
_PASSING: Final = re.compile(r"<Code>(?:RequestTimeout|SlowDown|InternalError)</Code>")
#: How S3 (403) and Azure (409) refuse to read what lies in an archive.
_ARCHIVED: Final = re.compile(r"<Code>(?:InvalidObjectState|BlobArchived)</Code>")


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


def _certificate_fault(debug_text: str) -> str | None:
    """What is wrong with the server's certificate, out of obstore's long form, which is not shown."""
    found = _CERTIFICATE.search(debug_text)
    if found is None:
        return None
    told = _CERTIFICATE_FAULTS.get(found[1], f"is refused: {found[1]}")
    names = _PRESENTED.search(debug_text) if found[1] == "NotValidForName" else None
    return f"{told}: {', '.join(_NAME.findall(names[1])[:5])}" if names else told


def _connection_fault(debug_text: str) -> str | None:
    return next((told for mark, told in _CONNECTION_FAULTS.items() if mark in debug_text), None)


def is_behind_end(error: BaseException) -> bool:
    """Whether obstore says that a range begins at or behind the end of its object."""
    if not isinstance(error, exceptions.GenericError):
        return False
    text = str(error)
    return _BEHIND_END.match(text) is not None or _status_in(text) == 416


def translate(error: BaseException, place: str) -> StoreError | ConfigError:
    """What an error of obstore means for a caller, naming the object."""
    if isinstance(error, exceptions.GenericError):
        return _translate_generic(error, place)
    text = short_text(error)
    told = f"{place}: {text}"
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return ObjectNotFoundError(f"{place}: not found")
    if _ARCHIVED.search(text):
        return ArchivedObjectError(f"{place}: the object is archived: restore it first, then read again")
    if isinstance(error, exceptions.UnauthenticatedError) and _SOURCE_UNAVAILABLE.match(text):
        return StoreUnavailableError(told)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError):
        return StorePermissionError(told)
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return ObjectConflictError(told)
    if isinstance(error, exceptions.UnknownConfigurationKeyError):
        return ConfigError(text)
    if isinstance(error, TimeoutError | ConnectionError):
        return StoreUnavailableError(told)
    return StoreError(told)


def _translate_generic(error: exceptions.GenericError, place: str) -> StoreError:
    """Of an error that has no type of its own, its text says what it is."""
    text = short_text(error)
    status = _status_in(text)
    if status is None and _NO_ANSWER.search(text):
        return _unanswered(text, str(error), place)
    told = f"{place}: {text}"
    if status in (401, 403) or _REFUSED.search(text):
        return StorePermissionError(told)
    if status == 404:
        return ObjectNotFoundError(told)
    if status in _PASSING_STATUS or _PASSING.search(text):
        return StoreUnavailableError(told)
    return StoreError(told)


def _unanswered(text: str, debug_text: str, place: str) -> StoreError:
    if cause := _certificate_fault(debug_text):
        return StorePermissionError(f"{place}: the server's certificate {cause}")
    if is_refused_redirect(debug_text):
        return StoreError(
            f"{place}: the store redirects to another host, which is not followed: name the endpoint that answers"
        )
    if text.endswith(_CAUSELESS) and (cause := _connection_fault(debug_text)):
        text = f"{text}: {cause}"
    return StoreUnavailableError(f"{place}: {text}")


def _status_in(text: str) -> int | None:
    found = _STATUS.search(text)
    return None if found is None else int(found[1])
