"""Compaction of a log, a window at a time, over ``tierlog/offset_map.h`` and ``tierlog/compaction.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport UINT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tl_arrays cimport *
from tl_compaction cimport *
from tl_core cimport *
from tl_errors cimport *

cdef extern from *:
    """
    #include <sys/mman.h>
    /* Slots are looked up anywhere: with small pages each look-up would cost a miss. */
    static inline void ask_for_large_pages(void *memory, size_t size) {
    #ifdef MADV_HUGEPAGE
        (void)madvise(memory, size, MADV_HUGEPAGE);
    #else
        (void)memory, (void)size;
    #endif
    }
    """
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void *MAP_FAILED
    void *mmap(void *address, size_t size, int protection, int flags, int file, long offset) noexcept nogil
    int munmap(void *address, size_t size) noexcept nogil
    void ask_for_large_pages(void *memory, size_t size) noexcept nogil

from collections import namedtuple

import numpy as np

from tierlog.errors import CorruptRecordError

DISCARD = TL_VERDICT_DISCARD
RETAIN_EMPTY = TL_VERDICT_RETAIN_EMPTY
EMPTY_TRANSACTION = TL_VERDICT_EMPTY_TRANSACTION
ENTRY_BYTES = TL_OFFSET_MAP_ENTRY_BYTES

_WRITTEN = {"last_offset": np.int64, "max_timestamp": np.int64, "size_bytes": np.int32}

Window = namedtuple("Window", ("valid_bytes", "batches", "next_offset", "has_producers", "next_size_bytes"))
Indexed = namedtuple("Indexed", ("messages_read", "is_full"))
Filtered = namedtuple(
    "Filtered",
    (
        "read_bytes",
        "batches",
        "written_bytes",
        "messages_read",
        "messages_retained",
        "invalid_messages",
        "room_bytes",
        "columns",
    ),
)


def survey_window(data, *, uint64_t base_position=0):
    cdef Py_buffer view
    cdef tl_window window
    cdef tl_fault fault
    cdef tl_status status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = tl_window_survey(<const uint8_t *>view.buf, <size_t>view.len, &window, &fault)
    finally:
        PyBuffer_Release(&view)
    next_size_bytes = fault.expected if status == TL_PARTIAL else 0
    if status != TL_OK and status != TL_PARTIAL:
        fault.position += base_position
        raise error_of(status, &fault, CorruptRecordError)
    return Window(window.valid_bytes, window.batches, window.next_offset, window.has_producers, next_size_bytes)


cdef class OffsetMap:
    cdef tl_offset_map map
    cdef void *memory
    cdef size_t size

    def __cinit__(self, size_t size_bytes, *, double load_factor, secret):
        cdef tl_fault fault
        cdef uint64_t halves[2]
        _take_secret(secret, halves)
        memset(&fault, 0, sizeof(fault))
        self.size = max(size_bytes, <size_t>1)
        self.memory = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if self.memory == MAP_FAILED:
            self.memory = NULL
            raise MemoryError(f"no memory for a map of {size_bytes} bytes")
        ask_for_large_pages(self.memory, self.size)
        check_status(
            tl_offset_map_begin(&self.map, self.memory, size_bytes, load_factor, halves[0], halves[1]),
            &fault,
            CorruptRecordError,
        )

    def __dealloc__(self):
        if self.memory != NULL:
            munmap(self.memory, self.size)

    def clear(self, secret, *, uint64_t keys=UINT64_MAX):
        cdef uint64_t halves[2]
        _take_secret(secret, halves)
        with nogil:
            tl_offset_map_clear(&self.map, keys, halves[0], halves[1])

    @property
    def slots(self):
        return self.map.capacity

    @property
    def entries_max(self):
        return self.map.entries_limit

    def __len__(self):
        return self.map.entries

    @property
    def latest_offset(self):
        return self.map.latest_offset

    @latest_offset.setter
    def latest_offset(self, int64_t offset):
        self.map.latest_offset = offset

    def put(self, bytes key not None, int64_t offset):
        return tl_offset_map_put(&self.map, self._hash(key), offset) == TL_OK

    def get(self, bytes key not None):
        return tl_offset_map_get(&self.map, self._hash(key))

    cdef tl_key_hash _hash(self, bytes key):
        return tl_offset_map_hash(&self.map, key, <size_t>len(key))


cdef int _take_secret(secret, uint64_t *halves) except -1:
    cdef bytes taken = bytes(secret)
    if len(taken) != 16:
        raise ValueError(f"a secret of {len(taken)} bytes, not of 16")
    memcpy(halves, <const char *>taken, 16)
    return 0


cdef class WindowCleaner:
    cdef OffsetMap offset_map
    cdef tl_scratch scratch
    cdef tl_compressor *compressor
    cdef uint64_t limit

    def __cinit__(self, OffsetMap offset_map not None, *, uint64_t decompressed_limit):
        cdef tl_fault fault
        memset(&fault, 0, sizeof(fault))
        self.offset_map = offset_map
        self.limit = decompressed_limit
        check_status(tl_codecs_create(&self.scratch.codecs), &fault, CorruptRecordError)
        check_status(tl_compressor_create(&self.compressor), &fault, CorruptRecordError)

    def __dealloc__(self):
        free(self.scratch.data)
        tl_codecs_destroy(self.scratch.codecs)
        tl_compressor_destroy(self.compressor)

    cdef int _grow(self, size_t size) except -1:
        free(self.scratch.data)
        self.scratch.capacity = 0
        self.scratch.data = <uint8_t *>malloc(size)
        if self.scratch.data == NULL:
            raise MemoryError(f"no memory for {size} bytes of records")
        self.scratch.capacity = size
        return 0

    def shrink(self, size_t size_bytes):
        if self.scratch.capacity > size_bytes:
            self._grow(max(size_bytes, <size_t>1))

    def index(self, data, *, verdicts=None, int64_t from_offset, uint64_t base_position=0):
        cdef Py_buffer view
        cdef bytes told
        cdef const uint8_t *judged = NULL
        cdef tl_window_state state
        cdef tl_fault fault
        cdef tl_status status
        memset(&state, 0, sizeof(state))
        if verdicts is not None:
            told = bytes(verdicts)
            judged = <const uint8_t *><const char *>told
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while True:
                with nogil:
                    status = tl_compaction_index(<const uint8_t *>view.buf, <size_t>view.len, judged, from_offset,
                                                 self.limit, &self.scratch, &self.offset_map.map, &state, &fault)
                if status != TL_NEED_SCRATCH:
                    break
                self._grow(<size_t>fault.expected)
        finally:
            PyBuffer_Release(&view)
        if status != TL_OK and status != TL_FULL:
            fault.position += base_position
            raise error_of(status, &fault, CorruptRecordError)
        return Indexed(state.messages_read, status == TL_FULL)

    def filter(
        self,
        data,
        out,
        *,
        verdicts=None,
        int64_t now_ms,
        int64_t delete_horizon_ms,
        int64_t retained_next_offset,
        bint retain_legacy_tombstones,
        uint64_t base_position=0,
    ):
        cdef Py_buffer view, room
        cdef bytes told
        cdef const uint8_t *judged = NULL
        cdef tl_compaction_options options
        cdef tl_window_state state
        cdef tl_fault fault
        cdef tl_status status
        memset(&state, 0, sizeof(state))
        memset(&options, 0, sizeof(options))
        options.struct_size = sizeof(options)
        options.map = &self.offset_map.map
        options.now_ms = now_ms
        options.delete_horizon_ms = delete_horizon_ms
        options.retained_next_offset = retained_next_offset
        options.decompressed_limit = self.limit
        options.retain_legacy_tombstones = retain_legacy_tombstones
        if verdicts is not None:
            told = bytes(verdicts)
            judged = <const uint8_t *><const char *>told
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(out, &room, PyBUF_WRITABLE)
            try:
                while True:
                    with nogil:
                        status = tl_compaction_filter(<const uint8_t *>view.buf, <size_t>view.len, judged, &options,
                                                      &self.scratch, self.compressor, &state, <uint8_t *>room.buf,
                                                      <size_t>room.len, &fault)
                    if status != TL_NEED_SCRATCH:
                        break
                    self._grow(<size_t>fault.expected)
            finally:
                PyBuffer_Release(&room)
        finally:
            PyBuffer_Release(&view)
        if status != TL_OK and status != TL_FULL:
            fault.position += base_position
            raise error_of(status, &fault, CorruptRecordError)
        return Filtered(
            state.at,
            state.batch,
            state.out_size,
            state.messages_read,
            state.messages_retained,
            state.invalid_messages,
            fault.expected if status == TL_FULL else 0,
            _columns_of(out, state.out_size, state.batch),
        )


cdef dict _columns_of(out, size_t size, size_t batches_max):
    """The columns of written batches that their indexes are made of."""
    cdef Py_buffer view
    cdef tl_batch_table table
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t at = 0
    columns = {name: np.empty(batches_max, dtype) for name, dtype in _WRITTEN.items()}
    memset(&table, 0, sizeof(table))
    table.struct_size = sizeof(table)
    table.capacity = batches_max
    table.last_offset = <int64_t *>address_of(columns["last_offset"])
    table.max_timestamp = <int64_t *>address_of(columns["max_timestamp"])
    table.size_bytes = <int32_t *>address_of(columns["size_bytes"])
    PyObject_GetBuffer(out, &view, PyBUF_SIMPLE)
    try:
        status = tl_scan(<const uint8_t *>view.buf, size, 0, False, &at, &table, &fault)
    finally:
        PyBuffer_Release(&view)
    check_status(status, &fault, CorruptRecordError)
    return {name: column[: table.count] for name, column in columns.items()}
