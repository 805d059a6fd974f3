/* What the JVM gets from a window's bytes: the same rows and faults however the log is cut, within the budget, and
 * nothing left behind. A fault here takes a Spark executor down. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "headers.h"
#include "local_file.h"
#include "reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", TLJ_LOGS, name);
    return path;
}

static bytes log_of(const char *name) {
    FILE *file = fopen(path_of(name), "rb");
    CHECK(file != NULL);
    CHECK(!fseek(file, 0, SEEK_END));
    bytes log = {NULL, (size_t)ftell(file)};
    log.data = malloc(log.size);
    rewind(file);
    CHECK_EQUAL(fread(log.data, 1, log.size, file), log.size);
    fclose(file);
    return log;
}

static reading whole(void) {
    return (reading){.window = SIZE_MAX,
                     .want = ALL_COLUMNS,
                     .target_bytes = 2 << 20,
                     .budget_bytes = 64 << 20,
                     .range = {.base_position = 1000,
                               .to_offset_exclusive = INT64_MAX,
                               .greatest_offset = INT64_MAX,
                               .from_timestamp = INT64_MIN,
                               .to_timestamp_exclusive = INT64_MAX,
                               .decompressed_limit = 16 << 20,
                               .verify_crc = true}};
}

static void test_any_window_gives_the_same(const bytes *log) {
    reading how = whole();
    outcome expected = read_log(log->data, log->size, &how, 1);
    CHECK(expected.rows > 0 && !expected.faults);
    for (size_t window = 1; window < 2 * log->size; window += window < 100 ? 1 : window / 3) {
        for (int64_t target = 1; target <= 1 << 16; target <<= 8) {
            how.window = window;
            how.target_bytes = target;
            outcome found = read_log(log->data, log->size, &how, 1);
            CHECK_EQUAL(found.rows, expected.rows);
            CHECK_EQUAL(found.digest, expected.digest);
        }
    }
}

static void test_ranges_share_a_decoder(const bytes *log) {
    reading how = whole();
    how.window = 777;
    outcome once = read_log(log->data, log->size, &how, 1), thrice = read_log(log->data, log->size, &how, 3);
    CHECK_EQUAL(thrice.rows, 3 * once.rows);
    CHECK(!thrice.faults);
}

static void test_rows_alone(const bytes *log) {
    reading how = whole();
    outcome expected = read_log(log->data, log->size, &how, 1);
    how.want = 0;
    outcome found = read_log(log->data, log->size, &how, 1);
    CHECK_EQUAL(found.rows, expected.rows);
}

/* Each byte, damaged: any window gives the same rows and faults, with and without going on. */
static void test_damage(const bytes *log) {
    size_t end = log->size < 3000 ? log->size : 3000;
    for (size_t at = 0; at < end; at += 7) {
        bytes damaged = copy_of(log->data, log->size);
        damaged.data[at] ^= (uint8_t)(1u << at % 8);
        reading how = whole();
        for (int skip = 0; skip < 2; skip++) {
            how.skip = skip;
            how.window = SIZE_MAX;
            outcome expected = read_log(damaged.data, damaged.size, &how, 1);
            how.window = 1 + at % 500;
            outcome found = read_log(damaged.data, damaged.size, &how, 1);
            CHECK_EQUAL(found.rows, expected.rows);
            CHECK_EQUAL(found.faults, expected.faults);
        }
        free(damaged.data);
    }
}

static void test_a_log_that_ends_inside_a_batch(const bytes *log) {
    reading how = whole();
    how.window = 100;
    outcome found = read_log(log->data, log->size - 1, &how, 1);
    CHECK_EQUAL(found.faults, 1);
    how.skip = true;
    found = read_log(log->data, log->size - 1, &how, 1);
    CHECK_EQUAL(found.faults, 0);
}

/* Whatever the budget: the rows, or the refusal; read_log has checked that it was kept. */
static void test_budget(const bytes *log) {
    bool refused = false, enough = false;
    reading how = whole();
    how.window = 333;
    for (int64_t budget = 1; budget < 8 << 20; budget = budget * 3 / 2 + 1) {
        how.budget_bytes = budget;
        outcome found = read_log(log->data, log->size, &how, 1);
        CHECK(!enough || !found.out_of_memory);
        refused |= found.out_of_memory;
        enough |= !found.out_of_memory;
    }
    CHECK(refused && enough);
}

