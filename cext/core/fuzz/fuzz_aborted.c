/* Any ranges, sorted and asked. Input: entries of three numbers of two bytes. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t count = size / 6, kept;
    tl_aborted *entries = malloc(count * sizeof *entries + 1), *sorted = malloc(count * sizeof *sorted + 1);
    REQUIRE(entries && sorted);
    for (size_t i = 0; i < count; i++) {
        int64_t producer_id = take_number(&data, &size, 2) % 8, first = take_number(&data, &size, 2);
        entries[i] = sorted[i] = (tl_aborted){producer_id, first, first + take_number(&data, &size, 2) % 64};
    }
    tl_fault fault;
    if (tl_aborted_sort(sorted, count, &kept, &fault) == TL_OK) {
        for (size_t i = 0; i < count; i++) {
            const tl_aborted *entry = &entries[i];
            REQUIRE(tl_is_aborted(sorted, kept, entry->producer_id, entry->first_offset));
            REQUIRE(tl_is_aborted(sorted, kept, entry->producer_id, entry->last_offset));
            bool after = false;
            for (size_t j = 0; j < count; j++)
                after |=
                    entries[j].producer_id == entry->producer_id && entries[j].first_offset == entry->last_offset + 1;
            REQUIRE(tl_is_aborted(sorted, kept, entry->producer_id, entry->last_offset + 1) == after);
        }
    }
    free(sorted);
    free(entries);
    return 0;
}
