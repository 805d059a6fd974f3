# A RecordDecoder's output: the Arrow buffers behind a tl_columns, from allocation to hand-over. Included by
# decoding.pyx.

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
    FIRST_HEADERS = 64
    FIRST_BYTES = 1 << 18


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
    """Room for the next record batch: the bytes that this one used, an eighth more, and no more than its share of the
    target.

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


cdef _Binary _binary(tl_binary *out, bint nullable):
    cdef _Binary column = _Binary()
    column.out = out
    column.nullable = nullable
    return column


cdef class _Columns:
    """One record batch under way: room for the wanted columns, as the core sees it in ``out``."""
    cdef tl_columns out
    cdef _Binary key, value, header_key, header_value
    cdef dict fixed                # name -> buffer under way
    cdef object header_offsets, header_validity, schema
    cdef list names
    cdef int64_t target_bytes, next_rows, next_headers, row_bytes
    cdef double share              # of the last record batch that fits the target
    cdef bint allocated

    def __init__(self, columns, str timestamp_unit, int64_t target_bytes):
        if timestamp_unit not in ("ms", "us"):
            raise ConfigError(f"timestamp_unit is 'ms' or 'us', not {timestamp_unit!r}")
        if target_bytes < 1:
            raise ConfigError(f"target_bytes is at least 1, not {target_bytes}")
        unknown = sorted(set(columns) - set(_ORDER))
        if unknown:
            raise ConfigError(f"unknown columns {unknown}; known are {list(_ORDER)}")
        self.names = [name for name in _ORDER if name in columns]
        self.out.struct_size = sizeof(self.out)
        self.target_bytes = target_bytes
        self.next_rows = FIRST_ROWS
        self.next_headers = FIRST_HEADERS
        self.fixed = {}
        self.schema = self.make_schema(timestamp_unit)
        for name in self.names:
            self.out.want |= <uint32_t>_BITS[name]
            self.row_bytes += _FIXED[name][2] if name in _FIXED else 4
        self.key = _binary(&self.out.key, True)
        self.value = _binary(&self.out.value, True)
        self.header_key = _binary(&self.out.header_key, False)
        self.header_value = _binary(&self.out.header_value, True)

    cdef object make_schema(self, str unit):
        timestamp = pa.timestamp(unit, tz="UTC")
        kinds = {"key": pa.binary(), "value": pa.binary(), "headers": _HEADERS, "timestamp": timestamp}
        kinds.update({name: kind for name, (_, kind, _) in _FIXED.items() if kind is not None})
        return pa.schema([pa.field(name, kinds[name]) for name in self.names])

    # ---- room ----------------------------------------------------------------------------------------------------

    cdef int allocate(self) except -1:
        """Fresh buffers for the next record batch, of the sizes that the last one taught."""
        cdef int64_t rows = self.next_rows
        self.out.row_capacity = rows
        self.fixed = {name: pa.allocate_buffer(rows * _FIXED[name][2], resizable=True)
                      for name in self.names if name in _FIXED}
        if self.out.want & TL_COLUMN_KEY:
            self.key.allocate(rows)
        if self.out.want & TL_COLUMN_VALUE:
            self.value.allocate(rows)
        if self.out.want & TL_COLUMN_HEADERS:
            self.header_offsets = pa.allocate_buffer((rows + 1) * 4, resizable=True)
            self.header_validity = pa.allocate_buffer((rows + 7) // 8, resizable=True)
            self.out.header_capacity = self.next_headers
            self.header_key.allocate(self.next_headers)
            self.header_value.allocate(self.next_headers)
        self.bind_rows()
        tl_columns_reset(&self.out)
        self.allocated = True
        return 0

    cdef int bind_rows(self) except -1:
        cdef dict fixed = {name: buffer.address for name, buffer in self.fixed.items()}
        self.out.offset = <int64_t *><size_t>fixed.get("offset", 0)
        self.out.timestamp = <int64_t *><size_t>fixed.get("timestamp", 0)
        self.out.timestamp_type = <int32_t *><size_t>fixed.get("timestampType", 0)
        self.out.leader_epoch = <int32_t *><size_t>fixed.get("leaderEpoch", 0)
        self.out.batch_position = <int64_t *><size_t>fixed.get("batchPosition", 0)
        self.out.sequence = <int32_t *><size_t>fixed.get("sequence", 0)
        if self.out.want & TL_COLUMN_HEADERS:
            self.out.header_offsets = <int32_t *><size_t>self.header_offsets.address
            self.out.header_validity = <uint8_t *><size_t>self.header_validity.address
        return 0

    cdef int grow_rows(self) except -1:
        cdef int64_t old = self.out.row_capacity, rows = 2 * self.out.row_capacity
        for name, buffer in self.fixed.items():
            buffer.resize(rows * _FIXED[name][2])
        if self.out.want & TL_COLUMN_KEY:
            self.key.grow_rows(old, rows)
        if self.out.want & TL_COLUMN_VALUE:
            self.value.grow_rows(old, rows)
        if self.out.want & TL_COLUMN_HEADERS:
            self.header_offsets.resize((rows + 1) * 4)
            _grow_bits(self.header_validity, old, rows)
        self.out.row_capacity = rows
        return self.bind_rows()

    cdef int grow_headers(self, int64_t need) except -1:
        cdef int64_t old = self.out.header_capacity, entries = max(need, 2 * old)
        self.header_key.grow_rows(old, entries)
        self.header_value.grow_rows(old, entries)
        self.out.header_capacity = entries
        return 0

    cdef int grow(self, const tl_fault *fault) except -1:
        """Grow the array that was found full: of rows, of header entries, or a column's bytes."""
        if fault.found == 0:
            return self.grow_rows()
        if fault.found == TL_COLUMN_KEY:
            return self.key.grow_bytes(fault.expected)
        if fault.found == TL_COLUMN_VALUE:
            return self.value.grow_bytes(fault.expected)
        if fault.found == TL_COLUMN_HEADERS:
            return self.grow_headers(fault.expected)
        if fault.found == (TL_COLUMN_HEADERS | TL_COLUMN_KEY):
            return self.header_key.grow_bytes(fault.expected)
        return self.header_value.grow_bytes(fault.expected)

    cdef bint is_full(self) noexcept:
        """Whether it is time to hand over rather than to grow."""
        return self.out.rows > 0 and self.used_bytes() >= self.target_bytes - self.target_bytes // 4

    cdef int64_t used_bytes(self) noexcept:
        cdef tl_columns *c = &self.out
        return (c.rows * self.row_bytes + c.key.data_size + c.value.data_size + c.header_key.data_size
                + c.header_value.data_size + 8 * c.header_count)

    cdef object take(self):
        """The rows so far as a record batch."""
        cdef int64_t rows = self.out.rows
        self.share = min(1.0, self.target_bytes / <double>max(self.used_bytes(), 1))
        arrays = [self.take_column(name, rows) for name in self.names]
        if self.names:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        else:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        self.next_rows = max(_learned(rows, self.share), 64)
        self.out.rows = 0
        self.allocated = False
        return batch

    cdef object take_column(self, str name, int64_t rows):
        kind = self.schema.field(name).type
        if name == "key":
            return self.key.take(kind, rows, self.share)
        if name == "value":
            return self.value.take(kind, rows, self.share)
        if name == "headers":
            return self.take_headers(kind, rows)
        buffer = self.fixed.pop(name)
        _shrink(buffer, rows * _FIXED[name][2])
        return pa.Array.from_buffers(kind, rows, [None, buffer], 0)

    cdef object take_headers(self, kind, int64_t rows):
        cdef int64_t entries = self.out.header_count
        keys = self.header_key.take(pa.string(), entries, self.share)
        values = self.header_value.take(pa.binary(), entries, self.share)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        _shrink(self.header_offsets, (rows + 1) * 4)
        validity = None
        if self.out.header_null_count:
            _shrink(self.header_validity, (rows + 7) // 8)
            validity = self.header_validity
        array = pa.Array.from_buffers(kind, rows, [validity, self.header_offsets], self.out.header_null_count,
                                      children=[pairs])
        self.next_headers = max(_learned(entries, self.share), 64)
        self.header_offsets = self.header_validity = None
        return array
