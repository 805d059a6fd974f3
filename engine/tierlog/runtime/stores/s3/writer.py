"""Writing to S3 and stores of its protocol, probing the server's features, and opening a bucket for writing."""

from __future__ import annotations

import base64
import hashlib
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from tierlog.errors import ConfigError, ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.credentials.aws import AwsCredentials, S3Options
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    RequestCounts,
    StoredObject,
    UnfinishedUpload,
    UploadLimits,
)
from tierlog.runtime.stores.protocol.store_probe import PARTS_SUFFIX, StoreCapabilities, refuses_second, removing
from tierlog.runtime.stores.protocol.store_writer import (
    CRC32C_HEADER,
    ChecksumMode,
    StoreWriter,
    content_md5,
    crc32c_base64,
    delete_each,
    deletion_error,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.s3.client import UNKNOWN, S3Call, S3Requests, S3Settings, find_fault
from tierlog.runtime.stores.s3.messages import delete_body, delete_faults, fits_xml, upload_page
from tierlog.runtime.stores.s3.options import with_host
from tierlog.runtime.stores.s3.upload import S3Upload
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.bucket_client import RequestRefusedError, make_client
from tierlog.runtime.stores.writing.faults import error_of
from tierlog.runtime.stores.writing.http_client import HttpAnswer

_log = logging.getLogger(__name__)

LIMITS: Final = UploadLimits(part_bytes_min=5 << 20, part_bytes_max=5 << 30, parts_max=10_000, put_bytes_max=5 << 30)
_DELETE_KEYS_MAX: Final = 1000
_CONDITION: Final = frozenset(("412", "PreconditionFailed"))


class S3Writer(StoreWriter):
    """The StoreWriter of S3.

    Args:
        requests: Of the bucket.
        batch_deletes: False sends one request a key. Later: whether the store removes many objects in one request, as
            far as is known.
    """

    checksum_name = "crc32c"
    limits = LIMITS

    def __init__(self, requests: S3Requests, *, batch_deletes: bool = True) -> None:
        self.requests = requests
        self.name = requests.settings.name
        self.batch_deletes = batch_deletes

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        headers = self.requests.write_headers()
        if expected_etag == ABSENT:
            headers["If-None-Match"] = "*"
        elif expected_etag is not None:
            headers["If-Match"] = f'"{plain_etag(expected_etag)}"'
        try:
            answer = self.requests.send_body(S3Call("PUT", key, {}, headers, data), passing=_CONDITION)
        except RequestRefusedError as failure:
            return self._conflict(key, data, failure)
        return StoredObject(sum(len(view) for view in data), answer.headers.get("etag"))

    def _conflict(self, key: str, data: Sequence[memoryview], failure: RequestRefusedError) -> StoredObject:
        """Return the object, if a lost try of ours has stored it after all. Raises ObjectConflictError: it is another
        one.
        """
        if failure.tries:
            found = self.requests.find(key)
            if found is not None and found.etag and plain_etag(found.etag) == md5_digest(data).hex():
                return StoredObject(found.size_bytes, found.etag)
        raise ObjectConflictError(str(error_of(self.requests.bucket.place(key), "PUT", failure.answer, failure.fault)))

    def begin_upload(self, key: str, *, part_bytes: int) -> S3Upload:
        headers = self.requests.write_headers()
        if self.requests.checksums is ChecksumMode.CRC32C:
            headers["x-amz-checksum-algorithm"] = "CRC32C"
        try:
            answer = self.requests.send(
                S3Call("POST", key, {"uploads": ""}, headers),
                passing=UNKNOWN if self.requests.finds_out else frozenset(),
            )
        except RequestRefusedError as failure:
            if not headers.pop("x-amz-checksum-algorithm", None):
                raise error_of(self.requests.bucket.place(key), "POST", failure.answer, failure.fault) from None
            self.requests.settle(ChecksumMode.MD5, f"it answers {failure.fault.code} to a CRC-32C")
            answer = self.requests.send(S3Call("POST", key, {"uploads": ""}, headers))
        repeated = answer.headers.get("x-amz-checksum-algorithm", "").upper() == "CRC32C"
        mode = self.requests.checksums
        if mode is ChecksumMode.CRC32C and not repeated:
            mode = ChecksumMode.MD5
        return S3Upload(self.requests, key, part_bytes, answer, mode)

    def delete(self, keys: Sequence[str]) -> None:
        failed: dict[str, StoreError] = {}
        batched = [key for key in keys if fits_xml(key)] if self.batch_deletes and len(keys) > 1 else []
        single = list(keys) if not batched else [key for key in keys if not fits_xml(key)]
        for start in range(0, len(batched), _DELETE_KEYS_MAX):
            batch = batched[start : start + _DELETE_KEYS_MAX]
            if not self.batch_deletes:
                single += batch
                continue
            try:
                single += self._delete_batch(batch, failed)
            except StoreError as error:
                failed.update(dict.fromkeys(batch, error))
        delete_each(single, lambda key: self.requests.send(S3Call("DELETE", key)), self.requests.bucket.clock, failed)
        if failed:
            raise deletion_error(self.name, failed)

    def _delete_batch(self, keys: Sequence[str], failed: dict[str, StoreError]) -> Sequence[str]:
        """Remove up to a thousand objects by one request; returns the keys that must be removed one by one."""
        folder = self.requests.settings.folder
        body = [memoryview(delete_body([folder + key for key in keys]))]
        headers = {"Content-MD5": content_md5(body), "Content-Type": "application/xml"}
        if self.requests.checksums is ChecksumMode.CRC32C:
            headers |= {CRC32C_HEADER: crc32c_base64(body), "x-amz-sdk-checksum-algorithm": "CRC32C"}
        try:
            answer = self.requests.send(S3Call("POST", None, {"delete": ""}, headers, body), passing=UNKNOWN)
        except RequestRefusedError as failure:
            _log.info("%s: objects are removed one by one: %s", self.name, failure.fault.code)
            self.batch_deletes = False
            return keys
        for full, fault in delete_faults(answer.body):
            key = full.removeprefix(folder)
            failed[key] = error_of(self.requests.bucket.place(key), "DELETE", HttpAnswer(200, {}, b""), fault)
        return ()

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        folder = self.requests.settings.folder
        query = {"uploads": "", "encoding-type": "url", "prefix": folder + prefix}
        while True:
            page = upload_page(self.requests.send(S3Call("GET", None, query)).body)
            for found in page.uploads:
                if found.key.startswith(folder + prefix):
                    yield UnfinishedUpload(found.key.removeprefix(folder), found.upload_id, found.started_ms)
            if page.next_key is None:
                return
            following = {"key-marker": page.next_key, "upload-id-marker": page.next_id}
            if following.items() <= query.items():
                raise StoreError(f"{self.name}: a listing of uploads that does not go on")
            query |= following

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.requests.abort(upload.key, upload.upload_id)

    def capabilities(self, key: str) -> StoreCapabilities:
        return _probe(self, key)

    def identity(self) -> str:
        """Return the source of the keys, and their owner."""
        keys = self.requests.credentials.keys()
        shown = f", access key {keys.access_key_id}" if keys is not None else ""
        return f"{self.requests.credentials.name}{shown}"

    def time_ms(self) -> int | None:
        return self.requests.bucket.time_ms()

    def close(self) -> None:
        self.requests.bucket.close()


_BODY: Final = b"tierlog"
_OTHER: Final = b"another"
#: How a store says that a checksum is wrong; those that say something else do not check it.
_DIGEST: Final = frozenset(("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "InvalidRequest", "400"))
#: How a store says that a part which is not the last is smaller than it takes.
_TOO_SMALL: Final = frozenset(("EntityTooSmall",))


def _probe(writer: S3Writer, key: str) -> StoreCapabilities:
    """Probe the store with a few small objects; set the writer's checksum to the one that the store checks."""
    with removing(writer.delete, [key, f"{key}{PARTS_SUFFIX}"]):
        checked = _find_checked(writer, key)
        if checked is not None:
            writer.requests.settle(checked, "the store refuses a wrong one")
        conditional = refuses_second(lambda etag: writer.put(key, [memoryview(_BODY)], expected_etag=etag), writer.name)
        part_bytes_min = 1 if _takes_small_parts(writer, f"{key}{PARTS_SUFFIX}") else LIMITS.part_bytes_min
    settings = writer.requests.settings
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
    """Find the best checksum of which the store refuses a wrong one; None if it refuses none."""
    digest = hashlib.md5(_OTHER, usedforsecurity=False).digest()
    wrong = {
        ChecksumMode.CRC32C: {CRC32C_HEADER: crc32c_base64([memoryview(_OTHER)])},
        ChecksumMode.MD5: {"Content-MD5": base64.b64encode(digest).decode()},
    }
    for mode, headers in wrong.items():
        call = S3Call("PUT", key, {}, {**writer.requests.write_headers(), **headers}, [memoryview(_BODY)])
        try:
            writer.requests.send(call, passing=_DIGEST | {"501"})
        except RequestRefusedError as refused:
            if refused.fault.code in _DIGEST:
                return mode
    return None


def _takes_small_parts(writer: S3Writer, key: str) -> bool:
    upload = writer.begin_upload(key, part_bytes=len(_BODY))
    upload.passing = _TOO_SMALL
    try:
        upload.put_part(1, [_BODY])
        upload.put_part(2, [_BODY])
        upload.complete()
    except RequestRefusedError:
        upload.abort()
        return False
    except StoreError:
        upload.abort()
        raise
    return True


_REGION: Final = "us-east-1"


def make_s3_writer(
    bucket: str,
    folder: str,
    name: str,
    options: StoreOptions,
    credentials: AwsCredentials,
    machine: Machine,
    counts: RequestCounts,
) -> S3Writer:
    """Make the write half of a bucket; sends nothing yet."""
    given = S3Options(options.config)
    region = given.find("region", "default_region") or _REGION
    settings = S3Settings(
        name=name,
        bucket_url=_bucket_url(bucket, region, given, options),
        folder=f"{folder}/" if folder else "",
        region=region,
        unsigned_payload=given.is_set("unsigned_payload"),
        storage_class=options.storage_class,
        encryption=_encryption(given),
        customer_key=_customer_key(given),
        payer={"x-amz-request-payer": "requester"} if given.find("request_payer") else {},
    )
    bucket_client = make_client(name, options, find_fault, machine, counts, extra="s3")
    batched = not given.is_set("disable_bulk_delete")
    return S3Writer(S3Requests(settings, bucket_client, credentials, options.checksums), batch_deletes=batched)


def _bucket_url(bucket: str, region: str, given: S3Options, options: StoreOptions) -> str:
    """Return the address of the bucket, as obstore makes it."""
    endpoint = given.endpoint()
    in_host = given.is_set("virtual_hosted_style_request")
    if not endpoint:
        host = f"s3.{region}.amazonaws.com"
        return f"https://{bucket}.{host}" if in_host else f"https://{host}/{bucket}"
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigError("store.endpoint: an http or https URL expected")
    if options.bucket_in_host:
        return with_host(endpoint, bucket)
    return endpoint if in_host else f"{endpoint}/{bucket}"


def _encryption(given: S3Options) -> dict[str, str]:
    kind = given.find("server_side_encryption")
    if kind is None or kind == "sse-c":
        return {}
    headers = {"x-amz-server-side-encryption": kind}
    if key := given.find("sse_kms_key_id"):
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = key
    if bucket_key := given.find("sse_bucket_key_enabled"):
        headers["x-amz-server-side-encryption-bucket-key-enabled"] = bucket_key.lower()
    return headers


def _customer_key(given: S3Options) -> dict[str, str]:
    key = given.find("sse_customer_key_base64")
    if key is None:
        return {}
    try:
        digest = hashlib.md5(b64decode(key, validate=True), usedforsecurity=False).digest()
    except ValueError:
        raise ConfigError("store.sse_customer_key_base64: not base64") from None
    prefix = "x-amz-server-side-encryption-customer-"
    return {f"{prefix}algorithm": "AES256", f"{prefix}key": key, f"{prefix}key-MD5": b64encode(digest).decode()}
