/* Record batch headers (magic 2) and log entries of magic 0/1: one header, and the scan of a byte range. */
#ifndef TIERLOG_BATCH_H
#define TIERLOG_BATCH_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TL_LOG_OVERHEAD = 12, /* base offset and length, in front of every entry */
    TL_BASE_OFFSET_BYTES = 8,
    TL_MAGIC_POSITION = 16, /* of the magic byte, the same in all formats */
    TL_HEADER_SIZE_V2 = 61,
    TL_OVERHEAD_V0 = 14, /* crc, magic, attributes, key length, value length */
    TL_OVERHEAD_V1 = 22, /* and the timestamp */

    TL_ATTRIBUTE_CODEC = 0x07,
    TL_ATTRIBUTE_LOG_APPEND_TIME = 0x08,
    TL_ATTRIBUTE_TRANSACTIONAL = 0x10,
    TL_ATTRIBUTE_CONTROL = 0x20,
    TL_ATTRIBUTE_DELETE_HORIZON = 0x40
};

/* Kafka's names. Of magic 0/1: base_offset is the entry's offset (of a wrapper the last inner one),
 * last_offset_delta 0, leader_epoch/producer_id/producer_epoch/base_sequence -1, base_timestamp = max_timestamp =
 * the entry's (-1 for magic 0), record_count 1, or -1 for a compressed wrapper. */
typedef struct tl_batch_header {
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t size_bytes; /* with the 12 bytes in front */
    int32_t leader_epoch;
    uint32_t crc; /* as stored */
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;
} tl_batch_header;

/* Reads the header at `data`. Checks the length and the magic, not the CRC.
 *   TL_PARTIAL       fewer bytes than the entry says (fault->expected = its size, 0 if even that is unknown)
 *   TL_BAD_SIZE      size below the minimum of its magic
 *   TL_BAD_MAGIC     magic is not 0, 1 or 2 */
TL_API tl_status tl_batch_parse(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault);

/* The same from the first TL_HEADER_SIZE_V2 bytes, or from the whole entry where that is shorter: no more is looked at.
 * TL_PARTIAL with fault->expected = bytes that are needed. */
TL_API tl_status tl_batch_parse_header(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault);

/* Whether a batch's offsets are within `least` and `greatest`. No checksum covers a base offset: only the data
 * around the batch shows a wrong one. */
static inline bool tl_offsets_fit(int64_t base_offset, int64_t last_offset, int64_t least, int64_t greatest) {
    return base_offset >= least && last_offset >= base_offset && last_offset <= greatest;
}

/* Compares the stored with the computed checksum (CRC-32C of magic 2, CRC-32 of 0/1). TL_OK or TL_BAD_CRC.
 * `data` holds the whole entry, header.size_bytes. */
TL_API tl_status tl_batch_verify(const uint8_t *data, const tl_batch_header *header, tl_fault *fault);

/* Columns of the headers of a range, in file order. All arrays have `capacity` entries; a NULL array is left out. */
typedef struct tl_batch_table {
    size_t struct_size;
    size_t capacity;
    size_t count;
    int64_t *base_offset;
    int64_t *last_offset;
    int64_t *position; /* of the batch, from base_position */
    int32_t *size_bytes;
    int32_t *leader_epoch;
    int64_t *base_timestamp;
    int64_t *max_timestamp;
    int64_t *producer_id;
    int16_t *producer_epoch;
    int32_t *base_sequence;
    int32_t *record_count;
    int16_t *attributes;
    int8_t *magic;
    uint32_t *crc;
    uint8_t *crc_ok; /* 1 or 0; all 1 when verify is off */
} tl_batch_table;

/* Walks the batches of data[*at..size) and appends their headers; moves *at behind the last whole batch.
 *   TL_OK        the range ended exactly at a batch border
 *   TL_FULL      the table is full; give more room and call again
 *   TL_PARTIAL   the range ends inside a batch, at fault->position
 *   else         the fault of the batch at fault->position; what came before it is in the table
 * A wrong CRC is not a fault here: it is the column crc_ok. */
TL_API tl_status tl_scan(const uint8_t *data, size_t size, uint64_t base_position, bool verify_crc, size_t *at,
                         tl_batch_table *table, tl_fault *fault);

/* A file's batches out of pieces that are cut anywhere. A batch that lies across pieces is checked as it comes:
 * nothing is joined, and a stated size of 2 GiB costs no memory. */
typedef struct tl_batch_stream {
    uint64_t position;      /* in the file: where the batch begins that is open, or the next one */
    tl_batch_header header; /* of the open one */
    uint32_t left;          /* bytes of it that are to come */
    uint32_t crc;           /* of those that came */
    uint8_t head[TL_HEADER_SIZE_V2];
    uint8_t head_size; /* bytes of the next header that came */
    bool verify_crc;
} tl_batch_stream;

TL_API void tl_batch_stream_begin(tl_batch_stream *stream, uint64_t position, bool verify_crc);

/* Whether a batch has begun that has not ended. */
TL_API bool tl_batch_stream_open(const tl_batch_stream *stream);

/* Takes data[*at..size), which follow what was taken before, and appends the batches that end there, as tl_scan does.
 *   TL_OK    all was taken
 *   TL_FULL  the table is full; give more room and call again
 *   else     the fault of the batch at fault->position; the stream ends there */
TL_API tl_status tl_batch_stream_feed(tl_batch_stream *stream, const uint8_t *data, size_t size, size_t *at,
                                      tl_batch_table *table, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
