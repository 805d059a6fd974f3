/* Events into the table: the life of segments. Questions are segment_queries.c's. */
#include "table/segment_table_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

tl_status tl_segment_table_create(tl_segment_table **out, const tl_segment_table_options *options) {
    if (options->struct_size < sizeof *options) return TL_BAD_ARGUMENT;
    tl_segment_table *table = calloc(1, sizeof *table);
    if (!table) return TL_NO_MEMORY;
    table->as_kafka = options->as_kafka;
    tl_status status = tl_cells_create(&table->cells);
    if (status == TL_OK) status = tl_segment_ids_open(&table->ids, table->cells, options->hash_seed);
    if (status == TL_OK) status = tl_partitions_open(&table->partitions, options->hash_seed);
    if (status != TL_OK) {
        tl_segment_table_destroy(table);
        return status;
    }
    *out = table;
    return TL_OK;
}

void tl_segment_table_destroy(tl_segment_table *table) {
    if (!table) return;
    tl_partitions_close(&table->partitions);
    tl_segment_ids_close(&table->ids);
    tl_cells_destroy(table->cells);
    free(table);
}

bool tl_segment_is_sound(const tl_segment *segment) {
    if (segment->start_offset < 0 || segment->end_offset < segment->start_offset || segment->size_bytes < 0)
        return false;
    if (segment->state > TL_DELETE_STARTED || !segment->epoch_count || !segment->epochs) return false;
    if (segment->epoch_count > TL_SEGMENT_EPOCHS_MAX || segment->custom_size > TL_SEGMENT_CUSTOM_BYTES_MAX)
        return false;
    for (size_t i = 0; i < segment->epoch_count; i++) {
        if (segment->epochs[i].epoch < 0 || segment->epochs[i].start_offset < 0) return false;
        if (i && segment->epochs[i].epoch <= segment->epochs[i - 1].epoch) return false;
    }
    return true;
}

bool tl_segment_may_become(int from, int to) {
    switch (from) {
    case -1: return to == TL_COPY_STARTED;
    case TL_COPY_STARTED: return to >= TL_COPY_STARTED && to < TL_DELETE_FINISHED;
    case TL_COPY_FINISHED: return to == TL_COPY_FINISHED || to == TL_DELETE_STARTED;
    case TL_DELETE_STARTED: return to == TL_DELETE_STARTED || to == TL_DELETE_FINISHED;
    case TL_DELETE_FINISHED: return to == TL_DELETE_FINISHED;
    default: return false;
    }
}

/* To the entry of a row's epoch; it is there. */
static bool go_to(const tl_segment_table *table, const uint8_t *partition, tl_cell row_cell, uint32_t ordinal,
                  tl_order_cursor *at, tl_order_entry *entry) {
    tl_row row;
    tl_epoch_span span;
    if (!tl_row_load(table->cells, row_cell, &row) || !tl_row_span(table->cells, &row, ordinal, &span)) return false;
    tl_order_key key = {span.epoch, span.start_offset, {row.words[0], row.words[1]}};
    return tl_order_lower(table->cells, tl_partition_order(partition), &key, at) && tl_order_read(at, entry) &&
           entry->row_cell == row_cell;
}

static void take_out_of_order(tl_segment_table *table, uint8_t *partition, tl_cell row_cell, uint32_t epochs) {
    tl_order order = tl_partition_order(partition);
    for (uint32_t i = 0; i < epochs; i++) {
        bool was_there = tl_order_remove(table->cells, &order, row_cell, i);
        assert(was_there), (void)was_there;
    }
    tl_partition_put_order(partition, order);
}

static tl_status put_in_order(tl_segment_table *table, uint8_t *partition, tl_cell row_cell,
                              const tl_segment *segment) {
    tl_order order = tl_partition_order(partition);
    uint64_t id[2];
    memcpy(id, segment->id, 16);
    for (uint32_t i = 0; i < segment->epoch_count; i++) {
        bool overlaps, last = i + 1 == segment->epoch_count;
        tl_epoch_span span = {segment->epochs[i].epoch, segment->epochs[i].start_offset,
                              last ? segment->end_offset : segment->epochs[i + 1].start_offset - 1};
        tl_status status = tl_order_insert(table->cells, &order, row_cell, i, &span, id, 0, &overlaps);
        if (status != TL_OK) {
            tl_partition_put_order(partition, order);
            take_out_of_order(table, partition, row_cell, i);
            return status;
        }
        if (overlaps) tl_partition_set_overlaps(partition);
    }
    tl_partition_put_order(partition, order);
    return TL_OK;
}

