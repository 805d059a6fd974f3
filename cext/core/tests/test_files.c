/* What a table of file operations promises, of the machine's. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "folder.h"
#include "tierlog/file_ops.h"
#include "tierlog/growing_file.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 200, PIECE = 1000 };

/* A file system with an empty folder in it. */
typedef struct place {
    tl_files files;
    folder root;
} place;

#define AT(below) PATH_IN(&p->root, below)
#define CALL(function, ...) p->files.ops->function(p->files.context, __VA_ARGS__)

static int64_t write_text(const place *p, int64_t file, uint64_t position, const char *text) {
    return CALL(pwrite, file, position, (const uint8_t *)text, strlen(text));
}

static void check_text(const place *p, int64_t file, uint64_t position, const char *expected, size_t size) {
    uint8_t found[64];
    CHECK_EQUAL(CALL(pread, file, position, found, sizeof found), size);
    CHECK(!memcmp(found, expected, size));
}

static int64_t make(const place *p, const char *path, const char *text) {
    int64_t file = CALL(open, path, TL_OPEN_NEW);
    CHECK(file >= 0);
    CHECK_EQUAL(write_text(p, file, 0, text), 0);
    return file;
}

static void test_content(const place *p) {
    int64_t file = make(p, AT("content"), "hello");
    CHECK_EQUAL(CALL(size, file), 5);
    check_text(p, file, 0, "hello", 5);
    check_text(p, file, 3, "lo", 2);
    check_text(p, file, 5, "", 0);
    check_text(p, file, 5000, "", 0);
    CHECK_EQUAL(write_text(p, file, 8, "far"), 0); /* a hole reads as zeros */
    check_text(p, file, 0, "hello\0\0\0far", 11);
    CHECK_EQUAL(write_text(p, file, 1, "E"), 0);
    check_text(p, file, 0, "hEllo\0\0\0far", 11);
    CHECK_EQUAL(write_text(p, file, 100, ""), 0);
    CHECK_EQUAL(CALL(size, file), 11);
    CHECK_EQUAL(CALL(fsync, file), 0);
    uint8_t byte = 0;
    CHECK_EQUAL(CALL(pread, file, (uint64_t)1 << 63, &byte, 1), -EINVAL);
    CHECK_EQUAL(CALL(pwrite, file, INT64_MAX, &byte, 1), -EFBIG);
    /* What was written is in memory, unless the file system does not tell. */
    int64_t holds = CALL(holds, file, 0, 11);
    CHECK(holds == 1 || holds == -ENOTSUP || CALL(pread_ready, file, 0, &byte, 1) < 0);
    CHECK(CALL(holds, file, 0, 12) != 1 && CALL(holds, file, 11, 1) != 1 && CALL(holds, file, UINT64_MAX, 2) != 1);
    CHECK(holds < 1 || CALL(holds, file, 11, 0) == 1);
    CALL(close, file);
    CHECK(CALL(holds, file, 0, 1) != 1);
    CHECK_EQUAL(CALL(size, file), -EBADF);
    CHECK_EQUAL(CALL(fsync, file), -EBADF);
    CHECK_EQUAL(CALL(pread, file, 0, &byte, 1), -EBADF);
    CHECK_EQUAL(CALL(pwrite, file, 0, &byte, 1), -EBADF);
}

static void test_cutting(const place *p) {
    int64_t file = make(p, AT("cut"), "hello");
    CHECK_EQUAL(CALL(truncate, file, 2), 0);
    check_text(p, file, 0, "he", 2);
    CHECK_EQUAL(CALL(truncate, file, 4), 0); /* what was cut off does not come back */
    check_text(p, file, 0, "he\0\0", 4);
    CHECK_EQUAL(CALL(truncate, file, 0), 0);
    CHECK_EQUAL(CALL(size, file), 0);
    CHECK_EQUAL(CALL(truncate, file, 0), 0);
    CHECK_EQUAL(CALL(truncate, file, (uint64_t)1 << 63), -EFBIG);
    CALL(close, file);
    CHECK_EQUAL(CALL(truncate, file, 0), -EBADF);
}

static void test_growing(const place *p) {
    int64_t file = make(p, AT("growing"), "one");
    tl_growing_file growing = {.files = p->files, .file = file, .size = 3};
    CHECK_EQUAL(tl_growing_file_append(&growing, (const uint8_t *)"two", 3), 0);
    CHECK_EQUAL(tl_growing_file_append(&growing, (const uint8_t *)"", 0), 0);
    CHECK_EQUAL(growing.size, 6);
    check_text(p, file, 0, "onetwo", 6);
    CALL(close, file);
    CHECK_EQUAL(tl_growing_file_append(&growing, (const uint8_t *)"three", 5), -EBADF);
    CHECK_EQUAL(growing.size, 6);
}

