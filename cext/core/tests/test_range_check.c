/* A wrong answer gives a consumer batches of another place, or refuses sound ones. */
#include "check.h"
#include "tierlog/checksum.h"
#include "tierlog/range_check.h"

#include <errno.h>

enum { BATCH = TL_HEADER_SIZE_V2 + 20, BATCHES = 200, FIRST = 1000 };

static uint8_t log_bytes[BATCHES * BATCH];

static void store(uint8_t *at, uint64_t value, int size) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static void make_batch(uint8_t *out, int64_t base_offset) {
    memset(out, 7, BATCH);
    store(out, (uint64_t)base_offset, 8);
    store(out + 8, BATCH - TL_LOG_OVERHEAD, 4);
    store(out + 12, 0, 4);
    out[16] = 2;
    store(out + 21, 0, 2);
    store(out + 23, 0, 4); /* last offset delta */
    store(out + 57, 1, 4);
    store(out + 17, tl_crc32c(0, out + 21, BATCH - 21), 4);
}

static void make_log(void) {
    for (int i = 0; i < BATCHES; i++) make_batch(log_bytes + i * BATCH, FIRST + i);
}

static tl_range_check begun(uint64_t position) {
    tl_range_check check;
    tl_range_check_begin(&check, position, FIRST, FIRST + BATCHES - 1, sizeof log_bytes);
    return check;
}

static void test_sound_bytes_in_any_pieces(void) {
    uint64_t seed = 9;
    for (int round = 0; round < 100; round++) {
        size_t start = next_random(&seed) % sizeof log_bytes, at = start;
        tl_range_check check = begun(start);
        tl_fault fault;
        while (at < sizeof log_bytes) {
            size_t size = 1 + next_random(&seed) % 3000;
            if (size > sizeof log_bytes - at) size = sizeof log_bytes - at;
            CHECK_STATUS(tl_range_check_feed(&check, log_bytes + at, size, &fault), TL_OK);
            at += size;
        }
        CHECK(check.is_off || check.is_border == (start % BATCH == 0));
        if (start % BATCH == 0) CHECK(check.is_border && !check.is_off);
    }
}

static void test_what_is_wrong(void) {
    tl_fault fault;
    tl_range_check check = begun(0);
    log_bytes[5 * BATCH + 70] ^= 1;
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes, sizeof log_bytes, &fault), TL_BAD_CRC);
    CHECK(check.rule == TL_RULE_CRC && fault.position == 5 * BATCH);
    check = begun(5 * BATCH); /* no border is known there */
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes + 5 * BATCH, sizeof log_bytes - 5 * BATCH, &fault), TL_OK);
    CHECK(check.is_off);
    make_log();
    make_batch(log_bytes + 100 * BATCH, FIRST + 99);
    check = begun(0);
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes, sizeof log_bytes, &fault), TL_BAD_ENTRY);
    CHECK(check.rule == TL_RULE_ORDER && fault.position == 100 * BATCH && fault.expected == FIRST + 100);
    make_log();
    make_batch(log_bytes + (BATCHES - 1) * BATCH, FIRST + BATCHES);
    check = begun(0);
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes, sizeof log_bytes, &fault), TL_BAD_ENTRY);
    make_log();
    store(log_bytes + (BATCHES - 1) * BATCH + 8, 5000, 4);
    check = begun(0);
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes, sizeof log_bytes, &fault), TL_BAD_SIZE);
    CHECK(check.rule == TL_RULE_SIZE && fault.position == (BATCHES - 1) * BATCH);
    make_log();
    log_bytes[3 * BATCH + 16] = 9;
    check = begun(0);
    CHECK_STATUS(tl_range_check_feed(&check, log_bytes, sizeof log_bytes, &fault), TL_BAD_MAGIC);
    CHECK(check.rule == TL_RULE_HEADER && fault.position == 3 * BATCH);
    make_log();
}

