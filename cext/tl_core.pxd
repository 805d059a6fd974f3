# The C core, declared once; nothing else. Each declaration stands in the header named above it.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "stdbool.h" nogil:
    ctypedef bint tl_bool "bool"    # where C writes one through a pointer: a bint is an int


cdef extern from "tierlog/status.h" nogil:
    ctypedef enum tl_status:
        TL_OK, TL_FULL, TL_NEED_SCRATCH, TL_PARTIAL
        TL_TRUNCATED, TL_BAD_SIZE, TL_BAD_MAGIC, TL_BAD_CRC, TL_BAD_CODEC, TL_BAD_COUNT, TL_TRAILING_BYTES
        TL_BAD_VARINT, TL_BAD_RECORD_LENGTH, TL_BAD_FIELD_LENGTH, TL_BAD_HEADER_COUNT, TL_BAD_OFFSET
        TL_BAD_TIMESTAMP, TL_BAD_COMPRESSED, TL_BAD_CONTROL, TL_BAD_LEGACY, TL_BAD_VERSION, TL_BAD_ORDER, TL_BAD_ENTRY
        TL_OVER_LIMIT, TL_NO_MEMORY, TL_BAD_ARGUMENT

    ctypedef struct tl_fault:
        uint64_t position
        int64_t base_offset
        int64_t record
        int64_t expected
        int64_t found

    const char *tl_status_name(tl_status status) noexcept
    const char *tl_status_text(tl_status status) noexcept


cdef extern from "tierlog/checksum.h" nogil:
    uint32_t tl_crc32c(uint32_t crc, const uint8_t *data, size_t size) noexcept
    uint32_t tl_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) noexcept
    const char *tl_crc32c_implementation() noexcept
    uint32_t tl_crc32c_table(uint32_t crc, const uint8_t *data, size_t size) noexcept
    uint32_t tl_crc32(uint32_t crc, const uint8_t *data, size_t size) noexcept
    uint32_t tl_xxhash32(const uint8_t *data, size_t size, uint32_t seed) noexcept


cdef extern from "tierlog/codec.h" nogil:
    ctypedef struct tl_codecs:
        pass
    tl_status tl_codecs_create(tl_codecs **out) noexcept
    void tl_codecs_destroy(tl_codecs *codecs) noexcept
    const char *tl_codec_version(int codec) noexcept
    tl_status tl_decompress_bound(int codec, int magic, const uint8_t *data, size_t size, size_t limit, size_t *bound,
                                  tl_fault *fault) noexcept
    tl_status tl_decompress(tl_codecs *codecs, int codec, int magic, const uint8_t *data, size_t size, uint8_t *out,
                            size_t capacity, size_t limit, size_t *out_size, tl_fault *fault) noexcept
    tl_status tl_zstd_prefix(tl_codecs *codecs, const uint8_t *data, size_t size, size_t wanted, uint8_t *out,
                             size_t capacity, size_t *out_size, tl_fault *fault) noexcept


cdef extern from "tierlog/compress.h" nogil:
    ctypedef struct tl_compressor:
        pass
    tl_status tl_compressor_create(tl_compressor **out) noexcept
    void tl_compressor_destroy(tl_compressor *compressor) noexcept
    int tl_compression_level_min() noexcept
    int tl_compression_level_max() noexcept
    size_t tl_compress_bound(size_t size) noexcept
    tl_status tl_compress(tl_compressor *compressor, int level, const uint8_t *data, size_t size, uint8_t *out,
                          size_t capacity, size_t *out_size, tl_fault *fault) noexcept


cdef extern from "tierlog/aborted.h" nogil:
    ctypedef struct tl_aborted:
        int64_t producer_id
        int64_t first_offset
        int64_t last_offset
    tl_status tl_aborted_sort(tl_aborted *entries, size_t count, size_t *out_count, tl_fault *fault) noexcept
    bint tl_is_aborted(const tl_aborted *entries, size_t count, int64_t producer_id, int64_t base_offset) noexcept


