/* Any bytes to a leader and to a follower: what is refused is left as it was; what a leader takes from a client is
 * decoded without a fault, with all its records; what a follower takes rises and has its checksum; neither reads
 * anything else.
 * Input: flags, 8 bytes of limits, the batches, whose checksums may be put right first. */
#include "fuzz.h"

#include "tierlog/checksum.h"
#include "tierlog/index_append.h"
#include "tierlog/log_append.h"

enum { LIMIT = 1 << 18, ROWS = 4 };

static void sum_anew(uint8_t *log, size_t size) {
    tl_batch_header header;
    tl_fault fault;
    for (size_t at = 0; at < size && tl_batch_parse(log + at, size - at, &header, &fault) == TL_OK;) {
        uint32_t sum = header.magic == 2 ? tl_crc32c(0, log + at + 21, (size_t)header.size_bytes - 21)
                                         : tl_crc32(0, log + at + 16, (size_t)header.size_bytes - 16);
        uint8_t *at_sum = log + at + (header.magic == 2 ? 17 : 12);
        for (int i = 0; i < 4; i++) at_sum[i] = (uint8_t)(sum >> (24 - 8 * i));
        at += (size_t)header.size_bytes;
    }
}

static void require_readable(const uint8_t *log, size_t size, const tl_leader_batch *batch, tl_codecs *codecs) {
    int64_t offsets[64];
    uint8_t *room = malloc(LIMIT);
    tl_scratch scratch = {.data = room, .capacity = LIMIT, .codecs = codecs};
    tl_columns columns = {
        .struct_size = sizeof(tl_columns), .want = TL_COLUMN_OFFSET, .row_capacity = 64, .offset = offsets};
    tl_decode_options options = {.struct_size = sizeof(tl_decode_options),
                                 .to_offset_exclusive = INT64_MAX,
                                 .greatest_offset = INT64_MAX,
                                 .from_timestamp = INT64_MIN,
                                 .to_timestamp_exclusive = INT64_MAX,
                                 .timestamp_multiplier = 1,
                                 .decompressed_limit = LIMIT,
                                 .verify_crc = true};
    tl_decode_state state = {0};
    tl_fault fault;
    tl_status status;
    REQUIRE(room);
    do {
        tl_columns_reset(&columns);
        status = tl_decode(log, size, &options, &state, &scratch, &columns, &fault);
        for (int64_t i = 0; i < columns.rows; i++)
            REQUIRE(offsets[i] == batch->header.base_offset + (int64_t)state.records - columns.rows + i);
    } while (status == TL_FULL);
    REQUIRE(status == TL_OK && (int64_t)state.records == batch->header.record_count);
    free(room);
}

static void lead(const uint8_t *data, size_t size, const tl_leader_options *options, tl_codecs *codecs) {
    uint8_t *log = exact_copy(data, size);
    tl_record_error entries[2];
    tl_record_errors errors = {.entries = entries, .capacity = 2};
    tl_scratch scratch = {.codecs = codecs};
    tl_leader_batch batch;
    tl_fault fault;
    tl_status status;
    for (int asked = 0;; asked++) {
        status = tl_leader_append(log, size, options, &scratch, &errors, &batch, &fault);
        if (status != TL_NEED_SCRATCH) break;
        REQUIRE(asked < 24 && fault.expected > (int64_t)scratch.capacity && fault.expected <= LIMIT);
        free(scratch.data);
        scratch.capacity = (size_t)fault.expected;
        scratch.data = malloc(scratch.capacity);
        REQUIRE(scratch.data);
    }
    REQUIRE(status >= TL_TRUNCATED || status == TL_OK);
    REQUIRE((status == TL_OK) == (batch.rule == TL_APPEND_SOUND));
    REQUIRE((tl_append_error_code(batch.rule) == 0) == (status == TL_OK));
    if (status != TL_OK || batch.must_rebuild || !batch.header.size_bytes) {
        REQUIRE(!memcmp(log, data, size));
    } else {
        REQUIRE((size_t)batch.header.size_bytes <= size && batch.header.base_offset == options->first_offset);
        REQUIRE(!memcmp(log + batch.header.size_bytes, data + batch.header.size_bytes,
                        size - (size_t)batch.header.size_bytes));
        if (options->origin == TL_FROM_CLIENT) require_readable(log, (size_t)batch.header.size_bytes, &batch, codecs);
    }
    free(scratch.data);
    free(log);
}

