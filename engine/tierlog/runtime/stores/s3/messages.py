"""Bodies that S3 is sent and answers with. Answers are untrusted."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from tierlog.errors import StoreError
from tierlog.runtime.stores.protocol.object_store import UnfinishedUpload
from tierlog.runtime.stores.s3.client import with_meaning
from tierlog.runtime.stores.writing.faults import StoreFault, fault_of, parse, text_of

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"


def complete_body(etags: Sequence[str], checksums: Sequence[str]) -> bytes:
    """Return the body of CompleteMultipartUpload, parts in order; ``checksums`` (CRC-32C in base64) as many or none."""
    parts = []
    for number, etag in enumerate(etags, 1):
        checksum = f"<ChecksumCRC32C>{checksums[number - 1]}</ChecksumCRC32C>" if checksums else ""
        parts.append(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(etag, quote=False)}</ETag>{checksum}</Part>"
        )
    return f'<CompleteMultipartUpload xmlns="{_NAMESPACE}">{"".join(parts)}</CompleteMultipartUpload>'.encode()


def delete_body(keys: Sequence[str]) -> bytes:
    """Return the body of DeleteObjects, asked to answer with errors alone."""
    listed = "".join(f"<Object><Key>{html.escape(key, quote=False)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="{_NAMESPACE}"><Quiet>true</Quiet>{listed}</Delete>'.encode()


def fits_xml(key: str) -> bool:
    """Whether XML 1.0 can hold the key, and gives it back as it is."""
    return all(c >= " " and c not in "\ufffe\uffff" for c in key)


def delete_faults(body: bytes) -> Iterator[tuple[str, StoreFault]]:
    """Yield the key and the error of each object that DeleteObjects could not remove."""
    if not body.strip():
        return
    for each in parse(body).iter("Error"):
        fault = with_meaning(fault_of(each))
        if fault.code != "NoSuchKey":
            yield text_of(each, "Key"), fault


@dataclass(frozen=True, slots=True)
class UploadPage:
    """A page of ListMultipartUploads; ``next_key`` is None on the last."""

    uploads: tuple[UnfinishedUpload, ...]
    next_key: str | None
    next_id: str


def upload_page(body: bytes) -> UploadPage:
    """Parse a page of ListMultipartUploads. Raises StoreError: an answer that is none."""
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
