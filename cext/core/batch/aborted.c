/* Aborted transactions: sorted once, then a binary search a batch. */
#include "tierlog/aborted.h"

#include "cursor.h"

#include <stdlib.h>

static int compare_i64(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_aborted(const void *left, const void *right) {
    const tl_aborted *a = left, *b = right;
    int order = compare_i64(a->producer_id, b->producer_id);
    if (!order) order = compare_i64(a->first_offset, b->first_offset);
    return order ? order : compare_i64(a->last_offset, b->last_offset);
}

tl_status tl_aborted_sort(tl_aborted *entries, size_t count, size_t *out_count, tl_fault *fault) {
    if (count) qsort(entries, count, sizeof *entries, compare_aborted);
    size_t kept = 0;
    *out_count = 0;
    for (size_t i = 0; i < count; i++) {
        const tl_aborted *last = kept ? &entries[kept - 1] : NULL;
        if (last && !compare_aborted(last, &entries[i])) continue;
        bool inverted = entries[i].last_offset < entries[i].first_offset;
        bool overlaps =
            last && last->producer_id == entries[i].producer_id && last->last_offset >= entries[i].first_offset;
        if (inverted || overlaps) {
            int64_t expected = inverted ? entries[i].first_offset : tl_above(last->last_offset);
            int64_t found = inverted ? entries[i].last_offset : entries[i].first_offset;
            *fault = (tl_fault){i, entries[i].first_offset, -1, expected, found};
            return TL_BAD_ORDER;
        }
        entries[kept++] = entries[i];
    }
    *out_count = kept;
    return TL_OK;
}

bool tl_is_aborted(const tl_aborted *sorted, size_t count, int64_t producer_id, int64_t base_offset) {
    /* The last entry at or below (producer_id, base_offset): no other can hold the offset. */
    size_t low = 0;
    while (count) {
        size_t half = count - count / 2; /* so that one entry left is still looked at */
        const tl_aborted *middle = &sorted[low + half - 1];
        bool below = middle->producer_id < producer_id ||
                     (middle->producer_id == producer_id && middle->first_offset <= base_offset);
        low = below ? low + half : low;
        count = below ? count - half : half - 1;
    }
    if (!low) return false;
    const tl_aborted *entry = &sorted[low - 1];
    return entry->producer_id == producer_id && base_offset <= entry->last_offset;
}
