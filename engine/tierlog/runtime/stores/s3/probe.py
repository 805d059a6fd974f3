"""What a store that speaks S3 does of it."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.stores.protocol.object_store import ABSENT
from tierlog.runtime.stores.protocol.part_checksums import CRC32C_HEADER, ChecksumMode, crc32c_base64
from tierlog.runtime.stores.protocol.store_capabilities import StoreCapabilities
from tierlog.runtime.stores.protocol.store_probe import PARTS_SUFFIX, removing
from tierlog.runtime.stores.s3.client import S3Call
from tierlog.runtime.stores.s3.writer import LIMITS, S3Writer
from tierlog.runtime.stores.writing.bucket_client import RefusedError

_BODY: Final = b"tierlog"
_OTHER: Final = b"another"
#: How a store says that a checksum is wrong; those that say something else do not check it.
_DIGEST: Final = frozenset(("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "InvalidRequest", "400"))
#: How a store says that a part which is not the last is smaller than it takes.
_TOO_SMALL: Final = frozenset(("EntityTooSmall",))


class ProbedS3Writer(S3Writer):
    """The StoreWriter of S3: S3Writer, and what it finds out about its store."""

    def capabilities(self, key: str) -> StoreCapabilities:
        """See ProbedStore."""
        return _probe(self, key)


def _probe(writer: S3Writer, key: str) -> StoreCapabilities:
    """The capabilities of the store, asked with a few small objects; tells the writer what checksum it checks."""
    with removing(writer.delete, [key, f"{key}{PARTS_SUFFIX}"]):
        checked = _find_checked(writer, key)
        if checked is not None:
            writer.requests.settle(checked, "the store refuses a wrong one")
        conditional = _refuses_second(writer, key)
        part_bytes_min = 1 if _takes_small_parts(writer, f"{key}{PARTS_SUFFIX}") else LIMITS.part_bytes_min
    settings = writer.client.settings
    where = "in the path" if settings.bucket_url.count("/") > 2 else "in the host name"
    return StoreCapabilities(
        addressing=f"{settings.bucket_url} (bucket {where}, region {settings.region})",
        checksums=writer.requests.checksums.value,
        checks_bodies=checked is writer.requests.checksums,
        conditional_put=conditional,
        batch_delete=writer.batch_deletes,
        part_bytes_min=part_bytes_min,
    )


def _find_checked(writer: S3Writer, key: str) -> ChecksumMode | None:
    """The best checksum of which the store refuses a wrong one; None if it refuses none."""
    digest = hashlib.md5(_OTHER, usedforsecurity=False).digest()
    wrong = {
        ChecksumMode.CRC32C: {CRC32C_HEADER: crc32c_base64([memoryview(_OTHER)])},
        ChecksumMode.MD5: {"Content-MD5": base64.b64encode(digest).decode()},
    }
    for mode, headers in wrong.items():
        call = S3Call("PUT", key, {}, {**writer.requests.write_headers(), **headers}, [memoryview(_BODY)])
        try:
            writer.client.send(call, passing=_DIGEST | {"501"})
        except RefusedError as refused:
            if refused.fault.code in _DIGEST:
                return mode
    return None


def _refuses_second(writer: S3Writer, key: str) -> bool:
    writer.put(key, [memoryview(_BODY)], expected_etag=None)
    try:
        writer.put(key, [memoryview(_BODY)], expected_etag=ABSENT)
    except ObjectConflictError:
        return True
    except StoreError:  # it does not know the header
        return False
    return False


def _takes_small_parts(writer: S3Writer, key: str) -> bool:
    upload = writer.begin_upload(key, part_bytes=len(_BODY))
    try:
        upload.put_part(1, [_BODY])
        upload.put_part(2, [_BODY])
        upload.finish(passing=_TOO_SMALL)
    except RefusedError:
        upload.abort()
        return False
    except StoreError:
        upload.abort()
        raise
    return True
