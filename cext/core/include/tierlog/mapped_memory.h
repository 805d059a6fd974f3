/* Memory in one large piece, from the system and back to it, without malloc. */
#ifndef TIERLOG_MAPPED_MEMORY_H
#define TIERLOG_MAPPED_MEMORY_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps `size` bytes above 0, all zero; NULL: there is no memory. 2 MiB and more begin at a huge page, and ask for such:
 * filling 4 MiB from the page cache took 2.5 ms through 1,024 faults and 0.45 ms through two; and a table in which
 * anything is looked up anywhere would cost a miss of the processor's page tables each time. */
TL_API void *tl_memory_map(size_t size);

/* Unmaps what tl_memory_map returned for this size. */
TL_API void tl_memory_unmap(void *memory, size_t size);

#ifdef __cplusplus
}
#endif
#endif
