"""Stored bytes back to the broker's: AES-GCM units and zstd frames, straight into the caller's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierlog._native.codecs import decompress_into, decompress_prefix_into
from tierlog.errors import CorruptDataError, CorruptObjectError, EncryptionKeyError, SizeLimitError
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.segment import SegmentEncryption, StoredPart, StoredSegment
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

IV_BYTES: Final = 12
TAG_BYTES: Final = 16
UNIT_OVERHEAD_BYTES: Final = IV_BYTES + TAG_BYTES
_ZSTD: Final = 4
#: Only the plugin's layout encrypts: this object has the key's id and the wrapped data key.
_DESCRIPTION: Final = "rsm-manifest"


def fetch_exactly(store: ObjectStore, part: StoredPart, name: str, start: int, end_exclusive: int) -> memoryview:
    """All bytes of a range of a part's object.

    Raises:
        CorruptObjectError: the object ends before; StoreError and its kinds.
    """
    answer = store.fetch_range(part.key, start_position=start, end_position_exclusive=end_exclusive)
    found = memoryview(answer).cast("B")
    if len(found) != end_exclusive - start:
        text = f"the object ends early: {end_exclusive - start} bytes wanted, {len(found)} there"
        raise CorruptObjectError(
            text, fault="TRUNCATED", position=start, expected=end_exclusive - start, found=len(found), where=name
        )
    return found


class UnitReader:
    """Opens the stored units of one segment.

    Args:
        key_ring: Has the segment's key.
        segment: Says how they were made.
        name: Of the object, for messages.

    Raises:
        EncryptionKeyError: it has not, or the key does not open the data key.

    Thread safety: any number of threads.
    """

    def __init__(self, key_ring: KeyRing, segment: StoredSegment, name: str) -> None:
        self._name = name
        self._compression = segment.compression
        self._encryption: SegmentEncryption | None = segment.encryption
        try:
            self._cipher: AESGCM | None = key_ring.cipher(segment.encryption) if segment.encryption else None
        except EncryptionKeyError as error:
            raise EncryptionKeyError(f"{segment.name.rpartition('.')[0]}.{_DESCRIPTION}: {error}") from error

    def decrypted_size(self, stored: memoryview, *, position: int) -> int:
        """Size of a unit without IV and tag. Raises CorruptObjectError if it is too short to hold them."""
        if self._cipher is None:
            return len(stored)
        if len(stored) < UNIT_OVERHEAD_BYTES:
            text = f"an encrypted unit of {len(stored)} bytes: IV and tag alone take {UNIT_OVERHEAD_BYTES}"
            raise self._corrupt(text, "TRUNCATED", position, expected=UNIT_OVERHEAD_BYTES, found=len(stored))
        return len(stored) - UNIT_OVERHEAD_BYTES

    def decrypt_into(self, stored: memoryview, out: memoryview, *, position: int) -> None:
        """Decrypt one unit (IV, ciphertext, tag) into ``out``, whose size is ``decrypted_size``."""
        from cryptography.exceptions import InvalidTag

        assert self._cipher is not None
        assert self._encryption is not None
        try:
            self._cipher.decrypt_into(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], self._encryption.aad, out)
        except InvalidTag as cause:
            text = "not authentic: the AES-GCM tag does not fit the content, the key and the AAD"
            raise self._corrupt(text, "NOT_AUTHENTIC", position) from cause

    def open_chunk(self, stored: memoryview, out: memoryview, *, position: int, until: int = 0) -> None:
        """Open a stored chunk into ``out``, whose size is the chunk's original one.

        Where ``until`` is not 0, of a compressed chunk only so many bytes are written; those behind them mean nothing.

        Raises:
            CorruptObjectError: not authentic, not a zstd frame, or not of that size; ``position`` is in the object.
        """
        if self._cipher is not None:
            size = self.decrypted_size(stored, position=position)
            if not self._compression:
                self._require_size(size, len(out), position)
                self.decrypt_into(stored, out, position=position)
                return
            plain = new_buffer(size)
            self.decrypt_into(stored, plain, position=position)
            stored = plain
        if not self._compression:
            self._require_size(len(stored), len(out), position)
            out[:] = stored
            return
        try:
            if until:
                size = decompress_prefix_into(stored, out, until)
                self._require_size(min(size, until), until, position)
                return
            size = decompress_into(stored, _ZSTD, out)
        except SizeLimitError as cause:
            text = f"the zstd frame holds more than the {len(out)} bytes of its chunk"
            raise self._corrupt(text, "OVER_LIMIT", position, expected=len(out)) from cause
        except CorruptDataError as cause:
            raise self._corrupt(
                f"the zstd frame of the chunk is corrupt: {cause.text}", cause.fault, position
            ) from cause
        self._require_size(size, len(out), position)

    def _require_size(self, found: int, expected: int, position: int) -> None:
        if found != expected:
            text = f"the chunk holds {found} bytes, {expected} expected"
            raise self._corrupt(text, "BAD_SIZE", position, expected=expected, found=found)

    def _corrupt(
        self, text: str, fault: str, position: int, *, expected: int = 0, found: int = 0
    ) -> CorruptObjectError:
        return CorruptObjectError(
            text, fault=fault, position=position, expected=expected, found=found, where=self._name
        )


def fetch_part(
    store: ObjectStore, key_ring: KeyRing, segment: StoredSegment, part: StoredPart | None
) -> bytes | memoryview | None:
    """A part beside the log, decrypted; None for none, b"" without a request for an empty one."""
    if part is None:
        return None
    if part.size_bytes == 0:
        return b""
    name = part_name(segment, part)
    if segment.closed:
        stored = fetch_exactly(store, part, name, part.position, part.position + part.size_bytes)
    else:  # a live broker cuts the files of its active segment when it rolls
        end = part.position + part.size_bytes
        stored = memoryview(store.fetch_range(part.key, start_position=part.position, end_position_exclusive=end))
    return open_part(key_ring, segment, part, stored)


def open_part(key_ring: KeyRing, segment: StoredSegment, part: StoredPart, stored: memoryview) -> memoryview:
    """A part beside the log from its stored bytes, which are not empty.

    Raises:
        CorruptObjectError: not authentic. EncryptionKeyError.
    """
    if segment.encryption is None:
        return stored
    reader = UnitReader(key_ring, segment, part_name(segment, part))
    plain = new_buffer(reader.decrypted_size(stored, position=part.position))
    reader.decrypt_into(stored, plain, position=part.position)
    return plain


def part_name(segment: StoredSegment, part: StoredPart) -> str:
    """A part's object for messages: as the segment's name, with the part's own last element."""
    if part.key == segment.log.key:
        return segment.name
    folder, _, _ = segment.name.rpartition("/")
    own = part.key.rpartition("/")[2]
    return f"{folder}/{own}" if folder else own
