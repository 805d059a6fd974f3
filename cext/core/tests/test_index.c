/* A lookup that is one entry off starts a read behind the record that was asked for. Vectors: files that
 * Kafka's own classes wrote. */
#include "check.h"
#include "tierlog/index.h"

static const char OFFSET_INDEX[] = "00000005000010000000008200002468";               /* 105 @ 4096, 230 @ 9320 */
static const char TIME_INDEX[] = "0000018bcfe56800000000050000018bcfe569f400000082"; /* .000 → 105, .500 → 230 */
static const char TXN_INDEX[] = "00000000000000002328000000000000006e0000000000000096000000000000008c"
                                "00000000000000002329000000000000008c00000000000000a000000000000000a1";
static const int64_t BASE = 100, T0 = 1700000000000;

static void expect_offset(const bytes *index, int64_t target, int64_t offset, int32_t position) {
    int64_t found_offset;
    int32_t found_position;
    tl_offset_index_lookup(index->data, tl_offset_index_entries(index->data, index->size), BASE, target, &found_offset,
                           &found_position);
    CHECK_EQUAL(found_offset, offset);
    CHECK_EQUAL(found_position, position);
}

static void test_offset_index(void) {
    bytes index = from_hex(OFFSET_INDEX);
    tl_fault fault;
    CHECK_EQUAL(tl_offset_index_entries(index.data, index.size), 2);
    expect_offset(&index, 0, 100, 0);
    expect_offset(&index, 104, 100, 0);
    expect_offset(&index, 105, 105, 4096);
    expect_offset(&index, 229, 105, 4096);
    expect_offset(&index, 230, 230, 9320);
    expect_offset(&index, INT64_MAX, 230, 9320);
    expect_offset(&index, INT64_MIN, 100, 0);
    CHECK_EQUAL(tl_offset_index_upper_bound(index.data, 2, BASE, 0, 4096), 105);
    CHECK_EQUAL(tl_offset_index_upper_bound(index.data, 2, BASE, 0, 4097), 230);
    CHECK_EQUAL(tl_offset_index_upper_bound(index.data, 2, BASE, 9000, 321), -1);
    CHECK_EQUAL(tl_offset_index_upper_bound(index.data, 2, BASE, INT64_MAX, 1), -1);
    /* What begins at 9320 is the batch behind the one that ends at 105. */
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, BASE, 9321, &fault), TL_OK);
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, BASE, 9320, &fault), TL_BAD_ENTRY);
    CHECK_EQUAL(fault.position, 8);
    CHECK_STATUS(tl_offset_index_check(index.data, index.size - 1, BASE, INT64_MAX, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, -1, INT64_MAX, &fault), TL_BAD_ARGUMENT);
    int64_t offsets[2];
    int32_t positions[2];
    tl_offset_index_read(index.data, 2, BASE, offsets, positions);
    CHECK(offsets[0] == 105 && offsets[1] == 230 && positions[0] == 4096 && positions[1] == 9320);
    tl_offset_index_read(index.data, 2, BASE, NULL, NULL);
    index.data[15] = index.data[14] = 0; /* position 0x0000 behind 4096 */
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, BASE, INT64_MAX, &fault), TL_BAD_ORDER);
    index.data[11] = 5; /* the same offset twice */
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, BASE, INT64_MAX, &fault), TL_BAD_ORDER);
    index.data[8] = 0x80;
    CHECK_STATUS(tl_offset_index_check(index.data, index.size, BASE, INT64_MAX, &fault), TL_BAD_ENTRY);
    free(index.data);
}

/* Searches side by side have to find what one alone finds, in any number, and above all write nothing behind the last
 * place. In a file out of order they may find another entry, but one of its own. */
