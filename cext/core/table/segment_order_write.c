/* Growing and shrinking of the order: the writer's half.
 *
 * Upper bounds of last offsets are INT64_MAX along the right edge of the tree, so that what comes in order touches no
 * branch; a node that is no longer at the edge gets its own. */
#include "table/segment_order_nodes.h"

#include <assert.h>

enum { LARGE_FROM = 6 }; /* leaves of an order */

typedef struct place {
    tl_cells *cells;
    tl_order *order;
    tl_order_cursor *at;
} place;

typedef struct item {
    uint32_t entry;
    tl_epoch_span span;
    int64_t before_max; /* no last offset in the order was larger before it */
} item;

static tl_status entry_of(tl_cells *cells, tl_cell row_cell, uint32_t ordinal, uint32_t marks, uint32_t *out) {
    if (ordinal < TL_ENTRY_ALIAS) {
        *out = tl_cell_number(row_cell) | ordinal << TL_CELL_NUMBER_BITS | marks;
        return TL_OK;
    }
    tl_cell alias;
    tl_status status = tl_cell_take(cells, 8, &alias);
    if (status != TL_OK) return status;
    tl_cell_store(tl_cell_own(cells, alias), 0, row_cell | (uint64_t)ordinal << 32);
    *out = tl_cell_number(alias) | (uint32_t)TL_ENTRY_ALIAS << TL_CELL_NUMBER_BITS | marks;
    return TL_OK;
}

static void drop_entry(tl_cells *cells, uint32_t entry) {
    uint32_t number = entry & ((1u << TL_CELL_NUMBER_BITS) - 1);
    if ((entry >> TL_CELL_NUMBER_BITS & TL_ENTRY_ORDINAL) == TL_ENTRY_ALIAS)
        tl_cell_give(cells, tl_cell_named(0, number));
}

/* The node of a level has another cell. */
static void rename_node(place *p, uint32_t level, tl_cell cell) {
    if (level == 0 && p->order->tail == p->at->node[0]) p->order->tail = cell;
    p->at->node[level] = cell;
    if (level == p->at->height) {
        p->order->root = cell;
        return;
    }
    tl_cell parent = p->at->node[level + 1];
    uint8_t *node = tl_cell_own(p->cells, parent);
    tl_order_fence fence = tl_branch_fence(node, parent, p->at->index[level + 1]);
    fence.child = cell;
    tl_branch_put_fence(node, parent, p->at->index[level + 1], fence);
}

/* The cells that an insertion may need are allocated before anything is changed: at most two a level, and a root. */
typedef struct spare {
    tl_cell wider[TL_ORDER_HEIGHT_MAX + 1], right[TL_ORDER_HEIGHT_MAX + 1], root;
} spare;

static void give_spare(tl_cells *cells, const spare *s) {
    for (uint32_t i = 0; i <= TL_ORDER_HEIGHT_MAX; i++) {
        if (s->wider[i]) tl_cell_give(cells, s->wider[i]);
        if (s->right[i]) tl_cell_give(cells, s->right[i]);
    }
    if (s->root) tl_cell_give(cells, s->root);
}

/* The next larger size of a node. Few sizes: cells of a size that all orders have outgrown are useless. Those of
 * leaves are those of buckets of ids too; half of a full leaf has a size of its own, which insertions in order skip. */
static size_t wider_size(size_t size, bool is_leaf, bool in_order) {
    if (is_leaf)
        return size < 128 ? 128 : size < TL_LEAF_BYTES_HALF && !in_order ? TL_LEAF_BYTES_HALF : TL_LEAF_BYTES_MAX;
    return size == TL_BRANCH_BYTES_MIN ? 256 : 2 * size;
}

