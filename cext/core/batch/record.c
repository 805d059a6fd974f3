#include "batch/record.h"

static tl_status record_fault(tl_fault *fault, tl_status status, int64_t expected, int64_t found) {
    fault->expected = expected;
    fault->found = found;
    return status;
}

/* A varint inside a record: when the record ends first, it is the record's length that lies. */
#define TL_FIELD(call)                                                                                                 \
    do {                                                                                                               \
        tl_status status_ = (call);                                                                                    \
        if (status_ == TL_TRUNCATED) return record_fault(fault, TL_BAD_RECORD_LENGTH, 0, 0);                           \
        if (status_ != TL_OK) return record_fault(fault, status_, 0, 0);                                               \
    } while (0)

/* Length and bytes of a field; `minimum` is -1 where null is allowed. */
static tl_status take_field(tl_cursor *cursor, int32_t minimum, int32_t *length, const uint8_t **data,
                            tl_fault *fault) {
    TL_FIELD(tl_take_varint(cursor, length));
    *data = cursor->at;
    if (*length < minimum) return record_fault(fault, TL_BAD_FIELD_LENGTH, minimum, *length);
    if (*length <= 0) return TL_OK;
    if (tl_take(cursor, (size_t)*length, data) != TL_OK)
        return record_fault(fault, TL_BAD_FIELD_LENGTH, (int64_t)tl_left(cursor), *length);
    return TL_OK;
}

static tl_status take_headers(tl_cursor *cursor, tl_record *record, tl_fault *fault) {
    TL_FIELD(tl_take_varint(cursor, &record->header_count));
    int32_t count = record->header_count;
    /* A header is two bytes at least: its two lengths. */
    if (count < 0 || (size_t)count > tl_left(cursor) / 2)
        return record_fault(fault, TL_BAD_HEADER_COUNT, (int64_t)(tl_left(cursor) / 2), count);
    record->headers = cursor->at;
    for (int32_t i = 0; i < count; i++) {
        int32_t length;
        const uint8_t *data;
        tl_status status = take_field(cursor, 0, &length, &data, fault);
        if (status == TL_OK) status = take_field(cursor, -1, &length, &data, fault);
        if (status != TL_OK) return status;
    }
    return TL_OK;
}

tl_status tl_record_parse(const uint8_t *at, const uint8_t *end, tl_record *record, const uint8_t **next,
                          tl_fault *fault) {
    tl_cursor cursor = {at, end};
    int32_t length, offset_delta;
    if (at == end) return record_fault(fault, TL_BAD_COUNT, 0, 0);
    tl_status status = tl_take_varint(&cursor, &length);
    if (status != TL_OK) return record_fault(fault, status, 0, 0);
    if (length < 0 || (size_t)length > tl_left(&cursor))
        return record_fault(fault, TL_BAD_RECORD_LENGTH, (int64_t)tl_left(&cursor), length);
    cursor.end = record->end = cursor.at + length;
    const uint8_t *attributes;
    TL_FIELD(tl_take(&cursor, 1, &attributes));
    TL_FIELD(tl_take_varlong(&cursor, &record->timestamp));
    TL_FIELD(tl_take_varint(&cursor, &offset_delta));
    record->offset = offset_delta;
    status = take_field(&cursor, -1, &record->key_length, &record->key, fault);
    if (status == TL_OK) status = take_field(&cursor, -1, &record->value_length, &record->value, fault);
    if (status == TL_OK) status = take_headers(&cursor, record, fault);
    if (status != TL_OK) return status;
    if (cursor.at != cursor.end)
        return record_fault(fault, TL_BAD_RECORD_LENGTH, length - (int64_t)tl_left(&cursor), length);
    *next = cursor.end;
    return TL_OK;
}