/* Within a change of the partition. */
static void drop_row(tl_segment_table *table, uint8_t *partition, tl_cell row_cell) {
    tl_row row;
    if (!tl_row_load(table->cells, row_cell, &row)) return;
    take_out_of_order(table, partition, row_cell, tl_row_epoch_count(table->cells, &row));
    tl_segment_ids_remove(&table->ids, table->cells, row_cell);
    tl_row_drop(table->cells, row_cell);
    tl_partition_add_segments(partition, -1);
    table->segments--;
}

/* A segment into its partition, which is being changed; `old` is the one of its id, or 0. */
static tl_status add_within(tl_segment_table *table, uint8_t *partition, tl_cell cell, uint64_t hash, tl_cell old,
                            const tl_segment *segment) {
    tl_cell made;
    tl_status status = tl_row_make(table->cells, cell, segment, &made);
    if (status != TL_OK) return status;
    status = put_in_order(table, partition, made, segment);
    if (status != TL_OK) {
        tl_row_drop(table->cells, made);
        return status;
    }
    status = tl_segment_ids_insert(&table->ids, table->cells, hash, made);
    if (status != TL_OK) {
        take_out_of_order(table, partition, made, (uint32_t)segment->epoch_count);
        tl_row_drop(table->cells, made);
        return status;
    }
    tl_partition_add_segments(partition, 1);
    table->segments++;
    if (old) drop_row(table, partition, old);
    return TL_OK;
}

/* The probable subject of an event: its partition's cell, the hash of the id in it, and the row; 0 says nothing. */
typedef struct guess {
    tl_cell partition, row;
    uint64_t hash;
} guess;

/* The same for sure; `partition` 0 if there is none. */
static guess aim(const tl_segment_table *table, const tl_partition_id *partition, const uint64_t id[2], guess g) {
    if (g.partition &&
        tl_partition_is(tl_cell_own_in(table->cells, TL_PARTITION_CLASS, tl_cell_number(g.partition)), partition))
        return g;
    g.partition = tl_partition_find(&table->partitions, table->cells, partition);
    g.row = 0;
    g.hash = tl_segment_ids_hash(&table->ids, g.partition, id);
    return g;
}

static tl_status add_to(tl_segment_table *table, const tl_partition_id *partition_id, guess g,
                        const tl_segment *segment, tl_event_outcome *outcome, int *found_state) {
    if (!tl_segment_is_sound(segment) || segment->state != TL_COPY_STARTED || partition_id->partition < 0)
        return TL_BAD_ARGUMENT;
    uint64_t id[2];
    memcpy(id, segment->id, 16);
    g = aim(table, partition_id, id, g);
    if (!g.partition) {
        tl_status status = tl_partition_make(&table->partitions, table->cells, partition_id, &g.partition);
        if (status != TL_OK) return status;
        g.hash = tl_segment_ids_hash(&table->ids, g.partition, id);
    }
    tl_cell cell = g.partition;
    uint64_t hash = g.hash;
    uint8_t *partition = tl_cell_own_in(table->cells, TL_PARTITION_CLASS, tl_cell_number(cell));
    tl_cell old = tl_segment_ids_find(&table->ids, table->cells, hash, cell, id);
    tl_row row;
    *found_state = old && tl_row_load(table->cells, old, &row) ? (int)tl_row_state(&row) : -1;
    *outcome = TL_EVENT_BAD_TRANSITION;
    if (!tl_segment_may_become(*found_state, TL_COPY_STARTED)) return TL_OK;
    tl_partition_begin(partition);
    tl_status status = add_within(table, partition, cell, hash, old, segment);
    tl_partition_end(partition);
    if (status == TL_OK) *outcome = TL_EVENT_APPLIED;
    return status;
}

tl_status tl_segment_table_add(tl_segment_table *table, const tl_partition_id *id, const tl_segment *segment,
                               tl_event_outcome *outcome, int *found_state) {
    return add_to(table, id, (guess){0}, segment, outcome, found_state);
}

/* Kafka's finished segment, as often as it is finished: entries of its epoch that begin at it or behind are no longer
 * found, if no other reached further than it does; one that begins with it is in no list of the epoch any more. */
