/* What the two halves of segment_order share: the forms of leaves and branches. */
#ifndef TIERLOG_SEGMENT_ORDER_PARTS_H
#define TIERLOG_SEGMENT_ORDER_PARTS_H

#include "segment_order.h"

enum {
    TL_ROW_CLASS = 3, /* cells of 64 bytes */
    TL_LEAF_BYTES_MIN = 32,
    TL_LEAF_BYTES_MAX = 128,
    TL_BRANCH_BYTES_MAX = 2048,
    TL_ENTRY_ORDINAL = 7,
    TL_ENTRY_ALIAS = 7,
};
#define TL_ENTRY_MARKS ((uint32_t)TL_ORDER_REFERENCED | (uint32_t)TL_ORDER_LOST)

/* A child of a branch: its cell, the lower bound of its keys, the upper bound of its last offsets. */
typedef struct tl_order_fence {
    tl_cell child;
    int32_t epoch;
    int64_t start_offset, end_offset_max;
} tl_order_fence;

static inline uint32_t tl_node_capacity(tl_cell cell, bool is_leaf) {
    size_t size = tl_cell_size(cell);
    return (uint32_t)(is_leaf ? size / 4 - 1 : (size / 8 - 1) / 3);
}

uint32_t tl_node_count(const uint8_t *node, tl_cell cell, bool is_leaf);
tl_order_fence tl_branch_fence(const uint8_t *node, uint32_t index);
bool tl_entry_read(const tl_cells *cells, uint32_t entry, tl_order_entry *out);
int tl_order_compare(const tl_order_key *key, const tl_order_entry *entry);
/* From the end of a leaf, one past its last entry, to the first of the next leaf; false at the end of all. */
bool tl_order_settle(tl_order_cursor *cursor);
/* To the last entry; false if there is none. */
bool tl_order_end(const tl_cells *cells, tl_order order, tl_order_cursor *out);
/* As tl_order_lower, but stays behind the last entry of the leaf where the key belongs. */
bool tl_order_seek(const tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *out);

#endif
