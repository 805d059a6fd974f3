"""Key rotation without rewriting data: the data key of each segment under the active pair, in its manifest.

Only the text of ``dataKey`` changes; chunks and indexes stay. A manifest is replaced in one request, and only if it has
not changed since it was read: a manifest that was deleted or rewritten meanwhile is left alone. The next run continues
an interrupted one: manifests under the active pair are left alone.

A segment's metadata may hold the SHA-256 of its manifest (``manifest.digest.enabled``): a new manifest of such a
segment would be refused by its brokers, for good, since no wrapping ever comes again. Only the metadata topic says
which segments these are; they are left alone.

A footer names the manifest that it was written with: behind a new manifest it is written anew, with the same content,
or, if it cannot be believed, removed. Until then readers pass over it.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    EncryptionKeyError,
    ObjectConflictError,
    ObjectNotFoundError,
    TierlogError,
)
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.config import read_storage_config
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.chunks.key_ring import KeyRing, read_key_ring
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata
from tierlog.remote.tier.objects.footer import parse_totals, rebind_footer
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.tier.objects.manifest_writing import rewrap_manifest
from tierlog.remote.tier.objects.object_keys import FOOTER, ObjectKey
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_footers import unit_opener, unit_sealer
from tierlog.runtime.waiting.threads import run_all
from tierlog.upkeep.object_groups import listed_key

_BATCH: Final = 250
#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, EncryptionKeyError, ObjectConflictError)


class RewrapState(enum.StrEnum):
    """The outcome of one manifest."""

    PENDING = "pending"
    """Under another pair than the active one; nothing was written."""
    REWRAPPED = "rewrapped"
    """Under the active pair now, and read back."""
    FAILED = "failed"
    """As it was, or not known; the error says why."""


@dataclass(frozen=True, slots=True)
class Rewrap:
    """One manifest that is, or was, not under the active pair.

    Attributes:
        name: The manifest's key, for messages.
        key_id: The pair that wrapped its data key; None if the manifest cannot be read.
    """

    name: str
    key: ObjectKey
    state: RewrapState
    key_id: str | None
    error: TierlogError | None = None


class KeyRotation:
    """One run over the manifests of a bucket.

    Args:
        tier: The bucket; the caller closes it.
        key_ring: Has the private keys of old pairs, and both of the active one.
        metadata: Says which segments have a digest; segments that it does not know are left alone. None: no segment has
            one.
        apply: Whether to write; else the run only reports its intended changes.
        workers: Manifests under way at once.

    Attributes:
        counts: After a run, the number of manifests by the id of the pair that they had before; "" for segments that
            are not encrypted.

    Raises:
        ConfigError: a layout without encryption, or no active pair.
    """

    def __init__(
        self, tier: Tier, key_ring: KeyRing, *, metadata: MetadataView | None, apply: bool, workers: int = 16
    ) -> None:
        if tier.layout != "aiven":
            raise ConfigError(f"{tier.describe()}: nothing is encrypted in this layout")
        if key_ring.active_key_id is None:
            raise ConfigError("no encryption.key.pair.id is configured: there is no pair to rewrap to")
        self._tier = tier
        self._store = tier.store
        self._key_ring = key_ring
        self._metadata = metadata
        self._apply = apply
        self._workers = workers
        self.counts: Counter[str] = Counter()
        self._footers: set[str] = set()
        self._lock = tier.machine.scheduler.lock()

    def __iter__(self) -> Iterator[Rewrap]:
        """Yield the manifests that are not under the active pair, by key.

        Raises:
            StoreError and its kinds: the store fails in a way that every manifest would meet.
        """
        self.counts.clear()
        found = self._manifests()
        with self._tier.machine.scheduler.pool(self._workers, name="tierlog-rewrap") as pool:
            while batch := list(itertools.islice(found, _BATCH)):
                for outcome in run_all(pool, self._outcome, batch):
                    if outcome is not None:
                        yield outcome

    def _manifests(self) -> Iterator[tuple[str, ObjectKey]]:
        """Yield all manifests, listed to the end before the first is changed: a listing must not meet its
        own changes.
        """
        listed = []
        for info in self._store.iter_objects(self._tier.scope.folder or self._tier.scope.key_prefix):
            key = listed_key(self._tier, info.key)
            if key is not None and key.suffix == MANIFEST:
                listed.append((info.key, key))
            elif key is not None and key.suffix == FOOTER:
                self._footers.add(info.key)
        yield from sorted(listed, key=lambda each: each[0])

    def _outcome(self, manifest: tuple[str, ObjectKey]) -> Rewrap | None:
        full_key, key = manifest
        name = self._tier.scope.name(full_key, self._tier.scope.key_prefix)
        key_id: str | None = None
        try:
            # The etag first: a manifest that is replaced between the two is then another one than is expected.
            info = self._store.find(full_key)
            if info is None:
                return None  # deleted since it was listed
            data = bytes(
                self._store.fetch_range(full_key, start_position=0, end_position_exclusive=MANIFEST_BYTES_MAX + 1)
            )
            encryption = parse_manifest(data, where=name).encryption
            key_id = encryption.key_id if encryption is not None else None
            with self._lock:
                self.counts[key_id or ""] += 1
            moved = rewrap_manifest(data, self._key_ring, where=name)
            if moved is None:
                return None
            self._require_no_digest(key, name)
            if not self._apply:
                return Rewrap(name, key, RewrapState.PENDING, key_id)
            self._replace(full_key, name, data, moved, info.etag)
            self._rebind_footer(full_key, name, data, moved)
        except ObjectNotFoundError:
            return None
        except _OF_ONE_SEGMENT as error:
            return Rewrap(name, key, RewrapState.FAILED, key_id, error)
        return Rewrap(name, key, RewrapState.REWRAPPED, key_id)

    def _require_no_digest(self, key: ObjectKey, name: str) -> None:
        """Raise ObjectConflictError if the segment's metadata may hold a digest of the manifest."""
        if self._metadata is None or key.segment_id is None:
            return
        known = self._metadata.find(RemoteLogSegmentId(key.topic_id_partition, key.segment_id))
        if known is None:
            raise ObjectConflictError(f"{name}: the metadata does not know the segment, which may have a digest")
        if decode_custom_metadata(known.custom_metadata, where=name).manifest_digest is not None:
            raise ObjectConflictError(f"{name}: its digest is in the metadata topic: copy the segment anew instead")

    def _replace(self, full_key: str, name: str, data: bytes, moved: bytes, etag: str | None) -> None:
        """Replace a manifest, and check it before and after.

        Raises:
            ObjectConflictError: the manifest has changed since it was read. CorruptObjectError: the store returns other
                bytes than it was given. EncryptionKeyError. StoreError and its kinds.
        """
        if etag is None:
            raise ConfigError(f"{self._store.describe()}: no ETags, without which manifests are not replaced safely")
        before, after = (parse_manifest(each, where=name) for each in (data, moved))
        assert before.encryption is not None
        assert after.encryption is not None
        self._key_ring.require_same_data_key(before.encryption, after.encryption)
        self._store.put(full_key, moved, expected_etag=etag)
        if bytes(self._store.fetch(full_key)) != moved:
            text = "the manifest does not come back as it was written; the old one has the data key under the old pair"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=name)

    def _rebind_footer(self, full_key: str, name: str, data: bytes, moved: bytes) -> None:
        """Write the footer of a segment for its new manifest, if there is one.

        Raises:
            EncryptionKeyError. StoreError and its kinds.
        """
        footer_key = full_key[: -len(MANIFEST)] + FOOTER
        if footer_key not in self._footers:
            return
        encryption = parse_manifest(data, where=name).encryption
        unseal = unit_opener(self._key_ring, encryption)
        try:
            stored = self._store.fetch(footer_key)
            binding = parse_totals(stored, unseal=unseal).binding
            if binding.description_digest != hashlib.sha256(data).digest():
                raise CorruptObjectError("of another manifest", fault="NOT_EQUAL", where=footer_key)
            binding = replace(binding, description_digest=hashlib.sha256(moved).digest())
            seal = unit_sealer(self._key_ring, encryption, self._tier.machine.rng)
            self._store.put(footer_key, rebind_footer(stored, binding, seal=seal, unseal=unseal))
        except CorruptObjectError:
            self._store.delete([footer_key])
        except ObjectNotFoundError:
            return


def rotation_key_ring(config: Mapping[str, str], tier: Tier) -> KeyRing:
    """Return the key ring of a configuration, with its active pair.

    Raises:
        ConfigError: encryption is not enabled, or a pair cannot be read.
    """
    read = read_storage_config(config, machine=tier.machine)
    if not read.encryption_enabled:
        raise ConfigError("encryption.enabled and encryption.key.pair.id are needed: the latter names the new pair")
    return read_key_ring(read, tier.machine, writing=True)