/* What was reserved of a file: its sum, and calls. */
static uint64_t reserved_end;
static int reserve_calls;
static int64_t reserve_answer;
static int64_t seen_reserve(void *context, int64_t file, uint64_t position, uint64_t size) {
    (void)context, (void)file;
    reserved_end = position + size;
    reserve_calls++;
    return reserve_answer;
}

static void test_growing_ahead(const place *p) {
    static uint8_t piece[100000];
    enum { LIMIT = 6 << 20, MEBIBYTE = 1 << 20, MOST_AHEAD = LIMIT / 8 + sizeof piece };
    tl_file_ops ops = *p->files.ops;
    ops.reserve = seen_reserve;
    int64_t file = make(p, AT("ahead"), "");
    for (reserve_answer = 0; reserve_answer > -2; reserve_answer--) { /* the second time it is refused */
        tl_growing_file growing = {.files = {&ops, p->files.context}, .file = file, .reserve_limit = LIMIT};
        reserve_calls = 0;
        reserved_end = 0;
        while (growing.size < LIMIT + MEBIBYTE) {
            bool is_small = growing.size < MEBIBYTE;
            CHECK_EQUAL(tl_growing_file_append(&growing, piece, sizeof piece), 0);
            CHECK(is_small ? !reserve_calls : reserve_calls > 0);
            CHECK(reserved_end <= LIMIT && (!reserved_end || reserved_end <= growing.size + MOST_AHEAD));
            CHECK(reserve_answer || is_small || growing.size > LIMIT || growing.size <= reserved_end);
        }
        CHECK_EQUAL(CALL(size, file), growing.size);
        CHECK(reserve_answer ? reserve_calls == 1 : reserve_calls < 20);
    }
    uint64_t size = (uint64_t)CALL(size, file);
    int64_t answer = CALL(reserve, file, size, MEBIBYTE);
    CHECK(answer == 0 || answer == -ENOTSUP || answer == -ENOSYS);
    CHECK_EQUAL(CALL(size, file), size);
    CHECK_EQUAL(CALL(truncate, file, 0), 0);
    CALL(close, file);
}

/* A disk that becomes full in the middle of a write. */
static tl_files tearing;
static int64_t torn_pwrite(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size) {
    tearing.ops->pwrite(context, file, position, data, size / 2);
    return -ENOSPC;
}

static void test_growing_torn(const place *p) {
    tearing = p->files;
    tl_file_ops ops = *p->files.ops;
    ops.pwrite = torn_pwrite;
    int64_t file = make(p, AT("torn"), "one");
    tl_growing_file growing = {.files = {&ops, p->files.context}, .file = file, .size = 3};
    CHECK_EQUAL(tl_growing_file_append(&growing, (const uint8_t *)"twotwo", 6), -ENOSPC);
    CHECK_EQUAL(growing.size, 3);
    check_text(p, file, 0, "one", 3);
    CALL(close, file);
}

static void test_opening(const place *p) {
    CHECK_EQUAL(CALL(open, AT("missing"), TL_OPEN_READ), -ENOENT);
    CHECK_EQUAL(CALL(open, AT("no/directory"), TL_OPEN_WRITE), -ENOENT);
    CHECK_EQUAL(CALL(open, p->root.path, TL_OPEN_READ), TL_NOT_REGULAR);
    CHECK_EQUAL(CALL(open, p->root.path, TL_OPEN_WRITE), -EISDIR);
    int64_t file = CALL(open, AT("opened"), TL_OPEN_WRITE);
    CHECK(file >= 0);
    CHECK_EQUAL(write_text(p, file, 0, "kept"), 0);
    CALL(close, file);
    CHECK_EQUAL(CALL(open, AT("opened"), TL_OPEN_NEW), -EEXIST);
    CHECK_EQUAL(CALL(open, AT("opened/below"), TL_OPEN_READ), -ENOTDIR);
    CHECK_EQUAL(CALL(open, AT("opened/below"), TL_OPEN_NEW), -ENOTDIR);
    file = CALL(open, AT("opened"), TL_OPEN_WRITE);
    check_text(p, file, 0, "kept", 4);
    CALL(close, file);
}

