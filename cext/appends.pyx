"""Batches on their way into a log, over ``log_append.h``, ``index_append.h``, ``log_end.h`` and ``usual_append.h``."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Size
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tl_appends cimport *
from tl_arrays cimport *
from tl_core cimport *
from tl_errors cimport *

from collections import namedtuple

import numpy as np

from tierlog.errors import CorruptRecordError

include "batch_columns.pxi"


AssignedBatch = namedtuple(
    "AssignedBatch",
    (
        "size_bytes",
        "base_offset",
        "last_offset",
        "leader_epoch",
        "max_timestamp",
        "attributes",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "must_rebuild",
    ),
)
# Past a named tuple's own constructor, which is Python's: one is made in each append.
cdef object _new_tuple = tuple.__new__
Refusal = namedtuple("Refusal", ("rule", "error_code", "fault", "record_errors", "record_error_count"))
Marker = namedtuple("Marker", ("is_commit", "coordinator_epoch", "timestamp"))

cdef enum:
    ERRORS_KEPT = 1000
    SCRATCH_KEPT = 1 << 20    # bytes, from one batch to the next
    LONG_BYTES = 1 << 15      # less is checked faster than the GIL comes and goes


cdef object _refusal(tl_append_rule rule, tl_status status, const tl_fault *fault, const tl_record_errors *errors):
    told = ()
    cdef size_t kept, row
    if errors != NULL and errors.count:
        kept = min(<size_t>errors.count, errors.capacity)
        told = tuple(
            (
                errors.entries[row].record,
                tl_record_rule_name(errors.entries[row].rule).decode(),
                errors.entries[row].timestamp,
            )
            for row in range(kept)
        )
    count = errors.count if errors != NULL else 0
    name = tl_append_rule_name(rule).decode()
    return Refusal(name, tl_append_error_code(rule), error_of(status, fault, CorruptRecordError), told, count)


def check_follower_batches(data, *, int64_t next_offset, int32_t leader_epoch):
    cdef Py_buffer view
    cdef tl_batch_table table
    cdef tl_follower_check check
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t at = 0, size, capacity
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        size = <size_t>view.len
        capacity = _first_capacity(size)
        memset(&table, 0, sizeof(table))
        table.struct_size = sizeof(table)
        columns = _new_columns(capacity)
        tl_follower_begin(&check, next_offset, leader_epoch)
        while True:
            _bind(&table, columns, capacity)
            with nogil:
                status = tl_follower_append(&check, <const uint8_t *>view.buf, size, &at, &table, &fault)
            if status != TL_FULL:
                break
            capacity *= 2
            columns = _doubled(columns)
    finally:
        PyBuffer_Release(&view)
    refusal = None if status == TL_OK else _refusal(check.rule, status, &fault, NULL)
    return _cut(columns, table.count), check.valid_bytes, refusal


def find_marker(data):
    cdef Py_buffer view
    cdef tl_batch_header header
    cdef tl_marker marker
    cdef tl_bool found = False
    cdef tl_fault fault
    cdef tl_status status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = tl_batch_parse(<const uint8_t *>view.buf, <size_t>view.len, &header, &fault)
        if status == TL_OK:
            status = tl_marker_parse(<const uint8_t *>view.buf, &header, &marker, &found, &fault)
    finally:
        PyBuffer_Release(&view)
    check_status(status, &fault, CorruptRecordError)
    return Marker(bool(marker.is_commit), marker.coordinator_epoch, marker.timestamp) if found else None


cdef bytes _taken(const uint8_t *start, size_t size):
    return PyBytes_FromStringAndSize(<const char *>start, <Py_ssize_t>size)


cdef class IndexTail:
    cdef tl_index_tail tail

    def __cinit__(
        self, int64_t base_offset, *, int64_t interval_bytes, int64_t offset_entries_max, int64_t time_entries_max
    ):
        tl_index_begin(&self.tail, base_offset, interval_bytes, offset_entries_max, time_entries_max - 1)

    def resume(
        self,
        *,
        int64_t offset_entries,
        int64_t last_offset,
        int64_t time_entries,
        int64_t last_time,
        int64_t last_time_offset,
    ):
        self.tail.offset_room -= offset_entries
        self.tail.time_room -= time_entries
        if offset_entries:
            self.tail.last_offset = last_offset
        if time_entries:
            self.tail.last_time = self.tail.max_timestamp = last_time
            self.tail.last_time_offset = self.tail.max_timestamp_offset = last_time_offset

    @property
    def max_timestamp(self):
        return self.tail.max_timestamp

    @property
    def max_timestamp_offset(self):
        return self.tail.max_timestamp_offset

    @property
    def greatest_timestamp(self):
        return self.tail.max_timestamp, self.tail.max_timestamp_offset

    def note_timestamp(self, *, int64_t max_timestamp, int64_t last_offset):
        if max_timestamp > self.tail.max_timestamp:
            self.tail.max_timestamp = max_timestamp
            self.tail.max_timestamp_offset = last_offset

    @property
    def bytes_since_entry(self):
        return self.tail.bytes_since_entry

    @property
    def is_full(self):
        return self.tail.offset_room <= 0 or self.tail.time_room <= 0

    def add_batch(self, *, int64_t last_offset, int64_t max_timestamp, int64_t position, int32_t size_bytes):
        cdef uint8_t offsets[8]
        cdef uint8_t times[12]
        cdef tl_batch_table table
        cdef tl_index_entries entries
        cdef tl_fault fault
        memset(&table, 0, sizeof(table))
        table.struct_size = sizeof(table)
        table.count = table.capacity = 1
        table.last_offset = &last_offset
        table.max_timestamp = &max_timestamp
        table.size_bytes = &size_bytes
        entries.offsets = offsets
        entries.times = times
        entries.offset_count = entries.time_count = 0
        check_status(tl_index_add(&self.tail, &table, 0, position, &entries, &fault), &fault, CorruptRecordError)
        return _taken(offsets, 8 * entries.offset_count), _taken(times, 12 * entries.time_count)

    def add(self, columns, *, int64_t position):
        cdef tl_batch_table table
        cdef tl_index_entries entries
        cdef tl_fault fault
        cdef tl_status status
        cdef int64_t at = position
        taken = {
            name: np.ascontiguousarray(columns[name], _DTYPES[name])
            for name in ("last_offset", "max_timestamp", "size_bytes")
        }
        count = len(taken["last_offset"])
        if any(column.shape != (count,) for column in taken.values()):
            raise ValueError("columns of one length are needed")
        offsets = np.empty(TL_OFFSET_ENTRY * count, np.uint8)
        times = np.empty(TL_TIME_ENTRY * count, np.uint8)
        memset(&table, 0, sizeof(table))
        table.struct_size = sizeof(table)
        table.count = table.capacity = count
        table.last_offset = <int64_t *>_address(taken, "last_offset")
        table.max_timestamp = <int64_t *>_address(taken, "max_timestamp")
        table.size_bytes = <int32_t *>_address(taken, "size_bytes")
        entries.offsets = <uint8_t *>address_of(offsets)
        entries.times = <uint8_t *>address_of(times)
        entries.offset_count = entries.time_count = 0
        with nogil:
            status = tl_index_add(&self.tail, &table, 0, at, &entries, &fault)
        check_status(status, &fault, CorruptRecordError)
        return (
            offsets[: TL_OFFSET_ENTRY * entries.offset_count].tobytes(),
            times[: TL_TIME_ENTRY * entries.time_count].tobytes(),
        )

    def add_batches(self, data, *, size_t batches_max, int64_t position):
        cdef Py_buffer view
        cdef tl_index_entries entries
        cdef tl_fault fault
        cdef tl_status status
        entries.offset_count = entries.time_count = 0
        entries.offsets = <uint8_t *>malloc(batches_max * (TL_OFFSET_ENTRY + TL_TIME_ENTRY) + 1)
        if entries.offsets == NULL:
            raise MemoryError(f"no memory for the index entries of {batches_max} batches")
        entries.times = entries.offsets + batches_max * TL_OFFSET_ENTRY
        try:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            with nogil:
                status = tl_index_add_batches(&self.tail, <const uint8_t *>view.buf, <size_t>view.len, batches_max,
                                              position, &entries, &fault)
            PyBuffer_Release(&view)
            check_status(status, &fault, CorruptRecordError)
            return (
                _taken(entries.offsets, TL_OFFSET_ENTRY * entries.offset_count),
                _taken(entries.times, TL_TIME_ENTRY * entries.time_count),
            )
        finally:
            free(entries.offsets)

    def close(self):
        cdef uint8_t times[12]
        cdef tl_index_entries entries
        entries.times = times
        entries.offset_count = entries.time_count = 0
        tl_index_close(&self.tail, &entries)
        return _taken(times, 12 * entries.time_count)


include "appends_ends.pxi"
include "appends_leader.pxi"
