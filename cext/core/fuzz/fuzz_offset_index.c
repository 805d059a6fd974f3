/* Any bytes as an offset index, one lookup and many. Input: base offset, target, the file. */
#include "fuzz.h"
#include "tierlog/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t base = take_number(&data, &size, 8), target = take_number(&data, &size, 8), offset;
    uint8_t *index = exact_copy(data, size);
    size_t entries = tl_offset_index_entries(index, size);
    int32_t position;
    REQUIRE(entries <= size / TL_OFFSET_ENTRY);
    tl_offset_index_lookup(index, entries, base, target, &offset, &position);
    int64_t *offsets = malloc(entries * sizeof *offsets + 1);
    int32_t *positions = malloc(entries * sizeof *positions + 1);
    REQUIRE(offsets && positions);
    tl_offset_index_read(index, entries, base, offsets, positions);
    tl_offset_index_upper_bound(index, entries, base, target, 1 << 20);
    tl_fault fault;
    tl_status status = tl_offset_index_check(index, size, base, INT64_MAX, &fault);
    REQUIRE(status == TL_OK || fault.position <= size);
    if (status == TL_OK) { /* then a plain search must find the same */
        int64_t expected = base;
        for (size_t i = 0; i < entries && offsets[i] <= target; i++) expected = offsets[i];
        REQUIRE(offset == expected);
    }
    /* Many side by side are as one by one where the file is in order: the entries' own offsets, and those beside them.
     * In any file they stay inside of it. */
    size_t targets = 2 * entries + 1;
    int64_t *wanted = malloc(targets * sizeof *wanted), *found = malloc(targets * sizeof *found);
    int32_t *places = malloc(targets * sizeof *places);
    REQUIRE(wanted && found && places);
    wanted[2 * entries] = target;
    for (size_t i = 0; i < entries; i++) {
        wanted[2 * i] = offsets[entries - 1 - i];
        wanted[2 * i + 1] = (int64_t)((uint64_t)offsets[i] - 1);
    }
    tl_offset_index_lookup_many(index, entries, base, wanted, targets, found, places);
    for (size_t i = 0; i < targets; i++) {
        tl_offset_index_lookup(index, entries, base, wanted[i], &offset, &position);
        REQUIRE(status != TL_OK || (found[i] == offset && places[i] == position));
    }
    free(places);
    free(found);
    free(wanted);
    free(positions);
    free(offsets);
    free(index);
    return 0;
}
