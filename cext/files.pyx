"""Files that native code writes to, over ``cext/core/growing_file.h``."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport strerror

from tl_core cimport tl_growing_file, tl_growing_file_append, tl_posix_files


@cython.final
cdef class GrowingFile:
    cdef tl_growing_file growing
    cdef object to_error

    def __cinit__(self, int descriptor, *, uint64_t size_bytes, to_error):
        self.growing.files = tl_posix_files()
        self.growing.file = descriptor
        self.growing.size = size_bytes
        self.to_error = to_error

    @property
    def size_bytes(self):
        return self.growing.size

    @size_bytes.setter
    def size_bytes(self, uint64_t size_bytes):
        self.growing.size = size_bytes
        self.growing.reserved = 0

    @property
    def reserve_limit(self):
        return self.growing.reserve_limit

    @reserve_limit.setter
    def reserve_limit(self, uint64_t limit_bytes):
        self.growing.reserve_limit = limit_bytes
        self.growing.reserved = 0

    @property
    def core(self):
        return PyCapsule_New(&self.growing, "tierlog.growing_file", NULL)

    def append(self, data):
        cdef Py_buffer view
        cdef uint64_t position = self.growing.size
        cdef int64_t error
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            error = tl_growing_file_append(&self.growing, <const uint8_t *>view.buf, <size_t>view.len)
        PyBuffer_Release(&view)
        if error:
            raise self.error(<int>-error)
        return position

    def error(self, int number):
        return self.to_error(OSError(number, strerror(number).decode()))

    def close(self):
        self.growing.file = -1
