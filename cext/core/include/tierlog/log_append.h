/* Batches on their way into a log: what a leader checks in them and writes into them, and what a follower checks.
 *
 * The order of the checks and the error of each are those of Kafka's UnifiedLog#analyzeAndValidateRecords and
 * LogValidator (4.3). Three things are refused that Kafka stores: records that no reader of it could take apart,
 * offsets of records that are not 0, 1, 2 … (of compressed records Kafka refuses them too, with UNKNOWN_SERVER_ERROR),
 * and a follower's batches that overlap. */
#ifndef TIERLOG_LOG_APPEND_H
#define TIERLOG_LOG_APPEND_H

#include "batch.h"
#include "decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rule of an append that a batch breaks. Numbers are part of the C ABI. */
typedef enum tl_append_rule {
    TL_APPEND_SOUND = 0,
    TL_APPEND_SIZE = 1,            /* of the batch, below what its format needs */
    TL_APPEND_MAGIC = 2,           /* none that is known */
    TL_APPEND_CRC = 3,             /* fault: stored as expected, computed as found */
    TL_APPEND_CODEC = 4,           /* none that is known */
    TL_APPEND_TOO_LARGE = 5,       /* above max_message_bytes */
    TL_APPEND_BASE_OFFSET = 6,     /* of a client's batch, not 0 */
    TL_APPEND_BATCHES = 7,         /* more than one, to a leader */
    TL_APPEND_OLD_FORMAT = 8,      /* magic 0 or 1, to a leader */
    TL_APPEND_OFFSET_RANGE = 9,    /* the last offset delta is negative */
    TL_APPEND_COUNT = 10,          /* of records, not above 0 */
    TL_APPEND_COUNT_RANGE = 11,    /* of records, not that of the offsets */
    TL_APPEND_CONTROL = 12,        /* control records from a client */
    TL_APPEND_SEQUENCE = 13,       /* a producer id and a negative sequence */
    TL_APPEND_COMPRESSED = 14,     /* the stream of records is corrupt */
    TL_APPEND_CONTENT_SIZE = 15,   /* its content is larger than decompressed_limit */
    TL_APPEND_RECORD = 16,         /* a record is malformed, or bytes are left over: fault->record, and the status */
    TL_APPEND_RECORDS = 17,        /* records that may not be here: tl_record_errors, none of them a timestamp's */
    TL_APPEND_TIMESTAMPS = 18,     /* the same, and one of them is */
    TL_APPEND_ORDER = 19,          /* a follower's offsets do not rise: at least fault->expected, but fault->found */
    TL_APPEND_NEXT_OFFSET = 20,    /* a follower's first offset, fault->found, lies below its end, fault->expected */
    TL_APPEND_RECORD_OFFSETS = 21, /* of a leader's records: not 0, 1, 2 … */
    TL_APPEND_LOG_END = 22,        /* the log would end behind the greatest offset: its end is fault->found */
    TL_APPEND_EPOCH = 23           /* the leader's epoch, or that of a follower's batch of magic 2, is negative */
} tl_append_rule;

/* Kafka's error code for a rule (org.apache.kafka.common.protocol.Errors): 2 CORRUPT_MESSAGE, 10 MESSAGE_TOO_LARGE,
 * 32 INVALID_TIMESTAMP, 87 INVALID_RECORD, -1 UNKNOWN_SERVER_ERROR, which is what a broker answers to an unknown codec,
 * a broken stream, a negative epoch and to a follower's offsets. 0 for TL_APPEND_SOUND. */
TL_API int16_t tl_append_error_code(tl_append_rule rule);

/* A rule's name: "too_large" of TL_APPEND_TOO_LARGE, and so on. Never NULL; "unknown" of a number that is none. */
TL_API const char *tl_append_rule_name(tl_append_rule rule);

/* A rule that one record of a batch breaks. */
typedef enum tl_record_rule {
    TL_RECORD_NO_KEY = 1,         /* in a compacted topic */
    TL_RECORD_TIMESTAMP = 2,      /* too far from the leader's clock */
    TL_RECORD_APPEND_TIME_SET = 3 /* the producer wrote LogAppendTime */
} tl_record_rule;

/* "no_key", "timestamp" or "append_time_set". Never NULL; "unknown" of a number that is none. */
TL_API const char *tl_record_rule_name(tl_record_rule rule);

typedef struct tl_record_error {
    int64_t record; /* its index in the batch */
    int64_t timestamp;
    tl_record_rule rule;
} tl_record_error;

