"""Errors of S3 and what speaks like it: a code in XML, in an answer of status 200 too."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tierlog.runtime.stores.writing.faults import Meaning, StoreFault
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.xml_answers import find_xml_fault

_MEANINGS: Final = {
    **dict.fromkeys(
        (
            "AccessDenied",
            "ExpiredToken",
            "InvalidToken",
            "TokenRefreshRequired",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
        ),
        Meaning.REFUSED,
    ),
    "PreconditionFailed": Meaning.CONFLICT,
    **dict.fromkeys(("SlowDown", "ThrottlingException", "Throttling", "RequestLimitExceeded"), Meaning.THROTTLED),
    **dict.fromkeys(
        ("RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted", "ConditionalRequestConflict"),
        Meaning.PASSING,
    ),
    # The bytes were damaged on their way, or the check of them was.
    **dict.fromkeys(("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"), Meaning.PASSING),
    "PermanentRedirect": Meaning.FINAL,
}


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """See FaultReader. A slow completion begins with status 200, and says only then that it failed."""
    if answer.status < 300:
        return _told(find_xml_fault(answer.body)) if b"<Error" in answer.body else None
    fault = _told(find_xml_fault(answer.body)) or StoreFault("", "")
    if answer.status != 301 and fault.code != "PermanentRedirect":
        return fault
    region = answer.headers.get("x-amz-bucket-region", "another one")
    message = f"{fault.message}; the bucket is in region {region}".removeprefix("; ")
    return StoreFault(fault.code, message, Meaning.FINAL)


def with_meaning(fault: StoreFault) -> StoreFault:
    """A fault of S3's with what its code means."""
    return replace(fault, meaning=_MEANINGS.get(fault.code))


def _told(fault: StoreFault | None) -> StoreFault | None:
    return None if fault is None else with_meaning(fault)
