/* The end of a log as an append needs it: the segment's room, and the last sequence of the batch's producer. */
#ifndef TIERLOG_LOG_END_H
#define TIERLOG_LOG_END_H

#include "index_append.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- segment */

#define TL_NO_TIMESTAMP_KNOWN INT64_MIN

typedef struct tl_segment_end {
    int64_t size;            /* of the log, bytes */
    int64_t first_timestamp; /* greatest of the first batch; TL_NO_TIMESTAMP_KNOWN: not read yet */
} tl_segment_end;

/* segment.bytes, and segment.ms as the log goes by it. */
typedef struct tl_roll_limits {
    int64_t size;
    int64_t age_ms;
} tl_roll_limits;

typedef enum tl_roll {
    TL_ROLL_NOT = 0,
    TL_ROLL_NOW = 1,     /* a new segment has to be begun for it */
    TL_ROLL_BY_CLOCK = 2 /* whatever the segment's age by the leader's clock says: its records have no timestamps */
} tl_roll;

/* Whether bytes with these offsets and timestamps may go into a segment (Kafka LogSegment#shouldRoll). */
TL_API tl_roll tl_roll_due(const tl_segment_end *end, const tl_index_tail *tail, const tl_roll_limits *limits,
                           int64_t size, int64_t last_offset, int64_t max_timestamp);

/* ---- producer */

/* An idempotent producer has at most so many requests under way. */
enum { TL_PRODUCER_BATCHES = 5 };

typedef struct tl_producer_batch {
    int64_t last_offset;
    int64_t max_timestamp;
    int32_t last_sequence;
    int32_t last_offset_delta;
} tl_producer_batch;

/* A producer's last batches, epoch and open transaction, as its log has them (Kafka ProducerStateEntry). */
typedef struct tl_producer {
    int64_t producer_id;
    int64_t last_timestamp;     /* of the last batch or marker; -1: there was none */
    int64_t transaction_offset; /* where the open transaction begins; -1: none is open */
    int32_t coordinator_epoch;  /* of the last marker; -1: there was none */
    int16_t producer_epoch;
    uint8_t batch_count;
    tl_producer_batch batches[TL_PRODUCER_BATCHES]; /* the last ones of this epoch, oldest first */
} tl_producer;

/* The sequence number `count` records behind another; 0 follows INT32_MAX, and -1 stays. */
TL_API int32_t tl_sequence_after(int32_t sequence, int64_t count);

/* Whether a client's batch continues its producer: same epoch, next sequence, no transaction that begins, ends or is
 * missing. Then nothing about it has to be checked, and all that changes are the last batches. */
TL_API bool tl_producer_continues(const tl_producer *known, const tl_batch_header *batch);

/* Takes a data batch of this epoch. */
TL_API void tl_producer_keep(tl_producer *known, const tl_producer_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
