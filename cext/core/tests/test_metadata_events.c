/* Records of the metadata topic into the table. An event that is lost, applied twice or read wrongly is a segment that
 * a broker no longer finds, or one that comes back after its deletion. */
#include "check.h"
#include "tierlog/checksum.h"
#include "tierlog/compress.h"
#include "tierlog/metadata_events.h"

#include <stdbool.h>

/* Vectors of Kafka 4.3's own serde: topic "orders", partition 3. */
#define HEAD "076f72646572730123456789abcdef112233445566778800000003000a0b0c0d0e0f1011202122232425262700"
#define OFFSETS "00000000000000000000000000000064"
#define EPOCHS "0400000000000000000000000000000000010000000000000014000000000200000000000000500000000400"
static const char *const STARTED = "010000" HEAD OFFSETS "000000010000018bcfe568000000018bcfe5687b" EPOCHS "000000";
static const char *const FINISHED =
    "010000" HEAD OFFSETS "000000010000018bcfe568000000018bcfe5687b" EPOCHS "040102030101000101";
static const char *const EMPTY_CUSTOM =
    "010000" HEAD OFFSETS "00000001ffffffffffffffff0000018bcfe5687b" EPOCHS "010000";
static const char *const UPDATE = "010100" HEAD "000000010000018bcfe569c8000100";
static const char *const DELETING = "010100" HEAD "000000010000018bcfe569c803dead0200";
static const char *const REMOVAL =
    "010200076f72646572730123456789abcdef11223344556677880000000300000000010000018bcfe56b150000";
static const char *const SNAPSHOT = "0103000a0b0c0d0e0f10112021222324252627" OFFSETS
                                    "000000010000018bcfe568000000018bcfe5687b" EPOCHS "040102030101000101";

enum { REFUSALS = 8, REMOVALS = 2, VALUES_MAX = 3000 };

typedef struct world {
    tl_segment_table *table;
    tl_metadata_partitions *partitions;
    tl_metadata_feed *feed;
    tl_metadata_report report;
    tl_metadata_refusal refusals[REFUSALS];
    tl_metadata_removal removals[REMOVALS];
    size_t all_removals;
    tl_fault fault;
} world;

static tl_partition_id orders(void) {
    bytes id = from_hex("0123456789abcdef1122334455667788");
    tl_partition_id partition = {.partition = 3};
    memcpy(partition.topic_id, id.data, 16);
    free(id.data);
    return partition;
}

static world *open_world(bool learns) {
    world *w = calloc(1, sizeof *w);
    CHECK_STATUS(
        tl_segment_table_create(
            &w->table, &(tl_segment_table_options){.struct_size = sizeof(tl_segment_table_options), .hash_seed = 5}),
        TL_OK);
    CHECK_STATUS(tl_metadata_partitions_create(&w->partitions, 5), TL_OK);
    CHECK_STATUS(tl_metadata_feed_create(&w->feed, w->table, w->partitions, learns), TL_OK);
    return w;
}

static void close_world(world *w) {
    tl_metadata_feed_destroy(w->feed);
    tl_metadata_partitions_destroy(w->partitions);
    tl_segment_table_destroy(w->table);
    free(w);
}

static void begin(world *w) {
    w->report = (tl_metadata_report){.struct_size = sizeof(tl_metadata_report),
                                     .next_offset = -1,
                                     .newest_timestamp_ms = -1,
                                     .refusals = w->refusals,
                                     .refusals_capacity = REFUSALS,
                                     .removals = w->removals,
                                     .removals_capacity = REMOVALS};
    w->all_removals = 0;
    w->fault = (tl_fault){0};
    tl_metadata_feed_begin(w->feed, 0);
}

static tl_status feed_values(world *w, const tl_metadata_value *values, size_t count) {
    size_t at = 0;
    begin(w);
    for (;;) {
        tl_status status = tl_metadata_feed_values(w->feed, values, count, &at, &w->report, &w->fault);
        w->all_removals += w->report.removals_count;
        w->report.removals_count = 0;
        if (status != TL_FULL) return status;
    }
}