static void test_names(const place *p) {
    CHECK_EQUAL(CALL(mkdir, AT("folder")), 0);
    CHECK_EQUAL(CALL(mkdir, AT("folder")), -EEXIST);
    CHECK_EQUAL(CALL(mkdir, AT("other")), 0);
    CHECK_EQUAL(CALL(mkdir, AT("not/there")), -ENOENT);
    CHECK_EQUAL(CALL(unlink, AT("folder")), -EISDIR);
    int64_t old = make(p, AT("folder/old"), "old"), new = make(p, AT("folder/new"), "new");
    CHECK_EQUAL(CALL(mkdir, AT("folder/old")), -EEXIST);
    CHECK_EQUAL(CALL(rename, AT("folder/missing"), AT("folder/old")), -ENOENT);
    CHECK_EQUAL(CALL(rename, AT("folder/new"), AT("folder/not/there")), -ENOENT);
    CHECK_EQUAL(CALL(rename, AT("folder/new"), AT("other")), -EISDIR);
    CHECK_EQUAL(CALL(rename, AT("folder/new"), AT("folder/new")), 0);
    CHECK_EQUAL(CALL(rename, AT("folder/new"), AT("folder/old")), 0);
    CHECK_EQUAL(CALL(open, AT("folder/new"), TL_OPEN_READ), -ENOENT);
    check_text(p, old, 0, "old", 3); /* who has it open keeps it */
    int64_t again = CALL(open, AT("folder/old"), TL_OPEN_READ);
    check_text(p, again, 0, "new", 3);
    CHECK_EQUAL(CALL(unlink, AT("folder/old")), 0);
    CHECK_EQUAL(CALL(unlink, AT("folder/old")), -ENOENT);
    check_text(p, again, 0, "new", 3);
    CHECK_EQUAL(CALL(fsync_dir, AT("folder")), 0);
    CHECK_EQUAL(CALL(fsync_dir, AT("missing")), -ENOENT);
    int64_t file = make(p, AT("file"), "");
    CHECK_EQUAL(CALL(fsync_dir, AT("file")), -ENOTDIR);
    int64_t all[] = {old, new, again, file};
    for (size_t i = 0; i < 4; i++) CALL(close, all[i]);
}

typedef struct writer {
    const place *place;
    uint8_t number;
} writer;

/* Each thread writes its own pieces of one shared file, and files of its own under changing names. */
static void *write_pieces(void *argument) {
    const writer *w = argument;
    const place *p = w->place;
    char name[32];
    uint8_t piece[PIECE], found[PIECE];
    int64_t shared = CALL(open, AT("shared"), TL_OPEN_WRITE);
    CHECK(shared >= 0);
    for (int round = 0; round < ROUNDS; round++) {
        memset(piece, w->number + 4 * round, PIECE);
        uint64_t position = (uint64_t)(round * THREADS + w->number) * PIECE;
        CHECK_EQUAL(CALL(pwrite, shared, position, piece, PIECE), 0);
        CHECK_EQUAL(CALL(pread, shared, position, found, PIECE), PIECE);
        CHECK(!memcmp(piece, found, PIECE));
        snprintf(name, sizeof name, "own-%d", w->number);
        CALL(close, make(p, AT(name), name));
        CHECK_EQUAL(CALL(rename, AT(name), AT("contended")), 0);
        if (round % 16 == 0) CHECK_EQUAL(CALL(fsync_dir, p->root.path), 0);
    }
    CALL(close, shared);
    return NULL;
}

static void test_threads(const place *p) {
    pthread_t threads[THREADS];
    writer writers[THREADS];
    for (uint8_t i = 0; i < THREADS; i++) {
        writers[i] = (writer){p, i};
        CHECK(!pthread_create(&threads[i], NULL, write_pieces, &writers[i]));
    }
    for (size_t i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    int64_t shared = CALL(open, AT("shared"), TL_OPEN_READ);
    CHECK_EQUAL(CALL(size, shared), THREADS * ROUNDS * PIECE);
    for (int i = 0; i < THREADS * ROUNDS; i++) {
        uint8_t found[PIECE], expected = (uint8_t)(i % THREADS + 4 * (i / THREADS));
        CHECK_EQUAL(CALL(pread, shared, (uint64_t)i * PIECE, found, PIECE), PIECE);
        for (size_t j = 0; j < PIECE; j++) CHECK_EQUAL(found[j], expected);
    }
    CALL(close, shared);
}

static void test_pipe(const place *p) {
    CHECK(!mkfifo(AT("pipe"), 0600));
    CHECK_EQUAL(CALL(open, AT("pipe"), TL_OPEN_READ), TL_NOT_REGULAR); /* and does not wait for a writer */
}

int main(void) {
    place here = {tl_posix_files(), new_folder()}, *p = &here;
    test_content(p);
    test_cutting(p);
    test_growing(p);
    test_growing_ahead(p);
    test_growing_torn(p);
    test_opening(p);
    test_names(p);
    test_threads(p);
    test_pipe(p);
    remove_folder(&here.root);
    return 0;
}
