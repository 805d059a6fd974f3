# A leader's append in one call. Part of appends.pyx.


@cython.final
cdef class LeaderAppends:
    cdef LeaderCheck check
    cdef KnownProducers producers
    cdef LatestEpoch latest
    cdef tl_roll_limits limits
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
        self.limits = tl_roll_limits(segment_bytes, segment_ms)

    def append(self, data, LogEnd end not None, int32_t leader_epoch, int64_t now_ms, bint from_client):
        cdef Py_buffer view
        cdef tl_leader_batch batch
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            self.check._set(end.log_end_offset_, leader_epoch, now_ms, from_client)
            refusal = self.check._take(<uint8_t *>view.buf, <size_t>view.len, &batch)
            if refusal is not None:
                return refusal
            if batch.header.size_bytes and not batch.must_rebuild:
                info = self._append(data, <const uint8_t *>view.buf, &batch.header, end, from_client)
                if info is not None:
                    return info
        finally:
            PyBuffer_Release(&view)
        return _answer(&batch)

    cdef object _append(self, object data, const uint8_t *bytes_, const tl_batch_header *batch, LogEnd end,
                        bint from_client):
        """Append a batch that was assigned, if that asks nothing but what is known here; else None."""
        cdef SegmentEnd segment = end.segment
        cdef KnownProducer producer = None
        cdef int64_t last_offset = batch.base_offset + batch.last_offset_delta
        cdef tl_producer_batch kept
        cdef tl_due due
        cdef tl_fault fault
        if segment is None or segment.index_tail is None or segment.file is None:
            return None
        if batch.producer_id >= 0:
            producer = self.producers._continued_by(batch) if from_client else None
            if producer is None:
                return None
        if not self.latest.covers(batch.leader_epoch, batch.base_offset):
            return None
        if tl_roll_due(&segment.end, &segment.index_tail.tail, &self.limits, batch.size_bytes, last_offset,
                               batch.max_timestamp) != TL_ROLL_NOT:
            return None
        if segment._make_out(last_offset, batch.max_timestamp, batch.size_bytes, &due, &fault) != TL_OK:
            return None
        segment._append(data, bytes_, batch.max_timestamp, batch.size_bytes, &due)
        if producer is not None:
            kept = tl_producer_batch(
                last_offset,
                batch.max_timestamp,
                tl_sequence_after(batch.base_sequence, batch.last_offset_delta),
                batch.last_offset_delta,
            )
            tl_producer_keep(&producer.known, &kept)
            producer.known.last_timestamp = batch.max_timestamp
        self.producers.end_offset = last_offset + 1
        end._move(last_offset + 1)
        return _new_tuple(
            self.info,
            (
                batch.base_offset,
                last_offset,
                batch.max_timestamp,
                self.check.options.now_ms if self.check.options.log_append_time else -1,
                end.log_start_offset,
                batch.size_bytes,
                False,
            ),
        )