cdef extern from "tierlog/batch.h" nogil:
    ctypedef struct tl_batch_header:
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t size_bytes
        int32_t leader_epoch
        uint32_t crc
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t record_count
        int16_t attributes
        int16_t producer_epoch
        int8_t magic

    tl_status tl_batch_parse(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault) noexcept
    tl_status tl_batch_parse_header(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault) noexcept
    tl_status tl_batch_verify(const uint8_t *data, const tl_batch_header *header, tl_fault *fault) noexcept

    ctypedef struct tl_batch_table:
        size_t struct_size
        size_t capacity
        size_t count
        int64_t *base_offset
        int64_t *last_offset
        int64_t *position
        int32_t *size_bytes
        int32_t *leader_epoch
        int64_t *base_timestamp
        int64_t *max_timestamp
        int64_t *producer_id
        int16_t *producer_epoch
        int32_t *base_sequence
        int32_t *record_count
        int16_t *attributes
        int8_t *magic
        uint32_t *crc
        uint8_t *crc_ok

    tl_status tl_scan(const uint8_t *data, size_t size, uint64_t base_position, bint verify_crc, size_t *at,
                      tl_batch_table *table, tl_fault *fault) noexcept

    ctypedef struct tl_batch_stream:
        uint64_t position

    bint tl_batch_stream_open(const tl_batch_stream *stream) noexcept


cdef extern from "tierlog/file_ops.h" nogil:
    ctypedef enum tl_open_mode:
        TL_OPEN_READY

    ctypedef struct tl_file_ops:
        size_t struct_size
        int64_t (*open)(void *context, const char *path, tl_open_mode mode) noexcept nogil
        void (*close)(void *context, int64_t file) noexcept nogil
        int64_t (*pread)(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) noexcept nogil
        int64_t (*pread_ready)(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) noexcept nogil
        int64_t (*holds)(void *context, int64_t file, uint64_t position, uint64_t size) noexcept nogil
        int64_t (*pwrite)(void *context, int64_t file, uint64_t position, const uint8_t *data,
                          size_t size) noexcept nogil
        int64_t (*truncate)(void *context, int64_t file, uint64_t size) noexcept nogil
        int64_t (*reserve)(void *context, int64_t file, uint64_t position, uint64_t size) noexcept nogil

    ctypedef struct tl_files:
        const tl_file_ops *ops
        void *context
    int64_t TL_NOT_REGULAR
    tl_files tl_posix_files() noexcept


cdef extern from "tierlog/growing_file.h" nogil:
    ctypedef struct tl_growing_file:
        tl_files files
        int64_t file
        uint64_t size
        uint64_t reserve_limit
        uint64_t reserved

    int64_t tl_growing_file_append(tl_growing_file *growing, const uint8_t *data, size_t size) noexcept


cdef extern from "tierlog/batch_search.h" nogil:
    ctypedef struct tl_batch_search:
        int64_t position
        tl_batch_header header
        int64_t last_offset
        int64_t passed
        int64_t passed_last_offset
        int64_t greatest_timestamp
        int64_t greatest_timestamp_offset
        tl_bool is_found
        tl_bool is_done

    void tl_batch_search_begin(tl_batch_search *search, int64_t position, int64_t end_position,
                               int64_t least_last_offset, int64_t least_max_timestamp) noexcept
    tl_status tl_batch_search_feed(tl_batch_search *search, const uint8_t *data, size_t size, tl_fault *fault) noexcept
    tl_status tl_batch_search_run(tl_batch_search *search, tl_files files, int64_t file, int64_t *error,
                                  tl_fault *fault) noexcept


cdef extern from "skim.h" nogil:
    int TL_SKIM_BYTES, TL_SKIM_SHORT, TL_SKIM_LONG, TL_SKIM_COMPACT, TL_SKIM_OPTIONAL, TL_SKIM_ARRAY
    int TL_SKIM_COMPACT_ARRAY, TL_SKIM_NO_TAGS

    ctypedef struct tl_skim_step:
        uint8_t kind
        uint8_t is_nullable
        uint32_t argument

    tl_status tl_skim(const tl_skim_step *steps, size_t count, const uint8_t *data, size_t size,
                      uint32_t elements_max, uint32_t *elements) noexcept


cdef extern from "tierlog/batch_walk.h" nogil:
    ctypedef struct tl_piece:
        const uint8_t *data
        size_t size

    ctypedef struct tl_batch_walk:
        int64_t wanted_offset
        int64_t end_offset
        int64_t least_offset
        int64_t greatest_offset
        int64_t log_size
        int64_t max_bytes
        int64_t position
        int64_t first_position
        int64_t first_last_offset
        int64_t whole_position
        int64_t whole_offset
        tl_batch_header first
        tl_bool is_found
        tl_bool is_ended

    void tl_batch_walk_begin(tl_batch_walk *walk, int64_t position) noexcept
    tl_status tl_batch_walk_run(tl_batch_walk *walk, const tl_piece *pieces, size_t count, int64_t start,
                                tl_fault *fault) noexcept
    tl_status tl_batch_walk_run_ready(tl_batch_walk *walk, tl_files files, int64_t file, int64_t log, int64_t end,
                                      int64_t *error, tl_fault *fault) noexcept


