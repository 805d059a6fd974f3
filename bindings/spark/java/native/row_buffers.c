#include "row_buffers.h"

#include <string.h>

enum { FIRST_ROWS = 4096, FIRST_HEADERS = 64, FIRST_BYTES = 1 << 18, LEAST_ROWS = 64, LEAST_BYTES = 4096 };
/* A block that one giant record made is given back when far less is wanted. */
enum { HOARD_MIN = 4 << 20, HOARD_FACTOR = 4 };

static size_t bits(int64_t rows) { return (size_t)(rows + 7) / 8; }

static int64_t at_least(int64_t value, int64_t least) { return value > least ? value : least; }

static bool wants(const tlj_row_buffers *buffers, uint32_t column) { return buffers->columns.want & column; }

void tlj_row_buffers_open(tlj_row_buffers *buffers, tlj_budget *budget, uint32_t want, int64_t target_bytes) {
    memset(buffers, 0, sizeof *buffers);
    buffers->columns.struct_size = sizeof buffers->columns;
    buffers->columns.want = want;
    buffers->budget = budget;
    buffers->target_bytes = target_bytes;
    buffers->next_rows = FIRST_ROWS;
    buffers->next_headers = FIRST_HEADERS;
    buffers->key.next_bytes = buffers->value.next_bytes = FIRST_BYTES;
    buffers->header_key.next_bytes = buffers->header_value.next_bytes = FIRST_BYTES;
    for (uint32_t column = 1; column <= want; column <<= 1) {
        bool wide = column == TL_COLUMN_OFFSET || column == TL_COLUMN_TIMESTAMP;
        if (want & column) buffers->row_bytes += wide ? 8 : 4;
    }
}

static void close_binary(tlj_budget *budget, tlj_binary_buffers *binary) {
    tlj_release(budget, &binary->offsets);
    tlj_release(budget, &binary->data);
    tlj_release(budget, &binary->validity);
}

void tlj_row_buffers_close(tlj_row_buffers *buffers) {
    tlj_binary_buffers *binaries[] = {&buffers->key, &buffers->value, &buffers->header_key, &buffers->header_value};
    tlj_block *blocks[] = {&buffers->offset,       &buffers->timestamp,      &buffers->timestamp_type,
                           &buffers->leader_epoch, &buffers->header_offsets, &buffers->header_validity};
    for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++) close_binary(buffers->budget, binaries[i]);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tlj_release(buffers->budget, blocks[i]);
}

/* ---- sizes by rows -------------------------------------------------------------------------------------------------
 */

/* Bits for rows that were not there before are set, as the reset does it. Bits past the old rows in their last byte
 * have been set by it: it sets whole bytes. */
static tl_status reserve_bits(tlj_budget *budget, tlj_block *block, int64_t old_rows, int64_t rows) {
    tl_status status = tlj_reserve(budget, block, bits(rows), bits(old_rows));
    if (status == TL_OK) memset(block->data + bits(old_rows), 0xff, bits(rows) - bits(old_rows));
    return status;
}

static tl_status reserve_entries(tlj_row_buffers *buffers, tlj_binary_buffers *binary, tl_binary *out, bool nullable,
                                 int64_t old, int64_t rows) {
    size_t keep = old ? (size_t)(old + 1) * sizeof(int32_t) : 0;
    tl_status status = tlj_reserve(buffers->budget, &binary->offsets, (size_t)(rows + 1) * sizeof(int32_t), keep);
    if (status == TL_OK && nullable) status = reserve_bits(buffers->budget, &binary->validity, old, rows);
    out->offsets = (int32_t *)(void *)binary->offsets.data;
    out->validity = binary->validity.data;
    return status;
}

/* Arrays for `rows` rows, of which the first `old` are kept; 0: a fresh batch. */
static tl_status reserve_rows(tlj_row_buffers *buffers, int64_t old, int64_t rows) {
    tl_columns *c = &buffers->columns;
    tlj_budget *budget = buffers->budget;
    size_t from = (size_t)old, to = (size_t)rows;
    tl_status status = TL_OK;
    if (wants(buffers, TL_COLUMN_KEY)) status = reserve_entries(buffers, &buffers->key, &c->key, true, old, rows);
    if (status == TL_OK && wants(buffers, TL_COLUMN_VALUE))
        status = reserve_entries(buffers, &buffers->value, &c->value, true, old, rows);
    if (status == TL_OK && wants(buffers, TL_COLUMN_OFFSET))
        status = tlj_reserve(budget, &buffers->offset, 8 * to, 8 * from);
    if (status == TL_OK && wants(buffers, TL_COLUMN_TIMESTAMP))
        status = tlj_reserve(budget, &buffers->timestamp, 8 * to, 8 * from);
    if (status == TL_OK && wants(buffers, TL_COLUMN_TIMESTAMP_TYPE))
        status = tlj_reserve(budget, &buffers->timestamp_type, 4 * to, 4 * from);
    if (status == TL_OK && wants(buffers, TL_COLUMN_LEADER_EPOCH))
        status = tlj_reserve(budget, &buffers->leader_epoch, 4 * to, 4 * from);
    if (status == TL_OK && wants(buffers, TL_COLUMN_HEADERS)) {
        status = tlj_reserve(budget, &buffers->header_offsets, 4 * (to + 1), from ? 4 * (from + 1) : 0);
        if (status == TL_OK) status = reserve_bits(budget, &buffers->header_validity, old, rows);
    }
    c->offset = (int64_t *)(void *)buffers->offset.data;
    c->timestamp = (int64_t *)(void *)buffers->timestamp.data;
    c->timestamp_type = (int32_t *)(void *)buffers->timestamp_type.data;
    c->leader_epoch = (int32_t *)(void *)buffers->leader_epoch.data;
    c->header_offsets = (int32_t *)(void *)buffers->header_offsets.data;
    c->header_validity = buffers->header_validity.data;
    if (status == TL_OK) c->row_capacity = rows;
    return status;
}

