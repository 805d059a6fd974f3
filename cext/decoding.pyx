"""Records of a byte range as Arrow record batches, over ``tierlog/decode.h``.

The core writes into Arrow's own buffers; this module only gives it room, hands buffers over, and carries the one batch
that straddles two inputs.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tl_errors cimport *
from tl_arrays cimport *
from tl_core cimport *

import pyarrow as pa

from tierlog.arguments import require_int64
from tierlog.errors import ConfigError, CorruptRecordError, SizeLimitError

include "decoding_input.pxi"
include "decoding_columns.pxi"


# The fields of a summary, and the flags of those that the core has to know.
_SUMMARY = {
    "count": 0,
    "min_offset": TL_SUMMARY_OFFSETS,
    "max_offset": TL_SUMMARY_OFFSETS,
    "min_timestamp": TL_SUMMARY_LEAST_TIMESTAMP,
    "max_timestamp": TL_SUMMARY_GREATEST_TIMESTAMP,
}


cdef uint32_t _summary_bits(wanted) except? 0:
    cdef uint32_t bits = 0
    unknown = sorted(set(wanted) - set(_SUMMARY))
    if unknown:
        raise ConfigError(f"unknown summaries {unknown}; known are {list(_SUMMARY)}")
    for name in wanted:
        bits |= <uint32_t>_SUMMARY[name]
    return bits


cdef class RecordDecoder:
    cdef tl_decode_options _options
    cdef tl_decode_state _state
    cdef tl_scratch _scratch
    cdef _Columns _columns
    cdef tl_summary _summary
    cdef frozenset _summary_wanted  # None: rows are given
    cdef object _aborted           # holds the caller's array alive
    cdef list _todo
    cdef _Borrowed _current
    cdef _Straddle _straddle
    cdef uint64_t _end_position

    def __cinit__(self, *args, **kwargs):
        if tl_codecs_create(&self._scratch.codecs) != TL_OK:
            raise MemoryError("no memory for the codecs")

    def __dealloc__(self):
        tl_codecs_destroy(self._scratch.codecs)
        free(self._scratch.data)

    def __init__(
        self,
        columns,
        *,
        base_position=0,
        end_position=0,
        bint verify_crc=True,
        from_offset=0,
        to_offset_exclusive=INT64_MAX,
        least_offset=0,
        greatest_offset=INT64_MAX,
        from_timestamp_ms=INT64_MIN,
        to_timestamp_exclusive_ms=INT64_MAX,
        aborted=None,
        bint control_records=False,
        str timestamp_unit="ms",
        decompressed_limit=1 << 28,
        target_bytes=2 << 20,
        summary=None,
    ):
        cdef uint32_t wanted = 0
        if summary is not None:
            if columns:
                raise ConfigError("a summary has no columns")
            self._summary_wanted = frozenset(summary)
            wanted = _summary_bits(summary)
            columns = [name for name, bit in _BITS.items() if bit & tl_summary_columns(wanted)]
        self._columns = _Columns(columns, timestamp_unit, require_int64("target_bytes", target_bytes))
        tl_summary_reset(&self._summary, wanted)
        if summary is not None:
            self._columns.out.summary = &self._summary
        self._options.struct_size = sizeof(self._options)
        self._options.base_position = require_int64("base_position", base_position, least=0)
        self._options.end_position = require_int64("end_position", end_position, least=0)
        self._options.verify_crc = verify_crc
        self._options.from_offset = require_int64("from_offset", from_offset)
        self._options.to_offset_exclusive = require_int64("to_offset_exclusive", to_offset_exclusive)
        self._options.least_offset = require_int64("least_offset", least_offset)
        self._options.greatest_offset = require_int64("greatest_offset", greatest_offset)
        self._options.from_timestamp = require_int64("from_timestamp_ms", from_timestamp_ms)
        self._options.to_timestamp_exclusive = require_int64("to_timestamp_exclusive_ms", to_timestamp_exclusive_ms)
        self._options.timestamp_multiplier = 1000 if timestamp_unit == "us" else 1
        self._options.decompressed_limit = require_int64("decompressed_limit", decompressed_limit, least=0)
        self._options.control_records = control_records
        self._bind_aborted(aborted)
        self._end_position = self._options.base_position
        self._straddle = None
        self._todo = []

    cdef int _bind_aborted(self, aborted) except -1:
        if aborted is None:
            return 0
        if aborted.dtype.itemsize != sizeof(tl_aborted) or not aborted.flags.c_contiguous:
            raise ConfigError("aborted is an array as sort_aborted returns it")
        self._aborted = aborted
        self._options.aborted_count = len(aborted)
        if len(aborted):
            self._options.aborted = <const tl_aborted *>address_of(aborted)
        return 0

    @property
    def schema(self):
        return self._columns.schema

    @property
    def position(self):
        if self._current is not None:
            return self._options.base_position + self._state.at
        return self._straddle.position if self._straddle is not None else self._end_position

    @property
    def done(self):
        return self._state.in_batch < 0

    @property
    def counters(self):
        return {
            "batches": self._state.batches,
            "batches_skipped": self._state.batches_skipped,
            "records": self._state.records,
            "decompressed_bytes": self._state.decompressed_bytes,
        }

    @property
    def summary(self):
        cdef tl_summary *found = &self._summary
        if self._summary_wanted is None:
            raise ValueError("the decoder gives rows")
        values = {
            "count": found.records,
            "min_offset": found.least_offset,
            "max_offset": found.greatest_offset,
            "min_timestamp": found.least_timestamp,
            "max_timestamp": found.greatest_timestamp,
        }
        known = {name: values[name] if found.records else None for name in self._summary_wanted}
        return known | {"count": found.records}

    cdef int _grow_scratch(self, int64_t need) except -1:
        cdef size_t size = <size_t>need + (<size_t>need >> 3)
        if size > self._options.decompressed_limit:
            size = self._options.decompressed_limit
        # The content is decompressed anew, so nothing need be copied.
        free(self._scratch.data)
        self._scratch.capacity = 0
        self._scratch.data = <uint8_t *>malloc(size)
        if self._scratch.data == NULL:
            raise MemoryError(f"no memory for a batch of {need} bytes")
        self._scratch.capacity = size
        return 0

    # ---- input ---------------------------------------------------------------------------------------------------

    cdef int _start(self, _Borrowed item, uint64_t position) noexcept:
        self._current = item
        self._options.base_position = position
        self._state.at = 0
        return 0

    cdef bint _next_input(self) except -1:
        """Makes the next buffer, or the batch that straddles two, the current one. False: nothing left."""
        cdef _Borrowed item
        cdef size_t taken
        while self._todo:
            item = self._todo[0]
            if self._straddle is None:
                self._todo.pop(0)
                self._start(item, self._end_position)
                self._end_position += item.size
                return True
            taken = self._straddle.add(item.data, item.size, self._options.decompressed_limit)
            item.data += taken
            item.size -= taken
            self._end_position += taken
            if item.size == 0:
                self._todo.pop(0)
            if self._straddle.have == self._straddle.need:
                self._start(self._straddle.whole(), self._straddle.position)
                self._straddle = None
                return True
        return False

    cdef int _keep_rest(self) except -1:
        """Hold the rest of the current buffer, which ends inside a batch, for the next buffer."""
        cdef size_t at = <size_t>self._state.at
        cdef _Borrowed item = self._current
        self._current = None
        self._straddle = _Straddle()
        self._straddle.begin(item.data + at, item.size - at, self._options.base_position + at,
                             self._options.decompressed_limit)
        return 0

    def feed(self, data):
        cdef tl_fault fault
        cdef tl_status status
        cdef const uint8_t *start
        cdef size_t size
        cdef _Columns columns = self._columns
        self._todo.append(_Borrowed(data))
        while self._state.in_batch >= 0 and (self._current is not None or self._next_input()):
            if not columns.allocated:
                columns.allocate()
            start = self._current.data
            size = self._current.size
            memset(&fault, 0, sizeof(fault))
            fault.record = -1
            with nogil:
                status = tl_decode(start, size, &self._options, &self._state, &self._scratch, &columns.out, &fault)
            if status == TL_OK:
                self._current = None
            elif status == TL_PARTIAL:
                self._keep_rest()
            elif status == TL_NEED_SCRATCH:
                self._grow_scratch(fault.expected)
            elif status == TL_FULL:
                if columns.is_full():
                    yield columns.take()
                else:
                    columns.grow(&fault)
            else:
                error = error_of(status, &fault, CorruptRecordError)
                if columns.out.rows:
                    yield columns.take()
                raise error
        if self._state.in_batch < 0:
            if self._current is not None:
                self._end_position = self._options.base_position + self._state.at
            self._todo.clear()
            self._current = None
            self._straddle = None

    def skip_batch(self):
        cdef tl_fault fault
        cdef tl_status status
        cdef int32_t size_bytes
        if self._current is None:
            raise ValueError("skip_batch comes after a fault")
        status = tl_decode_skip(
            self._current.data, self._current.size, &self._options, &self._state, &size_bytes, &fault)
        if status != TL_OK:
            raise error_of(status, &fault, CorruptRecordError)
        return size_bytes

    def finish(self, *, bint allow_partial=False):
        cdef tl_fault fault
        cdef tl_batch_header header
        if self._columns.allocated and self._columns.out.rows:
            yield self._columns.take()
        if self._straddle is not None and not allow_partial:
            tl_batch_parse(self._straddle.data, self._straddle.have, &header, &fault)
            fault.position = self._straddle.position
            raise error_of(TL_TRUNCATED, &fault, CorruptRecordError)
