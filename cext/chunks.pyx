"""Chunk indexes of remote segments over ``tierlog/chunks.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from tl_arrays cimport *
from tl_core cimport *
from tl_errors cimport *

import numpy as np

from tierlog.errors import CorruptObjectError

CHUNK_VIEW_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in ("chunk", "original_size", "from", "to", "transformed_position", "transformed_size")
    ]
)

# A manifest may say that a segment is in chunks of one byte; a list of so many views would be the memory of a host.
# 4 Mi chunks of 1 KiB are 4 GiB, twice what a segment can hold.
cdef int64_t _VIEWS_MAX = 1 << 22

# The number of views that a fetch mostly needs: an array for them would cost more than the views.
cdef enum:
    _FEW = 4


cdef class ChunkIndex:
    cdef tl_chunk_index index           # of the file as if it began with `first_chunk`
    cdef int64_t first_chunk, first_position
    cdef object sizes, positions        # keep what `index` points to

    def __cinit__(
        self,
        *,
        int64_t original_chunk_size,
        int64_t original_file_size,
        transformed_chunk_size=None,
        final_transformed_chunk_size=None,
        transformed_sizes=None,
        int64_t first_chunk=0,
        int64_t first_position=0,
    ):
        cdef tl_fault fault
        cdef bint fixed = transformed_sizes is None
        if fixed != (transformed_chunk_size is not None) or fixed != (final_transformed_chunk_size is not None):
            raise ValueError(
                "a chunk index has transformed_chunk_size and final_transformed_chunk_size, or transformed_sizes"
            )
        if first_chunk or first_position:
            _check_part(fixed, first_chunk, first_position, original_chunk_size, original_file_size)
        self.first_chunk, self.first_position = first_chunk, first_position
        memset(&self.index, 0, sizeof(self.index))
        self.index.original_chunk_size = original_chunk_size
        self.index.original_file_size = original_file_size - first_chunk * original_chunk_size
        if fixed:
            self.index.transformed_chunk_size = transformed_chunk_size
            self.index.final_transformed_chunk_size = final_transformed_chunk_size
            if original_chunk_size > 0 and original_file_size > 0:
                self.index.chunk_count = (original_file_size - 1) // original_chunk_size + 1
        else:
            self.sizes = np.array(transformed_sizes, np.int32, ndmin=1)
            self.positions = np.zeros(self.sizes.size + 1, np.int64)
            np.cumsum(self.sizes, dtype=np.int64, out=self.positions[1:])
            self.index.transformed_sizes = <const int32_t *>address_of(self.sizes)
            self.index.transformed_positions = <const int64_t *>address_of(self.positions)
            self.index.chunk_count = self.sizes.size
        check_status(tl_chunk_index_check(&self.index, &fault), &fault, CorruptObjectError)

    @property
    def original_chunk_size(self):
        return self.index.original_chunk_size

    @property
    def original_file_size(self):
        return self.index.original_file_size + self._first_byte()

    @property
    def chunk_count(self):
        return self.index.chunk_count

    @property
    def object_size_bytes(self):
        return self.first_position + tl_chunk_index_object_size(&self.index)

    cdef int64_t _first_byte(self) noexcept:
        return self.first_chunk * self.index.original_chunk_size

    cdef int64_t _count(self, int64_t start_position, int64_t end_position_exclusive) except -1:
        """Chunks of a range that this index covers."""
        cdef int64_t needed, first_byte = self._first_byte()
        if not first_byte <= start_position < end_position_exclusive or tl_chunk_count(
            &self.index, start_position - first_byte, end_position_exclusive - first_byte, &needed
        ) != TL_OK:
            raise ValueError(
                f"[{start_position}, {end_position_exclusive}) is no range of bytes {first_byte} to "
                f"{self.original_file_size}"
            )
        return needed

    def part(self, int64_t start_position, int64_t end_position_exclusive):
        cdef int64_t count = self._count(start_position, end_position_exclusive)
        if self.sizes is None:
            return self
        cdef int64_t chunk_size = self.index.original_chunk_size
        cdef int64_t skipped = start_position // chunk_size - self.first_chunk
        cdef int64_t left = self.index.original_file_size - skipped * chunk_size
        cdef int64_t first_chunk = self.first_chunk + skipped
        # count - 1 chunks end before the file does, so the product cannot overflow.
        covered = left if left // chunk_size < count else count * chunk_size
        return ChunkIndex(
            original_chunk_size=chunk_size,
            original_file_size=first_chunk * chunk_size + covered,
            transformed_sizes=self.sizes[skipped : skipped + count],
            first_chunk=first_chunk,
            first_position=self.first_position + int(self.positions[skipped]),
        )

    def list_views(self, int64_t start_position, int64_t end_position_exclusive):
        cdef tl_chunk_view few[_FEW]
        cdef int64_t needed = self._count(start_position, end_position_exclusive)
        cdef size_t count = 0, at
        if needed > _FEW:
            return self.views(start_position, end_position_exclusive).tolist()
        if tl_chunk_views(
            &self.index,
            start_position - self._first_byte(),
            end_position_exclusive - self._first_byte(),
            few,
            _FEW,
            &count,
        ) != TL_OK:
            raise AssertionError("the range was checked above")
        return [
            (
                few[at].chunk + self.first_chunk,
                few[at].original_size,
                few[at].from_,
                few[at].to,
                few[at].transformed_position + self.first_position,
                few[at].transformed_size,
            )
            for at in range(count)
        ]

    def views(self, int64_t start_position, int64_t end_position_exclusive):
        cdef int64_t needed = self._count(start_position, end_position_exclusive)
        cdef int64_t start = start_position - self._first_byte(), end = end_position_exclusive - self._first_byte()
        cdef size_t count = 0
        if needed > _VIEWS_MAX:
            raise CorruptObjectError(
                f"a range of {needed} chunks: chunks of {self.index.original_chunk_size} bytes are too small",
                fault="BAD_COUNT",
                expected=_VIEWS_MAX,
                found=needed,
            )
        views = np.empty(needed, CHUNK_VIEW_DTYPE)
        cdef tl_chunk_view *out = <tl_chunk_view *>address_of(views)
        cdef tl_status status
        with nogil:
            status = tl_chunk_views(&self.index, start, end, out, <size_t>needed, &count)
        if status != TL_OK:
            raise AssertionError("the range was checked above")
        if self.first_chunk:
            views["chunk"] += self.first_chunk
            views["transformed_position"] += self.first_position
        return views

    def __reduce__(self):
        if self.sizes is None:
            return _rebuild_fixed, (
                self.index.original_chunk_size,
                self.index.original_file_size,
                self.index.transformed_chunk_size,
                self.index.final_transformed_chunk_size,
            )
        return _rebuild_variable, (
            self.index.original_chunk_size,
            self.original_file_size,
            self.sizes.astype("<i4", copy=False).tobytes(),
            self.first_chunk,
            self.first_position,
        )


cdef int _check_part(bint fixed, int64_t first_chunk, int64_t first_position, int64_t chunk, int64_t file) except -1:
    """Before anything is multiplied: where a part begins is known to lie in the file."""
    if fixed or first_chunk < 0 or first_position < 0 or chunk <= 0 or first_chunk > file // chunk:
        raise ValueError(f"no chunk {first_chunk} at {first_position} begins a list of chunks of {chunk} bytes")
    return 0


def _rebuild_fixed(original_chunk_size, original_file_size, transformed_chunk_size, final_transformed_chunk_size):
    return ChunkIndex(
        original_chunk_size=original_chunk_size,
        original_file_size=original_file_size,
        transformed_chunk_size=transformed_chunk_size,
        final_transformed_chunk_size=final_transformed_chunk_size,
    )


def _rebuild_variable(original_chunk_size, original_file_size, sizes, first_chunk, first_position):
    return ChunkIndex(
        original_chunk_size=original_chunk_size,
        original_file_size=original_file_size,
        transformed_sizes=np.frombuffer(sizes, "<i4"),
        first_chunk=first_chunk,
        first_position=first_position,
    )


def decode_chunk_sizes(data):
    cdef Py_buffer view
    cdef tl_fault fault
    cdef tl_status status
    cdef int64_t count
    cdef int32_t *out
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = tl_chunk_sizes_count(<const uint8_t *>view.buf, <size_t>view.len, &count, &fault)
        check_status(status, &fault, CorruptObjectError)
        sizes = np.empty(count, np.int32)
        out = <int32_t *>address_of(sizes)
        with nogil:
            status = tl_chunk_sizes_decode(<const uint8_t *>view.buf, <size_t>view.len, out, <size_t>count, &fault)
        check_status(status, &fault, CorruptObjectError)
    finally:
        PyBuffer_Release(&view)
    return sizes
