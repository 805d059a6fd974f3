/* Sections into an empty table. Rows are made in the file's order, their entries appended to the order of their
 * partition; later epochs' wait in a small heap for their turn, so that almost all entries rise. */
#include "tierlog/segment_snapshot.h"

#include "batch/utf8.h"
#include "table/metadata_record.h"
#include "table/segment_snapshot_parts.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 512, ROWS_AT_ONCE = 256 };

typedef struct expected {
    tl_cell cell;
    uint32_t segments; /* that are still to come */
} expected;

/* An entry for the order. */
typedef struct waiting {
    tl_epoch_span span;
    uint64_t id[2];
    tl_cell row_cell;
    uint32_t ordinal, marks;
} waiting;

struct tl_snapshot_loader {
    tl_segment_table *table;
    expected *partitions;
    size_t count, at; /* `at`: whose segments come next */
    waiting heap[WAITING_MAX];
    size_t waiting;
    tl_cell rows[ROWS_AT_ONCE]; /* that are in no index of ids yet */
    size_t row_count;
    tl_segment_epoch *epochs; /* of one segment */
    size_t epochs_capacity;
};

tl_status tl_snapshot_loader_create(tl_snapshot_loader **out, tl_segment_table *table, uint64_t segments) {
    if (table->segments || table->partitions.count) return TL_BAD_ARGUMENT;
    tl_snapshot_loader *loader = calloc(1, sizeof *loader);
    if (!loader) return TL_NO_MEMORY;
    loader->table = table;
    tl_status status = tl_segment_ids_reserve(&table->ids, segments);
    if (status != TL_OK) {
        tl_snapshot_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return TL_OK;
}

void tl_snapshot_loader_destroy(tl_snapshot_loader *loader) {
    if (!loader) return;
    free(loader->partitions);
    free(loader->epochs);
    free(loader);
}

/* ---- partitions ---- */

static uint64_t position_of(const uint8_t *section, const uint8_t *at) { return (uint64_t)(at - section); }

/* Loads the end offsets of epochs whose segments were removed. */
static tl_status load_remembered(tl_cells *cells, uint8_t *partition, const tl_partition_columns *c, uint64_t first,
                                 uint32_t count, const uint8_t *section, tl_fault *fault) {
    tl_cell cell;
    if (!count) return TL_OK;
    tl_status status = tl_cell_take(cells, 16 * (size_t)count, &cell);
    if (status != TL_OK) return tl_snapshot_fault(fault, status, 0, 0, 0);
    uint8_t *records = tl_cell_own(cells, cell);
    int64_t before = -1;
    for (uint32_t k = 0; k < count; k++) {
        const uint8_t *epoch_at = c->remembered_epoch + 4 * (first + k), *end_at = c->remembered + 8 * (first + k);
        int64_t epoch = (int32_t)tl_le32(epoch_at), end = (int64_t)tl_le64(end_at);
        if (epoch <= before)
            return tl_snapshot_fault(fault, TL_BAD_ORDER, position_of(section, epoch_at), before, epoch);
        if (end < 0) return tl_snapshot_fault(fault, TL_BAD_OFFSET, position_of(section, end_at), 0, end);
        tl_cell_store(records, 2 * (size_t)k, (uint32_t)epoch);
        tl_cell_store(records, 2 * (size_t)k + 1, (uint64_t)end);
        before = epoch;
    }
    tl_cell_store(partition, 5, cell | (uint64_t)count << 32);
    return TL_OK;
}

static tl_status load_partition(tl_snapshot_loader *loader, tl_metadata_partitions *names,
                                const tl_partition_columns *c, size_t i, uint64_t *remembered, const uint8_t *section,
                                tl_fault *fault) {
    tl_segment_table *table = loader->table;
    tl_partition_id id = {.partition = (int32_t)tl_le32(c->partition + 4 * i)};
    memcpy(id.topic_id, c->topic_id + 16 * i, 16);
    uint32_t count = tl_le32(c->remembered_count + 4 * i), segments = tl_le32(c->segments + 4 * i);
    uint64_t at = position_of(section, c->partition + 4 * i);
    tl_cell cell;
    tl_status status;
    if (id.partition < 0) return tl_snapshot_fault(fault, TL_BAD_ENTRY, at, 0, id.partition);
    if ((int32_t)tl_le32(c->place + 4 * i) < -1)
        return tl_snapshot_fault(fault, TL_BAD_ENTRY, position_of(section, c->place + 4 * i), -1,
                                 (int32_t)tl_le32(c->place + 4 * i));
    if ((int64_t)tl_le64(c->last_applied + 8 * i) < -1)
        return tl_snapshot_fault(fault, TL_BAD_OFFSET, position_of(section, c->last_applied + 8 * i), -1,
                                 (int64_t)tl_le64(c->last_applied + 8 * i));
    if (tl_partition_find(&table->partitions, table->cells, &id) || (names && tl_metadata_partitions_find(names, &id)))
        return tl_snapshot_fault(fault, TL_BAD_ENTRY, at, 0, id.partition);
    if (!tl_utf8_is_valid(c->names, tl_le32(c->name_size + 4 * i)))
        return tl_snapshot_fault(fault, TL_BAD_ENTRY, position_of(section, c->names), 0, id.partition);
    if (names) {
        status =
            tl_metadata_partitions_add(names, &id, (const char *)c->names, tl_le32(c->name_size + 4 * i),
                                       (int32_t)tl_le32(c->place + 4 * i), (int64_t)tl_le64(c->last_applied + 8 * i));
        if (status != TL_OK) return tl_snapshot_fault(fault, status, at, 0, id.partition);
    }
    loader->partitions[loader->count++] = (expected){0, segments};
    if (!segments && !count) return TL_OK; /* of no use to the table */
    status = tl_partition_make(&table->partitions, table->cells, &id, &cell);
    if (status != TL_OK) return tl_snapshot_fault(fault, status, at, 0, 0);
    loader->partitions[loader->count - 1].cell = cell;
    uint8_t *partition = tl_cell_own(table->cells, cell);
    status = load_remembered(table->cells, partition, c, *remembered, count, section, fault);
    *remembered += count;
    return status;
}

tl_status tl_snapshot_load_partitions(tl_snapshot_loader *loader, tl_metadata_partitions *names, const uint8_t *section,
                                      size_t size, tl_fault *fault) {
    tl_snapshot_head head;
    tl_status status = tl_snapshot_head_read(section, &head, fault);
    if (status != TL_OK) return status;
    uint64_t whole = tl_partition_columns_size(head.count, head.more, head.bytes);
    if (head.kind != TL_SNAPSHOT_PARTITIONS || size != TL_SNAPSHOT_HEAD_BYTES + head.payload_size ||
        whole != head.payload_size)
        return tl_snapshot_fault(fault, TL_BAD_COUNT, 20, (int64_t)head.payload_size, (int64_t)whole);
    if (!head.count) return TL_OK;
    tl_partition_columns columns =
        tl_partition_columns_at((uint8_t *)section + TL_SNAPSHOT_HEAD_BYTES, head.count, head.more, head.bytes);
    uint64_t remembered = 0, bytes = 0;
    for (size_t i = 0; i < head.count; i++) {
        remembered += tl_le32(columns.remembered_count + 4 * i);
        bytes += tl_le32(columns.name_size + 4 * i);
    }
    if (remembered != head.more || bytes != head.bytes)
        return tl_snapshot_fault(fault, TL_BAD_COUNT, 24, (int64_t)head.more, (int64_t)remembered);
    expected *more = realloc(loader->partitions, (loader->count + head.count) * sizeof *more);
    if (!more) return tl_snapshot_fault(fault, TL_NO_MEMORY, 0, 0, 0);
    loader->partitions = more;
    remembered = 0;
    for (size_t i = 0; i < head.count && status == TL_OK; i++) {
        status = load_partition(loader, names, &columns, i, &remembered, section, fault);
        columns.names += tl_le32(columns.name_size + 4 * i);
    }
    return status;
}

/* ---- segments ---- */

static int compare_waiting(const waiting *a, const waiting *b) {
    if (a->span.epoch != b->span.epoch) return a->span.epoch < b->span.epoch ? -1 : 1;
    if (a->span.start_offset != b->span.start_offset) return a->span.start_offset < b->span.start_offset ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (a->id[i] != b->id[i]) return a->id[i] < b->id[i] ? -1 : 1;
    return 0;
}

static void push_waiting(tl_snapshot_loader *loader, const waiting *item) {
    size_t i = loader->waiting++;
    for (; i && compare_waiting(item, &loader->heap[(i - 1) / 2]) < 0; i = (i - 1) / 2)
        loader->heap[i] = loader->heap[(i - 1) / 2];
    loader->heap[i] = *item;
}

static waiting pop_waiting(tl_snapshot_loader *loader) {
    waiting least = loader->heap[0], last = loader->heap[--loader->waiting];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= loader->waiting) break;
        if (child + 1 < loader->waiting && compare_waiting(&loader->heap[child + 1], &loader->heap[child]) < 0) child++;
        if (compare_waiting(&last, &loader->heap[child]) <= 0) break;
        loader->heap[i] = loader->heap[child];
        i = child;
    }
    if (loader->waiting) loader->heap[i] = last;
    return least;
}

