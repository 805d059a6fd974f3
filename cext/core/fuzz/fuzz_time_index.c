/* Any bytes as a time index. Input: base offset, target, the file. */
#include "fuzz.h"
#include "index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t base = take_number(&data, &size, 8), target = take_number(&data, &size, 8), timestamp, offset;
    uint8_t *index = exact_copy(data, size);
    size_t entries = tl_time_index_entries(index, size);
    REQUIRE(entries <= size / TL_TIME_ENTRY);
    tl_time_index_lookup(index, entries, base, target, &timestamp, &offset);
    int64_t *timestamps = malloc(entries * sizeof *timestamps + 1), *offsets = malloc(entries * sizeof *offsets + 1);
    REQUIRE(timestamps && offsets);
    tl_time_index_read(index, entries, base, timestamps, offsets);
    tl_fault fault;
    tl_status status = tl_time_index_check(index, size, base, &fault);
    REQUIRE(status == TL_OK || fault.position <= size);
    if (status == TL_OK) {
        int64_t expected = -1;
        for (size_t i = 0; i < entries && timestamps[i] <= target; i++) expected = timestamps[i];
        REQUIRE(timestamp == expected);
    }
    free(offsets);
    free(timestamps);
    free(index);
    return 0;
}
