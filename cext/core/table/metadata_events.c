#include "tierlog/metadata_events.h"
#include "struct_size.h"

#include "table/metadata_record.h"
#include "tierlog/checksum.h"
#include "tierlog/decode.h"

#include <stdlib.h>

enum {
    GROUP = 256, /* events that go to the table at once */
    VALUE_BYTES = 64 << 10,
    KEY_BYTES = 4 << 10,
    KEPT_BYTES_MAX = 4 << 20,
    ROOMY_EPOCHS = 4 * GROUP, /* of a group, so that they stay in the cache */
    EPOCHS = ROOMY_EPOCHS + 2 * TL_SEGMENT_EPOCHS_MAX,
};

static const uint64_t DECOMPRESSED_LIMIT = 1u << 28;

struct tl_metadata_feed {
    tl_segment_table *table;
    tl_metadata_partitions *partitions;
    bool learns;
    int32_t place;

    size_t events_count, epochs_count;
    tl_segment_event events[GROUP];
    int64_t offsets[GROUP], applied_before[GROUP]; /* of an event: its own, and its partition's before it */
    tl_segment_epoch *epochs;

    tl_decode_state state;
    tl_status decoded; /* what tl_decode said behind the rows that are there */
    tl_fault decode_fault;
    int64_t row; /* the next one to apply */
    bool has_rows;
    tl_scratch scratch;
    tl_columns columns;
};

static tl_status make_binary(tl_binary *column, int64_t size) {
    column->offsets = malloc((GROUP + 1) * sizeof *column->offsets);
    column->validity = malloc(GROUP / 8);
    column->data = malloc((size_t)size);
    column->data_capacity = size;
    return column->offsets && column->validity && column->data ? TL_OK : TL_NO_MEMORY;
}

static void drop_binary(tl_binary *column) {
    free(column->offsets);
    free(column->validity);
    free(column->data);
}

