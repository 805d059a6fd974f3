"""What S3's requests and answers look like: XML there and back. Answers are untrusted."""

from __future__ import annotations

import datetime
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus, urlsplit
from xml.etree import ElementTree

from tierlog.errors import (
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.protocol.object_store import UnfinishedUpload
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.retrying import ThrottledError

_THROTTLED_STATUS: Final = frozenset((429, 503))
_PASSING_STATUS: Final = frozenset((408, 425, 500, 502, 504))
_THROTTLED_CODES: Final = frozenset(("SlowDown", "ThrottlingException", "Throttling", "RequestLimitExceeded"))
_PASSING_CODES: Final = frozenset(
    (
        "RequestTimeout",
        "InternalError",
        "ServiceUnavailable",
        "OperationAborted",
        "ConditionalRequestConflict",
        "ServerBusy",
    )
)
#: Sent with a status that says less.
_REFUSED_CODES: Final = frozenset(
    ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch")
)
#: The bytes were damaged on their way, or the check of them is: the same request may work.
_DAMAGED_CODES: Final = frozenset(("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "Md5Mismatch"))
_MESSAGE_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class StoreFault:
    """An error in an answer."""

    code: str
    message: str


def parse(body: bytes) -> ElementTree.Element:
    """The root of an answer, without namespaces. Raises StoreError: it is none of S3's.

    While it works on a completion, S3 sends spaces, before the answer or in it.
    """
    body = body.lstrip()
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise StoreError("an answer with a document type, which S3 never sends")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - no document type, so no entities
    except (ElementTree.ParseError, ValueError) as cause:
        raise StoreError(f"an answer that is not XML: {cause}") from None
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
    return root


def text_of(element: ElementTree.Element, name: str) -> str:
    """Of a child; "" if it is not there."""
    return element.findtext(name) or ""


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """The error that an answer is; also one with status 200, as a slow completion has it."""
    if answer.status < 300:
        return _fault_in(answer.body) if b"<Error" in answer.body else None
    return _fault_in(answer.body) or StoreFault(answer.headers.get("x-ms-error-code", ""), "")


def _fault_in(body: bytes) -> StoreFault | None:
    if body.lstrip().startswith(b"{"):
        return _google_fault(body)
    try:
        root = parse(body)
    except StoreError:
        return None
    if root.tag != "Error":
        return None
    return StoreFault(text_of(root, "Code"), text_of(root, "Message")[:_MESSAGE_CHARACTERS_MAX])


def _google_fault(body: bytes) -> StoreFault | None:
    """``{"error": {"message": …, "errors": [{"reason": …}]}}``"""
    try:
        error = json.loads(body)["error"]
        reasons = [each["reason"] for each in error.get("errors", ())]
        return StoreFault(str(reasons[0]) if reasons else "", str(error.get("message", ""))[:_MESSAGE_CHARACTERS_MAX])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def error_of(place: str, verb: str, answer: HttpAnswer, fault: StoreFault) -> StoreError:
    """What an error means for a caller."""
    status, code = answer.status, fault.code
    told = f"{place}: {verb}: status {status} {code}: {fault.message}".rstrip(": ")
    if status == 301 or code == "PermanentRedirect":
        region = answer.headers.get("x-amz-bucket-region", "another one")
        return StoreError(f"{told}; the bucket is in region {region}")
    if 300 <= status < 400 and "location" in answer.headers:
        elsewhere = urlsplit(answer.headers["location"]).netloc.rpartition("@")[2] or "itself"
        return StoreError(f"{told}; it redirects to {elsewhere}, which is not followed: name the endpoint that answers")
    if status in (401, 403) or code in _REFUSED_CODES:
        return StorePermissionError(told)
    if status == 412 or code in ("PreconditionFailed", "BlobAlreadyExists"):
        return ObjectConflictError(told)
    if status in _THROTTLED_STATUS or code in _THROTTLED_CODES:
        return ThrottledError(told, _seconds_asked(answer))
    if status == 400 and "doesn't match" in fault.message:  # as Google and Azurite say it
        return StoreUnavailableError(told)
    if status in _PASSING_STATUS or code in _PASSING_CODES or code in _DAMAGED_CODES:
        return StoreUnavailableError(told)
    if status == 404:
        return ObjectNotFoundError(told)
    return StoreError(told)


def _seconds_asked(answer: HttpAnswer) -> float:
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def complete_body(etags: Sequence[str], checksums: Sequence[str]) -> bytes:
    """CompleteMultipartUpload, parts in order; ``checksums`` (CRC-32C in base64) as many or none."""
    parts = []
    for number, etag in enumerate(etags, 1):
        checksum = f"<ChecksumCRC32C>{checksums[number - 1]}</ChecksumCRC32C>" if checksums else ""
        parts.append(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(etag, quote=False)}</ETag>{checksum}</Part>"
        )
    return f'<CompleteMultipartUpload xmlns="{_NAMESPACE}">{"".join(parts)}</CompleteMultipartUpload>'.encode()


_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"


def delete_body(keys: Sequence[str]) -> bytes:
    """DeleteObjects, which answers with errors alone."""
    listed = "".join(f"<Object><Key>{html.escape(key, quote=False)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="{_NAMESPACE}"><Quiet>true</Quiet>{listed}</Delete>'.encode()


def fits_xml(key: str) -> bool:
    """Whether XML 1.0 can hold the key, and gives it back as it is."""
    return all(c >= " " and c not in "\ufffe\uffff" for c in key)


def delete_faults(body: bytes) -> Iterator[tuple[str, StoreFault]]:
    """Key and error of what DeleteObjects could not remove."""
    if not body.strip():
        return
    for each in parse(body).iter("Error"):
        fault = StoreFault(text_of(each, "Code"), text_of(each, "Message")[:_MESSAGE_CHARACTERS_MAX])
        if fault.code != "NoSuchKey":
            yield text_of(each, "Key"), fault


@dataclass(frozen=True, slots=True)
class UploadPage:
    """A page of ListMultipartUploads; ``next_key`` is None on the last."""

    uploads: tuple[UnfinishedUpload, ...]
    next_key: str | None
    next_id: str


def upload_page(body: bytes) -> UploadPage:
    """Raises StoreError: an answer that is none."""
    root = parse(body)
    encoded = text_of(root, "EncodingType") == "url"

    def key_of(element: ElementTree.Element, name: str) -> str:
        text = text_of(element, name)
        return unquote_plus(text) if encoded else text

    found = [
        UnfinishedUpload(key_of(each, "Key"), text_of(each, "UploadId"), _time_ms(text_of(each, "Initiated")))
        for each in root.iter("Upload")
    ]
    more = text_of(root, "IsTruncated").lower() == "true"
    return UploadPage(
        tuple(found), key_of(root, "NextKeyMarker") if more else None, text_of(root, "NextUploadIdMarker")
    )


def _time_ms(text: str) -> int:
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise StoreError(f"{text[:40]!r}: not a time") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return int(time.timestamp() * 1000)
