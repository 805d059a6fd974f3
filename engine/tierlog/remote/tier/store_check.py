"""A round trip through the configured store: each request of a copy, a read and a deletion, once and small.

It serves ``tierlog check-config``, and programs that look for faults before a broker meets them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tierlog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreNotReachedError,
    StorePermissionError,
    StoreUnavailableError,
    TierlogError,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.store_probe import identity_of, probe_key, probe_store

_log = logging.getLogger(__name__)

_SMALL: Final = b"Tierlog was here, and removes this again.\n"
_RANGE: Final = (8, 16)
#: A second part: enough to see that parts work.
_LAST_PART: Final = b"the end"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one step.

    Args:
        step: Name of the step; names do not change between versions.
        passed: Whether the store did what the step demands.
        told: The finding, or the failure.
        advice: What to do about it; "" if the step passed.
        unanswered: The step failed because the store did not answer, or answered only "later".
    """

    step: str
    passed: bool
    told: str
    advice: str = ""
    unanswered: bool = False


class StoreCheck:
    """The round trip, below a random key that no other program uses.

    Args:
        store: The configured store.
        key_prefix: The prefix of all keys.
        part_bytes: The configured size of an upload's parts.
    """

    def __init__(self, store: ObjectStore, *, key_prefix: str, part_bytes: int, machine: Machine) -> None:
        self._store = store
        self._machine = machine
        self._prefix = key_prefix
        self._key = probe_key(machine, key_prefix)
        self._part_bytes = max(store.upload_limits.part_bytes_min, min(part_bytes, store.upload_limits.part_bytes_max))

    def __iter__(self) -> Iterator[CheckResult]:
        """Yield the results, step by step; all objects are removed at the end, whatever failed.

        After a step that the store does not answer within the tries of its request, no other step is tried: only the
        objects are removed.
        """
        yield self._run("identity", self._identity)
        written = self._run("write", self._write)
        yield written
        if not written.passed:
            return  # all that follows would fail for the same reason
        for step, action in (
            ("find", self._find),
            ("read", self._read),
            ("range", self._range),
            ("list", self._list),
            ("multipart", self._multipart),
            ("abort", self._abort),
        ):
            done = self._run(step, action)
            yield done
            if done.unanswered:
                yield self._run("delete", self._delete)
                return
        removed = self._run("delete", self._delete)
        yield removed
        if not removed.unanswered:
            yield self._run("traits", self._capabilities)

    def _run(self, step: str, action: Callable[[], str]) -> CheckResult:
        try:
            return CheckResult(step, passed=True, told=action())
        except TierlogError as error:
            told = "; ".join([str(error), *getattr(error, "__notes__", ())])
            unanswered = isinstance(error, StoreUnavailableError)
            return CheckResult(step, passed=False, told=told, advice=_advice(step, error), unanswered=unanswered)

    def _identity(self) -> str:
        return identity_of(self._store)

    def _write(self) -> str:
        try:
            stored = self._store.put(self._key, [_SMALL])
        except StoreNotReachedError:
            raise
        except StoreUnavailableError as error:
            error.add_note(f"it may be stored all the same: remove {self._key} then")
            raise
        return f"{self._key}, {stored.size_bytes} bytes"

    def _find(self) -> str:
        found = self._store.find(self._key)
        if found is None:
            raise StoreError(f"{self._key} was written, and is not found")
        _expect("size", found.size_bytes, len(_SMALL))
        apart = abs(found.last_modified_ms - self._machine.clock.time_ms()) / 1000
        return f"{found.size_bytes} bytes; the store's clock and this one are within {apart + 1:.0f} s"

    def _read(self) -> str:
        _expect("content", bytes(self._store.fetch(self._key)), _SMALL)
        return "the same bytes"

    def _range(self) -> str:
        start, end = _RANGE
        part = self._store.fetch_range(self._key, start_position=start, end_position_exclusive=end)
        _expect("range", bytes(part), _SMALL[start:end])
        behind = self._store.fetch_range(self._key, start_position=1 << 20, end_position_exclusive=(1 << 20) + 1)
        _expect("range behind the end", bytes(behind), b"")
        return f"bytes {start} to {end - 1} alone"

    def _list(self) -> str:
        if not any(info.key == self._key for info in self._store.iter_objects(self._key)):
            raise StoreError(f"{self._key} was written, and is not listed")
        return "the object is listed"

    def _multipart(self) -> str:
        key = f"{self._key}-parts"
        upload = self._store.begin_upload(key, part_bytes=self._part_bytes)
        try:
            upload.put_part(1, [bytes(self._part_bytes)])
            upload.put_part(2, [_LAST_PART])
            upload.complete()
        except TierlogError as error:
            try:
                upload.abort()
            except StoreError as left:
                error.add_note(f"its parts may be left: {left}")
            raise
        end = self._part_bytes + len(_LAST_PART)
        tail = self._store.fetch_range(key, start_position=self._part_bytes - 1, end_position_exclusive=end)
        _expect("last bytes", bytes(tail), b"\0" + _LAST_PART)
        self._store.delete([key])
        return f"two parts, the first of {self._part_bytes} bytes"

    def _abort(self) -> str:
        key = f"{self._key}-aborted"
        upload = self._store.begin_upload(key, part_bytes=self._part_bytes)
        upload.put_part(1, [_LAST_PART])
        upload.abort()
        if self._store.find(key) is not None:
            raise StoreError(f"{key}: the object exists although its upload was aborted")
        left = [each for each in self._store.iter_uploads(key) if each.key == key]
        if left:
            raise StoreError(f"{key}: an upload that was aborted is still listed")
        return "an upload given up leaves nothing"

    def _delete(self) -> str:
        self._store.delete([f"{self._key}{end}" for end in ("", "-parts", "-aborted", "-gone")])
        if self._store.find(self._key) is not None:
            raise StoreError(f"{self._key} was removed, and is still there")
        return "the objects are gone, and removing what is not there is fine"

    def _capabilities(self) -> str:
        return str(probe_store(self._store, probe_key(self._machine, self._prefix)))


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise StoreError(f"{what}: {expected!r} expected, {found!r} found")


