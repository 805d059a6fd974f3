/* Shared parts of writing and loading snapshots: little-endian numbers (the host is little-endian), and the places
 * of columns. Internal. */
#ifndef TIERLOG_SEGMENT_SNAPSHOT_PARTS_H
#define TIERLOG_SEGMENT_SNAPSHOT_PARTS_H

#include "cursor.h"
#include "table/segment_table_parts.h"

static inline uint32_t tl_le32(const uint8_t *p) { return tl_load_le32(p); }
static inline uint64_t tl_le64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
static inline void tl_put_le32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void tl_put_le64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

typedef struct tl_partition_columns {
    uint8_t *topic_id, *last_applied, *remembered, *segments, *partition, *place, *remembered_count, *name_size,
        *remembered_epoch, *names;
} tl_partition_columns;

typedef struct tl_segment_columns {
    uint8_t *id, *start_offset, *end_offset, *max_timestamp, *event_timestamp, *epoch_start, *broker, *size_bytes,
        *epoch_count, *custom_size, *epoch, *flags, *mark, *custom;
} tl_segment_columns;

/* The size of a payload, padded. Counts are 32 bits: no sum overflows. */
static inline uint64_t tl_partition_columns_size(uint64_t count, uint64_t remembered, uint64_t bytes) {
    return (44 * count + 12 * remembered + bytes + 7) & ~(uint64_t)7;
}
static inline uint64_t tl_segment_columns_size(uint64_t count, uint64_t epochs, uint64_t bytes) {
    return (65 * count + 13 * epochs + bytes + 7) & ~(uint64_t)7;
}

/* The columns of a payload of that size. */
tl_partition_columns tl_partition_columns_at(uint8_t *payload, uint64_t count, uint64_t remembered, uint64_t bytes);
tl_segment_columns tl_segment_columns_at(uint8_t *payload, uint64_t count, uint64_t epochs, uint64_t bytes);

tl_status tl_snapshot_fault(tl_fault *fault, tl_status status, uint64_t position, int64_t expected, int64_t found);

#endif
