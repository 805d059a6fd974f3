/* Items into nodes and out of them, and the scales of their shorts. */
#include "table/segment_order_nodes.h"

#include <assert.h>

enum { EPOCH_BITS_MAX = 12 };

static uint32_t bits_of(uint64_t number) { return number ? 64 - (uint32_t)__builtin_clzll(number) : 0; }

static tl_order_scale scale_for(int32_t epoch, int64_t offset, uint64_t epochs, uint64_t offsets) {
    uint32_t epoch_bits = bits_of(epochs), offset_bits = bits_of(offsets);
    if (epoch_bits > EPOCH_BITS_MAX) epoch_bits = EPOCH_BITS_MAX;
    uint32_t room = 16 - epoch_bits;
    return (tl_order_scale){epoch_bits, offset_bits > room ? offset_bits - room : 0, epoch, offset};
}

tl_order_scale tl_scale_of(const tl_order_fence *items, uint32_t count, uint32_t ahead) {
    int64_t least = items[0].start_offset, most = least;
    for (uint32_t i = 1; i < count; i++) {
        if (items[i].start_offset < least) least = items[i].start_offset;
        if (items[i].start_offset > most) most = items[i].start_offset;
    }
    uint64_t epochs = (uint32_t)items[count - 1].epoch - (uint32_t)items[0].epoch;
    uint64_t offsets = (uint64_t)most - (uint64_t)least;
    offsets = offsets > UINT64_MAX / ahead ? UINT64_MAX : offsets * ahead;
    return scale_for(items[0].epoch, least, epochs * ahead, offsets);
}

tl_order_scale tl_scale_alone(const tl_epoch_span *span) {
    uint64_t length = span->end_offset > span->start_offset ? (uint64_t)(span->end_offset - span->start_offset) : 1;
    return scale_for(span->epoch, span->start_offset, 15, length > UINT64_MAX / 64 ? UINT64_MAX : length * 64);
}

tl_order_scale tl_scale_behind(const uint8_t *leaf, uint32_t count, const tl_epoch_span *span) {
    tl_order_scale scale = tl_node_scale(leaf);
    uint32_t offset_bits = 16 - scale.epoch_bits, last = tl_node_short(leaf, count - 1);
    uint64_t distance = last & ((1u << offset_bits) - 1);
    uint64_t offsets = distance << scale.shift >> scale.shift == distance ? distance << scale.shift : UINT64_MAX / 2;
    return scale_for(span->epoch, span->start_offset, 2 * (uint64_t)(last >> offset_bits),
                     offsets > UINT64_MAX / 2 ? UINT64_MAX : 2 * offsets);
}

void tl_node_put_head(uint8_t *node, uint32_t count, tl_order_scale scale) {
    tl_cell_store(node, 0, count | scale.epoch_bits << 16 | scale.shift << 24 | (uint64_t)(uint32_t)scale.epoch << 32);
    tl_cell_store(node, 1, (uint64_t)scale.offset);
}

void tl_node_put_count(uint8_t *node, uint32_t count) {
    tl_cell_store(node, 0, (tl_cell_load(node, 0) & ~(uint64_t)0xffff) | count);
}

void tl_leaf_read(const tl_cells *cells, tl_cell cell, tl_order_fence *out) {
    const uint8_t *leaf = tl_cell_own(cells, cell);
    uint32_t count = tl_node_count(leaf, cell, true), ordinal;
    tl_cell rows[TL_LEAF_ENTRIES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        tl_entry_row(cells, tl_leaf_entry(leaf, cell, i), &rows[i], &ordinal);
        tl_row_ask(cells, rows[i]);
    }
    for (uint32_t i = 0; i < count; i++) tl_row_ask_more(cells, rows[i]);
    for (uint32_t i = 0; i < count; i++) {
        tl_order_entry entry;
        bool read = tl_entry_read(cells, tl_leaf_entry(leaf, cell, i), &entry);
        assert(read), (void)read;
        out[i] = (tl_order_fence){0, entry.span.epoch, entry.span.start_offset, entry.span.end_offset};
    }
}

