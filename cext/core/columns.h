/* One record as borrowed slices, and how it becomes a row of tl_columns. Internal to the core. */
#ifndef TIERLOG_COLUMNS_H
#define TIERLOG_COLUMNS_H

#include "decode.h"

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

/* Appends one row. `readable_end`: bytes up to there may be read beyond a field (never used, only copied past the
 * end of what counts). TL_OK, TL_FULL (nothing is written; fault->found and ->expected say what is short) or
 * TL_BAD_TIMESTAMP. Headers have been checked by the parser. */
tl_status tl_columns_append(tl_columns *columns, const tl_record *record, const uint8_t *readable_end,
                            int64_t multiplier, tl_fault *fault);

#endif
