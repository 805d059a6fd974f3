/* A missing entry makes every lookup scan further; a wrong one sends it behind the record. */
#include "check.h"
#include "tierlog/index_append.h"

enum { BASE = 1000, ROWS = 6, BATCH = 70 };

static int64_t last_offset[ROWS], max_timestamp[ROWS];
static int32_t size_bytes[ROWS];
static uint8_t offsets[(ROWS + 1) * TL_OFFSET_ENTRY], times[(ROWS + 1) * TL_TIME_ENTRY];
static tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                               .count = ROWS,
                               .capacity = ROWS,
                               .last_offset = last_offset,
                               .max_timestamp = max_timestamp,
                               .size_bytes = size_bytes};
static tl_index_entries entries;
static tl_fault fault;

static void make_batches(void) {
    static const int64_t greatest[ROWS] = {50, 40, 70, 70, 60, 90};
    for (int i = 0; i < ROWS; i++) {
        last_offset[i] = BASE + 10 * i + 9;
        max_timestamp[i] = greatest[i];
        size_bytes[i] = 60;
    }
    table.count = ROWS;
    entries = (tl_index_entries){.offsets = offsets, .times = times};
}

static void offset_entry(size_t entry, int64_t offset, int32_t position) {
    int64_t found_offset[ROWS];
    int32_t found_position[ROWS];
    tl_offset_index_read(offsets, entries.offset_count, BASE, found_offset, found_position);
    CHECK(entry < entries.offset_count && found_offset[entry] == offset && found_position[entry] == position);
}

static void time_entry(size_t entry, int64_t timestamp, int64_t offset) {
    int64_t found_timestamp[ROWS], found_offset[ROWS];
    tl_time_index_read(times, entries.time_count, BASE, found_timestamp, found_offset);
    CHECK(entry < entries.time_count && found_timestamp[entry] == timestamp && found_offset[entry] == offset);
}

/* By hand after Kafka's LogSegment#append, interval 100: due when 120 bytes have gone by, at 120 and at 240. */
static void test_entries_by_the_interval(void) {
    tl_index_tail tail;
    make_batches();
    tl_index_begin(&tail, BASE, 100, 100, 100);
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_OK);
    CHECK(entries.offset_count == 2 && entries.time_count == 1);
    offset_entry(0, BASE + 29, 120);
    offset_entry(1, BASE + 49, 240);
    time_entry(0, 70, BASE + 29); /* of the second 70 nothing is written: it is no later */
    CHECK(tail.max_timestamp == 90 && tail.max_timestamp_offset == BASE + 59 && tail.bytes_since_entry == 120);
    tl_index_close(&tail, &entries);
    tl_index_close(&tail, &entries);
    CHECK_EQUAL(entries.time_count, 2);
    time_entry(1, 90, BASE + 59);
}

/* One by one, as a leader appends, gives what they give together. */
static void test_batch_by_batch(void) {
    for (int64_t interval = 0; interval < 400; interval += 13) {
        uint8_t joined[sizeof offsets], joined_times[sizeof times];
        tl_index_tail tail, single;
        make_batches();
        tl_index_begin(&tail, BASE, interval, 100, 100);
        single = tail;
        CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_OK);
        tl_index_entries together = entries;
        memcpy(joined, offsets, sizeof offsets);
        memcpy(joined_times, times, sizeof times);
        make_batches();
        for (size_t row = 0; row < ROWS; row++) {
            table.count = row + 1;
            CHECK_STATUS(tl_index_add(&single, &table, row, (int64_t)row * 60, &entries, &fault), TL_OK);
        }
        CHECK(!memcmp(&tail, &single, sizeof tail) && entries.offset_count == together.offset_count);
        CHECK(!memcmp(joined, offsets, TL_OFFSET_ENTRY * entries.offset_count));
        CHECK(!memcmp(joined_times, times, TL_TIME_ENTRY * entries.time_count));
        CHECK(entries.time_count == together.time_count && (interval > 59 || entries.offset_count == ROWS - 1));
    }
}

