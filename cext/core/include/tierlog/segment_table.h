/* The partitions' segments in the tier, with their states and leader epochs: the cache that Kafka's
 * RemoteLogMetadataManager answers from, in about a hundred bytes a segment.
 *
 * One writer at a time; any number of readers beside it, which take no lock. A reader that the writer crosses looks
 * again; its answer was true at one moment between call and return. Rules: docs/formats/metadata-records.md. */
#ifndef TIERLOG_SEGMENT_TABLE_H
#define TIERLOG_SEGMENT_TABLE_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_segment_table tl_segment_table;

/* The life of a segment, by the numbers of the metadata records. */
enum { TL_COPY_STARTED = 0, TL_COPY_FINISHED = 1, TL_DELETE_STARTED = 2, TL_DELETE_FINISHED = 3 };

/* Whether a segment in one state (-1: there is none) may go to another, or to the same one again. */
TL_API bool tl_segment_may_become(int from, int to);

typedef struct tl_partition_id {
    uint8_t topic_id[16];
    int32_t partition;
} tl_partition_id;

typedef struct tl_segment_epoch {
    int32_t epoch;
    int64_t start_offset;
} tl_segment_epoch;

/* Limits of one segment. Kafka has no such limits; a table has one memory for all brokers' segments. */
enum { TL_SEGMENT_EPOCHS_MAX = 1 << 16, TL_SEGMENT_CUSTOM_BYTES_MAX = 1 << 20 };

/* One segment. `custom`: the storage's bytes; NULL with `custom_size` -1 where it left none. Both offsets inclusive. */
typedef struct tl_segment {
    uint8_t id[16];
    int64_t start_offset, end_offset, max_timestamp_ms, event_timestamp_ms;
    int32_t broker_id, size_bytes;
    uint8_t state;
    bool txn_index_empty;
    const tl_segment_epoch *epochs; /* ascending by epoch, one at least */
    size_t epoch_count;
    const uint8_t *custom;
    int64_t custom_size;
} tl_segment;

typedef struct tl_segment_change {
    uint8_t id[16];
    uint8_t state;
    int32_t broker_id;
    int64_t event_timestamp_ms;
    const uint8_t *custom;
    int64_t custom_size;
} tl_segment_change;

/* The outcome of an event. Only an applied one has changed the table. */
typedef enum tl_event_outcome {
    TL_EVENT_APPLIED = 0,
    TL_EVENT_UNKNOWN_SEGMENT = 1, /* a change of a segment that is not there */
    TL_EVENT_BAD_TRANSITION = 2,  /* `found_state` is the state that forbids it, -1 for a segment that is not there */
} tl_event_outcome;

typedef struct tl_segment_table_options {
    size_t struct_size;
    uint64_t hash_seed; /* secret, or whoever names segments decides how long looking for them takes */
    bool as_kafka;      /* Kafka 4.3's answers where segments overlap, with the offsets that it loses */
} tl_segment_table_options;

typedef struct tl_segment_table_figures {
    uint64_t segments, partitions;
    uint64_t held_bytes; /* cells in use, custom metadata's among them */
} tl_segment_table_figures;

TL_API tl_status tl_segment_table_create(tl_segment_table **out, const tl_segment_table_options *options);
TL_API void tl_segment_table_destroy(tl_segment_table *table);

/* ---- the writer's ---- */

/* Adds a segment in state COPY_STARTED; a present one in that state is replaced. TL_BAD_ARGUMENT: offsets, epochs or
 * state that cannot be, or more than the limits; TL_NO_MEMORY, TL_OVER_LIMIT (the table is full): nothing was
 * changed. */
TL_API tl_status tl_segment_table_add(tl_segment_table *table, const tl_partition_id *partition,
                                      const tl_segment *segment, tl_event_outcome *outcome, int *found_state);
/* The change of a segment's state; COPY_STARTED is no such change. */
TL_API tl_status tl_segment_table_change(tl_segment_table *table, const tl_partition_id *partition,
                                         const tl_segment_change *change, tl_event_outcome *outcome, int *found_state);

/* An event and its outcome. */
typedef struct tl_segment_event {
    tl_partition_id partition;
    bool is_change; /* `change` is set, else `segment` */
    union {
        tl_segment segment;
        tl_segment_change change;
    } of;
    tl_event_outcome outcome;
    int found_state;
} tl_segment_event;

/* Applies events in their order, as tl_segment_table_add and _change do; `*done`: how many have an outcome, all of them
 * if it returns TL_OK. What 32 events wait for is asked for together: give it many at once. */
