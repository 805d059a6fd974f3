/* Questions to the table. A question is asked between two looks at the partition's sequence number, and asked again
 * when the writer came between. */
#include "segment_table_parts.h"

#include <sched.h>
#include <string.h>

enum { SPINS = 64 };

typedef struct view {
    const tl_segment_table *table;
    const uint8_t *partition;
    uint64_t sequence;
    unsigned tries;
} view;

/* False: there is no such partition. */
static bool begin(view *v, const tl_partition_id *id) {
    for (;;) {
        tl_cell cell = tl_partition_find(&v->table->partitions, v->table->cells, id);
        if (!cell) return false;
        v->partition = tl_cell_at(v->table->cells, cell);
        v->sequence = tl_cell_load(v->partition, 6);
        if (!(v->sequence & 1) && tl_partition_is(v->partition, id)) return true;
        if (++v->tries > SPINS) sched_yield();
    }
}

static bool holds(view *v) {
    if (tl_cell_load(v->partition, 6) == v->sequence) return true;
    if (++v->tries > SPINS) sched_yield();
    return false;
}

static bool has_overlaps(const uint8_t *partition) {
    return (tl_cell_load(partition, 4) >> 32 & TL_PARTITION_OVERLAPS) != 0;
}

/* One entry back; leaves that end before the offset are passed over. */
static bool back(tl_order_cursor *at, int64_t offset) {
    return at->index[0] > 0 ? tl_order_previous(at) : tl_order_previous_reaching(at, offset);
}

static bool is_readable(const tl_order_entry *entry) { return tl_row_state(&entry->row) == TL_COPY_FINISHED; }

/* Of the readable segments with the offset the one that reaches furthest. */
static bool look_up(const tl_cells *cells, const uint8_t *partition, int32_t epoch, int64_t offset,
                    tl_order_entry *out) {
    tl_order_cursor at;
    tl_order_entry entry;
    bool found = false, overlaps = has_overlaps(partition);
    if (!tl_order_floor(cells, tl_partition_order(partition), epoch, offset, &at)) return false;
    do {
        if (!tl_order_read(&at, &entry) || entry.span.epoch != epoch) break;
        if (is_readable(&entry) && entry.span.end_offset >= offset &&
            (!found || entry.span.end_offset > out->span.end_offset)) {
            *out = entry;
            found = true;
        }
    } while (overlaps && back(&at, offset));
    return found;
}

static bool look_up_as_kafka(const tl_cells *cells, const uint8_t *partition, int32_t epoch, int64_t offset,
                             tl_order_entry *out) {
    tl_order_cursor at;
    if (!tl_order_floor(cells, tl_partition_order(partition), epoch, offset, &at)) return false;
    do {
        if (!tl_order_read(&at, out) || out->span.epoch != epoch) return false;
        if (out->marks & TL_ORDER_REFERENCED) return out->span.end_offset >= offset;
    } while (tl_order_previous(&at));
    return false;
}

