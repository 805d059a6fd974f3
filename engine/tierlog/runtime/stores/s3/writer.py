"""Writing to S3 and what speaks like it.

What a store checks of a body is found out by the way: CRC-32C is sent, and where the answer does not repeat it, MD5 is
sent from then on, which every store of this kind has checked from the beginning. No request is spent on confirming.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.protocol.failed_deletes import delete_each, deletion_error
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    ObjectInfo,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
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
from tierlog.runtime.stores.protocol.store_capabilities import StoreTraits
from tierlog.runtime.stores.s3.client import S3Call, S3Client
from tierlog.runtime.stores.s3.upload import S3Upload
from tierlog.runtime.stores.writing.bucket_client import RefusedError
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.messages import delete_body, delete_faults, error_of, fits_xml, upload_page

_log = logging.getLogger(__name__)

LIMITS: Final = UploadLimits(part_bytes_min=5 << 20, part_bytes_max=5 << 30, parts_max=10_000, put_bytes_max=5 << 30)
_DELETE_KEYS_MAX: Final = 1000
#: How stores say that they do not know a header or a request.
_UNKNOWN: Final = frozenset(("501", "405", "NotImplemented", "InvalidArgument", "InvalidRequest", "MalformedXML"))
_CONDITION: Final = frozenset(("412", "PreconditionFailed"))


class S3Writer:
    """See StoreWriter.

    Args:
        client: Signs and sends.
        checksums: What to send; None finds out.
        batch_deletes: False sends one request a key.
    """

    def __init__(
        self,
        client: S3Client,
        *,
        checksums: ChecksumMode | None = None,
        batch_deletes: bool = True,
    ) -> None:
        self.client = client
        self._fixed = checksums
        self._mode = checksums or ChecksumMode.CRC32C
        self._batch_deletes = batch_deletes

    checksum_name = "crc32c"

    @property
    def limits(self) -> UploadLimits:
        """See StoreWriter."""
        return LIMITS

    @property
    def checksums(self) -> ChecksumMode:
        """What is sent now."""
        return self._mode

    @property
    def batch_deletes(self) -> bool:
        """Whether the store removes many objects in one request, as far as is known."""
        return self._batch_deletes

    def write_headers(self) -> dict[str, str]:
        """What every new object carries."""
        settings = self.client.settings
        storage_class = {"x-amz-storage-class": settings.storage_class} if settings.storage_class else {}
        return {**settings.encryption, **settings.customer_key, **storage_class}

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """See StoreWriter."""
        headers = self.write_headers()
        if expected_etag == ABSENT:
            headers["If-None-Match"] = "*"
        elif expected_etag is not None:
            headers["If-Match"] = f'"{plain_etag(expected_etag)}"'
        try:
            answer = self.send_body(S3Call("PUT", key, {}, headers, data), passing=_CONDITION)
        except RefusedError as failure:
            return self._conflict(key, data, failure)
        return StoredObject(sum(len(view) for view in data), answer.headers.get("etag"))

    def _conflict(self, key: str, data: Sequence[memoryview], failure: RefusedError) -> StoredObject:
        """The condition does not hold: perhaps since a try of ours, whose answer got lost, has stored the object."""
        if failure.tries:
            found = self.find(key)
            if found is not None and found.etag and plain_etag(found.etag) == md5_digest(data).hex():
                return StoredObject(found.size_bytes, found.etag)
        raise ObjectConflictError(str(error_of(self.client.place(key), "PUT", failure.answer, failure.fault)))

    def find(self, key: str) -> ObjectInfo | None:
        """HEAD, with our own requests."""
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
            answer = self.client.send(sent, scope, passing=passing | (_UNKNOWN if finding_out else frozenset()))
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

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """See StoreWriter."""
        headers = self.write_headers()
        if self._mode is ChecksumMode.CRC32C:
            headers["x-amz-checksum-algorithm"] = "CRC32C"
        try:
            answer = self.client.send(
                S3Call("POST", key, {"uploads": ""}, headers), passing=_UNKNOWN if self._fixed is None else frozenset()
            )
        except RefusedError as failure:
            if not headers.pop("x-amz-checksum-algorithm", None):
                raise error_of(self.client.place(key), "POST", failure.answer, failure.fault) from None
            self.settle(ChecksumMode.MD5, f"it answers {failure.fault.code} to a CRC-32C")
            answer = self.client.send(S3Call("POST", key, {"uploads": ""}, headers))
        repeated = answer.headers.get("x-amz-checksum-algorithm", "").upper() == "CRC32C"
        mode = self._mode
        if mode is ChecksumMode.CRC32C and not repeated:
            mode = ChecksumMode.MD5
        return S3Upload(self, key, part_bytes, answer, mode)

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
        """One request for up to a thousand keys; returns those that must be removed one by one."""
        folder = self.client.settings.folder
        body = [memoryview(delete_body([folder + key for key in keys]))]
        headers = {"Content-MD5": content_md5(body), "Content-Type": "application/xml"}
        if self._mode is ChecksumMode.CRC32C:
            headers |= {CRC32C_HEADER: crc32c_base64(body), "x-amz-sdk-checksum-algorithm": "CRC32C"}
        try:
            answer = self.client.send(S3Call("POST", None, {"delete": ""}, headers, body), passing=_UNKNOWN)
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
        self.abort(upload.key, upload.upload_id)

    def abort(self, key: str, upload_id: str) -> None:
        """Throw an upload away; fine if it is gone."""
        try:
            self.client.send(S3Call("DELETE", key, {"uploadId": upload_id}))
        except ObjectNotFoundError:
            pass

    def identity(self) -> str:
        """See ProbedStore: the source of the keys, and whose they are."""
        keys = self.client.credentials.keys()
        shown = f", access key {keys.access_key_id}" if keys is not None else ""
        return f"{self.client.credentials.name}{shown}"

    def traits(self, key: str) -> StoreTraits:
        """See ProbedStore."""
        from tierlog.runtime.stores.s3.probe import probe_s3

        return probe_s3(self, key)

    def close(self) -> None:
        """See StoreWriter."""
        self.client.close()


def _with_checksum(call: S3Call, mode: ChecksumMode) -> S3Call:
    more: Mapping[str, str] = {}
    if mode is ChecksumMode.CRC32C:
        more = {CRC32C_HEADER: crc32c_base64(call.body)}
    elif mode is ChecksumMode.MD5:
        more = {"Content-MD5": content_md5(call.body)}
    return S3Call(call.verb, call.key, call.query, {**call.headers, **more}, call.body)