static tl_status feed_batches(world *w, bytes data) {
    begin(w);
    for (;;) {
        tl_status status = tl_metadata_feed_batches(w->feed, data.data, data.size, &w->report, &w->fault);
        w->all_removals += w->report.removals_count;
        w->report.removals_count = 0;
        if (status != TL_FULL) return status;
    }
}

static tl_metadata_value value_at(bytes value, int64_t offset) {
    return (tl_metadata_value){value.data, (int64_t)value.size, offset, 1000 + offset, false};
}

static tl_status feed_one(world *w, const char *hex, int64_t offset) {
    bytes value = from_hex(hex);
    tl_metadata_value one = value_at(value, offset);
    tl_status status = feed_values(w, &one, 1);
    free(value.data);
    return status;
}

static void assign_orders(world *w) {
    tl_partition_id id = orders();
    CHECK_STATUS(tl_metadata_partitions_add(w->partitions, &id, "orders", 6, -1, -1), TL_OK);
}

static bool get(const world *w, tl_segment_copy *copy, tl_segment_epoch epochs[4], uint8_t custom[8]) {
    tl_partition_id id = orders();
    tl_segment_room room = {epochs, 4, custom, 8};
    bytes segment = from_hex("0a0b0c0d0e0f10112021222324252627");
    bool found;
    CHECK_STATUS(tl_segment_table_get(w->table, &id, segment.data, &room, copy, &found), TL_OK);
    free(segment.data);
    return found;
}

static void test_vectors(void) {
    world *w = open_world(false);
    tl_segment_copy copy;
    tl_segment_epoch epochs[4];
    uint8_t custom[8];
    CHECK_STATUS(feed_one(w, STARTED, 0), TL_OK);
    CHECK_EQUAL(w->report.passed_over, 1);
    assign_orders(w);
    CHECK_STATUS(feed_one(w, STARTED, 0), TL_OK);
    CHECK_EQUAL(w->report.applied, 1);
    CHECK_EQUAL(w->report.next_offset, 1);
    CHECK_EQUAL(w->report.newest_timestamp_ms, 1000);
    CHECK(get(w, &copy, epochs, custom));
    CHECK_EQUAL(copy.start_offset, 0);
    CHECK_EQUAL(copy.end_offset, 100);
    CHECK_EQUAL(copy.broker_id, 1);
    CHECK_EQUAL(copy.max_timestamp_ms, 1700000000000);
    CHECK_EQUAL(copy.event_timestamp_ms, 1700000000123);
    CHECK_EQUAL(copy.size_bytes, 1024);
    CHECK_EQUAL(copy.custom_size, -1);
    CHECK_EQUAL(copy.state, TL_COPY_STARTED);
    CHECK(!copy.txn_index_empty);
    CHECK_EQUAL(copy.epoch_count, 3);
    CHECK_EQUAL(epochs[1].epoch, 1);
    CHECK_EQUAL(epochs[1].start_offset, 20);
    CHECK_EQUAL(epochs[2].start_offset, 80);
    /* A segment's record in another state than the first is no event of any life. */
    CHECK_STATUS(feed_one(w, FINISHED, 1), TL_OK);
    CHECK_EQUAL(w->report.refused, 1);
    CHECK_EQUAL(w->refusals[0].found_state, TL_COPY_STARTED);
    CHECK_EQUAL(w->refusals[0].state, TL_COPY_FINISHED);
    CHECK_EQUAL(w->refusals[0].offset, 1);
    CHECK_STATUS(feed_one(w, EMPTY_CUSTOM, 2), TL_OK);
    CHECK(get(w, &copy, epochs, custom));
    CHECK_EQUAL(copy.custom_size, 0);
    CHECK_EQUAL(copy.max_timestamp_ms, -1);
    CHECK_STATUS(feed_one(w, UPDATE, 3), TL_OK);
    CHECK(get(w, &copy, epochs, custom));
    CHECK_EQUAL(copy.state, TL_COPY_FINISHED);
    CHECK_EQUAL(copy.event_timestamp_ms, 1700000000456);
    CHECK_EQUAL(copy.custom_size, -1);
    CHECK_STATUS(feed_one(w, DELETING, 4), TL_OK);
    CHECK(get(w, &copy, epochs, custom));
    CHECK_EQUAL(copy.state, TL_DELETE_STARTED);
    CHECK_EQUAL(copy.custom_size, 2);
    CHECK(custom[0] == 0xde && custom[1] == 0xad);
    CHECK_STATUS(feed_one(w, REMOVAL, 5), TL_OK);
    CHECK_EQUAL(w->all_removals, 1);
    CHECK_EQUAL(w->removals[0].offset, 5);
    CHECK_EQUAL(w->removals[0].event_timestamp_ms, 1700000000789);
    CHECK_EQUAL(w->removals[0].broker_id, 1);
    CHECK_EQUAL(w->removals[0].partition.partition, 3);
    /* Read again from the beginning: nothing of it is new. */
    CHECK_STATUS(feed_one(w, REMOVAL, 5), TL_OK);
    CHECK_EQUAL(w->all_removals, 0);
    CHECK_EQUAL(w->report.passed_over, 1);
    close_world(w);
}

