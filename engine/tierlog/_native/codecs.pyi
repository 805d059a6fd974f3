from typing_extensions import Buffer

def library_version(codec: int) -> str | None:
    """Version of the library that reads a codec, as ``1.5.7``; None for snappy, which tells none, and unknown codecs.

    Of lz4 and zstd the library that is loaded; of gzip (libdeflate) the one compiled against.
    """

def decompress(data: Buffer, codec: int, *, magic: int = 2, limit: int = 1 << 28) -> bytes:
    """One compressed stream of a record batch: 1 gzip, 2 snappy, 3 lz4, 4 zstd.

    Raises:
        CorruptRecordError: the stream is malformed, or the codec is unknown or not legal for this magic.
        SizeLimitError: the content is larger than ``limit`` bytes.
    """

def decompress_into(data: Buffer, codec: int, out: Buffer, *, magic: int = 2) -> int:
    """As decompress, into a writable buffer whose size is the limit; returns the content's size in bytes.

    Used for the chunks of remote segments (zstd), so that neighbouring chunks land side by side and nothing is joined.
    """
