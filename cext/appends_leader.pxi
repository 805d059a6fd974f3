# A leader's checks, and its append in one call. Part of appends.pyx.


cdef class LeaderCheck:
    cdef tl_leader_options options
    cdef tl_scratch scratch
    cdef tl_leader_log log
    cdef tl_record_error errors[ERRORS_KEPT]
    cdef bint busy

    def __cinit__(
        self,
        *,
        bint compacted=False,
        bint log_append_time=False,
        int64_t timestamp_before_max_ms=INT64_MAX,
        int64_t timestamp_after_max_ms=3_600_000,
        int32_t max_message_bytes=1_048_588,
        int32_t target_codec=-1,
        int64_t decompressed_limit=1 << 28,
    ):
        if decompressed_limit < 0:
            raise ValueError("decompressed_limit is negative")
        self.options.struct_size = sizeof(self.options)
        self.options.compacted = compacted
        self.options.log_append_time = log_append_time
        self.options.timestamp_before_max_ms = timestamp_before_max_ms
        self.options.timestamp_after_max_ms = timestamp_after_max_ms
        self.options.max_message_bytes = max_message_bytes
        self.options.target_codec = target_codec
        self.options.decompressed_limit = <size_t>decompressed_limit
        self.log.options, self.log.scratch = &self.options, &self.scratch
        cdef tl_fault fault
        memset(&fault, 0, sizeof(fault))
        check_status(tl_codecs_create(&self.scratch.codecs), &fault, CorruptRecordError)

    def __dealloc__(self):
        free(self.scratch.data)
        tl_codecs_destroy(self.scratch.codecs)

    cdef int _grow(self, size_t size) except -1:
        free(self.scratch.data)
        self.scratch.capacity = 0
        self.scratch.data = <uint8_t *>malloc(size)
        if self.scratch.data == NULL:
            raise MemoryError("no room to decompress a batch")
        self.scratch.capacity = size
        return 0

    cdef object _run(self, const tl_leader_log *log, const Py_buffer *view, bint is_long, tl_usual_append *out):
        """Check and assign by the options, and append if that is usual; the refusal, or None. Other threads may have
        the GIL during a long call."""
        cdef tl_record_errors errors
        cdef tl_fault fault
        cdef tl_status status = TL_NEED_SCRATCH
        cdef uint8_t *data = <uint8_t *>view.buf
        cdef size_t size = <size_t>view.len
        if self.busy:
            raise ValueError("another thread is in this check")
        self.busy = True
        errors.entries = self.errors
        errors.capacity = ERRORS_KEPT
        try:
            while True:
                if is_long:
                    with nogil:
                        status = tl_usual_append_run(log, data, size, &errors, out, &fault)
                else:
                    status = tl_usual_append_run(log, data, size, &errors, out, &fault)
                if status != TL_NEED_SCRATCH:
                    break
                self._grow(<size_t>fault.expected)
            if out.batch.rule != TL_APPEND_SOUND:
                return _refusal(out.batch.rule, status, &fault, &errors)
            check_status(status, &fault, CorruptRecordError)
        finally:
            self.busy = False
            if self.scratch.capacity > SCRATCH_KEPT:
                free(self.scratch.data)
                self.scratch.data = NULL
                self.scratch.capacity = 0
        return None

    cdef void _set(self, int64_t first_offset, int32_t leader_epoch, int64_t now_ms, bint from_client) noexcept:
        self.options.first_offset = first_offset
        self.options.leader_epoch = leader_epoch
        self.options.now_ms = now_ms
        self.options.origin = TL_FROM_CLIENT if from_client else TL_FROM_COORDINATOR

    def assign(self, data, *, int64_t first_offset, int32_t leader_epoch, int64_t now_ms, bint from_client=True):
        cdef Py_buffer view
        cdef tl_usual_append found
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            self._set(first_offset, leader_epoch, now_ms, from_client)
            refusal = self._run(&self.log, &view, view.len >= LONG_BYTES, &found)
        finally:
            PyBuffer_Release(&view)
        return _assigned(&found.batch) if refusal is None else refusal


cdef object _assigned(const tl_leader_batch *batch):
    """The batch as it was assigned; None if there was none."""
    cdef const tl_batch_header *header = &batch.header
    if header.size_bytes == 0:
        return None
    return _new_tuple(
        AssignedBatch,
        (
            header.size_bytes,
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.leader_epoch,
            header.max_timestamp,
            header.attributes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            bool(batch.must_rebuild),
        ),
    )


@cython.final
cdef class LeaderAppends:
    cdef LeaderCheck check
    cdef KnownProducers producers
    cdef LatestEpoch latest
    cdef tl_leader_log log
    cdef object info

    def __cinit__(
        self,
        LeaderCheck check not None,
        KnownProducers producers not None,
        LatestEpoch latest not None,
        *,
        int64_t segment_bytes,
        int64_t segment_ms,
        info,
    ):
        self.check, self.producers, self.latest, self.info = check, producers, latest, info
        self.log = check.log
        self.log.limits = tl_roll_limits(segment_bytes, segment_ms)

    def append(self, data, LogEnd end not None, int32_t leader_epoch, int64_t now_ms, bint from_client):
        cdef Py_buffer view
        cdef tl_usual_append found
        cdef SegmentEnd segment = end.segment
        cdef KnownProducer producer = None
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if from_client:
                producer = self.producers._named(tl_named_producer(<const uint8_t *>view.buf, <size_t>view.len))
            self.log.segment = NULL if segment is None else &segment.segment
            self.log.producer = NULL if producer is None else &producer.known
            self.log.latest = self.latest._now()
            self.check._set(end.log_end_offset_, leader_epoch, now_ms, from_client)
            held = None if segment is None else segment.growing  # the memory of the file
            is_long = view.len >= LONG_BYTES or (segment is not None and segment.waits)
            refusal = self.check._run(&self.log, &view, is_long, &found)
        finally:
            PyBuffer_Release(&view)
        if refusal is not None:
            return refusal
        if found.error:
            raise held.error(-found.error)
        if not found.is_written:
            return _assigned(&found.batch)
        return self._took(end, segment, producer, &found)

    cdef object _took(self, LogEnd end, SegmentEnd segment, KnownProducer producer, const tl_usual_append *found):
        """Take over what was written; the answer."""
        cdef const tl_batch_header *batch = &found.batch.header
        cdef int64_t end_offset = tl_usual_append_take(
            &segment.segment, NULL if producer is None else &producer.known, found
        )
        segment._index(&found.growth)
        self.producers.end_offset = end_offset
        end._move(end_offset)
        return _new_tuple(
            self.info,
            (
                batch.base_offset,
                end_offset - 1,
                batch.max_timestamp,
                self.check.options.now_ms if self.check.options.log_append_time else -1,
                end.log_start_offset,
                batch.size_bytes,
                False,
            ),
        )