/* What a range's records come to; false: they cannot all be read. */
static bool sum_up(const bytes *log, int64_t from, int64_t to, const tlj_range *all, tlj_decoder *decoder) {
    tlj_range range = *all;
    tl_status status;
    range.base_position = (uint64_t)from;
    tlj_decoder_begin(decoder, &range);
    tlj_decoder_feed(decoder, log->data + from, (size_t)(to - from));
    tlj_step step = tlj_decoder_next(decoder, &status);
    return step == TLJ_ENDED || (step == TLJ_INPUT && tlj_decoder_finish(decoder, false, &status) == TLJ_ENDED);
}

static void add(tl_summary *to, const tl_summary *more) {
    if (!more->records) return;
    bool first = !to->records;
    to->records += more->records;
    if (first || more->least_offset < to->least_offset) to->least_offset = more->least_offset;
    if (first || more->greatest_offset > to->greatest_offset) to->greatest_offset = more->greatest_offset;
    if (first || more->least_timestamp < to->least_timestamp) to->least_timestamp = more->least_timestamp;
    if (first || more->greatest_timestamp > to->greatest_timestamp) to->greatest_timestamp = more->greatest_timestamp;
}

/* The same by headers, and by records where headers do not say, as the JVM puts them together. */
static bool sum_by_headers(int file, bool checked, const bytes *log, const tlj_range *range, tlj_decoder *walking,
                           tlj_decoder *summing, tl_summary *found) {
    tlj_walk walk = {.file = file,
                     .checked = checked,
                     .end_position = (int64_t)log->size,
                     .read_end = (int64_t)log->size,
                     .trust = {.greatest_timestamp = INT64_MAX}};
    int64_t last = 0;
    *found = (tl_summary){0};
    tlj_decoder_begin(walking, range);
    while (!walk.ended) {
        /* Where the walk fails all of the range is decoded. */
        if (tlj_walk_headers(walking, &walk) != TL_OK) {
            bool whole = sum_up(log, 0, (int64_t)log->size, range, summing);
            *found = summing->summary;
            return whole;
        }
        CHECK(walk.requests >= 1 && walk.bytes <= (int64_t)log->size + walk.requests * TLJ_HEADER_BLOCK_BYTES);
        if (walk.needed_from == walk.needed_to) continue;
        CHECK(walk.needed_from >= last && walk.needed_to > walk.needed_from);
        last = walk.needed_to;
        if (!sum_up(log, walk.needed_from, walk.needed_to, range, summing)) return false;
        add(found, &summing->summary);
    }
    add(found, &walking->summary);
    return true;
}

static void check_equal(const tl_summary *found, const tl_summary *expected, uint32_t want) {
    CHECK_EQUAL(found->records, expected->records);
    if (!expected->records) return;
    if (want & TL_SUMMARY_OFFSETS) {
        CHECK_EQUAL(found->least_offset, expected->least_offset);
        CHECK_EQUAL(found->greatest_offset, expected->greatest_offset);
    }
    if (want & TL_SUMMARY_LEAST_TIMESTAMP) CHECK_EQUAL(found->least_timestamp, expected->least_timestamp);
    if (want & TL_SUMMARY_GREATEST_TIMESTAMP) CHECK_EQUAL(found->greatest_timestamp, expected->greatest_timestamp);
}

/* Headers of the file, and the records of what they do not say, give what all records give. */
static void test_headers(const char *name, const bytes *log) {
    tlj_budget budget = {.limit = 64 << 20};
    tlj_decoder walking, summing;
    reading how = whole();
    outcome rows = read_log(log->data, log->size, &how, 1);
    int file = tlj_file_open(path_of(name));
    CHECK(file >= 0);
    how.range.base_position = 0;
    for (uint32_t round = 0; round < 16; round++) {
        uint32_t want = round & 7;
        bool checked = round & 8;
        CHECK_STATUS(tlj_decoder_open_summary(&walking, &budget, want), TL_OK);
        CHECK_STATUS(tlj_decoder_open_summary(&summing, &budget, want), TL_OK);
        CHECK(sum_up(log, 0, (int64_t)log->size, &how.range, &summing));
        tl_summary expected = summing.summary, found;
        CHECK_EQUAL(expected.records, rows.rows);
        CHECK(sum_by_headers(file, checked, log, &how.range, &walking, &summing, &found));
        check_equal(&found, &expected, want);
        for (int64_t wrong = -1; wrong <= 100; wrong += 101) {
            tlj_decoder_begin(&walking, &how.range);
            int64_t end = (int64_t)log->size + wrong;
            tlj_walk walk = {.file = file, .checked = checked, .end_position = end, .read_end = end};
            tl_status status = TL_OK;
            while (status == TL_OK && !walk.ended) status = tlj_walk_headers(&walking, &walk);
            CHECK_STATUS(status, TL_TRUNCATED);
        }
        tlj_decoder_close(&walking);
        tlj_decoder_close(&summing);
    }
    tlj_file_close(file);
    CHECK_EQUAL(atomic_load(&budget.live), 0);
}

