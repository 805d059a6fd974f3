/* A walk that counts one batch too many sends records of an abandoned branch; one too few hides records for ever. */
#include "check.h"
#include "tierlog/batch_walk.h"

#include <errno.h>
#include <string.h>

enum { ROWS = 5, SIZE = 100, ALL = ROWS * SIZE };

static uint8_t data[ALL];
static tl_fault fault;

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* Batches of 10 offsets from 0 on. */
static void make_batches(void) {
    memset(data, 0, sizeof(data));
    for (unsigned i = 0; i < ROWS; i++) {
        uint8_t *at = data + (size_t)SIZE * i;
        store(at, 10 * i, 8);
        store(at + 8, SIZE - TL_LOG_OVERHEAD, 4);
        at[TL_MAGIC_POSITION] = 2;
        store(at + 23, 9, 4);
    }
}

static tl_batch_walk begun(int64_t position, int64_t wanted, int64_t end_offset, int64_t max_bytes) {
    tl_batch_walk walk;
    tl_batch_walk_begin(&walk, position);
    walk.wanted_offset = wanted;
    walk.end_offset = end_offset;
    walk.greatest_offset = 10 * ROWS - 1;
    walk.log_size = ALL;
    walk.max_bytes = max_bytes;
    return walk;
}

static tl_status walk_all(tl_batch_walk *walk, size_t size) {
    tl_piece piece = {data + walk->position, size - (size_t)walk->position};
    return tl_batch_walk_run(walk, &piece, 1, walk->position, &fault);
}

/* The log behind 7 other bytes of a file, of which so many bytes are in memory. */
enum { BEFORE = 7 };
static int64_t in_memory = BEFORE + ALL;

static int64_t pread_ready(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context;
    CHECK(file == 5 && position >= BEFORE && position + size <= BEFORE + ALL);
    if ((int64_t)position >= in_memory) return in_memory ? -EAGAIN : 0;
    size_t left = (size_t)(in_memory - (int64_t)position), count = size < left ? size : left;
    memcpy(out, data + position - BEFORE, count);
    return (int64_t)count;
}

static const tl_file_ops OPS = {.struct_size = sizeof(tl_file_ops), .pread_ready = pread_ready};

static int64_t error;

static tl_status walk_file(tl_batch_walk *walk, size_t size) {
    return tl_batch_walk_run_ready(walk, (tl_files){&OPS, NULL}, 5, BEFORE, (int64_t)size, &error, &fault);
}

static bool are_equal(const tl_batch_walk *one, const tl_batch_walk *other) {
    return one->position == other->position && one->is_found == other->is_found && one->is_ended == other->is_ended &&
           one->first_position == other->first_position && one->whole_position == other->whole_position &&
           one->whole_offset == other->whole_offset && one->least_offset == other->least_offset;
}

/* Whatever is wanted, and wherever the bytes end, a walk over the file says what one over the bytes says. */
static void test_a_file(void) {
    for (int64_t wanted = 0; wanted <= 10 * ROWS; wanted += 5)
        for (int64_t most = 1; most < 2 * ALL; most += SIZE / 4)
            for (size_t size = 0; size <= ALL; size++) {
                tl_batch_walk here = begun(0, wanted, 10 * ROWS - 10, most), there = here;
                CHECK_STATUS(walk_all(&here, size), TL_OK);
                CHECK_STATUS(walk_file(&there, size), TL_OK);
                CHECK_EQUAL(error, 0);
                CHECK(are_equal(&here, &there));
            }
    for (in_memory = 0; in_memory < BEFORE + ALL; in_memory++) {
        tl_batch_walk walk = begun(0, 0, 10 * ROWS, ALL);
        CHECK_STATUS(walk_file(&walk, ALL), TL_OK);
        /* Of the last batch the header alone has to be there. */
        CHECK_EQUAL(error, in_memory < BEFORE + ALL - SIZE + TL_HEADER_SIZE_V2 ? -EAGAIN : 0);
    }
}

static void test_where_it_begins_and_ends(void) {
    for (int64_t wanted = 0; wanted < 10 * ROWS; wanted++)
        for (int64_t end = wanted; end <= 10 * ROWS; end++) {
            tl_batch_walk walk = begun(0, wanted, end, ALL);
            CHECK_STATUS(walk_all(&walk, ALL), TL_OK);
            int64_t first = wanted / 10 * SIZE, stop = (end + 9) / 10 * SIZE;
            CHECK(walk.is_found == (first < stop) && walk.position == stop && (walk.is_ended || stop == ALL));
            if (!walk.is_found) continue;
            CHECK_EQUAL(walk.first_position, first);
            CHECK(walk.first.base_offset == wanted / 10 * 10 && walk.first_last_offset == wanted / 10 * 10 + 9);
            CHECK(walk.whole_position == stop && walk.whole_offset == stop / SIZE * 10);
        }
}

static void test_the_bytes_that_are_wanted(void) {
    for (int64_t most = 1; most < 2 * ALL; most++) {
        tl_batch_walk walk = begun(SIZE, 10, 10 * ROWS, most);
        CHECK_STATUS(walk_all(&walk, ALL), TL_OK);
        int64_t whole = most < SIZE ? 1 : most / SIZE < ROWS - 1 ? most / SIZE : ROWS - 1;
        CHECK(walk.whole_position == SIZE + whole * SIZE && walk.whole_offset == 10 + whole * 10);
        CHECK(walk.position >= (most < ALL - SIZE ? SIZE + most : ALL));
    }
}

