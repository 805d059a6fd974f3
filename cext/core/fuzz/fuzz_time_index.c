/* Any bytes as a time index, one lookup and many. Input: base offset, target, the file. */
#include "fuzz.h"
#include "tierlog/index.h"

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
    size_t targets = 2 * entries + 1; /* many side by side are as one by one, where the file is in order */
    int64_t *wanted = malloc(targets * sizeof *wanted), *times = malloc(targets * sizeof *times);
    int64_t *found = malloc(targets * sizeof *found);
    REQUIRE(wanted && times && found);
    wanted[2 * entries] = target;
    for (size_t i = 0; i < entries; i++) {
        wanted[2 * i] = timestamps[entries - 1 - i];
        wanted[2 * i + 1] = (int64_t)((uint64_t)timestamps[i] - 1);
    }
    tl_time_index_lookup_many(index, entries, base, wanted, targets, times, found);
    for (size_t i = 0; i < targets; i++) {
        tl_time_index_lookup(index, entries, base, wanted[i], &timestamp, &offset);
        REQUIRE(status != TL_OK || (times[i] == timestamp && found[i] == offset));
    }
    free(found);
    free(times);
    free(wanted);
    free(offsets);
    free(timestamps);
    free(index);
    return 0;
}
