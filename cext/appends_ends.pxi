# Where things end: a segment, its indexes, a log, a producer, the leader epochs. Part of appends.pyx.


@cython.final
cdef class WaitingEntries:
    cdef uint8_t *data
    cdef size_t page, used, unwritten

    def __cinit__(self, size_t page_bytes):
        self.page = page_bytes

    def __dealloc__(self):
        free(self.data)

    cdef bint _add(self, const uint8_t *entry, size_t size) except -1:
        """Take an entry; whether there is a page of them that is not in the file."""
        with cython.critical_section(self):
            if self.used + size > self.page:
                raise ValueError("a page of entries waits that could not be written")
            if self.data == NULL:
                self.data = <uint8_t *>malloc(self.page)
                if self.data == NULL:
                    raise MemoryError("no room for index entries")
            memcpy(self.data + self.used, entry, size)
            self.used += size
            self.unwritten += size
        return self.unwritten + size > self.page

    @property
    def size_bytes(self):
        return self.used

    def take(self):
        with cython.critical_section(self):
            taken = _taken(self.data, self.used)
            self.used = 0
        return taken

    def note_written(self):
        with cython.critical_section(self):
            self.unwritten = self.used
            if not self.used:
                free(self.data)
                self.data = NULL


cdef int64_t _append(void *file, const uint8_t *data, size_t size) noexcept nogil:
    return tl_growing_file_append(<tl_growing_file *>file, data, size)


@cython.final
cdef class SegmentEnd:
    cdef tl_active_segment segment
    cdef IndexTail index_tail
    cdef object offsets, times
    cdef WaitingEntries offset_entries, time_entries
    cdef object growing
    cdef bint waits

    def __cinit__(self, offsets, times, *, int64_t size_bytes=0):
        self.segment.end.size = size_bytes
        self.segment.end.first_timestamp = TL_NO_TIMESTAMP_KNOWN
        self.offsets, self.times = offsets, times
        self.offset_entries, self.time_entries = offsets.waiting, times.waiting

    @property
    def size_bytes(self):
        return self.segment.end.size

    @size_bytes.setter
    def size_bytes(self, int64_t size_bytes):
        self.segment.end.size = size_bytes

    @property
    def first_timestamp_ms(self):
        first = self.segment.end.first_timestamp
        return None if first == TL_NO_TIMESTAMP_KNOWN else first

    @first_timestamp_ms.setter
    def first_timestamp_ms(self, timestamp_ms):
        self.segment.end.first_timestamp = TL_NO_TIMESTAMP_KNOWN if timestamp_ms is None else timestamp_ms

    @property
    def tail(self):
        return self.index_tail

    @tail.setter
    def tail(self, IndexTail tail):
        self.segment.tail = NULL if tail is None else &tail.tail
        self.index_tail = tail

    @property
    def has_file(self):
        return self.growing is not None

    def write_to(self, file):
        growing = None if file is None else file.growing
        if growing is None:
            self.segment.append, self.segment.file = NULL, NULL
        else:
            self.segment.append = _append
            self.segment.file = PyCapsule_GetPointer(growing.core, "tierlog.growing_file")
            self.waits = growing.waits
        self.growing = growing

    def must_roll(self, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp_ms, *, int64_t limit_bytes,
                  int64_t limit_ms):
        if self.index_tail is None:
            raise ValueError("the segment is not written to")
        cdef tl_roll_limits limits = tl_roll_limits(limit_bytes, limit_ms)
        cdef tl_roll roll = tl_roll_due(
            &self.segment.end, self.segment.tail, &limits, size_bytes, last_offset, max_timestamp_ms
        )
        return None if roll == TL_ROLL_BY_CLOCK else roll == TL_ROLL_NOW

    cdef int _index(self, const tl_segment_growth *growth) except -1:
        """Take the index entries of a batch, which lies in front of the segment's end by now."""
        cdef bint is_page_of_offsets = False, is_page_of_times = False
        if growth.has_offset_entry:
            is_page_of_offsets = self.offset_entries._add(growth.offset_entry, TL_OFFSET_ENTRY)
        if growth.has_time_entry:
            is_page_of_times = self.time_entries._add(growth.time_entry, TL_TIME_ENTRY)
        if is_page_of_offsets:
            self.offsets.append(b"")
        if is_page_of_times:
            self.times.append(b"")
        return 0

    def append(self, data, *, int64_t last_offset, int64_t max_timestamp):
        cdef Py_buffer view
        cdef tl_segment_growth growth
        cdef int64_t error = 0
        cdef tl_fault fault
        cdef tl_status status
        cdef int32_t size
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > INT32_MAX or self.index_tail is None or self.growing is None:
                raise ValueError("no batch can be appended: it is too large, or the segment is not written to")
            size = <int32_t>view.len
            held = self.growing  # the memory of the file
            with nogil:
                status = tl_segment_append(
                    &self.segment, <const uint8_t *>view.buf, size, last_offset, max_timestamp, &growth, &error, &fault
                )
        finally:
            PyBuffer_Release(&view)
        check_status(status, &fault, CorruptRecordError)
        if error:
            raise held.error(-error)
        tl_segment_grow(&self.segment, &growth)
        self._index(&growth)


