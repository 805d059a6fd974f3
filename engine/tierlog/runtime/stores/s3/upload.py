"""A multipart upload to S3."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.stores.protocol.object_store import StoredObject
from tierlog.runtime.stores.protocol.store_writer import (
    CRC32C_HEADER,
    ChecksumMode,
    PartedUpload,
    combined_crc32c,
    combined_md5_etag,
    crc32c_base64,
    plain_etag,
)
from tierlog.runtime.stores.s3.client import S3Call, S3Requests
from tierlog.runtime.stores.s3.messages import complete_body
from tierlog.runtime.stores.writing.faults import parse, text_of
from tierlog.runtime.stores.writing.http_client import HttpAnswer

_CRC32C_FIELD: Final = "ChecksumCRC32C"


class S3Upload(PartedUpload):
    """An Upload in parts to S3.

    Args:
        requests: Of the bucket.
        begun: The answer that began it.
        mode: Of the checksum of all its parts.

    Attributes:
        passing: Errors of the store that the caller of ``complete`` handles: see BucketClient.send.
    """

    def __init__(self, requests: S3Requests, key: str, part_bytes: int, begun: HttpAnswer, mode: ChecksumMode) -> None:
        super().__init__(key, part_bytes, place=requests.bucket.place(key), lock=threading.Lock())
        self.passing: frozenset[str] = frozenset()
        self._requests = requests
        self._upload_id = text_of(parse(begun.body), "UploadId")
        if not self._upload_id:
            raise StoreError(f"{self._place}: the upload began without an id")
        self._mode = mode
        self._scope = requests.bucket.scope()

    def _send(self, number: int, views: list[memoryview]) -> tuple[str, str]:
        """Returns the part's ETag and checksum, "" without one."""
        query = {"partNumber": str(number), "uploadId": self._upload_id}
        call = S3Call("PUT", self.key, query, self._requests.settings.customer_key, views)
        answer = self._requests.send_body(call, self._scope, mode=self._mode)
        etag = answer.headers.get("etag")
        if etag is None:
            raise StoreError(f"{self._place}: part {number} was stored without an ETag")
        if self._mode is not ChecksumMode.CRC32C:
            return etag, ""
        return etag, answer.headers.get(CRC32C_HEADER) or crc32c_base64(views)

    def _finish(self, parts: list[tuple[str, str]]) -> StoredObject:
        etags = [etag for etag, _ in parts]
        checksums = [checksum for _, checksum in parts] if parts[0][1] else []
        body = [memoryview(complete_body(etags, checksums))]
        headers = {"Content-Type": "application/xml"}
        call = S3Call("POST", self.key, {"uploadId": self._upload_id}, headers, body)
        try:
            answer = self._requests.send(call, self._scope, passing=self.passing)
            return self._confirm(answer, etags, checksums)
        except ObjectNotFoundError:  # perhaps since it was completed already, and the answer got lost
            return self._found_complete(etags)

    def _confirm(self, answer: HttpAnswer, etags: Sequence[str], checksums: Sequence[str]) -> StoredObject:
        """Compare the store's object with the sent parts."""
        root = parse(answer.body)
        etag, checksum = text_of(root, "ETag"), text_of(root, _CRC32C_FIELD)
        if checksums and "-" in checksum:
            if checksum != combined_crc32c(checksums):
                raise StoreError(
                    f"{self._place}: completed with checksum {checksum}, {combined_crc32c(checksums)} was sent"
                )
            return StoredObject(self._sizes.size_bytes, etag or None)
        expected = combined_md5_etag(etags)
        if expected is not None and plain_etag(etag) == expected:
            return StoredObject(self._sizes.size_bytes, etag)
        # Stores that make ETags in a way of their own are asked for the size.
        found = self._requests.find(self.key)
        if found is None or found.size_bytes != self._sizes.size_bytes:
            size = "nothing" if found is None else f"{found.size_bytes} bytes"
            raise StoreError(f"{self._place}: completed, and {size} of {self._sizes.size_bytes} bytes is there")
        return StoredObject(found.size_bytes, found.etag)

    def _found_complete(self, etags: Sequence[str]) -> StoredObject:
        found = self._requests.find(self.key)
        expected = combined_md5_etag(etags)
        if found is not None and found.size_bytes == self._sizes.size_bytes:
            etag = plain_etag(found.etag or "")
            # An object of one part or of another upload has another ETag; without one to expect, the size must do.
            if expected is None or etag == expected or "-" not in etag:
                return StoredObject(found.size_bytes, found.etag)
        raise StoreError(f"{self._place}: the upload is gone, and did not become the object")

    def _drop(self) -> None:
        """Cancel running parts; a part that lands after all is deleted by a second request."""
        running = self._scope.running
        self._scope.cancel()
        for _ in range(2 if running else 1):
            self._requests.abort(self.key, self._upload_id)