void tl_node_rescale(uint8_t *node, const tl_order_fence *items, uint32_t count, tl_order_scale scale) {
    tl_node_put_head(node, count, scale);
    for (uint32_t i = 0; i < count; i++)
        tl_cell_store16(node, TL_NODE_HEAD / 2 + i, tl_order_short(&scale, items[i].epoch, items[i].start_offset));
}

void tl_leaf_rescale(const tl_cells *cells, tl_cell cell, uint32_t ahead) {
    tl_order_fence items[TL_LEAF_ENTRIES_MAX];
    uint8_t *leaf = tl_cell_own(cells, cell);
    uint32_t count = tl_node_count(leaf, cell, true);
    tl_leaf_read(cells, cell, items);
    tl_node_rescale(leaf, items, count, tl_scale_of(items, count, ahead));
}

void tl_leaf_put_entry(uint8_t *leaf, tl_cell cell, uint32_t index, uint32_t entry) {
    tl_cell_store32(leaf, tl_node_items(cell, true) / 4 + index, entry);
}

void tl_branch_put_fence(uint8_t *node, tl_cell cell, uint32_t index, tl_order_fence fence) {
    size_t word = tl_node_items(cell, false) / 8 + 3 * (size_t)index;
    tl_cell_store(node, word, fence.child | (uint64_t)(uint32_t)fence.epoch << 32);
    tl_cell_store(node, word + 1, (uint64_t)fence.start_offset);
    tl_cell_store(node, word + 2, (uint64_t)fence.end_offset_max);
}

uint32_t tl_branch_read(const uint8_t *node, tl_cell cell, tl_order_fence *out) {
    uint32_t count = tl_node_count(node, cell, false);
    for (uint32_t i = 0; i < count; i++) out[i] = tl_branch_fence(node, cell, i);
    return count;
}

void tl_branch_write(uint8_t *node, tl_cell cell, const tl_order_fence *fences, uint32_t count) {
    if (count) {
        tl_node_rescale(node, fences, count, tl_scale_of(fences, count, 1));
    } else {
        tl_node_put_count(node, 0);
    }
    for (uint32_t i = 0; i < count; i++) tl_branch_put_fence(node, cell, i, fences[i]);
}

void tl_leaf_copy(uint8_t *to, tl_cell to_cell, const uint8_t *from, tl_cell from_cell, uint32_t first,
                  uint32_t count) {
    tl_node_put_head(to, count, tl_node_scale(from));
    for (uint32_t i = 0; i < count; i++) {
        tl_cell_store16(to, TL_NODE_HEAD / 2 + i, tl_node_short(from, first + i));
        tl_leaf_put_entry(to, to_cell, i, tl_leaf_entry(from, from_cell, first + i));
    }
}

void tl_leaf_insert(uint8_t *leaf, tl_cell cell, uint32_t index, uint32_t entry, uint16_t key_short) {
    uint32_t count = tl_node_count(leaf, cell, true);
    for (uint32_t i = count; i > index; i--) {
        tl_cell_store16(leaf, TL_NODE_HEAD / 2 + i, tl_node_short(leaf, i - 1));
        tl_leaf_put_entry(leaf, cell, i, tl_leaf_entry(leaf, cell, i - 1));
    }
    tl_cell_store16(leaf, TL_NODE_HEAD / 2 + index, key_short);
    tl_leaf_put_entry(leaf, cell, index, entry);
    tl_node_put_count(leaf, count + 1);
}

void tl_leaf_take_out(uint8_t *leaf, tl_cell cell, uint32_t index) {
    uint32_t count = tl_node_count(leaf, cell, true);
    for (uint32_t i = index; i + 1 < count; i++) {
        tl_cell_store16(leaf, TL_NODE_HEAD / 2 + i, tl_node_short(leaf, i + 1));
        tl_leaf_put_entry(leaf, cell, i, tl_leaf_entry(leaf, cell, i + 1));
    }
    tl_node_put_count(leaf, count - 1);
}
