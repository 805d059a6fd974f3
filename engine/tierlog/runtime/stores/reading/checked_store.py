"""A bucket of S3 whose whole objects are compared with the store's checksums.

What ``StoreOptions.check_reads`` asks for. A range of an object has no checksum in S3, so ranges are not
compared: chunks have GCM's tags, or the checksums of the batches in them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.stores.protocol.object_store import views_of
from tierlog.runtime.stores.protocol.store_writer import (
    CRC32C_HEADER,
    crc32c_base64,
    is_md5_etag,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.reading.remote_store import RemoteStore
from tierlog.runtime.stores.s3.client import S3Call
from tierlog.runtime.stores.s3.writer import S3Writer

_log = logging.getLogger(__name__)
#: An object that is replaced between two requests is another one: asked for again, once.
_TRIES: Final = 2


class CheckedS3Store(RemoteStore):
    """A RemoteStore of S3 with checksums. Costs one HEAD for each whole object."""

    def fetch(self, key: str) -> Buffer:
        """Fetch an object. Raises StoreUnavailableError too: its bytes do not match the store's checksum."""
        told = ""
        for _ in range(_TRIES):
            found = super().fetch(key)
            told = self._difference(key, found)
            if not told:
                return found
            _log.warning("%s: an object that was read: %s", self.describe(), told)
        raise StoreUnavailableError(f"{self.describe()}/{key}: {told}")

    def _difference(self, key: str, found: Buffer) -> str:
        """Describe how the bytes differ from the store's checksum; "" where they do not, or there is none."""
        writer = self._writing()
        assert isinstance(writer, S3Writer), "made for S3"
        settings = writer.requests.settings
        asked = {"x-amz-checksum-mode": "ENABLED", **settings.customer_key}
        headers = writer.requests.send(S3Call("HEAD", key, {}, asked)).headers
        body = views_of(found)
        expected = headers.get(CRC32C_HEADER, "")
        if expected and "-" not in expected:  # of parts: a checksum of theirs
            crc = crc32c_base64(body)
            return "" if crc == expected else f"the body has CRC-32C {crc}, the store keeps {expected}"
        etag = headers.get("etag", "")
        if is_md5_etag(etag) and _is_md5(headers, customer_key=bool(settings.customer_key)):
            digest = md5_digest(body).hex()
            return "" if digest == plain_etag(etag) else f"the body has MD5 {digest}, the store keeps {etag}"
        return ""


def _is_md5(headers: Mapping[str, str], *, customer_key: bool) -> bool:
    """Whether the ETag is an MD5: with keys of KMS or of the customer it has the form and is something else."""
    return not customer_key and headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
