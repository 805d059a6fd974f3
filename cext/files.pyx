"""Files that native code reads and appends to, and files that are read without waiting, over ``tierlog/file_ops.h``."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_New
from libc cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memset, strerror, strlen
from posix.types cimport off_t

from tl_core cimport *

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int to, int source, off_t *position, size_t size) noexcept

cdef extern from "<sys/stat.h>" nogil:
    struct timespec:
        long long tv_sec
        long tv_nsec

    struct file_stat "stat":
        uint64_t st_dev
        uint64_t st_ino
        int64_t st_size
        timespec st_mtim
        timespec st_ctim

    int fstat(int file, file_stat *found) noexcept

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL

    struct iovec:
        void *iov_base
        size_t iov_len

    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

    ssize_t sendmsg(int to, const msghdr *message, int flags) noexcept

cdef enum:
    VIEWS_MAX = 64
    FAILURES_FROM = 1 << 20    # numbers of what Python files raised: behind those of any system

SEND_VIEWS_MAX = VIEWS_MAX


cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)


@cython.final
cdef class GrowingFile:
    cdef tl_growing_file growing
    cdef readonly bint waits
    cdef object to_error, file
    cdef dict failures
    cdef int failure_count

    def __cinit__(self, file, *, uint64_t size_bytes, to_error):
        self.growing.size = size_bytes
        self.to_error = to_error
        if isinstance(file, int):
            self.growing.files = tl_posix_files()
            self.growing.file = file
            self.waits = True
        else:
            self.growing.files = tl_files(&_PYTHON_OPS, <void *>self)
            self.file, self.failures = file, {}

    cdef int64_t _fail(self, error) noexcept:
        """Remember what a Python file raised, under a number that native code passes on to its caller."""
        self.failure_count += 1
        self.failures[FAILURES_FROM + self.failure_count] = error
        return -FAILURES_FROM - self.failure_count

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
        if self.waits:
            with nogil:
                error = tl_growing_file_append(&self.growing, <const uint8_t *>view.buf, <size_t>view.len)
        else:
            error = tl_growing_file_append(&self.growing, <const uint8_t *>view.buf, <size_t>view.len)
        PyBuffer_Release(&view)
        if error:
            raise self.error(<int>-error)
        return position

    def error(self, int number):
        if number > FAILURES_FROM:
            return self.failures.pop(number)
        return self.to_error(OSError(number, strerror(number).decode()))

    def close(self):
        self.growing.file = -1


# The table over a Python file, as far as code that has an open file calls it.


cdef int64_t _python_pread(void *context, int64_t file, uint64_t position, uint8_t *out,
                           size_t size) noexcept with gil:
    cdef GrowingFile growing = <GrowingFile>context
    try:
        return growing.file.read_into(
            PyMemoryView_FromMemory(<char *>out, <Py_ssize_t>size, PyBUF_WRITE), position
        )
    except BaseException as error:
        return growing._fail(error)


cdef int64_t _python_pwrite(void *context, int64_t file, uint64_t position, const uint8_t *data,
                            size_t size) noexcept with gil:
    cdef GrowingFile growing = <GrowingFile>context
    try:
        growing.file.write(PyBytes_FromStringAndSize(<const char *>data, <Py_ssize_t>size), position)
    except BaseException as error:
        return growing._fail(error)
    return 0


cdef int64_t _python_truncate(void *context, int64_t file, uint64_t size) noexcept with gil:
    cdef GrowingFile growing = <GrowingFile>context
    try:
        growing.file.truncate(size)
    except BaseException:  # of a write that failed: its own error is the one that counts
        return -errno.EIO
    return 0


cdef int64_t _python_reserve(void *context, int64_t file, uint64_t position, uint64_t size) noexcept nogil:
    return -errno.EOPNOTSUPP


cdef tl_file_ops _PYTHON_OPS
memset(&_PYTHON_OPS, 0, sizeof(_PYTHON_OPS))
_PYTHON_OPS.struct_size = sizeof(_PYTHON_OPS)
_PYTHON_OPS.pread = _python_pread
_PYTHON_OPS.pwrite = _python_pwrite
_PYTHON_OPS.truncate = _python_truncate
_PYTHON_OPS.reserve = _python_reserve


@cython.final
@cython.no_gc
cdef class ReadyFile:
    cdef object __weakref__
    cdef int64_t file

    def __cinit__(self):
        self.file = -1

    def __init__(self):
        raise TypeError("a ReadyFile is made by open_ready")

    def __dealloc__(self):
        if self.file >= 0:
            tl_posix_files().ops.close(NULL, self.file)

    @property
    def descriptor(self):
        return self.file

    @property
    def version(self):
        cdef file_stat found
        if fstat(<int>self.file, &found):
            PyErr_SetFromErrno(OSError)
        return (
            found.st_dev,
            found.st_ino,
            found.st_size,
            found.st_mtim.tv_sec,
            found.st_mtim.tv_nsec,
            found.st_ctim.tv_sec,
            found.st_ctim.tv_nsec,
        )

    def holds(self, uint64_t position, uint64_t size_bytes):
        return tl_posix_files().ops.holds(NULL, self.file, position, size_bytes) == 1

    cdef int64_t _read(self, out, uint64_t position, bint waits) except? -1:
        cdef Py_buffer view
        cdef int64_t count
        cdef tl_files files = tl_posix_files()
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        try:
            with nogil:
                if waits:
                    count = files.ops.pread(files.context, self.file, position, <uint8_t *>view.buf, <size_t>view.len)
                else:
                    count = files.ops.pread_ready(
                        files.context, self.file, position, <uint8_t *>view.buf, <size_t>view.len
                    )
        finally:
            PyBuffer_Release(&view)
        return count

    def read_ready_into(self, out, uint64_t position):
        return max(self._read(out, position, False), 0)

    def read_into(self, out, uint64_t position):
        cdef int64_t count = self._read(out, position, True)
        if count < 0:
            errno.errno = <int>-count
            PyErr_SetFromErrno(OSError)
        return count

    def send(self, int socket, uint64_t position, size_t size_bytes):
        cdef off_t at = <off_t>position
        cdef ssize_t count
        if position > INT64_MAX or size_bytes > INT64_MAX - position:
            raise OverflowError(f"{size_bytes} bytes from {position} on are behind the end of any file")
        if not size_bytes:
            return 0
        with nogil:
            count = sendfile(socket, <int>self.file, &at, size_bytes)
        if count < 0:
            if errno.errno in (errno.EAGAIN, errno.EINTR):
                return 0
            PyErr_SetFromErrno(OSError)
        if count == 0:
            raise EOFError(f"the file ends before {position}")
        return count


def send_views(int socket, list views, *, bint has_more):
    cdef Py_buffer buffers[VIEWS_MAX]
    cdef iovec parts[VIEWS_MAX]
    cdef msghdr message
    cdef Py_ssize_t held = 0
    cdef ssize_t count
    cdef int number, flags = MSG_DONTWAIT | MSG_NOSIGNAL | (MSG_MORE if has_more else 0)
    if len(views) > VIEWS_MAX:
        raise ValueError(f"{len(views)} views are more than {VIEWS_MAX}")
    try:
        for view in views:
            PyObject_GetBuffer(view, &buffers[held], PyBUF_SIMPLE)
            parts[held] = iovec(buffers[held].buf, <size_t>buffers[held].len)
            held += 1
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        message.msg_iovlen = <size_t>held
        with nogil:
            count = sendmsg(socket, &message, flags)
            number = errno.errno
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&buffers[held])
    if count < 0:
        if number in (errno.EAGAIN, errno.EINTR):
            return 0
        errno.errno = number
        PyErr_SetFromErrno(OSError)
    return count


def open_ready(path):
    cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
    cdef const char *name = encoded
    cdef int64_t file
    cdef ReadyFile opened
    if <size_t>len(encoded) != strlen(name):
        raise ValueError("embedded null byte")
    file = tl_posix_files().ops.open(NULL, name, TL_OPEN_READY)
    if file < 0:
        return None
    opened = ReadyFile.__new__(ReadyFile)
    opened.file = file
    return opened
