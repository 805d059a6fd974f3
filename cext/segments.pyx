"""The table of tiered segments over ``tierlog/segment_table.h``, and its events over ``metadata_events.h``.

Any thread asks; one thread at a time writes, which the caller ensures. A table that is closed while calls run is freed
when the last of them returns.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy, memset

from tl_arrays cimport *
from tl_core cimport *
from tl_errors cimport *
from tl_segments cimport *

import numpy as np

from tierlog.errors import CorruptIndexError, CorruptRecordError

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)
    int PyObject_GenericSetAttr(object thing, object name, object value) except -1

cdef enum:
    REFUSALS_MAX = 1000
    REMOVALS_AT_ONCE = 256
    EPOCHS_AT_HAND = 64
    CUSTOM_AT_HAND = 512
    QUESTIONS_AT_ONCE = 1024
    LISTED_AT_ONCE = 256
    EPOCHS_INSIDE = 3


include "segments_users.pxi"
include "segments_copies.pxi"
include "segments_report.pxi"


def may_become(int found_state, int state):
    return tl_segment_may_become(found_state, state)


cdef inline int _name(object partition, tl_partition_id *out) except -1:
    """The partition's id and number, by which the table knows it."""
    cdef bytes raw = bytes(partition.topic_id)
    out.partition = partition.partition
    if PyBytes_GET_SIZE(raw) != 16:
        raise ValueError("a topic id has 16 bytes")
    memcpy(out.topic_id, PyBytes_AS_STRING(raw), 16)
    return 0