cdef extern from "tierlog/range_check.h" nogil:
    ctypedef enum tl_range_rule:
        TL_RULE_NONE

    ctypedef struct tl_range_check:
        tl_batch_stream stream
        int64_t next_offset
        tl_range_rule rule
        tl_bool is_border
        tl_bool is_off

    const char *tl_range_rule_name(tl_range_rule rule) noexcept
    void tl_range_check_begin(tl_range_check *check, uint64_t position, int64_t first_offset, int64_t last_offset,
                              uint64_t size_bytes) noexcept
    tl_status tl_range_check_feed(tl_range_check *check, const uint8_t *data, size_t size, tl_fault *fault) noexcept
    tl_status tl_range_check_feed_file(tl_range_check *check, tl_files files, int64_t file, uint64_t position,
                                       uint64_t size, bint waits, uint8_t *room, size_t room_size, int64_t *error,
                                       tl_fault *fault) noexcept
    tl_status tl_range_check_collect(tl_range_check *check, const uint8_t *data, size_t size, size_t *at,
                                     tl_batch_table *table, tl_fault *fault) noexcept


cdef extern from "tierlog/decode.h" nogil:
    ctypedef struct tl_binary:
        int32_t *offsets
        uint8_t *data
        int64_t data_capacity
        int64_t data_size
        uint8_t *validity
        int64_t null_count

    enum:
        TL_COLUMN_KEY, TL_COLUMN_VALUE, TL_COLUMN_OFFSET, TL_COLUMN_TIMESTAMP, TL_COLUMN_TIMESTAMP_TYPE
        TL_COLUMN_HEADERS, TL_COLUMN_LEADER_EPOCH, TL_COLUMN_BATCH, TL_COLUMN_SEQUENCE

    enum:
        TL_SUMMARY_OFFSETS, TL_SUMMARY_LEAST_TIMESTAMP, TL_SUMMARY_GREATEST_TIMESTAMP

    ctypedef struct tl_summary:
        uint32_t want
        int64_t records
        int64_t least_offset
        int64_t greatest_offset
        int64_t least_timestamp
        int64_t greatest_timestamp

    void tl_summary_reset(tl_summary *summary, uint32_t want) noexcept
    uint32_t tl_summary_columns(uint32_t want) noexcept

    ctypedef struct tl_columns:
        size_t struct_size
        tl_summary *summary
        uint32_t want
        int64_t row_capacity
        int64_t rows
        tl_binary key
        tl_binary value
        int64_t *offset
        int64_t *timestamp
        int32_t *timestamp_type
        int32_t *leader_epoch
        int64_t *batch_position
        int32_t *sequence
        int32_t *header_offsets
        uint8_t *header_validity
        int64_t header_null_count
        int64_t header_capacity
        int64_t header_count
        tl_binary header_key
        tl_binary header_value

    void tl_columns_reset(tl_columns *columns) noexcept

    ctypedef struct tl_decode_options:
        size_t struct_size
        uint64_t base_position
        uint64_t end_position
        int64_t from_offset
        int64_t to_offset_exclusive
        int64_t least_offset
        int64_t greatest_offset
        int64_t from_timestamp
        int64_t to_timestamp_exclusive
        int64_t timestamp_multiplier
        uint64_t decompressed_limit
        const tl_aborted *aborted
        size_t aborted_count
        bint verify_crc
        bint control_records

    ctypedef struct tl_decode_state:
        uint64_t at
        uint64_t record_at
        uint64_t content_size
        int64_t record
        int64_t next_offset
        int32_t in_batch
        int32_t verified
        int64_t legacy_base
        uint64_t batches, batches_skipped, records, decompressed_bytes

    ctypedef struct tl_scratch:
        uint8_t *data
        size_t capacity
        tl_codecs *codecs

    tl_status tl_decode(const uint8_t *data, size_t size, const tl_decode_options *options, tl_decode_state *state,
                        const tl_scratch *scratch, tl_columns *columns, tl_fault *fault) noexcept
    tl_status tl_decode_skip(const uint8_t *data, size_t size, const tl_decode_options *options,
                             tl_decode_state *state, int32_t *size_bytes, tl_fault *fault) noexcept


