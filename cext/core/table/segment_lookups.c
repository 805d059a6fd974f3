/* Many lookups at once. Each is a chain of reads that wait for one another; here some go side by side, a step of
 * each in turn, and a step ends by prefetching the next one's reads. An unusual case is looked up alone. */
#include "table/segment_order_parts.h"
#include "table/segment_table_parts.h"

enum { AHEAD = 32, CACHE_LINE = 64 };

typedef struct lookup {
    const uint8_t *partition; /* NULL: to be looked up alone */
    uint64_t sequence, hash;
    tl_cell node, row_cell;
    uint32_t level, index, entry, ordinal;
} lookup;

typedef struct group {
    const tl_segment_table *table;
    const tl_segment_question *questions;
    size_t count;
    bool highest; /* the last offset of the epoch is looked for, else that of the question */
    lookup of[AHEAD];
} group;

static int64_t offset_of(const group *g, size_t i) { return g->highest ? INT64_MAX : g->questions[i].offset; }

/* A node's head and shorts; the usual ones end in its third line. */
static void ask_node(const tl_cells *cells, tl_cell cell, bool is_leaf) {
    const uint8_t *node = tl_node_at(cells, cell);
    if (!node) return;
    __builtin_prefetch(node);
    __builtin_prefetch(node + CACHE_LINE);
    if (!is_leaf) __builtin_prefetch(node + 2 * CACHE_LINE);
}

static void ask_partitions(group *g) {
    const tl_segment_table *table = g->table;
    for (size_t i = 0; i < g->count; i++) {
        g->of[i].hash = tl_partition_hash(&table->partitions, &g->questions[i].partition);
        tl_partition_ask_slot(&table->partitions, table->cells, g->of[i].hash);
    }
    for (size_t i = 0; i < g->count; i++) {
        tl_cell cell = tl_partition_guess(&table->partitions, table->cells, g->of[i].hash);
        g->of[i].partition = cell ? tl_cell_at(table->cells, cell) : NULL;
        if (g->of[i].partition) __builtin_prefetch(g->of[i].partition);
    }
}

/* Returns the height of the highest order. */
static uint32_t ask_roots(group *g) {
    uint32_t highest = 0;
    for (size_t i = 0; i < g->count; i++) {
        lookup *l = &g->of[i];
        if (!l->partition) continue;
        l->sequence = tl_cell_load(l->partition, 6);
        tl_order order = tl_partition_order(l->partition);
        bool usual = !(l->sequence & 1) && tl_partition_is(l->partition, &g->questions[i].partition) &&
                     !tl_partition_overlaps(l->partition) && order.root && order.height <= TL_ORDER_HEIGHT_MAX &&
                     !(g->highest && tl_cell_load(l->partition, 5));
        if (!usual) {
            l->partition = NULL;
            continue;
        }
        l->node = order.root;
        l->level = order.height;
        if (order.height > highest) highest = order.height;
        ask_node(g->table->cells, l->node, order.height == 0);
    }
    return highest;
}

/* One level down, for those that are at this one. */
static void descend(group *g, uint32_t level) {
    const tl_cells *cells = g->table->cells;
    for (size_t i = 0; i < g->count; i++) {
        lookup *l = &g->of[i];
        if (!l->partition || l->level != level) continue;
        const uint8_t *node = tl_node_at(cells, l->node);
        uint32_t count = node ? tl_node_count(node, l->node, false) : 0;
        if (!count) {
            l->partition = NULL;
            continue;
        }
        l->index = tl_branch_child(node, l->node, count, g->questions[i].epoch, offset_of(g, i), true);
        __builtin_prefetch(node + tl_node_items(l->node, false) + 24 * (size_t)l->index);
    }
    for (size_t i = 0; i < g->count; i++) {
        lookup *l = &g->of[i];
        if (!l->partition || l->level != level) continue;
        l->node = tl_branch_fence(tl_node_at(cells, l->node), l->node, l->index).child;
        l->level--;
        ask_node(cells, l->node, l->level == 0);
    }
}

