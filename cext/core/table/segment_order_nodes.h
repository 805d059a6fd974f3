/* Changes of single nodes, for the writer of an order. Internal to it. */
#ifndef TIERLOG_SEGMENT_ORDER_NODES_H
#define TIERLOG_SEGMENT_ORDER_NODES_H

#include "table/segment_order_parts.h"

/* The scale that distinguishes ascending items, and `ahead` times their range, best. */
tl_order_scale tl_scale_of(const tl_order_fence *items, uint32_t count, uint32_t ahead);
/* For a first entry, of which nothing is known but its length. */
tl_order_scale tl_scale_alone(const tl_epoch_span *span);
/* The scale for an entry behind a full leaf, whose range counts twice. */
tl_order_scale tl_scale_behind(const uint8_t *leaf, uint32_t count, const tl_epoch_span *span);

void tl_node_put_head(uint8_t *node, uint32_t count, tl_order_scale scale);
void tl_node_put_count(uint8_t *node, uint32_t count);
void tl_node_rescale(uint8_t *node, const tl_order_fence *items, uint32_t count, tl_order_scale scale);

/* Keys and last offsets of a leaf's entries, from their rows. */
void tl_leaf_read(const tl_cells *cells, tl_cell cell, tl_order_fence *out);
void tl_leaf_rescale(const tl_cells *cells, tl_cell cell, uint32_t ahead);
void tl_leaf_put_entry(uint8_t *leaf, tl_cell cell, uint32_t index, uint32_t entry);
void tl_leaf_copy(uint8_t *to, tl_cell to_cell, const uint8_t *from, tl_cell from_cell, uint32_t first, uint32_t count);
void tl_leaf_insert(uint8_t *leaf, tl_cell cell, uint32_t index, uint32_t entry, uint16_t key_short);
void tl_leaf_take_out(uint8_t *leaf, tl_cell cell, uint32_t index);

uint32_t tl_branch_read(const uint8_t *node, tl_cell cell, tl_order_fence *out);
void tl_branch_write(uint8_t *node, tl_cell cell, const tl_order_fence *fences, uint32_t count);
void tl_branch_put_fence(uint8_t *node, tl_cell cell, uint32_t index, tl_order_fence fence);

#endif
