#include "batch/fast_records.h"

#include "cursor.h"

/* ---- one varint after another --------------------------------------------------------------------------------------
 */

enum { VARINT = 5, VARLONG = 10 };

/* A varint of at most VARINT bytes at p, all readable; NULL when it is longer. */
static inline const uint8_t *fast_varint(const uint8_t *p, int32_t *out) {
    uint32_t value = p[0];
    if (value < 0x80) {
        *out = tl_unzigzag32(value);
        return p + 1;
    }
    value = (value & 0x7f) | (uint32_t)p[1] << 7;
    if (p[1] < 0x80) {
        *out = tl_unzigzag32(value);
        return p + 2;
    }
    value = (value & 0x3fff) | (uint32_t)p[2] << 14;
    if (p[2] < 0x80) {
        *out = tl_unzigzag32(value);
        return p + 3;
    }
    value = (value & 0x1fffff) | (uint32_t)p[3] << 21;
    if (p[3] < 0x80) {
        *out = tl_unzigzag32(value);
        return p + 4;
    }
    value = (value & 0xfffffff) | (uint32_t)p[4] << 28;
    if (p[4] < 0x80) {
        *out = tl_unzigzag32(value);
        return p + 5;
    }
    return NULL;
}

static inline const uint8_t *fast_varlong(const uint8_t *p, int64_t *out) {
    uint64_t value = 0;
    for (unsigned i = 0; i < VARLONG; i++) {
        value |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (p[i] < 0x80) {
            *out = tl_unzigzag64(value);
            return p + i + 1;
        }
    }
    return NULL;
}

/* A length and as many bytes, with a varint to read behind them; NULL: anything else. */
static inline const uint8_t *fast_field(const uint8_t *p, const uint8_t *end, int32_t minimum, int32_t *length,
                                        const uint8_t **data) {
    if (end - p < VARINT) return NULL;
    p = fast_varint(p, length);
    if (!p || *length < minimum) return NULL;
    *data = p;
    if (*length <= 0) return p;
    return end - p < *length ? NULL : p + *length;
}

static inline const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end, int32_t count) {
    for (int32_t i = 0; i < count && p; i++) {
        int32_t length;
        const uint8_t *data;
        p = fast_field(p, end, 0, &length, &data);
        if (p) p = fast_field(p, end, -1, &length, &data);
    }
    return p;
}

/* A sound record with bytes to spare behind each varint. False: anything else. */
static inline bool fast_record(const uint8_t *at, const uint8_t *end, tl_record *record) {
    enum { LEAD = VARINT + 1 + VARLONG + VARINT };
    int32_t length, offset_delta;
    if (end - at < LEAD) return false;
    const uint8_t *p = fast_varint(at, &length);
    if (!p || length < 0 || length > end - p) return false;
    record->end = p + length;
    p = fast_varlong(p + 1, &record->timestamp);
    if (!p) return false;
    p = fast_varint(p, &offset_delta);
    if (!p) return false;
    record->offset = offset_delta;
    p = fast_field(p, end, -1, &record->key_length, &record->key);
    if (!p) return false;
    p = fast_field(p, end, -1, &record->value_length, &record->value);
    if (!p || p == end) return false;
    record->header_count = 0;
    if (*p == 0) return p + 1 == record->end;
    if (end - p < VARINT) return false;
    p = fast_varint(p, &record->header_count);
    if (!p || record->header_count < 0) return false;
    record->headers = p;
    return skip_headers(p, end, record->header_count) == record->end;
}

/* ---- columns under way ---------------------------------------------------------------------------------------------
 */

/* Copies past the end of what counts, where both sides have SLACK bytes to spare: no call and no byte loop for fields
 * of the usual sizes. */
enum { SLACK = 64, INLINE_MAX = 256 };
static inline void copy_with_slack(uint8_t *to, const uint8_t *from, int64_t length) {
    if (length <= INLINE_MAX) {
        for (int64_t done = 0; done < length; done += SLACK) memcpy(to + done, from + done, SLACK);
    } else {
        memcpy(to, from, (size_t)length);
    }
}

/* A binary column in progress, as locals: stored bytes cannot alias its fields, so these stay in registers. */
typedef struct lane {
    uint8_t *data, *validity;
    int32_t *offsets;
    int64_t size, capacity, nulls;
    bool wanted;
} lane;

static inline lane open_lane(const tl_binary *column, bool wanted) {
    return (lane){column->data,          column->validity,   column->offsets, column->data_size,
                  column->data_capacity, column->null_count, wanted};
}

static inline void close_lane(tl_binary *column, const lane *l) {
    if (!l->wanted) return;
    column->data_size = l->size;
    column->null_count = l->nulls;
}

static inline bool lane_has_room(const lane *l, const uint8_t *data, int32_t length, const uint8_t *end) {
    return !l->wanted || (l->capacity - l->size >= (int64_t)length + SLACK && end - data >= (int64_t)length + SLACK);
}

