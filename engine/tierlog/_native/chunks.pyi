import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

#: chunk, original_size, from, to, transformed_position, transformed_size: int64 each (the C struct tl_chunk_view).
CHUNK_VIEW_DTYPE: np.dtype[np.void]

class ChunkIndex:
    """The places of a remote segment's chunks; fixed sizes, or one size a chunk. Immutable, picklable, thread-safe.

    Args (bytes):
        original_chunk_size: > 0. original_file_size: >= 0, of the untransformed segment.
        transformed_chunk_size, final_transformed_chunk_size: the fixed form.
        transformed_sizes: int32[chunk_count], the variable form; excludes the two above.
        first_chunk, first_position: of the variable form, a part of a longer list: the number of the chunk that
            ``transformed_sizes`` begins with, and where that lies in the object. The file is then only covered from
            there, and ``original_file_size`` is where the last chunk of the part ends.

    Raises:
        CorruptObjectError: the numbers contradict each other.
    """

    def __init__(
        self,
        *,
        original_chunk_size: int,
        original_file_size: int,
        transformed_chunk_size: int | None = None,
        final_transformed_chunk_size: int | None = None,
        transformed_sizes: NDArray[np.int32] | None = None,
        first_chunk: int = 0,
        first_position: int = 0,
    ) -> None: ...
    @property
    def original_chunk_size(self) -> int: ...
    @property
    def original_file_size(self) -> int: ...
    @property
    def chunk_count(self) -> int:
        """Number of the chunks that are listed here."""
    @property
    def object_size_bytes(self) -> int:
        """End position of the last chunk in the object: of a whole index, the object's size."""
    def part(self, start_position: int, end_position_exclusive: int) -> ChunkIndex:
        """The same index, of the chunks that a range of the original file needs and no others: its pickle has 4 bytes
        a chunk. Its views are equal. A fixed index is small and stays whole.

        Raises:
            ValueError: not 0 <= start < end <= ``original_file_size``, or not covered.
        """
    def views(self, start_position: int, end_position_exclusive: int) -> NDArray[np.void]:
        """The chunks that a range of the original file needs, ascending, as CHUNK_VIEW_DTYPE: number, whole original
        size, the part [from, to) of the untransformed chunk, and where the transformed chunk lies in the object.

        Raises:
            ValueError: as ``part``. CorruptObjectError: more than 4 Mi chunks.
        """
    def list_views(self, start_position: int, end_position_exclusive: int) -> list[tuple[int, int, int, int, int, int]]:
        """Return tuples in place of ``views``: quicker where they are few."""

def decode_chunk_sizes(data: Buffer) -> NDArray[np.int32]:
    """The plugin's binary chunk size list (after base64 and zstd). Raises CorruptObjectError."""