static void test_the_last_offset_there_is(void) {
    uint8_t two[2 * BATCH];
    tl_range_check check;
    tl_fault fault;
    make_batch(two, INT64_MAX);
    make_batch(two + BATCH, INT64_MAX);
    tl_range_check_begin(&check, 0, INT64_MAX, INT64_MAX, sizeof two);
    CHECK_STATUS(tl_range_check_feed(&check, two, BATCH, &fault), TL_OK);
    CHECK_STATUS(tl_range_check_feed(&check, two + BATCH, BATCH, &fault), TL_BAD_ENTRY);
}

static void test_the_headers_that_a_caller_asked_for(void) {
    int64_t base_offset[3], last_offset[3], position[3];
    uint8_t crc_ok[3];
    tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                            .capacity = 3,
                            .base_offset = base_offset,
                            .last_offset = last_offset,
                            .position = position,
                            .crc_ok = crc_ok};
    tl_range_check check = begun(0);
    tl_fault fault;
    size_t at = 0;
    for (int seen = 0; seen < 198; seen += 3) {
        table.count = 0;
        CHECK_STATUS(tl_range_check_collect(&check, log_bytes, sizeof log_bytes, &at, &table, &fault), TL_FULL);
        CHECK(table.count == 3 && base_offset[0] == FIRST + seen && position[2] == (seen + 2) * BATCH);
    }
    table.count = 0;
    CHECK_STATUS(tl_range_check_collect(&check, log_bytes, sizeof log_bytes, &at, &table, &fault), TL_OK);
    CHECK(table.count == 2 && at == sizeof log_bytes && last_offset[1] == FIRST + BATCHES - 1);
    log_bytes[4 * BATCH + 70] ^= 1;
    check = begun(0);
    at = table.count = 0;
    CHECK_STATUS(tl_range_check_collect(&check, log_bytes, sizeof log_bytes, &at, &table, &fault), TL_FULL);
    table.count = 1; /* what a caller has already stays */
    CHECK_STATUS(tl_range_check_collect(&check, log_bytes, sizeof log_bytes, &at, &table, &fault), TL_BAD_CRC);
    CHECK(table.count == 2 && base_offset[1] == FIRST + 3 && fault.position == 4 * BATCH);
    make_log();
}

static size_t file_size = sizeof log_bytes;

static int64_t read_some(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context, (void)file;
    size_t left = position < file_size ? file_size - (size_t)position : 0, count = size < left ? size : left;
    if (count > 100) count = 100;
    if (count) memcpy(out, log_bytes + position, count);
    return (int64_t)count;
}

static int64_t not_there(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    return position < file_size ? read_some(context, file, position, out, size) : -EAGAIN;
}

static void test_a_file(void) {
    tl_files files = {&(tl_file_ops){.struct_size = sizeof(tl_file_ops), .pread = read_some, .pread_ready = not_there},
                      NULL};
    uint8_t room[150];
    int64_t error;
    tl_fault fault;
    for (int waits = 0; waits < 2; waits++) {
        tl_range_check check = begun(0);
        CHECK_STATUS(tl_range_check_feed_file(&check, files, 3, 0, file_size, waits, room, sizeof room, &error, &fault),
                     TL_OK);
        CHECK(!error && check.next_offset == FIRST + BATCHES && check.position == file_size);
        log_bytes[5 * BATCH + 70] ^= 1;
        check = begun(0);
        CHECK_STATUS(tl_range_check_feed_file(&check, files, 3, 0, file_size, waits, room, sizeof room, &error, &fault),
                     TL_BAD_CRC);
        CHECK(!error && fault.position == 5 * BATCH && check.next_offset == FIRST + 5);
        make_log();
        file_size = 7 * BATCH;
        check = begun(0);
        CHECK_STATUS(
            tl_range_check_feed_file(&check, files, 3, 0, sizeof log_bytes, waits, room, sizeof room, &error, &fault),
            TL_OK);
        CHECK(error == (waits ? -ENODATA : -EAGAIN));
        file_size = sizeof log_bytes;
    }
}

int main(void) {
    make_log();
    test_a_file();
    test_sound_bytes_in_any_pieces();
    test_what_is_wrong();
    test_the_last_offset_there_is();
    test_the_headers_that_a_caller_asked_for();
    return 0;
}
