/* From a segment's id to its row: buckets that split one at a time, so that no insertion waits for all the others.
 * The writer's alone. Internal to the segment table. */
#ifndef TIERLOG_SEGMENT_IDS_H
#define TIERLOG_SEGMENT_IDS_H

#include "segment_rows.h"

enum { TL_IDS_PAGE = 4096 };

typedef struct tl_segment_ids {
    tl_cell **pages; /* of first cells of buckets */
    uint64_t seed;
    uint64_t buckets; /* those below `split` or from `base` on are of twice as many as `base` */
    uint64_t base, split, count;
} tl_segment_ids;

tl_status tl_segment_ids_open(tl_segment_ids *ids, tl_cells *cells, uint64_t seed);
void tl_segment_ids_close(tl_segment_ids *ids);
/* The row of a segment of a partition; 0 if there is none. */
tl_cell tl_segment_ids_find(const tl_segment_ids *ids, const tl_cells *cells, tl_cell partition, const uint64_t id[2]);
/* TL_NO_MEMORY: nothing was changed. */
tl_status tl_segment_ids_insert(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell);
/* Buckets for so many rows, where there are none yet: what is loaded at once is split nowhere. */
tl_status tl_segment_ids_reserve(tl_segment_ids *ids, uint64_t rows);
/* Inserts rows, looking ahead. TL_BAD_ENTRY: a segment of that id and partition is there already; `*done` of them were
 * inserted. */
tl_status tl_segment_ids_insert_many(tl_segment_ids *ids, tl_cells *cells, const tl_cell *rows, size_t count,
                                     size_t *done);
void tl_segment_ids_remove(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell);

#endif