#: What each step needs of the store's rights: S3's names, then Google's, then Azure's.
_RIGHTS: Final = {
    "write": "s3:PutObject (and kms:GenerateDataKey where a KMS key encrypts); storage.objects.create and delete; "
    "Storage Blob Data Contributor",
    "find": "s3:GetObject; storage.objects.get; Storage Blob Data Reader",
    "read": "s3:GetObject (and kms:Decrypt where a KMS key encrypts); storage.objects.get; Storage Blob Data Reader",
    "range": "s3:GetObject; storage.objects.get; Storage Blob Data Reader",
    "list": "s3:ListBucket on the bucket itself; storage.objects.list; Storage Blob Data Reader",
    "multipart": "s3:PutObject and s3:ListMultipartUploadParts; storage.objects.create; Storage Blob Data Contributor",
    "abort": "s3:AbortMultipartUpload and s3:ListBucketMultipartUploads; storage.objects.create; "
    "Storage Blob Data Contributor",
    "delete": "s3:DeleteObject; storage.objects.delete; Storage Blob Data Contributor",
}


def _advice(step: str, error: TierlogError) -> str:
    text = str(error).lower()
    if "certificate" in text:
        return "the server's certificate is not trusted: give store.root_certificate, or check the endpoint's name"
    if isinstance(error, StorePermissionError):
        return _permission_advice(step, text)
    if isinstance(error, ObjectNotFoundError) and step == "write":
        return "there is no such bucket, container or folder: check its name, the region and the endpoint"
    if isinstance(error, StoreUnavailableError):
        if any(word in text for word in ("name or service", "getaddrinfo", "resolve", "dns", "connect to host")):
            return "nobody answers at the endpoint: check its name and port, DNS, proxy and firewall"
        return "the store does not answer in time or asks to slow down: try again; if it stays, look at the store"
    if "region" in text:
        return "give the bucket's own region (storage.s3.region)"
    return "see what the store says above"


def _permission_advice(step: str, text: str) -> str:
    if step == "identity":
        return "the one source of credentials that is configured gives none: mend it, or configure another one"
    if "expired" in text:
        return "the credentials have expired: renew them at their source"
    if "signaturedoesnotmatch" in text:
        return "the secret key, or the region, does not belong to the access key"
    if "requesttimetooskewed" in text:
        return "this machine's clock is wrong: set it"
    needed = _RIGHTS.get(step)
    return f"this identity needs the right to {step}: {needed}" if needed else "give this identity more rights"
