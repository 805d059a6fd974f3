/* Sections, and a table's columns into them. Loading is segment_snapshot_load.c's. */
#include "tierlog/segment_snapshot.h"

#include "table/segment_snapshot_parts.h"
#include "tierlog/checksum.h"

#include <stdlib.h>
#include <string.h>

tl_status tl_snapshot_fault(tl_fault *fault, tl_status status, uint64_t position, int64_t expected, int64_t found) {
    *fault = (tl_fault){position, -1, -1, expected, found};
    return status;
}

tl_status tl_snapshot_head_read(const uint8_t head[TL_SNAPSHOT_HEAD_BYTES], tl_snapshot_head *out, tl_fault *fault) {
    out->crc = tl_le32(head);
    out->kind = tl_le32(head + 4);
    out->payload_size = tl_le64(head + 8);
    out->number = tl_le32(head + 16);
    out->count = tl_le32(head + 20);
    out->more = tl_le32(head + 24);
    out->bytes = tl_le32(head + 28);
    if (out->kind < TL_SNAPSHOT_TOPIC || out->kind > TL_SNAPSHOT_END)
        return tl_snapshot_fault(fault, TL_BAD_ENTRY, 4, 0, out->kind);
    const uint64_t most = TL_SNAPSHOT_SECTION_MAX - TL_SNAPSHOT_HEAD_BYTES;
    if (out->payload_size % 8 || out->payload_size > most)
        return tl_snapshot_fault(fault, TL_BAD_SIZE, 8, (int64_t)most,
                                 out->payload_size > INT64_MAX ? INT64_MAX : (int64_t)out->payload_size);
    return TL_OK;
}

tl_status tl_snapshot_check(const uint8_t *section, size_t size, tl_snapshot_head *out, tl_fault *fault) {
    if (size < TL_SNAPSHOT_HEAD_BYTES)
        return tl_snapshot_fault(fault, TL_TRUNCATED, 0, TL_SNAPSHOT_HEAD_BYTES, (int64_t)size);
    tl_status status = tl_snapshot_head_read(section, out, fault);
    if (status != TL_OK) return status;
    size_t whole = TL_SNAPSHOT_HEAD_BYTES + (size_t)out->payload_size;
    if (size != whole)
        return tl_snapshot_fault(fault, size < whole ? TL_TRUNCATED : TL_TRAILING_BYTES, 0, (int64_t)whole,
                                 (int64_t)size);
    uint32_t crc = tl_crc32c(0, section + 4, size - 4);
    return crc == out->crc ? TL_OK : tl_snapshot_fault(fault, TL_BAD_CRC, 0, out->crc, crc);
}

void tl_snapshot_seal(uint8_t *section, tl_snapshot_head head) {
    tl_put_le32(section + 4, head.kind);
    tl_put_le64(section + 8, head.payload_size);
    tl_put_le32(section + 16, head.number);
    tl_put_le32(section + 20, head.count);
    tl_put_le32(section + 24, head.more);
    tl_put_le32(section + 28, head.bytes);
    tl_put_le32(section, tl_crc32c(0, section + 4, TL_SNAPSHOT_HEAD_BYTES - 4 + (size_t)head.payload_size));
}

/* Columns one behind the other. */
static uint8_t *take(uint8_t **at, size_t size) {
    uint8_t *column = *at;
    *at += size;
    return column;
}

tl_partition_columns tl_partition_columns_at(uint8_t *payload, uint64_t count, uint64_t remembered, uint64_t bytes) {
    uint8_t *at = payload;
    tl_partition_columns c;
    c.topic_id = take(&at, 16 * count);
    c.last_applied = take(&at, 8 * count);
    c.remembered = take(&at, 8 * remembered);
    c.segments = take(&at, 4 * count);
    c.partition = take(&at, 4 * count);
    c.place = take(&at, 4 * count);
    c.remembered_count = take(&at, 4 * count);
    c.name_size = take(&at, 4 * count);
    c.remembered_epoch = take(&at, 4 * remembered);
    c.names = take(&at, bytes);
    return c;
}

