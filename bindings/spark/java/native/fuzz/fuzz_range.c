/* Any bytes as a log, cut anywhere, within any budget: what the JVM does with a hostile object. No window that is gone
 * is read, the budget is kept, nothing is left behind, and the cut does not show in the rows.
 * Input: flags, window size, columns, target, budget, the log. */
#include "fuzz.h"

#include "../tests/reading.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned flags = (unsigned)take_number(&data, &size, 1);
    size_t window = (size_t)take_number(&data, &size, 2) % 600 + 1;
    uint32_t want = (uint32_t)take_number(&data, &size, 1) & ALL_COLUMNS;
    int64_t target = take_number(&data, &size, 2) + 1, budget = take_number(&data, &size, 3) + 1;
    tl_aborted aborted = {take_number(&data, &size, 2), 0, INT64_MAX};
    reading how = {.window = SIZE_MAX,
                   .want = want,
                   .target_bytes = target,
                   .budget_bytes = flags & 1 ? budget : 64 << 20,
                   .skip = flags & 2,
                   .range = {.base_position = 1000,
                             .from_offset = flags & 4 ? take_number(&data, &size, 1) : 0,
                             .greatest_offset = INT64_MAX,
                             .to_offset_exclusive = flags & 8 ? take_number(&data, &size, 1) : INT64_MAX,
                             .from_timestamp = flags & 16 ? 0 : INT64_MIN,
                             .to_timestamp_exclusive = INT64_MAX,
                             .decompressed_limit = 1 << 20,
                             .aborted = flags & 32 ? &aborted : NULL,
                             .aborted_count = flags & 32 ? 1 : 0,
                             .verify_crc = flags & 64}};
    outcome uncut = read_log(data, size, &how, 1);
    how.window = window;
    outcome cut = read_log(data, size, &how, flags & 128 ? 2 : 1);
    if (!(flags & 128) && !uncut.out_of_memory && !cut.out_of_memory) REQUIRE(uncut.rows == cut.rows);
    if (!(flags & 128) && !uncut.out_of_memory && !cut.out_of_memory && !cut.faults)
        REQUIRE(uncut.digest == cut.digest);
    return 0;
}
