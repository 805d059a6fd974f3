# Compaction of a log, declared once and nothing else: `from tl_compaction cimport *`.

from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t

from tl_core cimport (
    tl_bool,
    tl_compressor,
    tl_fault,
    tl_scratch,
    tl_status,
)


cdef extern from "tierlog/offset_map.h" nogil:
    int TL_OFFSET_MAP_ENTRY_BYTES

    ctypedef struct tl_key_hash:
        uint64_t low
        uint64_t high

    ctypedef struct tl_offset_map:
        uint64_t slot_count
        uint64_t entries_max
        uint64_t capacity
        uint64_t entries_limit
        uint64_t entries
        int64_t latest_offset

    tl_status tl_offset_map_begin(tl_offset_map *map, void *memory, size_t size, double load_factor,
                                  uint64_t secret_low, uint64_t secret_high) noexcept
    void tl_offset_map_clear(
        tl_offset_map *map, uint64_t keys, uint64_t secret_low, uint64_t secret_high
    ) noexcept
    tl_key_hash tl_offset_map_hash(const tl_offset_map *map, const uint8_t *key, size_t size) noexcept
    tl_status tl_offset_map_put(tl_offset_map *map, tl_key_hash hash, int64_t offset) noexcept
    int64_t tl_offset_map_get(const tl_offset_map *map, tl_key_hash hash) noexcept


cdef extern from "tierlog/compaction.h" nogil:
    ctypedef struct tl_window:
        size_t valid_bytes
        size_t batches
        int64_t next_offset
        tl_bool has_producers

    tl_status tl_window_survey(const uint8_t *data, size_t size, tl_window *window, tl_fault *fault) noexcept

    int TL_VERDICT_DISCARD
    int TL_VERDICT_RETAIN_EMPTY
    int TL_VERDICT_EMPTY_TRANSACTION

    ctypedef struct tl_window_state:
        size_t at
        size_t batch
        int64_t messages_read
        size_t out_size
        int64_t messages_retained
        int64_t invalid_messages

    tl_status tl_compaction_index(const uint8_t *data, size_t size, const uint8_t *verdicts, int64_t from_offset,
                                  uint64_t decompressed_limit, const tl_scratch *scratch, tl_offset_map *map,
                                  tl_window_state *state, tl_fault *fault) noexcept

    ctypedef struct tl_compaction_options:
        size_t struct_size
        const tl_offset_map *map
        int64_t now_ms
        int64_t delete_horizon_ms
        int64_t retained_next_offset
        uint64_t decompressed_limit
        tl_bool retain_legacy_tombstones

    tl_status tl_compaction_filter(const uint8_t *data, size_t size, const uint8_t *verdicts,
                                   const tl_compaction_options *options, const tl_scratch *scratch,
                                   tl_compressor *compressor, tl_window_state *state, uint8_t *out, size_t capacity,
                                   tl_fault *fault) noexcept


cdef extern from "tierlog/cleaned_transactions.h" nogil:
    ctypedef struct tl_aborted_entry:
        int64_t producer_id
        int64_t first_offset
        int64_t last_offset
        int64_t last_stable_offset

    ctypedef struct tl_last_record:
        int64_t producer_id
        int64_t last_data_offset
        int16_t producer_epoch

    ctypedef struct tl_cleaned_transactions:
        pass

    tl_status tl_cleaned_transactions_create(tl_cleaned_transactions **out, uint64_t secret_low,
                                             uint64_t secret_high) noexcept
    void tl_cleaned_transactions_destroy(tl_cleaned_transactions *transactions) noexcept
    tl_status tl_cleaned_transactions_add(tl_cleaned_transactions *transactions,
                                          const tl_aborted_entry *entry) noexcept
    void tl_cleaned_transactions_set_last(tl_cleaned_transactions *transactions, const tl_last_record *last,
                                          size_t count) noexcept
    tl_status tl_cleaned_transactions_judge(tl_cleaned_transactions *transactions, const uint8_t *data, size_t size,
                                            size_t batches_max, int64_t now_ms, tl_bool is_for_map, uint8_t *verdicts,
                                            tl_fault *fault) noexcept
    const tl_aborted_entry *tl_cleaned_transactions_retained(const tl_cleaned_transactions *transactions,
                                                             size_t *count) noexcept
    void tl_cleaned_transactions_forget(tl_cleaned_transactions *transactions) noexcept


cdef extern from "tierlog/mapped_memory.h" nogil:
    void *tl_memory_map(size_t size) noexcept
    void tl_memory_unmap(void *memory, size_t size) noexcept
