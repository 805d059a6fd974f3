/* Any bytes as a segment, whole and in pieces cut anywhere: the same verdict, and in front of it nothing but sound
 * batches whose offsets rise within the segment's. Input: size of the pieces, flags, the segment's first offset, the
 * span of its offsets, the bytes, whose checksums may be put right first. */
#include "fuzz.h"

#include "tierlog/checksum.h"
#include "tierlog/range_check.h"

enum { ROWS = 8, SIZE_MAX_BYTES = 4096 };

static void sum_anew(uint8_t *log, size_t size) {
    tl_batch_header header;
    tl_fault fault;
    for (size_t at = 0; at < size && tl_batch_parse(log + at, size - at, &header, &fault) == TL_OK;) {
        if (header.magic == 2) {
            uint32_t sum = tl_crc32c(0, log + at + 21, (size_t)header.size_bytes - 21);
            for (unsigned i = 0; i < 4; i++) log[at + 17 + i] = (uint8_t)(sum >> (24 - 8 * i));
        }
        at += (size_t)header.size_bytes;
    }
}

/* The verdict on all bytes, given as pieces of `step` bytes; the batches in front of it are looked at. */
static tl_status collect(const uint8_t *log, size_t size, size_t step, tl_range_check *check, tl_fault *fault) {
    int64_t base_offset[ROWS], last_offset[ROWS], position[ROWS], least = check->first_offset;
    uint8_t crc_ok[ROWS];
    tl_status status = TL_OK;
    for (size_t at = 0; at < size && (status == TL_OK || status == TL_FULL); at += step) {
        size_t piece = size - at < step ? size - at : step, taken = 0;
        uint8_t *exact = exact_copy(log + at, piece);
        do {
            tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                                    .capacity = ROWS,
                                    .base_offset = base_offset,
                                    .last_offset = last_offset,
                                    .position = position,
                                    .crc_ok = crc_ok};
            status = tl_range_check_collect(check, exact, piece, &taken, &table, fault);
            REQUIRE(taken <= piece && table.count <= ROWS);
            for (size_t i = 0; i < table.count; i++) {
                REQUIRE(crc_ok[i] && last_offset[i] >= least && last_offset[i] <= check->last_offset);
                REQUIRE(position[i] >= 0 && (size_t)position[i] < size);
                least = last_offset[i] + 1;
            }
        } while (status == TL_FULL);
        REQUIRE(status != TL_OK || taken == piece);
        free(exact);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t step = 1 + (size_t)take_number(&data, &size, 1);
    int64_t flags = take_number(&data, &size, 1), first = take_number(&data, &size, 8) & INT64_MAX;
    int64_t span = take_number(&data, &size, 4);
    if (size > SIZE_MAX_BYTES) return 0;
    int64_t last = first > INT64_MAX - span ? INT64_MAX : first + span;
    uint8_t *log = exact_copy(data, size);
    if (flags & 1) sum_anew(log, size);
    tl_range_check whole, cut, fed;
    tl_fault fault = {0}, mine = {0}, other = {0};
    tl_range_check_begin(&whole, 0, first, last, size);
    tl_range_check_begin(&cut, 0, first, last, size);
    tl_range_check_begin(&fed, 0, first, last, size);
    tl_status status = collect(log, size, size + !size, &whole, &fault);
    REQUIRE(collect(log, size, step, &cut, &mine) == status);
    REQUIRE(tl_range_check_feed(&fed, log, size, &other) == status);
    REQUIRE(status == TL_OK || (cut.rule == whole.rule && fed.rule == whole.rule));
    REQUIRE(status == TL_OK || (mine.position == fault.position && other.position == fault.position));
    tl_range_check_begin(&fed, (uint64_t)first % 4096 + 1, first, last, (uint64_t)size + 4097); /* begins anywhere */
    for (size_t at = 0; at < size && tl_range_check_feed(&fed, log + at, 1, &other) == TL_OK;) at++;
    free(log);
    return 0;
}
