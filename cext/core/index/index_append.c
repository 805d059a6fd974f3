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

tl_status tl_index_add(tl_index_tail *tail, const tl_batch_table *table, size_t first, int64_t position,
                       tl_index_entries *entries, tl_fault *fault) {
    TL_REQUIRE_WHOLE(table);
    int64_t least = tail->last_offset + 1, at = position;
    for (size_t row = first; row < table->count; row++) {
        int64_t last = table->last_offset[row];
        bool fits = last >= least && last >= tail->base_offset && last - tail->base_offset <= INT32_MAX;
        *fault =
            (tl_fault){.position = (uint64_t)at, .base_offset = -1, .record = -1, .expected = least, .found = last};
        if (!fits) return TL_BAD_OFFSET;
        if (at < 0 || at > INT32_MAX) return TL_BAD_SIZE;
        least = last + 1;
        at += table->size_bytes[row];
    }
    for (size_t row = first; row < table->count; row++) {
        if (table->max_timestamp[row] > tail->max_timestamp) {
            tail->max_timestamp = table->max_timestamp[row];
            tail->max_timestamp_offset = table->last_offset[row];
        }
        append_entry(tail, table->last_offset[row], position, entries);
        position += table->size_bytes[row];
        tail->bytes_since_entry += table->size_bytes[row];
    }
    return TL_OK;
}

void tl_index_close(tl_index_tail *tail, tl_index_entries *entries) { append_time(tail, entries); }
