"""Records of a byte range as Arrow record batches, over ``cext/core/decode.h``.

The core writes into Arrow's own buffers; this module only gives it room, hands buffers over, and carries the one batch
that straddles two inputs.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tl_errors cimport error_of
from tl_core cimport (
    TL_COLUMN_BATCH,
    TL_COLUMN_HEADERS,
    TL_COLUMN_KEY,
    TL_COLUMN_LEADER_EPOCH,
    TL_COLUMN_OFFSET,
    TL_COLUMN_SEQUENCE,
    TL_COLUMN_TIMESTAMP,
    TL_COLUMN_TIMESTAMP_TYPE,
    TL_COLUMN_VALUE,
    TL_FULL,
    TL_NEED_SCRATCH,
    TL_OK,
    TL_PARTIAL,
    TL_TRUNCATED,
    tl_aborted,
    tl_batch_header,
    tl_batch_parse,
    tl_binary,
    tl_codecs_create,
    tl_codecs_destroy,
    tl_columns,
    tl_columns_reset,
    tl_decode,
    tl_decode_options,
    tl_decode_state,
    tl_fault,
    tl_scratch,
    tl_status,
)

import pyarrow as pa

from tierlog.errors import ConfigError, CorruptRecordError, SizeLimitError

_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_FIXED = {
    "offset": (TL_COLUMN_OFFSET, pa.int64(), 8),
    "timestamp": (TL_COLUMN_TIMESTAMP, None, 8),
    "timestampType": (TL_COLUMN_TIMESTAMP_TYPE, pa.int32(), 4),
    "leaderEpoch": (TL_COLUMN_LEADER_EPOCH, pa.int32(), 4),
    "batchPosition": (TL_COLUMN_BATCH, pa.int64(), 8),
    "sequence": (TL_COLUMN_SEQUENCE, pa.int32(), 4),
}
_ORDER = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch", "batchPosition", "sequence")
_BITS = {"key": TL_COLUMN_KEY, "value": TL_COLUMN_VALUE, "headers": TL_COLUMN_HEADERS}
_BITS.update({name: bit for name, (bit, _, _) in _FIXED.items()})

cdef enum:
    FIRST_ROWS = 4096
    FIRST_BYTES = 1 << 18
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
        """Takes what is still needed; returns how many bytes that was."""
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
        as it is: decoding names what is wrong, behind the rows that came before."""
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


