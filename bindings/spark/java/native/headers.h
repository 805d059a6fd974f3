/* Batch headers of a log that lies in a local file as the broker wrote it.
 *
 * Checked, all of the file is read, through a buffer that stays in the core's cache, and what a header says counts once
 * the checksum of its batch was right. Trusted, a few bytes of each batch are read, and what a header says counts
 * unless it contradicts itself or its neighbours. Either way what headers do not say is named, for who decodes records.
 */
#ifndef TLJ_HEADERS_H
#define TLJ_HEADERS_H

#include "decoder.h"

enum {
    TLJ_HEADER_BLOCK_BYTES = 4096,       /* some headers of small batches, and no dearer than one */
    TLJ_CHECKED_BLOCK_BYTES = 256 << 10, /* of batches that are checked: few calls, and it stays in the cache */
    TLJ_WALK_BYTES = 64 << 20,           /* of one call, about, */
    TLJ_HEADERS_PER_WALK = 4096          /* or so many headers: the caller may want to end it */
};

/* After so many headers of a range it is known how large its batches are. */
enum { TLJ_HEADERS_TO_JUDGE = 32 };

/* Where a walk stands; the caller sets the first group and zeroes the rest. */
typedef struct tlj_walk {
    int file;
    bool checked;
    int64_t log_position; /* of the log in the file */
    int64_t end_position; /* of the range, in the log, */
    int64_t read_end;     /* and behind the base offset of the next batch, or the same */
    int64_t
        worth_bytes; /* where batches are smaller on average, headers are not looked at: all of the rest is needed */
    tl_header_trust trust; /* what is known of the segment; not where it is checked */

    int64_t needed_from, needed_to; /* batches whose records have to be looked at; none where they are equal */
    bool ended;                     /* nothing of the range is left */
    int64_t requests, bytes;
    int error; /* errno of a read that failed, else 0 */

    int64_t headers;        /* looked at */
    bool in_run;            /* the batch before is needed */
    bool last_counted;      /* the header of the batch before was enough, */
    int64_t last_position;  /* it begins here, */
    tl_summary before_last; /* and so much was known before it */
    int64_t block_position, block_size;
} tlj_walk;

/* Goes on in the range that the decoder has begun, whether it sums up or only rules batches out: until it ended, or
 * behind the first run of batches whose records are needed, or after TLJ_HEADERS_PER_WALK headers or TLJ_WALK_BYTES.
 * One that only rules out counts the batches on both sides of a run to it: no damaged header alone hides records.
 *   TL_OK         look at needed_from/needed_to and ended; call again unless ended
 *   TL_TRUNCATED  the file ends, or the range ends inside a batch
 *   TL_BAD_CRC    of a batch that was checked
 *   TL_OVER_LIMIT, TL_NO_MEMORY  for the buffer
 *   else          the header's fault, or TL_BAD_ARGUMENT with `error`
 * Behind any of these the walk is of no use: who decodes the range tells what is wrong. */
tl_status tlj_walk_headers(tlj_decoder *decoder, tlj_walk *walk);

#endif
