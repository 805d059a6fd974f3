"""The data key of one segment under the active pair, in its manifest; and that work as a job's, here or elsewhere.

A manifest is replaced in one request, and only if it has not changed since it was read: a manifest that was deleted or
rewritten meanwhile is left alone. A footer names the manifest that it was written with: behind a new manifest it is
written anew, with the same content, or, if it cannot be believed, removed. Until then readers pass over it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
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
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier.chunks.key_ring import KeyRing, read_key_ring
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.objects.footer import TOTALS_BYTES_MAX, parse_totals, rebind_footer
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.tier.objects.manifest_writing import rewrap_manifest
from tierlog.remote.tier.objects.object_keys import FOOTER, ObjectKey
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_footers import unit_opener, unit_sealer
from tierlog.upkeep.segment_work import KeptOutcome, LedgerKey, SegmentWork, WorkOrder

#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, EncryptionKeyError, ObjectConflictError)
#: Manifests that one task has under way: each waits for requests, and reads no log.
_SIDE_BY_SIDE: Final = 16


class RewrapState(enum.StrEnum):
    """The outcome of one manifest."""

    PENDING = "pending"
    """Under another pair than the active one; nothing was written."""
    REWRAPPED = "rewrapped"
    """Under the active pair now, and read back."""
    FAILED = "failed"
    """The manifest is as it was, or its state is not known; the error says why."""


@dataclass(frozen=True, slots=True)
class Rewrap:
    """One manifest that is, or was, not under the active pair.

    Attributes:
        name: The manifest's key, for messages.
        key_id: The pair that wrapped its data key; None if the manifest cannot be read.
        active_key_id: The pair under which it is put.
    """

    name: str
    key: ObjectKey
    state: RewrapState
    key_id: str | None
    active_key_id: str
    error: TierlogError | None = None


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as it was listed.

    Attributes:
        full_key: In the store.
        key: What it says.
        size_bytes: Of the manifest.
        log_bytes: Of the log object beside it, as stored.
        modified_ms: Of the log object, which a rewrap does not touch.
        has_footer: Whether there is a footer beside it.
        refusal: Why it must not be replaced, as the metadata shows; None for no reason.
    """

    full_key: str
    key: ObjectKey
    size_bytes: int
    log_bytes: int
    modified_ms: int
    has_footer: bool
    refusal: TierlogError | None = None


@dataclass(frozen=True, slots=True)
class ManifestOutcome:
    """The outcome of a manifest, also of one with which nothing is wrong.

    Attributes:
        key_id: The pair that it had before; "" for a segment that is not encrypted, None if it is gone or unreadable.
        rewrap: None if there was nothing to do.
    """

    key_id: str | None
    rewrap: Rewrap | None