tl_status tl_metadata_feed_create(tl_metadata_feed **out, tl_segment_table *table, tl_metadata_partitions *partitions,
                                  bool learns) {
    tl_metadata_feed *feed = calloc(1, sizeof *feed);
    if (!feed) return TL_NO_MEMORY;
    feed->table = table;
    feed->partitions = partitions;
    feed->learns = learns;
    tl_columns *columns = &feed->columns;
    columns->struct_size = sizeof *columns;
    columns->want = TL_COLUMN_KEY | TL_COLUMN_VALUE | TL_COLUMN_OFFSET | TL_COLUMN_TIMESTAMP;
    columns->row_capacity = GROUP;
    columns->offset = malloc(GROUP * sizeof *columns->offset);
    columns->timestamp = malloc(GROUP * sizeof *columns->timestamp);
    feed->epochs = malloc(EPOCHS * sizeof *feed->epochs); /* pages that are never touched take no memory */
    tl_status status = columns->offset && columns->timestamp && feed->epochs ? TL_OK : TL_NO_MEMORY;
    if (status == TL_OK) status = make_binary(&columns->key, KEY_BYTES);
    if (status == TL_OK) status = make_binary(&columns->value, VALUE_BYTES);
    if (status == TL_OK) status = tl_codecs_create(&feed->scratch.codecs);
    if (status != TL_OK) {
        tl_metadata_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return TL_OK;
}

void tl_metadata_feed_destroy(tl_metadata_feed *feed) {
    if (!feed) return;
    drop_binary(&feed->columns.key);
    drop_binary(&feed->columns.value);
    free(feed->columns.offset);
    free(feed->columns.timestamp);
    free(feed->epochs);
    free(feed->scratch.data);
    if (feed->scratch.codecs) tl_codecs_destroy(feed->scratch.codecs);
    free(feed);
}

/* Frees a giant batch's memory before the next run. */
static void shrink(tl_metadata_feed *feed) {
    if (feed->scratch.capacity <= KEPT_BYTES_MAX) return;
    free(feed->scratch.data);
    feed->scratch.data = NULL;
    feed->scratch.capacity = 0;
}

static void shrink_column(tl_binary *column) {
    if (column->data_capacity <= KEPT_BYTES_MAX) return;
    free(column->data);
    column->data = NULL;
    column->data_capacity = 0;
}

void tl_metadata_feed_begin(tl_metadata_feed *feed, int32_t place) {
    shrink(feed);
    shrink_column(&feed->columns.key);
    shrink_column(&feed->columns.value);
    feed->place = place;
    feed->events_count = feed->epochs_count = 0;
    feed->state = (tl_decode_state){0};
    feed->has_rows = false;
}

/* ---- events to the table ---------------------------------------------------------------------------------------- */

static const uint8_t *id_of(const tl_segment_event *event) {
    return event->is_change ? event->of.change.id : event->of.segment.id;
}

static void count_refusal(tl_metadata_report *report, const tl_segment_event *event, int64_t offset) {
    report->refused++;
    if (report->refusals_count == report->refusals_capacity) return;
    tl_metadata_refusal *refusal = &report->refusals[report->refusals_count++];
    *refusal = (tl_metadata_refusal){.offset = offset, .partition = event->partition};
    memcpy(refusal->id, id_of(event), 16);
    refusal->found_state = (int8_t)event->found_state;
    refusal->state = event->is_change ? event->of.change.state : event->of.segment.state;
}

/* The events that were collected, to the table. After a fault those that it did not take count as never seen. */
static tl_status flush(tl_metadata_feed *feed, tl_metadata_report *report, tl_fault *fault) {
    size_t count = feed->events_count, done = 0;
    feed->events_count = feed->epochs_count = 0;
    if (!count) return TL_OK;
    tl_status status = tl_segment_table_apply(feed->table, feed->events, count, &done);
    for (size_t i = 0; i < done; i++) {
        if (feed->events[i].outcome == TL_EVENT_APPLIED) {
            report->applied++;
        } else {
            count_refusal(report, &feed->events[i], feed->offsets[i]);
        }
    }
    if (status == TL_OK) return TL_OK;
    for (size_t i = count; i-- > done;)
        tl_metadata_partitions_find(feed->partitions, &feed->events[i].partition)->applied = feed->applied_before[i];
    *fault = (tl_fault){.base_offset = feed->offsets[done], .record = -1, .expected = fault->expected};
    report->next_offset = feed->offsets[done];
    return status;
}

/* A segment that begins in another state than COPY_STARTED, or an update back to it: no table takes it. */
static tl_status refuse(tl_metadata_feed *feed, tl_segment_event *event, int64_t offset, tl_metadata_report *report,
                        tl_fault *fault) {
    tl_segment_copy copy;
    bool found;
    tl_status status = flush(feed, report, fault);
    if (status == TL_OK)
        status = tl_segment_table_get(feed->table, &event->partition, id_of(event), NULL, &copy, &found);
    if (status != TL_OK) return status;
    event->outcome = TL_EVENT_BAD_TRANSITION;
    event->found_state = found ? copy.state : -1;
    count_refusal(report, event, offset);
    return TL_OK;
}

/* The entry of the record's partition; NULL: it is not assigned. */
static tl_status entry_of(tl_metadata_feed *feed, const tl_metadata_head *head, tl_metadata_partition **out,
                          tl_fault *fault) {
    *out = tl_metadata_partitions_find(feed->partitions, &head->partition);
    if (!*out) {
        if (!feed->learns) return TL_OK;
        if (!tl_metadata_is_name(head->name, head->name_size)) return TL_BAD_FIELD_LENGTH;
        tl_status status = tl_metadata_partitions_add(feed->partitions, &head->partition, head->name, head->name_size,
                                                      feed->place, -1);
        if (status != TL_OK) return status;
        *out = tl_metadata_partitions_find(feed->partitions, &head->partition);
        return TL_OK;
    }
    const tl_metadata_topic *topic = (*out)->topic;
    if (topic->name_size != head->name_size || memcmp(topic->name, head->name, head->name_size) != 0)
        return TL_BAD_ENTRY;
    if ((*out)->place == feed->place) return TL_OK;
    if ((*out)->place >= 0) {
        fault->expected = (*out)->place;
        fault->found = feed->place;
        return TL_BAD_ENTRY;
    }
    (*out)->place = feed->place;
    return TL_OK;
}

/* The removal of a partition that is not assigned; TL_FULL: it is yet to be reported. */
static tl_status take_elsewhere(tl_cursor *cursor, const tl_metadata_head *head, int64_t offset,
                                tl_metadata_report *report) {
    tl_fault ignored = {0};
    tl_metadata_removal removal = {.offset = offset};
    tl_metadata_name name = {0};
    bool reads = head->name_size && head->name_size <= sizeof name.data &&
                 tl_metadata_is_name(head->name, head->name_size) &&
                 tl_metadata_take_removal(cursor, head, &removal, &ignored) == TL_OK;
    if (!reads) {
        report->passed_over++;
        return TL_OK;
    }
    if (report->removals_count == report->removals_capacity) return TL_FULL;
    name.size = (uint8_t)head->name_size;
    memcpy(name.data, head->name, head->name_size);
    report->removal_names[report->removals_count] = name;
    report->removals[report->removals_count++] = removal;
    return TL_OK;
}

static tl_status take_value(tl_metadata_feed *feed, const tl_metadata_value *value, tl_metadata_report *report,
                            tl_fault *fault) {
    if (value->size < 0) {
        if (!value->has_key) return TL_BAD_FIELD_LENGTH;
        report->tombstones++;
        return TL_OK;
    }
    tl_cursor cursor = {value->data, value->data + value->size};
    tl_metadata_head head;
    tl_metadata_partition *entry;
    tl_status status = tl_metadata_take_head(&cursor, &head, fault);
    if (status == TL_OK) status = entry_of(feed, &head, &entry, fault);
    if (status != TL_OK) {
        fault->position = (uint64_t)(cursor.at - value->data);
        return status;
    }
    if (!entry && report->removal_names && head.kind == TL_METADATA_REMOVAL)
        return take_elsewhere(&cursor, &head, value->offset, report);
    if (!entry || value->offset <= entry->applied) {
        report->passed_over++;
        return TL_OK;
    }
    size_t at = feed->events_count;
    tl_segment_event *event = &feed->events[at];
    if (head.kind == TL_METADATA_REMOVAL) {
        status = flush(feed, report, fault);
        if (status != TL_OK) return status;
        if (report->removals_count == report->removals_capacity) return TL_FULL;
        tl_metadata_removal *removal = &report->removals[report->removals_count];
        removal->offset = value->offset;
        status = tl_metadata_take_removal(&cursor, &head, removal, fault);
        if (report->removal_names) report->removal_names[report->removals_count].size = 0;
        report->removals_count += status == TL_OK;
    } else {
        status = tl_metadata_take_event(&cursor, &head, feed->epochs + feed->epochs_count, event, fault);
        if (status == TL_OVER_LIMIT) {
            if (!report->oversized++) report->oversized_offset = value->offset;
            entry->applied = value->offset;
            return TL_OK;
        }
    }
    if (status != TL_OK) {
        fault->position = (uint64_t)(cursor.at - value->data);
        return status;
    }
    int64_t before = entry->applied;
    if (head.kind != TL_METADATA_REMOVAL) {
        uint8_t state = event->is_change ? event->of.change.state : event->of.segment.state;
        if (event->is_change == (state == TL_COPY_STARTED)) {
            tl_segment_event refused = *event;
            status = refuse(feed, &refused, value->offset, report, fault);
            if (status != TL_OK) return status;
        } else {
            feed->offsets[at] = value->offset;
            feed->applied_before[at] = before;
            feed->events_count++;
            if (!event->is_change) feed->epochs_count += event->of.segment.epoch_count;
        }
    }
    entry->applied = value->offset;
    if (feed->events_count == GROUP || feed->epochs_count > ROOMY_EPOCHS) return flush(feed, report, fault);
    return TL_OK;
}

/* Applies one record and reports it; TL_FULL: it is yet to be applied. */
static tl_status take_record(tl_metadata_feed *feed, const tl_metadata_value *value, tl_metadata_report *report,
                             tl_fault *fault) {
    tl_fault found = {.base_offset = value->offset, .record = -1};
    tl_status status = take_value(feed, value, report, &found);
    if (status == TL_OK) {
        if (value->timestamp_ms > report->newest_timestamp_ms) report->newest_timestamp_ms = value->timestamp_ms;
        report->last_offset = value->offset;
        report->last_value_crc = value->size > 0 ? tl_crc32c(0, value->data, (size_t)value->size) : 0;
        return TL_OK;
    }
    if (status == TL_FULL) return status;
    /* The collected events lie before it. */
    tl_fault earlier = found;
    tl_status flushed = flush(feed, report, &earlier);
    *fault = flushed == TL_OK ? found : earlier;
    report->next_offset = fault->base_offset;
    return flushed == TL_OK ? status : flushed;
}

tl_status tl_metadata_feed_values(tl_metadata_feed *feed, const tl_metadata_value *values, size_t count, size_t *at,
                                  tl_metadata_report *report, tl_fault *fault) {
    TL_REQUIRE_WHOLE(report);
    for (; *at < count; ++*at) {
        tl_status status = take_record(feed, &values[*at], report, fault);
        if (status != TL_OK) return status;
    }
    tl_status status = flush(feed, report, fault);
    if (status == TL_OK && count) report->next_offset = values[count - 1].offset + 1;
    return status;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static bool is_valid(const tl_binary *column, int64_t row) { return column->validity[row >> 3] >> (row & 7) & 1; }

static tl_status take_rows(tl_metadata_feed *feed, tl_metadata_report *report, tl_fault *fault) {
    const tl_columns *columns = &feed->columns;
    for (; feed->row < columns->rows; feed->row++) {
        int64_t row = feed->row;
        int32_t from = columns->value.offsets[row];
        tl_metadata_value value = {
            .data = columns->value.data + from,
            .size = is_valid(&columns->value, row) ? columns->value.offsets[row + 1] - from : -1,
            .offset = columns->offset[row],
            .timestamp_ms = columns->timestamp[row],
            .has_key = is_valid(&columns->key, row),
        };
        tl_status status = take_record(feed, &value, report, fault);
        if (status != TL_OK) return status;
    }
    feed->has_rows = false;
    return flush(feed, report, fault); /* the events point into the rows */
}

/* More room for a column that is empty and has too little for one record, or for a batch that is decompressed. */
static tl_status make_more_room(tl_metadata_feed *feed) {
    int64_t need = feed->decode_fault.expected;
    uint8_t **data = &feed->scratch.data;
    if (feed->decoded == TL_FULL) {
        tl_binary *column = feed->decode_fault.found == TL_COLUMN_KEY ? &feed->columns.key : &feed->columns.value;
        if (need > INT32_MAX) return TL_OVER_LIMIT;
        data = &column->data;
        column->data_capacity = 0;
    } else {
        feed->scratch.capacity = 0;
    }
    free(*data); /* nothing of it is needed any more */
    *data = malloc((size_t)need);
    if (!*data) return TL_NO_MEMORY;
    if (feed->decoded == TL_NEED_SCRATCH) {
        feed->scratch.capacity = (size_t)need;
    } else if (data == &feed->columns.key.data) {
        feed->columns.key.data_capacity = need;
    } else {
        feed->columns.value.data_capacity = need;
    }
    return TL_OK;
}

tl_status tl_metadata_feed_batches(tl_metadata_feed *feed, const uint8_t *data, size_t size, tl_metadata_report *report,
                                   tl_fault *fault) {
    TL_REQUIRE_WHOLE(report);
    const tl_decode_options options = {
        .struct_size = sizeof(tl_decode_options),
        .to_offset_exclusive = INT64_MAX,
        .greatest_offset = INT64_MAX,
        .from_timestamp = INT64_MIN,
        .to_timestamp_exclusive = INT64_MAX,
        .timestamp_multiplier = 1,
        .decompressed_limit = DECOMPRESSED_LIMIT,
        .verify_crc = true,
    };
    for (;;) {
        if (feed->has_rows) {
            tl_status status = take_rows(feed, report, fault);
            if (status != TL_OK) return status;
            if (feed->decoded == TL_OK || (feed->decoded != TL_FULL && feed->decoded != TL_NEED_SCRATCH)) break;
        }
        tl_columns_reset(&feed->columns);
        feed->decode_fault = (tl_fault){.record = -1, .base_offset = -1};
        feed->decoded =
            tl_decode(data, size, &options, &feed->state, &feed->scratch, &feed->columns, &feed->decode_fault);
        feed->row = 0;
        feed->has_rows = true;
        bool short_of_room = feed->decoded == TL_NEED_SCRATCH || (feed->decoded == TL_FULL && !feed->columns.rows);
        if (!short_of_room || feed->columns.rows) continue;
        feed->has_rows = false;
        tl_status status = make_more_room(feed);
        if (status != TL_OK) {
            feed->decoded = status;
            break;
        }
    }
    bool begun = feed->state.batches + feed->state.batches_skipped + feed->state.records > 0;
    if (begun && feed->state.next_offset > report->next_offset) report->next_offset = feed->state.next_offset;
    if (feed->decoded == TL_OK) return TL_OK;
    *fault = feed->decode_fault;
    if (fault->base_offset < 0) fault->base_offset = report->next_offset;
    if (!begun) report->next_offset = fault->base_offset;
    return feed->decoded;
}
