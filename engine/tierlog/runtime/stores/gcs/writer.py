"""Writing to Google Cloud Storage through its JSON interface: an object in one request, or by a resumable upload.

A resumable upload takes its bytes in order, so its parts are sent one after another, each waiting for its turn. Google
forgets an abandoned one after a week, and lists none. The stored object is compared by CRC-32C.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.credentials.google import GoogleTokens
from tierlog.runtime.stores.gcs.requests import GcsRequests, GcsSettings, find_fault
from tierlog.runtime.stores.gcs.upload import GcsUpload
from tierlog.runtime.stores.protocol.object_store import ABSENT, RequestCounts, StoredObject, Upload, UploadLimits
from tierlog.runtime.stores.protocol.store_writer import StoreWriter, crc32c_base64, delete_each, deletion_error
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.bucket_client import RequestRefusedError, make_client
from tierlog.runtime.stores.writing.faults import error_of

LIMITS: Final = UploadLimits(part_bytes_min=256 << 10, part_bytes_max=5 << 30, parts_max=1 << 20, put_bytes_max=5 << 30)
_CONDITION: Final = frozenset(("412", "conditionNotMet"))
_BOUNDARY_BYTES: Final = 16


class GcsWriter(StoreWriter):
    """The StoreWriter of Google Cloud Storage. An ETag is the object's generation."""

    checksum_name = "crc32c"
    limits = LIMITS
    no_uploads = "Google lists no unfinished uploads"

    def __init__(self, requests: GcsRequests) -> None:
        self._requests = requests
        self._client = requests.client
        self.name = requests.client.name

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """Put an object: metadata and bytes in one request, the checksum among the former."""
        checksum = crc32c_base64(data)
        boundary = f"tierlog-{self._requests.machine.rng.secret_bytes(_BOUNDARY_BYTES).hex()}"
        described = json.dumps(self._requests.metadata(crc32c=checksum))
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{described}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        body = [memoryview(head.encode()), *data, memoryview(f"\r\n--{boundary}--\r\n".encode())]
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        condition = {}
        if expected_etag is not None:
            condition["ifGenerationMatch"] = "0" if expected_etag == ABSENT else expected_etag
        url = self._requests.insert_url(key, "multipart", **condition)
        try:
            answer = self._requests.send(key, "POST", url, headers, body, passing=_CONDITION)
        except RequestRefusedError as refused:
            if refused.tries and (ours := self._requests.find_ours(key, checksum)):
                return ours
            told = error_of(self._client.place(key), "POST", refused.answer, refused.fault)
            raise ObjectConflictError(str(told)) from None
        return self._requests.confirmed(key, answer, checksum, sum(len(view) for view in data))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, by one request a key."""
        failed: dict[str, StoreError] = {}
        delete_each(
            keys,
            lambda key: self._requests.send(key, "DELETE", self._requests.object_url(key), {}, ()),
            self._requests.machine.clock,
            failed,
        )
        if failed:
            raise deletion_error(self.name, failed)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        body = [memoryview(json.dumps(self._requests.metadata()).encode())]
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        answer = self._requests.send(key, "POST", self._requests.insert_url(key, "resumable"), headers, body)
        session = answer.headers.get("location")
        if session is None:
            raise StoreError(f"{self._client.place(key)}: the upload began without an address")
        return GcsUpload(self._requests, key, part_bytes, session)

    def identity(self) -> str:
        return self._requests.identity()

    def time_ms(self) -> int | None:
        return self._client.time_ms()

    def close(self) -> None:
        self._client.close()


_URL: Final = "https://storage.googleapis.com"


def make_gcs_writer(
    bucket: str,
    folder: str,
    name: str,
    options: StoreOptions,
    tokens: GoogleTokens,
    machine: Machine,
    counts: RequestCounts,
) -> GcsWriter:
    """Make the write half of a bucket; sends nothing yet."""
    config = options.config
    settings = GcsSettings(
        url=(config.get("base_url") or config.get("google_base_url") or _URL).rstrip("/"),
        bucket=bucket,
        folder=f"{folder}/" if folder else "",
        storage_class=options.storage_class,
        kms_key=options.encryption_key,
        turn_seconds=options.retry_timeout.total_seconds(),
    )
    client = make_client(name, options, find_fault, machine, counts, extra="gcs")
    return GcsWriter(GcsRequests(settings, client, tokens, machine))
