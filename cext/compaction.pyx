"""Compaction of a log, a window at a time, over ``offset_map.h``, ``compaction.h`` and ``cleaned_transactions.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tl_compaction cimport *
from tl_core cimport *
from tl_errors cimport *

from collections import namedtuple

from tierlog.errors import CorruptRecordError

DISCARD = TL_VERDICT_DISCARD
RETAIN_EMPTY = TL_VERDICT_RETAIN_EMPTY
EMPTY_TRANSACTION = TL_VERDICT_EMPTY_TRANSACTION
ENTRY_BYTES = TL_OFFSET_MAP_ENTRY_BYTES

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
        self.memory = tl_memory_map(self.size)
        if self.memory == NULL:
            raise MemoryError(f"no memory for a map of {size_bytes} bytes")
        check_status(
            tl_offset_map_begin(&self.map, self.memory, size_bytes, load_factor, halves[0], halves[1]),
            &fault,
            CorruptRecordError,
        )

    def __dealloc__(self):
        if self.memory != NULL:
            tl_memory_unmap(self.memory, self.size)

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


cdef class CleanedTransactions:
    cdef tl_cleaned_transactions *transactions
    cdef tl_last_record *last

    def __cinit__(self, secret):
        cdef tl_fault fault
        cdef uint64_t halves[2]
        _take_secret(secret, halves)
        memset(&fault, 0, sizeof(fault))
        check_status(
            tl_cleaned_transactions_create(&self.transactions, halves[0], halves[1]), &fault, CorruptRecordError
        )

    def __dealloc__(self):
        tl_cleaned_transactions_destroy(self.transactions)
        free(self.last)

    def add_aborted(self, aborted):
        cdef tl_aborted_entry entry
        cdef tl_fault fault
        memset(&fault, 0, sizeof(fault))
        for producer_id, first_offset, last_offset, last_stable_offset in aborted:
            entry = tl_aborted_entry(producer_id, first_offset, last_offset, last_stable_offset)
            check_status(tl_cleaned_transactions_add(self.transactions, &entry), &fault, CorruptRecordError)

    def set_last_records(self, last_records):
        cdef list rows = sorted(last_records.items())
        cdef size_t count = 0
        cdef tl_last_record *last = <tl_last_record *>malloc((len(rows) + 1) * sizeof(tl_last_record))
        if last == NULL:
            raise MemoryError(f"no memory for the last records of {len(rows)} producers")
        tl_cleaned_transactions_set_last(self.transactions, NULL, 0)
        free(self.last)
        self.last = last
        for producer_id, (last_data_offset, producer_epoch) in rows:
            last[count] = tl_last_record(
                producer_id, -1 if last_data_offset is None else last_data_offset, producer_epoch
            )
            count += 1
        tl_cleaned_transactions_set_last(self.transactions, last, count)

    def judge(self, data, *, size_t batches, int64_t now_ms=0, bint is_for_map=False, uint64_t base_position=0):
        cdef Py_buffer view
        cdef tl_fault fault
        cdef tl_status status
        cdef bytearray verdicts = bytearray(batches)
        cdef uint8_t *out = <uint8_t *><char *>verdicts
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                status = tl_cleaned_transactions_judge(self.transactions, <const uint8_t *>view.buf, <size_t>view.len,
                                                       batches, now_ms, is_for_map, out, &fault)
        finally:
            PyBuffer_Release(&view)
        if status != TL_OK:
            fault.position += base_position
            raise error_of(status, &fault, CorruptRecordError)
        return verdicts

    def take_retained(self):
        cdef size_t count, row
        cdef const tl_aborted_entry *retained = tl_cleaned_transactions_retained(self.transactions, &count)
        taken = [
            (
                retained[row].producer_id,
                retained[row].first_offset,
                retained[row].last_offset,
                retained[row].last_stable_offset,
            )
            for row in range(count)
        ]
        tl_cleaned_transactions_forget(self.transactions)
        return taken


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
        )