cdef class _Binary:
    """The Arrow buffers of one binary column; the core sees them as a tl_binary."""
    cdef tl_binary *out
    cdef object offsets, data, validity
    cdef bint nullable
    cdef int64_t next_bytes

    def __cinit__(self):
        self.next_bytes = FIRST_BYTES

    cdef int allocate(self, int64_t rows) except -1:
        self.offsets = pa.allocate_buffer((rows + 1) * 4, resizable=True)
        self.data = pa.allocate_buffer(self.next_bytes, resizable=True)
        self.validity = pa.allocate_buffer((rows + 7) // 8, resizable=True) if self.nullable else None
        self.bind()
        return 0

    cdef int bind(self) except -1:
        self.out.offsets = <int32_t *><size_t>self.offsets.address
        self.out.data = <uint8_t *><size_t>self.data.address
        self.out.data_capacity = self.data.size
        self.out.validity = <uint8_t *><size_t>self.validity.address if self.nullable else NULL
        return 0

    cdef int grow_rows(self, int64_t old_rows, int64_t rows) except -1:
        self.offsets.resize((rows + 1) * 4)
        if self.nullable:
            _grow_bits(self.validity, old_rows, rows)
        return self.bind()

    cdef int grow_bytes(self, int64_t need) except -1:
        if need > INT32_MAX:
            raise SizeLimitError(f"a column of {need} bytes does not fit one record batch", fault="OVER_LIMIT",
                                 expected=INT32_MAX, found=need)
        self.data.resize(min(max(need, 2 * self.out.data_capacity), INT32_MAX))
        return self.bind()

    cdef object take(self, object kind, int64_t rows, double share):
        cdef int64_t used = self.out.data_size
        _shrink(self.offsets, (rows + 1) * 4)
        _shrink(self.data, used)
        nulls = self.out.null_count
        validity = None
        if nulls:
            _shrink(self.validity, (rows + 7) // 8)
            validity = self.validity
        array = pa.Array.from_buffers(kind, rows, [validity, self.offsets, self.data], nulls)
        self.next_bytes = max(_learned(used, share), 4096)
        self.offsets = self.data = self.validity = None
        return array


cdef int64_t _learned(int64_t used, double share) noexcept:
    """Room for the next record batch: what this one used, an eighth more, and no more than its share of the target.

    Without the share each batch would be an eighth larger than the one before.
    """
    return <int64_t>(used * share * 1.125)


cdef int _shrink(buffer, int64_t size) except -1:
    """Gives a buffer its final size; the memory behind it only where more than a half would be wasted."""
    buffer.resize(size, shrink_to_fit=size < buffer.size // 2)
    return 0


cdef int _grow_bits(buffer, int64_t old_rows, int64_t rows) except -1:
    cdef int64_t old = (old_rows + 7) // 8, new = (rows + 7) // 8
    buffer.resize(new)
    # Bits past the old rows inside its last byte were set by the reset: it sets whole bytes.
    memset(<uint8_t *><size_t>buffer.address + old, 0xff, new - old)
    return 0


cdef class RecordDecoder:
    cdef tl_decode_options _options
    cdef tl_decode_state _state
    cdef tl_columns _columns
    cdef tl_scratch _scratch
    cdef _Binary _key, _value, _header_key, _header_value
    cdef dict _fixed               # name -> buffer under way
    cdef object _header_offsets, _header_validity
    cdef object _aborted           # keeps the caller's array alive
    cdef readonly object schema
    cdef list _names, _todo
    cdef _Borrowed _current
    cdef _Straddle _straddle
    cdef uint64_t _end_position
    cdef int64_t _target_bytes, _next_rows, _next_headers, _row_bytes
    cdef double _share             # of the last record batch that fits the target
    cdef bint _allocated

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
        uint64_t base_position=0,
        bint verify_crc=True,
        int64_t from_offset=0,
        int64_t to_offset_exclusive=INT64_MAX,
        int64_t from_timestamp_ms=INT64_MIN,
        int64_t to_timestamp_exclusive_ms=INT64_MAX,
        aborted=None,
        bint control_records=False,
        str timestamp_unit="ms",
        uint64_t decompressed_limit=1 << 28,
        int64_t target_bytes=8 << 20,
    ):
        if timestamp_unit not in ("ms", "us"):
            raise ConfigError(f"timestamp_unit is 'ms' or 'us', not {timestamp_unit!r}")
        if target_bytes < 1:
            raise ConfigError(f"target_bytes is at least 1, not {target_bytes}")
        unknown = sorted(set(columns) - set(_ORDER))
        if unknown:
            raise ConfigError(f"unknown columns {unknown}; known are {list(_ORDER)}")
        self._names = [name for name in _ORDER if name in columns]
        self._options.base_position = base_position
        self._options.verify_crc = verify_crc
        self._options.from_offset = from_offset
        self._options.to_offset_exclusive = to_offset_exclusive
        self._options.from_timestamp = from_timestamp_ms
        self._options.to_timestamp_exclusive = to_timestamp_exclusive_ms
        self._options.timestamp_multiplier = 1000 if timestamp_unit == "us" else 1
        self._options.decompressed_limit = decompressed_limit
        self._options.control_records = control_records
        self._bind_aborted(aborted)
        self._end_position = base_position
        self._target_bytes = target_bytes
        self._next_rows = FIRST_ROWS
        self._next_headers = 64
        self._straddle = None
        self._todo = []
        self._fixed = {}
        self.schema = self._make_schema(timestamp_unit)
        for name in self._names:
            self._columns.want |= <uint32_t>_BITS[name]
            self._row_bytes += _FIXED[name][2] if name in _FIXED else 4
        self._key = self._binary(&self._columns.key, True)
        self._value = self._binary(&self._columns.value, True)
        self._header_key = self._binary(&self._columns.header_key, False)
        self._header_value = self._binary(&self._columns.header_value, True)

    cdef _Binary _binary(self, tl_binary *out, bint nullable):
        cdef _Binary column = _Binary()
        column.out = out
        column.nullable = nullable
        return column

    cdef int _bind_aborted(self, aborted) except -1:
        if aborted is None:
            return 0
        if aborted.dtype.itemsize != sizeof(tl_aborted) or not aborted.flags.c_contiguous:
            raise ConfigError("aborted is an array as sort_aborted returns it")
        self._aborted = aborted
        self._options.aborted_count = len(aborted)
        if len(aborted):
            self._options.aborted = <const tl_aborted *><size_t>aborted.ctypes.data
        return 0

    def _make_schema(self, unit):
        timestamp = pa.timestamp(unit, tz="UTC")
        kinds = {"key": pa.binary(), "value": pa.binary(), "headers": _HEADERS, "timestamp": timestamp}
        kinds.update({name: kind for name, (_, kind, _) in _FIXED.items() if kind is not None})
        return pa.schema([pa.field(name, kinds[name]) for name in self._names])

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

    # ---- room ----------------------------------------------------------------------------------------------------

    cdef int _allocate(self) except -1:
        """Fresh buffers for the next record batch, of the sizes that the last one taught."""
        cdef int64_t rows = self._next_rows
        self._columns.row_capacity = rows
        self._fixed = {name: pa.allocate_buffer(rows * _FIXED[name][2], resizable=True)
                       for name in self._names if name in _FIXED}
        if self._columns.want & TL_COLUMN_KEY:
            self._key.allocate(rows)
        if self._columns.want & TL_COLUMN_VALUE:
            self._value.allocate(rows)
        if self._columns.want & TL_COLUMN_HEADERS:
            self._header_offsets = pa.allocate_buffer((rows + 1) * 4, resizable=True)
            self._header_validity = pa.allocate_buffer((rows + 7) // 8, resizable=True)
            self._columns.header_capacity = self._next_headers
            self._header_key.allocate(self._next_headers)
            self._header_value.allocate(self._next_headers)
        self._bind_rows()
        tl_columns_reset(&self._columns)
        self._allocated = True
        return 0

    cdef int _bind_rows(self) except -1:
        cdef dict fixed = {name: buffer.address for name, buffer in self._fixed.items()}
        self._columns.offset = <int64_t *><size_t>fixed.get("offset", 0)
        self._columns.timestamp = <int64_t *><size_t>fixed.get("timestamp", 0)
        self._columns.timestamp_type = <int32_t *><size_t>fixed.get("timestampType", 0)
        self._columns.leader_epoch = <int32_t *><size_t>fixed.get("leaderEpoch", 0)
        self._columns.batch_position = <int64_t *><size_t>fixed.get("batchPosition", 0)
        self._columns.sequence = <int32_t *><size_t>fixed.get("sequence", 0)
        if self._columns.want & TL_COLUMN_HEADERS:
            self._columns.header_offsets = <int32_t *><size_t>self._header_offsets.address
            self._columns.header_validity = <uint8_t *><size_t>self._header_validity.address
        return 0

    cdef int _grow_rows(self) except -1:
        cdef int64_t old = self._columns.row_capacity, rows = 2 * self._columns.row_capacity
        for name, buffer in self._fixed.items():
            buffer.resize(rows * _FIXED[name][2])
        if self._columns.want & TL_COLUMN_KEY:
            self._key.grow_rows(old, rows)
        if self._columns.want & TL_COLUMN_VALUE:
            self._value.grow_rows(old, rows)
        if self._columns.want & TL_COLUMN_HEADERS:
            self._header_offsets.resize((rows + 1) * 4)
            _grow_bits(self._header_validity, old, rows)
        self._columns.row_capacity = rows
        return self._bind_rows()

    cdef int _grow_headers(self, int64_t need) except -1:
        cdef int64_t old = self._columns.header_capacity, entries = max(need, 2 * old)
        self._header_key.grow_rows(old, entries)
        self._header_value.grow_rows(old, entries)
        self._columns.header_capacity = entries
        return 0

    cdef int _grow(self, const tl_fault *fault) except -1:
        """Room for what was found full: an array of rows, of header entries, or a column's bytes."""
        if fault.found == 0:
            return self._grow_rows()
        if fault.found == TL_COLUMN_KEY:
            return self._key.grow_bytes(fault.expected)
        if fault.found == TL_COLUMN_VALUE:
            return self._value.grow_bytes(fault.expected)
        if fault.found == TL_COLUMN_HEADERS:
            return self._grow_headers(fault.expected)
        if fault.found == (TL_COLUMN_HEADERS | TL_COLUMN_KEY):
            return self._header_key.grow_bytes(fault.expected)
        return self._header_value.grow_bytes(fault.expected)

    cdef int64_t _used_bytes(self) noexcept:
        cdef tl_columns *c = &self._columns
        return (c.rows * self._row_bytes + c.key.data_size + c.value.data_size + c.header_key.data_size
                + c.header_value.data_size + 8 * c.header_count)

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

    # ---- hand-over -----------------------------------------------------------------------------------------------

    cdef object _take(self):
        """The rows so far as a record batch."""
        cdef int64_t rows = self._columns.rows
        self._share = min(1.0, self._target_bytes / <double>max(self._used_bytes(), 1))
        arrays = [self._take_column(name, rows) for name in self._names]
        if self._names:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        else:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        self._next_rows = max(_learned(rows, self._share), 64)
        self._columns.rows = 0
        self._allocated = False
        return batch

    cdef object _take_column(self, str name, int64_t rows):
        kind = self.schema.field(name).type
        if name == "key":
            return self._key.take(kind, rows, self._share)
        if name == "value":
            return self._value.take(kind, rows, self._share)
        if name == "headers":
            return self._take_headers(kind, rows)
        buffer = self._fixed.pop(name)
        _shrink(buffer, rows * _FIXED[name][2])
        return pa.Array.from_buffers(kind, rows, [None, buffer], 0)

    cdef object _take_headers(self, kind, int64_t rows):
        cdef int64_t entries = self._columns.header_count
        keys = self._header_key.take(pa.string(), entries, self._share)
        values = self._header_value.take(pa.binary(), entries, self._share)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        _shrink(self._header_offsets, (rows + 1) * 4)
        validity = None
        if self._columns.header_null_count:
            _shrink(self._header_validity, (rows + 7) // 8)
            validity = self._header_validity
        array = pa.Array.from_buffers(kind, rows, [validity, self._header_offsets], self._columns.header_null_count,
                                      children=[pairs])
        self._next_headers = max(_learned(entries, self._share), 64)
        self._header_offsets = self._header_validity = None
        return array

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
        """The current buffer ends inside a batch: what is left waits for the next one."""
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
        self._todo.append(_Borrowed(data))
        while self._state.in_batch >= 0 and (self._current is not None or self._next_input()):
            if not self._allocated:
                self._allocate()
            start = self._current.data
            size = self._current.size
            memset(&fault, 0, sizeof(fault))
            fault.record = -1
            with nogil:
                status = tl_decode(start, size, &self._options, &self._state, &self._scratch, &self._columns, &fault)
            if status == TL_OK:
                self._current = None
            elif status == TL_PARTIAL:
                self._keep_rest()
            elif status == TL_NEED_SCRATCH:
                self._grow_scratch(fault.expected)
            elif status == TL_FULL:
                if self._columns.rows and self._used_bytes() >= self._target_bytes - self._target_bytes // 4:
                    yield self._take()
                else:
                    self._grow(&fault)
            else:
                error = error_of(status, &fault, CorruptRecordError)
                if self._columns.rows:
                    yield self._take()
                raise error
        if self._state.in_batch < 0:
            self._todo.clear()
            self._current = None
            self._straddle = None

    def skip_batch(self):
        cdef tl_batch_header header
        cdef tl_fault fault
        cdef tl_status status
        cdef size_t at = <size_t>self._state.at
        if self._current is None:
            raise ValueError("skip_batch comes after a fault")
        status = tl_batch_parse(self._current.data + at, self._current.size - at, &header, &fault)
        if status != TL_OK:
            fault.position = self._options.base_position + at
            raise error_of(status, &fault, CorruptRecordError)
        if header.base_offset >= self._state.next_offset and header.last_offset_delta >= 0:
            self._state.next_offset = header.base_offset + header.last_offset_delta + 1
        self._state.at += <uint64_t>header.size_bytes
        self._state.record = 0
        self._state.record_at = 0
        self._state.in_batch = 0
        self._state.verified = 0
        self._state.batches_skipped += 1
        return header.size_bytes

    def finish(self, *, bint allow_partial=False):
        cdef tl_fault fault
        cdef tl_batch_header header
        if self._columns.rows and self._allocated:
            yield self._take()
        if self._straddle is not None and not allow_partial:
            tl_batch_parse(self._straddle.data, self._straddle.have, &header, &fault)
            fault.position = self._straddle.position
            raise error_of(TL_TRUNCATED, &fault, CorruptRecordError)
