"""Requests about objects of one bucket of S3: signed, with the checksum that the store knows, and confirmed.

The checksum that a store checks is found out on the way: CRC-32C is sent, and where the answer does not repeat it, MD5
is sent from then on, which every store of this kind has checked from the beginning. No request is spent on confirming.
Errors are a code in XML, in an answer of status 200 too.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.credentials.aws import AwsCredentials, AwsKeys
from tierlog.runtime.stores.protocol.object_store import (
    ObjectInfo,
)
from tierlog.runtime.stores.protocol.store_writer import (
    CRC32C_HEADER,
    ChecksumMode,
    before_resending,
    content_md5,
    crc32c_base64,
    is_md5_etag,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.writing.bucket_client import BucketClient, RequestRefusedError
from tierlog.runtime.stores.writing.faults import Meaning, StoreFault, find_xml_fault
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpRequest

_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The address of the bucket, and the properties of every request.

    Args:
        name: The URL of the store, for messages.
        bucket_url: Of the bucket, without "/" at its end.
        folder: Of the store in the bucket, "" or ending with "/".
        region: For signatures.
        unsigned_payload: Leave bodies out of the signature; over https they always are, since TLS and the checksum
            hold them.
        storage_class: Of written objects; None is the bucket's own.
        encryption: Headers of the server's encryption of written objects.
        customer_key: Headers of a key of the customer's, which each request about the object's bytes carries.
        payer: The header of a bucket whose reader pays.
    """

    name: str
    bucket_url: str
    folder: str
    region: str
    unsigned_payload: bool = False
    storage_class: str | None = None
    encryption: Mapping[str, str] = field(default_factory=dict)
    customer_key: Mapping[str, str] = field(default_factory=dict, repr=False)
    payer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class S3Call:
    """One request, before it is signed.

    Args:
        key: Of the object, relative to the store; None for the bucket itself.
        query: Names and values, not encoded.
    """

    verb: str
    key: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Sequence[memoryview] = field(default=(), repr=False)


def sign(
    verb: str, url: str, headers: Mapping[str, str], digest: str, keys: AwsKeys, region: str, service: str = "s3"
) -> dict[str, str]:
    """Return the headers with a signature of version 4, by botocore."""
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method=verb, url=url, headers=dict(headers))
    request.context["tierlog_digest"] = digest
    _signer()(Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token), service, region).add_auth(
        request
    )
    return dict(request.headers.items())


_signers: list[Any] = []


def _signer() -> Any:
    """Make botocore's signer of S3 for a given digest of the body: it would hash a body that is one piece of bytes."""
    if not _signers:
        from botocore.auth import S3SigV4Auth

        class Signer(S3SigV4Auth):  # type: ignore[misc]
            def payload(self, request: Any) -> str:
                return str(request.context["tierlog_digest"])

        _signers.append(Signer)
    return _signers[0]


_MEANINGS: Final = {
    **dict.fromkeys(
        (
            "AccessDenied",
            "ExpiredToken",
            "InvalidToken",
            "TokenRefreshRequired",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
        ),
        Meaning.REFUSED,
    ),
    "PreconditionFailed": Meaning.CONFLICT,
    **dict.fromkeys(("SlowDown", "ThrottlingException", "Throttling", "RequestLimitExceeded"), Meaning.THROTTLED),
    **dict.fromkeys(
        ("RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted", "ConditionalRequestConflict"),
        Meaning.PASSING,
    ),
    # The bytes were damaged on their way, or the check of them was.
    **dict.fromkeys(("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"), Meaning.PASSING),
    "PermanentRedirect": Meaning.FINAL,
}


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """Read the fault of an answer, as a FaultReader. A slow completion begins with status 200, and says only then that
    it failed.
    """
    if answer.status < 300:
        return _told(find_xml_fault(answer.body)) if b"<Error" in answer.body else None
    fault = _told(find_xml_fault(answer.body)) or StoreFault("", "")
    if answer.status != 301 and fault.code != "PermanentRedirect":
        return fault
    region = answer.headers.get("x-amz-bucket-region", "another one")
    message = f"{fault.message}; the bucket is in region {region}".removeprefix("; ")
    return StoreFault(fault.code, message, Meaning.FINAL)


def with_meaning(fault: StoreFault) -> StoreFault:
    """Return a fault of S3's with what its code means."""
    return replace(fault, meaning=_MEANINGS.get(fault.code))


def _told(fault: StoreFault | None) -> StoreFault | None:
    return None if fault is None else with_meaning(fault)


_log = logging.getLogger(__name__)

#: How stores say that they do not know a header or a request.
UNKNOWN: Final = frozenset(("501", "405", "NotImplemented", "InvalidArgument", "InvalidRequest", "MalformedXML"))