/* Allocates the leaves for a full one that can grow no more: another one behind it, or one for either half. */
static tl_status take_halves(place *p, spare *s) {
    uint32_t count = tl_node_count(tl_cell_own(p->cells, p->at->node[0]), p->at->node[0], true);
    if (p->at->index[0] == count) {
        /* An order of this size will fill another leaf: it need not grow step by step. */
        bool large = p->order->height > 1 || tl_node_count(tl_cell_own(p->cells, p->order->root), p->order->root,
                                                           p->order->height == 0) >= LARGE_FROM;
        return tl_cell_take(p->cells, large && p->order->height ? TL_LEAF_BYTES_MAX : TL_LEAF_BYTES_MIN, &s->right[0]);
    }
    tl_status status = tl_cell_take(p->cells, TL_LEAF_BYTES_HALF, &s->wider[0]);
    return status == TL_OK ? tl_cell_take(p->cells, TL_LEAF_BYTES_HALF, &s->right[0]) : status;
}

static tl_status take_spare(place *p, spare *s) {
    tl_status status = TL_OK;
    *s = (spare){.root = 0};
    for (uint32_t level = 0; status == TL_OK && level <= p->at->height; level++) {
        bool is_leaf = level == 0;
        tl_cell cell = p->at->node[level];
        if (tl_node_count(tl_cell_own(p->cells, cell), cell, is_leaf) < tl_node_capacity(cell, is_leaf)) return TL_OK;
        size_t size = tl_cell_size(cell), most = is_leaf ? TL_LEAF_BYTES_MAX : TL_BRANCH_BYTES_MAX;
        if (size < most) {
            bool in_order = cell == p->order->tail && p->at->index[0] == tl_node_capacity(cell, true);
            status = tl_cell_take(p->cells, wider_size(size, is_leaf, in_order), &s->wider[level]);
            if (status == TL_OK) return TL_OK;
        } else {
            status = is_leaf ? take_halves(p, s) : tl_cell_take(p->cells, most, &s->right[level]);
        }
    }
    if (status == TL_OK && p->at->height == TL_ORDER_HEIGHT_MAX) status = TL_OVER_LIMIT;
    if (status == TL_OK) status = tl_cell_take(p->cells, TL_BRANCH_BYTES_MIN, &s->root);
    if (status != TL_OK) give_spare(p->cells, s);
    return status;
}

/* Inserts into a leaf that has room. Where the short equals a neighbour's, all are made anew; not each time, or keys
 * that no short can distinguish would be read again and again. */
static void put_in_leaf(place *p, tl_cell cell, uint32_t index, const item *what) {
    uint8_t *leaf = tl_cell_own(p->cells, cell);
    tl_order_scale scale = tl_node_scale(leaf);
    uint16_t its = tl_order_short(&scale, what->span.epoch, what->span.start_offset);
    tl_leaf_insert(leaf, cell, index, what->entry, its);
    uint32_t count = tl_node_count(leaf, cell, true);
    bool same = (index > 0 && tl_node_short(leaf, index - 1) == its) ||
                (index + 1 < count && tl_node_short(leaf, index + 1) == its);
    if (same && (count % 4 == 0 || count == 2))
        tl_leaf_rescale(p->cells, cell, cell == p->order->tail ? TL_LEAF_ENTRIES_MAX / count + 1 : 1);
}

static int64_t end_of(const tl_order_fence *items, uint32_t count) {
    int64_t end = INT64_MIN;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].end_offset_max > end) end = items[i].end_offset_max;
    return end;
}

/* One more leaf behind a full one, whose entries stay there. */
static tl_order_fence open_leaf(place *p, spare *s, const item *what, tl_order_fence *left) {
    tl_cell cell = p->at->node[0], right = s->right[0];
    const uint8_t *leaf = tl_cell_own(p->cells, cell);
    uint32_t count = tl_node_count(leaf, cell, true);
    uint8_t *made = tl_cell_own(p->cells, right);
    tl_order_fence items[TL_LEAF_ENTRIES_MAX];
    bool is_tail = cell == p->order->tail;
    if (is_tail && what->span.start_offset > what->before_max) {
        left->end_offset_max = what->before_max; /* of all before it: none is looked for behind its start */
    } else {
        tl_leaf_read(p->cells, cell, items);
        left->end_offset_max = end_of(items, count);
    }
    tl_node_put_head(made, 0, tl_scale_behind(leaf, count, &what->span));
    s->right[0] = 0;
    put_in_leaf(p, right, 0, what);
    if (is_tail) p->order->tail = right;
    return (tl_order_fence){right, what->span.epoch, what->span.start_offset,
                            is_tail ? INT64_MAX : what->span.end_offset};
}

