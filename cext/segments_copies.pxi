# Copies of segments: how Python sees one, and many as rows of an array. Included by segments.pyx.

cdef _make_dtype():
    cdef tl_segment_copy at
    cdef char *base = <char *>&at
    fields = {
        "start_offset": (np.int64, <char *>&at.start_offset - base),
        "end_offset": (np.int64, <char *>&at.end_offset - base),
        "max_timestamp_ms": (np.int64, <char *>&at.max_timestamp_ms - base),
        "event_timestamp_ms": (np.int64, <char *>&at.event_timestamp_ms - base),
        "broker_id": (np.int32, <char *>&at.broker_id - base),
        "segment_size_in_bytes": (np.int32, <char *>&at.size_bytes - base),
        "segment_id": ((np.uint8, 16), <char *>&at.id[0] - base),
        "state": (np.uint8, <char *>&at.state - base),
        "txn_idx_empty": (np.bool_, <char *>&at.txn_index_empty - base),
        "epoch_count": (np.uint32, <char *>&at.epoch_count - base),
        "custom_metadata_size": (np.int64, <char *>&at.custom_size - base),
    }
    return np.dtype({
        "names": list(fields),
        "formats": [kind for kind, _ in fields.values()],
        "offsets": [offset for _, offset in fields.values()],
        "itemsize": sizeof(tl_segment_copy),
    })


SEGMENT_DTYPE = _make_dtype()


@cython.final
@cython.no_gc    # of Python's objects it holds a partition alone, which never holds it
@cython.freelist(256)
cdef class SegmentCopy:
    cdef readonly object partition
    cdef tl_segment_copy _of
    cdef tl_segment_epoch _inside[EPOCHS_INSIDE]
    cdef tl_segment_epoch *_epochs
    cdef uint8_t *_custom
    cdef void *_block

    def __cinit__(self):
        self._epochs = self._inside
        self._block = NULL

    def __dealloc__(self):
        free(self._block)

    cdef int fill(self, const tl_segment_copy *copy, const tl_segment_room *room) except -1:
        cdef size_t epochs = copy.epoch_count * sizeof(tl_segment_epoch)
        cdef size_t custom = <size_t>copy.custom_size if copy.custom_size > 0 else 0
        self._of = copy[0]
        if copy.epoch_count > EPOCHS_INSIDE or custom:
            self._block = malloc(epochs + custom)
            if self._block == NULL:
                raise MemoryError("no memory for a segment")
            self._epochs = <tl_segment_epoch *>self._block
            self._custom = <uint8_t *>self._block + epochs
            memcpy(self._custom, room.custom, custom)
        memcpy(self._epochs, room.epochs, epochs)
        return 0

    @property
    def segment_id(self):
        return (<char *>self._of.id)[:16]

    @property
    def start_offset(self):
        return self._of.start_offset

    @property
    def end_offset(self):
        return self._of.end_offset

    @property
    def max_timestamp_ms(self):
        return self._of.max_timestamp_ms

    @property
    def event_timestamp_ms(self):
        return self._of.event_timestamp_ms

    @property
    def broker_id(self):
        return self._of.broker_id

    @property
    def segment_size_in_bytes(self):
        return self._of.size_bytes

    @property
    def segment_leader_epochs(self):
        cdef uint32_t i
        return {self._epochs[i].epoch: self._epochs[i].start_offset for i in range(self._of.epoch_count)}

    @property
    def custom_metadata(self):
        if self._of.custom_size < 0:
            return None
        return (<char *>self._custom)[:self._of.custom_size] if self._of.custom_size else b""

    @property
    def state(self):
        return self._of.state

    @property
    def txn_idx_empty(self):
        return <bint>self._of.txn_index_empty


cdef class _Room:
    """Room for the epochs and the custom metadata of a segment that has more of them than usual."""
    cdef tl_segment_room room

    def __cinit__(self):
        self.room.epochs = NULL
        self.room.custom = NULL

    def __dealloc__(self):
        free(self.room.epochs)
        free(self.room.custom)

    cdef int make(self, const tl_segment_copy *copy) except -1:
        free(self.room.epochs)
        free(self.room.custom)
        self.room.epochs_capacity = copy.epoch_count
        self.room.custom_capacity = <size_t>copy.custom_size if copy.custom_size > 0 else 1
        self.room.epochs = <tl_segment_epoch *>malloc(self.room.epochs_capacity * sizeof(tl_segment_epoch))
        self.room.custom = <uint8_t *>malloc(self.room.custom_capacity)
        if self.room.epochs == NULL or self.room.custom == NULL:
            raise MemoryError("no memory for a segment")
        return 0
