"""The meaning of an error answer for a caller, whatever the cloud.

Each cloud reads the errors of its own answers by a ``find_fault``, and maps codes to meanings; an unmapped code means
the status of HTTP. Answers in XML, which S3 and Azure send, are untrusted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from tierlog.errors import (
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.retrying import ThrottledError

MESSAGE_CHARACTERS_MAX: Final = 300
_THROTTLED_STATUS: Final = frozenset((429, 503))
_PASSING_STATUS: Final = frozenset((408, 425, 500, 502, 504))


#: The keys that name a store's endpoint, by its URL's scheme: ours, and those of a broker's file.
_ENDPOINT_KEYS: Final = {
    "s3://": " (store.endpoint, storage.s3.endpoint.url of a broker), or the bucket's region (store.region, "
    "storage.s3.region)",
    "gs://": " (store.base_url, storage.gcs.endpoint.url of a broker)",
    "az://": " (store.endpoint, storage.azure.endpoint.url of a broker)",
}


class Meaning(enum.Enum):
    """The meanings of codes beyond the status."""

    REFUSED = "credentials or rights must change"
    CONFLICT = "the condition of the request does not hold"
    THROTTLED = "the store asks for fewer requests"
    PASSING = "the same request may work later"
    FINAL = "no further try helps"


@dataclass(frozen=True, slots=True)
class StoreFault:
    """An error in an answer.

    Args:
        code: The store's, or "".
        message: The store's words, shortened.
        meaning: Of the code; None leaves it to the status.
    """

    code: str
    message: str
    meaning: Meaning | None = None


#: The error that an answer is; None for a success.
FaultReader = Callable[[HttpAnswer], StoreFault | None]


def error_of(place: str, verb: str, answer: HttpAnswer, fault: StoreFault) -> StoreError:
    """Make the StoreError of an error answer."""
    error = _kind_of(place, verb, answer, fault)
    error.refused = 300 <= answer.status < 500 and not error.retriable
    return error


def _kind_of(place: str, verb: str, answer: HttpAnswer, fault: StoreFault) -> StoreError:
    status, meaning = answer.status, fault.meaning
    told = f"{place}: {verb}: status {status} {fault.code}: {fault.message}".rstrip(": ")
    if meaning is Meaning.FINAL:
        return StoreError(told)
    if 300 <= status < 400 and "location" in answer.headers:
        return redirect_error(told, answer.headers["location"])
    if status in (401, 403) or meaning is Meaning.REFUSED:
        return StorePermissionError(told)
    if status == 412 or meaning is Meaning.CONFLICT:
        return ObjectConflictError(told)
    if status in _THROTTLED_STATUS or meaning is Meaning.THROTTLED:
        return ThrottledError(told, _seconds_asked(answer))
    if status in _PASSING_STATUS or meaning is Meaning.PASSING:
        return StoreUnavailableError(told)
    if status == 404:
        return ObjectNotFoundError(told)
    return StoreError(told)


def redirect_error(told: str, place: str) -> StoreError:
    """Make the error of a store that sends us to another place (a URL, shown without secrets): no further try helps."""
    elsewhere = urlsplit(place).netloc.rpartition("@")[2] or "itself"
    keys = next((keys for scheme, keys in _ENDPOINT_KEYS.items() if told.startswith(scheme)), "")
    return StoreError(
        f"{told}; it redirects to {elsewhere}, which is not followed: name the endpoint that answers{keys}"
    )


def _seconds_asked(answer: HttpAnswer) -> float:
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def parse(body: bytes) -> ElementTree.Element:
    """Parse the root of an answer, without namespaces. Raises StoreError: no XML, or one with a document type.

    While it works on a completion, S3 sends spaces, before the answer or in it.
    """
    body = body.lstrip()
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise StoreError("an answer with a document type, which no store sends")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - no document type, so no entities
    except (ElementTree.ParseError, ValueError) as cause:
        raise StoreError(f"an answer that is not XML: {cause}") from None
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
    return root


def text_of(element: ElementTree.Element, name: str) -> str:
    """Return the text of a child; "" if it is not there."""
    return element.findtext(name) or ""


def fault_of(element: ElementTree.Element) -> StoreFault:
    """Read the code and the message of an ``Error``, without its meaning."""
    return StoreFault(text_of(element, "Code"), text_of(element, "Message")[:MESSAGE_CHARACTERS_MAX])


def find_xml_fault(body: bytes) -> StoreFault | None:
    """Find the error that a body is; None for any other one."""
    try:
        root = parse(body)
    except StoreError:
        return None
    return fault_of(root) if root.tag == "Error" else None
