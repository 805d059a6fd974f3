"""Checksums of what is uploaded: sent along, and compared with what the store answers."""

from __future__ import annotations

import base64
import enum
import hashlib
import re
from collections.abc import Sequence
from typing import Final

from tierlog._native.checksums import crc32c

CRC32C_HEADER: Final = "x-amz-checksum-crc32c"
_MD5_ETAG: Final = re.compile(r"[0-9a-f]{32}")


class ChecksumMode(enum.Enum):
    """The checksum of a body that a store compares."""

    CRC32C = "crc32c"
    MD5 = "md5"
    NONE = "none"


def crc32c_base64(data: Sequence[memoryview]) -> str:
    """The CRC-32C of bytes, big-endian in base64, as ``x-amz-checksum-crc32c`` and ``x-goog-hash`` have it."""
    found = 0
    for view in data:
        found = crc32c(view, found)
    return crc32c_text(found)


def crc32c_text(checksum: int) -> str:
    """A CRC-32C in base64 of its big-endian form."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def md5_digest(data: Sequence[memoryview]) -> bytes:
    """The MD5 of bytes, which ``Content-MD5`` has in base64; no secret hangs on it."""
    found = hashlib.md5(usedforsecurity=False)
    for view in data:
        found.update(view)
    return found.digest()


def content_md5(data: Sequence[memoryview]) -> str:
    """The MD5 of bytes as ``Content-MD5`` has it."""
    return base64.b64encode(md5_digest(data)).decode()


def plain_etag(etag: str) -> str:
    """An ETag without quotes and the mark of weakness, in lower case."""
    return etag.removeprefix("W/").strip('"').lower()


def is_md5_etag(etag: str) -> bool:
    """Whether an ETag has the form of an MD5; with keys of KMS it has that and is something else."""
    return _MD5_ETAG.fullmatch(plain_etag(etag)) is not None


def combined_md5_etag(etags: Sequence[str]) -> str | None:
    """The ETag that S3 makes for an object of parts out of theirs; None if one of these is no MD5."""
    if not all(is_md5_etag(etag) for etag in etags):
        return None
    joined = b"".join(bytes.fromhex(plain_etag(etag)) for etag in etags)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"


def combined_crc32c(checksums: Sequence[str]) -> str:
    """The composite checksum of an object: the checksum of its parts' checksums, and the number of parts."""
    joined = b"".join(base64.b64decode(each) for each in checksums)
    return f"{crc32c_base64([memoryview(joined)])}-{len(checksums)}"