static void test_removals_of_others(void) {
    world *w = open_world(false);
    tl_metadata_name names[REMOVALS];
    bytes whole = from_hex(REMOVAL);
    for (size_t cut = 0; cut < 3; cut++) { /* one that is cut is nobody's damage */
        tl_metadata_value value = {.data = whole.data, .size = (int64_t)(whole.size - cut), .offset = 7};
        tl_metadata_value values[] = {value, value, value};
        size_t at = 0;
        begin(w);
        w->report.removal_names = names;
        CHECK_STATUS(tl_metadata_feed_values(w->feed, values, 3, &at, &w->report, &w->fault), cut ? TL_OK : TL_FULL);
        CHECK_EQUAL(at, cut ? 3 : REMOVALS);
        CHECK_EQUAL(w->report.removals_count, cut ? 0 : REMOVALS);
        CHECK_EQUAL(w->report.passed_over, cut ? 3 : 0);
        CHECK(cut || (w->removals[1].offset == 7 && names[1].size == 6 && !memcmp(names[1].data, "orders", 6)));
    }
    free(whole.data);
    close_world(w);
}

static void test_refusals(void) {
    static const struct {
        const char *hex;
        tl_status status;
    } cases[] = {
        {"", TL_TRUNCATED},
        {"00", TL_BAD_VERSION},
        {"02", TL_BAD_VERSION},
        {"01", TL_TRUNCATED},
        {"010900", TL_BAD_VERSION},
        {"010001", TL_BAD_VERSION},
        {"0180800200", TL_BAD_VERSION},
        {"01ffffffffff00", TL_BAD_VARINT},
        {"01000000", TL_BAD_FIELD_LENGTH},
        {"010000ffffffff0f", TL_TRUNCATED},
        {"0100000100000000000000000000000000000000000000000000", TL_BAD_ENTRY},
        {"010000026100000000000000000000000000000000ffffffff00", TL_BAD_ENTRY},
    };
    world *w = open_world(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(feed_one(w, cases[i].hex, 7), cases[i].status);
        CHECK_EQUAL(w->fault.base_offset, 7);
        CHECK_EQUAL(w->report.next_offset, 7);
    }
    CHECK_STATUS(feed_one(w, SNAPSHOT, 7), TL_BAD_VERSION);
    tl_metadata_value null = {.size = -1, .offset = 7};
    CHECK_STATUS(feed_values(w, &null, 1), TL_BAD_FIELD_LENGTH);
    null.has_key = true;
    CHECK_STATUS(feed_values(w, &null, 1), TL_OK);
    CHECK_EQUAL(w->report.tombstones, 1);
    CHECK_EQUAL(tl_metadata_partitions_count(w->partitions), 0);
    close_world(w);
}

