/* Records of a byte range, decoded straight into Arrow buffers that the caller owns.
 *
 * The decoder is a state machine that stops when an output is full or the scratch is too small and goes on from the
 * very record when called again; so it never allocates, one giant batch fills many outputs, and a size in the bytes
 * is never trusted with an allocation. One pass with a bound (the capacities) instead of size-then-fill: the second
 * parse of every record costs more than the slack of a buffer that is reused or handed over anyway. */
#ifndef TIERLOG_DECODE_H
#define TIERLOG_DECODE_H

#include "aborted.h"
#include "batch.h"
#include "codec.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An Arrow binary or string column: int32 offsets, bytes, validity bits (LSB first). */
typedef struct tl_binary {
    int32_t *offsets; /* [rows + 1]; offsets[0] is written by tl_columns_reset */
    uint8_t *data;
    int64_t data_capacity; /* <= INT32_MAX */
    int64_t data_size;
    uint8_t *validity; /* the caller sets all bits; nulls are cleared */
    int64_t null_count;
} tl_binary;

enum {
    TL_COLUMN_KEY = 1 << 0,
    TL_COLUMN_VALUE = 1 << 1,
    TL_COLUMN_OFFSET = 1 << 2,
    TL_COLUMN_TIMESTAMP = 1 << 3,
    TL_COLUMN_TIMESTAMP_TYPE = 1 << 4, /* -1 none (magic 0), 0 CreateTime, 1 LogAppendTime */
    TL_COLUMN_HEADERS = 1 << 5,
    TL_COLUMN_LEADER_EPOCH = 1 << 6,
    TL_COLUMN_BATCH = 1 << 7,   /* position of the record's batch */
    TL_COLUMN_SEQUENCE = 1 << 8 /* of the producer, -1 if none; wraps after 2147483647 */
};

/* Wanted facts of the records beside their number. */
enum {
    TL_SUMMARY_OFFSETS = 1 << 0, /* the least and the greatest */
    TL_SUMMARY_LEAST_TIMESTAMP = 1 << 1,
    TL_SUMMARY_GREATEST_TIMESTAMP = 1 << 2
};

/* The records that count, summed up. Extremes that are not wanted mean nothing, nor does any without records. */
typedef struct tl_summary {
    uint32_t want; /* TL_SUMMARY_*: less of it needs fewer batches decoded */
    int64_t records;
    int64_t least_offset, greatest_offset;
    int64_t least_timestamp, greatest_timestamp; /* times options->timestamp_multiplier */
} tl_summary;

/* No records yet. */
TL_API void tl_summary_reset(tl_summary *summary, uint32_t want);

/* TL_COLUMN_*: the columns that a summary needs, and no others. */
TL_API uint32_t tl_summary_columns(uint32_t want);

typedef struct tl_columns {
    size_t struct_size;
    tl_summary *summary; /* not NULL: no rows are given but summed up, and a batch whose header says enough of its
                            records is stepped over without looking at them */
    uint32_t want;       /* TL_COLUMN_*; pointers of the others are not looked at */
    int64_t row_capacity;
    int64_t rows;
    tl_binary key;
    tl_binary value;
    int64_t *offset;
    int64_t *timestamp;
    int32_t *timestamp_type;
    int32_t *leader_epoch;
    int64_t *batch_position;
    int32_t *sequence;
    /* headers: list<struct<key: string, value: binary>>; a record without headers is null */
    int32_t *header_offsets; /* [rows + 1] into the entries */
    uint8_t *header_validity;
    int64_t header_null_count;
    int64_t header_capacity; /* entries */
    int64_t header_count;
    tl_binary header_key; /* always valid UTF-8: malformed bytes become U+FFFD as in Java */
    tl_binary header_value;
} tl_columns;

/* Empties the columns: counts to 0, offsets[0] to 0, all validity bits of the capacity to 1. */
TL_API void tl_columns_reset(tl_columns *columns);

typedef struct tl_decode_options {
    size_t struct_size;
    uint64_t base_position;         /* position of data[0] in the file, for faults and TL_COLUMN_BATCH */
    uint64_t end_position;          /* 0, or where the batches end that are decoded: of the bytes behind them the
                                       first TL_BASE_OFFSET_BYTES are looked at, which show whether the offset of the
                                       last batch can be right */
    int64_t from_offset;            /* records below are skipped */
    int64_t to_offset_exclusive;    /* records at or above are skipped; the second batch that begins there ends the
                                       decode: by its offset that of the first is known to be right */
    int64_t least_offset;           /* no batch begins below, */
    int64_t greatest_offset;        /* and none ends above (INT64_MAX: not known), else TL_BAD_OFFSET */
    int64_t from_timestamp;         /* ms, inclusive */
    int64_t to_timestamp_exclusive; /* ms; INT64_MAX = no bound */
    int64_t timestamp_multiplier;   /* 1 = ms, 1000 = us; TL_BAD_TIMESTAMP if a product does not fit */
    uint64_t decompressed_limit;    /* bytes of one batch, as it lies there and decompressed */
    const tl_aborted *aborted;      /* sorted; batches of these transactions are skipped. NULL = read_uncommitted */
    size_t aborted_count;
    bool verify_crc;
    bool control_records; /* give control records as rows too */
    bool measure_crc;     /* count state->crc_ns: two looks at the clock a batch */
} tl_decode_options;