static void follow(const uint8_t *data, size_t size, int64_t next_offset, int32_t epoch) {
    int64_t base_offset[ROWS], last_offset[ROWS], position[ROWS], max_timestamp[ROWS];
    int32_t size_bytes[ROWS];
    uint8_t offsets[ROWS * TL_OFFSET_ENTRY], times[(ROWS + 1) * TL_TIME_ENTRY];
    tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                            .capacity = ROWS,
                            .base_offset = base_offset,
                            .last_offset = last_offset,
                            .position = position,
                            .max_timestamp = max_timestamp,
                            .size_bytes = size_bytes};
    tl_follower_check check;
    tl_index_tail tail;
    tl_fault fault;
    size_t at = 0, valid_bytes = 0;
    int64_t end = -1;
    bool is_indexing = true;
    tl_status status;
    tl_follower_begin(&check, next_offset, epoch);
    tl_index_begin(&tail, next_offset, 100, 8, 7);
    do {
        table.count = 0;
        status = tl_follower_append(&check, data, size, &at, &table, &fault);
        REQUIRE(at <= size && check.valid_bytes <= at && (status != TL_FULL || table.count == ROWS));
        for (size_t row = 0; row < table.count; row++) {
            REQUIRE(base_offset[row] > end && last_offset[row] >= base_offset[row]);
            REQUIRE((size_t)position[row] == valid_bytes);
            end = last_offset[row];
            valid_bytes += (size_t)size_bytes[row];
        }
        tl_index_entries entries = {.offsets = offsets, .times = times};
        int64_t from = table.count ? position[0] : 0;
        if (is_indexing) is_indexing = tl_index_add(&tail, &table, 0, from, &entries, &fault) == TL_OK;
        if (is_indexing) REQUIRE(entries.offset_count <= table.count && entries.time_count <= table.count);
    } while (status == TL_FULL);
    REQUIRE((status == TL_OK) == (check.rule == TL_APPEND_SOUND));
    REQUIRE(check.valid_bytes == valid_bytes && (valid_bytes == 0 || check.last_offset == end));
    REQUIRE(tail.offset_room >= 0 && tail.time_room >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_codecs *codecs;
    if (!codecs) REQUIRE(tl_codecs_create(&codecs) == TL_OK);
    unsigned flags = (unsigned)take_number(&data, &size, 1);
    tl_leader_options options = {.struct_size = sizeof(tl_leader_options),
                                 .first_offset = take_number(&data, &size, 4),
                                 .now_ms = 1700000000000,
                                 .timestamp_before_max_ms = flags & 1 ? INT64_MAX : 1000,
                                 .timestamp_after_max_ms = take_number(&data, &size, 2),
                                 .decompressed_limit = LIMIT,
                                 .leader_epoch = (int32_t)take_number(&data, &size, 1),
                                 .max_message_bytes = 1 << 16,
                                 .target_codec = flags & 2 ? (int32_t)take_number(&data, &size, 1) % 5 : -1,
                                 .origin = flags & 4 ? TL_FROM_COORDINATOR : TL_FROM_CLIENT,
                                 .compacted = flags & 8,
                                 .log_append_time = flags & 16};
    uint8_t *log = exact_copy(data, size);
    if (flags & 32) sum_anew(log, size);
    lead(log, size, &options, codecs);
    follow(log, size, options.first_offset, options.leader_epoch);
    tl_batch_header header;
    tl_fault fault;
    tl_marker marker;
    bool found;
    if (tl_batch_parse(log, size, &header, &fault) == TL_OK)
        (void)tl_marker_parse(log, &header, &marker, &found, &fault);
    free(log);
    return 0;
}
