"""Compressed streams of record batches and chunks over ``tierlog/codec.h`` and ``compress.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_DECREF, Py_XDECREF, PyObject
from libc.stdint cimport uint8_t

from tl_core cimport *
from tl_errors cimport *

from tierlog.errors import CorruptRecordError


cdef extern from "Python.h":
    # By pointer, since a bytes object may be filled and cut only before other code has seen it.
    PyObject *PyBytes_FromStringAndSize(const char *value, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **value, Py_ssize_t size) except -1
    char *PyBytes_AS_STRING(PyObject *value)


cdef class _Codecs:
    """Contexts to read with: that of zstd alone takes 150 KiB and some µs to make."""
    cdef tl_codecs *codecs

    def __cinit__(self):
        if tl_codecs_create(&self.codecs) != TL_OK:
            raise MemoryError("no memory for the contexts of the codecs")

    def __dealloc__(self):
        tl_codecs_destroy(self.codecs)


cdef class _Compressor:
    """A context to write with: a few MiB, by the level."""
    cdef tl_compressor *compressor

    def __cinit__(self):
        if tl_compressor_create(&self.compressor) != TL_OK:
            raise MemoryError("no memory for a context of libzstd")

    def __dealloc__(self):
        tl_compressor_destroy(self.compressor)


# As many as ran at once, up to a few: threads come and go with their pools, and contexts would stay with each. What
# makes it safe is the lists' own pop and append. A context is put back when nothing was raised meanwhile; else it goes.
_idle_codecs = []
_idle_compressors = []
cdef Py_ssize_t _IDLE_MAX = 16


cdef _Codecs _take_codecs():
    try:
        return <_Codecs>_idle_codecs.pop()
    except IndexError:
        return _Codecs()


cdef _Compressor _take_compressor():
    try:
        return <_Compressor>_idle_compressors.pop()
    except IndexError:
        return _Compressor()


cdef int _give_back(list idle, object context) except -1:
    if len(idle) < _IDLE_MAX:
        idle.append(context)
    return 0


def drop_contexts():
    _idle_codecs.clear()
    _idle_compressors.clear()


def library_version(int codec):
    cdef const char *version = tl_codec_version(codec)
    return None if version is NULL else version.decode("ascii")


def decompress(data, int codec, *, int magic=2, size_t limit=1 << 28):
    cdef Py_buffer view
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t capacity = 0, written = 0
    cdef PyObject *out = NULL
    cdef char *start
    cdef _Codecs contexts
    cdef tl_codecs *codecs
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = tl_decompress_bound(codec, magic, <const uint8_t *>view.buf, <size_t>view.len, limit, &capacity,
                                     &fault)
        check_status(status, &fault, CorruptRecordError)
        contexts = _take_codecs()
        codecs = contexts.codecs
        while True:
            out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>capacity)
            start = PyBytes_AS_STRING(out)
            with nogil:
                status = tl_decompress(codecs, codec, magic, <const uint8_t *>view.buf, <size_t>view.len,
                                       <uint8_t *>start, capacity, limit, &written, &fault)
            if status != TL_NEED_SCRATCH:
                break
            Py_DECREF(<object>out)
            out = NULL
            capacity = <size_t>fault.expected
        _give_back(_idle_codecs, contexts)
        check_status(status, &fault, CorruptRecordError)
        if written != capacity:
            _PyBytes_Resize(&out, <Py_ssize_t>written)
        return <object>out
    finally:
        Py_XDECREF(out)
        PyBuffer_Release(&view)


def decompress_into(data, int codec, out, *, int magic=2):
    cdef Py_buffer view, target
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t written = 0
    cdef _Codecs contexts = _take_codecs()
    cdef tl_codecs *codecs = contexts.codecs
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(out, &target, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            with nogil:
                status = tl_decompress(codecs, codec, magic, <const uint8_t *>view.buf, <size_t>view.len,
                                       <uint8_t *>target.buf, <size_t>target.len, <size_t>target.len, &written, &fault)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&view)
    _give_back(_idle_codecs, contexts)
    check_status(status, &fault, CorruptRecordError)
    return written


def decompress_prefix_into(data, out, size_t wanted):
    cdef Py_buffer view, target
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t written = 0
    cdef _Codecs contexts = _take_codecs()
    cdef tl_codecs *codecs = contexts.codecs
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(out, &target, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            with nogil:
                status = tl_zstd_prefix(codecs, <const uint8_t *>view.buf, <size_t>view.len, wanted,
                                        <uint8_t *>target.buf, <size_t>target.len, &written, &fault)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&view)
    _give_back(_idle_codecs, contexts)
    check_status(status, &fault, CorruptRecordError)
    return written


COMPRESSION_LEVEL_MIN = tl_compression_level_min()
COMPRESSION_LEVEL_MAX = tl_compression_level_max()


def compress_bound(size_t size):
    cdef size_t bound = tl_compress_bound(size)
    if not bound:
        raise ValueError(f"{size} bytes are more than one frame holds")
    return bound


def compress_into(data, out, *, int level):
    cdef Py_buffer view, target
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t written = 0
    cdef _Compressor context = _take_compressor()
    cdef tl_compressor *compressor = context.compressor
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(out, &target, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            with nogil:
                status = tl_compress(compressor, level, <const uint8_t *>view.buf, <size_t>view.len,
                                     <uint8_t *>target.buf, <size_t>target.len, &written, &fault)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&view)
    _give_back(_idle_compressors, context)
    if status == TL_FULL:
        raise ValueError(f"{fault.found} bytes of room, the frame may take {fault.expected}")
    check_status(status, &fault, CorruptRecordError)
    return written
