"""Errors of Azure Blob Storage: a code in XML, or in a header where there is no body."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tierlog.runtime.stores.writing.faults import Meaning, StoreFault
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.xml_answers import find_xml_fault

_MEANINGS: Final = {
    "BlobAlreadyExists": Meaning.CONFLICT,
    "ServerBusy": Meaning.PASSING,
    "InternalError": Meaning.PASSING,
    "Md5Mismatch": Meaning.PASSING,
}


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """See FaultReader."""
    if answer.status < 300:
        return None
    fault = find_xml_fault(answer.body) or StoreFault(answer.headers.get("x-ms-error-code", ""), "")
    meaning = _MEANINGS.get(fault.code)
    if meaning is None and answer.status == 400 and "doesn't match" in fault.message:
        meaning = Meaning.PASSING  # Azurite has no code for a damaged body, only these words
    return replace(fault, meaning=meaning)
