/* Any bytes as a log to sum up: within its bytes, the same however little room there is for rows, and where headers say
 * enough the same by headers alone, of which no more bytes are looked at than a header has.
 * Input: flags, what is wanted, offsets, the log. */
#include "fuzz.h"

enum { LIMIT = 1 << 20, STEPS_MAX = 1 << 20 };

static tl_status sum_up(const uint8_t *log, size_t size, const tl_decode_options *options, tl_codecs *codecs,
                        int64_t rows, tl_summary *summary, tl_decode_state *state) {
    tl_scratch scratch = {.codecs = codecs};
    tl_columns columns = {.struct_size = sizeof(tl_columns),
                          .summary = summary,
                          .want = tl_summary_columns(summary->want),
                          .row_capacity = rows};
    tl_fault fault;
    tl_status status;
    columns.offset = malloc((size_t)rows * sizeof *columns.offset);
    columns.timestamp = malloc((size_t)rows * sizeof *columns.timestamp);
    REQUIRE(columns.offset && columns.timestamp);
    tl_columns_reset(&columns);
    for (int step = 0;; step++) {
        REQUIRE(step < STEPS_MAX);
        status = tl_decode(log, size, options, state, &scratch, &columns, &fault);
        REQUIRE(state->at <= size && !columns.rows && status != TL_FULL);
        if (status != TL_NEED_SCRATCH) break;
        REQUIRE(fault.expected > (int64_t)scratch.capacity && fault.expected <= LIMIT);
        free(scratch.data);
        scratch.data = malloc((size_t)fault.expected);
        scratch.capacity = (size_t)fault.expected;
        REQUIRE(scratch.data);
    }
    free(columns.offset);
    free(columns.timestamp);
    free(scratch.data);
    return status;
}

/* Whether headers alone said all there is to say. */
static bool by_headers(const uint8_t *log, size_t size, const tl_decode_options *options, tl_header_trust *trust,
                       tl_summary *summary, tl_decode_state *state) {
    tl_columns columns = {.struct_size = sizeof(tl_columns), .summary = summary};
    tl_fault fault;
    bool all = true;
    while (state->in_batch >= 0 && state->at < size) {
        size_t left = size - (size_t)state->at, have = left < TL_HEADER_SIZE_V2 ? left : TL_HEADER_SIZE_V2;
        uint8_t *head = exact_copy(log + state->at, have);
        tl_header_verdict word;
        tl_status status = tl_decode_header(head, have, options, state, &columns, trust, &word, &fault);
        free(head);
        if (status != TL_OK || state->at > size) return false;
        all = all && word == TL_HEADER_ENOUGH;
    }
    return all;
}

static void require_equal(const tl_summary *one, const tl_summary *other) {
    REQUIRE(one->records == other->records);
    if (one->want & TL_SUMMARY_OFFSETS)
        REQUIRE(one->least_offset == other->least_offset && one->greatest_offset == other->greatest_offset);
    if (one->want & TL_SUMMARY_LEAST_TIMESTAMP) REQUIRE(one->least_timestamp == other->least_timestamp);
    if (one->want & TL_SUMMARY_GREATEST_TIMESTAMP) REQUIRE(one->greatest_timestamp == other->greatest_timestamp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_codecs *codecs;
    if (!codecs) REQUIRE(tl_codecs_create(&codecs) == TL_OK);
    unsigned flags = (unsigned)take_number(&data, &size, 1);
    uint32_t want = (uint32_t)take_number(&data, &size, 1) & 7;
    tl_aborted aborted = {take_number(&data, &size, 2), 0, INT64_MAX};
    tl_decode_options options = {.struct_size = sizeof(tl_decode_options),
                                 .base_position = 1000,
                                 .from_offset = flags & 1 ? take_number(&data, &size, 2) : 0,
                                 .to_offset_exclusive = flags & 2 ? take_number(&data, &size, 2) : INT64_MAX,
                                 .greatest_offset = INT64_MAX,
                                 .from_timestamp = flags & 4 ? take_number(&data, &size, 8) : INT64_MIN,
                                 .to_timestamp_exclusive = flags & 8 ? take_number(&data, &size, 8) : INT64_MAX,
                                 .timestamp_multiplier = flags & 16 ? 1000 : 1,
                                 .decompressed_limit = LIMIT,
                                 .aborted = flags & 32 ? &aborted : NULL,
                                 .aborted_count = flags & 32 ? 1 : 0,
                                 .verify_crc = flags & 64};
    uint8_t *log = exact_copy(data, size);
    tl_summary large, small, headers;
    tl_decode_state large_state = {0}, small_state = {0}, headers_state = {0};
    tl_summary_reset(&large, want);
    tl_summary_reset(&small, want);
    tl_summary_reset(&headers, want);
    tl_status status = sum_up(log, size, &options, codecs, 256, &large, &large_state);
    REQUIRE(sum_up(log, size, &options, codecs, 1, &small, &small_state) == status);
    require_equal(&large, &small);
    REQUIRE(large_state.at == small_state.at);
    tl_header_trust trust = {.greatest_timestamp = INT64_MAX};
    bool all = by_headers(log, size, &options, flags & 128 ? &trust : NULL, &headers, &headers_state);
    if (all && status == TL_OK) require_equal(&large, &headers);
    free(log);
    return 0;
}
