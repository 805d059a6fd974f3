"""Signed requests to S3 and what speaks like it, tried again where that helps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.stores.credentials.aws import AwsCredentials, AwsKeys
from tierlog.runtime.stores.writing.bucket_client import BucketClient
from tierlog.runtime.stores.writing.faults import StoreFault
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpRequest

_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the bucket is, and what every request says.

    Args:
        name: The URL of the store, for messages.
        bucket_url: Of the bucket, without "/" at its end.
        folder: Of the store in the bucket, "" or ending with "/".
        region: For signatures.
        unsigned_payload: Leave bodies out of the signature; over https they always are, since TLS and the checksum
            hold them.
        storage_class: Of what is written; None is the bucket's own.
        encryption: Headers of the server's encryption of what is written.
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


class S3Client:
    """See the module. Any number of threads."""

    def __init__(self, settings: S3Settings, client: BucketClient, credentials: AwsCredentials) -> None:
        self.settings = settings
        self.credentials = credentials
        self._client = client

    def place(self, key: str | None) -> str:
        """The name of an object, or of the store, as messages have it."""
        return self._client.place(key)

    @property
    def clock(self) -> Clock:
        """The clock of its pauses."""
        return self._client.clock

    def scope(self) -> CancelScope:
        """A new scope, for requests that end together."""
        return self._client.scope()

    def close(self) -> None:
        """Cancel the requests that run."""
        self._client.close()

    def send(
        self, call: S3Call, scope: CancelScope | None = None, *, passing: frozenset[str] = frozenset()
    ) -> HttpAnswer:
        """See BucketClient.send."""
        digest = self._digest(call)
        used: list[AwsKeys | None] = []

        def build() -> HttpRequest:
            used.append(self.credentials.keys())
            return self._signed(call, digest, used[-1])

        def renewed(fault: StoreFault) -> bool:
            """Whether the credentials expired between signing and arrival, and the source has others by now."""
            return fault.code in ("ExpiredToken", "InvalidAccessKeyId") and self.credentials.keys() != used[-1]

        listing = call.verb == "GET" and "uploads" in call.query
        return self._client.send(
            call.key, build, scope, passing=passing, counted="LIST" if listing else None, mends=renewed
        )

    def _digest(self, call: S3Call) -> str:
        """The digest of the body that the signature covers."""
        if call.body and (self.settings.unsigned_payload or self.settings.bucket_url.startswith("https://")):
            return _UNSIGNED
        found = hashlib.sha256()
        for view in call.body:
            found.update(view)
        return found.hexdigest()

    def url(self, key: str | None, query: Mapping[str, str]) -> str:
        """The address of an object or of the bucket, encoded as it is signed."""
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


def sign(
    verb: str, url: str, headers: Mapping[str, str], digest: str, keys: AwsKeys, region: str, service: str = "s3"
) -> dict[str, str]:
    """The headers with a signature of version 4, by botocore."""
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
    """Botocore's signer of S3, told what the body's digest is: it would hash a body that is one piece of bytes."""
    if not _signers:
        from botocore.auth import S3SigV4Auth

        class Signer(S3SigV4Auth):  # type: ignore[misc]
            def payload(self, request: Any) -> str:
                return str(request.context["tierlog_digest"])

        _signers.append(Signer)
    return _signers[0]
