/* The partitions whose metadata events are applied, with their names and the offsets applied.
 *
 * One thread at a time. A topic id has one name: that of its first partition here, until its last one goes. */
#ifndef TIERLOG_METADATA_PARTITIONS_H
#define TIERLOG_METADATA_PARTITIONS_H

#include "segment_table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_metadata_partitions tl_metadata_partitions;

typedef struct tl_metadata_topic {
    size_t users; /* entries that name it */
    size_t name_size;
    char name[]; /* UTF-8, no zero behind it */
} tl_metadata_topic;

typedef struct tl_metadata_partition {
    tl_partition_id id;
    int32_t place;            /* the metadata partition that has its events; -1: none came so far */
    int64_t applied;          /* offset of its last event that was applied or refused; -1 */
    tl_metadata_topic *topic; /* stays where it is as long as a partition of it is here */
} tl_metadata_partition;

TL_API tl_status tl_metadata_partitions_create(tl_metadata_partitions **out, uint64_t hash_seed);
TL_API void tl_metadata_partitions_destroy(tl_metadata_partitions *partitions);

/* A partition that begins behind the offset `applied` (-1: at the beginning). A known partition stays as it is.
 * TL_BAD_ENTRY: its topic id is here under another name; TL_BAD_ARGUMENT: a negative partition; TL_NO_MEMORY. */
TL_API tl_status tl_metadata_partitions_add(tl_metadata_partitions *partitions, const tl_partition_id *id,
                                            const char *name, size_t name_size, int32_t place, int64_t applied);
/* Takes a partition out of the set; whether the set had it. */
TL_API bool tl_metadata_partitions_remove(tl_metadata_partitions *partitions, const tl_partition_id *id);
/* Finds a partition's entry, valid until the next one is added or removed; NULL if it is not here. */
TL_API tl_metadata_partition *tl_metadata_partitions_find(const tl_metadata_partitions *partitions,
                                                          const tl_partition_id *id);
/* Lists the partitions, in no order: `*at` begins at 0; returns the number put into `out`, 0 at the end. */
TL_API size_t tl_metadata_partitions_list(const tl_metadata_partitions *partitions, uint64_t *at,
                                          tl_metadata_partition *out, size_t capacity);
/* Number of partitions here, and of those ever added: an unchanged second number means that none was added. */
TL_API uint64_t tl_metadata_partitions_count(const tl_metadata_partitions *partitions);
TL_API uint64_t tl_metadata_partitions_added(const tl_metadata_partitions *partitions);

#ifdef __cplusplus
}
#endif
#endif
