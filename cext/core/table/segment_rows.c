/* Rows: segments in words, there and back. */
#include "table/segment_rows.h"

#include <string.h>

enum { WIDE_HEAD_WORDS = 3, MAX_TIMESTAMP_BITS = 48 };

/* A word of the second cell; 0 where a name or a number no longer fits. */
static uint64_t more(const tl_cells *cells, const tl_row *row, size_t index) {
    tl_cell cell = tl_row_more(row);
    const uint8_t *at = tl_cell_at(cells, cell);
    if (!at || (index + 1) * 8 > tl_cell_size(cell)) return 0;
    return tl_cell_load(at, index);
}

static size_t head_words(const tl_row *row) { return (tl_row_flags(row) & TL_ROW_CUSTOM) != 0; }

int64_t tl_row_end(const tl_cells *cells, const tl_row *row) {
    if (tl_row_flags(row) & TL_ROW_WIDE) return (int64_t)more(cells, row, head_words(row));
    return (int64_t)(row->words[2] + (uint32_t)row->words[5]);
}

int64_t tl_row_max_timestamp(const tl_cells *cells, const tl_row *row) {
    if (tl_row_flags(row) & TL_ROW_WIDE) return (int64_t)more(cells, row, head_words(row) + 1);
    return (int64_t)row->words[4] >> (64 - MAX_TIMESTAMP_BITS);
}

uint32_t tl_row_epoch_count(const tl_cells *cells, const tl_row *row) {
    if (tl_row_flags(row) & TL_ROW_WIDE) return (uint32_t)more(cells, row, head_words(row) + 2);
    return (uint32_t)(row->words[4] >> TL_ROW_EPOCHS_SHIFT) & TL_ROW_EPOCHS_MAX;
}

static tl_segment_epoch epoch_at(const tl_cells *cells, const tl_row *row, uint32_t ordinal) {
    size_t head = head_words(row);
    if (tl_row_flags(row) & TL_ROW_WIDE) {
        size_t index = head + WIDE_HEAD_WORDS + 2 * (size_t)ordinal;
        return (tl_segment_epoch){(int32_t)more(cells, row, index), (int64_t)more(cells, row, index + 1)};
    }
    if (ordinal == 0) return (tl_segment_epoch){(int32_t)(row->words[6] >> 32), tl_row_start(row)};
    uint64_t word = more(cells, row, head + ordinal - 1);
    return (tl_segment_epoch){(int32_t)(word >> 32), (int64_t)(row->words[2] + (uint32_t)word)};
}

bool tl_row_span(const tl_cells *cells, const tl_row *row, uint32_t ordinal, tl_epoch_span *out) {
    uint32_t count = tl_row_epoch_count(cells, row);
    if (ordinal >= count) return false;
    tl_segment_epoch epoch = epoch_at(cells, row, ordinal);
    out->epoch = epoch.epoch;
    out->start_offset = epoch.start_offset;
    out->end_offset = ordinal + 1 < count ? epoch_at(cells, row, ordinal + 1).start_offset - 1 : tl_row_end(cells, row);
    return true;
}

static bool fits_narrow(const tl_segment *segment) {
    const int64_t most = (int64_t)1 << (MAX_TIMESTAMP_BITS - 1);
    if (segment->end_offset - segment->start_offset > UINT32_MAX) return false;
    if (segment->max_timestamp_ms >= most || segment->max_timestamp_ms < -most) return false;
    if (segment->epoch_count > TL_ROW_EPOCHS_MAX || segment->epochs[0].start_offset != segment->start_offset)
        return false;
    for (size_t i = 1; i < segment->epoch_count; i++) {
        int64_t start = segment->epochs[i].start_offset;
        if (start < segment->start_offset || start - segment->start_offset > UINT32_MAX) return false;
    }
    return true;
}

static tl_status make_custom(tl_cells *cells, const uint8_t *custom, int64_t size, uint64_t *word) {
    tl_cell cell = 0;
    if (size > TL_CELL_BYTES_MAX) return TL_OVER_LIMIT;
    if (size > 0) {
        tl_status status = tl_cell_take(cells, (size_t)size, &cell);
        if (status != TL_OK) return status;
        uint8_t *at = tl_cell_own(cells, cell);
        for (size_t i = 0; i * 8 < (size_t)size; i++) {
            uint64_t bytes = 0;
            memcpy(&bytes, custom + i * 8, (size_t)size - i * 8 < 8 ? (size_t)size - i * 8 : 8);
            tl_cell_store(at, i, bytes);
        }
    }
    *word = cell | (uint64_t)size << 32;
    return TL_OK;
}

static void drop_custom(tl_cells *cells, const tl_row *row) {
    if (!(tl_row_flags(row) & TL_ROW_CUSTOM)) return;
    tl_cell cell = (tl_cell)more(cells, row, 0);
    if (cell) tl_cell_give(cells, cell);
}

