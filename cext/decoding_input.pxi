# A RecordDecoder's input: callers' buffers, and the one batch that lies across two of them. Included by decoding.pyx.

cdef enum:
    HEADER_BYTES = 17         # up to the magic: what tl_batch_parse needs to know a size


cdef class _Borrowed:
    """A caller's buffer, held until it is decoded."""
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef size_t size

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t *>self.view.buf
        self.size = <size_t>self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef class _Straddle:
    """The one batch that begins in one input and ends in a later one: the only bytes that are ever copied."""
    cdef uint8_t head[HEADER_BYTES]
    cdef object buffer      # of Arrow's pool, which reuses memory: fresh pages cost more than the copy
    cdef uint8_t *data
    cdef size_t have, need
    cdef uint64_t position

    cdef int begin(self, const uint8_t *data, size_t size, uint64_t position, uint64_t limit) except -1:
        self.buffer = None
        self.data = self.head
        self.have = 0
        self.need = HEADER_BYTES
        self.position = position
        self.add(data, size, limit)
        return 0

    cdef size_t add(self, const uint8_t *data, size_t size, uint64_t limit) except? 0:
        """Take the bytes that are still needed; return their number."""
        cdef size_t taken = 0, more
        while self.have < self.need and taken < size:
            more = min(self.need - self.have, size - taken)
            memcpy(self.data + self.have, data + taken, more)
            self.have += more
            taken += more
            if self.have == HEADER_BYTES and self.buffer is None:
                self.enlarge(limit)
        return taken

    cdef int enlarge(self, uint64_t limit) except -1:
        """The header is there: room for the whole batch. A header that cannot be, or of a batch above the limit, stays
        as it is: decoding names the fault, behind the rows that came before.
        """
        cdef tl_batch_header header
        cdef tl_fault fault
        if tl_batch_parse(self.head, HEADER_BYTES, &header, &fault) != TL_PARTIAL or fault.expected == 0:
            return 0
        if <uint64_t>fault.expected > limit:
            return 0
        self.need = <size_t>fault.expected
        self.buffer = pa.allocate_buffer(self.need)
        self.data = <uint8_t *><size_t>self.buffer.address
        memcpy(self.data, self.head, HEADER_BYTES)
        return 0

    cdef _Borrowed whole(self):
        """The batch, once have == need."""
        return _Borrowed(self.buffer if self.buffer is not None else self.head[:self.have])
