"""The translation of obstore's errors: they become ours here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

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
from tierlog.runtime.machine.process import OBSTORE
from tierlog.runtime.stores.reading.redirects import is_refused_redirect
from tierlog.runtime.stores.writing.faults import MESSAGE_CHARACTERS_MAX, find_xml_fault, redirect_error
from tierlog.runtime.stores.writing.retrying import tried

# All that follows is the text of obstore 0.12, which has no type or field for it: a GenericError has the event in its
# message, and the cause in the debug form behind that. The name of an object is in there too, in a URL or a path, so
# each pattern has characters that no URL can have, a space above all. test_obstore_texts makes obstore say each of
# these.
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
#: Of a URL, and of nothing else: an answer of XML has question marks too, and its code is needed.
_QUERY: Final = re.compile(r"(\w+://[^\s?\"'<>]*)\?[^\s\"'<>]+")
#: rustls names the fault: ``InvalidCertificate(ExpiredContext { … })``.
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
#: The request, the number of tries and the time; the cause follows.
_REQUEST: Final = re.compile(
    r"(?:Error performing (?P<what>[A-Za-z ]+) request(?: [^:]*)?: )?"
    r"Error performing (?P<verb>[A-Z]+) (?P<url>\S+) in (?P<took>\S+?)(?P<unit>m|µ|n)?s"
    r"(?:, after (?P<retries>\d+) retries, max_retries: (?P<limit>\d+), retry_timeout: \S+)? +- "
)
_UNITS: Final = {None: 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9}
#: What stands in front of an error that has no request.
_PROVIDER: Final = re.compile(r"Generic \w+ error: ")
_ANSWER: Final = re.compile(r"Server returned (?:non-2xx status code: (\d{3}[^:]*)|error response):(.*)", re.DOTALL)
_BARE_REDIRECT: Final = "Received redirect without LOCATION"
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
    """Errors of obstore in the block as ours, naming the place. Raises ForkedProcessError: see ``machine.process``."""
    OBSTORE.enter()
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, TierlogError):
            raise
        # Without its cause: obstore's long form holds requests as they were signed.
        raise translate(error, place) from None


def short_text(error: BaseException) -> str:
    """Return obstore's message without its debug form, without queries of URLs: those may hold signatures."""
    text = str(error).partition("\n\nDebug source:")[0]
    return _QUERY.sub(r"\1?…", text).strip()


def _certificate_fault(debug_text: str) -> str | None:
    """Find the fault of the server's certificate in obstore's long form, which is not shown."""
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
    """Translate an error of obstore, naming the object."""
    if isinstance(error, exceptions.GenericError):
        return _translate_generic(error, place)
    text = short_text(error)
    told = f"{place}: {_said(text)}"
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
    """Translate an error that has no type of its own, by its text."""
    text = short_text(error)
    status = _status_in(text)
    if status is None and _NO_ANSWER.search(text):
        return _unanswered(text, str(error), place)
    told = f"{place}: {_said(text)}"
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
        return redirect_error(f"{place}: the store does not answer for itself", "//another host")
    if text.endswith(_CAUSELESS) and (cause := _connection_fault(debug_text)):
        head = text.removesuffix("error sending request")
        text = f"{head}{cause}" if head != text else f"{text}: {cause}"
    return StoreUnavailableError(f"{place}: {_said(text)}")


def _said(text: str) -> str:
    """Return obstore's message in the words of the write half: no provider, no XML, and the time waited."""
    found = _REQUEST.search(text)
    if found is None:
        return _PROVIDER.sub("", text).replace("HTTP error: ", "no whole answer: ")
    verb = "LIST" if found["what"] == "list" else found["verb"]
    what = _what_happened(text[found.end() :], found["url"])
    if found["retries"] is None:
        return f"{verb}: {what}"
    seconds, retries = float(found["took"]) * _UNITS[found["unit"]], int(found["retries"])
    return f"{verb}: {what} ({tried(retries + 1, seconds, counted_out=retries >= int(found['limit']))})"


def _what_happened(text: str, url: str) -> str:
    if text.startswith(_BARE_REDIRECT):
        return "the store redirects without a place: the bucket is in another region (store.region)"
    answer = _ANSWER.match(text)
    if answer is None:
        return f"no answer from {urlsplit(url).netloc}: {text.removeprefix('HTTP error: ')}"
    status, body = answer[1] or "200", answer[2].strip()
    fault = find_xml_fault(body.encode())
    if fault is not None:
        return f"status {status[:3]} {fault.code}: {fault.message}".rstrip(": ")
    plain = "" if body.startswith("<") else " ".join(body.split())[:MESSAGE_CHARACTERS_MAX]
    return f"status {status.strip()}: {plain}".rstrip(": ")


def _status_in(text: str) -> int | None:
    found = _STATUS.search(text)
    return None if found is None else int(found[1])
