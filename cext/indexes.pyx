"""Kafka's sparse indexes and aborted transactions over ``tierlog/index.h`` and ``aborted.h``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from tl_arrays cimport *
from tl_core cimport *
from tl_errors cimport *

import numpy as np

from tierlog.errors import CorruptIndexError

ABORTED_DTYPE = np.dtype([(name, np.int64) for name in ("producer_id", "first_offset", "last_offset")])
TRANSACTION_DTYPE = np.dtype(
    [(name, np.int64) for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")]
)


cdef enum:
    RELEASED_FROM = 256    # lookups at once: some 10 µs; the interpreter waits longer for fewer to hand itself over


cdef class _Bytes:
    """Borrowed bytes of any contiguous buffer, released when the call ends."""
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef size_t size

    def __cinit__(self, data not None):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.start = <const uint8_t *>self.view.buf
        self.size = <size_t>self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)    # no-op where none was acquired


cdef _row(values):
    """The numbers as int64, in a row without gaps."""
    found = np.asarray(values)
    if found.ndim != 1 or not (found.dtype == np.int64 or not found.size or np.can_cast(found.dtype, np.int64)):
        raise ValueError(f"targets must be a row of 64-bit integers, not {found.dtype} in {found.ndim} dimensions")
    return np.asarray(found, np.int64, order="C")


def offset_index_entries(data):
    cdef _Bytes index = _Bytes(data)
    return tl_offset_index_entries(index.start, index.size)


def read_offset_index(data, int64_t base_offset):
    cdef _Bytes index = _Bytes(data)
    cdef size_t entries = tl_offset_index_entries(index.start, index.size)
    offsets = np.empty(entries, np.int64)
    positions = np.empty(entries, np.int32)
    cdef int64_t *offset = <int64_t *>address_of(offsets)
    cdef int32_t *position = <int32_t *>address_of(positions)
    with nogil:
        tl_offset_index_read(index.start, entries, base_offset, offset, position)
    return offsets, positions


def lookup_offset(data, int64_t base_offset, int64_t target_offset):
    cdef _Bytes index = _Bytes(data)
    cdef int64_t offset
    cdef int32_t position
    cdef size_t entries = tl_offset_index_entries(index.start, index.size)
    tl_offset_index_lookup(index.start, entries, base_offset, target_offset, &offset, &position)
    return offset, position


def lookup_offsets(data, int64_t base_offset, targets):
    cdef _Bytes index = _Bytes(data)
    cdef size_t entries = tl_offset_index_entries(index.start, index.size)
    asked = _row(targets)
    cdef size_t count = asked.size
    offsets = np.empty(count, np.int64)
    positions = np.empty(count, np.int32)
    cdef const int64_t *target = <const int64_t *>address_of(asked)
    cdef int64_t *offset = <int64_t *>address_of(offsets)
    cdef int32_t *position = <int32_t *>address_of(positions)
    if count < RELEASED_FROM:
        tl_offset_index_lookup_many(index.start, entries, base_offset, target, count, offset, position)
    else:
        with nogil:
            tl_offset_index_lookup_many(index.start, entries, base_offset, target, count, offset, position)
    return offsets, positions


def find_upper_bound_offset(data, int64_t base_offset, int64_t position, int64_t size_bytes):
    cdef _Bytes index = _Bytes(data)
    cdef size_t entries = tl_offset_index_entries(index.start, index.size)
    cdef int64_t offset = tl_offset_index_upper_bound(index.start, entries, base_offset, position, size_bytes)
    return None if offset < 0 else offset


def check_offset_index(data, int64_t base_offset, segment_size_bytes=None):
    cdef _Bytes index = _Bytes(data)
    cdef int64_t segment_size = INT64_MAX if segment_size_bytes is None else segment_size_bytes
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_offset_index_check(index.start, index.size, base_offset, segment_size, &fault)
    check_status(status, &fault, CorruptIndexError)


def time_index_entries(data):
    cdef _Bytes index = _Bytes(data)
    return tl_time_index_entries(index.start, index.size)


def read_time_index(data, int64_t base_offset):
    cdef _Bytes index = _Bytes(data)
    cdef size_t entries = tl_time_index_entries(index.start, index.size)
    timestamps = np.empty(entries, np.int64)
    offsets = np.empty(entries, np.int64)
    cdef int64_t *timestamp = <int64_t *>address_of(timestamps)
    cdef int64_t *offset = <int64_t *>address_of(offsets)
    with nogil:
        tl_time_index_read(index.start, entries, base_offset, timestamp, offset)
    return timestamps, offsets


def lookup_timestamp(data, int64_t base_offset, int64_t target_timestamp_ms):
    cdef _Bytes index = _Bytes(data)
    cdef int64_t timestamp, offset
    cdef size_t entries = tl_time_index_entries(index.start, index.size)
    tl_time_index_lookup(index.start, entries, base_offset, target_timestamp_ms, &timestamp, &offset)
    return timestamp, offset


def lookup_timestamps(data, int64_t base_offset, targets_ms):
    cdef _Bytes index = _Bytes(data)
    cdef size_t entries = tl_time_index_entries(index.start, index.size)
    asked = _row(targets_ms)
    cdef size_t count = asked.size
    timestamps = np.empty(count, np.int64)
    offsets = np.empty(count, np.int64)
    cdef const int64_t *target = <const int64_t *>address_of(asked)
    cdef int64_t *timestamp = <int64_t *>address_of(timestamps)
    cdef int64_t *offset = <int64_t *>address_of(offsets)
    if count < RELEASED_FROM:
        tl_time_index_lookup_many(index.start, entries, base_offset, target, count, timestamp, offset)
    else:
        with nogil:
            tl_time_index_lookup_many(index.start, entries, base_offset, target, count, timestamp, offset)
    return timestamps, offsets


def check_time_index(data, int64_t base_offset):
    cdef _Bytes index = _Bytes(data)
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_time_index_check(index.start, index.size, base_offset, &fault)
    check_status(status, &fault, CorruptIndexError)


def read_transaction_index(data):
    cdef _Bytes index = _Bytes(data)
    cdef size_t count = index.size // TL_TXN_ENTRY
    entries = np.empty(count, TRANSACTION_DTYPE)
    cdef tl_txn_entry *out = <tl_txn_entry *>address_of(entries)
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_txn_index_read(index.start, index.size, out, &count, &fault)
    check_status(status, &fault, CorruptIndexError)
    return entries


def check_transaction_index(data, int64_t base_offset):
    cdef _Bytes index = _Bytes(data)
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_txn_index_check(index.start, index.size, base_offset, &fault)
    check_status(status, &fault, CorruptIndexError)


def collect_aborted(data, int64_t fetch_offset, int64_t upper_bound_offset_exclusive):
    cdef _Bytes index = _Bytes(data)
    cdef size_t count = index.size // TL_TXN_ENTRY
    entries = np.empty(count, ABORTED_DTYPE)
    cdef tl_aborted *out = <tl_aborted *>address_of(entries)
    cdef tl_bool complete = False
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_txn_index_collect(index.start, index.size, fetch_offset, upper_bound_offset_exclusive, out, &count,
                                      &complete, &fault)
    check_status(status, &fault, CorruptIndexError)
    return entries[:count].copy(), bool(complete)


def sort_aborted(entries):
    if entries.dtype != ABORTED_DTYPE:
        raise ValueError(f"entries must have the dtype ABORTED_DTYPE, not {entries.dtype}")
    copied = np.array(entries, ABORTED_DTYPE, ndmin=1)
    cdef tl_aborted *start = <tl_aborted *>address_of(copied)
    cdef size_t size = copied.size, count = 0
    cdef tl_fault fault
    cdef tl_status status
    with nogil:
        status = tl_aborted_sort(start, size, &count, &fault)
    check_status(status, &fault, CorruptIndexError)
    return copied[:count].copy()


def is_aborted(sorted_entries, int64_t producer_id, int64_t base_offset):
    if sorted_entries.dtype != ABORTED_DTYPE:
        raise ValueError(f"entries must have the dtype ABORTED_DTYPE, not {sorted_entries.dtype}")
    cdef _Bytes entries = _Bytes(sorted_entries)
    cdef size_t count = entries.size // sizeof(tl_aborted)
    return bool(tl_is_aborted(<const tl_aborted *>entries.start, count, producer_id, base_offset))
