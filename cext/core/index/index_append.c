#include "tierlog/index_append.h"
#include "struct_size.h"

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

void tl_index_begin(tl_index_tail *tail, int64_t base_offset, int64_t interval_bytes, int64_t offset_room,
                    int64_t time_room) {
    *tail = (tl_index_tail){.base_offset = base_offset,
                            .interval_bytes = interval_bytes,
                            .max_timestamp = -1,
                            .max_timestamp_offset = base_offset,
                            .last_offset = base_offset - 1,
                            .last_time = -1,
                            .last_time_offset = base_offset,
                            .offset_room = offset_room,
                            .time_room = time_room};
}

static void append_time(tl_index_tail *tail, tl_index_entries *entries) {
    if (tail->max_timestamp <= tail->last_time) return;
    uint8_t *out = entries->times + TL_TIME_ENTRY * entries->time_count++;
    tail->last_time = tail->max_timestamp;
    tail->last_time_offset = tail->max_timestamp_offset;
    store(out, (uint64_t)tail->last_time, 8);
    store(out + 8, (uint64_t)(tail->last_time_offset - tail->base_offset), 4);
}

/* The entry of one batch, if it is due. */
static void append_entry(tl_index_tail *tail, int64_t last_offset, int64_t position, tl_index_entries *entries) {
    if (tail->bytes_since_entry <= tail->interval_bytes) return;
    if (tail->offset_room > 0) {
        uint8_t *out = entries->offsets + TL_OFFSET_ENTRY * entries->offset_count++;
        store(out, (uint64_t)(last_offset - tail->base_offset), 4);
        store(out + 4, (uint64_t)position, 4);
        tail->last_offset = last_offset;
        tail->offset_room--;
    }
    size_t before = entries->time_count;
    if (tail->time_room > 0) append_time(tail, entries);
    tail->time_room -= (int64_t)(entries->time_count - before);
    tail->bytes_since_entry = 0;
}

/* What of a batch its entries are made of. */
typedef struct row {
    int64_t last_offset, max_timestamp, size;
} row;

/* Whether a batch fits behind the others: its least last offset, and its position, which go on. */
static tl_status check_row(const tl_index_tail *tail, const row *batch, int64_t *least, int64_t *at, tl_fault *fault) {
    int64_t last = batch->last_offset;
    bool fits = last >= *least && last >= tail->base_offset && last - tail->base_offset <= INT32_MAX;
    *fault = (tl_fault){.position = (uint64_t)*at, .base_offset = -1, .record = -1, .expected = *least, .found = last};
    if (!fits) return TL_BAD_OFFSET;
    if (*at < 0 || *at > INT32_MAX) return TL_BAD_SIZE;
    *least = last + 1;
    *at += batch->size;
    return TL_OK;
}

static void add_row(tl_index_tail *tail, const row *batch, int64_t *position, tl_index_entries *entries) {
    if (batch->max_timestamp > tail->max_timestamp) {
        tail->max_timestamp = batch->max_timestamp;
        tail->max_timestamp_offset = batch->last_offset;
    }
    append_entry(tail, batch->last_offset, *position, entries);
    *position += batch->size;
    tail->bytes_since_entry += batch->size;
}

static row row_of(const tl_batch_table *table, size_t at) {
    return (row){table->last_offset[at], table->max_timestamp[at], table->size_bytes[at]};
}

tl_status tl_index_add(tl_index_tail *tail, const tl_batch_table *table, size_t first, int64_t position,
                       tl_index_entries *entries, tl_fault *fault) {
    TL_REQUIRE_WHOLE(table);
    int64_t least = tail->last_offset + 1, at = position;
    for (size_t number = first; number < table->count; number++) {
        row batch = row_of(table, number);
        tl_status status = check_row(tail, &batch, &least, &at, fault);
        if (status != TL_OK) return status;
    }
    for (size_t number = first; number < table->count; number++) {
        row batch = row_of(table, number);
        add_row(tail, &batch, &position, entries);
    }
    return TL_OK;
}

static tl_status parse_row(const uint8_t *data, size_t size, size_t at, row *batch, tl_fault *fault) {
    tl_batch_header header;
    tl_status status = tl_batch_parse(data + at, size - at, &header, fault);
    fault->position = at;
    int64_t last = (int64_t)((uint64_t)header.base_offset + (uint64_t)(int64_t)header.last_offset_delta);
    if (status == TL_OK) *batch = (row){last, header.max_timestamp, header.size_bytes};
    return status;
}

tl_status tl_index_add_batches(tl_index_tail *tail, const uint8_t *data, size_t size, size_t batches_max,
                               int64_t position, tl_index_entries *entries, tl_fault *fault) {
    int64_t least = tail->last_offset + 1, end = position;
    size_t count = 0;
    row batch;
    for (size_t at = 0; at < size; at += (size_t)batch.size) {
        tl_status status = parse_row(data, size, at, &batch, fault);
        if (status == TL_OK) status = check_row(tail, &batch, &least, &end, fault);
        if (status == TL_OK && ++count > batches_max) status = TL_BAD_ARGUMENT;
        if (status != TL_OK) return status;
    }
    for (size_t at = 0; at < size; at += (size_t)batch.size) {
        parse_row(data, size, at, &batch, fault);
        add_row(tail, &batch, &position, entries);
    }
    return TL_OK;
}

void tl_index_close(tl_index_tail *tail, tl_index_entries *entries) { append_time(tail, entries); }
