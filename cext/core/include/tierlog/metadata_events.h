/* Records of `__remote_log_metadata` into a segment table: whole record batches as a log file has them, or values one
 * by one as a consumer has them.
 *
 * Events are applied in their order. The first record that cannot be read ends the run there: all events before it
 * are applied, none behind it. A record above the limits of a segment is counted and passed over: Kafka has no such
 * limit, and its record is no damage. Events of partitions that are not assigned are passed over after their first
 * fields. A record's key is not looked at; a record with a key and no value is counted and passed over (KIP-1266
 * would write such tombstones, with keys that show no segment's id). */
#ifndef TIERLOG_METADATA_EVENTS_H
#define TIERLOG_METADATA_EVENTS_H

#include "metadata_partitions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A state of a partition's removal. */
typedef struct tl_metadata_removal {
    int64_t offset; /* of its record */
    int64_t event_timestamp_ms;
    tl_partition_id partition;
    int32_t broker_id;
    uint8_t state;
} tl_metadata_removal;

/* A topic's name, as long as Kafka's may be; UTF-8, no zero behind it. */
typedef struct tl_metadata_name {
    uint8_t size;
    char data[249];
} tl_metadata_name;

/* An event that the table did not apply: no such segment, or its state does not allow the new one. */
typedef struct tl_metadata_refusal {
    int64_t offset;
    tl_partition_id partition;
    uint8_t id[16];
    int8_t found_state; /* -1: there is no such segment */
    uint8_t state;      /* the wanted one */
} tl_metadata_refusal;

/* The outcome of a run. All counts begin at zero, newest_timestamp_ms and offsets at -1. */
typedef struct tl_metadata_report {
    size_t struct_size;
    int64_t next_offset;         /* the first that was not applied; -1: none was */
    int64_t newest_timestamp_ms; /* of the records that were looked at */
    uint64_t applied, refused;
    uint64_t passed_over; /* of partitions that are not assigned, or applied before */
    uint64_t tombstones;
    uint64_t oversized;            /* records of more than a segment may have (segment_table.h), passed over */
    int64_t oversized_offset;      /* of the first of them; -1 */
    tl_metadata_refusal *refusals; /* the first of them; what finds no room is counted alone */
    size_t refusals_capacity, refusals_count;
    tl_metadata_removal *removals; /* of partitions that are assigned, or of all; room for one at least */
    size_t removals_capacity, removals_count;
    /* NULL, or room for as many names: then removals of partitions that are not assigned are reported too, and passed
     * over where they cannot be read. Of size 0 where the partition is assigned. */
    tl_metadata_name *removal_names;
    int64_t last_offset;     /* of the last record that was looked at */
    uint32_t last_value_crc; /* CRC-32C of its value; 0 for a tombstone */
} tl_metadata_report;

typedef struct tl_metadata_feed tl_metadata_feed;

/* `learns`: a partition is assigned by its first event. The table and the partitions outlive the feed. */
TL_API tl_status tl_metadata_feed_create(tl_metadata_feed **out, tl_segment_table *table,
                                         tl_metadata_partitions *partitions, bool learns);
TL_API void tl_metadata_feed_destroy(tl_metadata_feed *feed);

/* Begins a run of one metadata partition. */
TL_API void tl_metadata_feed_begin(tl_metadata_feed *feed, int32_t place);

/* Whole batches.
 *   TL_OK    all was applied
 *   TL_FULL  no room for removals: take them out and call again, with the same bytes
 *   else     the fault of the record, or the batch, at fault->base_offset; report->next_offset is the first offset that
 *            was not taken. TL_PARTIAL: the bytes end inside a batch. TL_BAD_ENTRY is also a topic id that comes under
 *            another name than before, or a partition whose events came from another metadata partition before.
 *            TL_NO_MEMORY: a later run goes on from there */
TL_API tl_status tl_metadata_feed_batches(tl_metadata_feed *feed, const uint8_t *data, size_t size,
                                          tl_metadata_report *report, tl_fault *fault);

/* A value of size -1 is null. */
typedef struct tl_metadata_value {
    const uint8_t *data;
    int64_t size;
    int64_t offset, timestamp_ms;
    bool has_key;
} tl_metadata_value;

/* Feeds the records values[*at..count) as batches are fed; `*at` moves behind the last record that was taken. */
TL_API tl_status tl_metadata_feed_values(tl_metadata_feed *feed, const tl_metadata_value *values, size_t count,
                                         size_t *at, tl_metadata_report *report, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