/* The state of a decode. All zero to begin; the caller never changes it between calls but to begin anew. */
typedef struct tl_decode_state {
    uint64_t at;           /* in data: the current batch, or the end of the decoded ones */
    uint64_t record_at;    /* inside the batch's records (data or scratch): next record */
    uint64_t content_size; /* of the records under way: uncompressed bytes */
    int64_t record;        /* index of the next record in its batch */
    int64_t next_offset;   /* lowest offset that the next batch or record may have: offsets rise across the range */
    int32_t in_batch;      /* 0 = at a border, 1 = inside an uncompressed batch, 2 = inside a batch that is in scratch,
                              -1 = ended by to_offset_exclusive or end_position */
    int32_t behind_end;    /* a batch at or above to_offset_exclusive was met */
    int32_t verified;      /* the CRC of the batch at `at` was checked */
    int32_t next_size;     /* bytes that came of the base offset at end_position, */
    uint64_t next_bytes;   /* and they */
    int64_t legacy_base;   /* magic 1 wrapper: what to add to inner offsets */
    /* counters, for metrics */
    uint64_t batches, batches_skipped, records, decompressed_bytes;
    uint64_t crc_ns; /* spent on checksums, where that is measured */
} tl_decode_state;

typedef struct tl_scratch {
    uint8_t *data;
    size_t capacity;
    tl_codecs *codecs;
} tl_scratch;

/* Decodes from where `state` stands.
 *   TL_OK            all of data[0..size) is done, or nothing that follows counts (in_batch -1)
 *   TL_PARTIAL       data ends inside the batch at state->at; fault->expected = its size (0: not even that is known)
 *   TL_FULL          no room for the next record. fault->found says which: the TL_COLUMN_* bit of the array, 0 = rows;
 *                    fault->expected: bytes (or header entries) that the column needs in all
 *   TL_NEED_SCRATCH  fault->expected bytes of scratch are needed for the batch at state->at
 *   else             the fault; rows before it are in the columns */
TL_API tl_status tl_decode(const uint8_t *data, size_t size, const tl_decode_options *options, tl_decode_state *state,
                           const tl_scratch *scratch, tl_columns *columns, tl_fault *fault);

/* Whether a header is enough, or the records that have to be looked at. */
typedef enum tl_header_verdict {
    TL_HEADER_ENOUGH = 0, /* ruled out, or summed up */
    TL_HEADER_NEEDED = 1, /* the records of the batch */
    TL_HEADER_BREAK = 2   /* the batch, and the one before it: one of the two headers contradicts the other */
} tl_header_verdict;

/* Headers of one range after another that are believed without a checksum, as far as they do not contradict each
 * other or themselves. All zero to begin, but for the known facts of the segment. */
typedef struct tl_header_trust {
    int64_t greatest_timestamp; /* of the segment's records, ms; INT64_MAX: not known */
    int64_t next_offset;        /* behind the offsets of the last header */
    bool begun, append_time;    /* there was one, and it said so */
} tl_header_trust;

/* The same of one batch by its header alone, with TL_HEADER_SIZE_V2 bytes of it or all: it is ruled out, or summed up,
 * or, if not, its records have to be looked at. Steps over it either way, state->at counts on. No checksum is checked:
 * the caller does that behind TL_HEADER_ENOUGH, or gives a `trust`.
 *   TL_OK   *verdict says which; state->in_batch is -1 if nothing behind it counts
 *   else    the fault that tl_decode would have found in the header; TL_PARTIAL: there are too few bytes */
TL_API tl_status tl_decode_header(const uint8_t *head, size_t size, const tl_decode_options *options,
                                  tl_decode_state *state, tl_columns *columns, tl_header_trust *trust,
                                  tl_header_verdict *verdict, tl_fault *fault);

/* After a fault: steps over the batch at state->at, which begins in data. TL_OK and the batch's size; else the
 * batch's end is unknown (fault, with its position), and nothing behind it can be found. */
TL_API tl_status tl_decode_skip(const uint8_t *data, size_t size, const tl_decode_options *options,
                                tl_decode_state *state, int32_t *size_bytes, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
