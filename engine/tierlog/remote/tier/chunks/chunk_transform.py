"""Chunks as they are stored: zstd frames and AES-GCM units, made straight in the caller's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import Buffer

from tierlog._native.codecs import (
    COMPRESSION_LEVEL_MAX,
    COMPRESSION_LEVEL_MIN,
    compress_bound,
    compress_into,
)
from tierlog.remote.tier.chunks.key_ring import DATA_KEY_BYTES, IV_BYTES, UNIT_OVERHEAD_BYTES
from tierlog.runtime.machine.buffers import new_buffer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


#: The plugin's limit.
CHUNK_BYTES_MAX: Final = (1 << 30) - 1


class ChunkAssembler:
    """The maker of one segment's stored chunks. Everything per byte runs without the GIL.

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
        """Return the most bytes that a chunk of so many can take when stored; rises with it."""
        framed = original_size if self._level is None else compress_bound(original_size)
        return framed if self._cipher is None else framed + UNIT_OVERHEAD_BYTES

    def transform(self, source: Buffer, out: Buffer, *, iv: bytes | None = None) -> int:
        """Transform one chunk; return its stored size.

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
        """Seal one encrypted unit that is no chunk, so never compressed: an index. As ``transform``; ``plain`` may have
        any size below 2 GiB, and ``out`` has at least UNIT_OVERHEAD_BYTES more.
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