/* However the bytes are cut, and wherever they end, what is said of them is the same. */
static void test_pieces(void) {
    for (size_t cut = 1; cut < 2 * SIZE; cut++) {
        tl_piece pieces[ALL + 1];
        size_t count = 0;
        for (size_t at = 0; at < ALL; at += cut) {
            if (count == 1) pieces[count++] = (tl_piece){data, 0};
            pieces[count++] = (tl_piece){data + at, ALL - at < cut ? ALL - at : cut};
        }
        tl_batch_walk walk = begun(0, 25, 40, ALL);
        CHECK_STATUS(tl_batch_walk_run(&walk, pieces, count, 0, &fault), TL_OK);
        CHECK(walk.first_position == 2 * SIZE && walk.position == 4 * SIZE && walk.whole_position == 4 * SIZE);
    }
    for (size_t size = 0; size < ALL; size++) {
        tl_batch_walk walk = begun(0, 25, 40, ALL);
        CHECK_STATUS(walk_all(&walk, size), TL_OK);
        CHECK(walk.is_found == (size >= 2 * SIZE + TL_HEADER_SIZE_V2));
        CHECK(walk.is_ended == (size >= 4 * SIZE + TL_HEADER_SIZE_V2));
        if (walk.is_ended || walk.position > (int64_t)size) continue;
        CHECK_STATUS(walk_all(&walk, ALL), TL_OK);
        CHECK(walk.is_ended && walk.first_position == 2 * SIZE && walk.position == 4 * SIZE);
    }
}

static void test_damage(void) {
    tl_batch_walk walk = begun(0, 0, 10 * ROWS, ALL);
    store(data + 3 * SIZE, 29, 8); /* does not rise */
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_OFFSET);
    /* Either of the two may be the wrong one. */
    CHECK(walk.is_found && walk.position == 2 * SIZE && walk.whole_position == 2 * SIZE && fault.position == 3 * SIZE);
    CHECK(walk.whole_offset == 20 && walk.least_offset == 20);
    CHECK(fault.expected == 30 && fault.found == 38 && fault.base_offset == 29);
    store(data + 3 * SIZE, 41, 8); /* ends above */
    walk = begun(0, 0, 10 * ROWS, ALL);
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_OFFSET);
    make_batches();
    store(data + 3 * SIZE + 23, UINT32_MAX, 4); /* ends before it begins */
    walk = begun(0, 0, 10 * ROWS, ALL);
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_OFFSET);
    make_batches();
    walk = begun(0, 0, 10 * ROWS, ALL);
    walk.least_offset = 1;
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_OFFSET);
    walk = begun(0, 0, 10 * ROWS, ALL); /* the log ends inside a batch, with its header or without */
    for (walk.log_size = ALL - SIZE + 1; walk.log_size < ALL; walk.log_size++) {
        tl_batch_walk torn = walk;
        CHECK_STATUS(walk_all(&torn, (size_t)walk.log_size), TL_BAD_SIZE);
        CHECK(torn.position == ALL - SIZE && torn.whole_position == ALL - SIZE);
    }
    data[SIZE + TL_MAGIC_POSITION] = 3;
    walk = begun(0, 15, 10 * ROWS, ALL);
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_MAGIC);
    CHECK(!walk.is_found && walk.position == SIZE && fault.position == SIZE);
    walk = begun(0, 15, 10 * ROWS, ALL);
    fault.position = 0;
    CHECK_STATUS(walk_file(&walk, ALL), TL_BAD_MAGIC);
    CHECK(!error && !walk.is_found && walk.position == SIZE && fault.position == SIZE);
    make_batches();
    store(data + SIZE + 8, INT32_MAX, 4);
    walk = begun(0, 15, 10 * ROWS, ALL);
    CHECK_STATUS(walk_all(&walk, ALL), TL_BAD_SIZE);
    make_batches();
}

/* A base offset that moved up is seen by the header behind, also where no more is wanted. */
static void test_the_header_behind(void) {
    store(data + SIZE, 15, 8);
    for (int64_t most = 1; most <= SIZE; most += SIZE - 1)
        for (int64_t wanted = 0; wanted < 25; wanted += 5) {
            tl_batch_walk here = begun(0, wanted, 10 * ROWS, most), there = here;
            bool is_seen = wanted >= 10;
            CHECK_STATUS(walk_all(&here, ALL), is_seen ? TL_BAD_OFFSET : TL_OK);
            CHECK_STATUS(walk_file(&there, 2 * SIZE), is_seen ? TL_BAD_OFFSET : TL_OK);
            CHECK(are_equal(&here, &there) && here.is_found == !is_seen && here.position == SIZE);
            CHECK(!is_seen || fault.position == 2 * SIZE);
        }
    tl_batch_walk walk = begun(0, 10, 10 * ROWS, 1);
    CHECK_STATUS(walk_all(&walk, 2 * SIZE + TL_HEADER_SIZE_V2 - 1), TL_OK); /* it is not at hand */
    CHECK(walk.is_found && walk.whole_position == 2 * SIZE);
    make_batches();
}

int main(void) {
    make_batches();
    test_the_header_behind();
    test_where_it_begins_and_ends();
    test_the_bytes_that_are_wanted();
    test_pieces();
    test_damage();
    test_a_file();
    return 0;
}
