"""Batch headers of a byte range as numpy columns, over ``tierlog/batch.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_RawFree, PyMem_RawMalloc
from libc cimport errno
from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from tl_errors cimport *
from tl_arrays cimport *
from tl_core cimport *

from collections import namedtuple

import numpy as np

from tierlog.errors import CorruptObjectError, CorruptRecordError

include "batch_columns.pxi"


BatchHeader = namedtuple(
    "BatchHeader", ("base_offset", "size_bytes", "magic", "attributes", "base_timestamp", "max_timestamp")
)

FoundBatch = namedtuple(
    "FoundBatch", ("position", "size_bytes", "base_offset", "last_offset", "max_timestamp_ms", "leader_epoch")
)


def find_batch_header(data):
    cdef Py_buffer view
    cdef tl_batch_header header
    cdef tl_fault fault
    cdef tl_status status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = tl_batch_parse_header(<const uint8_t *>view.buf, <size_t>view.len, &header, &fault)
    finally:
        PyBuffer_Release(&view)
    if status == TL_PARTIAL:
        return None
    check_status(status, &fault, CorruptRecordError)
    return BatchHeader(
        header.base_offset,
        header.size_bytes,
        header.magic,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
    )


def find_batch_size(data):
    cdef Py_buffer view
    cdef tl_batch_header header
    cdef tl_fault fault
    cdef tl_status status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        status = tl_batch_parse(<const uint8_t *>view.buf, <size_t>view.len, &header, &fault)
    finally:
        PyBuffer_Release(&view)
    if status == TL_PARTIAL:
        return fault.expected or None
    check_status(status, &fault, CorruptRecordError)
    return header.size_bytes


def scan_batches(data, *, uint64_t base_position=0, bint verify_crc=True):
    cdef Py_buffer view
    cdef tl_batch_table table
    cdef tl_fault fault
    cdef tl_status status = TL_OK
    cdef size_t at = 0, size, capacity
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        size = <size_t>view.len
        capacity = _first_capacity(size)
        memset(&table, 0, sizeof(table))
        table.struct_size = sizeof(table)
        columns = _new_columns(capacity)
        while True:
            _bind(&table, columns, capacity)
            with nogil:
                status = tl_scan(<const uint8_t *>view.buf, size, base_position, verify_crc, &at, &table, &fault)
            if status != TL_FULL:
                break
            capacity *= 2
            columns = _doubled(columns)
    finally:
        PyBuffer_Release(&view)
    error = None
    if status != TL_OK and status != TL_PARTIAL:
        error = error_of(status, &fault, CorruptRecordError)
    return _cut(columns, table.count), base_position + at, status == TL_PARTIAL, error


cdef class BatchSearch:
    cdef tl_batch_search search

    def __cinit__(
        self,
        *,
        int64_t position,
        int64_t end_position,
        int64_t least_last_offset,
        int64_t least_max_timestamp=INT64_MIN,
    ):
        if position < 0:
            raise ValueError("position is negative")
        tl_batch_search_begin(&self.search, position, end_position, least_last_offset, least_max_timestamp)

    def feed(self, data):
        cdef Py_buffer view
        cdef tl_fault fault
        cdef tl_status status
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            status = tl_batch_search_feed(&self.search, <const uint8_t *>view.buf, <size_t>view.len, &fault)
        finally:
            PyBuffer_Release(&view)
        check_status(status, &fault, CorruptRecordError)

    def run(self, growing):
        cdef tl_growing_file *file = <tl_growing_file *>PyCapsule_GetPointer(growing.core, "tierlog.growing_file")
        cdef tl_fault fault
        cdef tl_status status
        cdef int64_t error
        with nogil:
            status = tl_batch_search_run(&self.search, file.files, file.file, &error, &fault)
        if error:
            raise growing.error(-error)
        check_status(status, &fault, CorruptRecordError)

    @property
    def is_done(self):
        return bool(self.search.is_done)

    @property
    def position(self):
        return self.search.position

    @property
    def found(self):
        if not self.search.is_found:
            return None
        return FoundBatch(
            self.search.position,
            self.search.header.size_bytes,
            self.search.header.base_offset,
            self.search.last_offset,
            self.search.header.max_timestamp,
            self.search.header.leader_epoch,
        )

    @property
    def passed_last_offset(self):
        return self.search.passed_last_offset if self.search.passed else None

    @property
    def greatest_timestamp(self):
        return self.search.greatest_timestamp, self.search.greatest_timestamp_offset


BatchWalk = namedtuple(
    "BatchWalk",
    (
        "first_position",
        "first_size_bytes",
        "first_base_offset",
        "position",
        "is_ended",
        "least_offset",
        "whole_position",
        "whole_offset",
    ),
)

cdef size_t _WALK_WITHOUT_GIL_BYTES = 4 << 20


cdef int _begin_walk(
    tl_batch_walk *walk,
    int64_t start_position,
    int64_t log_size_bytes,
    int64_t least_offset,
    int64_t greatest_offset,
    int64_t wanted_offset,
    int64_t end_offset_exclusive,
    int64_t max_bytes,
) except -1:
    if start_position < 0 or log_size_bytes < start_position:
        raise ValueError(f"position {start_position} is not within a log of {log_size_bytes} bytes")
    tl_batch_walk_begin(walk, start_position)
    walk.log_size = log_size_bytes
    walk.least_offset = least_offset
    walk.greatest_offset = greatest_offset
    walk.wanted_offset = wanted_offset
    walk.end_offset = end_offset_exclusive
    walk.max_bytes = max_bytes
    return 0


cdef tuple _walked(const tl_batch_walk *walk, tl_status status, const tl_fault *fault):
    found = BatchWalk(
        walk.first_position,
        walk.first.size_bytes if walk.is_found else 0,
        walk.first.base_offset if walk.is_found else -1,
        walk.position,
        bool(walk.is_ended),
        walk.least_offset,
        walk.whole_position,
        walk.whole_offset,
    )
    return found, None if status == TL_OK else error_of(status, fault, CorruptRecordError)


def walk_batches(
    pieces,
    *,
    int64_t start_position,
    int64_t log_size_bytes,
    int64_t least_offset,
    int64_t greatest_offset,
    int64_t wanted_offset,
    int64_t end_offset_exclusive,
    int64_t max_bytes,
):
    cdef Py_ssize_t count = len(pieces), held = 0, index
    cdef Py_buffer *views
    cdef tl_piece *parts
    cdef tl_batch_walk walk
    cdef tl_fault fault
    cdef tl_status status
    cdef size_t total = 0
    _begin_walk(
        &walk,
        start_position,
        log_size_bytes,
        least_offset,
        greatest_offset,
        wanted_offset,
        end_offset_exclusive,
        max_bytes,
    )
    views = <Py_buffer *>PyMem_Malloc((count + 1) * sizeof(Py_buffer))
    parts = <tl_piece *>PyMem_Malloc((count + 1) * sizeof(tl_piece))
    try:
        if views == NULL or parts == NULL:
            raise MemoryError()
        for index in range(count):
            PyObject_GetBuffer(pieces[index], &views[index], PyBUF_SIMPLE)
            held += 1
            parts[index].data = <const uint8_t *>views[index].buf
            parts[index].size = <size_t>views[index].len
            total += parts[index].size
        if total > _WALK_WITHOUT_GIL_BYTES:
            with nogil:
                status = tl_batch_walk_run(&walk, parts, <size_t>count, start_position, &fault)
        else:
            status = tl_batch_walk_run(&walk, parts, <size_t>count, start_position, &fault)
    finally:
        for index in range(held):
            PyBuffer_Release(&views[index])
        PyMem_Free(views)
        PyMem_Free(parts)
    return _walked(&walk, status, &fault)


def walk_ready_batches(
    int descriptor,
    int64_t log_position,
    int64_t end_position,
    *,
    int64_t start_position,
    int64_t log_size_bytes,
    int64_t least_offset,
    int64_t greatest_offset,
    int64_t wanted_offset,
    int64_t end_offset_exclusive,
    int64_t max_bytes,
):
    cdef tl_batch_walk walk
    cdef tl_fault fault
    cdef tl_status status
    cdef int64_t error
    _begin_walk(
        &walk,
        start_position,
        log_size_bytes,
        least_offset,
        greatest_offset,
        wanted_offset,
        end_offset_exclusive,
        max_bytes,
    )
    # With the interpreter's lock: 64 headers of a mebibyte take some 30 us, and getting it back may take longer.
    status = tl_batch_walk_run_ready(&walk, tl_posix_files(), descriptor, log_position, end_position, &error, &fault)
    return None if error else _walked(&walk, status, &fault)


# Bytes of a checked file that are read at once: they fit into the processor's cache, and malloc reuses them.
cdef enum:
    _ROOM_BYTES = 65536
    _CHECK_ALONE_BYTES = 131072     # less is checked faster than the interpreter's lock changes hands


cdef class RangeCheck:
    cdef tl_range_check check
    cdef object kind
    # Columns that are being filled, and where the core writes them; None while there are none.
    cdef dict columns
    cdef tl_batch_table table
    cdef size_t capacity

    def __cinit__(
        self,
        *,
        uint64_t position,
        int64_t first_offset,
        int64_t last_offset,
        uint64_t size_bytes,
        bint is_border=False,
        kind=CorruptObjectError,
    ):
        tl_range_check_begin(&self.check, position, first_offset, last_offset, size_bytes)
        self.check.is_border = is_border or position == 0
        self.kind = kind

    @property
    def is_checking(self):
        return bool(self.check.is_border and not self.check.is_off)

    @property
    def end_position(self):
        return self.check.stream.position

    @property
    def next_offset(self):
        return self.check.next_offset

    @property
    def partial(self):
        return tl_batch_stream_open(&self.check.stream)

    cdef object _broken(self, tl_status status, const tl_fault *fault):
        if status == TL_OK:
            return None
        return tl_range_rule_name(self.check.rule).decode(), error_of(status, fault, self.kind)

    def feed(self, data):
        cdef Py_buffer view
        cdef tl_fault fault
        cdef tl_status status
        if self.check.rule:
            raise ValueError("the check ended at a fault")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len < _CHECK_ALONE_BYTES:
                status = tl_range_check_feed(&self.check, <const uint8_t *>view.buf, <size_t>view.len, &fault)
            else:
                with nogil:
                    status = tl_range_check_feed(&self.check, <const uint8_t *>view.buf, <size_t>view.len, &fault)
        finally:
            PyBuffer_Release(&view)
        return self._broken(status, &fault)

    def feed_file(self, int64_t descriptor, uint64_t position, uint64_t size_bytes, *, bint waits):
        cdef tl_fault fault
        cdef tl_status status
        cdef int64_t error
        cdef uint8_t *room
        if self.check.rule:
            raise ValueError("the check ended at a fault")
        room = <uint8_t *>PyMem_RawMalloc(_ROOM_BYTES)
        if room == NULL:
            raise MemoryError()
        with nogil:
            status = tl_range_check_feed_file(
                &self.check,
                tl_posix_files(),
                descriptor,
                position,
                size_bytes,
                waits,
                room,
                _ROOM_BYTES,
                &error,
                &fault,
            )
        PyMem_RawFree(room)
        if error:
            errno.errno = <int>-error
            PyErr_SetFromErrno(OSError)
        return self._broken(status, &fault)

    def gather(self, data):
        cdef Py_buffer view
        cdef tl_fault fault
        cdef tl_status status
        cdef size_t at = 0, size
        if self.check.rule:
            raise ValueError("the check ended at a fault")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            size = <size_t>view.len
            if self.columns is None:
                self.capacity = max(self.capacity, _first_capacity(size))
                self._hold(_new_columns(self.capacity))
            while True:
                with nogil:
                    status = tl_range_check_collect(
                        &self.check, <const uint8_t *>view.buf, size, &at, &self.table, &fault
                    )
                if status != TL_FULL:
                    break
                self.capacity *= 2
                self._hold(_doubled(self.columns))
        finally:
            PyBuffer_Release(&view)
        return self._broken(status, &fault)

    cdef int _hold(self, dict columns) except -1:
        self.table.struct_size = sizeof(self.table)
        _bind(&self.table, columns, self.capacity)
        self.columns = columns
        return 0

    @property
    def gathered(self):
        return self.table.count

    def take(self):
        columns = _new_columns(0) if self.columns is None else _cut(self.columns, self.table.count)
        self.columns = None
        memset(&self.table, 0, sizeof(self.table))
        return columns

    def collect(self, data):
        found = self.gather(data)
        return self.take(), found
