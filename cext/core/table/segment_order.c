/* Finding and going through: what readers and the writer share. Growing and shrinking is segment_order_write.c's. */
#include "table/segment_order_parts.h"

static int compare(int32_t epoch, int64_t start, int32_t other_epoch, int64_t other_start) {
    if (epoch != other_epoch) return epoch < other_epoch ? -1 : 1;
    return start == other_start ? 0 : start < other_start ? -1 : 1;
}

int tl_order_compare(const tl_order_key *key, const tl_order_entry *entry) {
    int order = compare(key->epoch, key->start_offset, entry->span.epoch, entry->span.start_offset);
    for (int i = 0; i < 2 && !order; i++)
        if (key->id[i] != entry->row.words[i]) order = key->id[i] < entry->row.words[i] ? -1 : 1;
    return order;
}

bool tl_entry_read(const tl_cells *cells, uint32_t entry, tl_order_entry *out) {
    out->marks = entry & TL_ENTRY_MARKS;
    return tl_entry_row(cells, entry, &out->row_cell, &out->ordinal) && tl_row_load(cells, out->row_cell, &out->row) &&
           tl_row_span(cells, &out->row, out->ordinal, &out->span);
}

bool tl_order_read(const tl_order_cursor *cursor, tl_order_entry *out) {
    const uint8_t *leaf = tl_node_at(cursor->cells, cursor->node[0]);
    if (!leaf || cursor->index[0] >= tl_node_count(leaf, cursor->node[0], true)) return false;
    return tl_entry_read(cursor->cells, tl_leaf_entry(leaf, cursor->node[0], cursor->index[0]), out);
}

/* Items whose shorts are those of a key: from the first of them to behind the last. */
static void same_shorts(const uint8_t *node, uint32_t count, uint16_t of, uint32_t *low, uint32_t *high) {
    *high = tl_node_upto(node, count, of);
    *low = *high;
    if (*high && tl_node_short(node, *high - 1) == of) *low = of ? tl_node_upto(node, *high, (uint16_t)(of - 1)) : 0;
}