class RewrapWork(SegmentWork[StoredManifest, ManifestOutcome]):
    """The rewrapping of single manifests.

    Args:
        tier: The bucket; the caller closes it.
        key_ring: As for KeyRotation.
        apply: Whether to write.
        order: As for SegmentWork.
    """

    side_by_side = _SIDE_BY_SIDE

    def __init__(
        self,
        tier: Tier,
        key_ring: KeyRing,
        *,
        apply: bool,
        order: WorkOrder[StoredManifest, ManifestOutcome] | None = None,
    ) -> None:
        super().__init__(order)
        self._tier = tier
        self._store = tier.store
        self._key_ring = key_ring
        self._apply = apply

    def key(self, item: StoredManifest) -> LedgerKey:
        """Return the name of the manifest, in the state of its log: the manifest itself changes."""
        return LedgerKey(self._name(item), item.log_bytes, item.modified_ms)

    def cost_bytes(self, item: StoredManifest) -> int:
        """Return the size of the manifest: no log is read."""
        return item.size_bytes

    def kept(self, outcome: ManifestOutcome) -> Mapping[str, object] | None:
        """Return the pair that the manifest had, if it needs no other any more."""
        if outcome.key_id is None or (outcome.rewrap and outcome.rewrap.state is not RewrapState.REWRAPPED):
            return None
        return {"keyId": outcome.key_id, "rewrapped": str(outcome.rewrap is not None)}

    def recalled(self, item: StoredManifest, kept: KeptOutcome) -> ManifestOutcome:
        """Return the outcome that was kept."""
        key_id, rewrapped = kept.text("keyId"), kept.text("rewrapped")
        if rewrapped not in ("True", "False"):
            raise kept.refuse("rewrapped is True or False")
        if rewrapped == "False":
            return ManifestOutcome(key_id, None)
        return self._outcome(item, RewrapState.REWRAPPED, key_id)

    def _outcome(
        self, item: StoredManifest, state: RewrapState, key_id: str | None, error: TierlogError | None = None
    ) -> ManifestOutcome:
        active = str(self._key_ring.active_key_id)
        return ManifestOutcome(key_id, Rewrap(self._name(item), item.key, state, key_id or None, active, error))

    def _name(self, item: StoredManifest) -> str:
        return self._tier.scope.name(item.full_key, self._tier.scope.key_prefix)

    def do(self, item: StoredManifest) -> ManifestOutcome:
        """Put a manifest under the active pair, unless it is."""
        name = self._name(item)
        key_id: str | None = None
        try:
            # The etag first: a manifest that is replaced between the two is then another one than is expected.
            info = self._store.find(item.full_key)
            if info is None:
                return ManifestOutcome(None, None)  # deleted since it was listed
            data = bytes(
                self._store.fetch_range(item.full_key, start_position=0, end_position_exclusive=MANIFEST_BYTES_MAX + 1)
            )
            encryption = parse_manifest(data, where=name).encryption
            key_id = encryption.key_id if encryption is not None else ""
            moved = rewrap_manifest(data, self._key_ring, where=name)
            if moved is None:
                return ManifestOutcome(key_id, None)
            if item.refusal is not None:
                raise item.refusal
            if not self._apply:
                return self._outcome(item, RewrapState.PENDING, key_id)
            self._replace(item.full_key, name, data, moved, info.etag)
            if item.has_footer:
                self._rebind_footer(item.full_key, name, data, moved)
        except ObjectNotFoundError:
            return ManifestOutcome(key_id, None)
        except _OF_ONE_SEGMENT as error:
            return self._outcome(item, RewrapState.FAILED, key_id, error)
        return self._outcome(item, RewrapState.REWRAPPED, key_id)

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
        """Write the footer of a segment for its new manifest.

        Raises:
            EncryptionKeyError. StoreError and its kinds.
        """
        footer_key = full_key[: -len(MANIFEST)] + FOOTER
        encryption = parse_manifest(data, where=name).encryption
        unseal = unit_opener(self._key_ring, encryption)
        try:
            stored = self._store.fetch_range(footer_key, start_position=0, end_position_exclusive=TOTALS_BYTES_MAX)
            head = parse_totals(stored, unseal=unseal)
            if len(memoryview(stored)) == TOTALS_BYTES_MAX:  # one byte more than a footer has is none
                end = head.size_bytes + 1
                stored = self._store.fetch_range(footer_key, start_position=0, end_position_exclusive=end)
            binding = head.binding
            if binding.description_digest != hashlib.sha256(data).digest():
                raise CorruptObjectError("of another manifest", fault="NOT_EQUAL", where=footer_key)
            binding = replace(binding, description_digest=hashlib.sha256(moved).digest())
            seal = unit_sealer(self._key_ring, encryption, self._tier.machine.rng)
            self._store.put(footer_key, rebind_footer(stored, binding, seal=seal, unseal=unseal))
        except CorruptObjectError:
            self._store.delete([footer_key])
        except ObjectNotFoundError:
            return


def open_rewrap(tier: Tier, *, config: Mapping[str, str], apply: bool) -> RewrapWork:
    """Return the work over an open tier. Raises: as ``rotation_key_ring``."""
    return RewrapWork(tier, rotation_key_ring(config, tier), apply=apply)


def rotation_key_ring(config: Mapping[str, str], tier: Tier) -> KeyRing:
    """Return the key ring of a configuration, with its active pair.

    Raises:
        ConfigError: encryption is not enabled, or a pair cannot be read.
    """
    read = read_storage_config(config, machine=tier.machine)
    if not read.encryption_enabled:
        raise ConfigError("encryption.enabled and encryption.key.pair.id are needed: the latter names the new pair")
    return read_key_ring(read, tier.machine, writing=True)
