/* One record as borrowed slices, and how it becomes a row of tl_columns. Internal to the core. */
#ifndef TIERLOG_COLUMNS_H
#define TIERLOG_COLUMNS_H

#include "tierlog/decode.h"

/* A record's fields; pointers into the caller's bytes or the scratch. Length -1 = null. */
typedef struct tl_record {
    int64_t offset;
    int64_t timestamp; /* ms */
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* the first header, behind the count */
    const uint8_t *end;     /* behind the record */
    int32_t key_length;
    int32_t value_length;
    int32_t header_count;
} tl_record;

/* Marks a null in a validity bitmap. */
static inline void tl_clear_bit(uint8_t *bits, int64_t index) { bits[index >> 3] &= (uint8_t) ~(1u << (index & 7)); }

/* INT64_MAX is no bound: a record may have that very timestamp. */
static inline bool tl_is_late(const tl_decode_options *options, int64_t timestamp) {
    return timestamp >= options->to_timestamp_exclusive && options->to_timestamp_exclusive != INT64_MAX;
}

static inline bool tl_is_wanted(const tl_decode_options *options, const tl_record *record) {
    return record->offset >= options->from_offset && record->offset < options->to_offset_exclusive &&
           record->timestamp >= options->from_timestamp && !tl_is_late(options, record->timestamp);
}

/* Sequence of a record: counts on from the batch's and wraps after INT32_MAX to 0, as in DefaultRecordBatch. */
static inline int32_t tl_sequence_of(const tl_batch_header *header, int64_t offset_delta) {
    if (header->base_sequence < 0) return -1;
    return (int32_t)(((int64_t)header->base_sequence + offset_delta) & INT32_MAX);
}

/* Appends one row. TL_OK, TL_FULL (nothing is written; fault->found and ->expected name the short array) or
 * TL_BAD_TIMESTAMP. Headers have been checked by the parser. */
tl_status tl_columns_append(tl_columns *columns, const tl_record *record, int64_t multiplier, tl_fault *fault);

#endif