uint32_t tl_branch_child(const uint8_t *node, tl_cell cell, uint32_t count, int32_t epoch, int64_t start, bool at_too) {
    tl_order_scale scale = tl_node_scale(node);
    uint32_t low, high; /* of the children in front of `low` the bound fits, of `high` and behind not */
    same_shorts(node, count, tl_order_short(&scale, epoch, start), &low, &high);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        tl_order_fence fence = tl_branch_fence(node, cell, middle);
        int order = compare(fence.epoch, fence.start_offset, epoch, start);
        if (order < 0 || (at_too && order == 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low ? low - 1 : 0;
}

/* The lines behind a node's first, all at once: which of them a search reads is known too late. */
static void ask_rest(const uint8_t *node, size_t size) {
    for (size_t at = 64; at < size && at < 256; at += 64) __builtin_prefetch(node + at);
}

/* Down to a leaf; false where there is none, or the tree was changed meanwhile. */
static bool descend(const tl_cells *cells, tl_order order, int32_t epoch, int64_t start, bool at_too,
                    tl_order_cursor *out) {
    if (!order.root || order.height > TL_ORDER_HEIGHT_MAX) return false;
    out->cells = cells;
    out->height = order.height;
    tl_cell cell = order.root;
    for (uint32_t level = order.height; level > 0; level--) {
        const uint8_t *node = tl_node_at(cells, cell);
        if (node) ask_rest(node, tl_cell_size(cell));
        uint32_t count = node ? tl_node_count(node, cell, false) : 0;
        if (!count) return false;
        out->node[level] = cell;
        out->index[level] = tl_branch_child(node, cell, count, epoch, start, at_too);
        cell = tl_branch_fence(node, cell, out->index[level]).child;
    }
    out->node[0] = cell;
    const uint8_t *leaf = tl_node_at(cells, cell);
    if (leaf) ask_rest(leaf, tl_cell_size(cell));
    return leaf != NULL;
}

/* In the leaf: the first entry behind all that lie before the key (and, with `at_too`, at it). False: changed
 * meanwhile. */
static bool seek_in_leaf(tl_order_cursor *cursor, const tl_order_key *key, bool at_too) {
    const uint8_t *leaf = tl_node_at(cursor->cells, cursor->node[0]);
    tl_order_scale scale = tl_node_scale(leaf);
    uint32_t low, high;
    same_shorts(leaf, tl_node_count(leaf, cursor->node[0], true), tl_order_short(&scale, key->epoch, key->start_offset),
                &low, &high);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        tl_order_entry entry;
        if (!tl_entry_read(cursor->cells, tl_leaf_entry(leaf, cursor->node[0], middle), &entry)) return false;
        int order = at_too ? compare(key->epoch, key->start_offset, entry.span.epoch, entry.span.start_offset)
                           : tl_order_compare(key, &entry);
        if (order > 0 || (at_too && order == 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    cursor->index[0] = low;
    return true;
}

static uint32_t leaf_count(const tl_order_cursor *cursor) {
    const uint8_t *leaf = tl_node_at(cursor->cells, cursor->node[0]);
    return leaf ? tl_node_count(leaf, cursor->node[0], true) : 0;
}

bool tl_order_settle(tl_order_cursor *cursor) {
    if (cursor->index[0] < leaf_count(cursor)) return true;
    for (uint32_t level = 1; level <= cursor->height; level++) {
        const uint8_t *node = tl_node_at(cursor->cells, cursor->node[level]);
        if (!node) return false;
        if (cursor->index[level] + 1 >= tl_node_count(node, cursor->node[level], false)) continue;
        cursor->index[level]++;
        for (uint32_t below = level; below > 0; below--) {
            node = tl_node_at(cursor->cells, cursor->node[below]);
            if (!node || cursor->index[below] >= tl_node_count(node, cursor->node[below], false)) return false;
            cursor->node[below - 1] = tl_branch_fence(node, cursor->node[below], cursor->index[below]).child;
            cursor->index[below - 1] = 0;
        }
        return leaf_count(cursor) > 0;
    }
    return false;
}

/* Segments that begin together differ by their ids, which branches do not have: they may go on in the next leaf. */
bool tl_order_seek(const tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *out) {
    if (!descend(cells, order, key->epoch, key->start_offset, false, out)) return false;
    for (;;) {
        if (!seek_in_leaf(out, key, false)) return false;
        if (out->index[0] < leaf_count(out)) return true;
        tl_order_cursor moved = *out;
        tl_order_entry entry;
        if (!tl_order_settle(&moved) || !tl_order_read(&moved, &entry) || tl_order_compare(key, &entry) <= 0)
            return true;
        *out = moved;
    }
}

bool tl_order_lower(const tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *out) {
    return tl_order_seek(cells, order, key, out) && tl_order_settle(out);
}

bool tl_order_next(tl_order_cursor *cursor) {
    if (cursor->index[0] + 1 < leaf_count(cursor)) {
        cursor->index[0]++;
        return true;
    }
    tl_order_cursor moved = *cursor;
    moved.index[0]++;
    if (!tl_order_settle(&moved)) return false;
    *cursor = moved;
    return true;
}

bool tl_order_previous_reaching(tl_order_cursor *cursor, int64_t offset) {
    tl_order_cursor moved = *cursor;
    uint32_t level = 1;
    while (level <= moved.height) {
        const uint8_t *node = tl_node_at(moved.cells, moved.node[level]);
        if (!node || moved.index[level] > tl_node_count(node, moved.node[level], false)) return false;
        if (moved.index[level] == 0) {
            level++;
            continue;
        }
        tl_order_fence fence = tl_branch_fence(node, moved.node[level], --moved.index[level]);
        if (fence.end_offset_max < offset) continue;
        moved.node[level - 1] = fence.child;
        const uint8_t *child = tl_node_at(moved.cells, fence.child);
        uint32_t count = child ? tl_node_count(child, fence.child, level == 1) : 0;
        if (!count) return false;
        if (level == 1) {
            moved.index[0] = count - 1;
            *cursor = moved;
            return true;
        }
        moved.index[--level] = count; /* one past its last child: the loop takes the one before */
    }
    return false;
}

bool tl_order_previous(tl_order_cursor *cursor) {
    if (cursor->index[0] > 0) {
        cursor->index[0]--;
        return true;
    }
    return tl_order_previous_reaching(cursor, INT64_MIN);
}

bool tl_order_floor(const tl_cells *cells, tl_order order, int32_t epoch, int64_t offset, tl_order_cursor *out) {
    tl_order_key key = {.epoch = epoch, .start_offset = offset};
    if (!descend(cells, order, epoch, offset, true, out) || !seek_in_leaf(out, &key, true)) return false;
    return tl_order_previous(out);
}

bool tl_order_floor_in_tail(const tl_cells *cells, tl_order order, int32_t epoch, int64_t offset, tl_order_entry *out) {
    const uint8_t *leaf = tl_node_at(cells, order.tail);
    if (!leaf) return false;
    tl_order_scale scale = tl_node_scale(leaf);
    uint32_t upto = tl_node_upto(leaf, tl_node_count(leaf, order.tail, true), tl_order_short(&scale, epoch, offset));
    if (!upto || !tl_entry_read(cells, tl_leaf_entry(leaf, order.tail, upto - 1), out)) return false;
    return compare(out->span.epoch, out->span.start_offset, epoch, offset) <= 0; /* else one before it, or in front */
}

bool tl_order_end(const tl_cells *cells, tl_order order, tl_order_cursor *out) {
    if (!order.root || order.height > TL_ORDER_HEIGHT_MAX) return false;
    out->cells = cells;
    out->height = order.height;
    tl_cell cell = order.root;
    for (uint32_t level = order.height;; level--) {
        const uint8_t *node = tl_node_at(cells, cell);
        uint32_t count = node ? tl_node_count(node, cell, level == 0) : 0;
        if (!count) return false;
        out->node[level] = cell;
        out->index[level] = count - 1;
        if (level == 0) return true;
        cell = tl_branch_fence(node, cell, count - 1).child;
    }
}