static tl_status append(tl_snapshot_loader *loader, const waiting *item) {
    tl_cells *cells = loader->table->cells;
    uint8_t *partition = tl_cell_own(cells, loader->partitions[loader->at].cell);
    tl_order order = tl_partition_order(partition);
    bool overlaps;
    tl_status status =
        tl_order_insert(cells, &order, item->row_cell, item->ordinal, &item->span, item->id, item->marks, &overlaps);
    tl_partition_put_order(partition, order);
    if (overlaps) tl_partition_set_overlaps(partition);
    return status;
}

/* Those that stand before an item, or all of them. */
static tl_status append_waiting(tl_snapshot_loader *loader, const waiting *before) {
    while (loader->waiting && (!before || compare_waiting(&loader->heap[0], before) < 0)) {
        waiting item = pop_waiting(loader);
        tl_status status = append(loader, &item);
        if (status != TL_OK) return status;
    }
    return TL_OK;
}

static tl_status index_rows(tl_snapshot_loader *loader) {
    size_t done, count = loader->row_count;
    loader->row_count = 0;
    return tl_segment_ids_insert_many(&loader->table->ids, loader->table->cells, loader->rows, count, &done);
}

static uint32_t table_mark(uint8_t mark) {
    return mark == TL_SNAPSHOT_REFERENCED ? TL_ORDER_REFERENCED : mark == TL_SNAPSHOT_LOST ? TL_ORDER_LOST : 0;
}

