"""Signed requests to S3 and what speaks like it, tried again where that helps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.aws_credentials import AwsCredentials, AwsKeys
from tierlog.runtime.http_client import CancelScope, HttpAnswer, HttpClient, HttpRequest
from tierlog.runtime.machine import Machine
from tierlog.runtime.request_counts import RequestCounts
from tierlog.runtime.retrying import RetryPolicy, retrying
from tierlog.runtime.s3_messages import S3Fault, error_of, find_fault

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


class S3Failure(Exception):
    """An answer that says no, for callers that know what to make of it; else ``error`` is what it means."""

    def __init__(self, answer: HttpAnswer, fault: S3Fault, tries: int) -> None:
        super().__init__(fault.code)
        self.answer = answer
        self.fault = fault
        self.tries = tries


class S3Client:
    """See the module. Any number of threads."""

    def __init__(
        self,
        settings: S3Settings,
        http: HttpClient,
        credentials: AwsCredentials,
        policy: RetryPolicy,
        machine: Machine,
        counts: RequestCounts,
    ) -> None:
        self.settings = settings
        self.credentials = credentials
        self._http = http
        self._policy = policy
        self._machine = machine
        self._counts = counts

    def place(self, key: str | None) -> str:
        """Of an object, for messages."""
        return f"{self.settings.name}/{key}" if key else self.settings.name

    def scope(self) -> CancelScope:
        """For requests that end together."""
        return CancelScope(self._machine.scheduler)

    def send(
        self, call: S3Call, scope: CancelScope | None = None, *, passing: frozenset[str] = frozenset()
    ) -> HttpAnswer:
        """Send until an answer comes that is no passing failure.

        Args:
            call: What to ask.
            scope: What cancels it.
            passing: Codes of errors that the caller wants to see, as S3Failure.

        Raises:
            S3Failure: one of those. StoreError and its kinds: all others, after the retries that make sense.
        """
        digest = self._digest(call)

        def attempt(tries: int) -> HttpAnswer:
            return self._attempt(call, digest, scope, passing, tries)

        return retrying(self._machine, self._policy, attempt, scope)

    def _attempt(
        self, call: S3Call, digest: str, scope: CancelScope | None, passing: frozenset[str], tries: int
    ) -> HttpAnswer:
        keys = self.credentials.keys()
        request = self._signed(call, digest, keys)
        self._counts.add("LIST" if "uploads" in call.query and call.verb == "GET" else call.verb)
        place = self.place(call.key)
        try:
            answer = self._http.send(request, scope)
        except StoreUnavailableError as error:
            raise StoreUnavailableError(f"{place}: {error}") from None
        fault = find_fault(answer)
        if fault is None:
            return answer
        if fault.code in passing or str(answer.status) in passing:
            raise S3Failure(answer, fault, tries)
        meant = error_of(place, call.verb, answer, fault)
        if fault.code in ("ExpiredToken", "InvalidAccessKeyId") and self._renewed(keys):
            raise StoreUnavailableError(str(meant))
        raise meant

    def _renewed(self, used: AwsKeys | None) -> bool:
        """Whether the source of the credentials has others by now: they expired between signing and arrival."""
        return self.credentials.keys() != used

    def _digest(self, call: S3Call) -> str:
        """What the signature says of the body."""
        if call.body and (self.settings.unsigned_payload or self.settings.bucket_url.startswith("https://")):
            return _UNSIGNED
        found = hashlib.sha256()
        for view in call.body:
            found.update(view)
        return found.hexdigest()

    def url(self, key: str | None, query: Mapping[str, str]) -> str:
        """Encoded as it is signed."""
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