tl_segment_columns tl_segment_columns_at(uint8_t *payload, uint64_t count, uint64_t epochs, uint64_t bytes) {
    uint8_t *at = payload;
    tl_segment_columns c;
    c.id = take(&at, 16 * count);
    c.start_offset = take(&at, 8 * count);
    c.end_offset = take(&at, 8 * count);
    c.max_timestamp = take(&at, 8 * count);
    c.event_timestamp = take(&at, 8 * count);
    c.epoch_start = take(&at, 8 * epochs);
    c.broker = take(&at, 4 * count);
    c.size_bytes = take(&at, 4 * count);
    c.epoch_count = take(&at, 4 * count);
    c.custom_size = take(&at, 4 * count);
    c.epoch = take(&at, 4 * epochs);
    c.flags = take(&at, count);
    c.mark = take(&at, epochs);
    c.custom = take(&at, bytes);
    return c;
}

/* The place at which the segments go on: the first epoch's entry of a segment. */
typedef struct place {
    size_t partition;
    bool begun; /* `at` is an entry of the partition */
    tl_order_cursor at;
} place;

typedef struct written {
    const uint8_t *cell; /* NULL: nothing was ever applied to it */
    uint64_t sequence;
} written;

struct tl_snapshot_writer {
    const tl_segment_table *table;
    const tl_snapshot_partition *partitions;
    size_t count, next_partition;
    uint64_t segments;
    place next;
    written cells[];
};

static uint32_t segments_of(const uint8_t *partition) { return partition ? tl_partition_segments(partition) : 0; }

static uint32_t remembered_of(const uint8_t *partition) {
    return partition ? (uint32_t)(tl_cell_load(partition, 5) >> 32) : 0;
}

tl_status tl_snapshot_writer_create(tl_snapshot_writer **out, const tl_segment_table *table,
                                    const tl_snapshot_partition *partitions, size_t count) {
    tl_snapshot_writer *writer = calloc(1, sizeof *writer + count * sizeof(written));
    if (!writer) return TL_NO_MEMORY;
    writer->table = table;
    writer->partitions = partitions;
    writer->count = count;
    for (size_t i = 0; i < count; i++) {
        tl_cell cell = tl_partition_find(&table->partitions, table->cells, &partitions[i].id);
        if (!cell) continue;
        const uint8_t *at = tl_cell_own(table->cells, cell);
        writer->cells[i] = (written){at, tl_cell_load(at, 6)};
        writer->segments += segments_of(at);
    }
    *out = writer;
    return TL_OK;
}

void tl_snapshot_writer_destroy(tl_snapshot_writer *writer) { free(writer); }

uint64_t tl_snapshot_writer_segments(const tl_snapshot_writer *writer) { return writer->segments; }

bool tl_snapshot_writer_as_kafka(const tl_snapshot_writer *writer) { return writer->table->as_kafka; }

/* A cell that was a partition is one for ever, and its sequence number never comes back. */
static bool is_unchanged(const tl_snapshot_writer *writer, size_t i) {
    if (i >= writer->count) return true;
    const written *w = &writer->cells[i];
    return w->cell ? tl_cell_load(w->cell, 6) == w->sequence
                   : !tl_partition_find(&writer->table->partitions, writer->table->cells, &writer->partitions[i].id);
}

static void put_partition(const tl_snapshot_writer *writer, size_t from, size_t i, tl_partition_columns *c,
                          uint64_t *remembered, uint8_t **names) {
    const tl_snapshot_partition *p = &writer->partitions[from + i];
    const uint8_t *partition = writer->cells[from + i].cell;
    uint32_t count = remembered_of(partition);
    memcpy(c->topic_id + 16 * i, p->id.topic_id, 16);
    tl_put_le64(c->last_applied + 8 * i, (uint64_t)p->last_applied_offset);
    tl_put_le32(c->segments + 4 * i, segments_of(partition));
    tl_put_le32(c->partition + 4 * i, (uint32_t)p->id.partition);
    tl_put_le32(c->place + 4 * i, (uint32_t)p->place);
    tl_put_le32(c->remembered_count + 4 * i, count);
    tl_put_le32(c->name_size + 4 * i, (uint32_t)p->name_size);
    if (p->name_size) memcpy(take(names, p->name_size), p->name, p->name_size);
    if (!count) return;
    const uint8_t *records = tl_cell_own(writer->table->cells, (tl_cell)tl_cell_load(partition, 5));
    for (uint32_t k = 0; k < count; k++, ++*remembered) {
        tl_put_le32(c->remembered_epoch + 4 * *remembered, (uint32_t)tl_cell_load(records, 2 * (size_t)k));
        tl_put_le64(c->remembered + 8 * *remembered, tl_cell_load(records, 2 * (size_t)k + 1));
    }
}