/* The entries of a row: the first epoch's now, behind all that stand before it. */
static tl_status put_entries(tl_snapshot_loader *loader, tl_cell row_cell, const tl_segment *segment,
                             const uint8_t *marks) {
    waiting item = {.row_cell = row_cell};
    memcpy(item.id, segment->id, 16);
    for (size_t k = 0; k < segment->epoch_count; k++) {
        bool last = k + 1 == segment->epoch_count;
        item.span = (tl_epoch_span){segment->epochs[k].epoch, segment->epochs[k].start_offset,
                                    last ? segment->end_offset : segment->epochs[k + 1].start_offset - 1};
        item.ordinal = (uint32_t)k;
        item.marks = loader->table->as_kafka ? table_mark(marks[k]) : 0;
        tl_status status = TL_OK;
        if (k == 0) {
            status = append_waiting(loader, &item);
            if (status == TL_OK) status = append(loader, &item);
        } else {
            if (loader->waiting == WAITING_MAX) {
                waiting least = pop_waiting(loader);
                status = append(loader, &least);
            }
            push_waiting(loader, &item);
        }
        if (status != TL_OK) return status;
    }
    return TL_OK;
}

/* A segment and its marks. */
static tl_status load_segment(tl_snapshot_loader *loader, const tl_segment *segment, uint8_t flags,
                              const uint8_t *marks) {
    tl_segment_table *table = loader->table;
    expected *in = &loader->partitions[loader->at];
    tl_cell row_cell;
    tl_status status = tl_row_make(table->cells, in->cell, segment, &row_cell);
    if (status != TL_OK) return status;
    if (flags & TL_SNAPSHOT_WAS_FINISHED) {
        uint8_t *row = tl_cell_own(table->cells, row_cell);
        tl_cell_store(row, 4, tl_cell_load(row, 4) | TL_ROW_WAS_FINISHED);
    }
    status = put_entries(loader, row_cell, segment, marks);
    loader->rows[loader->row_count++] = row_cell;
    if (status == TL_OK && loader->row_count == ROWS_AT_ONCE) status = index_rows(loader);
    table->segments++;
    in->segments--;
    uint8_t *partition = tl_cell_own(table->cells, in->cell);
    tl_partition_add_segments(partition, 1);
    return status;
}

/* To the partition of the next segment. */
static tl_status go_on(tl_snapshot_loader *loader, bool *ended) {
    while (loader->at < loader->count && loader->partitions[loader->at].segments == 0) {
        tl_status status = append_waiting(loader, NULL);
        if (status != TL_OK) return status;
        loader->at++;
    }
    *ended = loader->at == loader->count;
    return TL_OK;
}

/* Checks a segment for values that no row can hold, or no table could have; the columns have been found long enough. */
static tl_status check_segment(const tl_segment *segment, uint8_t flags, const uint8_t *marks) {
    bool finished = segment->state == TL_COPY_FINISHED, was = (flags & TL_SNAPSHOT_WAS_FINISHED) != 0;
    if (flags > (TL_SNAPSHOT_STATE | TL_SNAPSHOT_TXN_EMPTY | TL_SNAPSHOT_WAS_FINISHED)) return TL_BAD_ENTRY;
    if (!tl_segment_is_sound(segment)) return TL_BAD_OFFSET;
    if ((finished && !was) || (segment->state == TL_COPY_STARTED && was)) return TL_BAD_ENTRY;
    for (size_t k = 0; k < segment->epoch_count; k++)
        if (marks[k] > TL_SNAPSHOT_LOST || (marks[k] && !finished)) return TL_BAD_ENTRY;
    return TL_OK;
}

