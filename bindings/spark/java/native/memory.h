/* Native memory that is counted: by task, against a ceiling, and for the whole process. */
#ifndef TLJ_MEMORY_H
#define TLJ_MEMORY_H

#include "tierlog/status.h"

#include <stdatomic.h>

/* What one task may hold and holds. Any number of threads may use one. */
typedef struct tlj_budget {
    int64_t limit; /* bytes */
    _Atomic int64_t live, high;
    _Atomic int64_t refused; /* what would have been live after the last request that the limit refused */
} tlj_budget;

/* A block under a budget; all zero = none. */
typedef struct tlj_block {
    uint8_t *data;
    size_t size;
} tlj_block;

/* At least `size` bytes, the first `keep` of them as they were. A block that is large enough stays where it is.
 *   TL_OVER_LIMIT  the budget does not allow it; budget->refused says how much it would have been
 *   TL_NO_MEMORY
 * After either the block is as before, or gone where nothing was to be kept. */
tl_status tlj_reserve(tlj_budget *budget, tlj_block *block, size_t size, size_t keep);

/* The same with some to spare, where the budget has it: room that grows again soon. */
tl_status tlj_reserve_generous(tlj_budget *budget, tlj_block *block, size_t size, size_t generous, size_t keep);

/* Gives a block back; nothing for none. */
void tlj_release(tlj_budget *budget, tlj_block *block);

/* Counts what was got by other means (`bytes` may be negative); always allowed. */
void tlj_count(tlj_budget *budget, int64_t bytes);

/* Of the process, since it began. */
int64_t tlj_live_bytes(void);
int64_t tlj_high_bytes(void);

#endif
