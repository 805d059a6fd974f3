from typing_extensions import Buffer

#: Of an encrypted unit: 12 bytes of IV in front, 16 of tag behind.
UNIT_OVERHEAD_BYTES: int

class ChunkAssembler:
    """Turns the chunks of one segment into what is stored, straight into the caller's part buffers, without the GIL.

    Args (bytes):
        original_chunk_size: > 0, of all chunks but the last.
        original_file_size: >= 0; bounds the chunks of a small file.
        compression_level: zstd's, one frame a chunk with its content size declared; None: not compressed.
        data_key: 32 bytes of AES-256-GCM, kept until the assembler goes and wiped then; None: not encrypted.
        aad: Of the segment; goes with data_key.

    Raises:
        ValueError: sizes or level out of range, a key of another size, or only one of key and AAD.

    Thread safety: any number of threads, at once; library contexts come from a pool of the process.
    """

    def __init__(
        self,
        *,
        original_chunk_size: int,
        original_file_size: int,
        compression_level: int | None,
        data_key: bytes | None,
        aad: bytes | None,
    ) -> None: ...
    def chunk_bound(self) -> int:
        """The most bytes that one stored chunk of this file can take."""
    def stored_bound(self, original_size: int) -> int:
        """The most bytes that a chunk of ``original_size`` can take when stored; rises with it."""
    def transform(self, source: Buffer, out: Buffer, *, iv: bytes | None = None) -> int:
        """One chunk; returns its stored size. Nothing is copied where chunks are stored as they are and ``out`` begins
        where ``source`` does: read the file into the part buffer, and this costs nothing.

        Args:
            source: The original bytes of the chunk, at most ``original_chunk_size``.
            out: At least ``stored_bound(len(source))`` bytes; what lies behind the stored size means nothing.
            iv: 12 bytes, fresh for every call; None where nothing is encrypted.

        Raises:
            ValueError: ``out`` is too small, ``source`` too large, or the IV missing, of another size or one too much.
            ConfigError: libcrypto of this machine gives no AES-256-GCM.
        """

class ChunkOpener:
    """Stored chunks of one segment back into the caller's memory, without the GIL.

    Args:
        compressed: Chunks are zstd frames.
        data_key, aad: As of ChunkAssembler.

    Thread safety: any number of threads, at once.
    """

    def __init__(self, *, compressed: bool, data_key: bytes | None, aad: bytes | None) -> None: ...
    def open(self, stored: Buffer, out: Buffer) -> None:
        """One stored chunk into ``out``, whose size is the chunk's original one.

        Raises:
            CorruptObjectError: by its fault TRUNCATED (too short for IV and tag), NOT_AUTHENTIC, BAD_COMPRESSED,
                BAD_SIZE (``found`` bytes, not ``expected``); of the chunk, so its position is 0.
            SizeLimitError: the frame holds more than ``out``.
        """
    def decrypt(self, stored: Buffer, out: Buffer) -> None:
        """One encrypted unit that is no chunk, so never compressed: an index. Raises as ``open``."""