static void test_many_at_once(void) {
    enum { ENTRIES = 37, TARGETS = 50 };
    uint8_t index[ENTRIES * TL_OFFSET_ENTRY], times[ENTRIES * TL_TIME_ENTRY];
    int64_t targets[TARGETS], first[TARGETS + 1], second[TARGETS + 1], alone, other;
    int32_t positions[TARGETS + 1], position;
    uint32_t state = 7;
    for (int ordered = 0; ordered < 2; ordered++) {
        for (size_t i = 0; i < sizeof times; i++) times[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
        memcpy(index, times, sizeof index);
        for (uint32_t i = 0; ordered && i < ENTRIES; i++) {
            uint32_t entry[5] = {0, __builtin_bswap32(40 * i + 7), __builtin_bswap32(3 * i + 2),
                                 __builtin_bswap32(40 * i + 9), __builtin_bswap32(100 * i + 1)};
            memcpy(times + i * TL_TIME_ENTRY, entry, TL_TIME_ENTRY);
            memcpy(index + i * TL_OFFSET_ENTRY, entry + 3, TL_OFFSET_ENTRY);
        }
        for (int64_t i = 0; i < TARGETS; i++) targets[i] = ordered ? 31 * i : BASE + (i - 9) * (1 << 26);
        targets[3] = INT64_MIN, targets[5] = INT64_MAX;
        for (size_t entries = 0; entries <= ENTRIES; entries++) {
            for (size_t count = 0; count <= TARGETS; count++) {
                first[count] = second[count] = positions[count] = 77;
                tl_offset_index_lookup_many(index, entries, BASE, targets, count, first, positions);
                for (size_t i = 0; i < count; i++) {
                    tl_offset_index_lookup(index, entries, BASE, targets[i], &alone, &position);
                    CHECK(!ordered || (first[i] == alone && positions[i] == position));
                }
                CHECK(first[count] == 77 && positions[count] == 77);
                tl_time_index_lookup_many(times, entries, BASE, targets, count, first, second);
                for (size_t i = 0; i < count; i++) {
                    tl_time_index_lookup(times, entries, BASE, targets[i], &alone, &other);
                    CHECK(!ordered || (first[i] == alone && second[i] == other));
                }
                CHECK(first[count] == 77 && second[count] == 77);
            }
        }
    }
}

static void test_offset_lookup_everywhere(void) {
    enum { ENTRIES = 100 };
    uint8_t index[ENTRIES * TL_OFFSET_ENTRY];
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint32_t entry[2] = {__builtin_bswap32(3 * i + 3), __builtin_bswap32(100 * i + 100)};
        memcpy(index + i * sizeof entry, entry, sizeof entry);
    }
    for (size_t entries = 0; entries <= ENTRIES; entries++) {
        for (int64_t target = BASE; target < BASE + 3 * ENTRIES + 5; target++) {
            int64_t below = (target - BASE) / 3 < (int64_t)entries ? (target - BASE) / 3 : (int64_t)entries, offset;
            int32_t position;
            tl_offset_index_lookup(index, entries, BASE, target, &offset, &position);
            CHECK_EQUAL(offset, BASE + 3 * below);
            CHECK_EQUAL(position, 100 * below);
        }
    }
}

static void test_preallocated(void) {
    bytes index = from_hex("0000000500001000000000820000246800000000000000000000000000000000");
    CHECK_EQUAL(tl_offset_index_entries(index.data, index.size), 2);
    CHECK_EQUAL(tl_offset_index_entries(index.data + 16, 16), 0);
    CHECK_EQUAL(tl_offset_index_entries(index.data + 16, 8), 1);
    CHECK_EQUAL(tl_time_index_entries(index.data + 16, 12), 1);
    CHECK_EQUAL(tl_offset_index_entries(index.data, 7), 0);
    expect_offset(&index, INT64_MAX, 230, 9320);
    free(index.data);
}

