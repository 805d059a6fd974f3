/* Any bytes as a log: the search stays inside them, and finds what a walk over whole batches finds, however the log is
 * cut into pieces. Input: bytes of a piece, wanted offset and timestamp, the log. */
#include "fuzz.h"
#include "tierlog/batch_search.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t piece = TL_HEADER_SIZE_V2 + (size_t)take_number(&data, &size, 1);
    int64_t offset = (int64_t)take_number(&data, &size, 8), timestamp = (int64_t)take_number(&data, &size, 8);
    size_t at = 0;
    tl_status expected = TL_OK, status = TL_OK;
    tl_batch_header header;
    tl_fault fault = {0};
    bool is_there = false;
    int64_t passed = 0;
    for (; at < size; at += (size_t)header.size_bytes, passed++) {
        expected = tl_batch_parse(data + at, size - at, &header, &fault);
        if (expected != TL_OK) break;
        int64_t last = (int64_t)((uint64_t)header.base_offset + (uint64_t)(int64_t)header.last_offset_delta);
        is_there = last >= offset && header.max_timestamp >= timestamp;
        if (is_there) break;
    }
    tl_batch_search search;
    tl_batch_search_begin(&search, 0, (int64_t)size, offset, timestamp);
    while (!search.is_done && status == TL_OK) {
        size_t from = (size_t)search.position, left = size - from;
        size_t count = left < piece ? left : piece;
        uint8_t *bytes = exact_copy(data + from, count);
        status = tl_batch_search_feed(&search, bytes, count, &fault);
        free(bytes);
        REQUIRE(status != TL_OK || search.is_done || (size_t)search.position > from);
        REQUIRE((size_t)search.position <= size);
    }
    REQUIRE(search.is_found == is_there && search.passed == passed && (size_t)search.position == at);
    /* A batch that the log cuts off may be damaged too, which a walk that wants it whole does not come to. */
    REQUIRE(status == expected || expected == TL_PARTIAL);
    return 0;
}
