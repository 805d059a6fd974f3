/* Memory that is used again: never two holders of one block, what is accounted is what is there, idle blocks go back,
 * a child of a fork has a pool that works. */
#define _DEFAULT_SOURCE 1
#define _XOPEN_SOURCE 700
#include "check.h"
#include "folder.h"
#include "tierlog/read_range.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, THREADS = 8, ROUNDS = 2000 };

static tl_buffer_pool *pool_of(size_t kept_max, size_t kept_min, int64_t idle_ms) {
    tl_buffer_pool *pool;
    CHECK_STATUS(tl_buffer_pool_create(
                     &pool, &(tl_buffer_limits){sizeof(tl_buffer_limits), kept_max, kept_max, kept_min, idle_ms}),
                 TL_OK);
    return pool;
}

static tl_block *take(tl_buffer_pool *pool, size_t size) {
    tl_block *block;
    CHECK_STATUS(tl_buffer_take(pool, size, &block), TL_OK);
    CHECK(block->capacity >= size);
    return block;
}

static void wait_until_quiet(tl_buffer_pool *pool) {
    for (int tries = 0; tl_buffer_pool_figures(pool).has_thread; tries++) {
        CHECK(tries < 2000);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static void test_sizes(void) {
    tl_buffer_pool *pool = pool_of(SIZE_MAX, SIZE_MAX, 1000);
    size_t sizes[] = {0,      1,   65535,   65536,        65537,    70000,       131071,
                      131072, MIB, MIB + 1, 4 * MIB + 28, 64 * MIB, 64 * MIB + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t kept = tl_buffer_pool_figures(pool).kept;
        tl_block *block = take(pool, sizes[i]);
        CHECK_EQUAL(tl_buffer_pool_figures(pool).lent, block->capacity);
        CHECK(block->capacity <= sizes[i] + sizes[i] / 8 + 4096);
        CHECK_EQUAL(block->capacity >= 2 * MIB ? (uintptr_t)block->data % (2 * MIB) : 0, 0); /* a huge page */
        memset(block->data, 1, sizes[i]);
        size_t capacity = block->capacity;
        tl_buffer_give(block);
        bool pooled = sizes[i] >= 65536 && sizes[i] <= 64 * MIB;
        tl_buffer_figures figures = tl_buffer_pool_figures(pool);
        CHECK_EQUAL(figures.lent, 0);
        CHECK_EQUAL(figures.kept, kept > capacity && pooled ? figures.kept : kept + (pooled ? capacity : 0));
        if (pooled) { /* the same size again is the same memory */
            tl_block *again = take(pool, sizes[i]);
            CHECK(again == block);
            CHECK_EQUAL(again->data[sizes[i] - 1], 1);
            tl_buffer_give(again);
        }
    }
    tl_block *none;
    CHECK_STATUS(tl_buffer_take(pool, SIZE_MAX - 10, &none), TL_NO_MEMORY);
    CHECK_EQUAL(tl_buffer_pool_figures(pool).lent, 0);
    tl_buffer_pool_destroy(pool);
}

static void test_bounds(void) {
    tl_buffer_pool *pool = pool_of(10 * MIB, 10 * MIB, 1000);
    tl_block *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = take(pool, 4 * MIB);
    for (int i = 0; i < 10; i++) tl_buffer_give(blocks[i]);
    CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 8 * MIB);
    CHECK(!tl_buffer_pool_figures(pool).has_thread);
    CHECK_EQUAL(tl_buffer_pool_trim(pool, 60000), 0);
    CHECK_EQUAL(tl_buffer_pool_trim(pool, -1000), 8 * MIB);
    CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 0);
    tl_buffer_pool_destroy(pool);
}

static void test_other_sizes_make_room(void) {
    tl_buffer_pool *pool;
    tl_buffer_limits limits = {sizeof(tl_buffer_limits), 64 * MIB, 4 * MIB, 0, 60000};
    CHECK_STATUS(tl_buffer_pool_create(&pool, &limits), TL_OK);
    tl_block *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = take(pool, 2 * MIB);
    for (int i = 0; i < 10; i++) tl_buffer_give(blocks[i]);
    for (int i = 0; i < 10; i++) {
        blocks[i] = take(pool, 3 * MIB);
        tl_buffer_figures figures = tl_buffer_pool_figures(pool);
        size_t peak = figures.lent > 20 * MIB ? figures.lent : 20 * MIB;
        CHECK(figures.lent + figures.kept <= peak + 4 * MIB);
    }
    CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 4 * MIB);
    for (int i = 0; i < 10; i++) tl_buffer_give(blocks[i]);
    tl_buffer_pool_destroy(pool);
}

