/* The segment table itself, for its events (segment_table.c) and its queries (segment_queries.c). Internal. */
#ifndef TIERLOG_SEGMENT_TABLE_PARTS_H
#define TIERLOG_SEGMENT_TABLE_PARTS_H

#include "table/segment_ids.h"
#include "table/segment_partitions.h"

struct tl_segment_table {
    tl_cells *cells;
    tl_segment_ids ids;
    tl_partitions partitions;
    uint64_t segments;
    bool as_kafka;
};

/* Whether offsets, epochs and state can be those of a segment. */
bool tl_segment_is_sound(const tl_segment *segment);

/* Into the caller's hands; TL_FULL where its room is too small. */
tl_status tl_row_copy(const tl_cells *cells, const tl_row *row, tl_segment_room *room, tl_segment_copy *out);

/* The largest last offset in an epoch of a segment that was readable once, without the row `left_out`; -1. The first
 * takes it from the rows that are there; the second counts those too that have gone. */
int64_t tl_derived_highest(const tl_cells *cells, const uint8_t *partition, int32_t epoch, tl_cell left_out);
int64_t tl_highest_of(const tl_cells *cells, const uint8_t *partition, int32_t epoch, tl_cell left_out);

#endif
