/* Any bytes as a log to decode: within its bytes and the caller's buffers, and the same rows however small these are.
 * Input: flags, columns, offsets, the log. */
#include "fuzz.h"

enum { LIMIT = 1 << 20, STEPS_MAX = 1 << 20, LARGE_ROWS = 256, LARGE_BYTES = 1 << 13 };

typedef struct rows {
    tl_columns columns;
    uint32_t digest; /* of all rows so far, row by row */
    int64_t count;
} rows;

static void *grown(void *old, size_t bytes) {
    free(old);
    void *fresh = malloc(bytes + !bytes);
    REQUIRE(fresh);
    return fresh;
}

static void size_binary(tl_binary *b, int64_t entries, int64_t capacity) {
    b->offsets = grown(b->offsets, (size_t)(entries + 1) * sizeof *b->offsets);
    b->validity = grown(b->validity, (size_t)(entries + 7) / 8);
    b->data = grown(b->data, (size_t)capacity);
    b->data_capacity = capacity;
}

static void size_rows(tl_columns *c, int64_t capacity) {
    size_t count = (size_t)capacity;
    c->row_capacity = capacity;
    size_binary(&c->key, capacity, c->key.data_capacity);
    size_binary(&c->value, capacity, c->value.data_capacity);
    c->offset = grown(c->offset, count * sizeof *c->offset);
    c->timestamp = grown(c->timestamp, count * sizeof *c->timestamp);
    c->timestamp_type = grown(c->timestamp_type, count * sizeof *c->timestamp_type);
    c->leader_epoch = grown(c->leader_epoch, count * sizeof *c->leader_epoch);
    c->batch_position = grown(c->batch_position, count * sizeof *c->batch_position);
    c->sequence = grown(c->sequence, count * sizeof *c->sequence);
    c->header_offsets = grown(c->header_offsets, (count + 1) * sizeof *c->header_offsets);
    c->header_validity = grown(c->header_validity, (count + 7) / 8);
}

static void size_headers(tl_columns *c, int64_t entries, int64_t keys, int64_t values) {
    c->header_capacity = entries;
    size_binary(&c->header_key, entries, keys);
    size_binary(&c->header_value, entries, values);
}

static void release(tl_columns *c) {
    tl_binary *binaries[] = {&c->key, &c->value, &c->header_key, &c->header_value};
    for (size_t i = 0; i < 4; i++) {
        free(binaries[i]->offsets);
        free(binaries[i]->validity);
        free(binaries[i]->data);
    }
    free(c->offset);
    free(c->timestamp);
    free(c->timestamp_type);
    free(c->leader_epoch);
    free(c->batch_position);
    free(c->sequence);
    free(c->header_offsets);
    free(c->header_validity);
}

static bool valid(const uint8_t *bits, int64_t i) { return bits[i / 8] >> (i % 8) & 1; }

static void digest(rows *r, const void *data, size_t size) { r->digest = tl_crc32c(r->digest, data, size); }

static void digest_binary(rows *r, const tl_binary *b, bool nullable, int64_t i) {
    int32_t from = b->offsets[i], to = b->offsets[i + 1];
    bool there = !nullable || valid(b->validity, i);
    REQUIRE(from >= 0 && from <= to && to <= b->data_size && b->data_size <= b->data_capacity);
    REQUIRE(there || from == to);
    digest(r, &there, 1);
    digest(r, b->data + from, (size_t)(to - from));
}

static void take_rows(rows *r) {
    tl_columns *c = &r->columns;
    REQUIRE(c->rows <= c->row_capacity && c->header_count <= c->header_capacity);
    for (int64_t i = 0; i < c->rows; i++) {
        if (c->want & TL_COLUMN_KEY) digest_binary(r, &c->key, true, i);
        if (c->want & TL_COLUMN_VALUE) digest_binary(r, &c->value, true, i);
        if (c->want & TL_COLUMN_OFFSET) digest(r, &c->offset[i], sizeof *c->offset);
        if (c->want & TL_COLUMN_TIMESTAMP) digest(r, &c->timestamp[i], sizeof *c->timestamp);
        if (c->want & TL_COLUMN_TIMESTAMP_TYPE) digest(r, &c->timestamp_type[i], sizeof *c->timestamp_type);
        if (c->want & TL_COLUMN_LEADER_EPOCH) digest(r, &c->leader_epoch[i], sizeof *c->leader_epoch);
        if (c->want & TL_COLUMN_BATCH) digest(r, &c->batch_position[i], sizeof *c->batch_position);
        if (c->want & TL_COLUMN_SEQUENCE) digest(r, &c->sequence[i], sizeof *c->sequence);
        if (!(c->want & TL_COLUMN_HEADERS)) continue;
        REQUIRE(c->header_offsets[i] <= c->header_offsets[i + 1] && c->header_offsets[i + 1] <= c->header_count);
        bool there = valid(c->header_validity, i);
        digest(r, &there, 1);
        for (int32_t h = c->header_offsets[i]; h < c->header_offsets[i + 1]; h++) {
            digest_binary(r, &c->header_key, false, h);
            digest_binary(r, &c->header_value, true, h);
        }
    }
    r->count += c->rows;
    tl_columns_reset(c);
}

