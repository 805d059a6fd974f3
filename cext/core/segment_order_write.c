/* Growing and shrinking of the order: the writer's half. */
#include "segment_order_parts.h"

#include <assert.h>

typedef struct place {
    tl_cells *cells;
    tl_order *order;
    tl_order_cursor *at;
} place;

static void put_fence(uint8_t *node, uint32_t index, tl_order_fence fence) {
    tl_cell_store(node, 1 + 3 * (size_t)index, fence.child | (uint64_t)(uint32_t)fence.epoch << 32);
    tl_cell_store(node, 2 + 3 * (size_t)index, (uint64_t)fence.start_offset);
    tl_cell_store(node, 3 + 3 * (size_t)index, (uint64_t)fence.end_offset_max);
}

static void put_count(uint8_t *node, bool is_leaf, uint32_t count) {
    if (is_leaf) {
        tl_cell_store32(node, 0, count);
    } else {
        tl_cell_store(node, 0, count);
    }
}

/* Items of one node into another, or further up or down in the same one. */
static void move(uint8_t *to, uint32_t to_index, const uint8_t *from, uint32_t from_index, uint32_t count,
                 bool is_leaf) {
    bool down = to_index <= from_index;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = down ? i : count - 1 - i;
        if (is_leaf) {
            tl_cell_store32(to, 1 + to_index + k, tl_cell_load32(from, 1 + from_index + k));
        } else {
            put_fence(to, to_index + k, tl_branch_fence(from, from_index + k));
        }
    }
}

static tl_status entry_of(tl_cells *cells, tl_cell row_cell, uint32_t ordinal, uint32_t *out) {
    if (ordinal < TL_ENTRY_ALIAS) {
        *out = tl_cell_number(row_cell) | ordinal << TL_CELL_NUMBER_BITS;
        return TL_OK;
    }
    tl_cell alias;
    tl_status status = tl_cell_take(cells, 8, &alias);
    if (status != TL_OK) return status;
    tl_cell_store(tl_cell_own(cells, alias), 0, row_cell | (uint64_t)ordinal << 32);
    *out = tl_cell_number(alias) | (uint32_t)TL_ENTRY_ALIAS << TL_CELL_NUMBER_BITS;
    return TL_OK;
}

static void drop_entry(tl_cells *cells, uint32_t entry) {
    uint32_t number = entry & ((1u << TL_CELL_NUMBER_BITS) - 1);
    if ((entry >> TL_CELL_NUMBER_BITS & TL_ENTRY_ORDINAL) == TL_ENTRY_ALIAS)
        tl_cell_give(cells, tl_cell_named(0, number));
}

/* A node's bounds as its parent has them. */
static tl_order_fence fence_of(const tl_cells *cells, tl_cell cell, bool is_leaf) {
    const uint8_t *node = tl_cell_own(cells, cell);
    uint32_t count = tl_node_count(node, cell, is_leaf);
    tl_order_fence fence = {.child = cell, .end_offset_max = INT64_MIN};
    for (uint32_t i = 0; i < count; i++) {
        tl_order_fence item;
        if (is_leaf) {
            tl_order_entry entry;
            bool read = tl_entry_read(cells, tl_cell_load32(node, 1 + i), &entry);
            assert(read), (void)read;
            item = (tl_order_fence){0, entry.span.epoch, entry.span.start_offset, entry.span.end_offset};
        } else {
            item = tl_branch_fence(node, i);
        }
        if (i == 0) fence.epoch = item.epoch, fence.start_offset = item.start_offset;
        if (item.end_offset_max > fence.end_offset_max) fence.end_offset_max = item.end_offset_max;
    }
    return fence;
}

/* The node of a level has another cell. */
static void rename_node(place *p, uint32_t level, tl_cell cell) {
    p->at->node[level] = cell;
    if (level == p->at->height) {
        p->order->root = cell;
        return;
    }
    uint8_t *parent = tl_cell_own(p->cells, p->at->node[level + 1]);
    tl_order_fence fence = tl_branch_fence(parent, p->at->index[level + 1]);
    fence.child = cell;
    put_fence(parent, p->at->index[level + 1], fence);
}

/* The cells that an insertion may need are taken before anything is changed: at most two a level, and a root. */
typedef struct spare {
    tl_cell wider[TL_ORDER_HEIGHT_MAX + 1], right[TL_ORDER_HEIGHT_MAX + 1], root;
    uint32_t levels; /* that change */
} spare;

static void give_spare(tl_cells *cells, const spare *s) {
    for (uint32_t i = 0; i <= TL_ORDER_HEIGHT_MAX; i++) {
        if (s->wider[i]) tl_cell_give(cells, s->wider[i]);
        if (s->right[i]) tl_cell_give(cells, s->right[i]);
    }
    if (s->root) tl_cell_give(cells, s->root);
}

