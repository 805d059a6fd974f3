# Batches on their way into a log, declared once and nothing else: `from tl_appends cimport *`.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from tl_core cimport (
    tl_batch_header,
    tl_batch_table,
    tl_bool,
    tl_fault,
    tl_scratch,
    tl_status,
)


cdef extern from "tierlog/log_append.h" nogil:
    ctypedef enum tl_append_rule:
        TL_APPEND_SOUND
    int16_t tl_append_error_code(tl_append_rule rule) noexcept
    const char *tl_append_rule_name(tl_append_rule rule) noexcept

    ctypedef enum tl_record_rule:
        TL_RECORD_NO_KEY
    const char *tl_record_rule_name(tl_record_rule rule) noexcept

    ctypedef struct tl_record_error:
        int64_t record
        int64_t timestamp
        tl_record_rule rule

    ctypedef struct tl_record_errors:
        tl_record_error *entries
        size_t capacity
        int64_t count

    ctypedef enum tl_append_origin:
        TL_FROM_CLIENT, TL_FROM_COORDINATOR

    ctypedef struct tl_leader_options:
        size_t struct_size
        int64_t first_offset
        int64_t now_ms
        int64_t timestamp_before_max_ms
        int64_t timestamp_after_max_ms
        uint64_t decompressed_limit
        int32_t leader_epoch
        int32_t max_message_bytes
        int32_t target_codec
        tl_append_origin origin
        tl_bool compacted
        tl_bool log_append_time

    ctypedef struct tl_leader_batch:
        tl_batch_header header
        tl_append_rule rule
        tl_bool must_rebuild

    tl_status tl_leader_append(uint8_t *data, size_t size, const tl_leader_options *options, const tl_scratch *scratch,
                               tl_record_errors *errors, tl_leader_batch *out, tl_fault *fault) noexcept

    ctypedef struct tl_follower_check:
        size_t valid_bytes
        int64_t first_offset
        int64_t last_offset
        tl_append_rule rule
        tl_bool is_passing_over

    void tl_follower_begin(tl_follower_check *check, int64_t next_offset, int32_t leader_epoch) noexcept
    tl_status tl_follower_append(tl_follower_check *check, const uint8_t *data, size_t size, size_t *at,
                                 tl_batch_table *table, tl_fault *fault) noexcept

    ctypedef struct tl_marker:
        int64_t timestamp
        int32_t coordinator_epoch
        tl_bool is_commit

    tl_status tl_marker_parse(const uint8_t *data, const tl_batch_header *header, tl_marker *marker, tl_bool *found,
                              tl_fault *fault) noexcept


cdef extern from "tierlog/index_append.h" nogil:
    ctypedef struct tl_index_tail:
        int64_t base_offset
        int64_t interval_bytes
        int64_t bytes_since_entry
        int64_t max_timestamp
        int64_t max_timestamp_offset
        int64_t last_offset
        int64_t last_time
        int64_t last_time_offset
        int64_t offset_room
        int64_t time_room

    ctypedef struct tl_index_entries:
        uint8_t *offsets
        uint8_t *times
        size_t offset_count
        size_t time_count

    void tl_index_begin(tl_index_tail *tail, int64_t base_offset, int64_t interval_bytes, int64_t offset_room,
                        int64_t time_room) noexcept
    tl_status tl_index_add(tl_index_tail *tail, const tl_batch_table *table, size_t first, int64_t position,
                           tl_index_entries *entries, tl_fault *fault) noexcept
    tl_status tl_index_add_batches(tl_index_tail *tail, const uint8_t *data, size_t size, size_t batches_max,
                                   int64_t position, tl_index_entries *entries, tl_fault *fault) noexcept
    void tl_index_close(tl_index_tail *tail, tl_index_entries *entries) noexcept


cdef extern from "tierlog/log_end.h" nogil:
    int64_t TL_NO_TIMESTAMP_KNOWN

    ctypedef struct tl_segment_end:
        int64_t size
        int64_t first_timestamp

    ctypedef struct tl_roll_limits:
        int64_t size
        int64_t age_ms

    ctypedef enum tl_roll:
        TL_ROLL_NOT, TL_ROLL_NOW, TL_ROLL_BY_CLOCK

    tl_roll tl_roll_due(const tl_segment_end *end, const tl_index_tail *tail, const tl_roll_limits *limits,
                        int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept

    ctypedef struct tl_producer_batch:
        int64_t last_offset
        int64_t max_timestamp
        int32_t last_sequence
        int32_t last_offset_delta

    ctypedef struct tl_producer:
        int64_t producer_id
        int64_t last_timestamp
        int64_t transaction_offset
        int32_t coordinator_epoch
        int16_t producer_epoch
        uint8_t batch_count
        tl_producer_batch *batches

    int32_t tl_sequence_after(int32_t sequence, int64_t count) noexcept
    tl_bool tl_producer_continues(const tl_producer *known, const tl_batch_header *batch) noexcept
    void tl_producer_keep(tl_producer *known, const tl_producer_batch *batch) noexcept


cdef extern from "log/usual_append.h" nogil:
    ctypedef int64_t tl_append_bytes(void *file, const uint8_t *data, size_t size) noexcept

    ctypedef struct tl_active_segment:
        tl_segment_end end
        tl_index_tail *tail
        tl_append_bytes *append
        void *file

    ctypedef struct tl_segment_growth:
        tl_bool has_offset_entry
        tl_bool has_time_entry
        uint8_t *offset_entry
        uint8_t *time_entry

    tl_status tl_segment_append(const tl_active_segment *segment, const uint8_t *data, int32_t size,
                                int64_t last_offset, int64_t max_timestamp, tl_segment_growth *growth, int64_t *error,
                                tl_fault *fault) noexcept
    void tl_segment_grow(tl_active_segment *segment, const tl_segment_growth *growth) noexcept

    ctypedef struct tl_latest_epoch:
        int64_t epoch
        int64_t start_offset

    tl_bool tl_epoch_goes_on(const tl_latest_epoch *latest, int64_t epoch, int64_t offset) noexcept

    ctypedef struct tl_leader_log:
        const tl_leader_options *options
        const tl_scratch *scratch
        const tl_active_segment *segment
        const tl_producer *producer
        tl_latest_epoch latest
        tl_roll_limits limits

    ctypedef struct tl_usual_append:
        tl_leader_batch batch
        tl_segment_growth growth
        int64_t error
        tl_bool is_written

    tl_status tl_usual_append_run(const tl_leader_log *log, uint8_t *data, size_t size, tl_record_errors *errors,
                                  tl_usual_append *out, tl_fault *fault) noexcept
    int64_t tl_usual_append_take(tl_active_segment *segment, tl_producer *producer,
                                 const tl_usual_append *appended) noexcept
    int64_t tl_named_producer(const uint8_t *data, size_t size) noexcept
