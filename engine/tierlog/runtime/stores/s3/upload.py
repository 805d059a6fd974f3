"""A multipart upload to S3."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.stores.protocol.object_store import StoredObject, views_of
from tierlog.runtime.stores.protocol.store_writer import (
    CRC32C_HEADER,
    ChecksumMode,
    PartSizes,
    combined_crc32c,
    combined_md5_etag,
    crc32c_base64,
    plain_etag,
)
from tierlog.runtime.stores.s3.client import S3Call, S3Requests
from tierlog.runtime.stores.s3.messages import complete_body
from tierlog.runtime.stores.writing.faults import parse, text_of
from tierlog.runtime.stores.writing.http_client import HttpAnswer

_log = logging.getLogger(__name__)
_CRC32C_FIELD: Final = "ChecksumCRC32C"


class S3Upload:
    """See Upload.

    Args:
        requests: Of the bucket.
        begun: The answer that began it.
        mode: Of the checksum of all its parts.
    """

    def __init__(self, requests: S3Requests, key: str, part_bytes: int, begun: HttpAnswer, mode: ChecksumMode) -> None:
        self.key = key
        self._requests = requests
        self._upload_id = text_of(parse(begun.body), "UploadId")
        if not self._upload_id:
            raise StoreError(f"{requests.client.place(key)}: the upload began without an id")
        self._mode = mode
        self._scope = requests.client.scope()
        self._lock = threading.Lock()
        self._sizes = PartSizes(key, part_bytes)
        self._etags: dict[int, str] = {}
        self._checksums: dict[int, str] = {}
        self._aborted = False
        self._stored: StoredObject | None = None

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        """See Upload."""
        views = views_of(data)
        size = sum(len(view) for view in views)
        self._sizes.check(number, size)
        self._check_open()
        query = {"partNumber": str(number), "uploadId": self._upload_id}
        call = S3Call("PUT", self.key, query, self._requests.client.settings.customer_key, views)
        answer = self._requests.send_body(call, self._scope, mode=self._mode)
        etag = answer.headers.get("etag")
        if etag is None:
            raise StoreError(f"{self._requests.client.place(self.key)}: part {number} was stored without an ETag")
        checksum = ""
        if self._mode is ChecksumMode.CRC32C:
            checksum = answer.headers.get(CRC32C_HEADER) or crc32c_base64(views)
        with self._lock:
            self._check_open()
            self._sizes.take(number, size)
            self._etags[number] = etag
            if checksum:
                self._checksums[number] = checksum

    def _check_open(self) -> None:
        if self._aborted or self._stored is not None:
            state = "aborted" if self._aborted else "completed"
            raise StoreError(f"{self._requests.client.place(self.key)}: the upload was {state}")

    def complete(self) -> StoredObject:
        """See Upload."""
        return self.finish()

    def finish(self, *, passing: frozenset[str] = frozenset()) -> StoredObject:
        """``complete`` for who asks to see some of the store's errors: see BucketClient.send for ``passing``."""
        with self._lock:
            if self._stored is not None:
                return self._stored
            self._check_open()
            count = self._sizes.whole()
            etags = [self._etags[n] for n in range(1, count + 1)]
            checksums = [self._checksums[n] for n in range(1, count + 1)] if self._checksums else []
        body = [memoryview(complete_body(etags, checksums))]
        headers = {"Content-Type": "application/xml"}
        call = S3Call("POST", self.key, {"uploadId": self._upload_id}, headers, body)
        try:
            answer = self._requests.client.send(call, self._scope, passing=passing)
            stored = self._confirm(answer, etags, checksums)
        except ObjectNotFoundError:  # perhaps since it was completed already, and the answer got lost
            stored = self._found_complete(etags)
        with self._lock:
            self._stored = stored
        return stored

    def _confirm(self, answer: HttpAnswer, etags: Sequence[str], checksums: Sequence[str]) -> StoredObject:
        """Compare what the store made of the parts with what it should have."""
        place = self._requests.client.place(self.key)
        root = parse(answer.body)
        etag, checksum = text_of(root, "ETag"), text_of(root, _CRC32C_FIELD)
        if checksums and "-" in checksum:
            if checksum != combined_crc32c(checksums):
                raise StoreError(f"{place}: completed with checksum {checksum}, {combined_crc32c(checksums)} was sent")
            return StoredObject(self._sizes.size_bytes, etag or None)
        expected = combined_md5_etag(etags)
        if expected is not None and plain_etag(etag) == expected:
            return StoredObject(self._sizes.size_bytes, etag)
        # Stores that make ETags in a way of their own are asked for the size.
        found = self._requests.find(self.key)
        if found is None or found.size_bytes != self._sizes.size_bytes:
            size = "nothing" if found is None else f"{found.size_bytes} bytes"
            raise StoreError(f"{place}: completed, and {size} of {self._sizes.size_bytes} bytes is there")
        return StoredObject(found.size_bytes, found.etag)

    def _found_complete(self, etags: Sequence[str]) -> StoredObject:
        found = self._requests.find(self.key)
        expected = combined_md5_etag(etags)
        if found is not None and found.size_bytes == self._sizes.size_bytes:
            etag = plain_etag(found.etag or "")
            # An object of one part or of another upload has another ETag; without one to expect, the size must do.
            if expected is None or etag == expected or "-" not in etag:
                return StoredObject(found.size_bytes, found.etag)
        raise StoreError(f"{self._requests.client.place(self.key)}: the upload is gone, and did not become the object")

    def abort(self) -> None:
        """See Upload. Parts under way are cancelled; one that lands after all is thrown away by a second request."""
        with self._lock:
            if self._aborted or self._stored is not None:
                return
            self._aborted = True
            running = self._scope.running
        self._scope.cancel()
        try:
            self._requests.abort(self.key, self._upload_id)
            if running:
                self._requests.abort(self.key, self._upload_id)
        except StoreError:
            self._aborted = False  # may be called again
            raise