@cython.final
cdef class LogEnd:
    cdef int64_t log_end_offset_, end_position_
    cdef readonly int64_t log_start_offset
    cdef SegmentEnd segment

    def __cinit__(self, int64_t log_end_offset, *, int64_t log_start_offset=0, SegmentEnd segment=None):
        self.log_end_offset_ = log_end_offset
        self.log_start_offset = log_start_offset
        self.segment = segment
        self.end_position_ = 0 if segment is None else segment.segment.end.size

    cdef void _move(self, int64_t log_end_offset) noexcept:
        with cython.critical_section(self):
            self.log_end_offset_ = log_end_offset
            self.end_position_ = self.segment.segment.end.size

    @property
    def log_end_offset(self):
        return self.log_end_offset_

    def read(self):
        with cython.critical_section(self):
            return self.log_end_offset_, self.end_position_


@cython.final
cdef class LatestEpoch:
    cdef tl_latest_epoch latest

    def __cinit__(self):
        self.latest = tl_latest_epoch(-1, -1)

    def set(self, int64_t epoch, int64_t start_offset):
        with cython.critical_section(self):
            self.latest = tl_latest_epoch(epoch, start_offset)

    cdef tl_latest_epoch _now(self) noexcept:
        with cython.critical_section(self):
            return self.latest

    def covers(self, int64_t epoch, int64_t offset):
        cdef tl_latest_epoch latest = self._now()
        return bool(tl_epoch_goes_on(&latest, epoch, offset))


def sequence_after(int32_t sequence, int64_t count):
    return tl_sequence_after(sequence, count)


cdef class KnownProducer:
    cdef tl_producer known

    def __init__(
        self,
        int64_t producer_id,
        *,
        int16_t producer_epoch=-1,
        int32_t coordinator_epoch=-1,
        int64_t last_timestamp_ms=-1,
        current_txn_first_offset=None,
        batches=(),
    ):
        self.known.producer_id = producer_id
        self.known.producer_epoch = producer_epoch
        self.known.coordinator_epoch = coordinator_epoch
        self.known.last_timestamp = last_timestamp_ms
        self.known.transaction_offset = -1 if current_txn_first_offset is None else current_txn_first_offset
        for batch in batches:
            self.keep(*batch)

    @property
    def producer_id(self):
        return self.known.producer_id

    @property
    def producer_epoch(self):
        return self.known.producer_epoch

    @producer_epoch.setter
    def producer_epoch(self, int16_t producer_epoch):
        self.known.producer_epoch = producer_epoch

    @property
    def coordinator_epoch(self):
        return self.known.coordinator_epoch

    @coordinator_epoch.setter
    def coordinator_epoch(self, int32_t coordinator_epoch):
        self.known.coordinator_epoch = coordinator_epoch

    @property
    def last_timestamp_ms(self):
        return self.known.last_timestamp

    @last_timestamp_ms.setter
    def last_timestamp_ms(self, int64_t timestamp_ms):
        self.known.last_timestamp = timestamp_ms

    @property
    def current_txn_first_offset(self):
        return None if self.known.transaction_offset < 0 else self.known.transaction_offset

    @current_txn_first_offset.setter
    def current_txn_first_offset(self, offset):
        self.known.transaction_offset = -1 if offset is None else offset

    @property
    def has_batches(self):
        return self.known.batch_count > 0

    def kept(self):
        cdef const tl_producer_batch *batch
        cdef int row
        found = []
        for row in range(self.known.batch_count):
            batch = &self.known.batches[row]
            found.append((batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp))
        return found

    def forget_batches(self):
        self.known.batch_count = 0

    def keep(self, int32_t last_sequence, int64_t last_offset, int32_t offset_delta, int64_t timestamp_ms):
        cdef tl_producer_batch batch = tl_producer_batch(last_offset, timestamp_ms, last_sequence, offset_delta)
        tl_producer_keep(&self.known, &batch)


@cython.final
cdef class KnownProducers:
    cdef dict producers, verifications
    cdef public int64_t end_offset

    def __cinit__(self, dict producers not None, dict verifications not None, *, int64_t end_offset):
        self.producers, self.verifications, self.end_offset = producers, verifications, end_offset

    cdef KnownProducer _named(self, int64_t producer_id):
        """What is known of a producer; None: nothing, or more than that has to be asked."""
        if producer_id < 0 or PyDict_Size(self.verifications):
            return None
        cdef PyObject *found = PyDict_GetItemWithError(self.producers, producer_id)
        return None if found == NULL else <KnownProducer?><object>found