/* A bit of the file flipped, one after another: checked headers give what the records give, and fail where they do. Of
 * trusted ones no bit takes the process down. */
static void test_damaged_headers(const bytes *log) {
    tlj_budget budget = {.limit = 64 << 20};
    tlj_decoder walking, summing;
    tlj_range range = whole().range;
    const char *folder = getenv("TMPDIR");
    char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/tlj-headers-XXXXXX", folder ? folder : P_tmpdir) < (int)sizeof path);
    int out = mkstemp(path), file = tlj_file_open(path);
    CHECK(out >= 0 && file >= 0);
    range.base_position = 0;
    bytes damaged = copy_of(log->data, log->size);
    uint32_t want = TL_SUMMARY_OFFSETS | TL_SUMMARY_GREATEST_TIMESTAMP;
    CHECK_STATUS(tlj_decoder_open_summary(&walking, &budget, want), TL_OK);
    CHECK_STATUS(tlj_decoder_open_summary(&summing, &budget, want), TL_OK);
    size_t bits = 8 * (log->size < 2000 ? log->size : 2000);
    for (size_t bit = 0; bit < bits; bit++) {
        damaged.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_EQUAL(pwrite(out, damaged.data, damaged.size, 0), (ssize_t)damaged.size);
        tl_summary found, expected;
        bool sound = sum_up(&damaged, 0, (int64_t)damaged.size, &range, &summing);
        expected = summing.summary;
        CHECK_EQUAL(sum_by_headers(file, true, &damaged, &range, &walking, &summing, &found), sound);
        if (sound) check_equal(&found, &expected, want);
        sum_by_headers(file, false, &damaged, &range, &walking, &summing, &found);
        damaged.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    tlj_decoder_close(&walking);
    tlj_decoder_close(&summing);
    tlj_file_close(file);
    close(out);
    unlink(path);
    free(damaged.data);
    CHECK_EQUAL(atomic_load(&budget.live), 0);
}

static void test_blocks(void) {
    tlj_budget budget = {.limit = 1000};
    tlj_block block = {0};
    CHECK_STATUS(tlj_reserve(&budget, &block, 600, 0), TL_OK);
    block.data[0] = 7;
    CHECK_STATUS(tlj_reserve(&budget, &block, 1001, 1), TL_OVER_LIMIT);
    CHECK_EQUAL(atomic_load(&budget.refused), 1001);
    CHECK_EQUAL(block.data[0], 7);
    CHECK_STATUS(tlj_reserve_generous(&budget, &block, 900, 4000, 1), TL_OK);
    CHECK_EQUAL(block.size, 900);
    CHECK_EQUAL(block.data[0], 7);
    CHECK_STATUS(tlj_reserve(&budget, &block, SIZE_MAX, 0), TL_NO_MEMORY);
    tlj_release(&budget, &block);
    CHECK_EQUAL(atomic_load(&budget.live), 0);
    CHECK_EQUAL(atomic_load(&budget.high), 900);
}

int main(void) {
    static const char *const NAMES[] = {"record-v0-v1/mixed-v0-v1-v2.log", "record-v0-v1/v1-snappy.log",
                                        "bad/log/40-lz4-good-control.log"};
    test_blocks();
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        bytes log = log_of(NAMES[i]);
        test_any_window_gives_the_same(&log);
        test_ranges_share_a_decoder(&log);
        test_rows_alone(&log);
        test_damage(&log);
        test_a_log_that_ends_inside_a_batch(&log);
        test_budget(&log);
        test_headers(NAMES[i], &log);
        test_damaged_headers(&log);
        free(log.data);
    }
    return 0;
}