/* Each prefix of a record, and each record with a byte behind it, is refused; what came before it is applied. */
static void test_every_cut(void) {
    static const char *const records[] = {STARTED, FINISHED, EMPTY_CUSTOM, UPDATE, DELETING, REMOVAL};
    for (size_t r = 0; r < sizeof records / sizeof *records; r++) {
        bytes whole = from_hex(records[r]), first = from_hex(STARTED);
        for (size_t size = 0; size <= whole.size + 1; size++) {
            world *w = open_world(false);
            assign_orders(w);
            uint8_t longer[256] = {0};
            memcpy(longer, whole.data, whole.size);
            bytes cut = copy_of(longer, size);
            tl_metadata_value values[3] = {value_at(first, 10), value_at(cut, 11), value_at(first, 12)};
            tl_status status = feed_values(w, values, 3);
            if (size == whole.size) {
                CHECK_STATUS(status, TL_OK);
                CHECK_EQUAL(w->report.next_offset, 13);
            } else {
                CHECK(status != TL_OK);
                CHECK_EQUAL(w->report.next_offset, 11);
                CHECK_EQUAL(w->report.applied, 1);
            }
            free(cut.data);
            close_world(w);
        }
        free(whole.data);
        free(first.data);
    }
}

/* ---- records of many segments ------------------------------------------------------------------------------------ */

typedef struct writer {
    uint8_t data[1 << 12];
    size_t size;
} writer;

static void put(writer *to, const void *from, size_t size) {
    memcpy(to->data + to->size, from, size);
    to->size += size;
}

static void put_number(writer *to, uint64_t number, size_t size) {
    for (size_t i = size; i-- > 0;) to->data[to->size++] = (uint8_t)(number >> (8 * i));
}

static void put_varint(writer *to, int64_t number) {
    uint64_t value = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; value >= 0x80; value >>= 7) to->data[to->size++] = (uint8_t)(value | 0x80);
    to->data[to->size++] = (uint8_t)value;
}

/* A record of one of `partitions` partitions and 200 segments, in any state, sound but for its place in their lives. */
static void make_record(writer *to, uint64_t *random, int partitions) {
    uint64_t partition = next_random(random) % (uint64_t)partitions, number = next_random(random) % 200;
    uint64_t kind = next_random(random) % 20;
    kind = kind < 9 ? 0 : kind < 19 ? 1 : 2;
    put_number(to, 1, 1);
    put_number(to, kind, 1);
    put_number(to, 0, 1);
    put(to, "\x07orders", 7);
    put_number(to, 0, 8);
    put_number(to, 0x1234, 8);
    put_number(to, partition, 4);
    put_number(to, 0, 1);
    if (kind < 2) {
        put_number(to, partition << 32 | number, 8);
        put_number(to, number, 8);
        put_number(to, 0, 1);
    }
    if (kind == 0) {
        uint64_t epochs = 1 + next_random(random) % 3, start = number * 10;
        put_number(to, start, 8);
        put_number(to, start + 9, 8);
        put_number(to, 3, 4);
        put_number(to, next_random(random) % 1000000, 8);
        put_number(to, next_random(random) % 1000000, 8);
        put_number(to, epochs + 1, 1);
        for (uint64_t e = 0; e < epochs; e++) {
            put_number(to, e, 4);
            put_number(to, start + 3 * e, 8);
            put_number(to, 0, 1);
        }
        put_number(to, 77, 4);
    } else {
        put_number(to, 4, 4);
        put_number(to, next_random(random) % 1000000, 8);
    }
    if (kind < 2) {
        uint64_t custom = next_random(random) % 5;
        put_number(to, custom, 1);
        for (uint64_t i = 1; i < custom; i++) put_number(to, i, 1);
    }
    put_number(to, kind == 0 ? 0 : next_random(random) % 3 + (kind == 1), 1);
    put_number(to, 0, 1);
}

