/* The partitions of a segment table: found by topic id and number, each guarded by a sequence number. Internal.
 *
 * Words of a partition's cell:  0, 1  topic id
 *                               2     partition | 1 while it is in use << 32
 *                               3     order: root | height << 32
 *                               4     segments | TL_PARTITION_* flags << 32
 *                               5     cell of remembered highest offsets | their count << 32
 *                               6     sequence number: odd while the writer changes the partition; never goes back
 *                               7     its place among all partitions; of a free cell the next one */
#ifndef TIERLOG_SEGMENT_PARTITIONS_H
#define TIERLOG_SEGMENT_PARTITIONS_H

#include "segment_order.h"

enum {
    TL_PARTITION_WORDS = 8,
    TL_PARTITION_OVERLAPS = 1, /* segments of one epoch overlap, or did */
    TL_DIRECTORY_TABLES = 1024,
    TL_PARTITION_PAGE = 1024,
    TL_PARTITION_PAGES_MAX = 1 << 14,
};

typedef struct tl_partitions {
    tl_cell tables[TL_DIRECTORY_TABLES]; /* open addressing; a table's size is that of its cell */
    uint32_t used[TL_DIRECTORY_TABLES];
    uint64_t changes; /* odd while a table is changed */
    uint64_t seed;
    tl_cell **pages; /* all partitions that are in use, in no order */
    uint64_t count;
    tl_cell freed; /* cells that were partitions: nothing else, or their sequence numbers would go back */
} tl_partitions;

tl_status tl_partitions_open(tl_partitions *partitions, uint64_t seed);
void tl_partitions_close(tl_partitions *partitions);
/* Its cell; 0 if it is not there. Any thread's. */
tl_cell tl_partition_find(const tl_partitions *partitions, const tl_cells *cells, const tl_partition_id *id);
/* Its cell, made if it is not there. The writer's. */
tl_status tl_partition_make(tl_partitions *partitions, tl_cells *cells, const tl_partition_id *id, tl_cell *out);
/* It is in no table any more; its cell waits for another partition. The writer's, within a change of the partition. */
void tl_partition_drop(tl_partitions *partitions, tl_cells *cells, tl_cell cell);

bool tl_partition_is(const uint8_t *cell, const tl_partition_id *id);

/* The writer's changes of one partition. */
static inline void tl_partition_begin(uint8_t *cell) { tl_cell_store(cell, 6, tl_cell_load(cell, 6) + 1); }
static inline void tl_partition_end(uint8_t *cell) { tl_cell_store(cell, 6, tl_cell_load(cell, 6) + 1); }

static inline tl_order tl_partition_order(const uint8_t *cell) {
    uint64_t word = tl_cell_load(cell, 3);
    return (tl_order){(tl_cell)word, (uint32_t)(word >> 32)};
}

#endif