class S3Requests:
    """Requests about objects of one bucket. Thread-safe.

    Args:
        settings: The address of the bucket, and the properties of every request.
        bucket: Sends, and tries again where that helps.
        credentials: Sign.
        checksums: The checksum to send; None finds out the store's.
    """

    def __init__(
        self,
        settings: S3Settings,
        bucket: BucketClient,
        credentials: AwsCredentials,
        checksums: ChecksumMode | None = None,
    ) -> None:
        self.settings = settings
        self.bucket = bucket
        self.credentials = credentials
        self._fixed = checksums
        self._mode = checksums or ChecksumMode.CRC32C

    def send(
        self, call: S3Call, scope: CancelScope | None = None, *, passing: frozenset[str] = frozenset()
    ) -> HttpAnswer:
        """Send a signed request, as BucketClient.send does."""
        digest = self._digest(call)
        used: list[AwsKeys | None] = []

        def build() -> HttpRequest:
            used.append(self.credentials.keys())
            return self._signed(call, digest, used[-1])

        def renewed(fault: StoreFault) -> bool:
            """Whether the credentials expired between signing and arrival, and the source has others by now."""
            return fault.code in ("ExpiredToken", "InvalidAccessKeyId") and self.credentials.keys() != used[-1]

        listing = call.verb == "GET" and "uploads" in call.query
        return self.bucket.send(
            call.key, build, scope, passing=passing, counted="LIST" if listing else None, mends=renewed
        )

    def _digest(self, call: S3Call) -> str:
        """Return the digest of the body that the signature covers."""
        if call.body and (self.settings.unsigned_payload or self.settings.bucket_url.startswith("https://")):
            return _UNSIGNED
        found = hashlib.sha256()
        for view in call.body:
            found.update(view)
        return found.hexdigest()

    def url(self, key: str | None, query: Mapping[str, str]) -> str:
        """Return the address of an object or of the bucket, encoded as it is signed."""
        path = "" if key is None else f"/{quote(self.settings.folder + key, safe='/-_.~')}"
        if key is None and self.settings.bucket_url.count("/") == 2:
            path = "/"
        asked = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
        return f"{self.settings.bucket_url}{path}{'?' + asked if asked else ''}"

    def _signed(self, call: S3Call, digest: str, keys: AwsKeys | None) -> HttpRequest:
        url = self.url(call.key, call.query)
        headers = {**self.settings.payer, **call.headers}
        if keys is not None:
            headers = sign(call.verb, url, headers, digest, keys, self.settings.region)
        return HttpRequest(call.verb, url, headers, call.body)

    @property
    def finds_out(self) -> bool:
        """Whether no checksum is configured, so that the store's answers decide."""
        return self._fixed is None

    @property
    def checksums(self) -> ChecksumMode:
        """The checksum that is sent now."""
        return self._mode

    def write_headers(self) -> dict[str, str]:
        """Return the headers that every new object carries."""
        settings = self.settings
        storage_class = {"x-amz-storage-class": settings.storage_class} if settings.storage_class else {}
        return {**settings.encryption, **settings.customer_key, **storage_class}

    def find(self, key: str) -> ObjectInfo | None:
        """Find the size and ETag of an object; None if it is not there."""
        try:
            answer = self.send(S3Call("HEAD", key, {}, self.settings.customer_key))
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
        """Send a body with its checksum, and confirm the stored object.

        Args:
            call: Without a checksum.
            scope: What cancels it.
            mode: Of an upload that began with it; else the one found out.
            passing: See BucketClient.send.

        Raises:
            RequestRefusedError: of ``passing``. StoreUnavailableError: the store says that it holds other bytes.
        """
        used = mode or self._mode
        finding_out = mode is None and self._fixed is None and used is ChecksumMode.CRC32C
        sent = _with_checksum(call, used)
        try:
            answer = self.send(sent, scope, passing=passing | (UNKNOWN if finding_out else frozenset()))
        except RequestRefusedError as failure:
            if failure.fault.code in passing or str(failure.answer.status) in passing:
                raise
            self.settle(ChecksumMode.MD5, f"it answers {failure.fault.code} to a CRC-32C")
            before_resending()
            return self.send(_with_checksum(call, ChecksumMode.MD5), scope, passing=passing)
        if not self._confirmed(sent, answer) and finding_out:
            self.settle(ChecksumMode.MD5, "it does not repeat a CRC-32C")
        return answer

    def settle(self, mode: ChecksumMode, reason: str) -> None:
        """Send this checksum from here on, unless one is configured."""
        if self._fixed is None and self._mode is not mode:
            _log.info("%s: uploads carry %s: %s", self.settings.name, mode.value, reason)
            self._mode = mode

    def _confirmed(self, sent: S3Call, answer: HttpAnswer) -> bool:
        """Whether the store itself checked the bytes. Raises StoreUnavailableError: it says that it has others."""
        expected = sent.headers.get(CRC32C_HEADER)
        if expected is None:
            return "Content-MD5" in sent.headers
        place = self.bucket.place(sent.key)
        repeated = answer.headers.get(CRC32C_HEADER)
        if repeated is not None:
            if repeated != expected:
                raise StoreUnavailableError(f"{place}: stored with checksum {repeated}, {expected} was sent")
            return True
        etag = answer.headers.get("etag", "")
        plain = answer.headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
        if is_md5_etag(etag) and plain and not self.settings.customer_key:
            found = md5_digest(sent.body).hex()
            if plain_etag(etag) != found:
                raise StoreUnavailableError(f"{place}: stored with ETag {etag}, the MD5 of what was sent is {found}")
        return False

    def abort(self, key: str, upload_id: str) -> None:
        """Abort an upload; fine if it is gone."""
        try:
            self.send(S3Call("DELETE", key, {"uploadId": upload_id}))
        except ObjectNotFoundError:
            pass


def _with_checksum(call: S3Call, mode: ChecksumMode) -> S3Call:
    more: Mapping[str, str] = {}
    if mode is ChecksumMode.CRC32C:
        more = {CRC32C_HEADER: crc32c_base64(call.body)}
    elif mode is ChecksumMode.MD5:
        more = {"Content-MD5": content_md5(call.body)}
    return S3Call(call.verb, call.key, call.query, {**call.headers, **more}, call.body)