static tl_status copy_row(const tl_cells *cells, const tl_row *row, tl_segment_room *room, tl_segment_copy *out) {
    uint64_t custom = 0;
    out->start_offset = tl_row_start(row);
    out->end_offset = tl_row_end(cells, row);
    out->max_timestamp_ms = tl_row_max_timestamp(cells, row);
    out->event_timestamp_ms = (int64_t)row->words[3];
    out->broker_id = (int32_t)row->words[6];
    out->size_bytes = tl_row_size_bytes(row);
    memcpy(out->id, row->words, 16);
    out->state = (uint8_t)tl_row_state(row);
    out->txn_index_empty = (tl_row_flags(row) & TL_ROW_TXN_EMPTY) != 0;
    out->epoch_count = tl_row_epoch_count(cells, row);
    out->custom_size = -1;
    if (tl_row_flags(row) & TL_ROW_CUSTOM) {
        const uint8_t *at = tl_cell_at(cells, tl_row_more(row));
        custom = at ? tl_cell_load(at, 0) : 0;
        out->custom_size = (int64_t)(custom >> 32);
    }
    if (!room) return TL_OK;
    if (out->epoch_count > room->epochs_capacity || out->custom_size > (int64_t)room->custom_capacity) return TL_FULL;
    for (uint32_t i = 0; i < out->epoch_count; i++) {
        tl_epoch_span span = {0};
        if (!tl_row_span(cells, row, i, &span)) return TL_OK;
        room->epochs[i] = (tl_segment_epoch){span.epoch, span.start_offset};
    }
    const uint8_t *bytes = tl_cell_at(cells, (tl_cell)custom);
    size_t size = out->custom_size > 0 && bytes ? (size_t)out->custom_size : 0;
    if (bytes && size > tl_cell_size((tl_cell)custom)) size = 0;
    for (size_t i = 0; i * 8 < size; i++) {
        uint64_t word = tl_cell_load(bytes, i);
        memcpy(room->custom + i * 8, &word, size - i * 8 < 8 ? size - i * 8 : 8);
    }
    return TL_OK;
}

tl_status tl_segment_table_find(const tl_segment_table *table, const tl_partition_id *id, int32_t epoch, int64_t offset,
                                tl_segment_room *room, tl_segment_copy *out, bool *found) {
    view v = {.table = table};
    *found = false;
    while (begin(&v, id)) {
        tl_order_entry entry;
        bool is_there = table->as_kafka ? look_up_as_kafka(table->cells, v.partition, epoch, offset, &entry)
                                        : look_up(table->cells, v.partition, epoch, offset, &entry);
        tl_status status = is_there ? copy_row(table->cells, &entry.row, room, out) : TL_OK;
        if (!holds(&v)) continue;
        *found = is_there;
        return status;
    }
    return TL_OK;
}

int64_t tl_derived_highest(const tl_cells *cells, const uint8_t *partition, int32_t epoch, tl_cell left_out) {
    tl_order_cursor at;
    tl_order_entry entry;
    int64_t highest = -1;
    bool overlaps = has_overlaps(partition);
    if (!tl_order_floor(cells, tl_partition_order(partition), epoch, INT64_MAX, &at)) return -1;
    do {
        if (!tl_order_read(&at, &entry) || entry.span.epoch != epoch) break;
        if (!(tl_row_flags(&entry.row) & TL_ROW_WAS_FINISHED) || entry.row_cell == left_out) continue;
        if (entry.span.end_offset > highest) highest = entry.span.end_offset;
        if (!overlaps) break;
    } while (back(&at, highest < INT64_MAX ? highest + 1 : highest));
    return highest;
}

int64_t tl_highest_of(const tl_cells *cells, const uint8_t *partition, int32_t epoch) {
    int64_t highest = tl_derived_highest(cells, partition, epoch, 0);
    uint64_t word = tl_cell_load(partition, 5);
    tl_cell cell = (tl_cell)word;
    const uint8_t *records = tl_cell_at(cells, cell);
    uint64_t low = 0, high = word >> 32;
    if (!records || high * 16 > tl_cell_size(cell)) return highest;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if ((int32_t)tl_cell_load(records, 2 * middle) < epoch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < word >> 32 && (int32_t)tl_cell_load(records, 2 * low) == epoch) {
        int64_t remembered = (int64_t)tl_cell_load(records, 2 * low + 1);
        if (remembered > highest) highest = remembered;
    }
    return highest;
}

void tl_segment_table_find_many(const tl_segment_table *table, const tl_segment_question *questions, size_t count,
                                tl_segment_copy *out, uint8_t *found) {
    for (size_t i = 0; i < count; i++) {
        bool is_there = false;
        tl_status status = tl_segment_table_find(table, &questions[i].partition, questions[i].epoch,
                                                 questions[i].offset, NULL, &out[i], &is_there);
        found[i] = status == TL_OK && is_there;
    }
}

