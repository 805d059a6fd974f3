/* Questions to the table. A question is asked between two looks at the partition's sequence number, and asked again
 * when the writer came between. */
#include "table/segment_order_parts.h"
#include "table/segment_table_parts.h"

#include <sched.h>
#include <string.h>

enum { SPINS = 64 };

typedef struct view {
    const tl_segment_table *table;
    tl_cell cell;
    const uint8_t *partition;
    uint64_t sequence;
    unsigned tries;
} view;

static bool looks_again(view *v) {
    if (++v->tries > SPINS) sched_yield();
    return true;
}

/* False: there is no such partition. */
static bool begin(view *v, const tl_partition_id *id) {
    for (;;) {
        v->cell = tl_partition_find(&v->table->partitions, v->table->cells, id);
        if (!v->cell) return false;
        v->partition = tl_cell_at(v->table->cells, v->cell);
        v->sequence = tl_cell_load(v->partition, 6);
        if (!(v->sequence & 1) && tl_partition_is(v->partition, id)) return true;
        looks_again(v);
    }
}

static bool holds(view *v) { return tl_cell_load(v->partition, 6) == v->sequence || !looks_again(v); }

/* One entry back; leaves that end before the offset are passed over. */
static bool back(tl_order_cursor *at, int64_t offset) {
    return at->index[0] > 0 ? tl_order_previous(at) : tl_order_previous_reaching(at, offset);
}

static bool is_readable(const tl_order_entry *entry) { return tl_row_state(&entry->row) == TL_COPY_FINISHED; }