static void test_idle_blocks_go_back(void) {
    tl_buffer_pool *pool = pool_of(64 * MIB, 2 * MIB, 40);
    tl_block *blocks[20];
    for (int round = 0; round < 2; round++) { /* a second thread after the first has ended */
        for (int i = 0; i < 20; i++) blocks[i] = take(pool, MIB);
        for (int i = 0; i < 20; i++) tl_buffer_give(blocks[i]);
        CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 20 * MIB);
        CHECK(tl_buffer_pool_figures(pool).has_thread);
        wait_until_quiet(pool);
        CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 2 * MIB);
    }
    tl_buffer_note_foreign(pool, 100);
    CHECK(!tl_buffer_pool_figures(pool).has_thread);
    tl_buffer_note_foreign(pool, MIB);
    CHECK(tl_buffer_pool_figures(pool).has_thread);
    wait_until_quiet(pool);
    tl_buffer_note_foreign(pool, MIB);
    tl_buffer_pool_destroy(pool); /* ends the thread, whatever it waits for */
}

static void *take_and_give(void *context) {
    tl_buffer_pool *pool = context;
    uint64_t chance = (uint64_t)(uintptr_t)&chance;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = 60000 + next_random(&chance) % 200000;
        tl_block *block = take(pool, size);
        uint8_t mine = (uint8_t)next_random(&chance);
        block->data[0] = block->data[size - 1] = mine;
        if (round % 64 == 0) nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
        CHECK(block->data[0] == mine && block->data[size - 1] == mine);
        tl_buffer_give(block);
    }
    return NULL;
}

static void test_threads(void) {
    tl_buffer_pool *pool = pool_of(MIB, 0, 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, take_and_give, pool));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    CHECK_EQUAL(tl_buffer_pool_figures(pool).lent, 0);
    wait_until_quiet(pool);
    CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 0);
    tl_buffer_pool_destroy(pool);
}

#ifndef __SANITIZE_THREAD__
static void test_forks(void) {
    tl_buffer_pool *pool = pool_of(64 * MIB, 0, 30);
    tl_block *held = take(pool, MIB);
    held->data[0] = 7;
    tl_buffer_give(take(pool, 2 * MIB));
    CHECK(tl_buffer_pool_figures(pool).has_thread);
    tl_buffer_pool_before_fork(pool);
    pid_t child = fork();
    CHECK(child >= 0);
    tl_buffer_pool_after_fork(pool, child == 0);
    if (child == 0) {
        CHECK(!tl_buffer_pool_figures(pool).has_thread);
        CHECK_EQUAL(tl_buffer_pool_figures(pool).kept, 2 * MIB);
        CHECK_EQUAL(held->data[0], 7);
        tl_buffer_give(held);
        CHECK(tl_buffer_pool_figures(pool).has_thread);
        wait_until_quiet(pool);
        tl_buffer_pool_destroy(pool);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    tl_buffer_give(held);
    tl_buffer_pool_destroy(pool);
}
#endif

static void expect_range(const char *path, tl_buffer_pool *pool, uint64_t start, uint64_t end, const char *expected) {
    tl_files files = tl_posix_files();
    tl_block *block;
    CHECK_EQUAL(tl_read_range(files, pool, path, start, end, &block), strlen(expected));
    CHECK(!memcmp(block->data, expected, strlen(expected)));
    tl_buffer_give(block);
    uint8_t out[16] = {0};
    size_t size = start < end ? (size_t)(end - start) : 0;
    CHECK_EQUAL(tl_read_range_into(files, path, start, out, size < sizeof out ? size : sizeof out), strlen(expected));
    CHECK(!memcmp(out, expected, strlen(expected)));
    CHECK_EQUAL(out[strlen(expected)], 0);
}

static void test_ranges(void) {
    tl_buffer_pool *pool = pool_of(MIB, MIB, 1000);
    folder root = new_folder();
    const char *path = PATH_IN(&root, "f");
    tl_files files = tl_posix_files();
    int64_t file = files.ops->open(files.context, path, TL_OPEN_NEW);
    CHECK_EQUAL(files.ops->pwrite(files.context, file, 0, (const uint8_t *)"0123456789", 10), 0);
    files.ops->close(files.context, file);
    expect_range(path, pool, 0, 10, "0123456789");
    expect_range(path, pool, 3, 5, "34");
    expect_range(path, pool, 8, UINT64_MAX, "89");
    expect_range(path, pool, 10, 20, "");
    expect_range(path, pool, 5, 5, "");
    expect_range(path, pool, 7, 3, "");
    expect_range(path, pool, UINT64_MAX, UINT64_MAX, "");
    tl_block *block;
    CHECK(tl_read_range(files, pool, PATH_IN(&root, "none"), 0, 1, &block) < 0);
    CHECK(!block);
    CHECK_EQUAL(tl_read_range(files, pool, root.path, 0, 1, &block), TL_NOT_REGULAR);
    CHECK(tl_read_range_into(files, PATH_IN(&root, "none"), 0, NULL, 0) < 0);
    CHECK_EQUAL(tl_read_range_into(files, root.path, 0, NULL, 0), TL_NOT_REGULAR);
    CHECK_EQUAL(tl_buffer_pool_figures(pool).lent, 0);
    remove_folder(&root);
    tl_buffer_pool_destroy(pool);
}

int main(void) {
    test_sizes();
    test_bounds();
    test_other_sizes_make_room();
    test_idle_blocks_go_back();
    test_threads();
#ifndef __SANITIZE_THREAD__ /* it knows no threads in a child */
    test_forks();
#endif
    test_ranges();
    return 0;
}