static tl_status reserve_headers(tlj_row_buffers *buffers, int64_t old, int64_t entries) {
    tl_columns *c = &buffers->columns;
    tl_status status = reserve_entries(buffers, &buffers->header_key, &c->header_key, false, old, entries);
    if (status == TL_OK)
        status = reserve_entries(buffers, &buffers->header_value, &c->header_value, true, old, entries);
    if (status == TL_OK) c->header_capacity = entries;
    return status;
}

/* ---- batch after batch ---------------------------------------------------------------------------------------------
 */

static int64_t used_bytes(const tlj_row_buffers *buffers) {
    const tl_columns *c = &buffers->columns;
    return c->rows * buffers->row_bytes + c->key.data_size + c->value.data_size + c->header_key.data_size +
           c->header_value.data_size + 8 * c->header_count;
}

bool tlj_row_buffers_is_full(const tlj_row_buffers *buffers) {
    if (buffers->columns.rows >= TLJ_ROWS_MAX) return true;
    return buffers->columns.rows > 0 && used_bytes(buffers) >= buffers->target_bytes - buffers->target_bytes / 4;
}

/* Room for the next batch: what this one used, an eighth more, and no more than its share of the target. Without the
 * share each batch would be an eighth larger than the one before. */
static int64_t learned(int64_t used, double share) { return (int64_t)((double)used * share * 1.125); }

static tl_status next_data(tlj_row_buffers *buffers, tlj_binary_buffers *binary, tl_binary *out, double share,
                           bool taught) {
    if (taught) binary->next_bytes = at_least(learned(out->data_size, share), LEAST_BYTES);
    size_t size = (size_t)binary->next_bytes;
    if (binary->data.size > HOARD_MIN && binary->data.size / HOARD_FACTOR > size)
        tlj_release(buffers->budget, &binary->data);
    tl_status status = tlj_reserve(buffers->budget, &binary->data, size, 0);
    out->data = binary->data.data;
    out->data_capacity = (int64_t)(status == TL_OK ? size : binary->data.size);
    return status;
}

tl_status tlj_row_buffers_next(tlj_row_buffers *buffers) {
    tl_columns *c = &buffers->columns;
    bool taught = c->rows > 0;
    int64_t used = at_least(used_bytes(buffers), 1);
    double share = used > buffers->target_bytes ? (double)buffers->target_bytes / (double)used : 1;
    if (taught) {
        buffers->next_rows = at_least(learned(c->rows, share), LEAST_ROWS);
        if (buffers->next_rows > TLJ_ROWS_MAX) buffers->next_rows = TLJ_ROWS_MAX;
        buffers->next_headers = at_least(learned(c->header_count, share), LEAST_ROWS);
    }
    tl_status status = reserve_rows(buffers, 0, buffers->next_rows);
    if (status == TL_OK && wants(buffers, TL_COLUMN_KEY))
        status = next_data(buffers, &buffers->key, &c->key, share, taught);
    if (status == TL_OK && wants(buffers, TL_COLUMN_VALUE))
        status = next_data(buffers, &buffers->value, &c->value, share, taught);
    if (status == TL_OK && wants(buffers, TL_COLUMN_HEADERS)) {
        status = reserve_headers(buffers, 0, buffers->next_headers);
        if (status == TL_OK) status = next_data(buffers, &buffers->header_key, &c->header_key, share, taught);
        if (status == TL_OK) status = next_data(buffers, &buffers->header_value, &c->header_value, share, taught);
    }
    if (status == TL_OK) tl_columns_reset(c);
    return status;
}

/* ---- growing a batch under way -------------------------------------------------------------------------------------
 */

static tl_status grow_data(tlj_row_buffers *buffers, tlj_binary_buffers *binary, tl_binary *out, tl_fault *full) {
    int64_t need = full->expected;
    if (need > INT32_MAX) {
        *full = (tl_fault){.base_offset = -1, .record = -1, .expected = INT32_MAX, .found = need};
        return TL_BAD_SIZE;
    }
    int64_t wanted = at_least(need, 2 * out->data_capacity);
    if (wanted > INT32_MAX) wanted = INT32_MAX;
    tl_status status =
        tlj_reserve_generous(buffers->budget, &binary->data, (size_t)need, (size_t)wanted, (size_t)out->data_size);
    if (status != TL_OK) return status;
    out->data = binary->data.data;
    out->data_capacity = (int64_t)binary->data.size < wanted ? (int64_t)binary->data.size : wanted;
    return TL_OK;
}

tl_status tlj_row_buffers_grow(tlj_row_buffers *buffers, tl_fault *full) {
    tl_columns *c = &buffers->columns;
    switch (full->found) {
    case 0: return reserve_rows(buffers, c->row_capacity, 2 * c->row_capacity);
    case TL_COLUMN_KEY: return grow_data(buffers, &buffers->key, &c->key, full);
    case TL_COLUMN_VALUE: return grow_data(buffers, &buffers->value, &c->value, full);
    case TL_COLUMN_HEADERS:
        return reserve_headers(buffers, c->header_capacity, at_least(full->expected, 2 * c->header_capacity));
    case TL_COLUMN_HEADERS | TL_COLUMN_KEY: return grow_data(buffers, &buffers->header_key, &c->header_key, full);
    default: return grow_data(buffers, &buffers->header_value, &c->header_value, full);
    }
}
