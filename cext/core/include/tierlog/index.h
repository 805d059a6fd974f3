/* Kafka's sparse indexes as they lie on disk: offset (8-byte entries), time (12), transaction (34).
 *
 * All lookups are lower bounds over the mapped or fetched bytes; nothing is copied. Entries of a preallocated active
 * index are zero after the last one: tl_*_index_entries finds the real end. Formats: docs/formats/log-files.md,
 * Offset index and the two sections behind it. */
#ifndef TIERLOG_INDEX_H
#define TIERLOG_INDEX_H

#include "aborted.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TL_OFFSET_ENTRY = 8, TL_TIME_ENTRY = 12, TL_TXN_ENTRY = 34 };

/* Entries in use: trailing all-zero entries are preallocation, unless the file has just one entry at base 0. */
TL_API size_t tl_offset_index_entries(const uint8_t *data, size_t size);
TL_API size_t tl_time_index_entries(const uint8_t *data, size_t size);

/* The entry with the largest offset <= target; none: (base_offset, 0). `entries` as above. */
TL_API void tl_offset_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target,
                                   int64_t *offset, int32_t *position);
/* The same of `count` targets, each into its place of `offsets` and `positions`: searched side by side, so that the
 * waits for memory of one hide those of the others. In a file out of order the two may find different entries. */
TL_API void tl_offset_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset,
                                        const int64_t *targets, size_t count, int64_t *offsets, int32_t *positions);
/* First entry whose position is >= position + size (Kafka's fetchUpperBoundOffset): its offset, -1 if none. */
TL_API int64_t tl_offset_index_upper_bound(const uint8_t *data, size_t entries, int64_t base_offset, int64_t position,
                                           int64_t size_bytes);
/* Largest timestamp <= target: (timestamp, offset); none: (-1, base_offset). */
TL_API void tl_time_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target,
                                 int64_t *timestamp, int64_t *offset);
/* tl_time_index_lookup for `count` targets at once: timestamps[i] and offsets[i] answer targets[i]. */
TL_API void tl_time_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset, const int64_t *targets,
                                      size_t count, int64_t *timestamps, int64_t *offsets);

/* Sanity: sizes, order, ranges. fault->position is that of the first wrong entry.
 * `segment_size` bounds positions of the offset index; pass INT64_MAX if it is unknown. */
TL_API tl_status tl_offset_index_check(const uint8_t *data, size_t size, int64_t base_offset, int64_t segment_size,
                                       tl_fault *fault);
TL_API tl_status tl_time_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault);
TL_API tl_status tl_txn_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault);

/* All entries into columns of `entries` rows each; NULL columns are left out. */
TL_API void tl_offset_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *offset,
                                 int32_t *position);
TL_API void tl_time_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *timestamp,
                               int64_t *offset);

typedef struct tl_txn_entry {
    int64_t producer_id, first_offset, last_offset, last_stable_offset;
} tl_txn_entry;
/* Whole entries of the file (a partial one at the end is ignored, as Kafka does); TL_BAD_VERSION, TL_BAD_ORDER. */
TL_API tl_status tl_txn_index_read(const uint8_t *data, size_t size, tl_txn_entry *out, size_t *count, tl_fault *fault);
/* Kafka's collectAborted, but for what its followers' entries hide: entries that touch [fetch_offset,
 * upper_bound_exclusive), appended to `out` (capacity = entries of the file); *complete when no later segment can hold
 * more. */
TL_API tl_status tl_txn_index_collect(const uint8_t *data, size_t size, int64_t fetch_offset,
                                      int64_t upper_bound_exclusive, tl_aborted *out, size_t *count, bool *complete,
                                      tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