static tl_order_fence halve_leaf(place *p, spare *s, const item *what, tl_order_fence *left) {
    tl_cell cell = p->at->node[0], right = s->right[0], half = s->wider[0];
    uint8_t *leaf = tl_cell_own(p->cells, cell);
    uint32_t count = tl_node_count(leaf, cell, true), cut = count / 2, index = p->at->index[0];
    tl_order_fence items[TL_LEAF_ENTRIES_MAX];
    bool is_tail = cell == p->order->tail, to_left = index <= cut;
    tl_leaf_read(p->cells, cell, items);
    uint8_t *half_leaf = tl_cell_own(p->cells, half), *right_leaf = tl_cell_own(p->cells, right);
    tl_leaf_copy(half_leaf, half, leaf, cell, 0, cut);
    tl_node_rescale(half_leaf, items, cut, tl_scale_of(items, cut, 1));
    tl_leaf_copy(right_leaf, right, leaf, cell, cut, count - cut);
    tl_node_rescale(right_leaf, items + cut, count - cut, tl_scale_of(items + cut, count - cut, is_tail ? 2 : 1));
    rename_node(p, 0, half);
    if (is_tail) p->order->tail = right;
    tl_cell_give(p->cells, cell);
    s->wider[0] = s->right[0] = 0;
    left->end_offset_max = end_of(items, cut);
    tl_order_fence made = {right, items[cut].epoch, items[cut].start_offset,
                           is_tail ? INT64_MAX : end_of(items + cut, count - cut)};
    int64_t *end = to_left ? &left->end_offset_max : &made.end_offset_max;
    if (*end < what->span.end_offset) *end = what->span.end_offset;
    put_in_leaf(p, to_left ? half : right, to_left ? index : index - cut, what);
    return made;
}

/* Inserts the entry into its leaf. Returns the part that is cut off; left->end_offset_max gets the new bound of the
 * rest. */
static tl_order_fence insert_in_leaf(place *p, spare *s, const item *what, tl_order_fence *left) {
    if (s->right[0]) return s->wider[0] ? halve_leaf(p, s, what, left) : open_leaf(p, s, what, left);
    if (s->wider[0]) {
        tl_cell cell = p->at->node[0], wider = s->wider[0];
        const uint8_t *leaf = tl_cell_own(p->cells, cell);
        tl_leaf_copy(tl_cell_own(p->cells, wider), wider, leaf, cell, 0, tl_node_count(leaf, cell, true));
        rename_node(p, 0, wider);
        tl_cell_give(p->cells, cell);
        s->wider[0] = 0;
    }
    put_in_leaf(p, p->at->node[0], p->at->index[0], what);
    return (tl_order_fence){.child = 0};
}

/* A child into the branch of a level, behind the one on the path, whose bound becomes *left's; the same answer. */
static tl_order_fence insert_in_branch(place *p, spare *s, uint32_t level, tl_order_fence child, tl_order_fence *left) {
    tl_order_fence all[TL_NODE_ITEMS_MAX + 1];
    tl_cell cell = p->at->node[level];
    uint32_t count = tl_branch_read(tl_cell_own(p->cells, cell), cell, all), index = p->at->index[level] + 1;
    all[index - 1].end_offset_max = left->end_offset_max;
    for (uint32_t i = count; i > index; i--) all[i] = all[i - 1];
    all[index] = child;
    count++;
    if (s->right[level]) {
        tl_cell right = s->right[level];
        uint32_t cut = index + 1 == count ? index : count / 2;
        s->right[level] = 0;
        tl_branch_write(tl_cell_own(p->cells, cell), cell, all, cut);
        tl_branch_write(tl_cell_own(p->cells, right), right, all + cut, count - cut);
        left->end_offset_max = end_of(all, cut);
        return (tl_order_fence){right, all[cut].epoch, all[cut].start_offset, end_of(all + cut, count - cut)};
    }
    tl_cell wider = s->wider[level];
    if (wider) {
        s->wider[level] = 0;
        rename_node(p, level, wider);
        tl_cell_give(p->cells, cell);
        cell = wider;
    }
    tl_branch_write(tl_cell_own(p->cells, cell), cell, all, count);
    return (tl_order_fence){.child = 0};
}

