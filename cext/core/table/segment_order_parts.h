/* Shared parts of segment_order's halves: the forms of leaves and branches.
 *
 * Words of a node:  0  entries (16 bits) | bits of epoch in a short (8) | shift of offsets (8) | first epoch (32)
 *                   1  first offset
 * then the shorts, and from a multiple of 8 bytes (of 4 in a leaf) on: entries of 32 bits, or children of three words
 * (cell | epoch << 32, start offset, upper bound of last offsets). */
#ifndef TIERLOG_SEGMENT_ORDER_PARTS_H
#define TIERLOG_SEGMENT_ORDER_PARTS_H

#include "table/segment_order.h"

enum {
    TL_NODE_HEAD = 16,
    TL_LEAF_BYTES_MIN = 64,
    TL_LEAF_BYTES_HALF = 192, /* holds the half of a full leaf, and a half more */
    TL_LEAF_BYTES_MAX = 256,
    TL_LEAF_ENTRIES_MAX = (TL_LEAF_BYTES_MAX - TL_NODE_HEAD) / 6,
    TL_BRANCH_BYTES_MIN = 96,
    TL_BRANCH_BYTES_MAX = 2048,
    TL_NODE_ITEMS_MAX = 80, /* no node has more */
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

/* The mapping of a node's keys to shorts that never fall where the keys rise. */
typedef struct tl_order_scale {
    uint32_t epoch_bits, shift;
    int32_t epoch;
    int64_t offset;
} tl_order_scale;

/* A node's bytes; NULL for a name of no cell that could be one. */
static inline const uint8_t *tl_node_at(const tl_cells *cells, tl_cell cell) {
    return tl_cell_size(cell) >= TL_LEAF_BYTES_MIN ? tl_cell_at(cells, cell) : NULL;
}

static inline uint32_t tl_node_capacity(tl_cell cell, bool is_leaf) {
    return (uint32_t)((tl_cell_size(cell) - TL_NODE_HEAD) / (is_leaf ? 6 : 26));
}
/* Byte at which the entries of a leaf, or the children of a branch, begin. */
static inline size_t tl_node_items(tl_cell cell, bool is_leaf) {
    size_t end = TL_NODE_HEAD + 2 * (size_t)tl_node_capacity(cell, is_leaf);
    return is_leaf ? (end + 3) & ~(size_t)3 : (end + 7) & ~(size_t)7;
}

/* Number of children or entries: never more than the cell holds. */
static inline uint32_t tl_node_count(const uint8_t *node, tl_cell cell, bool is_leaf) {
    uint32_t count = (uint32_t)tl_cell_load(node, 0) & 0xffff, most = tl_node_capacity(cell, is_leaf);
    return count < most ? count : most;
}

static inline tl_order_scale tl_node_scale(const uint8_t *node) {
    uint64_t word = tl_cell_load(node, 0);
    return (tl_order_scale){(uint32_t)(word >> 16) & 15, (uint32_t)(word >> 24) & 63, (int32_t)(word >> 32),
                            (int64_t)tl_cell_load(node, 1)};
}

static inline uint16_t tl_order_short(const tl_order_scale *scale, int32_t epoch, int64_t offset) {
    if (epoch < scale->epoch) return 0;
    uint32_t offset_bits = 16 - scale->epoch_bits, behind = (uint32_t)epoch - (uint32_t)scale->epoch;
    if (behind >> scale->epoch_bits) return UINT16_MAX;
    uint64_t most = ((uint64_t)1 << offset_bits) - 1, distance = 0;
    if (offset > scale->offset) distance = ((uint64_t)offset - (uint64_t)scale->offset) >> scale->shift;
    return (uint16_t)(behind << offset_bits | (distance < most ? distance : most));
}

static inline uint16_t tl_node_short(const uint8_t *node, uint32_t index) {
    return tl_cell_load16(node, TL_NODE_HEAD / 2 + index);
}
static inline uint32_t tl_leaf_entry(const uint8_t *leaf, tl_cell cell, uint32_t index) {
    return tl_cell_load32(leaf, tl_node_items(cell, true) / 4 + index);
}
static inline tl_order_fence tl_branch_fence(const uint8_t *node, tl_cell cell, uint32_t index) {
    size_t word = tl_node_items(cell, false) / 8 + 3 * (size_t)index;
    uint64_t first = tl_cell_load(node, word);
    return (tl_order_fence){(tl_cell)first, (int32_t)(first >> 32), (int64_t)tl_cell_load(node, word + 1),
                            (int64_t)tl_cell_load(node, word + 2)};
}

/* Number of the first `count` shorts that are at most so large. */
static inline uint32_t tl_node_upto(const uint8_t *node, uint32_t count, uint16_t most) {
    uint32_t at = 0;
    while (count) {
        uint32_t half = (count + 1) / 2;
        at += tl_node_short(node, at + half - 1) <= most ? half : 0;
        count -= half;
    }
    return at;
}

/* The cell of an entry's row and which epoch of it is meant; false where the entry was changed meanwhile. */
static inline bool tl_entry_row(const tl_cells *cells, uint32_t entry, tl_cell *row_cell, uint32_t *ordinal) {
    uint32_t number = entry & ((1u << TL_CELL_NUMBER_BITS) - 1);
    *ordinal = entry >> TL_CELL_NUMBER_BITS & TL_ENTRY_ORDINAL;
    *row_cell = tl_cell_named(TL_ROW_CLASS, number);
    if (*ordinal != TL_ENTRY_ALIAS) return true;
    const uint8_t *alias = tl_cell_at(cells, tl_cell_named(0, number));
    if (!alias) return false;
    uint64_t word = tl_cell_load(alias, 0);
    *row_cell = (tl_cell)word;
    *ordinal = (uint32_t)(word >> 32);
    return true;
}

bool tl_entry_read(const tl_cells *cells, uint32_t entry, tl_order_entry *out);
int tl_order_compare(const tl_order_key *key, const tl_order_entry *entry);
/* The last child whose bound is before (epoch, start), or at it where `at_too`; the first if there is none. */
uint32_t tl_branch_child(const uint8_t *node, tl_cell cell, uint32_t count, int32_t epoch, int64_t start, bool at_too);
/* Moves from the end of a leaf, one past its last entry, to the first of the next leaf; false at the end of all. */
bool tl_order_settle(tl_order_cursor *cursor);
/* To the last entry; false if there is none. */
bool tl_order_end(const tl_cells *cells, tl_order order, tl_order_cursor *out);
/* Like tl_order_lower, but stays behind the last entry of the leaf where the key belongs. */
bool tl_order_seek(const tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *out);

#endif
