/* Any values, or any bytes as batches, into a table. Input: what is done (one byte), then values behind their sizes
 * (two bytes), or the batches. */
#include "fuzz.h"
#include "tierlog/metadata_events.h"

enum { VALUES_MAX = 64, ROOM = 4 };

typedef struct world {
    tl_segment_table *table;
    tl_metadata_partitions *partitions;
    tl_metadata_feed *feed;
} world;

static const char *const KNOWN = "orders";
static const tl_partition_id ORDERS = {
    {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}, 3};

static void open_world(world *w, bool as_kafka, bool learns) {
    tl_segment_table_options options = {
        .struct_size = sizeof(tl_segment_table_options), .hash_seed = 1, .as_kafka = as_kafka};
    REQUIRE(tl_segment_table_create(&w->table, &options) == TL_OK);
    REQUIRE(tl_metadata_partitions_create(&w->partitions, 1) == TL_OK);
    REQUIRE(tl_metadata_feed_create(&w->feed, w->table, w->partitions, learns) == TL_OK);
    REQUIRE(tl_metadata_partitions_add(w->partitions, &ORDERS, KNOWN, 6, -1, -1) == TL_OK);
}

static void close_world(world *w) {
    tl_metadata_feed_destroy(w->feed);
    tl_metadata_partitions_destroy(w->partitions);
    tl_segment_table_destroy(w->table);
}

static tl_metadata_refusal refusals[ROOM];
static tl_metadata_removal removals[ROOM];

static tl_metadata_report begun(world *w) {
    tl_metadata_feed_begin(w->feed, 0);
    return (tl_metadata_report){.struct_size = sizeof(tl_metadata_report),
                                .next_offset = -1,
                                .newest_timestamp_ms = -1,
                                .refusals = refusals,
                                .refusals_capacity = ROOM,
                                .removals = removals,
                                .removals_capacity = ROOM};
}

static tl_status feed_values(world *w, const tl_metadata_value *values, size_t count, tl_metadata_report *report,
                             tl_fault *fault, size_t *removed) {
    tl_status status;
    size_t at = 0;
    *report = begun(w);
    *removed = 0;
    do {
        status = tl_metadata_feed_values(w->feed, values, count, &at, report, fault);
        REQUIRE(report->removals_count <= ROOM && (status != TL_FULL || report->removals_count));
        *removed += report->removals_count;
        report->removals_count = 0;
    } while (status == TL_FULL);
    return status;
}

static void try_values(world *w, const uint8_t *data, size_t size) {
    tl_metadata_value values[VALUES_MAX];
    tl_metadata_report report, again;
    tl_fault fault;
    size_t count = 0, removed, removed_again;
    for (; size && count < VALUES_MAX; count++) {
        size_t length = (size_t)take_number(&data, &size, 2) % 1024;
        if (length > size) length = size;
        values[count] = (tl_metadata_value){exact_copy(data, length), (int64_t)length, (int64_t)count, 0, false};
        if (length == 0) values[count].size = -1, values[count].has_key = true;
        data += length;
        size -= length;
    }
    tl_status status = feed_values(w, values, count, &report, &fault, &removed);
    size_t taken = status == TL_OK ? count : (size_t)report.next_offset;
    REQUIRE(taken <= count && (status == TL_OK || fault.base_offset == report.next_offset));
    REQUIRE(report.applied + report.refused + report.passed_over + report.tombstones + removed == taken);
    REQUIRE(report.refusals_count <= ROOM && report.refusals_count <= report.refused);
    REQUIRE(feed_values(w, values, count, &again, &fault, &removed_again) == status);
    REQUIRE(again.applied == 0 && again.refused == 0 && removed_again == 0 && again.tombstones == report.tombstones);
    tl_segment_table_figures figures = tl_segment_table_figures_of(w->table);
    REQUIRE(figures.segments <= report.applied);
    for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)values[i].data);
}

static void try_batches(world *w, const uint8_t *data, size_t size) {
    uint8_t *batches = exact_copy(data, size);
    tl_metadata_report report = begun(w);
    tl_fault fault;
    while (tl_metadata_feed_batches(w->feed, batches, size, &report, &fault) == TL_FULL) {
        REQUIRE(report.removals_count);
        report.removals_count = 0;
    }
    free(batches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t how = (uint64_t)take_number(&data, &size, 1);
    world w;
    open_world(&w, how & 1, how & 2);
    if (how & 4) {
        try_batches(&w, data, size);
    } else {
        try_values(&w, data, size);
    }
    close_world(&w);
    return 0;
}