static tl_status take_spare(place *p, spare *s) {
    tl_status status = TL_OK;
    *s = (spare){.levels = 0};
    for (uint32_t level = 0; level <= p->at->height; level++) {
        bool is_leaf = level == 0;
        tl_cell cell = p->at->node[level];
        s->levels = level + 1;
        if (tl_node_count(tl_cell_own(p->cells, cell), cell, is_leaf) < tl_node_capacity(cell, is_leaf)) return TL_OK;
        size_t most = is_leaf ? TL_LEAF_BYTES_MAX : TL_BRANCH_BYTES_MAX;
        if (tl_cell_size(cell) < most) {
            status = tl_cell_take(p->cells, 2 * tl_cell_size(cell), &s->wider[level]);
            if (status != TL_OK) give_spare(p->cells, s);
            return status;
        }
        status = tl_cell_take(p->cells, most, &s->right[level]);
        if (status != TL_OK) break;
    }
    if (status == TL_OK && p->at->height == TL_ORDER_HEIGHT_MAX) status = TL_OVER_LIMIT;
    if (status == TL_OK) status = tl_cell_take(p->cells, 64, &s->root);
    if (status != TL_OK) give_spare(p->cells, s);
    return status;
}

/* Where a full node is cut. What comes in order fills the left one. */
static uint32_t cut_of(uint32_t count, uint32_t index) { return index == count ? count : count / 2; }

static void insert_item(uint8_t *node, tl_cell cell, bool is_leaf, uint32_t index, uint32_t entry,
                        tl_order_fence fence) {
    uint32_t count = tl_node_count(node, cell, is_leaf);
    move(node, index + 1, node, index, count - index, is_leaf);
    if (is_leaf) {
        tl_cell_store32(node, 1 + index, entry);
    } else {
        put_fence(node, index, fence);
    }
    put_count(node, is_leaf, count + 1);
}

/* An item into the node of a level, which has room, gets it, or is cut; in the last case *right is its new sibling. */
static void insert_at(place *p, spare *s, uint32_t level, uint32_t index, uint32_t entry, tl_order_fence fence,
                      tl_order_fence *right) {
    bool is_leaf = level == 0;
    tl_cell cell = p->at->node[level];
    uint8_t *node = tl_cell_own(p->cells, cell);
    uint32_t count = tl_node_count(node, cell, is_leaf);
    right->child = 0;
    if (s->wider[level]) {
        tl_cell wider = s->wider[level];
        uint8_t *to = tl_cell_own(p->cells, wider);
        move(to, 0, node, 0, count, is_leaf);
        put_count(to, is_leaf, count);
        rename_node(p, level, wider);
        tl_cell_give(p->cells, cell);
        s->wider[level] = 0;
        insert_item(to, wider, is_leaf, index, entry, fence);
        return;
    }
    if (!s->right[level]) {
        insert_item(node, cell, is_leaf, index, entry, fence);
        return;
    }
    tl_cell other = s->right[level];
    uint8_t *to = tl_cell_own(p->cells, other);
    uint32_t cut = cut_of(count, index);
    s->right[level] = 0;
    move(to, 0, node, cut, count - cut, is_leaf);
    put_count(to, is_leaf, count - cut);
    put_count(node, is_leaf, cut);
    if (index < cut || (index == cut && cut < count)) {
        insert_item(node, cell, is_leaf, index, entry, fence);
    } else {
        insert_item(to, other, is_leaf, index - cut, entry, fence);
    }
    *right = fence_of(p->cells, other, is_leaf);
}

/* Bounds of the path: an entry whose last offset is `end` is below. */
static void raise_path(place *p, int64_t end) {
    for (uint32_t level = 1; level <= p->at->height; level++) {
        uint8_t *node = tl_cell_own(p->cells, p->at->node[level]);
        tl_order_fence fence = tl_branch_fence(node, p->at->index[level]);
        if (fence.end_offset_max >= end) continue;
        fence.end_offset_max = end;
        put_fence(node, p->at->index[level], fence);
    }
}

static tl_status begin(tl_cells *cells, tl_order *order, uint32_t entry) {
    tl_cell leaf;
    tl_status status = tl_cell_take(cells, TL_LEAF_BYTES_MIN, &leaf);
    if (status != TL_OK) return status;
    tl_cell_store32(tl_cell_own(cells, leaf), 1, entry);
    put_count(tl_cell_own(cells, leaf), true, 1);
    *order = (tl_order){leaf, 0};
    return TL_OK;
}

static bool key_of(const tl_cells *cells, tl_cell row_cell, uint32_t ordinal, tl_order_key *key, int64_t *end) {
    tl_row row;
    tl_epoch_span span;
    if (!tl_row_load(cells, row_cell, &row) || !tl_row_span(cells, &row, ordinal, &span)) return false;
    *key = (tl_order_key){span.epoch, span.start_offset, {row.words[0], row.words[1]}};
    *end = span.end_offset;
    return true;
}

/* Whether what is before or behind a place, of the same epoch, has offsets in common with what will stand there. */
static bool touches_neighbours(const tl_order_cursor *at, const tl_order_key *key, int64_t end) {
    tl_order_cursor moved = *at;
    tl_order_entry other;
    if (tl_order_previous(&moved) && tl_order_read(&moved, &other) && other.span.epoch == key->epoch &&
        other.span.end_offset >= key->start_offset)
        return true;
    moved = *at;
    return tl_order_settle(&moved) && tl_order_read(&moved, &other) && other.span.epoch == key->epoch &&
           other.span.start_offset <= end;
}

