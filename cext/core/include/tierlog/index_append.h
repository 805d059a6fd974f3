/* Entries that a growing segment gets in its offset and time index.
 *
 * Kafka 4.3's rule (LogSegment#append): a batch gets an entry (its last offset, its position) if more than the interval
 * was appended since the last entry; so a segment's first batch never gets one. With it goes a time entry of the
 * greatest timestamp so far, if that rose. */
#ifndef TIERLOG_INDEX_APPEND_H
#define TIERLOG_INDEX_APPEND_H

#include "batch.h"
#include "index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ends of one segment's indexes. */
typedef struct tl_index_tail {
    int64_t base_offset;
    int64_t interval_bytes; /* index.interval.bytes */
    int64_t bytes_since_entry;
    int64_t max_timestamp;        /* greatest so far, -1 if there is none */
    int64_t max_timestamp_offset; /* last offset of the first batch that has it */
    int64_t last_offset;          /* of the offset index's last entry; base_offset - 1 if it has none */
    int64_t last_time;            /* of the time index's last entry; -1, base_offset if it has none */
    int64_t last_time_offset;
    int64_t offset_room; /* entries that still fit: none is written where there is no room, and lookups stay right */
    int64_t time_room;   /* the same; the entry of tl_index_close needs none */
} tl_index_tail;

/* A segment without a batch. */
TL_API void tl_index_begin(tl_index_tail *tail, int64_t base_offset, int64_t interval_bytes, int64_t offset_room,
                           int64_t time_room);

/* Entries as they lie in the files; each array has room for as many as there are batches. */
typedef struct tl_index_entries {
    uint8_t *offsets; /* TL_OFFSET_ENTRY bytes each */
    uint8_t *times;   /* TL_TIME_ENTRY bytes each */
    size_t offset_count;
    size_t time_count;
} tl_index_entries;

/* Takes the batches of rows first..table->count, which lie in a row from `position` of the segment on, and appends
 * their entries. The table has last_offset, max_timestamp and size_bytes at least. On a fault nothing has changed.
 *   TL_BAD_OFFSET   a last offset is not in base_offset … + INT32_MAX, or at or below the last entry's
 *   TL_BAD_SIZE     a batch begins behind INT32_MAX */
TL_API tl_status tl_index_add(tl_index_tail *tail, const tl_batch_table *table, size_t first, int64_t position,
                              tl_index_entries *entries, tl_fault *fault);

/* The same of the whole batches of data[0..size), at most `batches_max` of them: for so many the entries have room.
 *   TL_BAD_ARGUMENT  there are more
 *   else             the fault of a batch at fault->position, or as above */
TL_API tl_status tl_index_add_batches(tl_index_tail *tail, const uint8_t *data, size_t size, size_t batches_max,
                                      int64_t position, tl_index_entries *entries, tl_fault *fault);

/* The time entry of a roll or a clean stop: that of the greatest timestamp, if it has none yet. */
TL_API void tl_index_close(tl_index_tail *tail, tl_index_entries *entries);

#ifdef __cplusplus
}
#endif
#endif