/* One batch of values, compressed or not; a few bytes of header decide nothing here. */
static bytes make_batch(const tl_metadata_value *values, size_t count, bool compressed, tl_compressor *compressor) {
    size_t capacity = 64;
    for (size_t i = 0; i < count; i++) capacity += (values[i].size > 0 ? (size_t)values[i].size : 0) + 64;
    bytes batch = {calloc(1, capacity), 61}, records = {calloc(1, capacity), 0};
    for (size_t i = 0; i < count; i++) {
        writer fields = {.size = 0}, length = {.size = 0};
        put_number(&fields, 0, 1);
        put_varint(&fields, values[i].timestamp_ms - values[0].timestamp_ms);
        put_varint(&fields, values[i].offset - values[0].offset);
        put_varint(&fields, values[i].has_key ? 0 : -1);
        put_varint(&fields, values[i].size);
        if (values[i].size > 0) put(&fields, values[i].data, (size_t)values[i].size);
        put_varint(&fields, 0);
        put_varint(&length, (int64_t)fields.size);
        memcpy(records.data + records.size, length.data, length.size);
        memcpy(records.data + records.size + length.size, fields.data, fields.size);
        records.size += length.size + fields.size;
    }
    if (compressed) {
        size_t bound = tl_compress_bound(records.size), size;
        tl_fault fault;
        batch.data = realloc(batch.data, bound + 61);
        memset(batch.data, 0, 61);
        CHECK_STATUS(tl_compress(compressor, 3, records.data, records.size, batch.data + 61, bound, &size, &fault),
                     TL_OK);
        batch.size += size;
    } else {
        memcpy(batch.data + 61, records.data, records.size);
        batch.size += records.size;
    }
    free(records.data);
    writer head = {.size = 0};
    put_number(&head, (uint64_t)values[0].offset, 8);
    put_number(&head, batch.size - 12, 4);
    put_number(&head, 0, 4);
    put_number(&head, 2, 1);
    put_number(&head, 0, 4);
    put_number(&head, compressed ? 4 : 0, 2);
    put_number(&head, (uint64_t)(values[count - 1].offset - values[0].offset), 4);
    put_number(&head, (uint64_t)values[0].timestamp_ms, 8);
    put_number(&head, (uint64_t)values[count - 1].timestamp_ms, 8);
    put_number(&head, UINT64_MAX, 8);
    put_number(&head, UINT16_MAX, 2);
    put_number(&head, UINT32_MAX, 4);
    put_number(&head, count, 4);
    memcpy(batch.data, head.data, head.size);
    uint32_t crc = tl_crc32c(0, batch.data + 21, batch.size - 21);
    for (size_t i = 0; i < 4; i++) batch.data[17 + i] = (uint8_t)(crc >> (24 - 8 * i));
    bytes exact = copy_of(batch.data, batch.size);
    free(batch.data);
    return exact;
}

static void append(bytes *to, bytes more) {
    to->data = realloc(to->data, to->size + more.size);
    memcpy(to->data + to->size, more.data, more.size);
    to->size += more.size;
    free(more.data);
}

static void check_same_tables(const world *a, const world *b, int partitions) {
    for (int p = 0; p < partitions; p++) {
        tl_partition_id id = {.topic_id = {[14] = 0x12, [15] = 0x34}, .partition = p};
        tl_segment_cursor cursors[2];
        static tl_segment_copy copies[2][400];
        tl_segment_cursor_open(&cursors[0], &id, -1);
        tl_segment_cursor_open(&cursors[1], &id, -1);
        size_t count = tl_segment_table_list(a->table, &cursors[0], copies[0], 400);
        CHECK_EQUAL(tl_segment_table_list(b->table, &cursors[1], copies[1], 400), count);
        for (size_t i = 0; i < count; i++) {
            const tl_segment_copy *x = &copies[0][i], *y = &copies[1][i];
            CHECK(!memcmp(x->id, y->id, 16));
            CHECK(x->start_offset == y->start_offset && x->end_offset == y->end_offset);
            CHECK(x->state == y->state && x->custom_size == y->custom_size && x->epoch_count == y->epoch_count);
            CHECK(x->event_timestamp_ms == y->event_timestamp_ms && x->max_timestamp_ms == y->max_timestamp_ms);
        }
    }
}

