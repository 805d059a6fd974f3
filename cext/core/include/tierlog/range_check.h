/* Whether the bytes of a range are a run of sound batches of one segment, in order, as they come in pieces. */
#ifndef TIERLOG_RANGE_CHECK_H
#define TIERLOG_RANGE_CHECK_H

#include "batch.h"
#include "file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The broken rule, for the message. */
typedef enum tl_range_rule {
    TL_RULE_NONE,
    TL_RULE_HEADER, /* no batch begins where one ends: the status of tl_batch_stream_feed */
    TL_RULE_CRC,
    TL_RULE_ORDER, /* offsets outside the segment, or not behind the last: fault->expected is the least that can stand,
                    * fault->base_offset and fault->found are the batch's first and last */
    TL_RULE_SIZE   /* the open batch says that it ends behind the segment */
} tl_range_rule;

/* "header", "crc", "order", "size", or "none". Never NULL; "unknown" of a number that is none. */
TL_API const char *tl_range_rule_name(tl_range_rule rule);

/* A range may begin inside a batch. Position 0 is a border; any other is one if the first batch that stands there is
 * sound and within the segment's offsets, and the check says nothing until it has seen that; if it is none, it never
 * says anything. */
typedef struct tl_range_check {
    tl_batch_stream stream;
    int64_t first_offset, last_offset; /* of the segment */
    int64_t next_offset;               /* the least that can stand */
    uint64_t size_bytes;               /* of the segment */
    uint64_t position;                 /* behind the last byte that was fed */
    tl_range_rule rule;                /* the broken rule */
    bool is_border, is_off;
} tl_range_check;

TL_API void tl_range_check_begin(tl_range_check *check, uint64_t position, int64_t first_offset, int64_t last_offset,
                                 uint64_t size_bytes);

/* Takes the bytes that follow. After a fault nothing more can be fed.
 *   TL_OK         nothing is wrong, or nothing can be said
 *   else          check->rule was broken by the batch at fault->position: TL_BAD_CRC, TL_BAD_ENTRY (order),
 * TL_BAD_SIZE, or what tl_batch_stream_feed found */
TL_API tl_status tl_range_check_feed(tl_range_check *check, const uint8_t *data, size_t size, tl_fault *fault);

/* The same of `size` bytes of an open file from `position` on, read piece by piece into `room`.
 *   as above. *error is 0, or what ended the reading: a negative errno, -EAGAIN where a disk would be waited for and
 *   `waits` is not set, -ENODATA where the file ends before */
TL_API tl_status tl_range_check_feed_file(tl_range_check *check, tl_files files, int64_t file, uint64_t position,
                                          uint64_t size, bool waits, uint8_t *room, size_t room_size, int64_t *error,
                                          tl_fault *fault);

/* The same for a caller who wants the headers too: takes data[*at..size) and appends the batches that end there, as
 * tl_batch_stream_feed does. The table has base_offset, last_offset, position and crc_ok at least.
 *   TL_OK         all was taken
 *   TL_FULL       the table is full; give more room and call again
 *   else          as above; the batches before the faulty one are in the table */
TL_API tl_status tl_range_check_collect(tl_range_check *check, const uint8_t *data, size_t size, size_t *at,
                                        tl_batch_table *table, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
