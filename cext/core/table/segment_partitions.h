/* The partitions of a segment table: found by topic id and number, each guarded by a sequence number. Internal.
 *
 * Words of a partition's cell:  0, 1  topic id
 *                               2     partition | TL_PARTITION_* flags << 32 | height of the order << 48
 *                               3     order: root | last leaf << 32
 *                               4     segments | its place among all partitions << 32
 *                               5     cell of remembered highest offsets | their count << 32
 *                               6     sequence number: odd while the writer changes the partition; never goes back
 *                               7     order: upper bound of the last offsets; of a free cell the next one */
#ifndef TIERLOG_SEGMENT_PARTITIONS_H
#define TIERLOG_SEGMENT_PARTITIONS_H

#include "table/segment_order.h"

#include <string.h>

enum {
    TL_PARTITION_WORDS = 8,
    TL_PARTITION_CLASS = 3,    /* cells of 64 bytes */
    TL_PARTITION_USED = 1,     /* it is one */
    TL_PARTITION_OVERLAPS = 2, /* ends of an epoch's segments do not ascend with their starts, or did not */
    TL_DIRECTORY_TABLES = 1024,
    TL_PARTITION_PAGE = 1024,
    TL_PARTITION_PAGES_MAX = 1 << 14,
};

typedef struct tl_partitions {
    tl_cell tables[TL_DIRECTORY_TABLES]; /* open addressing; a slot is a cell | upper half of its hash << 32 */
    uint32_t used[TL_DIRECTORY_TABLES];
    uint64_t changes; /* odd while a table is changed */
    uint64_t seed;
    tl_cell **pages; /* all partitions that are in use, in no order */
    uint64_t count;
    tl_cell freed; /* cells that were partitions: nothing else, or their sequence numbers would go back */
} tl_partitions;

tl_status tl_partitions_open(tl_partitions *partitions, uint64_t seed);
void tl_partitions_close(tl_partitions *partitions);

uint64_t tl_partition_hash(const tl_partitions *partitions, const tl_partition_id *id);
/* Finds a partition's cell; 0 if it is not there. Any thread's. */
tl_cell tl_partition_find(const tl_partitions *partitions, const tl_cells *cells, const tl_partition_id *id);
/* Finds a partition's cell, or makes it. The writer's. */
tl_status tl_partition_make(tl_partitions *partitions, tl_cells *cells, const tl_partition_id *id, tl_cell *out);
/* Removes a partition; its cell waits for another one. The writer's, within a change of the partition. */
void tl_partition_drop(tl_partitions *partitions, tl_cells *cells, tl_cell cell);

static inline bool tl_partition_is(const uint8_t *cell, const tl_partition_id *id) {
    const uint64_t used = (uint64_t)TL_PARTITION_USED << 32;
    uint64_t topic[2];
    memcpy(topic, id->topic_id, 16);
    return tl_cell_load(cell, 0) == topic[0] && tl_cell_load(cell, 1) == topic[1] &&
           (tl_cell_load(cell, 2) & (used | UINT32_MAX)) == (used | (uint32_t)id->partition);
}

/* Prefetches for many lookups: the line of the first slot, then the cell, mostly; 0 if there seems to be none. */
void tl_partition_ask_slot(const tl_partitions *partitions, const tl_cells *cells, uint64_t hash);
tl_cell tl_partition_guess(const tl_partitions *partitions, const tl_cells *cells, uint64_t hash);

/* The writer's changes of one partition. */
static inline void tl_partition_begin(uint8_t *cell) { tl_cell_store(cell, 6, tl_cell_load(cell, 6) + 1); }
static inline void tl_partition_end(uint8_t *cell) { tl_cell_store(cell, 6, tl_cell_load(cell, 6) + 1); }

static inline tl_order tl_partition_order(const uint8_t *cell) {
    uint64_t word = tl_cell_load(cell, 3);
    return (tl_order){(tl_cell)word, (tl_cell)(word >> 32), (uint32_t)(tl_cell_load(cell, 2) >> 48),
                      (int64_t)tl_cell_load(cell, 7)};
}
static inline tl_cell tl_partition_tail(const uint8_t *cell) { return (tl_cell)(tl_cell_load(cell, 3) >> 32); }
static inline void tl_partition_put_order(uint8_t *cell, tl_order order) {
    const uint64_t below = ((uint64_t)1 << 48) - 1;
    tl_cell_store(cell, 2, (tl_cell_load(cell, 2) & below) | (uint64_t)order.height << 48);
    tl_cell_store(cell, 3, order.root | (uint64_t)order.tail << 32);
    tl_cell_store(cell, 7, (uint64_t)order.end_offset_max);
}

static inline bool tl_partition_overlaps(const uint8_t *cell) {
    return (tl_cell_load(cell, 2) >> 32 & TL_PARTITION_OVERLAPS) != 0;
}
static inline void tl_partition_set_overlaps(uint8_t *cell) {
    tl_cell_store(cell, 2, tl_cell_load(cell, 2) | (uint64_t)TL_PARTITION_OVERLAPS << 32);
}

static inline uint32_t tl_partition_segments(const uint8_t *cell) { return (uint32_t)tl_cell_load(cell, 4); }
static inline void tl_partition_add_segments(uint8_t *cell, int by) {
    uint64_t word = tl_cell_load(cell, 4);
    tl_cell_store(cell, 4, (word & ~(uint64_t)UINT32_MAX) | (uint32_t)((uint32_t)word + (uint32_t)by));
}

#endif
