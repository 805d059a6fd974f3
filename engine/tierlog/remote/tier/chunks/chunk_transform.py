"""Chunks, stored and undone: zstd frames and AES-GCM units, straight into the caller's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import Buffer

from tierlog._native.codecs import (
    COMPRESSION_LEVEL_MAX,
    COMPRESSION_LEVEL_MIN,
    compress_bound,
    compress_into,
    decompress_into,
    decompress_prefix_into,
)
from tierlog.errors import CorruptDataError, CorruptObjectError, EncryptionKeyError, SizeLimitError
from tierlog.remote.tier.chunks.key_ring import DATA_KEY_BYTES, KeyRing
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


#: The plugin's limit.
CHUNK_BYTES_MAX: Final = (1 << 30) - 1


class ChunkAssembler:
    """Makes the stored chunks of one segment. Everything per byte runs without the GIL.

    Args (bytes):
        original_chunk_size: Of all chunks but the last, 1 to CHUNK_BYTES_MAX.
        original_file_size: Bounds the chunks of a small file.
        compression_level: zstd's; None: chunks are not compressed.
        data_key: 32 bytes for AES-256-GCM; None: chunks are not encrypted.
        aad: Of the segment; with data_key only.

    Raises:
        ValueError: sizes or level out of range, a key of another size, or one of key and AAD only.

    Thread safety: any number of threads, at once.
    """

    def __init__(
        self,
        *,
        original_chunk_size: int,
        original_file_size: int,
        compression_level: int | None,
        data_key: bytes | None,
        aad: bytes | None,
    ) -> None:
        if not 0 < original_chunk_size <= CHUNK_BYTES_MAX or original_file_size < 0:
            raise ValueError(f"chunks of {original_chunk_size} bytes of a file of {original_file_size}")
        if compression_level is not None and not COMPRESSION_LEVEL_MIN <= compression_level <= COMPRESSION_LEVEL_MAX:
            raise ValueError(f"zstd has no level {compression_level}")
        if (data_key is None) != (aad is None):
            raise ValueError("a data key and its AAD come together")
        self._original_max = min(original_chunk_size, original_file_size)
        self._level = compression_level
        self._aad = aad
        self._cipher: AESGCM | None = None if data_key is None else _cipher(data_key)

    def stored_bound(self, original_size: int) -> int:
        """The most bytes that a chunk of so many can take when stored; rises with it."""
        framed = original_size if self._level is None else compress_bound(original_size)
        return framed if self._cipher is None else framed + UNIT_OVERHEAD_BYTES

    def transform(self, source: Buffer, out: Buffer, *, iv: bytes | None = None) -> int:
        """One chunk; returns its stored size.

        Args:
            source: The chunk's original bytes, at most ``original_chunk_size``.
            out: Writable, at least ``stored_bound(len(source))`` bytes, apart from ``source``; what lies behind the
                stored size means nothing. A chunk that is stored as it is needs no call: read it into its place.
            iv: 12 bytes, never given twice with one key; None where nothing is encrypted.

        Raises:
            ValueError: one of these does not hold.
        """
        original, stored = memoryview(source).cast("B"), memoryview(out).cast("B")
        if (iv is not None) != (self._cipher is not None) or (iv is not None and len(iv) != IV_BYTES):
            raise ValueError(f"an IV of {IV_BYTES} bytes for every encrypted chunk, and for no other")
        bound = self.stored_bound(len(original))
        if len(original) > self._original_max or len(stored) < bound:
            raise ValueError(
                f"a chunk of {len(original)} bytes into {len(stored)}; at most {self._original_max}, {bound}"
            )
        if iv is None or self._cipher is None:
            return self._frame(original, stored)
        if self._level is None:
            return self.seal(original, stored, iv=iv)
        frame = new_buffer(compress_bound(len(original)))
        return self.seal(frame[: self._frame(original, frame)], stored, iv=iv)

    def seal(self, plain: Buffer, out: Buffer, *, iv: bytes) -> int:
        """One encrypted unit that is no chunk, so never compressed: an index. As ``transform``; ``plain`` may have any
        size below 2 GiB, and ``out`` has at least UNIT_OVERHEAD_BYTES more.
        """
        content, unit = memoryview(plain).cast("B"), memoryview(out).cast("B")
        size = len(content) + UNIT_OVERHEAD_BYTES
        if self._cipher is None or len(iv) != IV_BYTES or len(unit) < size:
            raise ValueError(f"a unit of {size} bytes into {len(unit)} takes a data key and an IV of {IV_BYTES} bytes")
        unit[:IV_BYTES] = iv
        self._cipher.encrypt_into(iv, content, self._aad, unit[IV_BYTES:size])
        return size

    def _frame(self, original: memoryview, out: memoryview) -> int:
        if self._level is not None:
            return compress_into(original, out, level=self._level)
        out[: len(original)] = original
        return len(original)


def _cipher(data_key: bytes) -> AESGCM:
    if len(data_key) != DATA_KEY_BYTES:
        raise ValueError(f"a data key of {len(data_key)} bytes, not {DATA_KEY_BYTES}")
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(data_key)
