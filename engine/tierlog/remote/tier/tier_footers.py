"""The footers of a tier's segments: fetched when they are asked for, believed only where all that is known agrees.

A footer is a shortcut. Where it is missing, damaged, or of other bytes than the segment has now, the answer is None,
and whoever asked goes on as without it.

Source: docs/formats/footer.md.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import CorruptObjectError, ObjectNotFoundError
from tierlog.remote.tier.chunks.key_ring import IV_BYTES, KeyRing, SegmentEncryption
from tierlog.remote.tier.chunks.stored_segment import FooterPlace, StoredPart, StoredSegment, part_name
from tierlog.remote.tier.objects.footer import (
    TOTALS_BYTES_MAX,
    FooterBatches,
    FooterBinding,
    FooterHead,
    FooterTotals,
    Transform,
    parse_batches,
    parse_totals,
    require_bound,
)
from tierlog.remote.tier.objects.object_keys import FOOTER, LOG, aiven_segment_path, kafka_segment_path
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.weighted_cache import WeightedCache

_log = logging.getLogger(__name__)

_CACHE_BYTES: Final = 32 << 20
#: A footer that was not there may be written meanwhile.
_CACHE_RETENTION_MS: Final = 600_000
#: Of a batch in memory.
_ROW_BYTES: Final = 58


@dataclass(frozen=True, slots=True)
class FooterObject:
    """The object that a segment's footer is, or would be.

    Attributes:
        store: That has it.
        part: Its key, and its size; -1 if it was not listed.
    """

    store: ObjectStore
    part: StoredPart


class _Known(NamedTuple):
    """A footer as far as it was read; without a head there is none that can be believed."""

    head: FooterHead | None = None
    table: memoryview | None = None
    """As stored, where the first read had it all."""
    batches: FooterBatches | None = None


class TierFooters:
    """The footers of one tier.

    Args:
        store: That of the tier; stays the caller's.
        key_ring: The keys of its encrypted segments.
        machine: Its clock and locks.
        elsewhere: Where the footers lie that are not beside their segments (``footer.path``); closed with this.

    Attributes:
        elsewhere: The same.

    Thread safety: any number of threads.
    """

    def __init__(
        self, store: ObjectStore, key_ring: KeyRing, machine: Machine, *, elsewhere: ObjectStore | None = None
    ) -> None:
        self._store = store
        self._key_ring = key_ring
        self.elsewhere = elsewhere
        self._lock = machine.scheduler.lock()
        self._passed_over = 0
        self._cache: WeightedCache[tuple[str, FooterPlace], _Known] = WeightedCache(
            _CACHE_BYTES, machine=machine, retention_ms=_CACHE_RETENTION_MS
        )

    @property
    def passed_over(self) -> int:
        """Footers that were there and could not be believed, so far. The first one is logged."""
        return self._passed_over

    def fetch_totals(self, segment: StoredSegment) -> FooterTotals | None:
        """Return the sums of a segment's batches; None if there is no footer that can be believed.

        Raises:
            EncryptionKeyError: no key of the ring opens the segment. StoreError and its kinds.

        Cost: one request of 4 KiB at most, the first time.
        """
        head = self._known(segment).head
        return None if head is None else head.totals

    def fetch_batches(self, segment: StoredSegment) -> FooterBatches | None:
        """Return the batches of a segment; None if no footer has them that can be believed. Raises as ``fetch_totals``.

        Cost: one more request, if the footer is larger than 4 KiB, and some bytes a batch.
        """
        known = self._known(segment)
        if known.head is None or known.batches is not None or segment.footer is None:
            return known.batches
        try:
            found = self.place(segment, segment.footer)
            known = known._replace(table=None, batches=self._read_batches(segment, found, known))
        except CorruptObjectError as error:
            known = self._pass_over(segment, error)
        except ObjectNotFoundError:
            known = _Known()
        self._keep(segment, segment.footer, known)
        return known.batches

    def place(self, segment: StoredSegment, footer: FooterPlace) -> FooterObject:
        """Return where the footer of a segment lies: beside it where it was listed, else elsewhere if that is given.

        Raises:
            CorruptObjectError: it lies elsewhere, and the topic's name is none.
        """
        if footer.size_bytes >= 0 or self.elsewhere is None:
            key = segment.log.key[: -len(LOG)] + FOOTER
            return FooterObject(self._store, StoredPart(key, 0, footer.size_bytes, footer.size_bytes))
        return FooterObject(self.elsewhere, StoredPart(separate_key(segment), 0, -1))

    def read(self, segment: StoredSegment) -> tuple[FooterHead, FooterBatches | None] | None:
        """Read a footer whole, as it is now; None if there is none.

        Raises:
            CorruptObjectError: there is one that cannot be believed; names it. EncryptionKeyError. StoreError and its
                kinds.
        """
        footer = segment.footer
        if footer is None:
            return None
        found = self.place(segment, footer)
        try:
            known = self._read_totals(segment, footer, found)
            assert known.head is not None
            return known.head, self._read_batches(segment, found, known)
        except CorruptObjectError as error:
            raise error.located(part_name(segment, found.part)) from error.__cause__
        except ObjectNotFoundError:
            return None

    def binding(self, segment: StoredSegment, footer: FooterPlace) -> FooterBinding:
        """Return what the footer of a segment has to name."""
        return FooterBinding(segment.metadata.remote_log_segment_id.id, segment.size_bytes, footer.description_digest)

    def _known(self, segment: StoredSegment) -> _Known:
        footer = segment.footer
        if footer is None:
            return _Known()
        known = self._cache.find((segment.log.key, footer))
        if known is not None:
            return known
        try:
            known = self._read_totals(segment, footer, self.place(segment, footer))
        except CorruptObjectError as error:
            known = self._pass_over(segment, error)
        except ObjectNotFoundError:
            known = _Known()
        self._keep(segment, footer, known)
        return known

    def _keep(self, segment: StoredSegment, footer: FooterPlace, known: _Known) -> None:
        rows = 0 if known.batches is None else len(known.batches)
        size_bytes = _ROW_BYTES * rows + (0 if known.table is None else TOTALS_BYTES_MAX)
        self._cache.put((segment.log.key, footer), known, size_bytes)

    def _read_totals(self, segment: StoredSegment, footer: FooterPlace, found: FooterObject) -> _Known:
        size = footer.size_bytes if footer.size_bytes >= 0 else TOTALS_BYTES_MAX
        end = max(1, min(size, TOTALS_BYTES_MAX))
        data = memoryview(found.store.fetch_range(found.part.key, start_position=0, end_position_exclusive=end))
        head = parse_totals(data, unseal=unit_opener(self._key_ring, segment.encryption))
        bounds = {"start_offset": segment.start_offset, "end_offset": segment.end_offset}
        require_bound(head, self.binding(segment, footer), **bounds)
        if footer.size_bytes not in (-1, head.size_bytes) or len(data) > head.size_bytes:
            text = f"an object of {max(size, len(data))} bytes, the footer has {head.size_bytes}"
            raise CorruptObjectError(text, fault="BAD_SIZE", expected=head.size_bytes, found=max(size, len(data)))
        whole = len(data) == head.size_bytes
        return _Known(head, data.cast("B")[head.batches_position :] if whole else None)

    def _read_batches(self, segment: StoredSegment, found: FooterObject, known: _Known) -> FooterBatches | None:
        assert known.head is not None
        head, table = known.head, known.table
        if table is None:
            start, end = head.batches_position, head.size_bytes
            table = memoryview(
                found.store.fetch_range(found.part.key, start_position=start, end_position_exclusive=end)
            )
        return parse_batches(head, table, unseal=unit_opener(self._key_ring, segment.encryption))

    def _pass_over(self, segment: StoredSegment, error: CorruptObjectError) -> _Known:
        with self._lock:
            self._passed_over += 1
            first = self._passed_over == 1
        if first:
            told = error.located(f"{segment.name[: -len(LOG)]}{FOOTER}")
            _log.warning("a footer is passed over, further ones are not told: %s (tierlog index writes it anew)", told)
        return _Known()

    def close(self) -> None:
        """Release the store of footers elsewhere; idempotent."""
        if self.elsewhere is not None:
            self.elsewhere.close()


def unit_opener(key_ring: KeyRing, encryption: SegmentEncryption | None) -> Transform | None:
    """Return what opens the units of a segment's footer; None: they lie in the clear.

    Raises:
        EncryptionKeyError: no key of the ring opens the segment.
    """
    if encryption is None:
        return None
    from cryptography.exceptions import InvalidTag

    cipher, aad = key_ring.cipher(encryption), encryption.aad

    def unseal(unit: Buffer) -> bytes:
        stored = memoryview(unit).cast("B")
        try:
            return cipher.decrypt(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], aad)
        except (InvalidTag, ValueError) as cause:
            text = "not authentic: the AES-GCM tag does not fit the content, the key and the AAD"
            raise CorruptObjectError(text, fault="NOT_AUTHENTIC") from cause

    return unseal


def unit_sealer(key_ring: KeyRing, encryption: SegmentEncryption | None, rng: Rng) -> Transform | None:
    """Return what makes the units of a segment's footer; None: they lie in the clear. Raises as ``unit_opener``."""
    if encryption is None:
        return None
    cipher, aad = key_ring.cipher(encryption), encryption.aad

    def seal(plain: Buffer) -> bytes:
        iv = rng.secret_bytes(IV_BYTES)
        return iv + cipher.encrypt(iv, bytes(plain), aad)

    return seal


def separate_key(segment: StoredSegment) -> str:
    """Return the key of a segment's footer that is not beside it: as the layout makes keys of ids, without a prefix.

    Raises:
        CorruptObjectError: the topic's name is none.
    """
    metadata = segment.metadata
    try:
        if segment.layout == "kafka":
            return f"{kafka_segment_path(metadata)}/{segment.start_offset:020d}.{FOOTER}"
        return f"{aiven_segment_path(metadata)}.{FOOTER}"
    except ValueError as error:
        raise CorruptObjectError(f"{metadata.remote_log_segment_id}: {error}", fault="BAD_ENTRY") from error
