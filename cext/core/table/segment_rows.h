/* One tiered segment in 64 bytes, and what does not fit there in a second cell. Internal to the segment table.
 *
 * Words of a row:   0, 1  segment id
 *                   2     start offset
 *                   3     event time
 *                   4     max timestamp (48 bits) | epoch count (10) | TL_ROW_* flags (6)
 *                   5     end offset - start offset | size in bytes << 32
 *                   6     broker | first leader epoch << 32
 *                   7     partition's cell | cell of more words << 32
 * More words:       custom metadata's cell | its size << 32, where there is one; then one word an epoch after the
 *                   first: start offset - segment's start offset | epoch << 32.
 * A wide row (a number that does not fit above, or a first epoch that does not begin with the segment) has there,
 * behind the custom metadata: end offset, max timestamp, epoch count, then two words an epoch: epoch, start offset. */
#ifndef TIERLOG_SEGMENT_ROWS_H
#define TIERLOG_SEGMENT_ROWS_H

#include "table/cells.h"
#include "tierlog/segment_table.h"

enum {
    TL_ROW_WORDS = 8,
    TL_ROW_CLASS = 3, /* cells of 64 bytes */
    TL_ROW_STATE = 3, /* two bits: the KIP's numbers */
    TL_ROW_TXN_EMPTY = 1 << 2,
    TL_ROW_CUSTOM = 1 << 3,
    TL_ROW_WIDE = 1 << 4,
    TL_ROW_WAS_FINISHED = 1 << 5, /* it was readable once: it counts for the highest offset of its epochs */
    TL_ROW_EPOCHS_SHIFT = 6,
    TL_ROW_EPOCHS_MAX = 1023,
};

/* A row as it was when it was loaded. */
typedef struct tl_row {
    uint64_t words[TL_ROW_WORDS];
} tl_row;

/* The part of a segment that one leader epoch wrote; both offsets inclusive. */
typedef struct tl_epoch_span {
    int32_t epoch;
    int64_t start_offset, end_offset;
} tl_epoch_span;

static inline unsigned tl_row_flags(const tl_row *row) { return (unsigned)row->words[4] & 63u; }
static inline unsigned tl_row_state(const tl_row *row) { return (unsigned)row->words[4] & TL_ROW_STATE; }
static inline int64_t tl_row_start(const tl_row *row) { return (int64_t)row->words[2]; }
static inline tl_cell tl_row_partition(const tl_row *row) { return (tl_cell)row->words[7]; }
static inline tl_cell tl_row_more(const tl_row *row) { return (tl_cell)(row->words[7] >> 32); }
/* Ask for a row's line; for that of its further words, once the row is there. */
static inline void tl_row_ask(const tl_cells *cells, tl_cell cell) {
    const uint8_t *row = tl_cell_at(cells, cell);
    if (row) __builtin_prefetch(row, 1);
}
static inline void tl_row_ask_more(const tl_cells *cells, tl_cell cell) {
    const uint8_t *row = tl_cell_at(cells, cell);
    const uint8_t *more = row ? tl_cell_at(cells, (tl_cell)(tl_cell_load(row, 7) >> 32)) : NULL;
    if (more) __builtin_prefetch(more);
}
static inline int32_t tl_row_size_bytes(const tl_row *row) { return (int32_t)(row->words[5] >> 32); }

/* False if no row has that name. */
static inline bool tl_row_load(const tl_cells *cells, tl_cell cell, tl_row *out) {
    const uint8_t *at = tl_cell_at(cells, cell);
    if (!at || tl_cell_class_of(cell) != TL_ROW_CLASS) return false;
    for (size_t i = 0; i < TL_ROW_WORDS; i++) out->words[i] = tl_cell_load(at, i);
    return true;
}
int64_t tl_row_end(const tl_cells *cells, const tl_row *row);
int64_t tl_row_max_timestamp(const tl_cells *cells, const tl_row *row);
uint32_t tl_row_epoch_count(const tl_cells *cells, const tl_row *row);
/* The epochs ascend with `ordinal`; false beyond the last one, or where the words were changed meanwhile. */
bool tl_row_span(const tl_cells *cells, const tl_row *row, uint32_t ordinal, tl_epoch_span *out);

/* The writer's. A row of a segment; its epochs must ascend, and be at least one. TL_NO_MEMORY, TL_OVER_LIMIT. */
tl_status tl_row_make(tl_cells *cells, tl_cell partition, const tl_segment *segment, tl_cell *out);
/* Other state, broker, time and custom metadata. */
tl_status tl_row_change(tl_cells *cells, tl_cell cell, const tl_segment_change *change);
/* Clears a row, so that its bytes name no partition: a reader that still has its name finds no segment. */
void tl_row_drop(tl_cells *cells, tl_cell cell);

#endif
