/* Batch headers of a log that lies in a local file as the broker wrote it: a few bytes of each batch are read. */
#ifndef TLJ_HEADERS_H
#define TLJ_HEADERS_H

#include "decoder.h"

/* Some headers of small batches, and no dearer than one. */
enum { TLJ_HEADER_BLOCK_BYTES = 4096, TLJ_HEADERS_PER_WALK = 4096 };

/* After so many headers of a range it is known how large its batches are. */
enum { TLJ_HEADERS_TO_JUDGE = 32 };

/* Where a walk stands; the caller sets the first group and zeroes the rest. */
typedef struct tlj_walk {
    int file;
    int64_t log_position; /* of the log in the file */
    int64_t end_position; /* of the range, in the log */
    int64_t
        worth_bytes; /* where batches are smaller on average, headers are not looked at: all of the rest is needed */

    int64_t needed_from, needed_to; /* batches whose records have to be looked at; none where they are equal */
    bool ended;                     /* nothing of the range is left */
    int64_t requests, bytes;
    int error; /* errno of a read that failed, else 0 */

    int64_t headers; /* looked at */
    int64_t block_position, block_size;
    uint8_t block[TLJ_HEADER_BLOCK_BYTES];
} tlj_walk;

/* Goes on in the range that the decoder has begun, whether it sums up or only rules batches out: until it ended, or
 * behind the first run of batches whose records are needed, or after TLJ_HEADERS_PER_WALK headers. TL_OK         look
 * at needed_from/needed_to and ended; call again unless ended TL_TRUNCATED  the file ends, or the range ends inside a
 * batch else          the header's fault, or TL_BAD_ARGUMENT with `error`. Behind any of these the walk is of no use:
 * who decodes the range tells what is wrong */
tl_status tlj_walk_headers(tlj_decoder *decoder, tlj_walk *walk);

#endif
