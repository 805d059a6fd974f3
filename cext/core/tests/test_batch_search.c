/* A search that passes a batch over hides its records; one that goes astray reads headers out of records. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "folder.h"
#include "tierlog/batch_search.h"

#include <string.h>

enum { ROWS = 4, SIZE = 100 };

static uint8_t data[ROWS * SIZE];
static tl_fault fault;

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* Batches of 10 offsets from 0 on, timestamps 50, 40, 70, 60. */
static void make_batches(void) {
    static const uint64_t greatest[ROWS] = {50, 40, 70, 60};
    memset(data, 0, sizeof(data));
    for (unsigned i = 0; i < ROWS; i++) {
        uint8_t *at = data + (size_t)SIZE * i;
        store(at, 10 * i, 8);
        store(at + 8, SIZE - TL_LOG_OVERHEAD, 4);
        at[TL_MAGIC_POSITION] = 2;
        store(at + 23, 9, 4);
        store(at + 35, greatest[i], 8);
    }
}

static tl_status search_all(tl_batch_search *search, int64_t end_position, int64_t offset, int64_t timestamp) {
    tl_batch_search_begin(search, 0, end_position, offset, timestamp);
    return tl_batch_search_feed(search, data, sizeof(data), &fault);
}

static void test_offset_and_timestamp(void) {
    tl_batch_search search;
    for (int64_t offset = 0; offset < 10 * ROWS; offset++) {
        CHECK_STATUS(search_all(&search, sizeof(data), offset, INT64_MIN), TL_OK);
        CHECK(search.is_found && search.is_done && search.passed == offset / 10);
        CHECK(search.position == offset / 10 * SIZE && search.header.base_offset == offset / 10 * 10);
        CHECK_EQUAL(search.last_offset, search.header.base_offset + 9);
    }
    CHECK_STATUS(search_all(&search, sizeof(data), 0, 51), TL_OK);
    CHECK(search.is_found && search.position == 2 * SIZE);
    CHECK(search.greatest_timestamp == 50 && search.greatest_timestamp_offset == 9);
    CHECK_STATUS(search_all(&search, sizeof(data), 30, 70), TL_OK);
    CHECK(!search.is_found && search.is_done && search.position == sizeof(data));
    CHECK(search.passed == ROWS && search.passed_last_offset == 39);
    CHECK(search.greatest_timestamp == 70 && search.greatest_timestamp_offset == 29);
}

/* Any cut of the bytes finds the same: each piece begins where the search says. */
static void test_pieces(void) {
    for (size_t piece = TL_HEADER_SIZE_V2; piece < 3 * SIZE; piece++) {
        tl_batch_search search;
        tl_batch_search_begin(&search, 0, sizeof(data), 35, INT64_MIN);
        for (int feeds = 0; !search.is_done && feeds < ROWS; feeds++) {
            size_t at = (size_t)search.position, left = sizeof(data) - at;
            CHECK_STATUS(tl_batch_search_feed(&search, data + at, left < piece ? left : piece, &fault), TL_OK);
            CHECK(search.is_done || (size_t)search.position > at);
        }
        CHECK(search.is_found && search.position == 3 * SIZE);
    }
}

/* A batch that the log does not hold as a whole is none, wherever it is cut off. */
static void test_a_torn_end(void) {
    tl_batch_search search;
    for (int64_t end = 2 * SIZE; end < 3 * SIZE; end++) {
        CHECK_STATUS(search_all(&search, end, 20, INT64_MIN), TL_OK);
        CHECK(!search.is_found && search.is_done && search.position == 2 * SIZE && search.passed_last_offset == 19);
    }
    tl_batch_search_begin(&search, 0, sizeof(data), 0, INT64_MIN);
    CHECK_STATUS(tl_batch_search_feed(&search, data, TL_HEADER_SIZE_V2 - 1, &fault), TL_OK);
    CHECK(!search.is_done && search.position == 0);
    tl_batch_search_begin(&search, 5, 5, 0, INT64_MIN);
    CHECK(search.is_done && !search.is_found);
}

/* A file of many small batches, and a large one among them. */
static void test_a_file(void) {
    enum { COUNT = 400, LARGE = 100000 };
    folder root = new_folder();
    tl_files files = tl_posix_files();
    int64_t file = files.ops->open(files.context, PATH_IN(&root, "log"), TL_OPEN_NEW), error;
    CHECK(file >= 0);
    uint64_t end = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t batch[SIZE];
        memcpy(batch, data, SIZE);
        store(batch, 10 * i, 8);
        uint64_t size = i == COUNT / 2 ? LARGE : SIZE;
        store(batch + 8, size - TL_LOG_OVERHEAD, 4);
        CHECK(files.ops->pwrite(files.context, file, end, batch, SIZE) >= 0);
        end += size;
    }
    tl_batch_search search;
    for (int64_t offset = 0; offset < 10 * COUNT; offset += 7) {
        tl_batch_search_begin(&search, 0, (int64_t)end, offset, INT64_MIN);
        CHECK_STATUS(tl_batch_search_run(&search, files, file, &error, &fault), TL_OK);
        CHECK(!error && search.is_found && search.header.base_offset == offset / 10 * 10);
    }
    tl_batch_search_begin(&search, 0, (int64_t)end + 1000, INT64_MAX, INT64_MIN);
    CHECK_STATUS(tl_batch_search_run(&search, files, file, &error, &fault), TL_PARTIAL);
    CHECK_EQUAL(fault.position, end);
    tl_batch_search_begin(&search, 0, (int64_t)end, 0, INT64_MIN);
    CHECK_STATUS(tl_batch_search_run(&search, tl_posix_files(), -1, &error, &fault), TL_OK);
    CHECK(error < 0 && !search.is_done);
    files.ops->close(files.context, file);
    remove_folder(&root);
}

static void test_faults(void) {
    tl_batch_search search;
    data[SIZE + TL_MAGIC_POSITION] = 3;
    CHECK_STATUS(search_all(&search, sizeof(data), 15, INT64_MIN), TL_BAD_MAGIC);
    CHECK_EQUAL(fault.position, SIZE);
    store(data + SIZE + 8, 3, 4);
    CHECK_STATUS(search_all(&search, sizeof(data), 15, INT64_MIN), TL_BAD_SIZE);
    make_batches();
    store(data + 8, INT32_MAX - 12, 4);
    CHECK_STATUS(search_all(&search, INT64_MAX, 15, INT64_MIN), TL_OK);
    CHECK(!search.is_done && search.position == INT32_MAX);
    CHECK_STATUS(search_all(&search, sizeof(data), 15, INT64_MIN), TL_OK);
    CHECK(search.is_done && search.position == 0);
}

int main(void) {
    make_batches();
    test_offset_and_timestamp();
    test_pieces();
    test_a_torn_end();
    test_a_file();
    test_faults();
    return 0;
}
