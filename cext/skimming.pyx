"""Requests that are passed over before a decoder is let at them, over ``cext/core/skim.h``."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from tl_core cimport *

BYTES = TL_SKIM_BYTES
SHORT = TL_SKIM_SHORT
LONG = TL_SKIM_LONG
COMPACT = TL_SKIM_COMPACT
OPTIONAL = TL_SKIM_OPTIONAL
ARRAY = TL_SKIM_ARRAY
COMPACT_ARRAY = TL_SKIM_COMPACT_ARRAY
NO_TAGS = TL_SKIM_NO_TAGS


@cython.final
@cython.no_gc
cdef class Skimmer:
    cdef tl_skim_step *steps
    cdef size_t count

    def __cinit__(self, steps):
        self.count = len(steps)
        self.steps = <tl_skim_step *>malloc(self.count * sizeof(tl_skim_step) + 1)
        if self.steps is NULL:
            raise MemoryError
        for number, (kind, argument, is_nullable) in enumerate(steps):
            self.steps[<size_t>number] = tl_skim_step(kind, bool(is_nullable), argument)

    def __dealloc__(self):
        free(self.steps)

    def count_elements(self, data, size_t position, *, uint32_t elements_max):
        cdef Py_buffer view
        cdef tl_status status
        cdef uint32_t elements
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if position > <size_t>view.len:
            PyBuffer_Release(&view)
            return None
        with nogil:
            status = tl_skim(self.steps, self.count, <const uint8_t *>view.buf + position,
                             <size_t>view.len - position, elements_max, &elements)
        PyBuffer_Release(&view)
        if status == TL_OVER_LIMIT:
            return elements_max + 1
        return elements if status == TL_OK else None
