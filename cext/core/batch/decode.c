#define _POSIX_C_SOURCE 200809L
#include "tierlog/decode.h"
#include "struct_size.h"

#include "batch/columns.h"
#include "batch/fast_records.h"
#include "batch/record.h"
#include "batch/summary.h"
#include "batch/trust.h"
#include "cursor.h"

#include <time.h>

enum { BORDER = 0, IN_DATA = 1, IN_SCRATCH = 2, ENDED = -1 };

/* The state of one call; only pointers of the caller and values derived from the current header. */
typedef struct run {
    const uint8_t *data;
    size_t size;
    const tl_decode_options *options;
    tl_decode_state *state;
    const tl_scratch *scratch;
    tl_columns *columns;
    tl_fault *fault;
    tl_batch_header header;
    bool filtered; /* some records of the batch may lie outside the asked range */
} run;

static tl_status fail(run *r, tl_status status, int64_t expected, int64_t found) {
    *r->fault = (tl_fault){.position = r->options->base_position + r->state->at,
                           .base_offset = r->header.base_offset,
                           .record = -1,
                           .expected = expected,
                           .found = found};
    return status;
}

/* ---- records of one batch -----------------------------------------------------------------------------------------
 */

/* The columns that are the same for a whole batch, for rows from..rows. */
static void fill_batch_columns(run *r, int64_t from) {
    const tl_columns *columns = r->columns;
    const tl_batch_header *header = &r->header;
    int64_t rows = columns->rows;
    bool append_time = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME;
    if (columns->want & TL_COLUMN_TIMESTAMP_TYPE) {
        int32_t type = header->magic == 0 ? -1 : append_time ? 1 : 0;
        for (int64_t row = from; row < rows; row++) columns->timestamp_type[row] = type;
    }
    if (columns->want & TL_COLUMN_LEADER_EPOCH)
        for (int64_t row = from; row < rows; row++) columns->leader_epoch[row] = header->leader_epoch;
    if (columns->want & TL_COLUMN_BATCH) {
        int64_t position = (int64_t)(r->options->base_position + r->state->at);
        for (int64_t row = from; row < rows; row++) columns->batch_position[row] = position;
    }
}

static tl_status fail_record(run *r, tl_status status) {
    r->fault->position = r->options->base_position + r->state->at;
    r->fault->base_offset = r->header.base_offset;
    r->fault->record = r->state->record;
    return status;
}

static tl_status bad_offset(run *r, int64_t expected, int64_t found) {
    r->fault->expected = expected;
    r->fault->found = found;
    return fail_record(r, TL_BAD_OFFSET);
}

static tl_status append_record(run *r, const tl_record *record) {
    if (r->filtered && !tl_is_wanted(r->options, record)) return TL_OK;
    tl_columns *columns = r->columns;
    int64_t row = columns->rows;
    tl_status status = tl_columns_append(columns, record, r->options->timestamp_multiplier, r->fault);
    if (status != TL_OK) return status;
    if (columns->want & TL_COLUMN_SEQUENCE)
        columns->sequence[row] = tl_sequence_of(&r->header, record->offset - r->header.base_offset);
    r->state->records++;
    return TL_OK;
}

/* One record, whatever it is. */
static tl_status decode_carefully(run *r, const uint8_t *content, const uint8_t *end) {
    tl_decode_state *state = r->state;
    const tl_batch_header *header = &r->header;
    const uint8_t *next;
    tl_record record;
    tl_status status = tl_record_parse(content + state->record_at, end, &record, &next, r->fault);
    if (status != TL_OK) return fail_record(r, status);
    int64_t delta = record.offset;
    record.offset += header->base_offset;
    if (delta < 0 || delta > header->last_offset_delta) return bad_offset(r, header->last_offset_delta, delta);
    if (record.offset < state->next_offset) return bad_offset(r, state->next_offset, record.offset);
    /* Wraps where hostile bases overflow, as Java's addition does. */
    record.timestamp = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME
                           ? header->max_timestamp
                           : (int64_t)((uint64_t)header->base_timestamp + (uint64_t)record.timestamp);
    if ((header->attributes & TL_ATTRIBUTE_CONTROL) && (record.key_length < 4 || tl_load_i16(record.key) < 0)) {
        r->fault->expected = 4;
        r->fault->found = record.key_length;
        return fail_record(r, TL_BAD_CONTROL);
    }
    status = append_record(r, &record);
    if (status != TL_OK) return status == TL_FULL ? status : fail_record(r, status);
    state->next_offset = record.offset + 1;
    state->record++;
    state->record_at = (uint64_t)(next - content);
    return TL_OK;
}