static void ask_rows(group *g) {
    const tl_cells *cells = g->table->cells;
    for (size_t i = 0; i < g->count; i++) {
        lookup *l = &g->of[i];
        const uint8_t *leaf = l->partition ? tl_node_at(cells, l->node) : NULL;
        if (!leaf) {
            l->partition = NULL;
            continue;
        }
        tl_order_scale scale = tl_node_scale(leaf);
        l->index = tl_node_upto(leaf, tl_node_count(leaf, l->node, true),
                                tl_order_short(&scale, g->questions[i].epoch, offset_of(g, i)));
        if (!l->index) {
            l->partition = NULL; /* it is in the leaf before, or nowhere */
            continue;
        }
        __builtin_prefetch(leaf + tl_node_items(l->node, true) + 4 * (size_t)(l->index - 1));
    }
    for (size_t i = 0; i < g->count; i++) {
        lookup *l = &g->of[i];
        if (!l->partition) continue;
        l->entry = tl_leaf_entry(tl_node_at(cells, l->node), l->node, l->index - 1);
        if (tl_entry_row(cells, l->entry, &l->row_cell, &l->ordinal)) {
            tl_row_ask(cells, l->row_cell);
        } else {
            l->partition = NULL;
        }
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->of[i].partition) tl_row_ask_more(cells, g->of[i].row_cell);
}

/* The last entry at or before the wanted one; false: to be looked up alone. */
static bool read_entry(const group *g, size_t i, tl_row *row, tl_epoch_span *span) {
    const lookup *l = &g->of[i];
    const tl_segment_question *q = &g->questions[i];
    if (!l->partition || !tl_row_load(g->table->cells, l->row_cell, row) ||
        !tl_row_span(g->table->cells, row, l->ordinal, span))
        return false;
    /* It can lie behind where shorts are the same. */
    return span->epoch != q->epoch ? span->epoch < q->epoch : span->start_offset <= offset_of(g, i);
}

static bool holds(const lookup *l) { return tl_cell_load(l->partition, 6) == l->sequence; }

static void step_through(group *g) {
    ask_partitions(g);
    for (uint32_t level = ask_roots(g); level > 0; level--) descend(g, level);
    ask_rows(g);
}

void tl_segment_table_find_many(const tl_segment_table *table, const tl_segment_question *questions, size_t count,
                                tl_segment_copy *out, uint8_t *found) {
    group g = {.table = table};
    for (size_t at = 0; at < count; at += g.count) {
        g.questions = questions + at;
        g.count = count - at < AHEAD ? count - at : AHEAD;
        if (g.count > 1 && !table->as_kafka) step_through(&g);
        for (size_t i = 0; i < g.count; i++) {
            const tl_segment_question *q = &g.questions[i];
            tl_segment_copy *copy = &out[at + i];
            tl_row row;
            tl_epoch_span span;
            bool is_there = false;
            if (g.count > 1 && !table->as_kafka && read_entry(&g, i, &row, &span)) {
                is_there =
                    span.epoch == q->epoch && span.end_offset >= q->offset && tl_row_state(&row) == TL_COPY_FINISHED;
                if (is_there) tl_row_copy(table->cells, &row, NULL, copy);
                if (holds(&g.of[i])) {
                    found[at + i] = is_there;
                    continue;
                }
            }
            tl_status status = tl_segment_table_find(table, &q->partition, q->epoch, q->offset, NULL, copy, &is_there);
            found[at + i] = status == TL_OK && is_there;
        }
    }
}

void tl_segment_table_highest_many(const tl_segment_table *table, const tl_segment_question *questions, size_t count,
                                   int64_t *out) {
    group g = {.table = table, .highest = true};
    for (size_t at = 0; at < count; at += g.count) {
        g.questions = questions + at;
        g.count = count - at < AHEAD ? count - at : AHEAD;
        if (g.count > 1) step_through(&g);
        for (size_t i = 0; i < g.count; i++) {
            const tl_segment_question *q = &g.questions[i];
            tl_row row;
            tl_epoch_span span;
            bool known = g.count > 1 && read_entry(&g, i, &row, &span);
            if (known && span.epoch == q->epoch) known = (tl_row_flags(&row) & TL_ROW_WAS_FINISHED) != 0;
            out[at + i] = known && span.epoch == q->epoch ? span.end_offset : -1;
            if (!known || !holds(&g.of[i])) out[at + i] = tl_segment_table_highest(table, &q->partition, q->epoch);
        }
    }
}