/* All of a batch's, as far as there is room; of the others only the number is known. */
typedef struct tl_record_errors {
    tl_record_error *entries;
    size_t capacity;
    int64_t count; /* of all */
} tl_record_errors;

typedef enum tl_append_origin {
    TL_FROM_CLIENT = 0,     /* everything is checked */
    TL_FROM_COORDINATOR = 1 /* a broker's own: markers and offset commits, which have no sequences */
} tl_append_origin;

/* The topic's configuration and the state of the log by which a leader checks a batch. */
typedef struct tl_leader_options {
    size_t struct_size;
    int64_t first_offset; /* the log's end: the first record's offset */
    int64_t now_ms;
    int64_t timestamp_before_max_ms; /* message.timestamp.before.max.ms, of CreateTime */
    int64_t timestamp_after_max_ms;
    uint64_t decompressed_limit; /* bytes of a batch's content */
    int32_t leader_epoch;
    int32_t max_message_bytes;
    int32_t target_codec; /* compression.type; -1: as the producer has it */
    tl_append_origin origin;
    bool compacted;
    bool log_append_time; /* message.timestamp.type */
} tl_leader_options;

/* A batch as it was assigned. */
typedef struct tl_leader_batch {
    tl_batch_header header; /* as it stands there now; size_bytes 0: the bytes hold no whole batch */
    tl_append_rule rule;    /* the one that was broken */
    bool must_rebuild;      /* it is sound, but another codec is asked for: nothing was written */
} tl_leader_batch;

/* Checks the one batch of data[0..size), a produce request's or a broker's own, and assigns it its offset, the leader's
 * epoch and its timestamps, in place. The checksum, which covers neither offset nor epoch, changes only where the
 * greatest timestamp or its type does. Bytes behind the batch that are no whole batch are passed over.
 *
 * Records are checked one by one, decompressed into the scratch where they have to be.
 *   TL_OK            out->header is what was appended, or out->must_rebuild
 *   TL_NEED_SCRATCH  fault->expected bytes of scratch are needed; nothing was written
 *   else             out->rule was broken; nothing was written. TL_BAD_ENTRY, or what the parser found */
TL_API tl_status tl_leader_append(uint8_t *data, size_t size, const tl_leader_options *options,
                                  const tl_scratch *scratch, tl_record_errors *errors, tl_leader_batch *out,
                                  tl_fault *fault);

/* Batches that a leader sent. */
typedef struct tl_follower_check {
    int64_t next_offset;  /* the log's end: none may begin below */
    int32_t leader_epoch; /* that the follower knows: batches of a later one, and all behind them, are passed over */
    size_t valid_bytes;   /* of batches to append; they begin at 0 */
    int64_t first_offset; /* of them, -1 if there is none */
    int64_t last_offset;
    int64_t without_epoch_at; /* position of the first batch of magic 2 whose epoch is negative, -1 if there is none */
    tl_append_rule rule;      /* the one that was broken: nothing may be appended */
    bool is_passing_over;
} tl_follower_check;

TL_API void tl_follower_begin(tl_follower_check *check, int64_t next_offset, int32_t leader_epoch);

/* Checks the batches of data[*at..size) and appends those that are to be written to the table, positions from 0.
 *   TL_OK    all was looked at; a batch that is cut off at the end is left out
 *   TL_FULL  the table is full; give more room and call again
 *   else     check->rule was broken by the batch at fault->position */
TL_API tl_status tl_follower_append(tl_follower_check *check, const uint8_t *data, size_t size, size_t *at,
                                    tl_batch_table *table, tl_fault *fault);

/* The end of a transaction in one partition. */
typedef struct tl_marker {
    int64_t timestamp;
    int32_t coordinator_epoch;
    bool is_commit;
} tl_marker;

/* The marker of a control batch, whose header was parsed. *found is false where compaction left none, or where it is a
 * control record of another kind.
 *   TL_BAD_CONTROL   the key is too short, or a version negative; or what tl_record_parse found
 *   TL_BAD_COUNT     the batch says that it has a negative number of records
 *   TL_BAD_ENTRY     no key, or a value that is too short
 *   TL_BAD_CODEC     compressed: no broker writes that
 * A broker answers the last two with UNKNOWN_SERVER_ERROR, all others with INVALID_RECORD. */
TL_API tl_status tl_marker_parse(const uint8_t *data, const tl_batch_header *header, tl_marker *marker, bool *found,
                                 tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