TL_API tl_status tl_segment_table_apply(tl_segment_table *table, tl_segment_event *events, size_t count, size_t *done);
/* Asks the system for at most so many huge pages under the applied events, which makes lookups faster by a third;
 * returns how many it asked for, 0 when all is settled. A page of 2 MiB, some 20,000 segments, takes 0.5 ms, or 5 on
 * a virtual machine: one after each run of events spreads that. Nothing waits for it but the caller. */
TL_API size_t tl_segment_table_settle(tl_segment_table *table, size_t pages);
/* Forgets a partition with all its segments; whether it was there. */
TL_API bool tl_segment_table_forget(tl_segment_table *table, const tl_partition_id *partition);

/* ---- any thread's ---- */

/* A segment as it was at one moment: words of its row, of its epochs and its custom metadata, decoded when asked. */
typedef struct tl_segment_copy {
    int64_t start_offset, end_offset, max_timestamp_ms, event_timestamp_ms;
    int32_t broker_id, size_bytes;
    uint8_t id[16];
    uint8_t state;
    bool txn_index_empty;
    uint32_t epoch_count;
    int64_t custom_size; /* -1: none */
} tl_segment_copy;

/* The arrays of a copy's parts without a fixed size. TL_FULL: a capacity is too small; the copy says the needed one. */
typedef struct tl_segment_room {
    tl_segment_epoch *epochs;
    size_t epochs_capacity;
    uint8_t *custom;
    size_t custom_capacity;
} tl_segment_room;

/* The readable segment with this offset in this leader epoch; *found is false if there is none. `room` may be NULL. */
TL_API tl_status tl_segment_table_find(const tl_segment_table *table, const tl_partition_id *partition, int32_t epoch,
                                       int64_t offset, tl_segment_room *room, tl_segment_copy *out, bool *found);

typedef struct tl_segment_question {
    tl_partition_id partition;
    int32_t epoch;
    int64_t offset;
} tl_segment_question;

/* The same for many questions, each answered as of a moment of its own; `found` has one byte a question. What many
 * questions wait for is asked for together: five times as fast as one by one. */
TL_API void tl_segment_table_find_many(const tl_segment_table *table, const tl_segment_question *questions,
                                       size_t count, tl_segment_copy *out, uint8_t *found);
/* The largest offset that any readable segment ever had in this epoch; -1 if none had one. */
TL_API int64_t tl_segment_table_highest(const tl_segment_table *table, const tl_partition_id *partition, int32_t epoch);
/* The highest offset for the epoch of each question, -1 if there is none; offsets of questions are not looked at. */
TL_API void tl_segment_table_highest_many(const tl_segment_table *table, const tl_segment_question *questions,
                                          size_t count, int64_t *out);

/* Two words that change together with each change of the partition, and when it is forgotten and comes back; zeros if
 * it is not there. */
typedef struct tl_partition_version {
    uint64_t cell, sequence;
} tl_partition_version;
TL_API tl_partition_version tl_segment_table_version(const tl_segment_table *table, const tl_partition_id *partition);

/* Goes through the segments of a partition by (epoch, start offset in it): all of one epoch, or (epoch -1) each segment
 * of the partition once, at its first epoch. */
typedef struct tl_segment_cursor {
    tl_partition_id partition;
    int32_t epoch;    /* -1: all */
    int32_t at_epoch; /* where the next call goes on */
    int64_t at_offset;
    uint8_t at_id[16];
    bool begun, ended;
} tl_segment_cursor;

TL_API void tl_segment_cursor_open(tl_segment_cursor *cursor, const tl_partition_id *partition, int32_t epoch);
/* Up to `capacity` more of them; 0 at the end. Each call's are of one moment. */
TL_API size_t tl_segment_table_list(const tl_segment_table *table, tl_segment_cursor *cursor, tl_segment_copy *out,
                                    size_t capacity);

/* A segment by its id, in any state. */
TL_API tl_status tl_segment_table_get(const tl_segment_table *table, const tl_partition_id *partition,
                                      const uint8_t id[16], tl_segment_room *room, tl_segment_copy *out, bool *found);
/* Partitions that are there, in no order: `*at` begins at 0; returns how many were put into `out`, 0 at the end. The
 * writer's thread only. */
TL_API size_t tl_segment_table_partitions(const tl_segment_table *table, uint64_t *at, tl_partition_id *out,
                                          size_t capacity);

TL_API tl_segment_table_figures tl_segment_table_figures_of(const tl_segment_table *table);

#ifdef __cplusplus
}
#endif
#endif