static void refer_as_kafka(tl_segment_table *table, uint8_t *partition, tl_cell row_cell, uint32_t ordinal) {
    tl_order_cursor at, other;
    tl_order_entry entry, found;
    if (!go_to(table, partition, row_cell, ordinal, &at, &entry)) return;
    tl_order order = tl_partition_order(partition);
    if (tl_highest_of(table->cells, partition, entry.span.epoch, row_cell) <= entry.span.end_offset &&
        tl_order_floor(table->cells, order, entry.span.epoch, INT64_MAX, &other)) {
        do {
            if (!tl_order_read(&other, &found) || found.span.epoch != entry.span.epoch) break;
            if (found.span.start_offset < entry.span.start_offset) break;
            if (found.marks & TL_ORDER_REFERENCED) tl_order_mark(&other, 0);
        } while (tl_order_previous(&other));
    }
    if (tl_order_floor(table->cells, order, entry.span.epoch, entry.span.start_offset, &other)) {
        do {
            if (!tl_order_read(&other, &found) || found.span.epoch != entry.span.epoch) break;
            if (found.span.start_offset != entry.span.start_offset) break;
            if (found.marks & TL_ORDER_REFERENCED) tl_order_mark(&other, TL_ORDER_LOST);
        } while (tl_order_previous(&other));
    }
    tl_order_mark(&at, TL_ORDER_REFERENCED);
}

static void unrefer(tl_segment_table *table, uint8_t *partition, tl_cell row_cell, uint32_t epochs) {
    for (uint32_t i = 0; i < epochs; i++) {
        tl_order_cursor at;
        tl_order_entry entry;
        if (go_to(table, partition, row_cell, i, &at, &entry)) tl_order_mark(&at, 0);
    }
}