tl_status tl_row_make(tl_cells *cells, tl_cell partition, const tl_segment *segment, tl_cell *out) {
    bool wide = !fits_narrow(segment), custom = segment->custom_size >= 0;
    size_t count = segment->epoch_count;
    size_t more_words = custom + (wide ? WIDE_HEAD_WORDS + 2 * count : count - 1);
    uint64_t custom_word = 0;
    tl_cell row_cell = 0, more_cell = 0;
    tl_status status = custom ? make_custom(cells, segment->custom, segment->custom_size, &custom_word) : TL_OK;
    if (status == TL_OK && more_words) status = tl_cell_take(cells, more_words * 8, &more_cell);
    if (status == TL_OK) status = tl_cell_take_in(cells, TL_ROW_CLASS, &row_cell);
    if (status != TL_OK) {
        if (more_cell) tl_cell_give(cells, more_cell);
        if ((tl_cell)custom_word) tl_cell_give(cells, (tl_cell)custom_word);
        return status;
    }
    uint8_t *at = more_cell ? tl_cell_own(cells, more_cell) : NULL;
    size_t next = 0;
    if (custom) tl_cell_store(at, next++, custom_word);
    if (wide) {
        tl_cell_store(at, next++, (uint64_t)segment->end_offset);
        tl_cell_store(at, next++, (uint64_t)segment->max_timestamp_ms);
        tl_cell_store(at, next++, count);
    }
    for (size_t i = wide ? 0 : 1; i < count; i++) {
        uint64_t epoch = (uint32_t)segment->epochs[i].epoch, start = (uint64_t)segment->epochs[i].start_offset;
        if (wide) {
            tl_cell_store(at, next++, epoch);
            tl_cell_store(at, next++, start);
        } else {
            tl_cell_store(at, next++, epoch << 32 | (uint32_t)(start - (uint64_t)segment->start_offset));
        }
    }
    unsigned flags = segment->state | (segment->txn_index_empty ? TL_ROW_TXN_EMPTY : 0u) |
                     (custom ? TL_ROW_CUSTOM : 0u) | (wide ? TL_ROW_WIDE : 0u) |
                     (segment->state == TL_COPY_FINISHED ? TL_ROW_WAS_FINISHED : 0u);
    uint64_t ids[2];
    memcpy(ids, segment->id, 16);
    uint8_t *row = tl_cell_own(cells, row_cell);
    uint64_t delta = wide ? 0 : (uint64_t)(segment->end_offset - segment->start_offset);
    tl_cell_store(row, 0, ids[0]);
    tl_cell_store(row, 1, ids[1]);
    tl_cell_store(row, 2, (uint64_t)segment->start_offset);
    tl_cell_store(row, 3, (uint64_t)segment->event_timestamp_ms);
    tl_cell_store(row, 4,
                  (wide ? 0 : (uint64_t)segment->max_timestamp_ms << (64 - MAX_TIMESTAMP_BITS)) |
                      (wide ? 0 : (uint64_t)count << TL_ROW_EPOCHS_SHIFT) | flags);
    tl_cell_store(row, 5, delta | (uint64_t)(uint32_t)segment->size_bytes << 32);
    tl_cell_store(row, 6, (uint32_t)segment->broker_id | (uint64_t)(uint32_t)segment->epochs[0].epoch << 32);
    tl_cell_store(row, 7, partition | (uint64_t)more_cell << 32);
    *out = row_cell;
    return TL_OK;
}

/* The second cell with or without a first word of custom metadata, the other words moved along. */
static tl_status change_custom(tl_cells *cells, tl_row *row, const tl_segment_change *change) {
    bool had = (tl_row_flags(row) & TL_ROW_CUSTOM) != 0, has = change->custom_size >= 0;
    if (!had && !has) return TL_OK;
    uint32_t count = tl_row_epoch_count(cells, row);
    size_t others = tl_row_flags(row) & TL_ROW_WIDE ? WIDE_HEAD_WORDS + 2 * (size_t)count : count - 1;
    uint64_t word = 0;
    tl_cell made = 0, old = tl_row_more(row);
    tl_status status = has ? make_custom(cells, change->custom, change->custom_size, &word) : TL_OK;
    if (status == TL_OK && has + others) status = tl_cell_take(cells, (has + others) * 8, &made);
    if (status != TL_OK) {
        if ((tl_cell)word) tl_cell_give(cells, (tl_cell)word);
        return status;
    }
    uint8_t *at = made ? tl_cell_own(cells, made) : NULL;
    if (has) tl_cell_store(at, 0, word);
    for (size_t i = 0; i < others; i++) tl_cell_store(at, has + i, more(cells, row, had + i));
    drop_custom(cells, row);
    if (old) tl_cell_give(cells, old);
    row->words[7] = (uint32_t)row->words[7] | (uint64_t)made << 32;
    row->words[4] = has ? row->words[4] | TL_ROW_CUSTOM : row->words[4] & ~(uint64_t)TL_ROW_CUSTOM;
    return TL_OK;
}

tl_status tl_row_change(tl_cells *cells, tl_cell cell, const tl_segment_change *change) {
    tl_row row;
    if (!tl_row_load(cells, cell, &row)) return TL_BAD_ARGUMENT;
    tl_status status = change_custom(cells, &row, change);
    if (status != TL_OK) return status;
    row.words[4] = (row.words[4] & ~(uint64_t)TL_ROW_STATE) | change->state;
    if (change->state == TL_COPY_FINISHED) row.words[4] |= TL_ROW_WAS_FINISHED;
    row.words[3] = (uint64_t)change->event_timestamp_ms;
    row.words[6] = (row.words[6] & ~(uint64_t)UINT32_MAX) | (uint32_t)change->broker_id;
    uint8_t *at = tl_cell_own(cells, cell);
    for (size_t i = 3; i < TL_ROW_WORDS; i++) tl_cell_store(at, i, row.words[i]);
    return TL_OK;
}

void tl_row_drop(tl_cells *cells, tl_cell cell) {
    tl_row row;
    if (!tl_row_load(cells, cell, &row)) return;
    drop_custom(cells, &row);
    if (tl_row_more(&row)) tl_cell_give(cells, tl_row_more(&row));
    tl_cell_store(tl_cell_own(cells, cell), 7, 0);
    tl_cell_give(cells, cell);
}