static tl_status decode_v2(run *r, const uint8_t *content, size_t size) {
    tl_decode_state *state = r->state;
    const uint8_t *end = content + size;
    bool control = r->header.attributes & TL_ATTRIBUTE_CONTROL;
    while (state->record < r->header.record_count) {
        if (!control) tl_decode_sound_records(content, end, &r->header, r->options, r->filtered, state, r->columns);
        if (state->record == r->header.record_count) break;
        tl_status status = decode_carefully(r, content, end);
        if (status != TL_OK) return status;
    }
    if (state->record_at != size) return fail(r, TL_TRAILING_BYTES, 0, (int64_t)(size - state->record_at));
    return TL_OK;
}

/* One uncompressed message, or the inner messages of a wrapper. */
static tl_status decode_legacy(run *r, const uint8_t *content, size_t size, bool wrapped) {
    tl_decode_state *state = r->state;
    const tl_batch_header outer = r->header;
    tl_record record;
    while (state->record_at < size) {
        tl_batch_header inner = outer;
        const uint8_t *at = content + state->record_at;
        /* The survey has parsed every inner message before. */
        if (wrapped && tl_batch_parse(at, size - state->record_at, &inner, r->fault) != TL_OK)
            return fail_record(r, TL_BAD_ARGUMENT);
        tl_status status = tl_legacy_parse(at, &inner, &record, r->fault);
        if (status != TL_OK) return fail_record(r, status);
        if (wrapped) {
            /* Wraps below 0 where hostile offsets overflow, and is refused as any offset that does not rise. */
            record.offset = (int64_t)((uint64_t)record.offset + (uint64_t)state->legacy_base);
            if (outer.magic == 1 && (outer.attributes & TL_ATTRIBUTE_LOG_APPEND_TIME))
                record.timestamp = outer.max_timestamp;
        }
        if (record.offset < state->next_offset || record.offset == INT64_MAX)
            return bad_offset(r, state->next_offset, record.offset);
        status = append_record(r, &record);
        if (status != TL_OK) return status == TL_FULL ? status : fail_record(r, status);
        state->next_offset = record.offset + 1;
        state->record++;
        state->record_at += (uint64_t)inner.size_bytes;
    }
    return TL_OK;
}

/* ---- batch by batch ------------------------------------------------------------------------------------------------
 */

static void finish_batch(run *r, bool skipped) {
    tl_decode_state *state = r->state;
    state->at += (uint64_t)r->header.size_bytes;
    state->record = 0;
    state->record_at = 0;
    state->content_size = 0;
    state->in_batch = BORDER;
    state->verified = 0;
    if (skipped) {
        state->batches_skipped++;
    } else {
        state->batches++;
    }
}

/* Whether the header alone rules the batch out; its checksum has been checked. */
static bool is_ruled_out(const tl_decode_options *options, const tl_batch_header *header) {
    if ((header->attributes & TL_ATTRIBUTE_CONTROL) && header->magic == 2 && !options->control_records) return true;
    if (header->magic == 2 && header->max_timestamp < options->from_timestamp) return true;
    if (header->magic == 2 && (header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME) &&
        tl_is_late(options, header->max_timestamp))
        return true;
    return options->aborted && header->magic == 2 &&
           (header->attributes & (TL_ATTRIBUTE_TRANSACTIONAL | TL_ATTRIBUTE_CONTROL)) == TL_ATTRIBUTE_TRANSACTIONAL &&
           tl_is_aborted(options->aborted, options->aborted_count, header->producer_id, header->base_offset);
}

/* The wrapped or compressed content into the scratch. */
static tl_status inflate(run *r, const uint8_t *payload, size_t payload_size, int codec) {
    const tl_scratch *scratch = r->scratch;
    size_t limit = (size_t)r->options->decompressed_limit, bound = 0, out_size = 0;
    tl_fault inner = {.record = -1};
    tl_status status = tl_decompress_bound(codec, r->header.magic, payload, payload_size, limit, &bound, &inner);
    /* One byte at least, so that even empty content has an address. */
    if (bound == 0) bound = 1;
    if (status == TL_OK && bound > scratch->capacity) return fail(r, TL_NEED_SCRATCH, (int64_t)bound, 0);
    size_t capacity = scratch->capacity < limit ? scratch->capacity : limit;
    if (status == TL_OK)
        status = tl_decompress(scratch->codecs, codec, r->header.magic, payload, payload_size, scratch->data, capacity,
                               limit, &out_size, &inner);
    if (status != TL_OK) return fail(r, status, inner.expected, inner.found);
    r->state->content_size = out_size;
    r->state->decompressed_bytes += out_size;
    r->state->in_batch = IN_SCRATCH;
    return TL_OK;
}

