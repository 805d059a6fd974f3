"""Errors of Google Cloud Storage: ``{"error": {"message": …, "errors": [{"reason": …}]}}``."""

from __future__ import annotations

import json

from tierlog.runtime.stores.writing.faults import MESSAGE_CHARACTERS_MAX, Meaning, StoreFault
from tierlog.runtime.stores.writing.http_client import HttpAnswer


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """See FaultReader. The reason is the code."""
    if answer.status < 300:
        return None
    fault = _fault_in(answer.body)
    if answer.status == 400 and "doesn't match" in fault.message:
        # A damaged body: the reason is "invalid", as of any request that cannot work, so the words have to tell.
        return StoreFault(fault.code, fault.message, Meaning.PASSING)
    return fault


def _fault_in(body: bytes) -> StoreFault:
    try:
        error = json.loads(body)["error"]
        reasons = [each["reason"] for each in error.get("errors", ())]
        message = str(error.get("message", ""))[:MESSAGE_CHARACTERS_MAX]
        return StoreFault(str(reasons[0]) if reasons else "", message)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return StoreFault("", "")