static void test_time_index(void) {
    static const struct {
        int64_t target, timestamp, offset;
    } CASES[] = {
        {T0 - 1, -1, 100}, {T0, T0, 105}, {T0 + 499, T0, 105}, {T0 + 500, T0 + 500, 230}, {INT64_MIN, -1, 100}};
    bytes index = from_hex(TIME_INDEX);
    tl_fault fault;
    int64_t timestamp, offset, timestamps[2], offsets[2];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        tl_time_index_lookup(index.data, 2, BASE, CASES[i].target, &timestamp, &offset);
        CHECK_EQUAL(timestamp, CASES[i].timestamp);
        CHECK_EQUAL(offset, CASES[i].offset);
    }
    tl_time_index_read(index.data, 2, BASE, timestamps, offsets);
    CHECK(timestamps[1] == T0 + 500 && offsets[1] == 230);
    CHECK_STATUS(tl_time_index_check(index.data, index.size, BASE, &fault), TL_OK);
    CHECK_STATUS(tl_time_index_check(index.data, 13, BASE, &fault), TL_BAD_SIZE);
    index.data[23] = 4; /* the offset falls */
    CHECK_STATUS(tl_time_index_check(index.data, index.size, BASE, &fault), TL_BAD_ORDER);
    CHECK_EQUAL(fault.position, 12);
    index.data[18] = 0x68, index.data[19] = 0; /* the same time twice */
    CHECK_STATUS(tl_time_index_check(index.data, index.size, BASE, &fault), TL_BAD_ORDER);
    index.data[12] = 0x80;
    CHECK_STATUS(tl_time_index_check(index.data, index.size, BASE, &fault), TL_BAD_ENTRY);
    free(index.data);
}

static void expect_aborted(const bytes *index, int64_t from, int64_t to, size_t count, int64_t first, bool complete) {
    tl_aborted found[2];
    size_t found_count;
    bool found_complete;
    tl_fault fault;
    CHECK_STATUS(tl_txn_index_collect(index->data, index->size, from, to, found, &found_count, &found_complete, &fault),
                 TL_OK);
    CHECK_EQUAL(found_count, count);
    CHECK_EQUAL(found_complete, complete);
    if (count) CHECK_EQUAL(found[0].producer_id, first);
}

static void test_transaction_index(void) {
    bytes index = from_hex(TXN_INDEX);
    tl_txn_entry entries[2];
    size_t count;
    tl_fault fault;
    expect_aborted(&index, 100, 141, 2, 9000, true);
    expect_aborted(&index, 100, 140, 1, 9000, true);
    expect_aborted(&index, 151, 200, 1, 9001, false);
    expect_aborted(&index, 100, 200, 2, 9000, false);
    expect_aborted(&index, 161, 200, 0, 0, false);
    expect_aborted(&index, 0, INT64_MIN, 0, 0, true);
    index.data[33] = 200; /* a follower's entry, which took one at 200 at once: it does not hide what ends in between */
    expect_aborted(&index, 151, 160, 1, 9001, true);
    index.data[33] = 140;
    CHECK_STATUS(tl_txn_index_read(index.data, index.size, entries, &count, &fault), TL_OK);
    CHECK(count == 2 && entries[1].producer_id == 9001 && entries[1].last_stable_offset == 161);
    CHECK_STATUS(tl_txn_index_read(index.data, index.size - 1, entries, &count, &fault), TL_OK);
    CHECK_EQUAL(count, 1);
    CHECK_STATUS(tl_txn_index_check(index.data, index.size, BASE, &fault), TL_OK);
    CHECK_STATUS(tl_txn_index_check(index.data, index.size - 1, BASE, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_txn_index_check(index.data, index.size, 151, &fault), TL_BAD_ENTRY);
    index.data[32] = 1; /* stable up to 396, behind all that ended: a follower has seen what begins there */
    CHECK_STATUS(tl_txn_index_check(index.data, index.size, BASE, &fault), TL_OK);
    index.data[26] = 0x80;
    CHECK_STATUS(tl_txn_index_check(index.data, index.size, BASE, &fault), TL_BAD_ENTRY);
    index.data[26] = 0;
    index.data[34 + 25] = 0x96; /* both end at 150 */
    CHECK_STATUS(tl_txn_index_read(index.data, index.size, entries, &count, &fault), TL_BAD_ORDER);
    CHECK_STATUS(tl_txn_index_check(index.data, index.size, BASE, &fault), TL_BAD_ORDER);
    CHECK_EQUAL(fault.position, 34);
    index.data[35] = 7;
    CHECK_STATUS(tl_txn_index_read(index.data, index.size, entries, &count, &fault), TL_BAD_VERSION);
    CHECK_EQUAL(fault.position, 34);
    free(index.data);
}

int main(void) {
    test_offset_index();
    test_offset_lookup_everywhere();
    test_many_at_once();
    test_preallocated();
    test_time_index();
    test_transaction_index();
    return 0;
}
