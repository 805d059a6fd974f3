"""Writing to S3 and what speaks like it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.stores.protocol.failed_deletes import delete_each, deletion_error
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    StoredObject,
    UnfinishedUpload,
    UploadLimits,
)
from tierlog.runtime.stores.protocol.part_checksums import (
    CRC32C_HEADER,
    ChecksumMode,
    content_md5,
    crc32c_base64,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.s3.client import S3Call
from tierlog.runtime.stores.s3.messages import delete_body, delete_faults, fits_xml, upload_page
from tierlog.runtime.stores.s3.requests import UNKNOWN, S3Requests
from tierlog.runtime.stores.s3.upload import S3Upload
from tierlog.runtime.stores.writing.bucket_client import RefusedError
from tierlog.runtime.stores.writing.faults import error_of
from tierlog.runtime.stores.writing.http_client import HttpAnswer

_log = logging.getLogger(__name__)

LIMITS: Final = UploadLimits(part_bytes_min=5 << 20, part_bytes_max=5 << 30, parts_max=10_000, put_bytes_max=5 << 30)
_DELETE_KEYS_MAX: Final = 1000
_CONDITION: Final = frozenset(("412", "PreconditionFailed"))


class S3Writer:
    """See StoreWriter, but for what the store is found to do (``probe``).

    Args:
        requests: Of the bucket.
        batch_deletes: False sends one request a key.
    """

    def __init__(self, requests: S3Requests, *, batch_deletes: bool = True) -> None:
        self.requests = requests
        self.client = requests.client
        self._batch_deletes = batch_deletes

    checksum_name = "crc32c"

    @property
    def limits(self) -> UploadLimits:
        """See StoreWriter."""
        return LIMITS

    @property
    def batch_deletes(self) -> bool:
        """Whether the store removes many objects in one request, as far as is known."""
        return self._batch_deletes

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """See StoreWriter."""
        headers = self.requests.write_headers()
        if expected_etag == ABSENT:
            headers["If-None-Match"] = "*"
        elif expected_etag is not None:
            headers["If-Match"] = f'"{plain_etag(expected_etag)}"'
        try:
            answer = self.requests.send_body(S3Call("PUT", key, {}, headers, data), passing=_CONDITION)
        except RefusedError as failure:
            return self._conflict(key, data, failure)
        return StoredObject(sum(len(view) for view in data), answer.headers.get("etag"))

    def _conflict(self, key: str, data: Sequence[memoryview], failure: RefusedError) -> StoredObject:
        """The object, if a lost try of ours has stored it after all. Raises ObjectConflictError: it is another one."""
        if failure.tries:
            found = self.requests.find(key)
            if found is not None and found.etag and plain_etag(found.etag) == md5_digest(data).hex():
                return StoredObject(found.size_bytes, found.etag)
        raise ObjectConflictError(str(error_of(self.client.place(key), "PUT", failure.answer, failure.fault)))

    def begin_upload(self, key: str, *, part_bytes: int) -> S3Upload:
        """See StoreWriter."""
        headers = self.requests.write_headers()
        if self.requests.checksums is ChecksumMode.CRC32C:
            headers["x-amz-checksum-algorithm"] = "CRC32C"
        try:
            answer = self.client.send(
                S3Call("POST", key, {"uploads": ""}, headers),
                passing=UNKNOWN if self.requests.finds_out else frozenset(),
            )
        except RefusedError as failure:
            if not headers.pop("x-amz-checksum-algorithm", None):
                raise error_of(self.client.place(key), "POST", failure.answer, failure.fault) from None
            self.requests.settle(ChecksumMode.MD5, f"it answers {failure.fault.code} to a CRC-32C")
            answer = self.client.send(S3Call("POST", key, {"uploads": ""}, headers))
        repeated = answer.headers.get("x-amz-checksum-algorithm", "").upper() == "CRC32C"
        mode = self.requests.checksums
        if mode is ChecksumMode.CRC32C and not repeated:
            mode = ChecksumMode.MD5
        return S3Upload(self.requests, key, part_bytes, answer, mode)

    def delete(self, keys: Sequence[str]) -> None:
        """See StoreWriter."""
        failed: dict[str, StoreError] = {}
        batched = [key for key in keys if fits_xml(key)] if self._batch_deletes and len(keys) > 1 else []
        single = list(keys) if not batched else [key for key in keys if not fits_xml(key)]
        for start in range(0, len(batched), _DELETE_KEYS_MAX):
            batch = batched[start : start + _DELETE_KEYS_MAX]
            if not self._batch_deletes:
                single += batch
                continue
            try:
                single += self._delete_batch(batch, failed)
            except StoreError as error:
                failed.update(dict.fromkeys(batch, error))
        delete_each(single, lambda key: self.client.send(S3Call("DELETE", key)), self.client.clock, failed)
        if failed:
            raise deletion_error(self.client.settings.name, failed)

    def _delete_batch(self, keys: Sequence[str], failed: dict[str, StoreError]) -> Sequence[str]:
        """Remove up to a thousand objects by one request; returns the keys that must be removed one by one."""
        folder = self.client.settings.folder
        body = [memoryview(delete_body([folder + key for key in keys]))]
        headers = {"Content-MD5": content_md5(body), "Content-Type": "application/xml"}
        if self.requests.checksums is ChecksumMode.CRC32C:
            headers |= {CRC32C_HEADER: crc32c_base64(body), "x-amz-sdk-checksum-algorithm": "CRC32C"}
        try:
            answer = self.client.send(S3Call("POST", None, {"delete": ""}, headers, body), passing=UNKNOWN)
        except RefusedError as failure:
            _log.info("%s: objects are removed one by one: %s", self.client.settings.name, failure.fault.code)
            self._batch_deletes = False
            return keys
        for full, fault in delete_faults(answer.body):
            key = full.removeprefix(folder)
            failed[key] = error_of(self.client.place(key), "DELETE", HttpAnswer(200, {}, b""), fault)
        return ()

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See StoreWriter."""
        folder = self.client.settings.folder
        query = {"uploads": "", "encoding-type": "url", "prefix": folder + prefix}
        while True:
            page = upload_page(self.client.send(S3Call("GET", None, query)).body)
            for found in page.uploads:
                if found.key.startswith(folder + prefix):
                    yield UnfinishedUpload(found.key.removeprefix(folder), found.upload_id, found.started_ms)
            if page.next_key is None:
                return
            following = {"key-marker": page.next_key, "upload-id-marker": page.next_id}
            if following.items() <= query.items():
                raise StoreError(f"{self.client.settings.name}: a listing of uploads that does not go on")
            query |= following

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See StoreWriter."""
        self.requests.abort(upload.key, upload.upload_id)

    def identity(self) -> str:
        """See ProbedStore: the source of the keys, and whose they are."""
        keys = self.client.credentials.keys()
        shown = f", access key {keys.access_key_id}" if keys is not None else ""
        return f"{self.client.credentials.name}{shown}"

    def close(self) -> None:
        """See StoreWriter."""
        self.client.close()
