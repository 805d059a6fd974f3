"""Writing to Google Cloud Storage through its JSON interface: an object in one request, or by a resumable upload.

A resumable upload takes its bytes in order, so its parts are sent one after another, each waiting for its turn. Google
forgets one that is given up after a week, and lists none. What the store made is compared by CRC-32C.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.credentials.google import GoogleTokens
from tierlog.runtime.stores.protocol.failed_deletes import delete_each, deletion_error
from tierlog.runtime.stores.protocol.object_store import ABSENT, StoredObject, UnfinishedUpload, Upload, UploadLimits
from tierlog.runtime.stores.protocol.part_checksums import crc32c_base64
from tierlog.runtime.stores.protocol.store_capabilities import StoreTraits
from tierlog.runtime.stores.writing.bucket_client import BucketClient, RefusedError
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpRequest
from tierlog.runtime.stores.writing.messages import error_of

if TYPE_CHECKING:
    from tierlog.runtime.stores.gcs.upload import GcsUpload

LIMITS: Final = UploadLimits(part_bytes_min=256 << 10, part_bytes_max=5 << 30, parts_max=1 << 20, put_bytes_max=5 << 30)
_CONDITION: Final = frozenset(("412", "conditionNotMet"))
_BOUNDARY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """Where the bucket is, and what each new object carries.

    Args:
        url: Of the service, without "/" at its end.
        folder: Of the store in the bucket, "" or ending with "/".
        kms_key: Name of a key of Cloud KMS; the bucket's own if None.
        turn_seconds: How long a part waits for those before it.
    """

    url: str
    bucket: str
    folder: str
    storage_class: str | None = None
    kms_key: str | None = None
    turn_seconds: float = 60.0


class GcsWriter:
    """See StoreWriter. An ETag is the object's generation."""

    checksum_name = "crc32c"

    def __init__(
        self,
        settings: GcsSettings,
        client: BucketClient,
        tokens: GoogleTokens,
        machine: Machine,
    ) -> None:
        self.settings = settings
        self.client = client
        self.machine = machine
        self._tokens = tokens

    @property
    def limits(self) -> UploadLimits:
        """See StoreWriter."""
        return LIMITS

    def insert_url(self, key: str, kind: str, **more: str) -> str:
        """Of a new object; ``kind`` is the type of upload."""
        settings = self.settings
        query = {"uploadType": kind, "name": settings.folder + key, **more}
        if settings.kms_key:
            query["kmsKeyName"] = settings.kms_key
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"{settings.url}/upload/storage/v1/b/{quote(settings.bucket, safe='')}/o?{asked}"

    def metadata(self, **more: str) -> dict[str, str]:
        """Of a new object."""
        settings = self.settings
        return {**({"storageClass": settings.storage_class} if settings.storage_class else {}), **more}

    def send(
        self,
        key: str,
        verb: str,
        url: str,
        headers: Mapping[str, str],
        body: Sequence[memoryview],
        scope: CancelScope | None = None,
        *,
        passing: frozenset[str] = frozenset(),
    ) -> HttpAnswer:
        """See BucketClient.send."""

        def build() -> HttpRequest:
            token = self._tokens.token()
            signed = {"Authorization": f"Bearer {token}"} if token is not None else {}
            return HttpRequest(verb, url, {**headers, **signed}, body)

        return self.client.send(key, build, scope, passing=passing)

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """See StoreWriter: metadata and bytes in one request, the checksum among the former."""
        checksum = crc32c_base64(data)
        boundary = f"tierlog-{self.machine.rng.secret_bytes(_BOUNDARY_BYTES).hex()}"
        described = json.dumps(self.metadata(crc32c=checksum))
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{described}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        body = [memoryview(head.encode()), *data, memoryview(f"\r\n--{boundary}--\r\n".encode())]
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        condition = {}
        if expected_etag is not None:
            condition["ifGenerationMatch"] = "0" if expected_etag == ABSENT else expected_etag
        url = self.insert_url(key, "multipart", **condition)
        try:
            answer = self.send(key, "POST", url, headers, body, passing=_CONDITION)
        except RefusedError as refused:
            if refused.tries and (ours := self.find_ours(key, checksum)):
                return ours
            told = error_of(self.client.place(key), "POST", refused.answer, refused.fault)
            raise ObjectConflictError(str(told)) from None
        return self.confirmed(key, answer, checksum, sum(len(view) for view in data))

    def find_ours(self, key: str, checksum: str) -> StoredObject | None:
        """What is there, if a try of ours, whose answer got lost, has stored it."""
        try:
            found = resource(self.send(key, "GET", self._url(key), {}, ()))
        except ObjectNotFoundError:
            return None
        if found.get("crc32c") != checksum:
            return None
        return StoredObject(int(found["size"]), str(found["generation"]))

    def _url(self, key: str) -> str:
        settings = self.settings
        name = quote(settings.folder + key, safe="")
        return f"{settings.url}/storage/v1/b/{quote(settings.bucket, safe='')}/o/{name}"

    def delete(self, keys: Sequence[str]) -> None:
        """See StoreWriter: one request a key."""
        failed: dict[str, StoreError] = {}
        delete_each(keys, lambda key: self.send(key, "DELETE", self._url(key), {}, ()), self.machine.clock, failed)
        if failed:
            raise deletion_error(self.client.name, failed)

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:  # noqa: ARG002 - none of any prefix
        """None: Google does not list them."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Raises StoreError: there are none."""
        raise StoreError(f"{self.client.place(upload.key)}: Google lists no unfinished uploads")

    def traits(self, key: str) -> StoreTraits | None:  # noqa: ARG002 - there is one Google
        """See StoreWriter."""
        return None

    def confirmed(self, key: str, answer: HttpAnswer, checksum: str, size_bytes: int) -> StoredObject:
        """What the store says it made. Raises StoreUnavailableError: it made something else."""
        found = resource(answer)
        place = self.client.place(key)
        if found.get("size") != str(size_bytes):
            raise StoreUnavailableError(f"{place}: {found.get('size')} of {size_bytes} bytes were stored")
        if found.get("crc32c", checksum) != checksum:
            raise StoreUnavailableError(f"{place}: stored with CRC-32C {found['crc32c']}, {checksum} was sent")
        return StoredObject(size_bytes, str(found.get("generation", "")) or None)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """See StoreWriter."""
        from tierlog.runtime.stores.gcs.upload import GcsUpload

        body = [memoryview(json.dumps(self.metadata()).encode())]
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        answer = self.send(key, "POST", self.insert_url(key, "resumable"), headers, body)
        session = answer.headers.get("location")
        if session is None:
            raise StoreError(f"{self.client.place(key)}: the upload began without an address")
        upload: GcsUpload = GcsUpload(self, key, part_bytes, session)
        return upload

    def identity(self) -> str:
        """See ProbedStore."""
        return self._tokens.identity()

    def close(self) -> None:
        """See StoreWriter."""
        self.client.close()


def resource(answer: HttpAnswer) -> dict[str, Any]:
    """The object that an answer describes. Raises StoreError: it describes none."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError("an answer that describes no object")
    return found