static void insert_from_leaf(place *p, spare *s, const item *what, const tl_order_key *first) {
    uint32_t height = p->at->height;
    tl_order_fence left = {.child = 0}, right = insert_in_leaf(p, s, what, &left);
    for (uint32_t level = 1; right.child && level <= height; level++)
        right = insert_in_branch(p, s, level, right, &left);
    if (!right.child) return;
    tl_order_fence both[2] = {{p->order->root, first->epoch, first->start_offset, left.end_offset_max}, right};
    tl_branch_write(tl_cell_own(p->cells, s->root), s->root, both, 2);
    p->order->root = s->root;
    p->order->height = height + 1;
}

/* Bounds of the path: an entry whose last offset is `end` is below. */
static void raise_path(place *p, int64_t end) {
    for (uint32_t level = 1; level <= p->at->height; level++) {
        tl_cell cell = p->at->node[level];
        uint8_t *node = tl_cell_own(p->cells, cell);
        tl_order_fence fence = tl_branch_fence(node, cell, p->at->index[level]);
        if (fence.end_offset_max >= end) continue;
        fence.end_offset_max = end;
        tl_branch_put_fence(node, cell, p->at->index[level], fence);
    }
}

static tl_status begin(tl_cells *cells, tl_order *order, const item *what) {
    tl_cell leaf;
    tl_status status = tl_cell_take(cells, TL_LEAF_BYTES_MIN, &leaf);
    if (status != TL_OK) return status;
    uint8_t *node = tl_cell_own(cells, leaf);
    tl_node_put_head(node, 0, tl_scale_alone(&what->span));
    tl_leaf_insert(node, leaf, 0, what->entry, 0);
    *order = (tl_order){leaf, leaf, 0, what->span.end_offset};
    return TL_OK;
}

/* Behind all, where shorts alone say that it is, and where nothing before it reaches to it. */
static bool append(tl_cells *cells, tl_order *order, const item *what) {
    uint8_t *leaf = tl_cell_own(cells, order->tail);
    uint32_t count = tl_node_count(leaf, order->tail, true);
    tl_order_scale scale = tl_node_scale(leaf);
    uint16_t its = tl_order_short(&scale, what->span.epoch, what->span.start_offset);
    if (count == tl_node_capacity(order->tail, true) || its <= tl_node_short(leaf, count - 1)) return false;
    if (what->span.start_offset <= order->end_offset_max) return false;
    tl_cell_store16(leaf, TL_NODE_HEAD / 2 + count, its);
    tl_leaf_put_entry(leaf, order->tail, count, what->entry);
    tl_node_put_count(leaf, count + 1);
    return true;
}

void tl_order_ask_tail(const tl_cells *cells, tl_cell tail) {
    const uint8_t *leaf = tl_node_at(cells, tail);
    if (leaf) __builtin_prefetch(leaf, 1);
}

void tl_order_ask_end(const tl_cells *cells, tl_cell tail) {
    const uint8_t *leaf = tl_node_at(cells, tail);
    if (!leaf) return;
    uint32_t count = tl_node_count(leaf, tail, true);
    __builtin_prefetch(leaf + TL_NODE_HEAD + 2 * (size_t)count, 1);
    __builtin_prefetch(leaf + tl_node_items(tail, true) + 4 * (size_t)count, 1);
}

static bool key_of(const tl_cells *cells, tl_cell row_cell, uint32_t ordinal, tl_order_key *key) {
    tl_row row;
    tl_epoch_span span;
    if (!tl_row_load(cells, row_cell, &row) || !tl_row_span(cells, &row, ordinal, &span)) return false;
    *key = (tl_order_key){span.epoch, span.start_offset, {row.words[0], row.words[1]}};
    return true;
}

