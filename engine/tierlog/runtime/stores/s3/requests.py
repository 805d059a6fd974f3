"""Requests about objects of one bucket of S3: with the checksum that the store knows, and confirmed.

What a store checks of a body is found out by the way: CRC-32C is sent, and where the answer does not repeat it, MD5 is
sent from then on, which every store of this kind has checked from the beginning. No request is spent on confirming.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.protocol.object_store import (
    ObjectInfo,
)
from tierlog.runtime.stores.protocol.part_checksums import (
    CRC32C_HEADER,
    ChecksumMode,
    content_md5,
    crc32c_base64,
    is_md5_etag,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.protocol.resend_hook import before_resending
from tierlog.runtime.stores.s3.client import S3Call, S3Client
from tierlog.runtime.stores.writing.bucket_client import RefusedError
from tierlog.runtime.stores.writing.http_client import HttpAnswer

_log = logging.getLogger(__name__)

#: How stores say that they do not know a header or a request.
UNKNOWN: Final = frozenset(("501", "405", "NotImplemented", "InvalidArgument", "InvalidRequest", "MalformedXML"))


class S3Requests:
    """Requests about objects of one bucket. Thread-safe.

    Args:
        client: Signs and sends.
        checksums: What to send; None finds out what the store knows.
    """

    def __init__(self, client: S3Client, checksums: ChecksumMode | None = None) -> None:
        self.client = client
        self._fixed = checksums
        self._mode = checksums or ChecksumMode.CRC32C

    @property
    def finds_out(self) -> bool:
        """Whether no checksum is configured, so that the store's answers decide."""
        return self._fixed is None

    @property
    def checksums(self) -> ChecksumMode:
        """The checksum that is sent now."""
        return self._mode

    def write_headers(self) -> dict[str, str]:
        """The headers that every new object carries."""
        settings = self.client.settings
        storage_class = {"x-amz-storage-class": settings.storage_class} if settings.storage_class else {}
        return {**settings.encryption, **settings.customer_key, **storage_class}

    def find(self, key: str) -> ObjectInfo | None:
        """Size and ETag of an object; None if it is not there."""
        try:
            answer = self.client.send(S3Call("HEAD", key, {}, self.client.settings.customer_key))
        except ObjectNotFoundError:
            return None
        return ObjectInfo(key, int(answer.headers.get("content-length", "0")), 0, answer.headers.get("etag"))

    def send_body(
        self,
        call: S3Call,
        scope: CancelScope | None = None,
        *,
        mode: ChecksumMode | None = None,
        passing: frozenset[str] = frozenset(),
    ) -> HttpAnswer:
        """Send a body with its checksum, and confirm what was stored.

        Args:
            call: Without a checksum.
            scope: What cancels it.
            mode: Of an upload that began with it; else what the store was found to know.
            passing: See S3Client.send.

        Raises:
            RefusedError: of ``passing``. StoreUnavailableError: the store says that it holds other bytes.
        """
        used = mode or self._mode
        finding_out = mode is None and self._fixed is None and used is ChecksumMode.CRC32C
        sent = _with_checksum(call, used)
        try:
            answer = self.client.send(sent, scope, passing=passing | (UNKNOWN if finding_out else frozenset()))
        except RefusedError as failure:
            if failure.fault.code in passing or str(failure.answer.status) in passing:
                raise
            self.settle(ChecksumMode.MD5, f"it answers {failure.fault.code} to a CRC-32C")
            before_resending()
            return self.client.send(_with_checksum(call, ChecksumMode.MD5), scope, passing=passing)
        if not self._confirmed(sent, answer) and finding_out:
            self.settle(ChecksumMode.MD5, "it does not repeat a CRC-32C")
        return answer

    def settle(self, mode: ChecksumMode, reason: str) -> None:
        """Send this checksum from here on, unless one is configured."""
        if self._fixed is None and self._mode is not mode:
            _log.info("%s: uploads carry %s: %s", self.client.settings.name, mode.value, reason)
            self._mode = mode

    def _confirmed(self, sent: S3Call, answer: HttpAnswer) -> bool:
        """Whether the store itself checked the bytes. Raises StoreUnavailableError: it says that it has others."""
        expected = sent.headers.get(CRC32C_HEADER)
        if expected is None:
            return "Content-MD5" in sent.headers
        place = self.client.place(sent.key)
        repeated = answer.headers.get(CRC32C_HEADER)
        if repeated is not None:
            if repeated != expected:
                raise StoreUnavailableError(f"{place}: stored with checksum {repeated}, {expected} was sent")
            return True
        etag = answer.headers.get("etag", "")
        plain = answer.headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
        if is_md5_etag(etag) and plain and not self.client.settings.customer_key:
            found = md5_digest(sent.body).hex()
            if plain_etag(etag) != found:
                raise StoreUnavailableError(f"{place}: stored with ETag {etag}, the MD5 of what was sent is {found}")
        return False

    def abort(self, key: str, upload_id: str) -> None:
        """Throw an upload away; fine if it is gone."""
        try:
            self.client.send(S3Call("DELETE", key, {"uploadId": upload_id}))
        except ObjectNotFoundError:
            pass


def _with_checksum(call: S3Call, mode: ChecksumMode) -> S3Call:
    more: Mapping[str, str] = {}
    if mode is ChecksumMode.CRC32C:
        more = {CRC32C_HEADER: crc32c_base64(call.body)}
    elif mode is ChecksumMode.MD5:
        more = {"Content-MD5": content_md5(call.body)}
    return S3Call(call.verb, call.key, call.query, {**call.headers, **more}, call.body)
