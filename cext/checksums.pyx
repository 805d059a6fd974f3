"""Checksums of Kafka's files over ``tierlog/checksum.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from tl_core cimport *

ctypedef uint32_t (*_extend)(uint32_t, const uint8_t *, size_t) noexcept nogil

cdef Py_ssize_t _GIL_SIZE = 32 * 1024   # below, letting the GIL go costs more than the sum


cdef object _run(_extend extend, object data, uint32_t seed):
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < _GIL_SIZE:
            result = extend(seed, <const uint8_t *>view.buf, <size_t>view.len)
        else:
            with nogil:
                result = extend(seed, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return result


cdef uint32_t _xxhash32(uint32_t seed, const uint8_t *data, size_t size) noexcept nogil:
    return tl_xxhash32(data, size, seed)


def crc32c(data, uint32_t crc=0):
    return _run(tl_crc32c, data, crc)


def crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b):
    return tl_crc32c_combine(crc_a, crc_b, size_b)


def crc32c_table(data, uint32_t crc=0):
    return _run(tl_crc32c_table, data, crc)


def crc32c_implementation():
    return tl_crc32c_implementation().decode()


def crc32(data, uint32_t crc=0):
    return _run(tl_crc32, data, crc)


def xxhash32(data, uint32_t seed=0):
    return _run(_xxhash32, data, seed)
