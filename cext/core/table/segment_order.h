/* The segments of one partition in the order of (leader epoch, first offset in it, id): a tree of cells. Internal to
 * the segment table.
 *
 * A segment of three epochs stands in it three times. An entry is 32 bits: the row's number, the index of its epoch
 * (7: the cell of that number says both), and two marks of the table's own. A node has, in front of its entries or
 * children, a short of each one's key: where these differ nothing else is read to find a place. A child of a branch
 * comes with a lower bound of its keys, and an upper bound of the last offsets in it. A reader's result is a guess
 * until its partition's sequence number has not changed. */
#ifndef TIERLOG_SEGMENT_ORDER_H
#define TIERLOG_SEGMENT_ORDER_H

#include "table/segment_rows.h"

enum { TL_ORDER_HEIGHT_MAX = 6 };
/* Marks, for Kafka's answers: an offset's lookup may find the entry; its epoch's list has it no more. */
#define TL_ORDER_LOST (1u << 30)
#define TL_ORDER_REFERENCED (1u << 31)

/* `height` 0: the root is a leaf; `root` 0: nothing is in it. */
typedef struct tl_order {
    tl_cell root, tail; /* tail: the last leaf */
    uint32_t height;
    int64_t end_offset_max; /* no last offset in it is larger */
} tl_order;

#define TL_ORDER_EMPTY ((tl_order){.end_offset_max = INT64_MIN})

typedef struct tl_order_key {
    int32_t epoch;
    int64_t start_offset;
    uint64_t id[2];
} tl_order_key;

/* An entry with all that it stands for. */
typedef struct tl_order_entry {
    tl_cell row_cell;
    uint32_t ordinal, marks;
    tl_row row;
    tl_epoch_span span;
} tl_order_entry;

/* A path from the root (level `height`) to an entry of a leaf (level 0). */
typedef struct tl_order_cursor {
    const tl_cells *cells;
    uint32_t height;
    tl_cell node[TL_ORDER_HEIGHT_MAX + 1];
    uint32_t index[TL_ORDER_HEIGHT_MAX + 1];
} tl_order_cursor;

/* To the first entry at or behind the key; false if there is none. */
bool tl_order_lower(const tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *out);
/* To the last entry at or before (epoch, offset), whatever its id; false if there is none. */
bool tl_order_floor(const tl_cells *cells, tl_order order, int32_t epoch, int64_t offset, tl_order_cursor *out);
/* Reads that entry itself where the last leaf is sure to have it; false says nothing. */
bool tl_order_floor_in_tail(const tl_cells *cells, tl_order order, int32_t epoch, int64_t offset, tl_order_entry *out);
/* To the neighbour; false, and nothing moved, at the end. */
bool tl_order_next(tl_order_cursor *cursor);
bool tl_order_previous(tl_order_cursor *cursor);
/* To the last entry before this leaf; leaves that lie wholly below `offset` are passed over unread. */
bool tl_order_previous_reaching(tl_order_cursor *cursor, int64_t offset);
/* False where a writer has changed it meanwhile. */
bool tl_order_read(const tl_order_cursor *cursor, tl_order_entry *out);

/* The writer's. An entry for one epoch of a row, with its marks; *overlaps: a neighbour of that epoch has some of its
 * offsets too, or the span begins behind its end, so that entries before it may end behind it. What stands behind all
 * others costs no search. TL_NO_MEMORY, TL_OVER_LIMIT: nothing was changed. */
tl_status tl_order_insert(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal,
                          const tl_epoch_span *span, const uint64_t id[2], uint32_t marks, bool *overlaps);
/* Takes the entry for one epoch of a row out; false if the order has none. */
bool tl_order_remove(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal);
/* Prefetches the memory that an insertion behind all others will touch: the last leaf, then its end. */
void tl_order_ask_tail(const tl_cells *cells, tl_cell tail);
void tl_order_ask_end(const tl_cells *cells, tl_cell tail);
void tl_order_mark(const tl_order_cursor *cursor, uint32_t marks);
void tl_order_clear(tl_cells *cells, tl_order *order);

#endif