/* The first of the remembered epochs that is not below one. */
static uint32_t remembered_at(const uint8_t *records, uint32_t count, int32_t epoch) {
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if ((int32_t)tl_cell_load(records, 2 * (size_t)middle) < epoch) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

enum { REMEMBERED_MAX = TL_CELL_BYTES_MAX / 16, FORGOTTEN_AT_ONCE = REMEMBERED_MAX / 8 };

/* Remembers the end offset of an epoch's readable segments when the segment that reached it goes. Once the largest
 * cell is full the lowest epochs are forgotten, which have no reader any more. */
static tl_status remember(tl_segment_table *table, uint8_t *partition, int32_t epoch, int64_t end) {
    uint64_t word = tl_cell_load(partition, 5);
    tl_cell cell = (tl_cell)word;
    uint32_t count = (uint32_t)(word >> 32);
    uint8_t *records = tl_cell_at(table->cells, cell);
    uint32_t at = remembered_at(records, count, epoch);
    if (at < count && (int32_t)tl_cell_load(records, 2 * at) == epoch) {
        if ((int64_t)tl_cell_load(records, 2 * at + 1) < end) tl_cell_store(records, 2 * at + 1, (uint64_t)end);
        return TL_OK;
    }
    if (count == REMEMBERED_MAX) {
        if (at < FORGOTTEN_AT_ONCE) return TL_OK;
        count -= FORGOTTEN_AT_ONCE;
        at -= FORGOTTEN_AT_ONCE;
        for (size_t i = 0; i < 2 * (size_t)count; i++)
            tl_cell_store(records, i, tl_cell_load(records, i + 2 * (size_t)FORGOTTEN_AT_ONCE));
    }
    if (!cell || (count + 1) * (size_t)16 > tl_cell_size(cell)) {
        tl_cell wider;
        tl_status status = tl_cell_take(table->cells, (count + 1) * (size_t)16, &wider);
        if (status != TL_OK) return status;
        uint8_t *to = tl_cell_own(table->cells, wider);
        for (size_t i = 0; i < 2 * (size_t)count; i++) tl_cell_store(to, i, tl_cell_load(records, i));
        if (cell) tl_cell_give(table->cells, cell);
        cell = wider;
        records = to;
    }
    for (uint32_t i = count; i > at; i--) {
        tl_cell_store(records, 2 * i, tl_cell_load(records, 2 * (i - 1)));
        tl_cell_store(records, 2 * i + 1, tl_cell_load(records, 2 * (i - 1) + 1));
    }
    tl_cell_store(records, 2 * at, (uint32_t)epoch);
    tl_cell_store(records, 2 * at + 1, (uint64_t)end);
    tl_cell_store(partition, 5, cell | (uint64_t)(count + 1) << 32);
    return TL_OK;
}

/* Before a row goes: the highest offsets that only it holds up. */
static tl_status remember_row(tl_segment_table *table, uint8_t *partition, tl_cell row_cell, const tl_row *row) {
    if (!(tl_row_flags(row) & TL_ROW_WAS_FINISHED)) return TL_OK;
    tl_epoch_span span;
    for (uint32_t i = 0; tl_row_span(table->cells, row, i, &span); i++) {
        int64_t others = tl_derived_highest(table->cells, partition, span.epoch, row_cell);
        tl_status status = others < span.end_offset ? remember(table, partition, span.epoch, span.end_offset) : TL_OK;
        if (status != TL_OK) return status;
    }
    return TL_OK;
}

static tl_status change_within(tl_segment_table *table, uint8_t *partition, tl_cell row_cell, const tl_row *row,
                               const tl_segment_change *change) {
    uint32_t epochs = tl_row_epoch_count(table->cells, row);
    if (change->state == TL_DELETE_FINISHED) {
        tl_status status = remember_row(table, partition, row_cell, row);
        if (status == TL_OK) drop_row(table, partition, row_cell);
        return status;
    }
    tl_status status = tl_row_change(table->cells, row_cell, change);
    if (status != TL_OK || !table->as_kafka) return status;
    if (change->state == TL_DELETE_STARTED) unrefer(table, partition, row_cell, epochs);
    for (uint32_t i = 0; change->state == TL_COPY_FINISHED && i < epochs; i++)
        refer_as_kafka(table, partition, row_cell, i);
    return status;
}

static tl_status change_in(tl_segment_table *table, const tl_partition_id *partition_id, guess g,
                           const tl_segment_change *change, tl_event_outcome *outcome, int *found_state) {
    if (change->state == TL_COPY_STARTED || change->state > TL_DELETE_FINISHED) return TL_BAD_ARGUMENT;
    if (change->custom_size > TL_SEGMENT_CUSTOM_BYTES_MAX) return TL_BAD_ARGUMENT;
    uint64_t id[2];
    memcpy(id, change->id, 16);
    g = aim(table, partition_id, id, g);
    tl_cell row_cell = g.row;
    if (!row_cell || !tl_segment_ids_is(table->cells, row_cell, g.partition, id))
        row_cell = g.partition ? tl_segment_ids_find(&table->ids, table->cells, g.hash, g.partition, id) : 0;
    tl_row row;
    *found_state = -1;
    *outcome = TL_EVENT_UNKNOWN_SEGMENT;
    if (!row_cell || !tl_row_load(table->cells, row_cell, &row)) return TL_OK;
    *found_state = (int)tl_row_state(&row);
    *outcome = TL_EVENT_BAD_TRANSITION;
    if (!tl_segment_may_become(*found_state, change->state)) return TL_OK;
    uint8_t *partition = tl_cell_own_in(table->cells, TL_PARTITION_CLASS, tl_cell_number(g.partition));
    tl_partition_begin(partition);
    tl_status status = change_within(table, partition, row_cell, &row, change);
    tl_partition_end(partition);
    if (status == TL_OK) *outcome = TL_EVENT_APPLIED;
    return status;
}

tl_status tl_segment_table_change(tl_segment_table *table, const tl_partition_id *id, const tl_segment_change *change,
                                  tl_event_outcome *outcome, int *found_state) {
    return change_in(table, id, (guess){0}, change, outcome, found_state);
}

/* Events are applied while the reads of later ones are prefetched: a step prefetches the next one's reads, some
 * events behind. Guesses only: the work looks again. */
enum { GROUP = 16, STEPS = 5, RING = GROUP * (STEPS + 1) };

typedef struct foresight {
    guess guess;
    tl_cell bucket;
    uint32_t place; /* in the bucket */
} foresight;

static const uint8_t *partition_at(const tl_segment_table *table, const foresight *f) {
    return tl_cell_own_in(table->cells, TL_PARTITION_CLASS, tl_cell_number(f->guess.partition));
}

static void ask_slot(const tl_segment_table *table, const tl_segment_event *e, foresight *f) {
    f->guess.hash = tl_partition_hash(&table->partitions, &e->partition);
    f->guess.row = f->bucket = 0;
    tl_partition_ask_slot(&table->partitions, table->cells, f->guess.hash);
}

static void ask_partition(const tl_segment_table *table, const tl_segment_event *e, foresight *f) {
    uint64_t id[2];
    memcpy(id, e->is_change ? e->of.change.id : e->of.segment.id, 16);
    f->guess.partition = tl_partition_guess(&table->partitions, table->cells, f->guess.hash);
    if (!f->guess.partition) return;
    f->guess.hash = tl_segment_ids_hash(&table->ids, f->guess.partition, id);
    __builtin_prefetch(partition_at(table, f), 1);
    tl_segment_ids_ask_name(&table->ids, f->guess.hash);
}

static void ask_bucket(const tl_segment_table *table, const tl_segment_event *e, foresight *f) {
    if (!f->guess.partition) return;
    f->bucket = tl_segment_ids_ask_bucket(&table->ids, table->cells, f->guess.hash);
    if (!e->is_change) tl_order_ask_tail(table->cells, tl_partition_tail(partition_at(table, f)));
}

static void ask_place(const tl_segment_table *table, const tl_segment_event *e, foresight *f) {
    if (!f->guess.partition) return;
    if (e->is_change) {
        f->place = tl_segment_ids_ask_match(table->cells, f->bucket, f->guess.hash);
    } else {
        tl_segment_ids_ask_end(table->cells, f->bucket);
        tl_order_ask_end(table->cells, tl_partition_tail(partition_at(table, f)));
    }
}

static void ask_row(const tl_segment_table *table, const tl_segment_event *e, foresight *f) {
    if (e->is_change && f->bucket) f->guess.row = tl_segment_ids_ask_row(table->cells, f->bucket, f->place);
}

/* A step for some events: the slot of the partition; the partition and the name of the id's bucket; the bucket and the
 * partition's last leaf; the place of the row's name, or where it and a new entry will be; the row. */
static void ask(const tl_segment_table *table, size_t step, const tl_segment_event *events, size_t count,
                foresight *seen) {
    switch (step) {
    case 0:
        for (size_t i = 0; i < count; i++) ask_slot(table, &events[i], &seen[i]);
        break;
    case 1:
        for (size_t i = 0; i < count; i++) ask_partition(table, &events[i], &seen[i]);
        break;
    case 2:
        for (size_t i = 0; i < count; i++) ask_bucket(table, &events[i], &seen[i]);
        break;
    case 3:
        for (size_t i = 0; i < count; i++) ask_place(table, &events[i], &seen[i]);
        break;
    default:
        for (size_t i = 0; i < count; i++) ask_row(table, &events[i], &seen[i]);
        break;
    }
}

static tl_status work_on(tl_segment_table *table, tl_segment_event *e, guess g) {
    return e->is_change ? change_in(table, &e->partition, g, &e->of.change, &e->outcome, &e->found_state)
                        : add_to(table, &e->partition, g, &e->of.segment, &e->outcome, &e->found_state);
}

tl_status tl_segment_table_apply(tl_segment_table *table, tl_segment_event *events, size_t count, size_t *done) {
    foresight ring[RING];
    size_t groups = (count + GROUP - 1) / GROUP;
    *done = 0;
    if (count == 1) {
        tl_status status = work_on(table, events, (guess){0});
        *done = status == TL_OK;
        return status;
    }
    for (size_t turn = 0; turn < groups + STEPS; turn++) {
        for (size_t step = STEPS + 1; step-- > 0;) { /* the work, then the steps before it, each for a later group */
            if (turn < step || turn - step >= groups) continue;
            size_t first = (turn - step) * GROUP, some = count - first < GROUP ? count - first : GROUP;
            foresight *seen = &ring[first % RING];
            if (step < STEPS) {
                ask(table, step, events + first, some, seen);
                continue;
            }
            for (size_t i = 0; i < some; i++, ++*done) {
                tl_status status = work_on(table, &events[first + i], seen[i].guess);
                if (status != TL_OK) return status;
            }
        }
    }
    return TL_OK;
}

size_t tl_segment_table_settle(tl_segment_table *table, size_t pages) { return tl_cells_settle(table->cells, pages); }

bool tl_segment_table_forget(tl_segment_table *table, const tl_partition_id *id) {
    tl_cell cell = tl_partition_find(&table->partitions, table->cells, id);
    if (!cell) return false;
    uint8_t *partition = tl_cell_own(table->cells, cell);
    tl_partition_begin(partition);
    tl_order_cursor at;
    tl_order_entry entry;
    tl_order_key first = {.epoch = 0};
    while (tl_order_lower(table->cells, tl_partition_order(partition), &first, &at) && tl_order_read(&at, &entry))
        drop_row(table, partition, entry.row_cell);
    tl_cell remembered = (tl_cell)tl_cell_load(partition, 5);
    if (remembered) tl_cell_give(table->cells, remembered);
    tl_cell_store(partition, 5, 0);
    tl_partition_drop(&table->partitions, table->cells, cell);
    tl_partition_end(partition);
    return true;
}

tl_segment_table_figures tl_segment_table_figures_of(const tl_segment_table *table) {
    return (tl_segment_table_figures){
        .segments = table->segments, .partitions = table->partitions.count, .held_bytes = table->cells->held_bytes};
}
