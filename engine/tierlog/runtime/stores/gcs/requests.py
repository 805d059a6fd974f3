"""Requests to a bucket of Google Cloud Storage: signed, and their answers compared with the request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tierlog.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.credentials.google import GoogleTokens
from tierlog.runtime.stores.protocol.object_store import StoredObject
from tierlog.runtime.stores.writing.bucket_client import BucketClient
from tierlog.runtime.stores.writing.faults import MESSAGE_CHARACTERS_MAX, Meaning, StoreFault
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpRequest


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """The address of the bucket, and the properties of each new object.

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


class GcsRequests:
    """Requests about objects of one bucket. Thread-safe.

    Args:
        settings: The address of the bucket, and the properties of each new object.
        client: Sends, and tries again where that helps.
        tokens: Sign.
        machine: Its clock and threads are waited on.
    """

    def __init__(self, settings: GcsSettings, client: BucketClient, tokens: GoogleTokens, machine: Machine) -> None:
        self.settings = settings
        self.client = client
        self.machine = machine
        self._tokens = tokens

    def identity(self) -> str:
        """Return the owner of the tokens that sign the requests."""
        return self._tokens.identity()

    def object_url(self, key: str) -> str:
        """Return the address of an object."""
        settings = self.settings
        name = quote(settings.folder + key, safe="")
        return f"{settings.url}/storage/v1/b/{quote(settings.bucket, safe='')}/o/{name}"

    def insert_url(self, key: str, kind: str, **more: str) -> str:
        """Return the address to which a new object is sent; ``kind`` is the type of upload."""
        settings = self.settings
        query = {"uploadType": kind, "name": settings.folder + key, **more}
        if settings.kms_key:
            query["kmsKeyName"] = settings.kms_key
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"{settings.url}/upload/storage/v1/b/{quote(settings.bucket, safe='')}/o?{asked}"

    def metadata(self, **more: str) -> dict[str, str]:
        """Return the description that a new object gets."""
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
        """Send a signed request, as BucketClient.send does."""

        def build() -> HttpRequest:
            token = self._tokens.token()
            signed = {"Authorization": f"Bearer {token}"} if token is not None else {}
            return HttpRequest(verb, url, {**headers, **signed}, body)

        return self.client.send(key, build, scope, passing=passing)

    def find_ours(self, key: str, checksum: str) -> StoredObject | None:
        """Find the stored object, if a try of ours, whose answer got lost, has stored it."""
        try:
            found = resource(self.send(key, "GET", self.object_url(key), {}, ()))
        except ObjectNotFoundError:
            return None
        if found.get("crc32c") != checksum:
            return None
        return StoredObject(int(found["size"]), str(found["generation"]))

    def confirmed(self, key: str, answer: HttpAnswer, checksum: str, size_bytes: int) -> StoredObject:
        """Check the store's description of the new object. Raises StoreUnavailableError: it is another object."""
        found = resource(answer)
        place = self.client.place(key)
        if found.get("size") != str(size_bytes):
            raise StoreUnavailableError(f"{place}: {found.get('size')} of {size_bytes} bytes were stored")
        if found.get("crc32c", checksum) != checksum:
            raise StoreUnavailableError(f"{place}: stored with CRC-32C {found['crc32c']}, {checksum} was sent")
        return StoredObject(size_bytes, str(found.get("generation", "")) or None)


def resource(answer: HttpAnswer) -> dict[str, Any]:
    """Return the object that an answer describes. Raises StoreError: it describes none."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError("an answer that describes no object")
    return found


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """Read the fault of an answer, as a FaultReader. The reason is the code."""
    if answer.status < 300:
        return None
    fault = _fault_in(answer.body)
    if answer.status == 400 and "doesn't match" in fault.message:
        # A damaged body: the reason is "invalid", as of any request that cannot work, so the message decides.
        return StoreFault(fault.code, fault.message, Meaning.PASSING)
    return fault


def _fault_in(body: bytes) -> StoreFault:
    try:
        error = json.loads(body)["error"]
        reasons = [each["reason"] for each in error.get("errors", ())]
        message = str(error.get("message", ""))[:MESSAGE_CHARACTERS_MAX]
        return StoreFault(str(reasons[0]) if reasons else "", message)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return StoreFault("", "")