/* Finds, of the readable segments with the offset, the one with the greatest end offset. */
static bool look_up(const tl_cells *cells, const uint8_t *partition, int32_t epoch, int64_t offset,
                    tl_order_entry *out) {
    tl_order_cursor at;
    tl_order_entry entry;
    bool found = false, overlaps = tl_partition_overlaps(partition);
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

tl_status tl_row_copy(const tl_cells *cells, const tl_row *row, tl_segment_room *room, tl_segment_copy *out) {
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
        tl_status status = is_there ? tl_row_copy(table->cells, &entry.row, room, out) : TL_OK;
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
    bool overlaps = tl_partition_overlaps(partition);
    if (!overlaps && tl_order_floor_in_tail(cells, tl_partition_order(partition), epoch, INT64_MAX, &entry)) {
        if (entry.span.epoch != epoch) return -1;
        if ((tl_row_flags(&entry.row) & TL_ROW_WAS_FINISHED) && entry.row_cell != left_out)
            return entry.span.end_offset > highest ? entry.span.end_offset : highest;
    }
    if (!tl_order_floor(cells, tl_partition_order(partition), epoch, INT64_MAX, &at)) return -1;
    do {
        if (!tl_order_read(&at, &entry) || entry.span.epoch != epoch) break;
        if (!(tl_row_flags(&entry.row) & TL_ROW_WAS_FINISHED) || entry.row_cell == left_out) continue;
        if (entry.span.end_offset > highest) highest = entry.span.end_offset;
        if (!overlaps) break;
    } while (back(&at, highest < INT64_MAX ? highest + 1 : highest));
    return highest;
}

int64_t tl_highest_of(const tl_cells *cells, const uint8_t *partition, int32_t epoch, tl_cell left_out) {
    int64_t highest = tl_derived_highest(cells, partition, epoch, left_out);
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

int64_t tl_segment_table_highest(const tl_segment_table *table, const tl_partition_id *id, int32_t epoch) {
    view v = {.table = table};
    while (begin(&v, id)) {
        int64_t highest = tl_highest_of(table->cells, v.partition, epoch, 0);
        if (holds(&v)) return highest;
    }
    return -1;
}

tl_partition_version tl_segment_table_version(const tl_segment_table *table, const tl_partition_id *id) {
    view v = {.table = table};
    if (!begin(&v, id)) return (tl_partition_version){0, 0};
    return (tl_partition_version){v.cell, v.sequence};
}

void tl_segment_cursor_open(tl_segment_cursor *cursor, const tl_partition_id *partition, int32_t epoch) {
    *cursor = (tl_segment_cursor){.partition = *partition, .epoch = epoch, .at_epoch = epoch < 0 ? 0 : epoch};
}

/* The wanted entries of a leaf, which are prefetched. */
typedef struct leaf_run {
    tl_order_cursor at;
    uint32_t count; /* of entries, from at.index[0] on */
    uint32_t entries[TL_LEAF_ENTRIES_MAX];
} leaf_run;

static void load_run(const tl_cells *cells, bool all, leaf_run *run) {
    const uint8_t *leaf = tl_node_at(cells, run->at.node[0]);
    uint32_t count = leaf ? tl_node_count(leaf, run->at.node[0], true) : 0, first = run->at.index[0], ordinal;
    tl_cell row_cell;
    run->count = first < count ? count - first : 0;
    if (run->count > TL_LEAF_ENTRIES_MAX) run->count = TL_LEAF_ENTRIES_MAX;
    for (uint32_t i = 0; i < run->count; i++) {
        run->entries[i] = tl_leaf_entry(leaf, run->at.node[0], first + i);
        if (tl_entry_row(cells, run->entries[i], &row_cell, &ordinal) && (!all || ordinal == 0))
            tl_row_ask(cells, row_cell);
    }
    for (uint32_t i = 0; !all && i < run->count; i++)
        if (tl_entry_row(cells, run->entries[i], &row_cell, &ordinal)) tl_row_ask_more(cells, row_cell);
}

/* Sets the cursor so that a call goes on behind an entry. */
static void stay_at(tl_segment_cursor *cursor, const tl_order_entry *entry) {
    cursor->begun = true;
    cursor->at_epoch = entry->span.epoch;
    cursor->at_offset = entry->span.start_offset;
    memcpy(cursor->at_id, entry->row.words, 16);
}

/* The entries behind the cursor, as far as there is room; *last is where the next call goes on. */
static size_t list_from(const tl_segment_table *table, const uint8_t *partition, const tl_segment_cursor *cursor,
                        tl_segment_copy *out, size_t capacity, tl_segment_cursor *last) {
    tl_order_key key = {cursor->at_epoch, cursor->begun ? cursor->at_offset : INT64_MIN, {0, 0}};
    if (cursor->begun) memcpy(key.id, cursor->at_id, 16);
    const tl_cells *cells = table->cells;
    bool all = cursor->epoch < 0, more, first = cursor->begun;
    leaf_run run;
    tl_order_entry entry;
    size_t count = 0;
    uint32_t given = 0; /* the last one's entry */
    *last = *cursor;
    more = tl_order_lower(cells, tl_partition_order(partition), &key, &run.at);
    for (; more; run.at.index[0] += run.count - 1, more = tl_order_next(&run.at)) {
        load_run(cells, all, &run);
        if (!run.count) return 0; /* changed meanwhile */
        for (uint32_t i = 0; i < run.count; i++) {
            uint32_t ordinal;
            if (!tl_entry_row(cells, run.entries[i], &entry.row_cell, &ordinal)) return 0;
            if (all && ordinal) continue;
            if (first || !all) {
                if (!tl_entry_read(cells, run.entries[i], &entry)) return 0;
                if (!all && entry.span.epoch != cursor->epoch) goto ended;
                bool again = first && tl_order_compare(&key, &entry) == 0;
                first = false;
                if (again || (!all && (entry.marks & TL_ORDER_LOST))) continue;
            } else if (!tl_row_load(cells, entry.row_cell, &entry.row)) {
                return 0;
            }
            if (count == capacity) {
                if (given && tl_entry_read(cells, given, &entry)) stay_at(last, &entry);
                return count;
            }
            tl_row_copy(cells, &entry.row, NULL, &out[count++]);
            given = run.entries[i];
        }
    }
ended:
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
    view v = {.table = table};
    uint64_t words[2];
    tl_row row;
    memcpy(words, segment_id, 16);
    *found = false;
    while (begin(&v, id)) {
        uint64_t moves = __atomic_load_n(&table->ids.moves, __ATOMIC_ACQUIRE);
        tl_cell cell = tl_segment_ids_find(&table->ids, table->cells, tl_segment_ids_hash(&table->ids, v.cell, words),
                                           v.cell, words);
        bool is_there = cell && tl_row_load(table->cells, cell, &row);
        tl_status status = is_there ? tl_row_copy(table->cells, &row, room, out) : TL_OK;
        bool moved = (moves & 1) || __atomic_load_n(&table->ids.moves, __ATOMIC_ACQUIRE) != moves;
        if (!holds(&v) || (!is_there && moved && looks_again(&v))) continue;
        *found = is_there;
        return status;
    }
    return TL_OK;
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