tl_status tl_snapshot_put_partitions(tl_snapshot_writer *writer, uint32_t number, uint8_t *out, size_t *size) {
    uint64_t remembered = 0, bytes = 0;
    size_t from = writer->next_partition, taken = 0;
    for (; from + taken < writer->count; taken++) {
        size_t name_size = writer->partitions[from + taken].name_size;
        if (name_size > TL_SNAPSHOT_NAME_MAX) return TL_OVER_LIMIT;
        if (!is_unchanged(writer, from + taken)) return TL_BAD_ARGUMENT;
        uint64_t more = remembered + remembered_of(writer->cells[from + taken].cell), names = bytes + name_size;
        if (taken && tl_partition_columns_size(taken + 1, more, names) > TL_SNAPSHOT_SECTION_USUAL) break;
        remembered = more;
        bytes = names;
    }
    *size = 0;
    if (!taken) return TL_OK;
    writer->next_partition += taken;
    uint64_t payload_size = tl_partition_columns_size(taken, remembered, bytes);
    tl_partition_columns columns = tl_partition_columns_at(out + TL_SNAPSHOT_HEAD_BYTES, taken, remembered, bytes);
    memset(out + TL_SNAPSHOT_HEAD_BYTES + payload_size - 8, 0, 8);
    uint64_t at = 0;
    uint8_t *names = columns.names;
    for (size_t i = 0; i < taken; i++) put_partition(writer, from, i, &columns, &at, &names);
    *size = TL_SNAPSHOT_HEAD_BYTES + (size_t)payload_size;
    tl_snapshot_seal(out, (tl_snapshot_head){.kind = TL_SNAPSHOT_PARTITIONS,
                                             .number = number,
                                             .count = (uint32_t)taken,
                                             .more = (uint32_t)remembered,
                                             .bytes = (uint32_t)bytes,
                                             .payload_size = payload_size});
    return TL_OK;
}

/* The next entry that stands for a segment's first epoch; false at the end of all partitions. */
static bool next_first(const tl_snapshot_writer *w, place *p, tl_order_entry *entry, tl_status *status) {
    for (; p->partition < w->count; p->partition++, p->begun = false) {
        const uint8_t *cell = w->cells[p->partition].cell;
        bool there;
        if (!is_unchanged(w, p->partition)) {
            *status = TL_BAD_ARGUMENT;
            return false;
        }
        if (!cell) continue;
        if (p->begun) {
            there = tl_order_next(&p->at);
        } else {
            tl_order_key first = {.epoch = INT32_MIN, .start_offset = INT64_MIN};
            there = tl_order_lower(w->table->cells, tl_partition_order(cell), &first, &p->at);
        }
        p->begun = true;
        for (; there; there = tl_order_next(&p->at))
            if (tl_order_read(&p->at, entry) && entry->ordinal == 0) return true;
    }
    return false;
}

static int64_t custom_of(const tl_cells *cells, const tl_row *row, tl_cell *cell) {
    *cell = 0;
    if (!(tl_row_flags(row) & TL_ROW_CUSTOM)) return -1;
    uint64_t word = tl_cell_load(tl_cell_own(cells, tl_row_more(row)), 0);
    *cell = (tl_cell)word;
    return (int64_t)(word >> 32);
}

static uint8_t mark_of(uint32_t marks) {
    return marks & TL_ORDER_REFERENCED ? TL_SNAPSHOT_REFERENCED
           : marks & TL_ORDER_LOST     ? TL_SNAPSHOT_LOST
                                       : TL_SNAPSHOT_PLAIN;
}

/* The mark of an epoch's entry, which lies elsewhere in the order. */
static uint8_t find_mark(const tl_snapshot_writer *w, const uint8_t *partition, const tl_order_entry *first,
                         const tl_epoch_span *span) {
    const tl_cells *cells = w->table->cells;
    tl_order_key key = {span->epoch, span->start_offset, {first->row.words[0], first->row.words[1]}};
    tl_order_cursor at;
    tl_order_entry entry;
    bool found = tl_order_lower(cells, tl_partition_order(partition), &key, &at) && tl_order_read(&at, &entry) &&
                 entry.row_cell == first->row_cell;
    return found ? mark_of(entry.marks) : TL_SNAPSHOT_PLAIN;
}