/* Opens the payload of the batch: checks the count, decompresses, surveys a wrapper. */
static tl_status open_batch(run *r, const uint8_t *batch) {
    const tl_batch_header *header = &r->header;
    tl_decode_state *state = r->state;
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    size_t overhead = TL_HEADER_SIZE_V2, payload_size;
    if (header->magic == 2) {
        payload_size = (size_t)header->size_bytes - overhead;
        if (header->record_count < 0) return fail(r, TL_BAD_COUNT, 0, header->record_count);
        if (codec == TL_CODEC_NONE && (size_t)header->record_count > payload_size / TL_RECORD_MINIMUM)
            return fail(r, TL_BAD_COUNT, (int64_t)(payload_size / TL_RECORD_MINIMUM), header->record_count);
        if (codec > TL_CODEC_ZSTD) return fail(r, TL_BAD_CODEC, TL_CODEC_ZSTD, codec);
        if (codec == TL_CODEC_NONE || (payload_size == 0 && header->record_count == 0)) {
            state->content_size = payload_size;
            state->in_batch = IN_DATA;
            return TL_OK;
        }
        return inflate(r, batch + overhead, payload_size, codec);
    }
    if (codec == TL_CODEC_NONE) {
        state->content_size = (size_t)header->size_bytes;
        state->in_batch = IN_DATA;
        return TL_OK;
    }
    if (codec > TL_CODEC_LZ4) return fail(r, TL_BAD_CODEC, TL_CODEC_LZ4, codec);
    tl_record wrapper;
    tl_status status = tl_legacy_parse(batch, header, &wrapper, r->fault);
    if (status != TL_OK) return fail(r, status, r->fault->expected, r->fault->found);
    if (wrapper.value_length < 0) return fail(r, TL_BAD_LEGACY, 0, wrapper.value_length);
    status = inflate(r, wrapper.value, (size_t)wrapper.value_length, codec);
    if (status != TL_OK) return status;
    int64_t count;
    r->fault->record = -1;
    status = tl_legacy_survey(r->scratch->data, (size_t)state->content_size, header, r->options->verify_crc, &count,
                              &state->legacy_base, r->fault);
    if (status != TL_OK) {
        int64_t record = r->fault->record;
        state->in_batch = BORDER;
        fail(r, status, r->fault->expected, r->fault->found);
        r->fault->record = record;
    }
    return status;
}

static void step_over(run *r) {
    r->state->next_offset = r->header.base_offset + r->header.last_offset_delta + 1;
    finish_batch(r, true);
}

/* The last offset of a batch; false: none can be. */
static bool find_last_offset(const tl_batch_header *header, int64_t *last_offset) {
    return header->base_offset >= 0 && header->last_offset_delta >= 0 &&
           !__builtin_add_overflow(header->base_offset, (int64_t)header->last_offset_delta, last_offset) &&
           *last_offset < INT64_MAX;
}

static int64_t least_offset(const run *r) {
    return r->options->least_offset > r->state->next_offset ? r->options->least_offset : r->state->next_offset;
}

/* Checks, at a border, with the header read, whether the batch can be there, and *outside of the wanted offsets.
 * Nothing behind the second one at their end counts (in_batch ENDED). */
