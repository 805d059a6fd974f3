"""Pooled memory over ``tierlog/buffer_pool.h``."""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.memoryview cimport PyMemoryView_FromObject
from libc cimport errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, strlen

from tl_core cimport *

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)


cdef extern from "pthread.h" nogil:
    int pthread_atfork(void (*prepare)() noexcept, void (*parent)() noexcept, void (*child)() noexcept)


# The one pool that is locked around forks.
cdef tl_buffer_pool *_shared = NULL
cdef BufferPool _keep = None


cdef void _before_fork() noexcept nogil:
    tl_buffer_pool_before_fork(_shared)


cdef void _in_parent() noexcept nogil:
    tl_buffer_pool_after_fork(_shared, False)


cdef void _in_child() noexcept nogil:
    tl_buffer_pool_after_fork(_shared, True)


@cython.final
@cython.no_gc
cdef class BufferPool:
    cdef tl_buffer_pool *pool

    def __cinit__(
        self, *, size_t kept_bytes_max, size_t kept_bytes_spare, size_t kept_bytes_min, int64_t idle_ms
    ):
        cdef tl_buffer_limits limits = tl_buffer_limits(
            sizeof(tl_buffer_limits), kept_bytes_max, kept_bytes_spare, kept_bytes_min, idle_ms
        )
        if tl_buffer_pool_create(&self.pool, &limits) != TL_OK:
            raise MemoryError

    def __dealloc__(self):
        if self.pool is not NULL:
            with nogil:
                tl_buffer_pool_destroy(self.pool)

    def take(self, size_t size_bytes):
        cdef tl_block *block
        if tl_buffer_take(self.pool, size_bytes, &block) != TL_OK:
            raise MemoryError(f"{size_bytes} bytes cannot be mapped")
        return _lent(self, block, <Py_ssize_t>size_bytes)

    def read_range(self, path, uint64_t start_position, uint64_t end_position_exclusive):
        cdef bytes encoded = _encoded(path)
        cdef const char *name = encoded
        cdef tl_block *block
        cdef int64_t count
        with nogil:
            count = tl_read_range(tl_posix_files(), self.pool, name, start_position, end_position_exclusive, &block)
        _require_read(count, path)
        return _lent(self, block, <Py_ssize_t>count)

    def note_foreign(self, size_t size_bytes):
        tl_buffer_note_foreign(self.pool, size_bytes)

    def trim(self, int64_t idle_ms):
        cdef size_t freed
        with nogil:
            freed = tl_buffer_pool_trim(self.pool, idle_ms)
        return freed

    def share(self):
        global _shared, _keep
        if _shared is not NULL:
            raise ValueError("the process has a shared pool already")
        _shared, _keep = self.pool, self
        if pthread_atfork(_before_fork, _in_parent, _in_child):
            raise MemoryError

    @property
    def kept_bytes(self):
        return tl_buffer_pool_figures(self.pool).kept

    @property
    def lent_bytes(self):
        return tl_buffer_pool_figures(self.pool).lent

    @property
    def has_thread(self):
        return bool(tl_buffer_pool_figures(self.pool).has_thread)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class _Lent:
    """The holder of a block: gives it back with the last view of it."""

    cdef object __weakref__
    cdef tl_block *block
    cdef Py_ssize_t size
    cdef BufferPool pool        # there as long as anything of it is lent

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, False, flags)

    def __dealloc__(self):
        if self.block is not NULL:
            tl_buffer_give(self.block)


cdef object _lent(BufferPool pool, tl_block *block, Py_ssize_t size):
    cdef _Lent lent = _Lent.__new__(_Lent)
    lent.block, lent.size, lent.pool = block, size, pool
    return PyMemoryView_FromObject(lent)


# Less is copied faster than the lock changes hands.
cdef enum:
    COPY_ALONE_BYTES = 65536


def read_range_into(path, uint64_t start_position, out):
    cdef bytes encoded = _encoded(path)
    cdef const char *name = encoded
    cdef Py_buffer view
    cdef int64_t count
    PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
    try:
        with nogil:
            count = tl_read_range_into(tl_posix_files(), name, start_position, <uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    _require_read(count, path)
    return count


def copy_into(out, data):
    cdef Py_buffer to
    cdef Py_buffer source
    PyObject_GetBuffer(out, &to, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            if source.len > to.len:
                raise ValueError(f"{source.len} bytes into {to.len}")
            _copy(<char *>to.buf, <const char *>source.buf, <size_t>source.len)
            return source.len
        finally:
            PyBuffer_Release(&source)
    finally:
        PyBuffer_Release(&to)


def joined(list parts):
    cdef Py_buffer source
    cdef Py_ssize_t size = 0, done = 0
    cdef bytes out
    for part in parts:
        size += len(part)
    out = PyBytes_FromStringAndSize(NULL, size)
    for part in parts:
        PyObject_GetBuffer(part, &source, PyBUF_SIMPLE)
        try:
            if source.len > size - done:
                raise ValueError("a part is no view of bytes")
            _copy(PyBytes_AS_STRING(out) + done, <const char *>source.buf, <size_t>source.len)
            done += source.len
        finally:
            PyBuffer_Release(&source)
    if done != size:
        raise ValueError("a part is no view of bytes")
    return out


cdef void _copy(char *out, const char *source, size_t size) noexcept:
    if size < COPY_ALONE_BYTES:
        memcpy(out, source, size)
    else:
        with nogil:
            memcpy(out, source, size)


cdef bytes _encoded(path):
    cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
    cdef const char *name = encoded
    if <size_t>len(encoded) != strlen(name):
        raise ValueError("embedded null byte")
    return encoded


cdef int _require_read(int64_t count, path) except -1:
    if count == TL_NOT_REGULAR:
        raise ValueError("not a regular file")
    if count < 0:
        errno.errno = <int>-count
        PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    return 0
