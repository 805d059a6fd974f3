"""Files that native code reads and appends to, and files that are read without waiting, over ``tierlog/file_ops.h``;
directories, and many small files, by one call each."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_New
from libc cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset, strcmp, strerror, strlen
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
        uint32_t st_mode
        int64_t st_size
        timespec st_mtim
        timespec st_ctim

    int fstat(int file, file_stat *found) noexcept
    int fstatat(int folder, const char *name, file_stat *found, int flags) noexcept
    bint S_ISREG(uint32_t mode) noexcept
    bint S_ISDIR(uint32_t mode) noexcept
    uint32_t S_IROTH

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass

    struct dirent:
        char *d_name

    DIR *opendir(const char *path) noexcept
    dirent *readdir(DIR *folder) noexcept
    int closedir(DIR *folder) noexcept
    int dirfd(DIR *folder) noexcept

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_CLOEXEC, O_NONBLOCK
    int open(const char *path, int flags) noexcept

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int file, void *out, size_t size, off_t position) noexcept
    int close(int file) noexcept

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
    str PyUnicode_DecodeFSDefault(const char *text)


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
    cdef bytes encoded = _encoded(path)
    cdef const char *name = encoded
    cdef int64_t file
    cdef ReadyFile opened
    file = tl_posix_files().ops.open(NULL, name, TL_OPEN_READY)
    if file < 0:
        return None
    opened = ReadyFile.__new__(ReadyFile)
    opened.file = file
    return opened


cdef struct entry:
    char *name
    file_stat found
    bint is_left_out

cdef struct listing:
    entry *entries
    size_t count, size
    int error          # of the entry `failed`, or of the directory
    char *failed


cdef int _by_name(const void *one, const void *other) noexcept nogil:
    return strcmp((<const entry *>one).name, (<const entry *>other).name)


cdef int _add_name(listing *out, const char *name) noexcept nogil:
    """Add an entry; whether there is memory for it."""
    cdef size_t size = strlen(name) + 1
    cdef entry *grown
    if out.count == out.size:
        grown = <entry *>realloc(out.entries, (2 * out.size + 64) * sizeof(entry))
        if grown == NULL:
            return 0
        out.entries, out.size = grown, 2 * out.size + 64
    out.entries[out.count].name = <char *>malloc(size)
    if out.entries[out.count].name == NULL:
        return 0
    memcpy(out.entries[out.count].name, name, size)
    out.count += 1
    return 1


cdef void _list(const char *path, listing *out) noexcept nogil:
    """List a directory by name, with what is known of each entry."""
    cdef DIR *folder = opendir(path)
    cdef dirent *found
    cdef entry *each
    cdef size_t at
    if folder == NULL:
        out.error = errno.errno
        return
    while True:
        errno.errno = 0
        found = readdir(folder)
        if found == NULL:
            out.error = errno.errno
            break
        if strcmp(found.d_name, b".") and strcmp(found.d_name, b"..") and not _add_name(out, found.d_name):
            out.error = errno.ENOMEM
            break
    if not out.error and out.count:
        qsort(out.entries, out.count, sizeof(entry), _by_name)
        for at in range(out.count):
            each = &out.entries[at]
            each.is_left_out = False
            if fstatat(dirfd(folder), each.name, &each.found, 0):
                each.is_left_out = True
                if errno.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
                    out.error, out.failed = errno.errno, each.name
                    break
            elif not S_ISREG(each.found.st_mode) and not S_ISDIR(each.found.st_mode):
                each.is_left_out = True
    closedir(folder)


cdef bytes _encoded(path):
    cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
    cdef const char *name = encoded
    if <size_t>len(encoded) != strlen(name):
        raise ValueError("embedded null byte")
    return encoded


def list_directory(path):
    cdef bytes encoded = _encoded(path)
    cdef const char *name = encoded
    cdef listing out
    cdef file_stat *info
    cdef size_t at
    cdef bint is_directory
    memset(&out, 0, sizeof(out))
    try:
        with nogil:
            _list(name, &out)
        if out.error:
            failed = "" if out.failed == NULL else PyUnicode_DecodeFSDefault(out.failed)
            raise OSError(out.error, strerror(out.error).decode(), f"{path.rstrip('/')}/{failed}" if failed else path)
        found = []
        for at in range(out.count):
            if out.entries[at].is_left_out:
                continue
            info = &out.entries[at].found
            is_directory = S_ISDIR(info.st_mode)
            found.append((
                PyUnicode_DecodeFSDefault(out.entries[at].name),
                0 if is_directory else info.st_size,
                <int64_t>info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec // 1_000_000,
                is_directory,
                (info.st_dev, info.st_ino),
                (info.st_mode & S_IROTH) != 0,
            ))
        return found
    finally:
        for at in range(out.count):
            free(out.entries[at].name)
        free(out.entries)


cdef ssize_t _read_up_to(const char *path, char *out, size_t size) noexcept nogil:
    """Read a file from its start, up to a size; the bytes read, or -1 after any fault."""
    cdef int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    cdef ssize_t count, done = 0
    if file < 0:
        return -1
    while <size_t>done < size:
        count = pread(file, out + done, size - <size_t>done, done)
        if count < 0:
            done = -1
        if count <= 0:
            break
        done += count
    close(file)
    return done


def read_small_files(list paths, list limits):
    cdef Py_ssize_t number, count = len(paths)
    cdef list encoded = [_encoded(path) for path in paths]
    cdef size_t total = 0
    if count != len(limits):
        raise ValueError(f"{count} paths and {len(limits)} limits")
    cdef const char **names = <const char **>calloc(<size_t>count + 1, sizeof(char *))
    cdef size_t *starts = <size_t *>calloc(<size_t>count + 1, sizeof(size_t))
    cdef ssize_t *sizes = <ssize_t *>calloc(<size_t>count + 1, sizeof(ssize_t))
    cdef char *out = NULL
    try:
        if names == NULL or starts == NULL or sizes == NULL:
            raise MemoryError
        for number in range(count):
            names[number] = <bytes>encoded[number]
            starts[number] = total
            total += <size_t>limits[number]
            if total < starts[number] or total > INT64_MAX:
                raise MemoryError
        starts[count] = total
        out = <char *>malloc(total + 1)
        if out == NULL:
            raise MemoryError
        with nogil:
            for number in range(count):
                sizes[number] = _read_up_to(names[number], out + starts[number], starts[number + 1] - starts[number])
        return [
            PyBytes_FromStringAndSize(out + starts[number], sizes[number]) if sizes[number] >= 0 else None
            for number in range(count)
        ]
    finally:
        free(names)
        free(starts)
        free(sizes)
        free(out)