/* One value at a time, many at once, in batches of any size, and all of them twice: the same table. */
static void test_any_way_of_feeding(void) {
    tl_compressor *compressor;
    CHECK_STATUS(tl_compressor_create(&compressor), TL_OK);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t random = seed;
        int partitions = 1 + (int)(next_random(&random) % 40);
        size_t count = 1 + next_random(&random) % VALUES_MAX, applied = 0, refused = 0, removals = 0;
        bytes all = {NULL, 0};
        tl_metadata_value *values = calloc(count, sizeof *values);
        for (size_t i = 0; i < count; i++) {
            writer record = {.size = 0};
            make_record(&record, &random, partitions);
            values[i] = value_at(copy_of(record.data, record.size), (int64_t)(5 + i + i / 100));
            if (next_random(&random) % 50 == 0) {
                values[i].size = -1;
                values[i].has_key = true;
            }
        }
        for (size_t from = 0; from < count;) {
            size_t n = 1 + next_random(&random) % 700;
            if (n > count - from) n = count - from;
            append(&all, make_batch(values + from, n, next_random(&random) % 2, compressor));
            from += n;
        }
        world *by_one = open_world(true), *at_once = open_world(true), *by_batch = open_world(true);
        for (size_t i = 0; i < count; i++) {
            CHECK_STATUS(feed_values(by_one, &values[i], 1), TL_OK);
            applied += by_one->report.applied;
            refused += by_one->report.refused;
            removals += by_one->all_removals;
        }
        CHECK_STATUS(feed_values(at_once, values, count), TL_OK);
        CHECK_STATUS(feed_batches(by_batch, all), TL_OK);
        const world *both[] = {at_once, by_batch};
        for (size_t i = 0; i < 2; i++) {
            const world *w = both[i];
            CHECK_EQUAL(w->report.applied, applied);
            CHECK_EQUAL(w->report.refused, refused);
            CHECK_EQUAL(w->report.refusals_count, refused < REFUSALS ? refused : REFUSALS);
            CHECK_EQUAL(w->all_removals, removals);
            CHECK_EQUAL(w->report.next_offset, values[count - 1].offset + 1);
            CHECK_EQUAL(w->report.newest_timestamp_ms, values[count - 1].timestamp_ms);
            CHECK_EQUAL(applied + refused + removals + w->report.tombstones, count);
            check_same_tables(by_one, w, partitions);
        }
        CHECK_STATUS(feed_batches(by_batch, all), TL_OK);
        CHECK_EQUAL(by_batch->report.applied + by_batch->report.refused + by_batch->all_removals, 0);
        check_same_tables(by_one, by_batch, partitions);
        for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)values[i].data);
        free(values);
        free(all.data);
        close_world(by_one);
        close_world(at_once);
        close_world(by_batch);
    }
    tl_compressor_destroy(compressor);
}

/* A batch that is cut or damaged anywhere: no crash, an offset from which the rest follows, and then the whole table.
 */
static void test_damage(void) {
    uint64_t random = 77;
    for (int round = 0; round < 300; round++) {
        tl_metadata_value values[60];
        bytes all = {NULL, 0}, damaged;
        for (size_t i = 0; i < 60; i++) {
            writer record = {.size = 0};
            make_record(&record, &random, 4);
            values[i] = value_at(copy_of(record.data, record.size), (int64_t)i);
        }
        for (size_t from = 0; from < 60; from += 20) append(&all, make_batch(values + from, 20, false, NULL));
        damaged = copy_of(all.data, all.size);
        if (round % 3) {
            damaged.data[next_random(&random) % damaged.size] ^= (uint8_t)(1 + next_random(&random) % 255);
        } else {
            bytes cut = copy_of(damaged.data, next_random(&random) % damaged.size);
            free(damaged.data);
            damaged = cut;
        }
        world *w = open_world(true), *whole = open_world(true);
        tl_status status = feed_batches(w, damaged);
        if (status != TL_OK) CHECK(w->report.next_offset == w->fault.base_offset || w->report.next_offset >= 0);
        CHECK_STATUS(feed_batches(w, all), TL_OK);
        CHECK_STATUS(feed_batches(whole, all), TL_OK);
        if (status != TL_OK) check_same_tables(w, whole, 4);
        for (size_t i = 0; i < 60; i++) free((void *)(uintptr_t)values[i].data);
        free(all.data);
        free(damaged.data);
        close_world(w);
        close_world(whole);
    }
}