cdef class NativeSegmentTable:
    cdef tl_segment_table *_table
    cdef tl_metadata_partitions *_partitions
    cdef tl_metadata_feed *_feed
    cdef int64_t _users     # 0: there is no table
    cdef int32_t _closed
    cdef object _row_type
    cdef bint _learns

    def __cinit__(self, *args, **kwargs):
        self._users = 0
        self._closed = 0

    def _open(self, bytes seed not None, bint as_kafka, bint learns, row_type not None):
        """Once, before anything else. ``seed``: 8 secret bytes; ``row_type``: has a slot named _copy."""
        cdef tl_segment_table_options options
        cdef tl_status status
        if self._table != NULL or len(seed) != 8:
            raise ValueError("a table is opened once, with a seed of 8 bytes")
        memcpy(&options.hash_seed, PyBytes_AS_STRING(seed), 8)
        options.struct_size = sizeof(options)
        options.as_kafka = as_kafka
        self._row_type = row_type
        self._learns = learns
        status = tl_segment_table_create(&self._table, &options)
        if status == TL_OK:
            status = tl_metadata_partitions_create(&self._partitions, options.hash_seed)
        if status == TL_OK:
            status = tl_metadata_feed_create(&self._feed, self._table, self._partitions, learns)
        if status != TL_OK:
            self._drop()
            raise MemoryError("no memory for a segment table")
        self._users = 1

    def __dealloc__(self):
        if self._users > 0:
            self._drop()

    cdef void _drop(self) noexcept:
        tl_metadata_feed_destroy(self._feed)
        tl_metadata_partitions_destroy(self._partitions)
        tl_segment_table_destroy(self._table)
        self._feed = NULL
        self._partitions = NULL
        self._table = NULL

    cdef int _enter(self) except -1:
        if tl_is_closed(&self._closed) or not tl_enter(&self._users):
            raise ValueError("the segment table is closed")
        return 0

    cdef void _leave(self) noexcept:
        if tl_leave(&self._users):
            self._drop()

    def close(self):
        """Frees the table, or lets the last call under way do so. Later calls raise ValueError. Idempotent."""
        if tl_close_once(&self._closed) and self._users > 0:
            self._leave()

    @property
    def closed(self):
        return tl_is_closed(&self._closed)

    # ---- questions: any thread's -------------------------------------------------------------------------------------

    cdef object _row(self, object partition, const tl_segment_copy *copy, const tl_segment_room *room):
        cdef SegmentCopy held = SegmentCopy.__new__(SegmentCopy)
        held.partition = partition
        held.fill(copy, room)
        row = PyType_GenericAlloc(<PyTypeObject *>self._row_type, 0)
        PyObject_GenericSetAttr(row, "_copy", held)
        return row

    cdef object _ask(self, object partition, const tl_partition_id *name, const uint8_t *segment_id, int32_t epoch,
                     int64_t offset):
        """The row of an id, or (NULL) of an epoch and an offset in it."""
        cdef tl_segment_epoch epochs[EPOCHS_AT_HAND]
        cdef uint8_t custom[CUSTOM_AT_HAND]
        cdef tl_segment_room room
        cdef tl_segment_copy copy
        cdef tl_bool found = False
        cdef tl_status status
        cdef _Room more
        room.epochs = epochs
        room.epochs_capacity = EPOCHS_AT_HAND
        room.custom = custom
        room.custom_capacity = CUSTOM_AT_HAND
        while True:
            if segment_id != NULL:
                status = tl_segment_table_get(self._table, name, segment_id, &room, &copy, &found)
            else:
                status = tl_segment_table_find(self._table, name, epoch, offset, &room, &copy, &found)
            if status != TL_FULL:
                return self._row(partition, &copy, &room) if found else None
            more = _Room()
            more.make(&copy)
            room = more.room

    def find(self, partition, int32_t epoch, int64_t offset):
        cdef tl_partition_id name
        _name(partition, &name)
        self._enter()
        try:
            return self._ask(partition, &name, NULL, epoch, offset)
        finally:
            self._leave()

    def get(self, segment_id):
        cdef tl_partition_id name
        cdef bytes raw = bytes(segment_id.id)
        partition = segment_id.topic_id_partition
        _name(partition, &name)
        self._enter()
        try:
            return self._ask(partition, &name, <const uint8_t *>PyBytes_AS_STRING(raw), 0, 0)
        finally:
            self._leave()

    def next_with_txn_index(self, partition, int32_t epoch, int64_t offset):
        cdef tl_partition_id name
        cdef tl_segment_copy copy
        cdef tl_bool found = False
        _name(partition, &name)
        self._enter()
        try:
            while True:
                tl_segment_table_find(self._table, &name, epoch, offset, NULL, &copy, &found)
                if not found:
                    return None
                if not copy.txn_index_empty:
                    row = self._ask(partition, &name, NULL, epoch, offset)
                    if row is None or not row.txn_idx_empty:
                        return row
                if copy.end_offset < offset or copy.end_offset == <int64_t>0x7fffffffffffffff:
                    return None    # the first: its next epoch begins behind its end
                offset = copy.end_offset + 1
        finally:
            self._leave()

    def highest_offset(self, partition, int32_t epoch):
        cdef tl_partition_id name
        cdef int64_t highest
        _name(partition, &name)
        self._enter()
        highest = tl_segment_table_highest(self._table, &name, epoch)
        self._leave()
        return None if highest < 0 else highest

    def version(self, partition):
        cdef tl_partition_id name
        cdef tl_partition_version version
        _name(partition, &name)
        self._enter()
        version = tl_segment_table_version(self._table, &name)
        self._leave()
        return <object>version.cell << 64 | <object>version.sequence

    def size_in_bytes(self, partition, int32_t epoch):
        cdef tl_partition_id name
        cdef tl_segment_cursor cursor
        cdef tl_segment_copy copies[LISTED_AT_ONCE]
        cdef size_t count, i
        cdef int64_t size = 0
        _name(partition, &name)
        if epoch < 0:
            return 0
        self._enter()
        with nogil:
            tl_segment_cursor_open(&cursor, &name, epoch)
            while True:
                count = tl_segment_table_list(self._table, &cursor, copies, LISTED_AT_ONCE)
                if count == 0:
                    break
                for i in range(count):
                    size += copies[i].size_bytes
        self._leave()
        return size

    def _find_rows(self, partition, const int32_t[::1] epochs not None, const int64_t[::1] offsets not None):
        """(found: bool[n], rows: SEGMENT_DTYPE[n])."""
        cdef tl_partition_id name
        cdef size_t count = <size_t>epochs.shape[0], at = 0, n, i
        cdef tl_segment_question *questions
        cdef tl_segment_copy *out
        cdef uint8_t *is_found
        if offsets.shape[0] != epochs.shape[0]:
            raise ValueError("epochs and offsets are of one length")
        _name(partition, &name)
        found = np.zeros(count, np.bool_)
        rows = np.zeros(count, SEGMENT_DTYPE)
        out = <tl_segment_copy *>address_of(rows)
        is_found = <uint8_t *>address_of(found)
        questions = <tl_segment_question *>malloc(QUESTIONS_AT_ONCE * sizeof(tl_segment_question))
        if questions == NULL:
            raise MemoryError("no memory for questions")
        try:
            self._enter()
            with nogil:
                while at < count:
                    n = min(<size_t>QUESTIONS_AT_ONCE, count - at)
                    for i in range(n):
                        questions[i].partition = name
                        questions[i].epoch = epochs[at + i]
                        questions[i].offset = offsets[at + i]
                    tl_segment_table_find_many(self._table, questions, n, out + at, is_found + at)
                    at += n
            self._leave()
        finally:
            free(questions)
        return found, rows

    def _list_rows(self, partition, int32_t epoch):
        """All of an epoch (-1: of the partition): SEGMENT_DTYPE[n]."""
        cdef tl_partition_id name
        cdef tl_segment_cursor cursor
        cdef tl_segment_copy *out
        cdef size_t count, capacity = 128    # an event that is not filled stays with the caller
        _name(partition, &name)
        tl_segment_cursor_open(&cursor, &name, epoch)
        parts = []
        self._enter()
        try:
            while not cursor.ended:
                rows = np.empty(capacity, SEGMENT_DTYPE)
                out = <tl_segment_copy *>address_of(rows)
                with nogil:
                    count = tl_segment_table_list(self._table, &cursor, out, capacity)
                if count == 0:
                    break    # the partition is not there
                parts.append(rows[:count])
                capacity = min(8 * capacity, <size_t>1 << 16)
        finally:
            self._leave()
        if len(parts) == 1:
            return parts[0]
        # Named, or numpy packs the rows, and a reader of C's layout reads wrong ones.
        return np.concatenate(parts, dtype=SEGMENT_DTYPE) if parts else np.empty(0, SEGMENT_DTYPE)

    def _get_rows(self, partition, rows):
        """The segments of these rows (SEGMENT_DTYPE, contiguous) as they are now; those that went are left out."""
        cdef tl_partition_id name
        cdef const tl_segment_copy *of = <const tl_segment_copy *>address_of(rows)
        cdef size_t i, count = <size_t>len(rows)
        _name(partition, &name)
        found = []
        self._enter()
        try:
            for i in range(count):
                row = self._ask(partition, &name, of[i].id, 0, 0)
                if row is not None:
                    found.append(row)
        finally:
            self._leave()
        return found

    @property
    def _figures(self):
        cdef tl_segment_table_figures figures
        self._enter()
        figures = tl_segment_table_figures_of(self._table)
        self._leave()
        return figures.segments, figures.partitions, figures.held_bytes

    # ---- the writer's: one thread at a time --------------------------------------------------------------------------

    def _assign(self, partition, int64_t applied):
        """Whether the partition is assigned now; False: its topic id is that of a topic of another name."""
        cdef tl_partition_id name
        cdef bytes topic = partition.topic.encode()
        cdef tl_status status
        cdef tl_fault fault
        _name(partition, &name)
        self._enter()
        status = tl_metadata_partitions_add(
            self._partitions, &name, PyBytes_AS_STRING(topic), len(topic), -1, applied)
        self._leave()
        if status == TL_BAD_ENTRY:
            return False
        memset(&fault, 0, sizeof(fault))
        check_status(status, &fault, CorruptRecordError)
        return True

    def _unassign(self, partition):
        cdef tl_partition_id name
        _name(partition, &name)
        self._enter()
        tl_segment_table_forget(self._table, &name)
        tl_metadata_partitions_remove(self._partitions, &name)
        self._leave()

    def _assigned(self):
        """[(topic id, partition, topic, metadata partition or -1, last applied offset or -1)], in no order."""
        cdef tl_metadata_partition entries[64]
        cdef uint64_t at = 0
        cdef size_t count, i
        assigned = []
        self._enter()
        try:
            while True:
                count = tl_metadata_partitions_list(self._partitions, &at, entries, 64)
                if count == 0:
                    return assigned
                for i in range(count):
                    topic = entries[i].topic.name[:entries[i].topic.name_size].decode()
                    assigned.append((*_partition_key(&entries[i].id), topic, entries[i].place, entries[i].applied))
        finally:
            self._leave()

    cdef int _require_taken(self, object partition, const tl_partition_id *name) except -1:
        """1: it is assigned, or is now; 0: it is not."""
        if tl_metadata_partitions_find(self._partitions, name) != NULL:
            return 1
        return 1 if self._learns and self._assign(partition, -1) else 0

    def _add(self, metadata):
        """None: it is not assigned. Else (whether it was applied, the state that was there or -1)."""
        cdef tl_partition_id name
        cdef tl_segment segment
        cdef tl_event_outcome outcome = TL_EVENT_APPLIED
        cdef int found_state = -1
        cdef tl_status status
        cdef tl_fault fault
        cdef bytes raw = bytes(metadata.remote_log_segment_id.id), custom = metadata.custom_metadata
        cdef tl_segment_epoch *epochs
        cdef size_t i = 0
        entries = sorted(metadata.segment_leader_epochs.items())
        _name(metadata.topic_id_partition, &name)
        memset(&fault, 0, sizeof(fault))
        memset(&segment, 0, sizeof(segment))
        memcpy(segment.id, PyBytes_AS_STRING(raw), 16)
        segment.start_offset = metadata.start_offset
        segment.end_offset = metadata.end_offset
        segment.max_timestamp_ms = metadata.max_timestamp_ms
        segment.event_timestamp_ms = metadata.event_timestamp_ms
        segment.broker_id = metadata.broker_id
        segment.size_bytes = metadata.segment_size_in_bytes
        segment.txn_index_empty = metadata.txn_idx_empty
        segment.custom_size = -1
        if custom is not None:
            segment.custom = <const uint8_t *>PyBytes_AS_STRING(custom)
            segment.custom_size = PyBytes_GET_SIZE(custom)
        epochs = <tl_segment_epoch *>malloc(len(entries) * sizeof(tl_segment_epoch))
        if epochs == NULL:
            raise MemoryError("no memory for leader epochs")
        try:
            for epoch, start_offset in entries:
                epochs[i].epoch = epoch
                epochs[i].start_offset = start_offset
                i += 1
            segment.epochs = epochs
            segment.epoch_count = i
            self._enter()
            try:
                if not self._require_taken(metadata.topic_id_partition, &name):
                    return None
                status = tl_segment_table_add(self._table, &name, &segment, &outcome, &found_state)
            finally:
                self._leave()
        finally:
            free(epochs)
        check_status(status, &fault, CorruptRecordError)
        return outcome == TL_EVENT_APPLIED, found_state

    def _change(self, update):
        """None: its partition is not assigned. Else (whether it was applied, the state that was there or -1)."""
        cdef tl_partition_id name
        cdef tl_segment_change change
        cdef tl_event_outcome outcome = TL_EVENT_APPLIED
        cdef int found_state = -1
        cdef tl_status status
        cdef tl_fault fault
        cdef bytes raw = bytes(update.remote_log_segment_id.id), custom = update.custom_metadata
        partition = update.remote_log_segment_id.topic_id_partition
        _name(partition, &name)
        memset(&fault, 0, sizeof(fault))
        memset(&change, 0, sizeof(change))
        memcpy(change.id, PyBytes_AS_STRING(raw), 16)
        change.state = update.state
        change.broker_id = update.broker_id
        change.event_timestamp_ms = update.event_timestamp_ms
        change.custom_size = -1
        if custom is not None:
            change.custom = <const uint8_t *>PyBytes_AS_STRING(custom)
            change.custom_size = PyBytes_GET_SIZE(custom)
        self._enter()
        try:
            if not self._require_taken(partition, &name):
                return None
            status = tl_segment_table_change(self._table, &name, &change, &outcome, &found_state)
        finally:
            self._leave()
        check_status(status, &fault, CorruptRecordError)
        return outcome == TL_EVENT_APPLIED, found_state

    def _settle(self, size_t pages):
        """The number of huge pages that were asked for."""
        cdef size_t asked
        self._enter()
        with nogil:
            asked = tl_segment_table_settle(self._table, pages)
        self._leave()
        return asked

    def _apply_batches(self, int32_t place, batches, bint all_removals):
        """A dict of what came of a run of record batches; ``error`` is one, or None."""
        cdef Py_buffer view
        cdef _Report report = _Report()
        cdef tl_status status
        cdef const uint8_t *data
        cdef size_t size
        if all_removals:
            report.name_removals()
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *>view.buf
            size = <size_t>view.len
            self._enter()
            try:
                tl_metadata_feed_begin(self._feed, place)
                while True:
                    with nogil:
                        status = tl_metadata_feed_batches(self._feed, data, size, &report.of, &report.fault)
                    report.take_removals(self._partitions)
                    if status != TL_FULL:
                        return report.result(status, self._partitions)
            finally:
                self._leave()
        finally:
            PyBuffer_Release(&view)

    def _apply_values(self, int32_t place, offsets, timestamps_ms, keys, values, bint all_removals):
        """A dict of what came of records that are given one by one; ``error`` is one, or None."""
        cdef _Report report = _Report()
        cdef tl_status status
        cdef tl_metadata_value *rows
        cdef size_t count, at = 0, i = 0
        if all_removals:
            report.name_removals()
        values = list(values)
        count = <size_t>len(values)
        if not len(offsets) == len(timestamps_ms) == len(keys) == len(values):
            raise ValueError("offsets, timestamps, keys and values are of one length")
        rows = <tl_metadata_value *>malloc((count + 1) * sizeof(tl_metadata_value))
        if rows == NULL:
            raise MemoryError("no memory for a run of records")
        try:
            for offset, timestamp_ms, key, value in zip(offsets, timestamps_ms, keys, values):
                rows[i].offset = offset
                rows[i].timestamp_ms = timestamp_ms
                rows[i].has_key = key is not None
                rows[i].data = NULL
                rows[i].size = -1
                if value is not None:
                    if not PyBytes_CheckExact(value):
                        raise TypeError(f"a record's value is bytes or None, not {type(value).__name__}")
                    rows[i].data = <const uint8_t *>PyBytes_AS_STRING(value)
                    rows[i].size = PyBytes_GET_SIZE(value)
                i += 1
            self._enter()
            try:
                tl_metadata_feed_begin(self._feed, place)
                while True:
                    with nogil:
                        status = tl_metadata_feed_values(self._feed, rows, count, &at, &report.of, &report.fault)
                    report.take_removals(self._partitions)
                    if status != TL_FULL:
                        return report.result(status, self._partitions)
            finally:
                self._leave()
        finally:
            free(rows)


include "segment_snapshots.pxi"