/* Whether the entry before or behind a place, of the same epoch, has offsets in common with the new one. The segment
 * that is being replaced does not count. */
static bool touches_neighbours(const tl_order_cursor *at, const item *what, const uint64_t id[2]) {
    tl_order_cursor moved = *at;
    tl_order_entry other;
    bool there = tl_order_previous(&moved) && tl_order_read(&moved, &other);
    if (there && other.row.words[0] == id[0] && other.row.words[1] == id[1])
        there = tl_order_previous(&moved) && tl_order_read(&moved, &other);
    if (there && other.span.epoch == what->span.epoch && other.span.end_offset >= what->span.start_offset) return true;
    moved = *at;
    there = tl_order_settle(&moved) && tl_order_read(&moved, &other);
    if (there && other.row.words[0] == id[0] && other.row.words[1] == id[1])
        there = tl_order_next(&moved) && tl_order_read(&moved, &other);
    return there && other.span.epoch == what->span.epoch && other.span.start_offset <= what->span.end_offset;
}

/* The place of a new entry: mostly the end, since segments come as a log grows. */
static void seek_place(tl_cells *cells, tl_order order, const tl_order_key *key, tl_order_cursor *at) {
    tl_order_entry last;
    bool found = tl_order_end(cells, order, at);
    assert(found);
    const uint8_t *leaf = tl_cell_own(cells, at->node[0]);
    tl_order_scale scale = tl_node_scale(leaf);
    uint16_t its = tl_order_short(&scale, key->epoch, key->start_offset), lasts = tl_node_short(leaf, at->index[0]);
    if (its > lasts || (its == lasts && tl_order_read(at, &last) && tl_order_compare(key, &last) > 0)) {
        at->index[0]++;
        return;
    }
    found = tl_order_seek(cells, order, key, at);
    assert(found), (void)found;
}

/* The key of the first entry: a bound for the root's first child, when the root gets one. */
static void first_key(const tl_cells *cells, const tl_order *order, tl_order_key *out) {
    tl_order_entry entry = {.row_cell = 0};
    if (order->height == 0) {
        const uint8_t *leaf = tl_cell_own(cells, order->root);
        tl_entry_read(cells, tl_leaf_entry(leaf, order->root, 0), &entry);
        *out = (tl_order_key){.epoch = entry.span.epoch, .start_offset = entry.span.start_offset};
        return;
    }
    tl_order_fence fence = tl_branch_fence(tl_cell_own(cells, order->root), order->root, 0);
    *out = (tl_order_key){.epoch = fence.epoch, .start_offset = fence.start_offset};
}

static tl_status insert_at_place(tl_cells *cells, tl_order *order, const item *what, const uint64_t id[2],
                                 bool *overlaps) {
    tl_order_key key = {what->span.epoch, what->span.start_offset, {id[0], id[1]}}, first = {.epoch = 0};
    tl_order_cursor at;
    spare s;
    place p = {cells, order, &at};
    seek_place(cells, *order, &key, &at);
    tl_status status = take_spare(&p, &s);
    if (status != TL_OK) return status;
    /* A segment that begins behind all others touches none, and the rows before it are not read for it. */
    bool is_last =
        at.node[0] == order->tail && at.index[0] == tl_node_count(tl_cell_own(cells, order->tail), order->tail, true);
    bool apart = is_last && what->span.start_offset > what->before_max;
    *overlaps |= !apart && touches_neighbours(&at, what, id);
    if (s.root) first_key(cells, order, &first);
    raise_path(&p, what->span.end_offset);
    insert_from_leaf(&p, &s, what, &first);
    return TL_OK;
}