/* Epochs that do not ascend, that come twice, and more than any table takes. */
static void test_epochs(void) {
    for (size_t count = 1; count <= 2000; count = count * 3 + 1) {
        size_t size = 400 + count * 13;
        writer head = {.size = 0}, tail = {.size = 0};
        bytes start = from_hex("010000" HEAD OFFSETS "000000010000018bcfe568000000018bcfe5687b");
        put(&head, start.data, start.size);
        uint64_t length = count + 1;
        for (; length >= 0x80; length >>= 7) put_number(&head, (length & 0x7f) | 0x80, 1);
        put_number(&head, length, 1);
        uint8_t *record = malloc(size);
        memcpy(record, head.data, head.size);
        size_t at = head.size;
        for (size_t i = 0; i < count; i++) {
            writer epoch = {.size = 0};
            put_number(&epoch, i * 7919 % (count / 2 + 1), 4);
            put_number(&epoch, i, 8);
            put_number(&epoch, 0, 1);
            memcpy(record + at, epoch.data, epoch.size);
            at += epoch.size;
        }
        put_number(&tail, 1024, 4);
        put_number(&tail, 0, 3);
        memcpy(record + at, tail.data, tail.size);
        bytes exact = copy_of(record, at + tail.size);
        world *w = open_world(false);
        assign_orders(w);
        tl_metadata_value value = value_at(exact, 0);
        CHECK_STATUS(feed_values(w, &value, 1), TL_OK);
        CHECK_EQUAL(w->report.applied, 1);
        tl_metadata_value again[200]; /* more epochs in all than a group has room for */
        for (int64_t i = 0; i < 200; i++) again[i] = value_at(exact, i);
        CHECK_STATUS(feed_values(w, again, 200), TL_OK);
        CHECK_EQUAL(w->report.applied, 199);
        tl_partition_id id = orders();
        tl_segment_epoch *epochs = calloc(count, sizeof *epochs);
        tl_segment_room room = {epochs, count, NULL, 0};
        tl_segment_copy copy;
        bool found;
        bytes segment = from_hex("0a0b0c0d0e0f10112021222324252627");
        CHECK_STATUS(tl_segment_table_get(w->table, &id, segment.data, &room, &copy, &found), TL_OK);
        CHECK(found);
        for (size_t e = 0; e < copy.epoch_count; e++) {
            int64_t last = -1;
            for (size_t i = 0; i < count; i++)
                if (i * 7919 % (count / 2 + 1) == (size_t)epochs[e].epoch) last = (int64_t)i;
            CHECK_EQUAL(epochs[e].start_offset, last);
            CHECK(!e || epochs[e - 1].epoch < epochs[e].epoch);
        }
        free(epochs);
        free(segment.data);
        free(exact.data);
        free(record);
        free(start.data);
        close_world(w);
    }
    /* One epoch more than there is room for, and an array that claims what is not there. */
    size_t count = TL_SEGMENT_EPOCHS_MAX + 1;
    bytes start = from_hex("010000" HEAD OFFSETS "000000010000018bcfe568000000018bcfe5687b"), many;
    many = (bytes){calloc(1, start.size + 3 + count * 13 + 7), start.size + 3 + count * 13 + 7};
    memcpy(many.data, start.data, start.size);
    many.data[start.size] = (uint8_t)((count + 1) & 0x7f) | 0x80;
    many.data[start.size + 1] = (uint8_t)((count + 1) >> 7 & 0x7f) | 0x80;
    many.data[start.size + 2] = (uint8_t)((count + 1) >> 14);
    world *w = open_world(false);
    assign_orders(w);
    tl_metadata_value value = value_at(many, 0);
    CHECK_STATUS(feed_values(w, &value, 1), TL_OK);
    CHECK_EQUAL(w->report.oversized, 1);
    CHECK_EQUAL(w->report.oversized_offset, 0);
    value = value_at(many, 1);
    value.size -= 13;
    CHECK_STATUS(feed_values(w, &value, 1), TL_BAD_COUNT);
    free(many.data);
    free(start.data);
    close_world(w);
}

int main(void) {
    test_vectors();
    test_refusals();
    test_removals_of_others();
    test_every_cut();
    test_any_way_of_feeding();
    test_damage();
    test_epochs();
    return 0;
}