/* The place of a new entry: mostly the end, since segments come as a log grows. */
static void seek_place(tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *at) {
    tl_order_entry last;
    if (tl_order_end(cells, order, at) && tl_order_read(at, &last) && tl_order_compare(key, &last) > 0) {
        at->index[0]++;
        return;
    }
    bool found = tl_order_seek(cells, order, key, at);
    assert(found), (void)found;
}

/* The item goes into the leaf, and what is cut off goes up. */
static void insert_from_leaf(place *p, spare *s, uint32_t entry) {
    tl_order_cursor *at = p->at;
    tl_order_fence right = {0}, fence = {0};
    uint32_t levels = s->levels;
    for (uint32_t level = 0; level < levels; level++) {
        uint32_t index = level ? at->index[level] + 1 : at->index[0];
        insert_at(p, s, level, index, entry, fence, &right);
        if (!right.child) return;
        if (level < at->height) { /* what went to the right no longer counts on the left */
            uint8_t *parent = tl_cell_own(p->cells, at->node[level + 1]);
            tl_order_fence kept = tl_branch_fence(parent, at->index[level + 1]);
            kept.end_offset_max = fence_of(p->cells, at->node[level], level == 0).end_offset_max;
            put_fence(parent, at->index[level + 1], kept);
        }
        fence = right;
    }
    uint8_t *root = tl_cell_own(p->cells, s->root);
    put_fence(root, 0, fence_of(p->cells, p->order->root, at->height == 0));
    put_fence(root, 1, right);
    put_count(root, false, 2);
    *p->order = (tl_order){s->root, at->height + 1};
}

tl_status tl_order_insert(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal, bool *overlaps) {
    tl_order_key key;
    tl_order_cursor at;
    int64_t end;
    uint32_t entry;
    *overlaps = false;
    if (!key_of(cells, row_cell, ordinal, &key, &end)) return TL_BAD_ARGUMENT;
    tl_status status = entry_of(cells, row_cell, ordinal, &entry);
    if (status != TL_OK) return status;
    spare s;
    place p = {cells, order, &at};
    if (order->root) {
        seek_place(cells, *order, &key, &at);
        status = take_spare(&p, &s);
    } else {
        status = begin(cells, order, entry);
        if (status == TL_OK) return TL_OK;
    }
    if (status != TL_OK) {
        drop_entry(cells, entry);
        return status;
    }
    *overlaps = touches_neighbours(&at, &key, end);
    raise_path(&p, end);
    insert_from_leaf(&p, &s, entry);
    return TL_OK;
}

bool tl_order_remove(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal) {
    tl_order_key key;
    tl_order_cursor at;
    tl_order_entry entry;
    int64_t end;
    if (!key_of(cells, row_cell, ordinal, &key, &end) || !tl_order_lower(cells, *order, &key, &at)) return false;
    if (!tl_order_read(&at, &entry) || entry.row_cell != row_cell || entry.span.epoch != key.epoch) return false;
    drop_entry(cells, tl_cell_load32(tl_cell_own(cells, at.node[0]), 1 + at.index[0]));
    for (uint32_t level = 0; level <= at.height; level++) {
        bool is_leaf = level == 0;
        uint8_t *node = tl_cell_own(cells, at.node[level]);
        uint32_t count = tl_node_count(node, at.node[level], is_leaf), index = at.index[level];
        move(node, index, node, index + 1, count - index - 1, is_leaf);
        put_count(node, is_leaf, count - 1);
        if (count > 1) break;
        if (level == at.height) *order = (tl_order){0, 0};
        tl_cell_give(cells, at.node[level]);
    }
    while (order->height > 0) {
        const uint8_t *node = tl_cell_own(cells, order->root);
        if (tl_node_count(node, order->root, false) > 1) break;
        tl_cell old = order->root;
        *order = (tl_order){tl_branch_fence(node, 0).child, order->height - 1};
        tl_cell_give(cells, old);
    }
    return true;
}

void tl_order_mark(const tl_order_cursor *cursor, uint32_t marks) {
    uint8_t *leaf = tl_cell_own(cursor->cells, cursor->node[0]);
    uint32_t entry = tl_cell_load32(leaf, 1 + cursor->index[0]);
    tl_cell_store32(leaf, 1 + cursor->index[0], (entry & ~TL_ENTRY_MARKS) | marks);
}

static void clear_below(tl_cells *cells, tl_cell cell, uint32_t height) {
    const uint8_t *node = tl_cell_own(cells, cell);
    uint32_t count = tl_node_count(node, cell, height == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (height) {
            clear_below(cells, tl_branch_fence(node, i).child, height - 1);
        } else {
            drop_entry(cells, tl_cell_load32(node, 1 + i));
        }
    }
    tl_cell_give(cells, cell);
}

void tl_order_clear(tl_cells *cells, tl_order *order) {
    if (order->root) clear_below(cells, order->root, order->height);
    *order = (tl_order){0, 0};
}
