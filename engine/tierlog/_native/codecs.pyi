from typing_extensions import Buffer

def library_version(codec: int) -> str | None:
    """Version of the library that reads a codec, as ``1.5.7``; None for snappy, which has none, and unknown codecs.

    Of lz4 and zstd the library that is loaded; of gzip (libdeflate) the one compiled against.
    """

def drop_contexts() -> None:
    """Free the libraries' contexts that are not in use at this moment: some MiB for each that compressed. The next
    calls make theirs anew, in some µs.
    """

def decompress(data: Buffer, codec: int, *, magic: int = 2, limit: int = 1 << 28) -> bytes:
    """One compressed stream of a record batch: 1 gzip, 2 snappy, 3 lz4, 4 zstd.

    Raises:
        CorruptRecordError: the stream is malformed, or the codec is unknown or not legal for this magic.
        SizeLimitError: the content is larger than ``limit`` bytes.
    """

def decompress_into(data: Buffer, codec: int, out: Buffer, *, magic: int = 2) -> int:
    """Decompress into a writable buffer whose size is the limit; return the content's size in bytes.

    Used for the chunks of remote segments (zstd), so that neighbouring chunks land side by side and nothing is joined.
    """

def decompress_prefix_into(data: Buffer, out: Buffer, wanted: int) -> int:
    """Decompress the first ``wanted`` bytes of a zstd frame, and little more, to the start of ``out``; return their
    number.

    ``out`` has room for the whole content, which is decoded where the frame does not say its size. Bytes behind the
    decoded ones are not checked.

    Raises:
        CorruptRecordError: the frame's structure, or its decoded part, is malformed.
        SizeLimitError: the content is larger than ``out``.
    """

#: Levels of libzstd; 0 is its default, 3.
COMPRESSION_LEVEL_MIN: int
COMPRESSION_LEVEL_MAX: int

def compress_bound(size: int) -> int:
    """The most bytes that the zstd frame of ``size`` bytes can take; rises with it.

    Raises:
        ValueError: more than one frame can be asked to hold.
    """

def compress_into(data: Buffer, out: Buffer, *, level: int) -> int:
    """One zstd frame with its content size declared, no checksum, no dictionary; returns its size in bytes.

    Args:
        data: Any contiguous buffer.
        out: At least ``compress_bound(len(data))`` bytes, apart from ``data``; what lies behind the frame
            means nothing.
        level: COMPRESSION_LEVEL_MIN to COMPRESSION_LEVEL_MAX.

    Raises:
        ValueError: ``out`` is too small, or there is no such level. MemoryError: libzstd's context cannot be had.

    Thread safety: any number of threads, at once; contexts come from a pool of the process. The GIL is released.
    """
