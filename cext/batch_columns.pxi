# Batch headers as numpy columns, into which the core writes. Included by each module that gives some out.

_DTYPES = {
    "base_offset": np.int64,
    "last_offset": np.int64,
    "position": np.int64,
    "size_bytes": np.int32,
    "leader_epoch": np.int32,
    "base_timestamp": np.int64,
    "max_timestamp": np.int64,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "base_sequence": np.int32,
    "record_count": np.int32,
    "attributes": np.int16,
    "magic": np.int8,
    "crc": np.uint32,
    "crc_ok": np.bool_,
}


cdef size_t _address(dict columns, str name) except? 0:
    return address_of(columns[name])


cdef int _bind(tl_batch_table *table, dict columns, size_t capacity) except -1:
    table.capacity = capacity
    table.base_offset = <int64_t *>_address(columns, "base_offset")
    table.last_offset = <int64_t *>_address(columns, "last_offset")
    table.position = <int64_t *>_address(columns, "position")
    table.size_bytes = <int32_t *>_address(columns, "size_bytes")
    table.leader_epoch = <int32_t *>_address(columns, "leader_epoch")
    table.base_timestamp = <int64_t *>_address(columns, "base_timestamp")
    table.max_timestamp = <int64_t *>_address(columns, "max_timestamp")
    table.producer_id = <int64_t *>_address(columns, "producer_id")
    table.producer_epoch = <int16_t *>_address(columns, "producer_epoch")
    table.base_sequence = <int32_t *>_address(columns, "base_sequence")
    table.record_count = <int32_t *>_address(columns, "record_count")
    table.attributes = <int16_t *>_address(columns, "attributes")
    table.magic = <int8_t *>_address(columns, "magic")
    table.crc = <uint32_t *>_address(columns, "crc")
    table.crc_ok = <uint8_t *>_address(columns, "crc_ok")
    return 0


cdef size_t _first_capacity(size_t size) noexcept:
    return 16 + size // 16384   # the usual batch of a producer; doubled when it was too few


cdef dict _new_columns(size_t capacity):
    return {name: np.empty(capacity, dtype) for name, dtype in _DTYPES.items()}


cdef dict _doubled(dict columns):
    return {name: np.concatenate((column, np.empty_like(column))) for name, column in columns.items()}


cdef dict _cut(dict columns, size_t count):
    return {name: column[:count] for name, column in columns.items()}
