/* Message sets of magic 0 and 1 (docs/formats/log-files.md, Message sets of magic 0 and 1). Read from disk only;
 * nothing writes them any more. */
#include "batch/record.h"
#include "tierlog/checksum.h"

static tl_status legacy_fault(tl_fault *fault, tl_status status, int64_t expected, int64_t found) {
    fault->expected = expected;
    fault->found = found;
    return status;
}

/* int32 length, then the bytes; -1 = null. */
static tl_status take_sized(tl_cursor *cursor, int32_t *length, const uint8_t **data, tl_fault *fault) {
    const uint8_t *at;
    if (tl_take(cursor, 4, &at) != TL_OK) return legacy_fault(fault, TL_BAD_RECORD_LENGTH, 4, (int64_t)tl_left(cursor));
    *length = tl_load_i32(at);
    *data = cursor->at;
    if (*length < -1) return legacy_fault(fault, TL_BAD_FIELD_LENGTH, -1, *length);
    if (*length > 0 && tl_take(cursor, (size_t)*length, data) != TL_OK)
        return legacy_fault(fault, TL_BAD_FIELD_LENGTH, (int64_t)tl_left(cursor), *length);
    return TL_OK;
}

tl_status tl_legacy_parse(const uint8_t *at, const tl_batch_header *header, tl_record *record, tl_fault *fault) {
    tl_cursor cursor = {at + (header->magic == 0 ? 18 : 26), at + header->size_bytes};
    record->offset = header->base_offset;
    record->timestamp = header->max_timestamp;
    record->headers = record->end = cursor.end;
    record->header_count = 0;
    tl_status status = take_sized(&cursor, &record->key_length, &record->key, fault);
    if (status == TL_OK) status = take_sized(&cursor, &record->value_length, &record->value, fault);
    if (status != TL_OK) return status;
    if (tl_left(&cursor) != 0) return legacy_fault(fault, TL_BAD_RECORD_LENGTH, 0, (int64_t)tl_left(&cursor));
    return TL_OK;
}

tl_status tl_legacy_survey(const uint8_t *content, size_t size, const tl_batch_header *wrapper, bool verify_crc,
                           int64_t *count, int64_t *offset_base, tl_fault *fault) {
    int64_t last = -1;
    *count = 0;
    *offset_base = 0;
    for (size_t at = 0; at < size; (*count)++) {
        tl_batch_header inner;
        tl_fault inner_fault;
        tl_status status = tl_batch_parse(content + at, size - at, &inner, &inner_fault);
        if (status == TL_PARTIAL) status = TL_TRUNCATED;
        if (status == TL_OK && verify_crc) status = tl_batch_verify(content + at, &inner, &inner_fault);
        fault->record = *count;
        if (status != TL_OK) return legacy_fault(fault, status, inner_fault.expected, inner_fault.found);
        if (inner.magic != wrapper->magic) return legacy_fault(fault, TL_BAD_LEGACY, wrapper->magic, inner.magic);
        if (inner.attributes & TL_ATTRIBUTE_CODEC)
            return legacy_fault(fault, TL_BAD_LEGACY, 0, inner.attributes & TL_ATTRIBUTE_CODEC);
        last = inner.base_offset;
        at += (size_t)inner.size_bytes;
    }
    fault->record = -1;
    if (*count == 0) return legacy_fault(fault, TL_BAD_LEGACY, 1, 0);
    if (wrapper->magic == 0 || wrapper->base_offset == 0) return TL_OK;
    /* A wrapper of magic 1 carries the last inner offset; inner offsets are relative to the first. */
    if (wrapper->base_offset < last || last < 0) return legacy_fault(fault, TL_BAD_LEGACY, wrapper->base_offset, last);
    *offset_base = wrapper->base_offset - last;
    return TL_OK;
}
