/* A map of segment ids to rows: buckets that split one at a time, so that no insertion waits for all the others.
 * Internal to the segment table.
 *
 * A bucket is one cell: a count (4 bytes), a byte of hash of each row, from a multiple of 4 on the names of the
 * rows. Readers may look beside the writer: a row that is found was there, and none was there if tl_ids_moves says
 * the same before and behind the look. */
#ifndef TIERLOG_SEGMENT_IDS_H
#define TIERLOG_SEGMENT_IDS_H

#include "table/segment_rows.h"

enum { TL_IDS_PAGE = 4096 };

typedef struct tl_segment_ids {
    tl_cell **pages; /* of the buckets' cells */
    uint64_t seed;
    uint64_t buckets; /* those below `buckets - base`, or from base on, take twice as many bits of a hash as the others;
                         base is the power of two at or below */
    uint64_t count;
    uint64_t moves; /* odd while rows go from one place to another */
} tl_segment_ids;

tl_status tl_segment_ids_open(tl_segment_ids *ids, tl_cells *cells, uint64_t seed);
void tl_segment_ids_close(tl_segment_ids *ids);

uint64_t tl_segment_ids_hash(const tl_segment_ids *ids, tl_cell partition, const uint64_t id[2]);
/* The row of a segment of a partition; 0 if there is none. `hash`: of both. Any thread's. */
tl_cell tl_segment_ids_find(const tl_segment_ids *ids, const tl_cells *cells, uint64_t hash, tl_cell partition,
                            const uint64_t id[2]);
/* TL_NO_MEMORY, TL_OVER_LIMIT: nothing was changed. */
tl_status tl_segment_ids_insert(tl_segment_ids *ids, tl_cells *cells, uint64_t hash, tl_cell row_cell);
void tl_segment_ids_remove(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell);
/* Inserts rows, looking ahead. TL_BAD_ENTRY: a segment of that id and partition is there already; `*done` of them were
 * inserted. */
tl_status tl_segment_ids_insert_many(tl_segment_ids *ids, tl_cells *cells, const tl_cell *rows, size_t count,
                                     size_t *done);
/* Makes buckets for so many rows, where there are none yet: rows that are loaded at once cause no split. */
tl_status tl_segment_ids_reserve(tl_segment_ids *ids, uint64_t rows);

/* Prefetches for many lookups: the place of a bucket's name; the bucket's first line, which is returned; the line of
 * a row's name, or the next one's place; the row. Each step reads the prefetch of the one before. */
void tl_segment_ids_ask_name(const tl_segment_ids *ids, uint64_t hash);
tl_cell tl_segment_ids_ask_bucket(const tl_segment_ids *ids, const tl_cells *cells, uint64_t hash);
void tl_segment_ids_ask_end(const tl_cells *cells, tl_cell bucket);
uint32_t tl_segment_ids_ask_match(const tl_cells *cells, tl_cell bucket, uint64_t hash);
/* `at`: the result of the step before. The row's cell, probably. */
tl_cell tl_segment_ids_ask_row(const tl_cells *cells, tl_cell bucket, uint32_t at);
/* Whether a cell is the row of that segment, now: a removed row names no partition. */
bool tl_segment_ids_is(const tl_cells *cells, tl_cell row_cell, tl_cell partition, const uint64_t id[2]);

#endif