static void put_segment(const tl_snapshot_writer *w, const uint8_t *partition, const tl_order_entry *entry, size_t i,
                        tl_segment_columns *c, uint64_t *epoch, uint8_t **custom_at) {
    const tl_cells *cells = w->table->cells;
    const tl_row *row = &entry->row;
    tl_cell custom;
    int64_t size = custom_of(cells, row, &custom);
    uint32_t epochs = tl_row_epoch_count(cells, row);
    memcpy(c->id + 16 * i, row->words, 16);
    tl_put_le64(c->start_offset + 8 * i, (uint64_t)tl_row_start(row));
    tl_put_le64(c->end_offset + 8 * i, (uint64_t)tl_row_end(cells, row));
    tl_put_le64(c->max_timestamp + 8 * i, (uint64_t)tl_row_max_timestamp(cells, row));
    tl_put_le64(c->event_timestamp + 8 * i, row->words[3]);
    tl_put_le32(c->broker + 4 * i, (uint32_t)row->words[6]);
    tl_put_le32(c->size_bytes + 4 * i, (uint32_t)tl_row_size_bytes(row));
    tl_put_le32(c->epoch_count + 4 * i, epochs);
    tl_put_le32(c->custom_size + 4 * i, (uint32_t)(int32_t)size);
    unsigned flags = tl_row_flags(row);
    c->flags[i] = (uint8_t)((flags & TL_ROW_STATE) | (flags & TL_ROW_TXN_EMPTY ? TL_SNAPSHOT_TXN_EMPTY : 0u) |
                            (flags & TL_ROW_WAS_FINISHED ? TL_SNAPSHOT_WAS_FINISHED : 0u));
    for (uint32_t k = 0; k < epochs; k++, ++*epoch) {
        tl_epoch_span span = entry->span;
        if (k) tl_row_span(cells, row, k, &span);
        tl_put_le32(c->epoch + 4 * *epoch, (uint32_t)span.epoch);
        tl_put_le64(c->epoch_start + 8 * *epoch, (uint64_t)span.start_offset);
        c->mark[*epoch] = !w->table->as_kafka ? TL_SNAPSHOT_PLAIN
                          : k                 ? find_mark(w, partition, entry, &span)
                                              : mark_of(entry->marks);
    }
    if (size > 0) memcpy(take(custom_at, (size_t)size), tl_cell_own(cells, custom), (size_t)size);
}

tl_status tl_snapshot_put_segments(tl_snapshot_writer *writer, uint32_t number, uint8_t *out, size_t *size) {
    const tl_cells *cells = writer->table->cells;
    uint64_t count = 0, epochs = 0, bytes = 0;
    place end = writer->next;
    tl_order_entry entry;
    tl_status status = TL_OK;
    while (count < TL_SNAPSHOT_SEGMENTS_MAX) {
        place before = end;
        if (!next_first(writer, &end, &entry, &status)) break;
        tl_cell cell;
        int64_t custom = custom_of(cells, &entry.row, &cell);
        uint64_t more = epochs + tl_row_epoch_count(cells, &entry.row),
                 room = bytes + (custom > 0 ? (uint64_t)custom : 0);
        if (count && tl_segment_columns_size(count + 1, more, room) > TL_SNAPSHOT_SECTION_USUAL) {
            end = before;
            break;
        }
        count++;
        epochs = more;
        bytes = room;
    }
    *size = 0;
    if (!count || status != TL_OK) return status;
    uint64_t payload_size = tl_segment_columns_size(count, epochs, bytes);
    tl_segment_columns columns = tl_segment_columns_at(out + TL_SNAPSHOT_HEAD_BYTES, count, epochs, bytes);
    memset(out + TL_SNAPSHOT_HEAD_BYTES + payload_size - 8, 0, 8);
    uint64_t epoch = 0;
    uint8_t *custom = columns.custom;
    for (size_t i = 0; i < count; i++) {
        next_first(writer, &writer->next, &entry, &status);
        put_segment(writer, writer->cells[writer->next.partition].cell, &entry, i, &columns, &epoch, &custom);
    }
    *size = TL_SNAPSHOT_HEAD_BYTES + (size_t)payload_size;
    tl_snapshot_seal(out, (tl_snapshot_head){.kind = TL_SNAPSHOT_SEGMENTS,
                                             .number = number,
                                             .count = (uint32_t)count,
                                             .more = (uint32_t)epochs,
                                             .bytes = (uint32_t)bytes,
                                             .payload_size = payload_size});
    return TL_OK;
}
