/* Any bytes as a range of a log: the walk stays inside them, and says what a walk over whole batches says, however the
 * bytes lie in pieces. Input: bytes of a piece, wanted and end offset, most bytes, the log. */
#include "fuzz.h"
#include "tierlog/batch_walk.h"

#include <string.h>

enum { PIECES = 64 };

/* A file, all in memory. */
static const uint8_t *content;
static size_t content_size;

static int64_t pread_ready(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context, (void)file;
    size_t left = position < content_size ? content_size - (size_t)position : 0, count = size < left ? size : left;
    if (count) memcpy(out, content + position, count);
    return (int64_t)count;
}

static const tl_file_ops OPS = {.struct_size = sizeof(tl_file_ops), .pread_ready = pread_ready};

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
    int64_t last_at = -1, last_first = -1, last_least = 0, last_whole = 0;
    bool is_ended = false, is_broken = false;
    while (at < (int64_t)size && at < stop) {
        tl_batch_header header;
        tl_fault other = {0};
        tl_status expected = tl_batch_parse_header(data + at, size - (size_t)at, &header, &other);
        if (expected != TL_OK) {
            REQUIRE(status == expected || expected == TL_PARTIAL);
            is_broken = true;
            break;
        }
        int64_t last = (int64_t)((uint64_t)header.base_offset + (uint64_t)(int64_t)header.last_offset_delta);
        is_broken = header.size_bytes > walk.log_size - at || header.base_offset < least || last < header.base_offset;
        if (is_broken) break;
        is_ended = header.base_offset >= walk.end_offset;
        if (is_ended) break;
        last_at = at, last_first = first, last_least = least, last_whole = whole;
        if (first < 0 && last >= walk.wanted_offset) {
            first = at;
            stop = at + (walk.max_bytes > header.size_bytes ? walk.max_bytes : header.size_bytes);
        }
        at += header.size_bytes;
        least = last + 1;
        if (first >= 0 && at <= stop && at <= (int64_t)size) whole = at;
    }
    if (at < (int64_t)size && !is_ended && (first >= 0 || is_broken) && last_at >= 0) {
        tl_batch_header behind;
        tl_fault other = {0};
        if (tl_batch_parse_header(data + at, size - (size_t)at, &behind, &other) == TL_OK &&
            behind.size_bytes <= walk.log_size - at && behind.base_offset < least)
            at = last_at, first = last_first, least = last_least, whole = last_whole;
    }
    REQUIRE(walk.position == at && walk.least_offset == least && walk.first_position == first);
    REQUIRE(walk.whole_position == whole && walk.is_found == (first >= 0));
    REQUIRE(!is_ended || (walk.is_ended && status == TL_OK));
    for (size_t index = 0; index < count; index++) free(copies[index]);
    return 0;
}