static bool sums_hold(const tl_segment_columns *c, const tl_snapshot_head *head) {
    uint64_t epochs = 0, bytes = 0;
    for (size_t i = 0; i < head->count; i++) {
        uint32_t custom = tl_le32(c->custom_size + 4 * i);
        epochs += tl_le32(c->epoch_count + 4 * i);
        bytes += custom == UINT32_MAX ? 0 : custom;
    }
    return epochs == head->more && bytes == head->bytes;
}

static tl_status room_for_epochs(tl_snapshot_loader *loader, size_t count) {
    if (count <= loader->epochs_capacity) return TL_OK;
    tl_segment_epoch *more = realloc(loader->epochs, count * sizeof *more);
    if (!more) return TL_NO_MEMORY;
    loader->epochs = more;
    loader->epochs_capacity = count;
    return TL_OK;
}

tl_status tl_snapshot_load_segments(tl_snapshot_loader *loader, const uint8_t *section, size_t size, tl_fault *fault) {
    tl_snapshot_head head;
    tl_status status = tl_snapshot_head_read(section, &head, fault);
    if (status != TL_OK) return status;
    uint64_t whole = tl_segment_columns_size(head.count, head.more, head.bytes);
    if (head.kind != TL_SNAPSHOT_SEGMENTS || size != TL_SNAPSHOT_HEAD_BYTES + head.payload_size ||
        whole != head.payload_size)
        return tl_snapshot_fault(fault, TL_BAD_COUNT, 20, (int64_t)head.payload_size, (int64_t)whole);
    tl_segment_columns c =
        tl_segment_columns_at((uint8_t *)section + TL_SNAPSHOT_HEAD_BYTES, head.count, head.more, head.bytes);
    if (!sums_hold(&c, &head)) return tl_snapshot_fault(fault, TL_BAD_COUNT, 24, head.more, 0);
    for (size_t i = 0; i < head.count; i++) {
        bool ended;
        uint64_t at = position_of(section, c.id + 16 * i);
        status = go_on(loader, &ended);
        if (status == TL_OK && ended) status = TL_BAD_COUNT;
        uint32_t epochs = tl_le32(c.epoch_count + 4 * i);
        if (status == TL_OK) status = room_for_epochs(loader, epochs);
        if (status != TL_OK) return tl_snapshot_fault(fault, status, at, 0, 0);
        for (uint32_t k = 0; k < epochs; k++)
            loader->epochs[k] = (tl_segment_epoch){(int32_t)tl_le32(c.epoch + 4 * (size_t)k),
                                                   (int64_t)tl_le64(c.epoch_start + 8 * (size_t)k)};
        tl_segment segment = {.start_offset = (int64_t)tl_le64(c.start_offset + 8 * i),
                              .end_offset = (int64_t)tl_le64(c.end_offset + 8 * i),
                              .max_timestamp_ms = (int64_t)tl_le64(c.max_timestamp + 8 * i),
                              .event_timestamp_ms = (int64_t)tl_le64(c.event_timestamp + 8 * i),
                              .broker_id = (int32_t)tl_le32(c.broker + 4 * i),
                              .size_bytes = (int32_t)tl_le32(c.size_bytes + 4 * i),
                              .state = c.flags[i] & TL_SNAPSHOT_STATE,
                              .txn_index_empty = (c.flags[i] & TL_SNAPSHOT_TXN_EMPTY) != 0,
                              .epochs = loader->epochs,
                              .epoch_count = epochs,
                              .custom = c.custom,
                              .custom_size = (int32_t)tl_le32(c.custom_size + 4 * i)};
        memcpy(segment.id, c.id + 16 * i, 16);
        if (segment.custom_size < -1) return tl_snapshot_fault(fault, TL_BAD_COUNT, at, -1, segment.custom_size);
        status = check_segment(&segment, c.flags[i], c.mark);
        if (status == TL_OK) status = load_segment(loader, &segment, c.flags[i], c.mark);
        if (status != TL_OK) return tl_snapshot_fault(fault, status, at, 0, 0);
        c.epoch += 4 * (size_t)epochs;
        c.epoch_start += 8 * (size_t)epochs;
        c.mark += epochs;
        if (segment.custom_size > 0) c.custom += segment.custom_size;
    }
    status = index_rows(loader);
    return status == TL_OK ? TL_OK : tl_snapshot_fault(fault, status, 0, 0, 0);
}

tl_status tl_snapshot_load_end(tl_snapshot_loader *loader, tl_fault *fault) {
    bool ended;
    tl_status status = go_on(loader, &ended);
    if (status == TL_OK) status = ended ? TL_OK : TL_BAD_COUNT;
    return status == TL_OK ? TL_OK : tl_snapshot_fault(fault, status, 0, 0, 0);
}