cdef extern from "tierlog/index.h" nogil:
    enum:
        TL_OFFSET_ENTRY, TL_TIME_ENTRY, TL_TXN_ENTRY

    size_t tl_offset_index_entries(const uint8_t *data, size_t size) noexcept
    size_t tl_time_index_entries(const uint8_t *data, size_t size) noexcept
    void tl_offset_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target,
                                int64_t *offset, int32_t *position) noexcept
    void tl_offset_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset, const int64_t *targets,
                                     size_t count, int64_t *offsets, int32_t *positions) noexcept
    int64_t tl_offset_index_upper_bound(const uint8_t *data, size_t entries, int64_t base_offset, int64_t position,
                                        int64_t size_bytes) noexcept
    void tl_time_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target,
                              int64_t *timestamp, int64_t *offset) noexcept
    void tl_time_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset, const int64_t *targets,
                                   size_t count, int64_t *timestamps, int64_t *offsets) noexcept
    tl_status tl_offset_index_check(const uint8_t *data, size_t size, int64_t base_offset, int64_t segment_size,
                                    tl_fault *fault) noexcept
    tl_status tl_time_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault) noexcept
    tl_status tl_txn_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault) noexcept
    void tl_offset_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *offset,
                              int32_t *position) noexcept
    void tl_time_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *timestamp,
                            int64_t *offset) noexcept

    ctypedef struct tl_txn_entry:
        int64_t producer_id
        int64_t first_offset
        int64_t last_offset
        int64_t last_stable_offset
    tl_status tl_txn_index_read(const uint8_t *data, size_t size, tl_txn_entry *out, size_t *count,
                                tl_fault *fault) noexcept
    tl_status tl_txn_index_collect(const uint8_t *data, size_t size, int64_t fetch_offset,
                                   int64_t upper_bound_exclusive, tl_aborted *out, size_t *count, tl_bool *complete,
                                   tl_fault *fault) noexcept


cdef extern from "tierlog/chunks.h" nogil:
    ctypedef struct tl_chunk_index:
        int64_t original_chunk_size
        int64_t original_file_size
        int64_t transformed_chunk_size
        int64_t final_transformed_chunk_size
        const int32_t *transformed_sizes
        const int64_t *transformed_positions
        int64_t chunk_count

    ctypedef struct tl_chunk_view:
        int64_t chunk
        int64_t original_size
        int64_t from_ "from"
        int64_t to
        int64_t transformed_position
        int64_t transformed_size

    tl_status tl_chunk_index_check(const tl_chunk_index *index, tl_fault *fault) noexcept
    int64_t tl_chunk_index_object_size(const tl_chunk_index *index) noexcept
    tl_status tl_chunk_count(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, int64_t *count) noexcept
    tl_status tl_chunk_views(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, tl_chunk_view *out,
                             size_t capacity, size_t *count) noexcept
    tl_status tl_chunk_sizes_count(const uint8_t *data, size_t size, int64_t *count, tl_fault *fault) noexcept
    tl_status tl_chunk_sizes_decode(const uint8_t *data, size_t size, int32_t *sizes, size_t capacity,
                                    tl_fault *fault) noexcept


cdef extern from "tierlog/buffer_pool.h" nogil:
    ctypedef struct tl_buffer_pool:
        pass

    ctypedef struct tl_block:
        uint8_t *data
        size_t capacity

    ctypedef struct tl_buffer_limits:
        size_t struct_size
        size_t kept_max
        size_t kept_spare
        size_t kept_min
        int64_t idle_ms

    ctypedef struct tl_buffer_figures:
        size_t lent
        size_t kept
        tl_bool has_thread

    tl_status tl_buffer_pool_create(tl_buffer_pool **out, const tl_buffer_limits *limits) noexcept
    void tl_buffer_pool_destroy(tl_buffer_pool *pool) noexcept
    tl_status tl_buffer_take(tl_buffer_pool *pool, size_t size, tl_block **out) noexcept
    void tl_buffer_give(tl_block *block) noexcept
    void tl_buffer_note_foreign(tl_buffer_pool *pool, size_t size) noexcept
    size_t tl_buffer_pool_trim(tl_buffer_pool *pool, int64_t idle_ms) noexcept
    tl_buffer_figures tl_buffer_pool_figures(tl_buffer_pool *pool) noexcept
    void tl_buffer_pool_before_fork(tl_buffer_pool *pool) noexcept
    void tl_buffer_pool_after_fork(tl_buffer_pool *pool, tl_bool is_child) noexcept


cdef extern from "tierlog/read_range.h" nogil:
    int64_t tl_read_range(tl_files files, tl_buffer_pool *pool, const char *path, uint64_t start,
                          uint64_t end_exclusive, tl_block **out) noexcept
    int64_t tl_read_range_into(tl_files files, const char *path, uint64_t start, uint8_t *out, size_t size) noexcept


cdef extern from "tierlog/tierlog.h" nogil:
    int TIERLOG_ABI_VERSION
    int tl_abi_version() noexcept
