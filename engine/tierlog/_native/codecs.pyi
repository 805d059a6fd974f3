from typing_extensions import Buffer

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
