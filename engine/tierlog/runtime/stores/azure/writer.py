"""Writing to Azure Blob Storage: blobs and blocks by requests of our own, to addresses that obstore signs.

A shared access signature covers the blob and the right to write it, not the rest of the query: one signature serves all
blocks of an upload, whatever kind of credentials obstore has. Each body carries its MD5, which Azure checks.

Azure has no request that deletes the blocks of an aborted upload: they are invisible, and Azure removes them after a
week. So ``abort`` sends nothing, and ``iter_uploads`` finds nothing.

obstore 0.12 signs keys wrongly that a URL must encode (a space, a letter of another alphabet). No topic has such a
name, a prefix may: such objects go through obstore's own PUT, without an encryption scope, and cannot have parts.
"""

from __future__ import annotations

import base64
import datetime
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import obstore
from obstore.store import AzureStore

from tierlog.errors import ConfigError, ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    RequestCounts,
    StoredObject,
    Upload,
    UploadLimits,
)
from tierlog.runtime.stores.protocol.store_writer import PartedUpload, content_md5
from tierlog.runtime.stores.reading.obstore_errors import translated
from tierlog.runtime.stores.reading.obstore_writer import ObstoreWriter
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.bucket_client import BucketClient, RequestRefusedError, make_client
from tierlog.runtime.stores.writing.faults import Meaning, StoreFault, error_of, find_xml_fault
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpRequest

if TYPE_CHECKING:
    from obstore.store import AzureStore


LIMITS: Final = UploadLimits(part_bytes_min=1, part_bytes_max=4000 << 20, parts_max=50_000, put_bytes_max=5000 << 20)
#: Of a signature. An upload that takes longer is signed anew at half of it.
_SIGNED_SECONDS: Final = 3600.0
_VERSION: Final = {"x-ms-version": "2021-12-02"}
_BLOCK_TOKEN_BYTES: Final = 8
_SIGNED_WELL: Final = re.compile(r"[A-Za-z0-9/._~-]*")
_CONDITION: Final = frozenset(("412", "BlobAlreadyExists"))


