from typing_extensions import Buffer

def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C of the bytes, extending ``crc``. The GIL is released above 32 KiB."""

def crc32c_combine(crc_a: int, crc_b: int, size_b: int) -> int:
    """CRC-32C of A followed by B, from both checksums and the size of B in bytes."""

def crc32c_table(data: Buffer, crc: int = 0) -> int:
    """Compute ``crc32c`` by tables, whatever the processor has: for tests."""

def crc32c_implementation() -> str:
    """Return the implementation chosen at run time: "sse42-vpclmul", "sse42-pclmul", "armv8" or "table"."""

def crc32(data: Buffer, crc: int = 0) -> int:
    """CRC-32 as in zlib (magic 0 and 1)."""

def xxhash32(data: Buffer, seed: int = 0) -> int:
    """xxHash32, as in the header of LZ4 frames."""
