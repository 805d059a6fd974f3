/* Any bytes as a range of a log: the walk stays inside them, and says what a walk over whole batches says, however the
 * bytes lie in pieces. Input: bytes of a piece, wanted and end offset, most bytes, the log. */
#include "batch_walk.h"
#include "fuzz.h"

#include <string.h>

enum { PIECES = 64 };

/* A file, all in memory. */
static const uint8_t *content;
static size_t content_size;

static int64_t pread_ready(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context, (void)file;
    REQUIRE(position <= content_size && size <= content_size - position);
    memcpy(out, content + position, size);
    return (int64_t)size;
}

static const tl_file_ops OPS = {.pread_ready = pread_ready};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t cut = 1 + (size_t)take_number(&data, &size, 1), count = 0;
    tl_batch_walk walk;
    tl_batch_walk_begin(&walk, 0);
    walk.wanted_offset = take_number(&data, &size, 8);
    walk.end_offset = take_number(&data, &size, 8);
    walk.max_bytes = take_number(&data, &size, 2);
    walk.greatest_offset = INT64_MAX - 1;
    walk.log_size = (int64_t)size;
    if (size > cut * PIECES) size = cut * PIECES; /* the log goes on behind the bytes */
    uint8_t *copies[PIECES];
    tl_piece pieces[PIECES];
    for (size_t at = 0; at < size; at += cut, count++) {
        pieces[count] = (tl_piece){NULL, size - at < cut ? size - at : cut};
        pieces[count].data = copies[count] = exact_copy(data + at, pieces[count].size);
    }
    tl_fault fault = {0}, told = {0};
    tl_batch_walk there = walk;
    tl_status status = tl_batch_walk_run(&walk, pieces, count, 0, &fault);
    int64_t error;
    content = data;
    content_size = size;
    REQUIRE(tl_batch_walk_run_ready(&there, (tl_files){&OPS, NULL}, 0, 0, (int64_t)size, &error, &told) == status);
    REQUIRE(!error && there.position == walk.position && there.whole_position == walk.whole_position);
    REQUIRE(there.is_found == walk.is_found && there.is_ended == walk.is_ended &&
            there.least_offset == walk.least_offset);
    REQUIRE(status == TL_OK || (told.position == fault.position && told.expected == fault.expected));
    int64_t at = 0, first = -1, least = 0, whole = 0, stop = walk.log_size;
    bool is_ended = false;
    while (at < (int64_t)size && at < stop) {
        tl_batch_header header;
        tl_fault other = {0};
        tl_status expected = tl_batch_parse_header(data + at, size - (size_t)at, &header, &other);
        if (expected != TL_OK) {
            REQUIRE(status == expected || expected == TL_PARTIAL);
            break;
        }
        int64_t last = (int64_t)((uint64_t)header.base_offset + (uint64_t)(int64_t)header.last_offset_delta);
        if (header.size_bytes > walk.log_size - at || header.base_offset < least || last < header.base_offset) break;
        is_ended = header.base_offset >= walk.end_offset;
        if (is_ended) break;
        if (first < 0 && last >= walk.wanted_offset) {
            first = at;
            stop = at + (walk.max_bytes > header.size_bytes ? walk.max_bytes : header.size_bytes);
        }
        at += header.size_bytes;
        least = last + 1;
        if (first >= 0 && at <= stop && at <= (int64_t)size) whole = at;
    }
    REQUIRE(walk.position == at && walk.least_offset == least && walk.first_position == first);
    REQUIRE(walk.whole_position == whole && walk.is_found == (first >= 0));
    REQUIRE(!is_ended || (walk.is_ended && status == TL_OK));
    for (size_t index = 0; index < count; index++) free(copies[index]);
    return 0;
}
