#include "batch/columns.h"

#include "batch/utf8.h"
#include "cursor.h"

static void reset_binary(tl_binary *column, int64_t rows) {
    column->data_size = 0;
    column->null_count = 0;
    if (column->offsets) column->offsets[0] = 0;
    if (column->validity) memset(column->validity, 0xff, (size_t)((rows + 7) / 8));
}

void tl_columns_reset(tl_columns *columns) {
    columns->rows = 0;
    if (columns->want & TL_COLUMN_KEY) reset_binary(&columns->key, columns->row_capacity);
    if (columns->want & TL_COLUMN_VALUE) reset_binary(&columns->value, columns->row_capacity);
    if (columns->want & TL_COLUMN_HEADERS) {
        columns->header_count = 0;
        columns->header_null_count = 0;
        columns->header_offsets[0] = 0;
        memset(columns->header_validity, 0xff, (size_t)((columns->row_capacity + 7) / 8));
        reset_binary(&columns->header_key, 0);
        reset_binary(&columns->header_value, columns->header_capacity);
    }
}

static inline tl_status full(tl_fault *fault, int64_t column, int64_t need) {
    fault->found = column;
    fault->expected = need;
    return TL_FULL;
}

static inline bool has_room(const tl_binary *column, int32_t length) {
    return length <= 0 || column->data_capacity - column->data_size >= length;
}

static inline void append_binary(tl_binary *column, int64_t row, const uint8_t *data, int32_t length) {
    if (length > 0) {
        memcpy(column->data + column->data_size, data, (size_t)length);
        column->data_size += length;
    } else if (length < 0) {
        column->null_count++;
        tl_clear_bit(column->validity, row);
    }
    column->offsets[row + 1] = (int32_t)column->data_size;
}

/* Copies the headers of a record behind the committed ones; the caller commits by taking over the counts. */
static tl_status append_headers(tl_columns *columns, const tl_record *record, tl_fault *fault) {
    tl_binary key = columns->header_key, value = columns->header_value;
    int64_t entries = columns->header_count;
    if (columns->header_capacity - entries < record->header_count)
        return full(fault, TL_COLUMN_HEADERS, entries + record->header_count);
    tl_cursor cursor = {record->headers, record->end};
    for (int32_t i = 0; i < record->header_count; i++, entries++) {
        int32_t key_length, value_length;
        const uint8_t *key_data, *value_data = NULL;
        /* Checked by the parser; a failure here is our own mistake. */
        if (tl_take_varint(&cursor, &key_length) != TL_OK || key_length < 0) return TL_BAD_ARGUMENT;
        if (tl_take(&cursor, (size_t)key_length, &key_data) != TL_OK) return TL_BAD_ARGUMENT;
        if (tl_take_varint(&cursor, &value_length) != TL_OK) return TL_BAD_ARGUMENT;
        if (value_length > 0 && tl_take(&cursor, (size_t)value_length, &value_data) != TL_OK) return TL_BAD_ARGUMENT;
        int64_t text_size = tl_utf8_replaced_size(key_data, (size_t)key_length);
        if (key.data_capacity - key.data_size < text_size)
            return full(fault, TL_COLUMN_HEADERS | TL_COLUMN_KEY, key.data_size + text_size);
        if (!has_room(&value, value_length))
            return full(fault, TL_COLUMN_HEADERS | TL_COLUMN_VALUE, value.data_size + value_length);
        tl_utf8_replace(key_data, (size_t)key_length, key.data + key.data_size);
        key.data_size += text_size;
        key.offsets[entries + 1] = (int32_t)key.data_size;
        append_binary(&value, entries, value_data, value_length);
    }
    columns->header_key = key;
    columns->header_value = value;
    columns->header_count = entries;
    return TL_OK;
}

tl_status tl_columns_append(tl_columns *columns, const tl_record *record, int64_t multiplier, tl_fault *fault) {
    uint32_t want = columns->want;
    int64_t row = columns->rows;
    if (row == columns->row_capacity) return full(fault, 0, row + 1);
    if ((want & TL_COLUMN_KEY) && !has_room(&columns->key, record->key_length))
        return full(fault, TL_COLUMN_KEY, columns->key.data_size + record->key_length);
    if ((want & TL_COLUMN_VALUE) && !has_room(&columns->value, record->value_length))
        return full(fault, TL_COLUMN_VALUE, columns->value.data_size + record->value_length);
    if (want & TL_COLUMN_TIMESTAMP) {
        int64_t timestamp;
        if (__builtin_mul_overflow(record->timestamp, multiplier, &timestamp)) {
            fault->expected = INT64_MAX / multiplier;
            fault->found = record->timestamp;
            return TL_BAD_TIMESTAMP;
        }
        columns->timestamp[row] = timestamp;
    }
    if (want & TL_COLUMN_HEADERS) {
        if (record->header_count > 0) {
            tl_status status = append_headers(columns, record, fault);
            if (status != TL_OK) return status;
        } else {
            tl_clear_bit(columns->header_validity, row);
            columns->header_null_count++;
        }
        columns->header_offsets[row + 1] = (int32_t)columns->header_count;
    }
    if (want & TL_COLUMN_OFFSET) columns->offset[row] = record->offset;
    if (want & TL_COLUMN_KEY) append_binary(&columns->key, row, record->key, record->key_length);
    if (want & TL_COLUMN_VALUE) append_binary(&columns->value, row, record->value, record->value_length);
    columns->rows = row + 1;
    return TL_OK;
}