static inline void lane_append(lane *l, int64_t row, const uint8_t *data, int32_t length) {
    if (!l->wanted) return;
    if (length > 0) {
        copy_with_slack(l->data + l->size, data, length);
        l->size += length;
    } else if (length < 0) {
        l->nulls++;
        tl_clear_bit(l->validity, row);
    }
    l->offsets[row + 1] = (int32_t)l->size;
}

/* Whether no byte has its high bit set; SLACK bytes are readable behind the data. */
static inline bool is_ascii(const uint8_t *data, int32_t length) {
    uint64_t word, seen = 0;
    int32_t whole = length & ~7;
    for (int32_t at = 0; at < whole; at += 8) {
        memcpy(&word, data + at, 8);
        seen |= word;
    }
    if (length & 7) {
        memcpy(&word, data + whole, 8);
        seen |= word << (64 - 8 * (length & 7));
    }
    return !(seen & 0x8080808080808080u);
}

/* The headers of a record behind the committed ones; the caller commits by taking over the count and the lanes. False:
 * no room or slack, or a key that is not plain ASCII. Bits that were cleared for null values then stay so: the careful
 * way puts the same values into the same entries. Out of line: it would cost the loop its registers. */
static __attribute__((noinline)) bool append_headers(const tl_record *record, const uint8_t *end, int64_t capacity,
                                                     int64_t *entries, lane *keys, lane *values) {
    if (capacity - *entries < record->header_count) return false;
    lane key_lane = *keys, value_lane = *values;
    int64_t entry = *entries;
    const uint8_t *p = record->headers, *key, *value;
    for (int32_t i = 0; i < record->header_count; i++, entry++) {
        int32_t key_length, value_length;
        p = fast_field(p, end, 0, &key_length, &key);
        if (p) p = fast_field(p, end, -1, &value_length, &value);
        if (!p || !lane_has_room(&key_lane, key, key_length, end) || !is_ascii(key, key_length) ||
            !lane_has_room(&value_lane, value, value_length, end))
            return false;
        lane_append(&key_lane, entry, key, key_length);
        lane_append(&value_lane, entry, value, value_length);
    }
    *keys = key_lane;
    *values = value_lane;
    *entries = entry;
    return true;
}

/* ---- the run -------------------------------------------------------------------------------------------------------
 */

void tl_decode_sound_records(const uint8_t *content, const uint8_t *end, const tl_batch_header *batch,
                             const tl_decode_options *options, bool filtered, tl_decode_state *state,
                             tl_columns *columns) {
    const tl_batch_header header = *batch;
    const uint32_t want = columns->want;
    const bool append_time = header.attributes & TL_ATTRIBUTE_LOG_APPEND_TIME;
    const int64_t row_capacity = columns->row_capacity, multiplier = options->timestamp_multiplier;
    lane keys = open_lane(&columns->key, want & TL_COLUMN_KEY);
    lane values = open_lane(&columns->value, want & TL_COLUMN_VALUE);
    lane header_keys = open_lane(&columns->header_key, want & TL_COLUMN_HEADERS);
    lane header_values = open_lane(&columns->header_value, want & TL_COLUMN_HEADERS);
    int64_t row = columns->rows, next_offset = state->next_offset, index = state->record;
    const uint8_t *at = content + state->record_at;
    tl_record record;
    while (index < header.record_count && row < row_capacity && fast_record(at, end, &record)) {
        int64_t delta = record.offset, stamp;
        record.offset += header.base_offset;
        if (delta < 0 || delta > header.last_offset_delta || record.offset < next_offset) break;
        record.timestamp = append_time ? header.max_timestamp
                                       : (int64_t)((uint64_t)header.base_timestamp + (uint64_t)record.timestamp);
        if (!filtered || tl_is_wanted(options, &record)) {
            if (!lane_has_room(&keys, record.key, record.key_length, end) ||
                !lane_has_room(&values, record.value, record.value_length, end) ||
                __builtin_mul_overflow(record.timestamp, multiplier, &stamp))
                break;
            if (want & TL_COLUMN_HEADERS) {
                if (record.header_count == 0) {
                    tl_clear_bit(columns->header_validity, row);
                    columns->header_null_count++;
                } else if (!append_headers(&record, end, columns->header_capacity, &columns->header_count, &header_keys,
                                           &header_values)) {
                    break;
                }
                columns->header_offsets[row + 1] = (int32_t)columns->header_count;
            }
            if (want & TL_COLUMN_OFFSET) columns->offset[row] = record.offset;
            if (want & TL_COLUMN_TIMESTAMP) columns->timestamp[row] = stamp;
            if (want & TL_COLUMN_SEQUENCE) columns->sequence[row] = tl_sequence_of(&header, delta);
            lane_append(&keys, row, record.key, record.key_length);
            lane_append(&values, row, record.value, record.value_length);
            row++;
        }
        next_offset = record.offset + 1;
        index++;
        at = record.end;
    }
    close_lane(&columns->key, &keys);
    close_lane(&columns->value, &values);
    close_lane(&columns->header_key, &header_keys);
    close_lane(&columns->header_value, &header_values);
    state->records += (uint64_t)(row - columns->rows);
    columns->rows = row;
    state->next_offset = next_offset;
    state->record = index;
    state->record_at = (uint64_t)(at - content);
}
