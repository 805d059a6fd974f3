/* Filling an order by entries that mostly rise: what a snapshot is loaded by. */
#include "segment_order_parts.h"

static int compare_keys(const tl_order_key *a, const tl_order_key *b) {
    if (a->epoch != b->epoch) return a->epoch < b->epoch ? -1 : 1;
    if (a->start_offset != b->start_offset) return a->start_offset < b->start_offset ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (a->id[i] != b->id[i]) return a->id[i] < b->id[i] ? -1 : 1;
    return 0;
}

/* Behind the last entry of a leaf that has room; false if it has none. */
static bool put_behind(tl_cells *cells, tl_order_tail *tail, tl_cell row_cell, uint32_t ordinal, uint32_t marks,
                       int64_t end_offset) {
    tl_order_cursor *at = &tail->at;
    uint8_t *leaf = tl_cell_own(cells, at->node[0]);
    uint32_t count = at->index[0] + 1;
    if (ordinal >= TL_ENTRY_ALIAS || count >= tl_node_capacity(at->node[0], true)) return false;
    tl_cell_store32(leaf, 1 + count, tl_cell_number(row_cell) | ordinal << TL_CELL_NUMBER_BITS | marks);
    tl_cell_store32(leaf, 0, count + 1);
    at->index[0] = count;
    for (uint32_t level = 1; level <= at->height; level++) {
        uint8_t *node = tl_cell_own(cells, at->node[level]);
        size_t word = 3 + 3 * (size_t)at->index[level];
        if ((int64_t)tl_cell_load(node, word) < end_offset) tl_cell_store(node, word, (uint64_t)end_offset);
    }
    return true;
}

tl_status tl_order_append(tl_cells *cells, tl_order *order, tl_order_tail *tail, tl_cell row_cell, uint32_t ordinal,
                          const tl_epoch_span *span, const uint64_t id[2], uint32_t marks, bool *overlaps) {
    tl_order_key key = {span->epoch, span->start_offset, {id[0], id[1]}};
    bool rises = tail->valid && compare_keys(&tail->key, &key) < 0;
    if (rises && put_behind(cells, tail, row_cell, ordinal, marks, span->end_offset)) {
        *overlaps = tail->key.epoch == key.epoch && tail->end_offset >= key.start_offset;
        tail->key = key;
        tail->end_offset = span->end_offset;
        return TL_OK;
    }
    tl_status status = tl_order_insert(cells, order, row_cell, ordinal, overlaps);
    if (status != TL_OK) return status;
    if (marks) {
        tl_order_cursor at;
        if (!tl_order_lower(cells, *order, &key, &at)) return TL_BAD_ARGUMENT;
        tl_order_mark(&at, marks);
    }
    if (rises || !tail->valid) {
        tail->key = key;
        tail->end_offset = span->end_offset;
    }
    tail->valid = tl_order_end(cells, *order, &tail->at); /* the last entry is that of the last key still */
    return TL_OK;
}