static tl_status place_batch(run *r, bool *outside) {
    tl_decode_state *state = r->state;
    const tl_decode_options *options = r->options;
    const tl_batch_header *header = &r->header;
    int64_t last_offset, least = least_offset(r);
    if (!find_last_offset(header, &last_offset))
        return fail(r, TL_BAD_OFFSET, 0, header->base_offset < 0 ? header->base_offset : header->last_offset_delta);
    if (!tl_offsets_fit(header->base_offset, last_offset, least, options->greatest_offset)) {
        bool below = header->base_offset < least;
        return fail(r, TL_BAD_OFFSET, below ? least : options->greatest_offset,
                    below ? header->base_offset : last_offset);
    }
    /* The offset of a legacy wrapper is that of its last record: earlier ones may still be wanted. */
    bool compressed = header->attributes & TL_ATTRIBUTE_CODEC;
    bool behind = header->base_offset >= options->to_offset_exclusive && (header->magic == 2 || !compressed);
    *outside = behind || last_offset < options->from_offset;
    if (behind && state->behind_end) state->in_batch = ENDED;
    if (behind) state->behind_end = 1;
    return TL_OK;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static tl_status verify(run *r, const uint8_t *batch) {
    tl_fault mismatch;
    uint64_t start = r->options->measure_crc ? now_ns() : 0;
    tl_status status = tl_batch_verify(batch, &r->header, &mismatch);
    if (r->options->measure_crc) r->state->crc_ns += now_ns() - start;
    if (status != TL_OK) return fail(r, TL_BAD_CRC, mismatch.expected, mismatch.found);
    r->state->verified = 1;
    return TL_OK;
}

/* Whether the records need not be looked at. */
static bool is_settled(run *r) {
    tl_summary *summary = r->columns->summary;
    return is_ruled_out(r->options, &r->header) || (summary && tl_summary_take(summary, &r->header, r->options));
}

/* Decides, at a border, by the header. TL_OK with in_batch set: records are to come; with BORDER: stepped over. */
static tl_status begin_batch(run *r) {
    const uint8_t *batch = r->data + r->state->at;
    bool outside = false;
    tl_status status = place_batch(r, &outside);
    if (status != TL_OK || r->state->in_batch == ENDED) return status;
    /* Also for a batch outside: a wrong size would hide the next one. */
    if (r->options->verify_crc && !r->state->verified) status = verify(r, batch);
    if (status != TL_OK) return status;
    if (outside || is_settled(r)) {
        step_over(r);
        return TL_OK;
    }
    return open_batch(r, batch);
}

static bool needs_filter(const run *r) {
    const tl_decode_options *options = r->options;
    const tl_batch_header *header = &r->header;
    if (options->from_timestamp != INT64_MIN || options->to_timestamp_exclusive != INT64_MAX) return true;
    if (header->magic != 2) return true;
    return header->base_offset < options->from_offset ||
           header->base_offset + header->last_offset_delta >= options->to_offset_exclusive;
}

static tl_status decode_batch(run *r) {
    tl_decode_state *state = r->state;
    const uint8_t *batch = r->data + state->at;
    int64_t first_row = r->columns->rows;
    bool in_scratch = state->in_batch == IN_SCRATCH;
    size_t overhead = r->header.magic == 2 ? TL_HEADER_SIZE_V2 : 0;
    const uint8_t *content = in_scratch ? r->scratch->data : batch + overhead;
    r->filtered = needs_filter(r);
    tl_status status = r->header.magic == 2 ? decode_v2(r, content, (size_t)state->content_size)
                                            : decode_legacy(r, content, (size_t)state->content_size, in_scratch);
    if (r->columns->summary) {
        bool stopped = status == TL_FULL && r->columns->rows > 0;
        tl_summary_fold(r->columns->summary, r->columns);
        if (stopped) return TL_OK; /* there is room again */
    } else {
        fill_batch_columns(r, first_row);
    }
    if (status != TL_OK) return status;
    /* Compaction leaves the range of a batch whose last records are gone. */
    int64_t last_offset = r->header.base_offset + r->header.last_offset_delta;
    if (state->next_offset <= last_offset) state->next_offset = last_offset + 1;
    finish_batch(r, false);
    return TL_OK;
}

/* A batch above the limit is refused by its length, before anyone waits for the rest of it. */
static tl_status check_limit(const uint8_t *entry, size_t left, const tl_decode_options *options, tl_fault *fault) {
    if (left <= TL_MAGIC_POSITION) return TL_OK;
    int32_t length = tl_load_i32(entry + 8);
    int64_t size = (int64_t)length + TL_LOG_OVERHEAD;
    if (length < TL_OVERHEAD_V0 || (uint64_t)size <= options->decompressed_limit) return TL_OK;
    *fault = (tl_fault){.base_offset = tl_load_i64(entry),
                        .record = -1,
                        .expected = (int64_t)options->decompressed_limit,
                        .found = size};
    return TL_OVER_LIMIT;
}

/* Checks, at end_position, that the next batch lies behind the last one; else the offset of one of them is wrong. */
static tl_status look_behind(run *r) {
    tl_decode_state *state = r->state;
    uint64_t at = state->at;
    for (; at < r->size && state->next_size < TL_BASE_OFFSET_BYTES; at++, state->next_size++)
        state->next_bytes = state->next_bytes << 8 | r->data[at];
    if (state->next_size < TL_BASE_OFFSET_BYTES) {
        state->at = at;
        return TL_OK;
    }
    r->header.base_offset = (int64_t)state->next_bytes;
    if (r->header.base_offset < state->next_offset) {
        fail(r, TL_BAD_OFFSET, state->next_offset, r->header.base_offset);
        r->fault->position = r->options->end_position;
        return TL_BAD_OFFSET;
    }
    state->in_batch = ENDED;
    return TL_OK;
}

tl_status tl_decode(const uint8_t *data, size_t size, const tl_decode_options *options, tl_decode_state *state,
                    const tl_scratch *scratch, tl_columns *columns, tl_fault *fault) {
    TL_REQUIRE_WHOLE(options);
    TL_REQUIRE_WHOLE(columns);
    run r = {.data = data,
             .size = size,
             .options = options,
             .state = state,
             .scratch = scratch,
             .columns = columns,
             .fault = fault};
    while (state->in_batch != ENDED && state->at < size) {
        uint64_t left = options->end_position - options->base_position - state->at; /* where it is not 0 */
        if (options->end_position && (int64_t)left <= 0) {
            tl_status status = look_behind(&r);
            if (status != TL_OK) return status;
            continue;
        }
        tl_status status = check_limit(data + state->at, size - (size_t)state->at, options, fault);
        if (status == TL_OK) status = tl_batch_parse(data + state->at, size - (size_t)state->at, &r.header, fault);
        if (status != TL_OK) {
            fault->position = options->base_position + state->at;
            return status;
        }
        if (options->end_position && (uint64_t)r.header.size_bytes > left)
            return fail(&r, TL_TRUNCATED, r.header.size_bytes, (int64_t)left);
        if (state->in_batch == BORDER) status = begin_batch(&r);
        if (status == TL_OK && state->in_batch > BORDER) status = decode_batch(&r);
        if (status != TL_OK) return status;
    }
    return TL_OK;
}

tl_status tl_decode_header(const uint8_t *head, size_t size, const tl_decode_options *options, tl_decode_state *state,
                           tl_columns *columns, tl_header_trust *trust, tl_header_verdict *verdict, tl_fault *fault) {
    TL_REQUIRE_WHOLE(options);
    TL_REQUIRE_WHOLE(columns);
    run r = {.options = options, .state = state, .columns = columns, .fault = fault};
    bool outside = false;
    *verdict = TL_HEADER_ENOUGH;
    tl_status status = check_limit(head, size, options, fault);
    if (status == TL_OK) status = tl_batch_parse_header(head, size, &r.header, fault);
    if (status != TL_OK) {
        fault->position = options->base_position + state->at;
        return status;
    }
    status = place_batch(&r, &outside);
    if (status != TL_OK) return status;
    if (trust) *verdict = tl_trust_header(trust, &r.header, options);
    if (state->in_batch == ENDED) return TL_OK;
    if (*verdict == TL_HEADER_ENOUGH && !outside && !is_settled(&r)) *verdict = TL_HEADER_NEEDED;
    step_over(&r);
    if (*verdict != TL_HEADER_ENOUGH) state->batches_skipped--; /* the pass over the records counts it */
    return TL_OK;
}

tl_status tl_decode_skip(const uint8_t *data, size_t size, const tl_decode_options *options, tl_decode_state *state,
                         int32_t *size_bytes, tl_fault *fault) {
    TL_REQUIRE_WHOLE(options);
    run r = {.options = options, .state = state};
    int64_t last_offset;
    tl_status status = tl_batch_parse(data + state->at, size - (size_t)state->at, &r.header, fault);
    if (status != TL_OK) {
        fault->position = options->base_position + state->at;
        return status;
    }
    /* Offsets that cannot stand there are part of the damage. */
    if (find_last_offset(&r.header, &last_offset) &&
        tl_offsets_fit(r.header.base_offset, last_offset, least_offset(&r), options->greatest_offset))
        state->next_offset = last_offset + 1;
    *size_bytes = r.header.size_bytes;
    finish_batch(&r, true);
    return TL_OK;
}