int64_t tl_segment_table_highest(const tl_segment_table *table, const tl_partition_id *id, int32_t epoch) {
    view v = {.table = table};
    while (begin(&v, id)) {
        int64_t highest = tl_highest_of(table->cells, v.partition, epoch);
        if (holds(&v)) return highest;
    }
    return -1;
}

void tl_segment_cursor_open(tl_segment_cursor *cursor, const tl_partition_id *partition, int32_t epoch) {
    *cursor = (tl_segment_cursor){.partition = *partition, .epoch = epoch, .at_epoch = epoch < 0 ? 0 : epoch};
}

/* The entries behind the cursor, as far as there is room; *last is where the next call goes on. */
static size_t list_from(const tl_segment_table *table, const uint8_t *partition, const tl_segment_cursor *cursor,
                        tl_segment_copy *out, size_t capacity, tl_segment_cursor *last) {
    tl_order_key key = {cursor->at_epoch, cursor->begun ? cursor->at_offset : INT64_MIN, {0, 0}};
    if (cursor->begun) memcpy(key.id, cursor->at_id, 16);
    tl_order_cursor at;
    tl_order_entry entry;
    size_t count = 0;
    *last = *cursor;
    bool more = tl_order_lower(table->cells, tl_partition_order(partition), &key, &at);
    for (; more; more = tl_order_next(&at)) {
        if (!tl_order_read(&at, &entry)) break;
        if (cursor->epoch >= 0 && entry.span.epoch != cursor->epoch) break;
        bool given = cursor->begun && entry.span.epoch == key.epoch && entry.span.start_offset == key.start_offset &&
                     memcmp(entry.row.words, key.id, 16) == 0;
        bool wanted = cursor->epoch >= 0 ? !(entry.marks & TL_ORDER_LOST) : entry.ordinal == 0;
        if (!given && wanted) {
            if (count == capacity) return count;
            copy_row(table->cells, &entry.row, NULL, &out[count++]);
        }
        last->begun = true;
        last->at_epoch = entry.span.epoch;
        last->at_offset = entry.span.start_offset;
        memcpy(last->at_id, entry.row.words, 16);
    }
    last->ended = true;
    return count;
}

size_t tl_segment_table_list(const tl_segment_table *table, tl_segment_cursor *cursor, tl_segment_copy *out,
                             size_t capacity) {
    view v = {.table = table};
    while (!cursor->ended && begin(&v, &cursor->partition)) {
        tl_segment_cursor last;
        size_t count = list_from(table, v.partition, cursor, out, capacity, &last);
        if (!holds(&v)) continue;
        *cursor = last;
        return count;
    }
    return 0;
}

tl_status tl_segment_table_get(const tl_segment_table *table, const tl_partition_id *id, const uint8_t segment_id[16],
                               tl_segment_room *room, tl_segment_copy *out, bool *found) {
    uint64_t words[2];
    tl_row row;
    memcpy(words, segment_id, 16);
    tl_cell partition = tl_partition_find(&table->partitions, table->cells, id);
    tl_cell cell = partition ? tl_segment_ids_find(&table->ids, table->cells, partition, words) : 0;
    *found = cell && tl_row_load(table->cells, cell, &row);
    return *found ? copy_row(table->cells, &row, room, out) : TL_OK;
}

size_t tl_segment_table_partitions(const tl_segment_table *table, uint64_t *at, tl_partition_id *out, size_t capacity) {
    size_t count = 0;
    for (; count < capacity && *at < table->partitions.count; ++*at, count++) {
        tl_cell name = table->partitions.pages[*at / TL_PARTITION_PAGE][*at % TL_PARTITION_PAGE];
        const uint8_t *cell = tl_cell_at(table->cells, name);
        uint64_t topic[2] = {tl_cell_load(cell, 0), tl_cell_load(cell, 1)};
        memcpy(out[count].topic_id, topic, 16);
        out[count].partition = (int32_t)tl_cell_load(cell, 2);
    }
    return count;
}
