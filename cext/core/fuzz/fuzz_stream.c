/* Any bytes in pieces cut anywhere: the rows of the scan of all at once, and its fault. Input: the size of the pieces,
 * the bytes. */
#include "fuzz.h"

enum { ROWS = 4096 / 26 + 1 };

typedef struct rows {
    int64_t base_offset[ROWS], position[ROWS];
    int32_t size_bytes[ROWS];
    uint8_t crc_ok[ROWS];
} rows;

static tl_batch_table table_over(rows *r) {
    return (tl_batch_table){.struct_size = sizeof(tl_batch_table),
                            .capacity = ROWS,
                            .base_offset = r->base_offset,
                            .position = r->position,
                            .size_bytes = r->size_bytes,
                            .crc_ok = r->crc_ok};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rows whole, cut;
    size_t step = 1 + (size_t)take_number(&data, &size, 1), at = 0, end = 0;
    if (size > 4096) return 0;
    tl_batch_table expected = table_over(&whole), found = table_over(&cut);
    tl_fault fault, mine;
    tl_batch_stream stream;
    tl_status status = tl_scan(data, size, 7, true, &end, &expected, &fault), mine_status = TL_OK;
    tl_batch_stream_begin(&stream, 7, true);
    for (; at < size && mine_status == TL_OK; at += step) {
        size_t piece = size - at < step ? size - at : step, taken = 0;
        uint8_t *exact = exact_copy(data + at, piece);
        mine_status = tl_batch_stream_feed(&stream, exact, piece, &taken, &found, &mine);
        REQUIRE(mine_status != TL_OK || taken == piece);
        free(exact);
    }
    REQUIRE(stream.position == 7 + end && found.count == expected.count);
    for (size_t i = 0; i < found.count; i++) {
        REQUIRE(cut.base_offset[i] == whole.base_offset[i] && cut.position[i] == whole.position[i]);
        REQUIRE(cut.size_bytes[i] == whole.size_bytes[i] && cut.crc_ok[i] == whole.crc_ok[i]);
    }
    if (status == TL_PARTIAL) { /* a batch that is cut short: its header is looked at all the same */
        REQUIRE(mine_status == TL_OK ? tl_batch_stream_open(&stream) : mine.position == 7 + end);
    } else {
        REQUIRE(mine_status == status);
        if (status != TL_OK)
            REQUIRE(mine.position == fault.position && mine.expected == fault.expected && mine.found == fault.found);
    }
    return 0;
}