static void test_a_full_index(void) {
    tl_index_tail tail;
    make_batches();
    tl_index_begin(&tail, BASE, 0, 2, 0);
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_OK);
    CHECK(entries.offset_count == 2 && entries.time_count == 0 && tail.offset_room == 0);
    offset_entry(1, BASE + 29, 120);
    tl_index_close(&tail, &entries); /* has a slot of its own */
    time_entry(0, 90, BASE + 59);
}

static void test_what_does_not_fit(void) {
    tl_index_tail tail, before;
    make_batches();
    tl_index_begin(&tail, BASE, 0, 100, 100);
    before = tail;
    last_offset[5] = last_offset[4];
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_BAD_OFFSET);
    CHECK(fault.position == 300 && fault.expected == BASE + 50 && fault.found == BASE + 49);
    last_offset[5] = (int64_t)BASE + INT32_MAX + 1;
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_BAD_OFFSET);
    last_offset[0] = BASE - 1;
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_BAD_OFFSET);
    make_batches();
    CHECK_STATUS(tl_index_add(&tail, &table, 0, (int64_t)INT32_MAX - 299, &entries, &fault), TL_BAD_SIZE);
    CHECK(!memcmp(&tail, &before, sizeof tail) && entries.offset_count == 0);
    last_offset[5] = (int64_t)BASE + INT32_MAX;
    CHECK_STATUS(tl_index_add(&tail, &table, 0, (int64_t)INT32_MAX - 300, &entries, &fault), TL_OK);
    CHECK_EQUAL(entries.offset_count, ROWS - 1);
    table.count = 1;
    last_offset[0] = tail.last_offset;
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 0, &entries, &fault), TL_BAD_OFFSET);
}

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* The headers of batches say what their columns say. */
static void test_batches_by_their_headers(void) {
    uint8_t data[ROWS * BATCH], found_offsets[sizeof offsets], found_times[sizeof times];
    tl_index_tail tail, other, before;
    make_batches();
    memset(data, 0, sizeof data);
    for (int i = 0; i < ROWS; i++) {
        uint8_t *at = data + i * BATCH;
        size_bytes[i] = BATCH;
        store(at, (uint64_t)last_offset[i] - 5, 8);
        store(at + 8, BATCH - 12, 4);
        at[16] = 2;
        store(at + 23, 5, 4);
        store(at + 35, (uint64_t)max_timestamp[i], 8);
    }
    tl_index_begin(&tail, BASE, 100, 100, 100);
    other = before = tail;
    tl_index_entries found = {.offsets = found_offsets, .times = found_times};
    CHECK_STATUS(tl_index_add(&tail, &table, 0, 300, &entries, &fault), TL_OK);
    bytes exact = copy_of(data, sizeof data);
    CHECK_STATUS(tl_index_add_batches(&other, exact.data, sizeof data, ROWS - 1, 300, &found, &fault), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_index_add_batches(&other, exact.data, sizeof data - 1, ROWS, 300, &found, &fault), TL_PARTIAL);
    store(exact.data + 5 * BATCH, (uint64_t)last_offset[4] - 5, 8);
    CHECK_STATUS(tl_index_add_batches(&other, exact.data, sizeof data, ROWS, 300, &found, &fault), TL_BAD_OFFSET);
    CHECK(!memcmp(&other, &before, sizeof other) && found.offset_count == 0 && found.time_count == 0);
    memcpy(exact.data, data, sizeof data);
    CHECK_STATUS(tl_index_add_batches(&other, exact.data, sizeof data, ROWS, 300, &found, &fault), TL_OK);
    CHECK(!memcmp(&other, &tail, sizeof other));
    CHECK(found.offset_count == entries.offset_count && found.time_count == entries.time_count && found.time_count);
    CHECK(!memcmp(found_offsets, offsets, TL_OFFSET_ENTRY * found.offset_count));
    CHECK(!memcmp(found_times, times, TL_TIME_ENTRY * found.time_count));
    free(exact.data);
}

int main(void) {
    test_batches_by_their_headers();
    test_entries_by_the_interval();
    test_batch_by_batch();
    test_a_full_index();
    test_what_does_not_fit();
    return 0;
}