tl_status tl_order_insert(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal,
                          const tl_epoch_span *span, const uint64_t id[2], uint32_t marks, bool *overlaps) {
    item what = {.span = *span, .before_max = order->end_offset_max};
    *overlaps = span->start_offset > span->end_offset;
    tl_status status = entry_of(cells, row_cell, ordinal, marks, &what.entry);
    if (status != TL_OK) return status;
    if (!order->root) {
        status = begin(cells, order, &what);
    } else if (!append(cells, order, &what)) {
        status = insert_at_place(cells, order, &what, id, overlaps);
    }
    if (status != TL_OK) {
        drop_entry(cells, what.entry);
    } else if (order->end_offset_max < span->end_offset) {
        order->end_offset_max = span->end_offset;
    }
    return status;
}

/* Nodes have gone: a root with one child goes too, the last leaf is found, and the right edge is open. */
static void settle_edge(tl_cells *cells, tl_order *order) {
    while (order->height > 0 && tl_node_count(tl_cell_own(cells, order->root), order->root, false) == 1) {
        tl_cell old = order->root;
        order->root = tl_branch_fence(tl_cell_own(cells, old), old, 0).child;
        order->height--;
        tl_cell_give(cells, old);
    }
    tl_cell cell = order->root;
    for (uint32_t level = order->height; level > 0; level--) {
        uint8_t *node = tl_cell_own(cells, cell);
        uint32_t last = tl_node_count(node, cell, false) - 1;
        tl_order_fence fence = tl_branch_fence(node, cell, last);
        fence.end_offset_max = INT64_MAX;
        tl_branch_put_fence(node, cell, last, fence);
        cell = fence.child;
    }
    order->tail = cell;
}

bool tl_order_remove(tl_cells *cells, tl_order *order, tl_cell row_cell, uint32_t ordinal) {
    tl_order_key key;
    tl_order_cursor at;
    tl_order_entry entry;
    if (!key_of(cells, row_cell, ordinal, &key) || !tl_order_lower(cells, *order, &key, &at)) return false;
    bool read = tl_order_read(&at, &entry);
    while (read && entry.row_cell != row_cell &&
           tl_order_compare(&key, &entry) == 0) /* what replaces it is there too */
        read = tl_order_next(&at) && tl_order_read(&at, &entry);
    if (!read || entry.row_cell != row_cell || entry.span.epoch != key.epoch) return false;
    tl_cell cell = at.node[0];
    uint8_t *node = tl_cell_own(cells, cell);
    drop_entry(cells, tl_leaf_entry(node, cell, at.index[0]));
    tl_leaf_take_out(node, cell, at.index[0]);
    if (tl_node_count(node, cell, true)) return true;
    for (uint32_t level = 0;; level++) {
        tl_cell_give(cells, at.node[level]);
        if (level == at.height) {
            *order = TL_ORDER_EMPTY;
            return true;
        }
        tl_order_fence all[TL_NODE_ITEMS_MAX];
        cell = at.node[level + 1];
        node = tl_cell_own(cells, cell);
        uint32_t count = tl_branch_read(node, cell, all);
        for (uint32_t i = at.index[level + 1]; i + 1 < count; i++) all[i] = all[i + 1];
        tl_branch_write(node, cell, all, count - 1);
        if (count > 1) break;
    }
    settle_edge(cells, order);
    return true;
}

void tl_order_mark(const tl_order_cursor *cursor, uint32_t marks) {
    tl_cell cell = cursor->node[0];
    uint8_t *leaf = tl_cell_own(cursor->cells, cell);
    uint32_t entry = tl_leaf_entry(leaf, cell, cursor->index[0]);
    tl_leaf_put_entry(leaf, cell, cursor->index[0], (entry & ~TL_ENTRY_MARKS) | marks);
}

static void clear_below(tl_cells *cells, tl_cell cell, uint32_t height) {
    const uint8_t *node = tl_cell_own(cells, cell);
    uint32_t count = tl_node_count(node, cell, height == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (height) {
            clear_below(cells, tl_branch_fence(node, cell, i).child, height - 1);
        } else {
            drop_entry(cells, tl_leaf_entry(node, cell, i));
        }
    }
    tl_cell_give(cells, cell);
}

void tl_order_clear(tl_cells *cells, tl_order *order) {
    if (order->root) clear_below(cells, order->root, order->height);
    *order = TL_ORDER_EMPTY;
}
