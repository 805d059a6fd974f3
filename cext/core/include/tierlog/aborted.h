/* Aborted transactions, for read_committed. */
#ifndef TIERLOG_ABORTED_H
#define TIERLOG_ABORTED_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One aborted transaction of one producer in one partition: from its first record to its abort marker. */
typedef struct tl_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* offset of the abort marker, inclusive */
} tl_aborted;

/* Sorts by (producer_id, first_offset) as tl_is_aborted wants it; drops exact duplicates; returns the new count.
 * Ranges of one producer never overlap in a sound log; TL_BAD_ORDER if they do. */
TL_API tl_status tl_aborted_sort(tl_aborted *entries, size_t count, size_t *out_count, tl_fault *fault);

/* Whether a transactional data batch of this producer at this offset was aborted. O(log count). */
TL_API bool tl_is_aborted(const tl_aborted *sorted, size_t count, int64_t producer_id, int64_t base_offset);

#ifdef __cplusplus
}
#endif
#endif