class AzureWriter(ObstoreWriter):
    """The StoreWriter of Azure Blob Storage. Deletions are obstore's.

    Args:
        store: obstore's, rooted where keys begin.
        client: Sends and tries again.
        sas_token: The configured one; obstore signs nothing with it, it is the signature.
        url: Of the folder, for such a token.
        identity: Our identity, for messages.
        tier: Access tier of written blobs; the account's if None.
        encryption_scope: Of written blobs; the container's if None.
    """

    checksum_name = "md5"

    def __init__(
        self,
        store: AzureStore,
        client: BucketClient,
        counts: RequestCounts,
        machine: Machine,
        *,
        sas_token: str | None = None,
        url: str = "",
        identity: str = "",
        tier: str | None = None,
        encryption_scope: str | None = None,
    ) -> None:
        super().__init__(store, client.name, LIMITS, counts)
        self._azure = store
        self.client = client
        self.machine = machine
        self._sas_token = sas_token
        self._url = url
        self._identity = identity
        self._scope_header = {"x-ms-encryption-scope": encryption_scope} if encryption_scope else {}
        self._tier_header = {"x-ms-access-tier": tier} if tier else {}

    def _can_sign(self, key: str) -> bool:
        return self._sas_token is not None or _SIGNED_WELL.fullmatch(self.client.place(key)[len("az://") :]) is not None

    def signed(self, key: str) -> str:
        """Return the address of a blob, signed for writing."""
        if self._sas_token is not None:
            return f"{self._url}/{quote(key, safe='/-_.~')}?{self._sas_token.lstrip('?')}"
        with translated(self.client.place(key)):
            return obstore.sign(self._azure, "PUT", key, datetime.timedelta(seconds=_SIGNED_SECONDS))

    def send(
        self,
        key: str,
        url: str,
        headers: Mapping[str, str],
        data: Sequence[memoryview],
        scope: CancelScope | None = None,
        *,
        passing: frozenset[str] = frozenset(),
    ) -> HttpAnswer:
        """Send a PUT with the checksum of its body; see BucketClient.send for the rest."""
        checked = {"Content-MD5": content_md5(data), **_VERSION, **self._scope_header, **headers}
        return self.client.send(key, lambda: HttpRequest("PUT", url, checked, data), scope, passing=passing)

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        if not self._can_sign(key):
            if self._scope_header:
                raise StoreError(f"{self.client.place(key)}: a key that Azure's encryption scope cannot be set for")
            return super().put(key, data, expected_etag=expected_etag)
        headers = {"x-ms-blob-type": "BlockBlob", **self._tier_header}
        if expected_etag == ABSENT:
            headers["If-None-Match"] = "*"
        elif expected_etag is not None:
            headers["If-Match"] = expected_etag
        try:
            answer = self.send(key, self.signed(key), headers, data, passing=_CONDITION)
        except RequestRefusedError as refused:
            if refused.tries and self._is_ours(key, data):
                with translated(self.client.place(key)):
                    found = obstore.head(self._azure, key)
                return StoredObject(found["size"], found["e_tag"])
            told = error_of(self.client.place(key), "PUT", refused.answer, refused.fault)
            raise ObjectConflictError(str(told)) from None
        return StoredObject(sum(len(view) for view in data), answer.headers.get("etag"))

    def _is_ours(self, key: str, data: Sequence[memoryview]) -> bool:
        """Whether a try of ours, whose answer got lost, has stored the object."""
        self._counts.add("GET")
        with translated(self.client.place(key)):
            return bytes(obstore.get(self._azure, key).bytes()) == b"".join(data)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Begin an upload, without a request. Raises StoreError: a key that cannot be signed."""
        if not self._can_sign(key):
            raise StoreError(f"{self.client.place(key)}: a key that can have no parts on Azure: use letters and digits")
        return AzureUpload(self, key, part_bytes, self._tier_header)

    def identity(self) -> str:
        return self._identity

    def time_ms(self) -> int | None:
        return self.client.time_ms()

    def close(self) -> None:
        self.client.close()


class AzureUpload(PartedUpload):
    """An Upload in blocks, which are named by the upload and their number: two uploads to one blob do not mix."""

    def __init__(self, writer: AzureWriter, key: str, part_bytes: int, headers: Mapping[str, str]) -> None:
        super().__init__(key, part_bytes, place=writer.client.place(key), lock=writer.machine.scheduler.lock())
        self._writer = writer
        self._headers = headers
        self._token = writer.machine.rng.secret_bytes(_BLOCK_TOKEN_BYTES).hex()
        self._scope = writer.client.scope()
        self._url = ""
        self._signed_at = 0.0

    def _signed(self) -> str:
        now = self._writer.machine.clock.monotonic_seconds()
        if not self._url or now - self._signed_at > _SIGNED_SECONDS / 2:
            self._url, self._signed_at = self._writer.signed(self.key), now
        return self._url

    def _send(self, number: int, views: list[memoryview]) -> str:
        block = base64.b64encode(f"{self._token}-{number:06d}".encode()).decode()
        url = f"{self._signed()}&comp=block&blockid={quote(block, safe='')}"
        self._writer.send(self.key, url, {}, views, self._scope)
        return block

    def _finish(self, parts: list[str]) -> StoredObject:
        """Asking again for the same blocks is the same blob."""
        listed = "".join(f"<Latest>{block}</Latest>" for block in parts)
        body = memoryview(f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode())
        answer = self._writer.send(self.key, f"{self._signed()}&comp=blocklist", self._headers, [body], self._scope)
        return StoredObject(self._sizes.size_bytes, answer.headers.get("etag"))

    def _drop(self) -> None:
        """Ends what runs, and leaves the blocks to Azure."""
        self._scope.cancel()


_MEANINGS: Final = {
    "BlobAlreadyExists": Meaning.CONFLICT,
    "ServerBusy": Meaning.PASSING,
    "InternalError": Meaning.PASSING,
    "Md5Mismatch": Meaning.PASSING,
}


def find_fault(answer: HttpAnswer) -> StoreFault | None:
    """Read the fault of an answer, as a FaultReader."""
    if answer.status < 300:
        return None
    fault = find_xml_fault(answer.body) or StoreFault(answer.headers.get("x-ms-error-code", ""), "")
    meaning = _MEANINGS.get(fault.code)
    if meaning is None and answer.status == 400 and "doesn't match" in fault.message:
        meaning = Meaning.PASSING  # Azurite has no code for a damaged body, only these words
    return replace(fault, meaning=meaning)


def make_azure_writer(
    store: AzureStore,
    container: str,
    folder: str,
    name: str,
    options: StoreOptions,
    machine: Machine,
    counts: RequestCounts,
) -> AzureWriter:
    """Make the write half of a container; sends nothing yet."""
    sas_token = _find(options, "sas_key", "sas_token")
    url = ""
    if sas_token is not None:
        account = _find(options, "account_name")
        endpoint = _find(options, "endpoint") or (f"https://{account}.blob.core.windows.net" if account else None)
        if endpoint is None:
            raise ConfigError(f"{name}: a SAS token needs an account name or an endpoint")
        url = "/".join([endpoint.rstrip("/"), container, *([quote(folder, safe="/-_.~")] if folder else [])])
    return AzureWriter(
        store,
        make_client(name, options, find_fault, machine, counts, extra="azure"),
        counts,
        machine,
        sas_token=sas_token,
        url=url,
        identity=_identity(options),
        tier=options.storage_class,
        encryption_scope=options.encryption_key,
    )


def _identity(options: StoreOptions) -> str:
    account = _find(options, "account_name") or "of the endpoint"
    kinds = {
        "skip_signature": "nobody: requests are not signed",
        "sas_key": "a SAS token",
        "sas_token": "a SAS token",
        "account_key": "the account's shared key",
        "access_key": "the account's shared key",
        "client_secret": "a client's secret",
        "federated_token_file": "a workload identity",
        "use_azure_cli": "the login of the az command",
        "token": "a bearer token",
    }
    kind = next((told for name, told in kinds.items() if _find(options, name)), "the managed identity of this machine")
    client = _find(options, "client_id")
    return f"account {account} by {kind}" + (f", client {client}" if client else "")


def _find(options: StoreOptions, *names: str) -> str | None:
    """Find the first of these options that is set, in obstore's words; else what its environment says."""
    spelt = [f"{prefix}{name}" for name in names for prefix in ("", "azure_storage_", "azure_")]
    for name in spelt:
        if found := options.config.get(name):
            return found
    return next(
        (found for name in spelt if name.startswith("azure_") and (found := os.environ.get(name.upper()))), None
    )