/* Gives the column that is too small what it asks for. */
static void give_room(tl_columns *c, const tl_fault *fault) {
    int64_t need = fault->expected;
    if (fault->found == 0) size_rows(c, c->row_capacity + 1);
    if (fault->found == TL_COLUMN_KEY) size_binary(&c->key, c->row_capacity, need);
    if (fault->found == TL_COLUMN_VALUE) size_binary(&c->value, c->row_capacity, need);
    if (fault->found & TL_COLUMN_HEADERS) {
        int64_t keys = c->header_key.data_capacity, values = c->header_value.data_capacity;
        if (fault->found & TL_COLUMN_KEY) keys = need;
        if (fault->found & TL_COLUMN_VALUE) values = need;
        size_headers(c, fault->found == TL_COLUMN_HEADERS ? need : c->header_capacity, keys, values);
    }
    tl_columns_reset(c);
}

static tl_status decode_all(const uint8_t *log, size_t size, const tl_decode_options *options, uint32_t want,
                            tl_codecs *codecs, bool small, rows *r, tl_decode_state *state, tl_fault *fault) {
    tl_scratch scratch = {.codecs = codecs};
    tl_status status;
    *r = (rows){.columns = {.struct_size = sizeof(tl_columns), .want = want}};
    r->columns.key.data_capacity = r->columns.value.data_capacity = small ? 1 : LARGE_BYTES;
    size_rows(&r->columns, small ? 1 : LARGE_ROWS);
    size_headers(&r->columns, small ? 1 : LARGE_ROWS, small ? 1 : LARGE_BYTES, small ? 1 : LARGE_BYTES);
    tl_columns_reset(&r->columns);
    for (int step = 0;; step++) {
        REQUIRE(step < STEPS_MAX);
        status = tl_decode(log, size, options, state, &scratch, &r->columns, fault);
        REQUIRE(state->at <= size);
        if (status == TL_NEED_SCRATCH) {
            REQUIRE(fault->expected > (int64_t)scratch.capacity && fault->expected <= LIMIT);
            scratch.data = grown(scratch.data, (size_t)fault->expected);
            scratch.capacity = (size_t)fault->expected;
        } else if (status == TL_FULL) {
            bool empty = !r->columns.rows;
            take_rows(r);
            if (empty) give_room(&r->columns, fault);
        } else {
            break;
        }
    }
    take_rows(r);
    release(&r->columns);
    free(scratch.data);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_codecs *codecs;
    if (!codecs) REQUIRE(tl_codecs_create(&codecs) == TL_OK);
    unsigned flags = (unsigned)take_number(&data, &size, 1);
    uint32_t want = (uint32_t)take_number(&data, &size, 2) & (2 * TL_COLUMN_SEQUENCE - 1);
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
                                 .verify_crc = flags & 64,
                                 .control_records = flags & 128};
    uint8_t *log = exact_copy(data, size);
    rows large, small;
    tl_decode_state large_state = {0}, small_state = {0};
    tl_fault large_fault = {0}, small_fault = {0};
    tl_status status = decode_all(log, size, &options, want, codecs, false, &large, &large_state, &large_fault);
    REQUIRE(decode_all(log, size, &options, want, codecs, true, &small, &small_state, &small_fault) == status);
    REQUIRE(large.count == small.count && large.digest == small.digest);
    REQUIRE(large_state.at == small_state.at && large_state.records == small_state.records);
    if (status != TL_OK) {
        REQUIRE(large_fault.position == small_fault.position && large_fault.record == small_fault.record);
        REQUIRE(large_fault.position >= 1000 && large_fault.position <= 1000 + size);
    }
    free(log);
    return 0;
}
